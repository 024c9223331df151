//! The fabric's contract, held against shared memory. The other backends are held against it by the
//! tests of their own crates.

mod processes;
mod suite;
#[path = "../support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the tests of shared memory use the rest")]
mod support;

processes::backend!(shm, lacks: [
    Rights: "a process that maps a region may write all of it",
    TearsOften: "a copy of a few words is seldom interrupted"
]);

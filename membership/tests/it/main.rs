//! Tests of the crate as its users see it, in one program: each file would be optimised again with all
//! that it shares.

mod acceptors;
mod announcements;
mod caches;
mod clearing;
mod common;
mod durations;
mod engine_model;
mod flapping;
mod fuzz;
mod given_up;
mod instant;
mod lease_model;
mod lease_requests;
mod leases;
mod links;
mod names;
mod releases;
mod replacements;
mod rings;
mod slots;
mod statements;
mod stream;
mod suspicions;
mod traced;
mod traces;
mod wire;

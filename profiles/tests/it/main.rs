//! Tests of the crate as its users see it, in one program: each file would be optimised again with all
//! that it shares.

mod arbitrary;
mod builtin;
mod errors;
mod fuzz;
mod one;
mod testbeds;

//! Tests of the crate as its users see it, in one program: each file would be optimised again with all
//! that it shares.

mod control;
mod fuzz;
mod hosts;

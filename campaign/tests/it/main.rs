//! Tests of the crate as its users see it, in one program: each file would be optimised again with all
//! that it shares.

mod campaign;
mod disaster;
mod drift;
mod fide;
mod fide_schedules;
mod independence;
mod links;
mod marks;
mod papers;
mod pulses;
mod recoveries;
mod recovery;
mod reproductions;
mod scripts;

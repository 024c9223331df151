//! Broadcasts and consensus that rely on a perfect failure detector: FiDe's appendix A, reproduced
//! as machines without I/O. obol's own protocol uses none of them, because their safety ends with
//! the detector's accuracy; [`World`] explores them within their assumptions and outside of these.

mod counterexamples;
mod explore;
mod fcurb;
mod hsuc;
mod huc;
mod machine;
mod osrb;
mod timed;
mod world;

pub use counterexamples::{Counterexample, counterexamples};
pub use explore::{Broken, Explored, explore};
pub use fcurb::Fcurb;
pub use hsuc::{Hsuc, HsucMessage};
pub use huc::{Huc, HucMessage};
pub use machine::{Machine, Options, Output, Process, Set, Value};
pub use osrb::{Broadcast, Osrb};
pub use timed::{Took, timed};
pub use world::{Action, Setup, Weakness, World};

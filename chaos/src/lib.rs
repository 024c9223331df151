//! What operators do to clusters and see of them: observation by reading regions, drills with a
//! verdict, and the simulation campaign. Nothing here takes part in the protocol.

pub mod calendar;
pub mod campaign;
pub mod control;
mod distant;
pub mod drillfile;
pub mod drills;
pub mod marks;
pub mod observe;
pub mod papers;
pub mod plain;
pub mod plot;
pub mod spans;
pub mod stats;
pub mod timeline;
mod words;

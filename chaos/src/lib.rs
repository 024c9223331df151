//! Drills: inject faults into running clusters and check the outcome. This crate parses drill
//! files, injects faults through fault agents, follows the cluster by [`obol_observe`], and judges
//! and reports the results.

pub mod drillfile;
pub mod drills;
pub mod floor;
pub mod http;

pub use obol_faults as faults;

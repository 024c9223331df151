//! Drills: faults injected into running clusters, and a verdict on how these bore them. Drill files
//! are read and checked here, faults are injected by fault agents, what follows is observed by
//! [`obol_observe`], judged and reported.

pub mod control;
pub mod drillfile;
pub mod drills;
pub mod faults;

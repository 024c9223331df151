//! Experiments made of drills: they run many of them, or read many journals, and print tables.

pub mod detectors;
pub mod engines;
pub mod quick;
pub mod replay;
pub mod table2;
pub mod table2_run;
pub mod timeline;
pub mod tune;
pub mod tune_network;
pub mod tuning;

//! Reads a cluster and analyses it: snapshots of all processes by one-sided READs, failover time
//! lines and phases, statistics, charts. Nothing here writes to a cluster except [`annotations`],
//! [`names_file`] and [`missed`], which have files of their own.

// What tests of several crates share is written with this name.
#[cfg(test)]
extern crate self as obol_observe;

mod absence;
pub mod advice;
pub mod annotations;
pub mod calendar;
mod clocks;
mod deciders;
pub mod event_text;
pub mod failovers;
pub mod figures;
mod gateway;
pub mod histograms;
pub mod incidents;
pub mod inspection;
pub mod judge;
mod keys;
pub mod lines;
mod load;
pub mod metrics;
pub mod missed;
mod named_enum;
pub mod names;
pub mod names_file;
pub mod namesakes;
pub mod network_recording;
mod observed_event;
mod observer;
mod owner;
mod percentile;
pub mod plot;
pub mod poisson;
pub mod process_json;
pub mod pulse;
pub mod pulse_json;
pub mod reason;
mod remote_reader;
mod renewals;
pub mod replacement;
pub mod replicas;
#[cfg(test)]
#[path = "../tests/support/samples.rs"]
#[allow(dead_code, reason = "tests of other crates use the rest")]
mod samples;
pub mod sampling;
mod snapshot;
mod source;
pub mod stats;
pub mod store;
pub mod table;
pub mod tail;
pub mod timeline;
pub mod usage;
pub mod view_times;
pub mod warnings;

pub use absence::Absence;
pub use deciders::{Deciders, spare};
pub use gateway::{
    CERTIFICATE_DAYS_FEW, Gateway, RunningGateway, certificate_days, certificate_warning, least_duties,
};
pub use keys::examine_keys;
pub use load::Load;
pub use observed_event::{ObservedEvent, UnreadEvents};
pub use observer::Observer;
pub use percentile::Percentile;
pub use renewals::Renewals;
pub use snapshot::{Elsewhere, Health, LeaseStatus, Process, Snapshot};
pub use source::Source;

#[doc(hidden)]
pub use {schemars, serde};

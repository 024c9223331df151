//! A cluster over time: samples of a live cluster or of a recording, and what is derived from them. It depends on
//! the samples alone, so a recording gives the same as the live cluster.

pub mod alerting;
mod alerts;
pub mod data;
pub mod live;
pub mod record;
pub mod sample;
pub mod tape;
pub mod trend;
pub mod windows;

use sample::Sample;

/// An update from a source.
#[derive(Clone, Debug)]
pub enum Update {
    /// The cluster at one moment.
    Sample(Box<Sample>),
    /// The cluster cannot be read; the source keeps trying.
    Lost {
        /// Why, and what to do.
        why: String,
    },
}

/// Receives the updates of a source.
pub trait Sink {
    /// Handles an update; false ends the source.
    fn take(&mut self, update: Update) -> bool;
}

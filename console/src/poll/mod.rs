//! Sources of samples. Each runs on a thread of its own, so that its waits delay neither keys nor
//! drawing.

pub(crate) mod live;
pub(crate) mod record;
pub(crate) mod sample;
pub(crate) mod tape;

use sample::Sample;

/// An update from a source.
#[derive(Clone, Debug)]
pub(crate) enum Update {
    /// The cluster at one moment.
    Sample(Box<Sample>),
    /// The cluster cannot be read; the source keeps trying.
    Lost {
        /// Why, and what to do.
        why: String,
    },
}

/// Receives the updates of a source.
pub(crate) trait Sink {
    /// Handles an update; false ends the source.
    fn take(&mut self, update: Update) -> bool;
}

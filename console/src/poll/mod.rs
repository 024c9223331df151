//! Where samples come from. A source runs on a thread of its own, so that nothing that it waits for
//! ever holds up a key or a draw.

pub(crate) mod live;
pub(crate) mod record;
pub(crate) mod sample;

use obol_fabric::Name;
use sample::Sample;

/// What a source delivers.
#[derive(Clone, Debug)]
pub(crate) enum Update {
    /// The cluster at one moment.
    Sample(Box<Sample>),
    /// The cluster can not be read; the source goes on trying.
    Lost {
        /// Why, and what to do.
        why: String,
    },
}

/// What is needed to find a cluster.
#[derive(Clone, Debug)]
pub struct Place {
    /// The directory of all clusters.
    pub root: std::path::PathBuf,
    /// The cluster.
    pub cluster: Name,
}

/// What takes the updates of a source.
pub(crate) trait Sink {
    /// Takes an update; false ends the source.
    fn take(&mut self, update: Update) -> bool;
}

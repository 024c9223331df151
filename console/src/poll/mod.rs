//! Where samples come from. A source runs on a thread of its own, so that nothing that it waits for
//! ever holds up a key or a draw.

pub(crate) mod live;
mod plain;
pub(crate) mod record;
pub(crate) mod sample;

use obol_fabric::Name;
use sample::Sample;

/// What a source tells the console.
#[derive(Clone, Debug)]
pub(crate) enum News {
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

/// Somebody who is told the news; false ends the source.
pub(crate) trait Listener {
    /// Takes a piece of news; false if nobody wants any more.
    fn tell(&mut self, news: News) -> bool;
}

//! Watches a cluster through a rollout, by one-sided READs.

use super::Roster;
use super::judge::Periods;
use super::track::Track;
use obol_fabric::Name;
use obol_node::SiteError;
use obol_observe::{Health, Observer, Snapshot};
use std::collections::BTreeSet;
use std::path::Path;

/// Histograms are large, and are read only once in this many polls.
const SPANS_EVERY: u64 = 5;

/// Watches a cluster.
pub struct Watcher {
    observer: Observer,
    track: Track,
    polls: u64,
    /// Members of other hosts at the first poll whose histograms were not read yet: what they have
    /// counted before does not belong to the rollout.
    unread: BTreeSet<Name>,
}

impl Watcher {
    /// Begins to watch.
    pub fn open(root: &Path, cluster: Name) -> Result<Self, SiteError> {
        let mut observer = Observer::open(root, cluster)?.low_memory();
        observer.read_all_buckets();
        Ok(Self { observer, track: Track::default(), polls: 0, unread: BTreeSet::new() })
    }

    /// The directory of the cluster.
    pub fn dir(&self) -> &Path {
        self.observer.cluster().dir()
    }

    /// From the next poll on, everything belongs to the rollout. The caller polls right before.
    pub fn begin(&mut self) {
        self.track.begin();
    }

    /// The command has ended. The caller polls right before.
    pub fn settle(&mut self) {
        self.track.settle();
    }

    /// Whether members that fail now are killed on purpose, and so are not counted.
    pub const fn set_exercises(&mut self, exercises: bool) {
        self.track.set_exercises(exercises);
    }

    /// The periods so far, with their failovers.
    pub fn periods(&mut self) -> Periods<'_> {
        self.track.periods()
    }

    /// Who was there before the command, and is now.
    pub fn roster(&self) -> Roster {
        self.track.roster()
    }

    /// Reads the cluster once. Returns its health, and why it is not healthy.
    pub fn poll(&mut self) -> (Health, Vec<String>) {
        let with_spans = self.polls.is_multiple_of(SPANS_EVERY);
        let (snapshot, events, mut spans) = self.observer.poll(with_spans);
        if self.polls == 0 {
            self.unread = snapshot.view.iter().flat_map(|view| &view.members).map(|m| m.name).collect();
        }
        if with_spans {
            let mut elsewhere = self.observer.spans_elsewhere();
            elsewhere.retain(|one| !self.unread.remove(&one.process));
            spans.extend(elsewhere);
        }
        self.polls += 1;
        let deployment = self.observer.deployment();
        let host = |region| deployment.host_of(region).filter(|_| deployment.network.is_some());
        self.track.take(&snapshot, events, &spans, host);
        let Snapshot { health, reasons, .. } = snapshot;
        (health, reasons)
    }
}

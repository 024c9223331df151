//! Who has the name of a process that is not admitted because another member has it: a live process of
//! another host, so that this one is refused, or one whose end is not known yet, so that this one waits.

use crate::ending::refusal_by_member;
use obol_fabric::Name;
use obol_node::Site;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Pause between two searches. Each READs the other hosts.
const SEARCH_EVERY: Duration = Duration::from_secs(1);

/// Searches the other hosts for the live holder of a name.
pub(crate) struct Namesakes {
    root: PathBuf,
    cluster: Name,
    name: Name,
    search_at: Option<Instant>,
}

impl Namesakes {
    pub(crate) fn of(site: &Site, name: Name) -> Self {
        let dir = site.cluster.dir();
        let root = dir.parent().unwrap_or(dir).to_owned();
        Self { root, cluster: site.cluster.name(), name, search_at: None }
    }

    /// The refusal of the process that waits for its name, if the holder is alive. Blocks while other
    /// hosts are READ, once per [`SEARCH_EVERY`].
    pub(crate) fn refusal(&mut self) -> Option<String> {
        let now = Instant::now();
        if self.search_at.is_some_and(|at| now < at) {
            return None;
        }
        self.search_at = Some(now + SEARCH_EVERY);
        // What cannot be read now may be at the next search.
        refusal_by_member(&self.root, self.cluster, self.name).ok().flatten()
    }
}

//! How a process of a cluster begins: from the newest view that it finds, in the coordinators'
//! regions of its host or in what an operator recovered, or from the cluster's first view.
//!
//! Daemons, libraries and simulators make their machines here and nowhere else. So what a start
//! takes for known is what the campaign of simulated clusters has judged.

use crate::Config;
use crate::coordinator::Coordinator;
use crate::member::Member;
use crate::view::{Kind, View};
use obol_fabric::Name;
use std::sync::Arc;

/// What a process begins with.
#[derive(Clone, Debug)]
pub struct Start {
    config: Config,
    newest: Arc<View>,
    seed: u64,
}

impl Start {
    /// `first` is the cluster's first view, the same for all of its processes. `found` are views
    /// that were decided: those that the coordinators' regions on this host show, and the one that
    /// an operator recovered. `seed` must differ between processes and lives.
    #[must_use]
    pub fn new(config: Config, first: &Arc<View>, found: impl IntoIterator<Item = View>, seed: u64) -> Self {
        let newest = found.into_iter().max_by_key(|view| view.id).filter(|view| view.id > first.id);
        Self { config, newest: newest.map_or_else(|| Arc::clone(first), Arc::new), seed }
    }

    /// The view that the process starts from. It was decided at some time before: how long ago,
    /// nobody knows.
    #[must_use]
    pub const fn newest(&self) -> &Arc<View> {
        &self.newest
    }

    /// Coordinator `number` (from 1). One that the view does not name asks to become a member, and
    /// decides nothing before an operator adds it to the acceptors.
    #[must_use]
    pub fn coordinator(self, number: u16) -> Coordinator {
        Coordinator::new(self.config, number, self.newest, self.seed)
    }

    /// A member that is no coordinator.
    #[must_use]
    pub fn member(self, kind: Kind, name: Name) -> Member {
        Member::new(self.config, kind, name, self.newest, self.seed)
    }
}

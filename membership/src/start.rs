//! How a process of a cluster starts: from the newest view that it finds, in the coordinators'
//! regions of its host or in an operator's recovery, or from the cluster's first view.
//!
//! Daemons, libraries and simulators all create their machines here, so the campaign of simulated
//! clusters covers the assumptions of a start.

use crate::Config;
use crate::coordinator::Coordinator;
use crate::member::Member;
use crate::view::{Kind, View};
use obol_fabric::Name;
use std::sync::Arc;

/// The initial knowledge of a process.
#[derive(Clone, Debug)]
pub struct Start {
    config: Config,
    newest: Arc<View>,
    seed: u64,
}

impl Start {
    /// `first` is the cluster's first view, the same for all of its processes. `found` are decided
    /// views: those in the coordinators' regions on this host, and the one of an operator's
    /// recovery. `seed` must differ between processes and lives.
    pub fn new(config: Config, first: &Arc<View>, found: impl IntoIterator<Item = View>, seed: u64) -> Self {
        let newest = found.into_iter().max_by_key(View::rank).filter(|view| view.rank() > first.rank());
        Self { config, newest: newest.map_or_else(|| Arc::clone(first), Arc::new), seed }
    }

    /// The view that the process starts from. It was decided at an unknown time in the past.
    pub const fn newest(&self) -> &Arc<View> {
        &self.newest
    }

    /// Coordinator `number` (from 1). One that the view does not name asks to become a member, and
    /// decides nothing until it is added to the acceptors.
    pub fn coordinator(self, number: u16) -> Coordinator {
        Coordinator::new(self.config, number, self.newest, self.seed)
    }

    /// A member other than a coordinator.
    pub fn member(self, kind: Kind, name: Name) -> Member {
        Member::new(self.config, kind, name, self.newest, self.seed)
    }
}

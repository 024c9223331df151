//! The deadbeat detector: deaths that the fabric reports as [`Event::Death`](obol_fabric::Event).
//!
//! uKharon, section 4.1. It probes nothing. A coordinator keeps here the processes that the fabric
//! watches for it; an agent has the programs in its own seats watched (`attached_apps`).

use crate::log::{LOG_VIEWS_MAX, Log};
use crate::view::Reason;
use obol_fabric::{Address, Evidence, Fabric, Incarnation, ViewId};
use std::collections::{BTreeMap, BTreeSet};

/// The processes watched for one coordinator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Deadbeat {
    /// By address, with whether the watch is lazy.
    watched: BTreeMap<Address, bool>,
}

impl Deadbeat {
    /// Sets the watched processes; `true` for those whose death may be reported late.
    pub fn watch<F: Fabric>(&mut self, wanted: BTreeMap<Address, bool>, fabric: &mut F) {
        for gone in self.watched.keys().filter(|address| !wanted.contains_key(address)) {
            fabric.unwatch(*gone);
        }
        for (&address, &lazy) in
            wanted.iter().filter(|(address, lazy)| self.watched.get(address) != Some(lazy))
        {
            if lazy {
                fabric.watch_lazily(address);
            } else {
                fabric.watch(address);
            }
        }
        self.watched = wanted;
    }
}

/// Why a member is removed upon this evidence. Only a kernel's report counts as a deadbeat; a host
/// that does not answer has timed out.
pub const fn reason(evidence: Evidence) -> Reason {
    match evidence {
        Evidence::Silence => Reason::Timeout,
        Evidence::Suspicion | Evidence::Proof => Reason::Deadbeat,
    }
}

/// The members at this address. A member that was already removed may still have a page to clear.
pub fn accused(at: Address, log: &Log, cleared: ViewId) -> BTreeSet<Incarnation> {
    let newest = log.newest().view.id;
    let from = cleared.0.max(newest.0.saturating_sub(LOG_VIEWS_MAX as u64 - 1));
    (from..=newest.0)
        .filter_map(|id| log.get(ViewId(id)))
        .flat_map(|entry| entry.view.members.iter())
        .filter(|m| m.address == at)
        .map(|m| m.incarnation)
        .collect()
}

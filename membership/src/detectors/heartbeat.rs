//! The heartbeat detector: suspects processes whose counter has stalled.
//!
//! uKharon, section 4.2, kernel failures. Processes with a core form a ring by incarnation and each
//! READs its successor's counter; an agent also READs those of the programs in its seats. Beyond
//! the paper, a coordinator READs those of all others and suspects them after twice as many equal
//! values. Otherwise, if a leader and its predecessor stalled at once, neither would be noticed.
//!
//! The paper suspects at the second equal value. Here a profile sets the number, because shared
//! cores schedule late. It is higher while leases are longer than the profile's: delays of renewals
//! also delay heartbeats.

use super::Scope;
use super::stall::{Probes, Rule, Seen};
use crate::Config;
use crate::view::{Kind, Member, Reason};
use obol_fabric::{Layout, Nanos};

/// Which other process watches a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Beat {
    /// None: this process is its predecessor in the ring, or its agent.
    Own,
    /// Another coordinator's predecessor in the ring also watches it.
    Coordinator,
}

impl Rule for Beat {
    const REASON: Reason = Reason::Heartbeat;

    fn targets<'v>(scope: &Scope<'v>) -> Vec<(&'v Member, Self)> {
        let &Scope { view, me, .. } = scope;
        let Some(me) = me else { return Vec::new() };
        let ring = || view.members.iter().filter(|m| m.has_core());
        let successor = ring().find(|m| m.incarnation > me).or_else(|| ring().next());
        let own = ring().find(|m| m.incarnation == me);
        let successor = successor.filter(|m| own.is_some() && m.incarnation != me);
        let apps = view.of_kind(Kind::App).filter(|m| m.host == me);
        let beats = successor.into_iter().chain(apps).map(|m| (m, Self::Own));
        let coordinates = own.is_some_and(|m| m.kind == Kind::Coordinator);
        let peers = view.of_kind(Kind::Coordinator);
        let peers = peers.filter(|m| coordinates && m.incarnation != me && successor != Some(m));
        beats.chain(peers.map(|m| (m, Self::Coordinator))).collect()
    }

    fn offset(&self, layout: &Layout, seat: u16) -> u32 {
        layout.heartbeat(seat)
    }

    fn pause(&self, config: &Config) -> Nanos {
        config.timing.heartbeat_period
    }

    fn is_stalled(&self, seen: &Seen, confirm: u32) -> bool {
        seen.same
            >= match self {
                Self::Own => confirm,
                // Its predecessor in the ring reports it, unless that has stalled as well.
                Self::Coordinator => confirm.saturating_mul(2),
            }
    }
}

/// One process's heartbeat detector.
pub(crate) type Heartbeat = Probes<Beat>;

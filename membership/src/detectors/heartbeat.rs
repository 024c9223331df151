//! The heartbeat detector: who is suspected because its counter stands still.
//!
//! uKharon, section 4.2, kernel failures. Processes with a core form a ring by incarnation and each
//! READs its successor's counter; an agent also READs those of the programs in its seats. Beyond
//! the paper, a coordinator READs those of all others, and suspects them after twice as many: were
//! its predecessor the leader's only watcher, nobody would act when both stand still at once.
//!
//! The paper suspects at the second equal value; here a profile says how many, because shared cores
//! schedule late, and more are needed while leases are longer than the profile's: what delays
//! renewals delays heartbeats as well.

use super::Scope;
use super::stall::{Probes, Rule, Seen};
use crate::Config;
use crate::view::{Kind, Level, Member};
use obol_fabric::{Layout, Nanos};

/// By whom else a member is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Beat {
    /// Nobody: this process is its predecessor in the ring, or its agent.
    Own,
    /// Another coordinator, whose predecessor in the ring watches it, too.
    Coordinator,
}

impl Rule for Beat {
    const LEVEL: Level = Level::Heartbeat;

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
                // Its predecessor in the ring reports it, unless that stands still as well.
                Self::Coordinator => confirm.saturating_mul(2),
            }
    }
}

/// One process's heartbeat detector.
pub(crate) type Heartbeat = Probes<Beat>;

//! Death notices that this process spreads. They are repeated until a view excludes the accused,
//! because multicast is lossy. The first goes by multicast; repetitions also go to each
//! coordinator, so that a broken multicast tree does not hide a death.

use crate::Config;
use crate::detectors::heartbeat::Heartbeat;
use crate::metrics::Counter;
use crate::view::{Kind, Reason, View};
use crate::wire::Message;
use obol_fabric::{Evidence, Fabric, Group, Incarnation, Instant};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Notice {
    accused: Incarnation,
    reason: Reason,
    evidence: Evidence,
    due: Instant,
    repeated: bool,
}

/// The notices of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Notices(Vec<Notice>);

impl Notices {
    /// Spreads a notice from `due` on. A proof replaces a suspicion and is spread anew.
    pub fn raise(&mut self, accused: Incarnation, reason: Reason, evidence: Evidence, due: Instant) {
        if let Some(known) = self.0.iter_mut().find(|n| n.accused == accused) {
            if evidence > known.evidence {
                known.evidence = evidence;
                known.reason = reason;
                known.due = known.due.min(due);
            }
            return;
        }
        self.0.push(Notice { accused, reason, evidence, due, repeated: false });
    }

    /// Retracts a suspicion.
    pub fn retract(&mut self, accused: Incarnation) {
        self.0.retain(|n| n.accused != accused || n.evidence == Evidence::Proof);
    }

    /// Retracts what the heartbeat detector found in members that it does not watch any more. Their new
    /// watcher finds it, too, if it is true.
    pub(crate) fn retract_unwatched(&mut self, heartbeat: &Heartbeat) {
        self.0.retain(|n| {
            n.reason != Reason::Heartbeat || n.evidence == Evidence::Proof || heartbeat.suspects(n.accused)
        });
    }

    /// Drops the notices that this view has settled.
    pub fn settle(&mut self, view: &View) {
        self.0.retain(|n| view.member(n.accused).is_some());
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// When a notice is next sent.
    pub fn deadline(&self) -> Instant {
        self.0.iter().map(|n| n.due).min().unwrap_or(Instant::NEVER)
    }

    /// Drops all suspicions, but keeps proofs: processes that are not members spread them as well.
    pub fn retract_all(&mut self) {
        self.0.retain(|n| n.evidence == Evidence::Proof);
    }

    /// Sends the notices that are due.
    pub fn tick<F: Fabric>(
        &mut self,
        accuser: Incarnation,
        view: &View,
        config: &Config,
        now: Instant,
        fabric: &mut F,
    ) {
        for notice in self.0.iter_mut().filter(|n| n.due <= now) {
            let Notice { accused, reason, evidence, .. } = *notice;
            let bytes = Message::Notice { accuser, accused, reason, evidence }.encode();
            fabric.multicast(Group::Coordinators, &bytes);
            if notice.repeated {
                for coordinator in view.of_kind(Kind::Coordinator) {
                    fabric.send(coordinator.address, &bytes);
                }
            }
            fabric.count(Counter::NoticesSent, 1);
            notice.repeated = true;
            notice.due = now + config.timing.notice_every;
        }
    }
}

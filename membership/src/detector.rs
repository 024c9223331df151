//! The heartbeat detector: who is suspected because its counter stands still.
//!
//! uKharon, section 4.2, kernel failures. Processes with a core form a ring by incarnation and each READs its
//! successor's counter; an agent also READs those of the programs in its seats. The pause runs from the completion of
//! a READ, so a slow network delays a suspicion but does not cause one. The paper suspects at the second equal value;
//! here a profile says how many, because shared cores schedule late.

use crate::Config;
use crate::tokens::{self, Part};
use crate::view::{Kind, Level, View};
use obol_fabric::{Address, Completion, Fabric, Incarnation, Instant, LinkError, Remote};

/// What a READ brought to light.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This member stands still, or can not be reached.
    Suspect(Incarnation, Level),
    /// A member that was suspected here moves again.
    Retract(Incarnation),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Target {
    incarnation: Incarnation,
    address: Address,
    last: Option<u64>,
    /// READs in a row that found `last`.
    same: u32,
    suspected: bool,
    reading: bool,
    due: Instant,
}

/// One process's detector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Detector {
    targets: Vec<Target>,
    round: u32,
}

impl Detector {
    /// Watches whom `me` has to watch in this view; who was watched before keeps its history.
    pub fn follow(&mut self, view: &View, me: Incarnation, config: &Config, now: Instant) {
        let ring = || view.members.iter().filter(|m| m.has_core());
        let successor = ring().find(|m| m.incarnation > me).or_else(|| ring().next());
        let in_ring = ring().any(|m| m.incarnation == me);
        let wards = view.of_kind(Kind::App).filter(|m| m.host == me);
        let wanted = successor.filter(|m| in_ring && m.incarnation != me).into_iter().chain(wards);
        let old = core::mem::take(&mut self.targets);
        self.targets = wanted
            .map(|m| match old.iter().find(|t| t.incarnation == m.incarnation) {
                // A READ that is out belongs to the old list and will not be recognised: read again.
                Some(t) => Target { reading: false, ..t.clone() },
                None => Target {
                    incarnation: m.incarnation,
                    address: m.address,
                    last: None,
                    same: 0,
                    suspected: false,
                    reading: false,
                    due: now + config.timing.heartbeat_period,
                },
            })
            .collect();
        self.round = self.round.wrapping_add(1);
    }

    /// Watches nobody.
    pub fn clear(&mut self) {
        self.targets.clear();
        self.round = self.round.wrapping_add(1);
    }

    /// When the next READ is due.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.targets.iter().filter(|t| !t.reading).map(|t| t.due).min().unwrap_or(Instant::NEVER)
    }

    /// Posts the READs that are due.
    pub fn tick<F: Fabric>(&mut self, config: &Config, now: Instant, fabric: &mut F) {
        for (at, target) in self.targets.iter_mut().enumerate() {
            if target.reading || target.due > now {
                continue;
            }
            target.reading = true;
            let offset = config.layout.heartbeat(target.address.seat);
            let token = tokens::pack(Part::Heartbeat, at as u16, self.round);
            fabric.read(Remote { at: target.address, offset }, 8, token);
        }
    }

    /// Takes the completion of a READ.
    pub fn complete(
        &mut self,
        peer: u16,
        round: u32,
        result: &Result<Completion<'_>, LinkError>,
        config: &Config,
        now: Instant,
    ) -> Option<Verdict> {
        if round != self.round {
            return None;
        }
        let target = self.targets.get_mut(usize::from(peer))?;
        target.reading = false;
        target.due = now + config.timing.heartbeat_period;
        let level = match *result {
            Ok(Completion::Read(bytes)) => {
                let value = bytes.try_into().map(u64::from_le_bytes).ok()?;
                if target.last == Some(value) {
                    target.same += 1;
                } else {
                    target.same = 1;
                    target.last = Some(value);
                }
                if target.same < config.timing.heartbeat_confirm {
                    let moved = target.same == 1 && core::mem::take(&mut target.suspected);
                    return moved.then_some(Verdict::Retract(target.incarnation));
                }
                Level::Heartbeat
            }
            Err(LinkError::PeerReplaced) => Level::Replaced,
            _ => Level::Timeout,
        };
        if core::mem::replace(&mut target.suspected, true) {
            return None;
        }
        Some(Verdict::Suspect(target.incarnation, level))
    }
}

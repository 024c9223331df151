//! READs of words that must advance: the common part of the heartbeat and the progress detector.
//!
//! The pause starts at the completion of a READ, so a slow network delays a suspicion but does not
//! cause one.

use super::{Detector, Id, Scope, Verdict};
use crate::Config;
use crate::tokens::Labelled;
use crate::view::{Member, Reason};
use obol_fabric::{Address, Completion, Fabric, Incarnation, Instant, Layout, LinkError, Nanos, Remote};

/// Which word of a member is read, and when it counts as stalled.
pub(crate) trait Rule: Copy + PartialEq {
    const REASON: Reason;

    /// The members whose words are read.
    fn targets<'v>(scope: &Scope<'v>) -> Vec<(&'v Member, Self)>;

    fn offset(&self, layout: &Layout, seat: u16) -> u32;

    /// From the completion of a READ to the next one.
    fn pause(&self, config: &Config) -> Nanos;

    /// `confirm`: see [`crate::Timing::confirm_at`].
    fn is_stalled(&self, seen: &Seen, confirm: u32) -> bool;
}

/// What was read of one word.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Seen {
    last: Option<u64>,
    /// Consecutive READs that found `last`.
    pub(super) same: u32,
    /// When the first of them completed.
    pub(super) since: Instant,
    /// When the pending READ, or else the last one, was posted.
    pub(super) posted: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Target<R> {
    incarnation: Incarnation,
    address: Address,
    rule: R,
    seen: Seen,
    suspected: bool,
    reading: bool,
    due: Instant,
}

/// The words that one detector reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Probes<R> {
    targets: Vec<Target<R>>,
    /// Of the current view: see [`crate::Timing::confirm_at`].
    confirm: u32,
    round: u32,
}

impl<R> Default for Probes<R> {
    fn default() -> Self {
        Self { targets: Vec::new(), confirm: u32::MAX, round: 0 }
    }
}

impl<R> Probes<R> {
    /// Whether the last READs of a member's word found it stalled, or failed.
    pub(crate) fn suspects(&self, who: Incarnation) -> bool {
        self.targets.iter().any(|target| target.incarnation == who && target.suspected)
    }
}

impl<R: Rule> Detector for Probes<R> {
    fn follow(&mut self, scope: &Scope<'_>, now: Instant) {
        let timing = &scope.config.timing;
        self.confirm = timing.confirm_at(scope.view.lease);
        let old = core::mem::take(&mut self.targets);
        let known = |m: &Member, rule| {
            old.iter().find(|t| t.incarnation == m.incarnation && t.rule == rule).map(|t| {
                // A pending READ belongs to the old list and its completion will be dropped: read
                // again.
                Target { seen: t.seen.clone(), reading: false, ..*t }
            })
        };
        self.targets = R::targets(scope)
            .into_iter()
            .map(|(m, rule)| {
                known(m, rule).unwrap_or_else(|| Target {
                    incarnation: m.incarnation,
                    address: m.address,
                    rule,
                    seen: Seen { last: None, same: 0, since: now, posted: now },
                    suspected: false,
                    reading: false,
                    due: now + timing.heartbeat_period,
                })
            })
            .collect();
        self.round = self.round.wrapping_add(1);
    }

    fn deadline(&self) -> Instant {
        self.targets.iter().filter(|t| !t.reading).map(|t| t.due).min().unwrap_or(Instant::NEVER)
    }

    fn tick<F: Fabric>(&mut self, id: Id, scope: &Scope<'_>, now: Instant, fabric: &mut F) {
        for (at, target) in self.targets.iter_mut().enumerate() {
            if target.reading || target.due > now {
                continue;
            }
            target.reading = true;
            target.seen.posted = now;
            let offset = target.rule.offset(&scope.config.layout, target.address.seat);
            fabric.read(Remote { at: target.address, offset }, 8, id.token(at as u16, self.round));
        }
    }

    fn complete(&mut self, done: Labelled<'_>, config: &Config, now: Instant) -> Option<Verdict> {
        if done.round != self.round {
            return None;
        }
        let target = self.targets.get_mut(usize::from(done.peer))?;
        target.reading = false;
        target.due = now + target.rule.pause(config);
        let reason = match done.result {
            Ok(Completion::Read(bytes)) => {
                let value = bytes.try_into().map(u64::from_le_bytes).ok()?;
                let seen = &mut target.seen;
                if seen.last == Some(value) {
                    seen.same = seen.same.saturating_add(1);
                } else {
                    (seen.same, seen.since, seen.last) = (1, now, Some(value));
                }
                if !target.rule.is_stalled(&target.seen, self.confirm) {
                    let moved = target.seen.same == 1 && core::mem::take(&mut target.suspected);
                    return moved.then_some(Verdict::Retract(target.incarnation));
                }
                R::REASON
            }
            Err(LinkError::PeerReplaced) => Reason::Replaced,
            // A local fault.
            Err(LinkError::Unmapped) => return None,
            _ => Reason::Timeout,
        };
        if core::mem::replace(&mut target.suspected, true) {
            return None;
        }
        Some(Verdict::Suspect(target.incarnation, reason))
    }
}

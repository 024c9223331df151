//! Whom a coordinator suspects, and for how long.

use super::{Accusation, Coordinator};
use crate::detectors::{deadbeat, links};
use crate::mutants::Mutant;
use crate::recorder::{EventKind, Record};
use crate::view::Reason;
use obol_fabric::{Address, Evidence, Fabric, Incarnation, Instant};

/// What others report without a proof is forgotten after this many periods of
/// `Timing::notice_every`, at which an accuser repeats it: three repetitions in a row may be lost.
const NOTICE_PERIODS: u64 = 4;

/// How long a suspicion holds. Another one about the same member replaces it unless that one holds
/// for less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Holds {
    /// Until links are judged again.
    WhileLinksAreDown,
    Until(Instant),
    /// As long as this process's own detector finds the member stalled.
    WhileStalled,
    /// A kernel reported the death, or there is a later process in its place.
    ForEver,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Suspicion {
    pub(super) by: Accusation,
    pub(super) holds: Holds,
}

impl Coordinator {
    /// A member died, or may have.
    pub(super) fn accuse<F: Fabric>(
        &mut self,
        accused: Incarnation,
        by: Accusation,
        evidence: Evidence,
        now: Instant,
        fabric: &mut F,
    ) {
        let proof = evidence == Evidence::Proof || self.peer.config.mutant.has(Mutant::SuspicionIsProof);
        if proof
            && self.proofs.insert(accused)
            && let Some(clearing) = &mut self.clearing
        {
            clearing.proved(&self.proofs, &self.peer.config, fabric);
        }
        let timing = self.peer.config.timing;
        let own = by.accuser == self.incarnation().unwrap_or_default();
        let believes = self.peer.config.mutant.has(Mutant::BelieveForEver);
        let is_known = matches!(by.reason, Reason::Deadbeat | Reason::Replaced);
        let holds = if self.proofs.contains(&accused) || is_known || believes {
            Holds::ForEver
        } else if own && evidence != Evidence::Silence {
            Holds::WhileStalled
        } else {
            // The fabric reports neither the end of a silence nor that it lasts.
            Holds::Until(now + timing.notice_every.saturating_mul(NOTICE_PERIODS))
        };
        // What may be wrong is spread by its accuser alone, or else two coordinators would remind each
        // other for ever.
        if self.suspect(accused, Suspicion { by, holds }, fabric) && (own || holds == Holds::ForEver) {
            let evidence = evidence.max(Evidence::Suspicion);
            self.peer.notices.raise(accused, by.reason, evidence, now + timing.notice_after);
        }
    }

    /// Marks a member for removal; false if it is not a member, or is this process.
    pub(super) fn suspect<F: Fabric>(
        &mut self,
        accused: Incarnation,
        suspicion: Suspicion,
        fabric: &mut F,
    ) -> bool {
        if self.view().member(accused).is_none() || Some(accused) == self.incarnation() {
            return false;
        }
        let known = self.suspects.get(&accused);
        if known.is_none() {
            let by = suspicion.by;
            let record =
                Record { kind: EventKind::Notice, reason: by.reason as u8, a: accused.0, b: by.accuser.0 };
            fabric.record(record);
        }
        if known.is_none_or(|known| known.holds <= suspicion.holds) {
            self.suspects.insert(accused, suspicion);
        }
        true
    }

    /// The fabric reports that a process died, or that its host is silent. A silent host is a link
    /// that may be down, where links are watched: the leader decides from all reports which members
    /// go. Otherwise both ends of one broken link could have each other removed.
    pub(super) fn report_death<F: Fabric>(
        &mut self,
        who: Address,
        evidence: Evidence,
        now: Instant,
        fabric: &mut F,
    ) {
        let reason = deadbeat::reason(evidence);
        let by = Accusation { accuser: self.incarnation().unwrap_or_default(), reason };
        for accused in deadbeat::accused(who, &self.log, self.cleared) {
            if reason == Reason::Timeout && links::are_watched(&self.peer.config) {
                self.peer.detectors.links.recheck(accused, now);
            } else {
                self.accuse(accused, by, evidence, now, fabric);
            }
        }
    }

    /// A later life of a process proves that the earlier one in its seat is gone, whether or not it
    /// is admitted itself.
    pub(super) fn suspect_former_life(&mut self, of: Address) {
        let former = self.view().earlier_life(of).map(|m| m.incarnation);
        if let Some(accuser) = former {
            let by = Accusation { accuser, reason: Reason::Replaced };
            let suspicion = Suspicion { by, holds: Holds::ForEver };
            self.suspects.entry(accuser).or_insert(suspicion).holds = Holds::ForEver;
        }
    }

    /// This process's own detector suspected a member that runs again.
    pub(super) fn retract(&mut self, who: Incarnation) {
        if self.suspects.get(&who).is_some_and(|known| known.holds == Holds::WhileStalled) {
            self.suspects.remove(&who);
        }
    }

    /// Drops what this process's own detector found in members that it does not watch any more.
    pub(super) fn retract_unwatched(&mut self) {
        let heartbeat = &self.peer.detectors.heartbeat;
        self.suspects.retain(|who, known| known.holds != Holds::WhileStalled || heartbeat.suspects(*who));
    }

    /// Drops suspicions that were not repeated for too long.
    pub(super) fn forget_unrepeated(&mut self, now: Instant) {
        let notices = &mut self.peer.notices;
        self.suspects.retain(|who, known| {
            let holds = !matches!(known.holds, Holds::Until(end) if end <= now);
            if !holds {
                notices.retract(*who);
            }
            holds
        });
    }

    /// When the next suspicion ends unless it is repeated.
    pub(super) fn unrepeated_due(&self) -> Instant {
        let ends = self.suspects.values().filter_map(|known| match known.holds {
            Holds::Until(end) => Some(end),
            Holds::WhileLinksAreDown | Holds::WhileStalled | Holds::ForEver => None,
        });
        ends.min().unwrap_or(Instant::NEVER)
    }

    /// Drops the suspicions of this process when it was excluded: it may have been cut off and have
    /// reached no member. Members repeat the suspicions that are true; proofs stay valid.
    pub(super) fn forget_suspicions(&mut self) {
        let (proofs, notices) = (&self.proofs, &mut self.peer.notices);
        self.suspects.retain(|who, known| {
            let keeps = proofs.contains(who) || known.by.reason == Reason::Replaced;
            if !keeps {
                notices.retract(*who);
            }
            keeps
        });
    }
}

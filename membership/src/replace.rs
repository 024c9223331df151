//! Automatic replacement of coordinators: when a decider counts as missing, and what the leader
//! does about it.
//!
//! A decider is missing while its coordinator is not a member. The detectors cause that, whatever
//! happened: the process is dead, frozen, cut off, or has left. So no further detection is needed,
//! and no proof of a death: replacing a decider takes no member's lease, and its coordinator can come
//! back as a spare.
//!
//! An odd set first gets a spare and then loses the missing decider; an even one only loses it. If the
//! reachable members of a set were a majority of it before, they are one after each of these steps:
//! see docs/design/consensus.md.

use crate::Config;
use crate::mutants::Mutant;
use crate::view::{Acceptor, Change, Kind, Member, View};
use obol_fabric::{Instant, Nanos};
use std::collections::BTreeMap;

/// How long a decider has been missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Absence {
    /// It is missing; it counts as missing since then.
    Since(Instant),
    /// It was missing for this duration, and has been a member again since then.
    Over(Nanos, Instant),
}

/// The missing deciders, as one process has seen it by its own clock. Absences add up until the
/// coordinator has been a member for as long as a missing one is waited for: one that comes and goes
/// is of no more use than a missing one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Vacancies {
    /// By number, as far as it is known.
    absences: BTreeMap<u16, Absence>,
    /// When the newest view was last known to have no successor.
    confirmed: Instant,
    /// When the last change of acceptors was learned.
    changed: Instant,
}

/// The coordinator with this number, if it is a member.
fn seated(view: &View, number: u16) -> Option<&Member> {
    view.of_kind(Kind::Coordinator).find(|m| m.proposer == number)
}

/// The deciders whose coordinators are not members.
pub fn vacant(view: &View) -> impl Iterator<Item = u16> {
    view.acceptors.iter().map(|a| a.proposer).filter(|number| seated(view, *number).is_none())
}

/// The coordinators that are members and not deciders, the oldest member first: one that keeps
/// coming back ranks behind stable ones.
pub fn spares(view: &View) -> impl Iterator<Item = &Member> {
    view.of_kind(Kind::Coordinator).filter(|m| view.acceptor(m.proposer).is_none())
}

impl Absence {
    /// It may be a member from then on.
    fn end(&mut self, at: Instant) {
        if let Self::Since(since) = *self {
            *self = Self::Over(at.since(since), at.max(since));
        }
    }

    /// It is missing from then on.
    fn resume(&mut self, at: Instant) {
        if let Self::Over(missed, _) = *self {
            *self = Self::Since(Instant(at.0.saturating_sub(missed.0)));
        }
    }
}

impl Vacancies {
    /// The knowledge of a process that starts with this view: how long a decider has been missing,
    /// or how long the deciders are unchanged, is unknown.
    pub fn begin(view: &View, now: Instant) -> Self {
        let absences = vacant(view).map(|number| (number, Absence::Since(now))).collect();
        Self { absences, confirmed: now, changed: now }
    }

    /// The newest view had no successor at that time.
    pub fn confirm(&mut self, at: Instant) {
        self.confirmed = self.confirmed.max(at);
    }

    /// Updates from a later view. A process may learn it late, several at once, or not every view.
    /// So what ends an absence counts from when the earlier view was last confirmed.
    pub fn follow(&mut self, old: &View, view: &View, config: &Config, now: Instant) {
        let jump = view.id != old.id.next();
        if jump {
            // In the views in between all of them may have been members.
            self.absences.values_mut().for_each(|absence| absence.end(self.confirmed));
        }
        self.learn(view, config, now);
        if jump || old.acceptors != view.acceptors {
            self.changed = now;
        }
    }

    /// Updates from a later view, where it does not matter if a decider was a member for a moment
    /// in between.
    pub fn update(&mut self, view: &View, config: &Config, now: Instant) {
        self.learn(view, config, now);
        self.confirm(now);
    }

    fn learn(&mut self, view: &View, config: &Config, now: Instant) {
        let enough = config.timing.replace_after;
        let confirmed = self.confirmed;
        self.absences.retain(|number, absence| {
            if seated(view, *number).is_some() {
                absence.end(confirmed);
            }
            let lasts = matches!(absence, Absence::Over(_, back) if now.since(*back) >= enough);
            view.acceptor(*number).is_some() && !lasts
        });
        for number in vacant(view) {
            self.absences.entry(number).or_insert(Absence::Since(now)).resume(now);
        }
    }

    /// The seat that has been vacant for longest, and when it is to be replaced.
    fn overdue(&self, config: &Config) -> Option<(u16, Instant)> {
        let missing = self.absences.iter().filter_map(|(number, absence)| match absence {
            Absence::Since(since) => Some((*number, *since)),
            Absence::Over(..) => None,
        });
        let (number, since) = missing.min_by_key(|(_, since)| *since)?;
        let haste = config.mutant.has(Mutant::ReplaceInHaste);
        Some((number, if haste { since } else { since + config.timing.replace_after }))
    }

    /// The next change and its time; `None` if it cannot be made. `lives` says whether a member
    /// seems to be alive.
    fn plan(
        &self,
        view: &View,
        config: &Config,
        lives: impl Fn(&Member) -> bool,
    ) -> Option<(Change, Instant)> {
        if !config.timing.replace {
            return None;
        }
        let (number, overdue) = self.overdue(config)?;
        let all = view.acceptors.len();
        let mut alive =
            view.acceptors.iter().filter(|a| seated(view, a.proposer).is_some_and(&lives)).count();
        if config.mutant.has(Mutant::ReplaceBelowMajority) {
            alive = all;
        }
        let removed = view.acceptor(number).copied().map(Change::AcceptorRemoved);
        if config.mutant.has(Mutant::RemoveFirst) && all > 1 {
            return Some((removed?, overdue));
        }
        if all.is_multiple_of(2) {
            let stays = alive > (all - 1) / 2 && !config.mutant.has(Mutant::KeepVacant);
            return removed.filter(|_| stays).map(|change| (change, overdue));
        }
        // A majority of the remaining deciders has to be alive.
        let spare = spares(view).find(|m| lives(m)).filter(|_| alive + 1 > all / 2)?;
        let new = Acceptor { proposer: spare.proposer, address: spare.address.owner() };
        let unpaced = config.mutant.has(Mutant::ReplaceUnpaced);
        let paced = if unpaced { overdue } else { overdue.max(self.changed + config.timing.replace_pause) };
        Some((Change::AcceptorAdded(new), paced))
    }

    /// The change of acceptors that a leader should make now.
    pub fn change(
        &self,
        view: &View,
        config: &Config,
        now: Instant,
        lives: impl Fn(&Member) -> bool,
    ) -> Option<Change> {
        self.plan(view, config, lives).filter(|(_, due)| *due <= now).map(|(change, _)| change)
    }

    /// When a leader has to check again, if nothing else happens. A change that is already due
    /// waits for another event.
    pub fn due(
        &self,
        view: &View,
        config: &Config,
        now: Instant,
        lives: impl Fn(&Member) -> bool,
    ) -> Instant {
        self.plan(view, config, lives).map(|(_, due)| due).filter(|due| *due > now).unwrap_or(Instant::NEVER)
    }

    /// The coordinator that a supervisor of processes should start now, of the numbers up to
    /// `limit`, because no spare can take the vacant seat. `runs` says whether a number has a
    /// process, in whatever state. The next one is started `replace_pause` after `started` at the
    /// earliest.
    pub fn missing_spare(
        &self,
        view: &View,
        config: &Config,
        now: Instant,
        started: Option<Instant>,
        limit: u16,
        runs: impl Fn(u16) -> bool,
    ) -> Option<u16> {
        let paused = started.is_some_and(|started| now < started + config.timing.replace_pause);
        let is_even = view.acceptors.len().is_multiple_of(2);
        if !config.timing.replace || paused || is_even || spares(view).next().is_some() {
            return None;
        }
        self.overdue(config).filter(|(_, due)| *due <= now)?;
        let is_free = |number: &u16| view.acceptor(*number).is_none() && !view.retired.contains(*number);
        (1..=limit).find(|number| is_free(number) && !runs(*number))
    }
}

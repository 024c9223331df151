//! Replacing coordinators without an operator: when a seat among those who decide counts as vacant,
//! and what the leader then does about it.
//!
//! A seat is vacant while its coordinator is no member. Detectors make it so, whatever happened:
//! the process is dead, frozen, cut off, or has left. So nothing new has to be found out here, and
//! no proof of a death is needed: a seat that is given away takes nobody's lease, and its
//! coordinator can come back as a spare.
//!
//! An odd set gets a spare first and then loses the vacant seat; an even one just loses it. Whoever
//! can be reached of a set that decides is a majority of it after each of these steps, if it was
//! before: see docs/design/consensus.md.

use crate::Config;
use crate::mutants::Mutant;
use crate::view::{Acceptor, Change, Kind, Member, View};
use obol_fabric::Instant;
use std::collections::BTreeMap;

/// The seats that decide and that are vacant, as one process has seen it by its own clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Vacancies {
    /// By number, and since when that is known.
    since: BTreeMap<u16, Instant>,
    /// When another set of acceptors was last learned of.
    changed: Instant,
}

/// The coordinator with this number, if it is a member.
fn seated(view: &View, number: u16) -> Option<&Member> {
    view.of_kind(Kind::Coordinator).find(|m| m.proposer == number)
}

/// The numbers that decide and whose coordinators are no members.
pub fn vacant(view: &View) -> impl Iterator<Item = u16> {
    view.acceptors.iter().map(|a| a.proposer).filter(|number| seated(view, *number).is_none())
}

/// The coordinators that are members and decide nothing, the oldest member first: who comes back
/// again and again waits behind those that stay.
pub fn spares(view: &View) -> impl Iterator<Item = &Member> {
    view.of_kind(Kind::Coordinator).filter(|m| view.acceptor(m.proposer).is_none())
}

impl Vacancies {
    /// What a process knows that starts with this view: how long a seat has been vacant, or since
    /// when these decide, is not known.
    #[must_use]
    pub fn begin(view: &View, now: Instant) -> Self {
        Self { since: vacant(view).map(|number| (number, now)).collect(), changed: now }
    }

    /// Learns of a later view.
    pub fn follow(&mut self, old: &View, view: &View, now: Instant) {
        if view.id == old.id.next() {
            self.look(view, now);
            if old.acceptors != view.acceptors {
                self.changed = now;
            }
        } else {
            // Seats may have been taken in between.
            *self = Self::begin(view, now);
        }
    }

    /// Learns of a later view, where it does not matter if a seat was taken for a moment in
    /// between.
    pub fn look(&mut self, view: &View, now: Instant) {
        let since = |number| self.since.get(&number).copied().unwrap_or(now);
        self.since = vacant(view).map(|number| (number, since(number))).collect();
    }

    /// The seat that has been vacant for longest, and when it is to be given away.
    fn ripe(&self, config: &Config) -> Option<(u16, Instant)> {
        let (number, since) = self.since.iter().min_by_key(|(_, since)| **since)?;
        let haste = config.mutant.has(Mutant::ReplaceInHaste);
        Some((*number, if haste { *since } else { *since + config.timing.replace_after }))
    }

    /// What to change, as far as it is time, and when. Nothing if it could not be done. `lives`
    /// says whether a member seems to live.
    fn plan(
        &self,
        view: &View,
        config: &Config,
        lives: impl Fn(&Member) -> bool,
    ) -> Option<(Change, Instant)> {
        if !config.timing.replace {
            return None;
        }
        let (number, ripe) = self.ripe(config)?;
        let all = view.acceptors.len();
        let mut alive =
            view.acceptors.iter().filter(|a| seated(view, a.proposer).is_some_and(&lives)).count();
        if config.mutant.has(Mutant::ReplaceBelowMajority) {
            alive = all;
        }
        let removed = view.acceptor(number).copied().map(Change::AcceptorRemoved);
        if config.mutant.has(Mutant::RemoveFirst) && all > 1 {
            return Some((removed?, ripe));
        }
        if all.is_multiple_of(2) {
            let stays = alive > (all - 1) / 2 && !config.mutant.has(Mutant::KeepVacant);
            return removed.filter(|_| stays).map(|change| (change, ripe));
        }
        // Of those who are left in the end, a majority has to live.
        let spare = spares(view).find(|m| lives(m)).filter(|_| alive + 1 > all / 2)?;
        let new = Acceptor { proposer: spare.proposer, address: spare.address.owner() };
        let unpaced = config.mutant.has(Mutant::ReplaceUnpaced);
        let paced = if unpaced { ripe } else { ripe.max(self.changed + config.timing.replace_pause) };
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

    /// When a leader has to look again, if nothing else happens. A change that is due already waits
    /// for something else.
    pub fn due(
        &self,
        view: &View,
        config: &Config,
        now: Instant,
        lives: impl Fn(&Member) -> bool,
    ) -> Instant {
        self.plan(view, config, lives).map(|(_, due)| due).filter(|due| *due > now).unwrap_or(Instant::NEVER)
    }

    /// The coordinator that whoever starts processes should start now, of the numbers up to
    /// `limit`: no spare can take the seat that is to be given away. `runs` says whether a
    /// number has a process, in whatever state. The next one only `replace_pause` after `started`.
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
        self.ripe(config).filter(|(_, due)| *due <= now)?;
        let is_free = |number: &u16| view.acceptor(*number).is_none() && !view.retired.contains(*number);
        (1..=limit).find(|number| is_free(number) && !runs(*number))
    }
}

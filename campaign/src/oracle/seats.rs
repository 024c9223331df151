//! Row 23: without a request of an operator, acceptors are replaced only after they have been
//! missing for long enough, one at a time, with a pause in between, and only while a majority of
//! the acceptors is present.

use super::violation::{Verdict, broken};
use crate::marks::{Mark, Marks};
use crate::scenario::Scenario;
use obol_fabric::Nanos;
use obol_membership::{Change, Kind, View};
use std::collections::BTreeMap;

/// How long an acceptor has been missing, in true time.
#[derive(Clone, Copy, Debug)]
enum Absence {
    /// It is missing; it counts as missing since then.
    Since(u64),
    /// It was missing for this time, and has been a member since then.
    Over(u64, u64),
}

/// The acceptors, and since when some of them are missing, in true time.
#[derive(Debug)]
pub(super) struct Seats {
    /// After how long a coordinator is replaced, and the pause, on the fastest clock; `None` if
    /// never.
    policy: Option<(u64, u64)>,
    /// After how long as a member a coordinator's absences are forgotten, on the slowest clock.
    forgotten: u64,
    /// By number.
    missing: BTreeMap<u16, Absence>,
    /// When the acceptors last changed; zero if never.
    changed: u64,
    /// Operators' requests. Coordinators may receive them late, and follow them for a while.
    requested: Vec<(u16, bool)>,
}

fn is_member(view: &View, number: u16) -> bool {
    view.of_kind(Kind::Coordinator).any(|m| m.proposer == number)
}

impl Seats {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let timing = &scenario.config.timing;
        let fastest = |span: Nanos| span.0 - span.0 * u64::from(timing.drift_ppm) / 1_000_000 - 1;
        let policy = timing.replace.then(|| (fastest(timing.replace_after), fastest(timing.replace_pause)));
        let forgotten =
            timing.replace_after.0 + timing.replace_after.0 * u64::from(timing.drift_ppm) / 1_000_000 + 1;
        Self { policy, forgotten, missing: BTreeMap::new(), changed: 0, requested: Vec::new() }
    }

    /// An operator requests another set of acceptors.
    pub(super) fn request(&mut self, number: u16, decides: bool) {
        if !self.requested.contains(&(number, decides)) {
            self.requested.push((number, decides));
        }
    }

    /// The operators' requests have expired.
    pub(super) fn expire(&mut self) {
        self.requested.clear();
    }

    /// Checks a decided view.
    pub(super) fn follow(&mut self, old: &View, view: &View, time: u64, marks: &mut Marks) -> Verdict {
        for change in &view.changes {
            let (number, comes) = match *change {
                Change::AcceptorAdded(new) => (new.proposer, true),
                Change::AcceptorRemoved(gone) => (gone.proposer, false),
                _ => continue,
            };
            if !self.requested.contains(&(number, comes)) {
                self.judge(old, view, number, comes, time)?;
                marks.hit(if comes { Mark::SpareCame } else { Mark::Replaced });
            }
        }
        if old.acceptors != view.acceptors {
            self.changed = time;
        }
        self.missing.retain(|number, absence| {
            if let Absence::Since(since) = *absence
                && is_member(view, *number)
            {
                *absence = Absence::Over(time - since, time);
            }
            let lasts = matches!(*absence, Absence::Over(_, back) if time - back >= self.forgotten);
            view.acceptor(*number).is_some() && !lasts
        });
        for number in view.acceptors.iter().map(|a| a.proposer).filter(|n| !is_member(view, *n)) {
            let absence = self.missing.entry(number).or_insert(Absence::Since(time));
            if let Absence::Over(missed, _) = *absence {
                *absence = Absence::Since(time.saturating_sub(missed));
            }
        }
        Ok(())
    }

    fn judge(&self, old: &View, view: &View, number: u16, comes: bool, time: u64) -> Verdict {
        let what = if comes { "is added to" } else { "is removed from" };
        let bad = |why: &str| {
            let id = view.id;
            broken!(23, time, "view {id}: coordinator {number} {what} the acceptors {why}")
        };
        let Some((after, pause)) = self.policy else { return bad("without a request") };
        let ripe = |number: &u16| match self.missing.get(number) {
            Some(Absence::Since(since)) => time - since >= after,
            Some(Absence::Over(..)) | None => false,
        };
        let living = |view: &View| view.acceptors.iter().filter(|a| is_member(old, a.proposer)).count();
        if comes {
            if !self.missing.keys().any(ripe) {
                return bad("though none has been missing for long enough");
            }
            if time - self.changed < pause {
                return bad("too soon after the last change");
            }
            if old.acceptors.len().is_multiple_of(2) {
                return bad("though their number was even");
            }
            // A removal follows.
            return if living(view) > old.acceptors.len() / 2 {
                Ok(())
            } else {
                bad("without a present majority")
            };
        }
        if !ripe(&number) {
            return bad("though it has not been missing for long enough");
        }
        if living(view) < majority(view) {
            return bad("though no majority of the others is present");
        }
        if !old.acceptors.len().is_multiple_of(2) {
            return bad("before another one was added");
        }
        Ok(())
    }
}

/// More than half of a view's acceptors.
pub(super) const fn majority(view: &View) -> usize {
    view.acceptors.len() / 2 + 1
}

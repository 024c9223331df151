//! Row 23: coordinators that nobody asked for come and go only in place of others that have been
//! missing for long enough, one at a time, with a pause in between, and never so that of those who
//! decide no majority is there.

use super::{Verdict, broken};
use crate::marks::{Mark, Marks};
use crate::scenario::Scenario;
use obol_fabric::Nanos;
use obol_membership::{Change, Kind, View};
use std::collections::BTreeMap;

/// Who decides, and since when some of them are missing, in true time.
#[derive(Debug)]
pub(super) struct Seats {
    /// After how long a coordinator is replaced, and the pause, as the fastest clock measures them;
    /// none if never.
    policy: Option<(u64, u64)>,
    /// By number.
    missing: BTreeMap<u16, u64>,
    /// When the acceptors changed last; zero if they have not.
    changed: u64,
    /// What operators have asked for. Some coordinator may have heard of it late, and heed it for a
    /// while.
    asked: Vec<(u16, bool)>,
}

fn is_member(view: &View, number: u16) -> bool {
    view.of_kind(Kind::Coordinator).any(|m| m.proposer == number)
}

impl Seats {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let timing = &scenario.config.timing;
        let fastest = |span: Nanos| span.0 - span.0 * u64::from(timing.drift_ppm) / 1_000_000 - 1;
        let policy = timing.replace.then(|| (fastest(timing.replace_after), fastest(timing.replace_pause)));
        Self { policy, missing: BTreeMap::new(), changed: 0, asked: Vec::new() }
    }

    /// An operator wants another set of acceptors.
    pub(super) fn ask(&mut self, number: u16, decides: bool) {
        if !self.asked.contains(&(number, decides)) {
            self.asked.push((number, decides));
        }
    }

    /// Nobody heeds any more what operators have asked for.
    pub(super) fn forget(&mut self) {
        self.asked.clear();
    }

    /// Judges a view that is decided.
    pub(super) fn follow(&mut self, old: &View, view: &View, time: u64, marks: &mut Marks) -> Verdict {
        for change in &view.changes {
            let (number, comes) = match *change {
                Change::AcceptorAdded(new) => (new.proposer, true),
                Change::AcceptorRemoved(gone) => (gone.proposer, false),
                _ => continue,
            };
            if !self.asked.contains(&(number, comes)) {
                self.judge(old, view, (number, comes), time)?;
                marks.hit(if comes { Mark::SpareCame } else { Mark::Replaced });
            }
        }
        if old.acceptors != view.acceptors {
            self.changed = time;
        }
        let vacant = view.acceptors.iter().map(|a| a.proposer).filter(|n| !is_member(view, *n));
        let since = |number| (number, self.missing.get(&number).copied().unwrap_or(time));
        self.missing = vacant.map(since).collect();
        Ok(())
    }

    fn judge(&self, old: &View, view: &View, (number, comes): (u16, bool), time: u64) -> Verdict {
        let what = if comes { "comes to" } else { "goes from" };
        let bad = |why: &str| {
            let id = view.id;
            broken!(23, time, "view {id}: coordinator {number} {what} those who decide {why}")
        };
        let Some((after, pause)) = self.policy else { return bad("though nobody asked for it") };
        let ripe = |number: &u16| self.missing.get(number).is_some_and(|since| time - since >= after);
        let living = |view: &View| view.acceptors.iter().filter(|a| is_member(old, a.proposer)).count();
        if comes {
            if !self.missing.keys().any(ripe) {
                return bad("though nobody has been missing for so long");
            }
            if time - self.changed < pause {
                return bad("too soon after the last change");
            }
            if old.acceptors.len().is_multiple_of(2) {
                return bad("though they were an even number");
            }
            // One of the others goes next.
            return if living(view) > old.acceptors.len() / 2 {
                Ok(())
            } else {
                bad("which no majority follows")
            };
        }
        if !ripe(&number) {
            return bad("though it has not been missing for so long");
        }
        if living(view) < view.majority() {
            return bad("and of the others no majority is there");
        }
        if !old.acceptors.len().is_multiple_of(2) {
            return bad("before another one came");
        }
        Ok(())
    }
}

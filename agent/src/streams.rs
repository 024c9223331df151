//! Changes as streams: the views of a member, and the failures that they report.

use crate::handle::{MembershipHandle, OwnView};
use crate::lost::Lost;
use obol_fabric::host::clock;
use obol_fabric::{Incarnation, Nanos, ViewId};
use obol_membership::view::Member;
use obol_membership::{Change, Reason, View};
use std::collections::VecDeque;

impl MembershipHandle {
    /// The stream of views, beginning with the newest.
    #[must_use]
    pub fn views(&self) -> Views {
        Views::new(self.clone())
    }

    /// The stream of failures of other members from now on.
    #[must_use]
    pub fn failures(&self) -> Failures {
        Failures::new(self.clone())
    }
}

/// The views of a member in order, each newer than the one before. After a join the newest is
/// returned again, because it belongs to another incarnation.
///
/// A member acts on the newest view alone, so views superseded before a poll are skipped. An
/// [`Observer`](crate::Observer) returns every view. The stream continues when its program joins
/// again, and ends when the program's agent dies: the reason follows the last view.
pub struct Views {
    handle: MembershipHandle,
    /// The last returned view, and the incarnation that read it.
    returned: Option<(ViewId, Incarnation)>,
}

impl Views {
    pub(crate) const fn new(handle: MembershipHandle) -> Self {
        Self { handle, returned: None }
    }

    /// The newest view if it was not returned yet. Does not block.
    pub fn poll(&mut self) -> Option<OwnView> {
        let own = self.handle.incarnation();
        let view = self.handle.view_of(own)?;
        if self.returned.is_some_and(|(id, whose)| whose == own && view.id <= id) {
            return None;
        }
        self.returned = Some((view.id, own));
        Some(view)
    }

    /// The next view, at once if there is an unreturned one; `None` if there is none within
    /// `timeout`, and an error if there will be no more.
    pub fn next(&mut self, timeout: Nanos) -> Result<Option<OwnView>, Lost> {
        let end = clock::now() + timeout;
        loop {
            // Before the poll: a view that preceded the agent's death is returned.
            let lost = self.handle.lost();
            // Counted before the poll, so that a change in between ends the wait at once.
            let seen = self.handle.changes();
            if let Some(view) = self.poll() {
                return Ok(Some(view));
            }
            if let Some(lost) = lost {
                return Err(lost);
            }
            let left = end.since(clock::now());
            if left == Nanos::ZERO {
                return Ok(None);
            }
            self.handle.wait_changed(seen, left);
        }
    }
}

/// A member that was removed because it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The failed member.
    pub incarnation: Incarnation,
    /// Its description; `None` if it joined and failed between two polls.
    pub member: Option<Member>,
    /// The first view without it.
    pub view: ViewId,
    /// The accuser and its reason; `None` if the view that names them was superseded before this
    /// program polled.
    pub accused: Option<(Incarnation, Reason)>,
}

/// The failures of members from now on, each once. Members that leave at their own request have not
/// failed.
///
/// A view lists the members that departed within the last
/// [`JOIN_WINDOW`](obol_membership::view::JOIN_WINDOW) views, so a program that polls at least that
/// often misses nothing. A member that disappeared without a record counts as failed.
pub struct Failures {
    views: Views,
    before: Option<OwnView>,
    ready: VecDeque<Failure>,
}

impl Failures {
    pub(crate) fn new(handle: MembershipHandle) -> Self {
        let mut views = Views::new(handle);
        // The view from which this program starts to count.
        let before = views.poll();
        Self { views, before, ready: VecDeque::new() }
    }

    /// The next failure; `None` if there is none within `timeout`, and an error if there will be no
    /// more.
    pub fn next(&mut self, timeout: Nanos) -> Result<Option<Failure>, Lost> {
        let end = clock::now() + timeout;
        while self.ready.is_empty() {
            let Some(view) = self.views.next(end.since(clock::now()))? else { return Ok(None) };
            if let Some(before) = &self.before {
                // Its own failure is what the stream's end and `is_excluded` say.
                let others = between(before, &view).into_iter().filter(|f| f.incarnation != before.own);
                self.ready.extend(others);
            }
            self.before = Some(view);
        }
        Ok(self.ready.pop_front())
    }
}

/// The failures between two views, in the order of the views that report them.
fn between(before: &View, now: &View) -> Vec<Failure> {
    let accused = |who: Incarnation| {
        now.changes.iter().find_map(|change| match *change {
            Change::Failed { accused, accuser, reason } if accused == who => Some((accuser, reason)),
            _ => None,
        })
    };
    let failure = |incarnation, view| Failure {
        incarnation,
        member: before.member(incarnation).copied(),
        view,
        accused: accused(incarnation),
    };
    let remembered = now.departed.iter().filter(|gone| gone.at > before.id && !gone.left);
    let remembered = remembered.map(|gone| failure(gone.incarnation, gone.at));
    let forgotten =
        before.members.iter().map(|member| member.incarnation).filter(|who| {
            now.member(*who).is_none() && now.departed.iter().all(|gone| gone.incarnation != *who)
        });
    let mut failures: Vec<Failure> = remembered.chain(forgotten.map(|who| failure(who, now.id))).collect();
    failures.sort_by_key(|failure| (failure.view, failure.incarnation));
    failures
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_fabric::{Address, Name};
    use obol_membership::view::{Edit, JOIN_WINDOW, Newcomer};
    use obol_membership::{ActiveMutant, Kind};

    const ACCUSER: Incarnation = Incarnation(1);

    fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    fn agent(text: &str, token: u64) -> Newcomer {
        Newcomer::new(Kind::Agent, name(text), Address::region(token as u32), token)
    }

    fn failed(accused: u64) -> Change {
        Change::Failed { accused: Incarnation(accused), accuser: ACCUSER, reason: Reason::Deadbeat }
    }

    fn next(view: &View, admit: Vec<Newcomer>, remove: Vec<Change>) -> View {
        view.successor(&Edit { admit, remove, ..Edit::default() }, ViewId::GENESIS, ActiveMutant::default())
    }

    fn begin() -> View {
        let genesis = View::genesis(&[(name("coord-1"), Address::region(1))], Nanos(1), Nanos::ZERO);
        next(&genesis, vec![agent("a", 10), agent("b", 11), agent("c", 12)], Vec::new())
    }

    #[test]
    fn leaves_are_no_failures_and_failures_are_reported_with_the_accuser() {
        let first = begin();
        let second = next(&first, Vec::new(), vec![Change::Left(Incarnation(2)), failed(3)]);
        let failures = between(&first, &second);
        let [failure] = failures[..] else { panic!("{failures:?}") };
        assert_eq!((failure.incarnation, failure.view), (Incarnation(3), second.id));
        assert_eq!(failure.accused, Some((ACCUSER, Reason::Deadbeat)));
        assert_eq!(failure.member.map(|member| member.name), Some(name("b")));
        assert_eq!(between(&second, &second), []);
    }

    #[test]
    fn a_failure_in_a_view_that_was_passed_over_is_reported_and_so_is_a_newcomer_that_came_and_went() {
        let first = begin();
        let second = next(&first, vec![agent("d", 13)], vec![failed(4)]);
        let third = next(&second, Vec::new(), vec![failed(5)]);
        let fourth = next(&third, vec![agent("e", 14)], Vec::new());
        let failures = between(&first, &fourth);
        let [c, d] = failures[..] else { panic!("{failures:?}") };
        assert_eq!((c.incarnation, c.view, c.accused), (Incarnation(4), second.id, None));
        assert_eq!((d.incarnation, d.view, d.member), (Incarnation(5), third.id, None));
    }

    #[test]
    fn a_member_that_went_longer_ago_than_a_view_remembers_counts_as_failed() {
        let first = begin();
        let mut last = next(&first, Vec::new(), vec![Change::Left(Incarnation(2))]);
        for token in 0..2 * JOIN_WINDOW {
            last = next(&last, vec![agent("x", 100 + token)], Vec::new());
        }
        let failed: Vec<Incarnation> =
            between(&first, &last).iter().map(|failure| failure.incarnation).collect();
        assert_eq!(failed, [Incarnation(2)]);
    }
}

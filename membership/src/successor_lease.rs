//! Whether a program in an agent's seat may use the view after the one that its agent's page is on
//! before its agent knows that view, or the page's own view before the agent knows its CLEAR.
//!
//! It is what the agent would publish ([`crate::lease::Lease::learn`]), evaluated by a reader from
//! what the coordinators of its host have published and from the page as it was before.
//! `docs/design/leases.md` has the argument.

use crate::lease::shortened;
use crate::mutants::{ActiveMutant, Mutant};
use crate::view::{Kind, View};
use obol_fabric::{Incarnation, Instant, Page, ViewId};

/// What a program has read, in the order of the fields. View and `cleared` state facts that stay
/// true, so they may be read long before; the rest is read in the call that asks.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    /// A decided view: the newest in the region of a coordinator.
    pub view: &'a View,
    /// The latest base with a CLEAR, in the same region.
    pub cleared: ViewId,
    /// The program's incarnation.
    pub own: Incarnation,
    /// The page of the program's agent.
    pub page: Page,
    /// The fence of that page.
    pub fence: ViewId,
    /// The clock of the host.
    pub now: Instant,
}

impl Reading<'_> {
    /// Whether the view is active for the program by the lease on it, or on the view before.
    #[must_use]
    pub fn is_active(&self, drift_ppm: u32, mutant: ActiveMutant) -> bool {
        self.is_clear(mutant)
            && (self.view.member(self.own).is_some() || mutant.has(Mutant::UseUnnamed))
            && self.follows_page(mutant)
            && self.fence <= self.view.id
            && self.now < self.end(drift_ppm, mutant)
    }

    /// Whether no lease is left on a view that is not compatible.
    fn is_clear(&self, mutant: ActiveMutant) -> bool {
        self.cleared >= self.view.base || mutant.has(Mutant::UseBeforeClear)
    }

    /// Whether whatever follows the view was decided after `verified`: it is the page's view or the
    /// next one, and was decided by the acceptors that the agent has READ, or by those that they have
    /// chosen. A recovered view was not, nor what was decided by a set that a recovery has given up.
    fn follows_page(&self, mutant: ActiveMutant) -> bool {
        let (view, page) = (self.view.id, self.page.view);
        let follows = page == view
            || page.next() == view
            || mutant.has(Mutant::UseOverGap) && page.next().next() == view
            || mutant.has(Mutant::UseViewBefore) && page == view.next();
        let (given_up, before) = (u64::from(self.view.retired.to_bits()), self.page.retired);
        let is_recovered = given_up & !before != 0 && !mutant.has(Mutant::UseRecovered);
        let is_given_up = before & !given_up != 0 && !mutant.has(Mutant::UseGivenUp);
        follows && !is_recovered && !is_given_up && self.page.verified != Instant::ZERO
    }

    /// When the lease ends. Not when the page's does, which a cache may have renewed.
    fn end(&self, drift_ppm: u32, mutant: ActiveMutant) -> Instant {
        if mutant.has(Mutant::UsePageEnd) {
            return self.page.end;
        }
        let lease = self.page.lease.min(self.view.lease_of(Kind::Agent));
        self.page.verified + shortened(lease, drift_ppm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{Change, Numbers};
    use obol_fabric::{Address, Name, Nanos};

    #[test]
    fn each_condition_is_needed() {
        let name = Name::new("c").expect("a name");
        let genesis = View::genesis(&[(name, Address::region(0))], Nanos(100), Nanos(100));
        let next = View { id: ViewId(5), base: ViewId(5), ..genesis };
        let other_side = |retired, changes| View { retired, changes, ..next.clone() };
        let retired = Numbers::NONE.with(1);
        let recovered = other_side(retired, vec![Change::Recovered(ViewId(4))]);
        let verified = Instant(1_000);
        let page =
            Page { view: ViewId(4), verified, lease: Nanos(80), end: Instant(2_000), ..Page::default() };
        let read = Reading {
            view: &next,
            cleared: ViewId(5),
            own: Incarnation(1),
            page,
            fence: ViewId(5),
            now: Instant(1_079),
        };
        let is = |read: Reading<'_>| read.is_active(0, ActiveMutant::NONE);
        assert!(is(read));
        assert!(is(Reading { cleared: ViewId(9), ..read }));
        assert!(!is(Reading { cleared: ViewId(4), ..read }), "older leases may be left");
        assert!(!is(Reading { own: Incarnation(2), ..read }));
        assert!(!is(Reading { view: &recovered, ..read }));
        assert!(!is(Reading { page: Page { retired: 1, ..page }, ..read }), "it was given up");
        let on = |view| Reading { page: Page { view: ViewId(view), ..page }, ..read };
        assert_eq!([3, 4, 5, 6].map(|view| is(on(view))), [false, true, true, false]);
        assert!(!is(Reading { page: Page { verified: Instant::ZERO, ..page }, ..read }));
        assert!(!is(Reading { fence: ViewId(6), ..read }));
        assert!(!is(Reading { now: Instant(1_080), ..read }), "whatever the end of the page");
        let shorter = View { lease: Nanos(70), ..next.clone() };
        assert!(!is(Reading { view: &shorter, now: Instant(1_070), ..read }));
        assert!(!read.is_active(9_999, ActiveMutant::NONE), "clocks drift");
    }
}

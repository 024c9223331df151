//! What the coordinators of this host state in their regions: decided views, and whose leases are
//! over. By that a program may use the next view before its agent knows it, under the rule of
//! [`obol_membership::successor_lease`].

use obol_fabric::host::{Cluster, Observed, clock};
use obol_fabric::layout::PROPOSERS_MAX;
use obol_fabric::{Incarnation, Instant, ViewId, page};
use obol_membership::successor_lease::Reading;
use obol_membership::{ActiveMutant, View};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A lease page.
type Words = [AtomicU64; page::WORDS];

/// The coordinators' regions, and the bound on clock drift under which a lease is shortened.
pub(crate) struct Statements {
    pub(crate) cluster: Cluster,
    /// `None` if it is not known: then nothing is used before the agent knows it.
    drift_ppm: Option<u32>,
    /// By number, from 1. A coordinator's memory outlives its process, and is not made anew.
    regions: [OnceLock<Observed>; PROPOSERS_MAX],
    /// The count of the table's changes when those that are missing were last looked for.
    sought: AtomicU64,
}

impl Statements {
    pub(crate) fn new(cluster: Cluster, drift_ppm: Option<u32>) -> Self {
        let found = Self {
            cluster,
            drift_ppm,
            regions: [const { OnceLock::new() }; PROPOSERS_MAX],
            sought: AtomicU64::new(u64::MAX),
        };
        found.seek();
        found
    }

    /// Maps coordinators' regions that are new.
    fn seek(&self) {
        let changes = self.cluster.changes();
        if self.drift_ppm.is_none() || self.sought.swap(changes, Ordering::Relaxed) == changes {
            return;
        }
        for (number, region) in (1..).zip(&self.regions) {
            // One that is being created is readable after another change.
            if region.get().is_none()
                && self.cluster.is_used(number)
                && let Ok(found) = Observed::open(&self.cluster, number)
            {
                // Faults in what is read in a failover.
                let _ = found.reader().view_id();
                let _ = region.set(found);
            }
        }
    }

    fn regions(&self) -> impl Iterator<Item = &Observed> {
        self.regions.iter().filter_map(OnceLock::get)
    }

    /// The view after that of the page, if it is later than `known`, stated by a coordinator, and
    /// active for this member.
    pub(crate) fn next(&self, known: Option<ViewId>, own: Incarnation, words: &Words) -> Option<View> {
        self.seek();
        let page = page::load(words).filter(|page| page.verified != Instant::ZERO)?;
        let next = Some(page.view.next()).filter(|next| known < Some(*next))?;
        let state_it = self.regions().filter(|region| region.reader().view_id() == Some(next));
        let mut views = state_it.filter_map(|region| View::from_frame(&region.reader().view()?.1));
        views.find(|view| view.id == next && self.allow(view, own, words))
    }

    /// Whether a decided view is active for this member although the page may not show it. To be
    /// called after a full fence.
    pub(crate) fn allow(&self, view: &View, own: Incarnation, words: &Words) -> bool {
        let Some(drift_ppm) = self.drift_ppm else { return false };
        // The order of the reads is that of the rule.
        let clears = self.regions().filter_map(|region| {
            let cleared = region.reader().cleared();
            (cleared >= view.base && shows_side(region, view)).then_some(cleared)
        });
        let cleared = clears.max().unwrap_or_default();
        let Some(page) = page::load(words) else { return false };
        let fence = page::fenced(words);
        let now = clock::now();
        Reading { view, cleared, own, page, fence, now }.is_active(drift_ppm, ActiveMutant::NONE)
    }
}

/// Whether a region's owner follows the same side of every recovery as this view. A CLEAR of the other
/// side says nothing of the leases of this one.
fn shows_side(region: &Observed, view: &View) -> bool {
    let shown = region.reader().view().and_then(|(_, frame)| View::from_frame(&frame));
    shown.is_some_and(|shown| shown.retired == view.retired)
}

#[cfg(test)]
mod tests {
    use crate::{Attached, MembershipHandle, NotConfirmed};
    use core::mem::offset_of;
    use core::sync::atomic::Ordering;
    use obol_fabric::host::{Region, clock, reader};
    use obol_fabric::layout::ViewHead;
    use obol_fabric::{
        Address, Endpoint, Fabric, Incarnation, Instant, Name, Nanos, Owner, Page, ViewId, Wait, page,
    };
    use obol_membership::view::{Edit, Newcomer};
    use obol_membership::{ActiveMutant, Change, Kind, Reason, View};
    use obol_node::{Deployment, Site};
    use obol_profiles::Profile;

    const LONG: Nanos = Nanos::from_secs(1000);

    fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    fn open(site: &Site, kind: Kind, text: &str, region: Option<u32>) -> Endpoint {
        let owner = Owner { kind: kind as u32, name: name(text), region, groups: 0 };
        Endpoint::open(&site.cluster, owner, Wait::Block).expect("opened")
    }

    /// A life of the coordinator, on a thread of its own: one thread has one region. It ends at once,
    /// and its region is written as by it.
    fn coordinate(site: &Site) -> Region {
        std::thread::scope(|scope| {
            let life = scope.spawn(|| open(site, Kind::Coordinator, "coord-1", Some(1)).region().clone());
            life.join().expect("no panic")
        })
    }

    /// A coordinator, an agent, and a program in its seat, which is a member of all views.
    struct Host {
        coordinator: Region,
        agent: Endpoint,
        app: Attached,
        own: Incarnation,
        /// Three views that exclude one member after the other.
        views: [View; 3],
        site: Site,
        _root: tempfile::TempDir,
    }

    impl Host {
        fn new() -> Self {
            let root = tempfile::tempdir().expect("made");
            let deployment = Deployment::new(1, 1, 0, Profile::default()).expect("it fits");
            let site = Site::create(&root.path().join("root"), name("c"), deployment).expect("made");
            let agent = open(&site, Kind::Agent, "node-1", None);
            let app = Attached::open(&site, name("node-1"), name("app-1")).expect("seated");
            let coordinator = coordinate(&site);
            let next = |view: &View, edit| view.successor(&edit, view.base, ActiveMutant::NONE);
            let newcomer = |kind, text, address, token| Newcomer::new(kind, name(text), address, token);
            let joined = next(
                &site.genesis,
                Edit { admit: vec![newcomer(Kind::Agent, "node-1", agent.address(), 11)], ..Edit::default() },
            );
            let host = joined.by_token(11).expect("admitted").incarnation;
            let seat = app.seat().address();
            let admit = [(12, "app-1", 0), (13, "app-2", 1), (14, "app-3", 2)].map(|(token, text, other)| {
                let address = Address { seat: seat.seat + other, ..seat };
                Newcomer { host, ..newcomer(Kind::App, text, address, token) }
            });
            let first = next(&joined, Edit { admit: admit.to_vec(), ..Edit::default() });
            let failed = |view: &View, token| {
                let accused = first.by_token(token).expect("a member").incarnation;
                let failed = Change::Failed { accused, accuser: host, reason: Reason::Deadbeat };
                next(view, Edit { remove: vec![failed], ..Edit::default() })
            };
            let second = failed(&first, 13);
            let third = failed(&second, 14);
            let own = first.by_token(12).expect("a member").incarnation;
            app.admitted(own);
            Self { coordinator, agent, app, own, views: [first, second, third], site, _root: root }
        }

        fn handle(&self) -> &MembershipHandle {
            &self.app
        }

        /// The agent has a lease on a view, from READs of this moment on.
        fn lease(&mut self, nth: usize, page: Page) {
            let view = &self.views[nth];
            self.agent.publish_view(view.id, &view.to_frame());
            self.agent.publish_page(&Page { view: view.id, base: view.base, ..page });
        }

        /// The coordinator has decided a view.
        fn decide(&mut self, nth: usize) {
            let view = &self.views[nth];
            let layout = self.site.cluster.layout();
            assert!(reader::publish_view(&self.coordinator, layout, view.id, &view.to_frame()));
        }

        /// It has fenced the agent's page, and states that older leases are over.
        fn clear(&mut self, nth: usize) {
            let base = self.views[nth].base;
            self.agent.region().page()[page::FENCE].fetch_max(base.0, Ordering::SeqCst);
            let at = self.site.cluster.layout().view() + offset_of!(ViewHead, cleared) as u32;
            self.coordinator.part(at, 8)[0].store(base.0, Ordering::Release);
        }

        fn shows(&self) -> (ViewId, [bool; 3]) {
            let view = self.handle().view().expect("one");
            assert_eq!(view.own, self.own);
            let is_active = |view: &View| {
                let own = crate::OwnView { view: std::sync::Arc::new(view.clone()), own: self.own };
                let is_active = self.handle().active(&own);
                assert_eq!(self.handle().guard(&own, |_| ()).is_some(), is_active);
                is_active
            };
            (view.id, self.views.each_ref().map(is_active))
        }

        fn id(&self, nth: usize) -> ViewId {
            self.views[nth].id
        }
    }

    /// A lease that does not end during a test, as if the READs had been posted late.
    fn begun() -> Page {
        let verified = clock::now() + LONG;
        Page { start: Instant(1), end: verified, verified, lease: LONG, ..Page::default() }
    }

    fn host_with_lease() -> Host {
        let mut host = Host::new();
        host.lease(0, begun());
        host
    }

    #[test]
    fn a_program_is_ahead_of_its_agent_by_a_clear_and_never_goes_back() {
        let mut host = host_with_lease();
        let mut views = host.handle().views();
        let mut failures = host.handle().failures();
        assert_eq!(views.poll().map(|view| view.id), Some(host.id(0)));
        host.decide(1);
        assert_eq!(host.shows(), (host.id(0), [true, false, false]), "older leases may be left");
        assert_eq!(views.poll(), None);
        let seen = host.handle().changes();
        host.clear(1);
        host.agent.wake_programs([].into_iter());
        assert_eq!(host.handle().wait_changed(seen, LONG), seen + 1);
        assert_eq!(host.shows(), (host.id(1), [false, true, false]));
        let ahead = views.poll().expect("the next one");
        assert_eq!((ahead.id, views.poll()), (host.id(1), None));
        assert_eq!(host.handle().confirm(&ahead, Nanos::ZERO), Ok(()));
        let failure = failures.next(Nanos::ZERO).expect("not lost").expect("one");
        assert_eq!((failure.incarnation, failure.view), (Incarnation(host.own.0 + 1), host.id(1)));

        // The agent learns the view before its CLEAR.
        host.lease(1, Page { start: Instant::NEVER, ..begun() });
        assert_eq!(host.shows(), (host.id(1), [false, true, false]));
        // The lease ends, and the agent's region shows the view before.
        host.lease(0, Page { verified: Instant(1), end: Instant(2), lease: Nanos(1), ..begun() });
        assert_eq!(host.shows(), (host.id(1), [false, false, false]));
        assert_eq!(views.poll(), None);
        let before = crate::OwnView { view: host.views[0].clone().into(), own: host.own };
        let refused = host.handle().confirm(&before, LONG);
        assert_eq!(refused, Err(NotConfirmed::Superseded(host.id(0))));
    }

    #[test]
    fn a_dead_coordinators_statement_stays_true_and_nothing_is_used_over_a_gap() {
        let mut host = host_with_lease();
        host.decide(1);
        host.clear(1);
        host.decide(2);
        host.clear(2);
        assert_eq!(host.shows(), (host.id(0), [false; 3]), "the agent does not know the view between");
        host.lease(1, begun());
        assert_eq!(host.shows(), (host.id(2), [false, false, true]));
        host.coordinator = coordinate(&host.site);
        assert_eq!(host.shows(), (host.id(2), [false, false, true]));
    }

    #[test]
    fn a_clear_of_the_other_side_of_a_recovery_does_not_count() {
        let mut host = host_with_lease();
        host.clear(1);
        // Regions are sought where a view is asked for, and a program has asked for the one that it uses.
        assert_eq!(host.shows().0, host.id(0));
        let [_, next, other] = host.views.clone();
        let is_active = |host: &Host| {
            let own = crate::OwnView { view: std::sync::Arc::new(next.clone()), own: host.own };
            host.handle().active(&own)
        };
        let other = View { retired: [1].into_iter().collect(), ..other };
        for (shown, counts) in [(&next, true), (&other, false)] {
            let layout = host.site.cluster.layout();
            assert!(reader::publish_view(&host.coordinator, layout, shown.id, &shown.to_frame()));
            assert_eq!(is_active(&host), counts);
        }
        host.clear(2);
        assert!(!is_active(&host), "a later one neither");
    }

    #[test]
    fn a_lost_ring_costs_time_only() {
        let mut host = host_with_lease();
        let seen = host.handle().changes();
        // Its leader dies here, or is of a release that does not ring.
        host.decide(1);
        host.clear(1);
        host.lease(1, begun());
        host.agent.flush();
        assert_eq!(host.handle().wait_changed(seen, LONG), seen + 1);
        assert_eq!(host.shows(), (host.id(1), [false, true, false]));
    }

    #[test]
    fn by_the_page_of_an_earlier_release_a_program_waits_for_its_agent() {
        let mut host = Host::new();
        host.lease(0, Page { verified: Instant::ZERO, ..begun() });
        host.decide(1);
        host.clear(1);
        assert_eq!(host.shows(), (host.id(0), [false; 3]));
        host.lease(1, Page { verified: Instant::ZERO, ..begun() });
        assert_eq!(host.shows(), (host.id(1), [false, true, false]));
    }

    #[test]
    fn in_a_recreated_cluster_a_program_waits_for_its_agent() {
        let mut host = host_with_lease();
        host.decide(1);
        host.clear(1);
        let region = host.agent.region().clone();
        let unknown = super::Statements::new(host.site.cluster.clone(), None);
        let handle = MembershipHandle::of_seat(region, unknown);
        handle.admitted(host.own);
        assert_eq!(handle.view().map(|view| view.id), Some(host.id(0)));
        assert_eq!(host.shows().0, host.id(1));
    }
}

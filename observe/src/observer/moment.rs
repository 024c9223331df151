//! The moment of a snapshot. An observer that got no core between reading a lease and judging it would take it
//! for ended, though it was renewed meanwhile.

use super::Observer;
use crate::snapshot::Process;
use obol_fabric::Instant;
use obol_fabric::host::clock;

impl Observer {
    /// The time at which the leases of this host's processes are judged. All were read since `began`. A lease
    /// that ended meanwhile is read again: it has ended only if it was read after its end.
    pub(super) fn leases_as_of_now(&self, began: Instant, processes: &mut [Process]) -> Instant {
        let at = clock::now();
        for process in processes.iter_mut().filter(|process| process.alive && process.elsewhere.is_none()) {
            let end = process.lease.map(|(page, _)| page.end);
            if !end.is_some_and(|end| began < end && end <= at) {
                continue;
            }
            let reader = self.watched.get(&process.region).map(|watched| watched.region.reader());
            if let Some((page, fence)) = reader.and_then(|reader| Some((reader.page()?, reader.fence()))) {
                process.lease = Some((page, fence));
            }
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_fabric::page::Page;
    use obol_fabric::{Endpoint, Fabric as _, Name, Owner, Wait};
    use obol_membership::Kind;
    use obol_node::{Deployment, Site};
    use obol_profiles::Profile;

    #[test]
    fn a_lease_that_was_renewed_before_it_is_judged_has_not_ended() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("made");
        let root = folder.path().join("root");
        let name = |text: &str| Name::new(text).expect("a name");
        let profile = Profile::builtin("laptop").expect("built in");
        let deployment = Deployment::new(1, 0, 0, profile).expect("in bounds");
        let site = Site::create(&root, name("moment"), deployment).expect("made");
        let owner = Owner { kind: Kind::App as u32, name: name("kx-1"), region: None, groups: 0 };
        let mut endpoint = Endpoint::open(&site.cluster, owner, Wait::Block).expect("opened");
        let mut publish = |end| endpoint.publish_page(&Page { end, ..Page::default() });
        let ends = |processes: &[Process]| {
            let mine = processes.iter().find(|process| process.name == owner.name).expect("it runs");
            mine.lease.expect("it has a page").0.end
        };
        let (began, end) = (Instant(1), Instant(2));
        publish(end);
        let mut observer = Observer::open(&root, name("moment")).expect("opened");
        let mut processes = observer.snapshot().processes;
        assert_eq!(ends(&processes), end);
        // Nobody has renewed it.
        assert!(observer.leases_as_of_now(began, &mut processes) > end);
        assert_eq!(ends(&processes), end);
        publish(Instant::NEVER);
        // It was read after its end, and what is known is of one moment.
        observer.leases_as_of_now(end, &mut processes);
        assert_eq!(ends(&processes), end);
        observer.leases_as_of_now(began, &mut processes);
        assert_eq!(ends(&processes), Instant::NEVER);
    }
}

//! How dead processes ended, as a low-memory observer reports it repeatedly, compared with one that
//! maps every region.

use obol_fabric::shm::Endpoint;
use obol_fabric::{Fabric as _, Name, Owner, Wait};
use obol_membership::Kind;
use obol_membership::recorder::{Kind as Event, Record};
use obol_node::{Deployment, Site};
use obol_observe::Observer;
use obol_profiles::Profile;

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

#[test]
fn left_and_dead_processes_stay_distinct() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("made");
    let root = folder.path().join("root");
    let profile = Profile::builtin("laptop").expect("built in");
    let deployment = Deployment::new(1, 0, 0, profile).expect("in bounds");
    let site = Site::create(&root, name("dead"), deployment).expect("made");
    let ends = [
        &[Event::Joined][..],
        &[Event::Joined, Event::Left],
        &[Event::Joined, Event::Excluded],
        &[Event::Joined, Event::Left, Event::Joined],
        &[Event::Joined, Event::Left],
    ];
    // All at once, or the second would take the region of the first. A thread owns at most one
    // region.
    let all_there = std::sync::Barrier::new(ends.len());
    std::thread::scope(|scope| {
        for (at, events) in ends.iter().enumerate() {
            let (cluster, all_there) = (&site.cluster, &all_there);
            scope.spawn(move || {
                let called = name(&format!("kx-{at}"));
                let owner = Owner { kind: Kind::App as u32, name: called, region: None, groups: 0 };
                let mut endpoint = Endpoint::open(cluster, owner, Wait::Block).expect("opened");
                events.iter().for_each(|event| endpoint.record(Record::new(*event, 1, 0)));
                all_there.wait();
            });
        }
    });
    let open = || Observer::open(&root, name("dead")).expect("opened");
    let states = |snapshot: obol_observe::Snapshot| -> Vec<(bool, bool)> {
        // The coordinator of the cluster never ran, and is missed.
        let ours = snapshot.processes.iter().filter(|p| p.kind != Kind::Coordinator);
        ours.map(|p| (p.alive, p.left)).collect()
    };
    let wanted = [false, true, false, false, true].map(|left| (false, left));
    let (mut mapped, mut low_memory) = (open(), open().low_memory());
    for poll in 0..20 {
        assert_eq!(states(mapped.snapshot()), wanted, "mapped, look {poll}");
        assert_eq!(states(low_memory.poll(poll % 2 == 0).0), wanted, "low memory, poll {poll}");
    }
}

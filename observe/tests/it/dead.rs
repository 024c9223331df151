//! How dead processes ended, as a low-memory observer reports it repeatedly, compared with one that
//! maps every region.

use obol_fabric::Endpoint;
use obol_fabric::{Fabric as _, Name, Owner, Wait};
use obol_membership::Kind;
use obol_membership::recorder::{EventKind, Record};
use obol_node::{Deployment, Site, fate};
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
        &[EventKind::Joined][..],
        &[EventKind::Joined, EventKind::Left],
        &[EventKind::Joined, EventKind::Excluded],
        &[EventKind::Joined, EventKind::Left, EventKind::Joined],
        &[EventKind::Joined, EventKind::Left],
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

/// Runs `use_it` with a cluster of one coordinator, which does not run.
fn with_cluster(called: &str, use_it: impl FnOnce(&Site, &mut dyn Iterator<Item = Observer>)) {
    let folder = tempfile::tempdir_in("/dev/shm").expect("made");
    let root = folder.path().join("root");
    let profile = Profile::builtin("laptop").expect("built in");
    let deployment = Deployment::new(1, 0, 0, profile).expect("in bounds");
    let site = Site::create(&root, name(called), deployment).expect("made");
    let open = || Observer::open(&root, name(called)).expect("opened");
    use_it(&site, &mut [open(), open().low_memory()].into_iter());
}

#[test]
fn a_process_whose_core_has_ended_is_down_though_it_lives() {
    with_cluster("core", |site, observers| {
        std::thread::scope(|scope| {
            let core = scope.spawn(|| {
                let owner = Owner { kind: Kind::App as u32, name: name("kx"), region: None, groups: 0 };
                let mut endpoint = Endpoint::open(&site.cluster, owner, Wait::Block).expect("opened");
                endpoint.record(Record::new(EventKind::Joined, 1, 0));
                // Nothing is given back, as when the process calls `exec`.
                std::mem::forget(endpoint);
            });
            core.join().expect("no panic");
        });
        for mut observer in observers {
            for (snapshot, _, _) in (0..3).map(|_| observer.poll(false)) {
                let row = snapshot.processes.iter().find(|p| p.name.as_str() == "kx").expect("its row");
                assert!(row.process.is_alive(), "it is this process");
                assert_eq!((row.alive, row.left), (false, false));
            }
            assert!(observer.snapshot().process("kx").is_none(), "no command finds it by its name");
        }
    });
}

#[test]
fn how_a_process_ended_is_said_where_its_supervisor_has_noted_it() {
    with_cluster("fate", |site, observers| {
        fate::note(site.cluster.dir(), name("coord-1"), 7, "killed by SIGKILL").expect("noted");
        for mut observer in observers {
            let reasons = observer.snapshot().reasons;
            assert!(reasons[0].contains("; coord-1 down: killed by SIGKILL; "), "{reasons:?}");
        }
    });
}

//! A cluster whose processes have anything in their memory, for all that reads clusters.

use obol_fabric::Endpoint;
use obol_fabric::{Fabric as _, Name, Owner, Wait};
use obol_fuzz::{Regions, Rng};
use obol_membership::Kind;
use obol_membership::recorder::{EventKind, Record};
use obol_node::{Deployment, Site};
use obol_profiles::Profile;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Barrier;

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

/// Calls `read` in each round with the root and the name of a cluster, and with what changes the memory
/// of its processes again. They are a coordinator, an agent and the program `app-1`, which live.
pub(crate) fn scrambled(rounds: u64, mut read: impl FnMut(&Path, Name, &mut dyn FnMut())) {
    let folder = tempfile::tempdir_in("/dev/shm").expect("made");
    let root = folder.path().join("root");
    let profile = Profile::builtin("laptop").expect("built in");
    let deployment = Deployment::new(1, 1, 0, profile).expect("in bounds");
    let site = Site::create(&root, name("any"), deployment).expect("made");
    let owners = [
        Owner { kind: Kind::Coordinator as u32, name: name("coord-1"), region: Some(1), groups: 0 },
        Owner { kind: Kind::Agent as u32, name: name("node-1"), region: None, groups: 0 },
        Owner { kind: Kind::App as u32, name: name("app-1"), region: None, groups: 0 },
    ];
    // A thread owns at most one region, and each lives until the end.
    let (begin, end) = (Barrier::new(owners.len() + 1), Barrier::new(owners.len() + 1));
    std::thread::scope(|scope| {
        for owner in owners {
            let (cluster, begin, end) = (&site.cluster, &begin, &end);
            scope.spawn(move || {
                let mut endpoint = Endpoint::open(cluster, owner, Wait::Block).expect("opened");
                endpoint.record(Record::new(EventKind::Joined, 1, 0));
                begin.wait();
                end.wait();
                // What it would give back is scrambled.
                std::mem::forget(endpoint);
            });
        }
        begin.wait();
        let regions = Regions::of(site.cluster.dir());
        // The header stays: a region without it is none.
        let kept = site.cluster.layout().seat(0) as usize;
        let mut rng = Rng::new(1);
        let result = catch_unwind(AssertUnwindSafe(|| {
            for _ in 0..rounds {
                regions.scramble(kept, &mut rng);
                read(&root, site.cluster.name(), &mut || regions.scramble(kept, &mut rng));
            }
        }));
        end.wait();
        result.unwrap_or_else(|panic| resume_unwind(panic));
    });
}

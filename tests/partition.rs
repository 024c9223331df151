//! Links that break one by one, between processes that all live: shared memory has none that could,
//! so they are cut by hand.

use crate::support::{Root, Up, until};
use obol_fabric::Name;
use obol_fabric::host::{Cluster, Impairment, RegionInfo};

/// A cluster whose links can be cut, by the names of processes.
struct Cut {
    root: Root,
    up: Up,
    cluster: Cluster,
}

impl Cut {
    fn begin() -> Self {
        let root = Root::new();
        let up = root.up_with(&[], |profile| profile.timing.link_watch = true);
        let cluster = Cluster::open(root.path(), Name::new("default").expect("a name")).expect("it runs");
        Self { root, up, cluster }
    }

    fn region(&self, name: &str) -> RegionInfo {
        let named = |r: &RegionInfo| r.alive && r.name.as_str() == name;
        self.cluster.regions().into_iter().find(named).expect("it has a region")
    }

    /// What the first one sends does not get to the second one any more.
    fn cut(&self, from: &str, to: &str) {
        let unheard_at = u16::try_from(self.region(to).number).expect("a region");
        self.impair(from, Impairment { unheard_at, ..Impairment::default() });
    }

    fn heal(&self, names: &[&str]) {
        names.iter().for_each(|name| self.impair(name, Impairment::default()));
    }

    fn impair(&self, name: &str, what: Impairment) {
        let region = self.region(name);
        assert!(self.cluster.impair(region.number, region.generation, what));
    }

    /// Waits for a view that removed a process for a broken link, and gives what it says about that.
    fn removal_of(&self, name: &str) -> String {
        let parted = |view: &serde_json::Value| {
            let causes = view["causes"].as_array().into_iter().flatten().filter_map(|cause| cause.as_str());
            let failed = |cause: &&str| cause.starts_with(name) && cause.contains("failed: timeout");
            causes.filter(failed).map(str::to_owned).next()
        };
        let mut found = None;
        until("it is excluded", || {
            found = self.up.lines().iter().find_map(parted);
            found.is_some()
        });
        found.expect("just seen")
    }
}

#[test]
fn of_two_nodes_that_lost_each_other_the_younger_goes_and_returns_when_the_link_is_back() {
    let cut = Cut::begin();
    let before = cut.root.healthy();
    let (older, younger) = match before.incarnation("node-1") < before.incarnation("node-2") {
        true => ("node-1", "node-2"),
        false => ("node-2", "node-1"),
    };
    cut.cut(older, younger);
    cut.cut(younger, older);
    let said = cut.removal_of(younger);
    assert!(said.contains(&format!("no link to {older}")), "{said}");
    let apart = cut.root.until("the others go on", |s| s.is_active(older) && !s.is_active(younger));
    assert_eq!(apart.pid(younger), before.pid(younger), "its process lives");
    cut.heal(&[older, younger]);
    let after = cut.root.healthy();
    assert!(after.incarnation(younger) > before.incarnation(younger));
    assert_eq!(after.incarnation(older), before.incarnation(older));
}

#[test]
fn a_leader_that_its_peers_can_not_answer_is_replaced_though_all_live() {
    let cut = Cut::begin();
    let before = cut.root.healthy();
    // One way is enough: it receives nothing.
    for other in ["coord-2", "coord-3"] {
        cut.cut(other, "coord-1");
    }
    cut.removal_of("coord-1");
    let without =
        cut.root.until("the nodes go on", |s| ["app-1", "app-2", "app-3"].iter().all(|a| s.is_active(a)));
    assert_eq!(without.pid("coord-1"), before.pid("coord-1"));
    cut.heal(&["coord-2", "coord-3"]);
    let after = cut.root.healthy();
    assert!(after.incarnation("coord-1") > before.incarnation("coord-1"));
}

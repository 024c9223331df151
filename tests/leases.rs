//! Leases that adapt: longer while renewals come too late, and shorter again once they do not. What
//! programs can do where even the longest are too short, and what operators can.

use crate::support::{Root, Up, freeze, signal, until};
use obol_agent::{Attached, Embedded, NotConfirmed};
use obol_fabric::host::{Cluster, Impairment};
use obol_fabric::{Name, Nanos};
use obol_node::Site;
use std::sync::Arc;
use std::time::Duration;

/// Longer than a lease of the profile `laptop`, and much shorter than the silence after which
/// anybody misses a process.
const PAUSE: Duration = Duration::from_millis(40);

/// Delays whatever goes to or from the coordinators from now on.
fn delay(site: &Site, delay: Duration) {
    let cluster: &Cluster = &site.cluster;
    let coordinators =
        cluster.regions().into_iter().filter(|region| region.name.as_str().starts_with("coord-"));
    for region in coordinators {
        let delay = Nanos(u64::try_from(delay.as_nanos()).expect("short"));
        let what = Impairment { delay, ..Impairment::default() };
        assert!(cluster.impair(region.number, region.generation, what), "{region:?}");
    }
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn site(root: &Root) -> Arc<Site> {
    Arc::new(Site::open(root.path(), name("default")).expect("the cluster runs"))
}

/// The leases that views brought, in milliseconds.
fn leases(up: &Up) -> Vec<f64> {
    let views = up.lines();
    let causes = views.iter().flat_map(|view| view["causes"].as_array().into_iter().flatten());
    let leases = causes.filter_map(|cause| cause.as_str()?.strip_prefix("lease of ")?.strip_suffix("ms"));
    leases.map(|ms| ms.parse().expect("a number")).collect()
}

#[test]
fn leases_become_longer_while_an_agent_renews_late_and_shorter_when_it_does_not() {
    let root = Root::new();
    let up = root.up_with(&["--apps", "1"], |profile| profile.timing.lease_calm = Nanos::from_secs(1));
    let agent = root.healthy().pid("node-1");
    until("a view brings longer leases", || {
        freeze(agent);
        std::thread::sleep(PAUSE);
        signal("CONT", &[agent]);
        std::thread::sleep(PAUSE);
        leases(&up).first().is_some_and(|ms| *ms > 20.0)
    });
    until("a later one brings shorter ones", || leases(&up).windows(2).any(|two| two[1] < two[0]));
    assert_eq!(root.healthy().pid("node-1"), agent, "it is the same process");
}

#[test]
fn where_no_lease_lasts_as_long_as_a_renewal_views_are_confirmed_for_attached_and_embedded_programs() {
    let root = Root::new();
    // Leases that do not adapt.
    let _up = root.up_with(&["--apps", "1"], |profile| profile.timing.lease_max = Nanos::from_millis(20));
    let site = site(&root);
    let attached = Attached::open(&site, name("node-1"), name("guest")).expect("there is a seat");
    attached.join(Nanos::from_secs(20)).expect("admitted");
    let embedded = Embedded::start(Arc::clone(&site), name("own")).expect("it starts");
    let mine = |handle: &obol_agent::MembershipHandle| handle.view().filter(|view| view.is_mine());
    until("both are active", || {
        [&*attached, &*embedded].into_iter().all(|s| mine(s).is_some_and(|view| s.active(&view)))
    });
    delay(&site, PAUSE);
    let short = Nanos::from_millis(1);
    for handle in [&*attached, &*embedded] {
        until("its lease has run out", || mine(handle).is_some_and(|view| !handle.active(&view)));
        // Another view may come meanwhile, as on any busy machine.
        until("its view is confirmed", || {
            mine(handle).is_some_and(|view| handle.confirm(&view, Nanos::from_secs(20)) == Ok(()))
        });
        until("its work counts", || {
            mine(handle).is_some_and(|view| handle.guard_within(&view, Nanos::from_secs(20), |_| 7) == Ok(7))
        });
        until("an answer takes longer than that", || {
            let refusal = mine(handle).map(|view| (view.id, handle.confirm(&view, short)));
            matches!(refusal, Some((id, Err(NotConfirmed::Timeout { view, waited }))) if (id, short) == (view, waited))
        });
    }
    let asked = root.status().process("node-1")["counters"]["confirms_asked"].as_u64();
    assert!(asked.is_some_and(|asked| asked > 0), "{asked:?}");
}

#[test]
fn leases_of_the_usual_profile_grow_past_the_delays_by_themselves() {
    let (root, up) = Root::with_cluster(&["--apps", "1"]);
    delay(&site(&root), PAUSE);
    until("a view brings leases that outlast the delays", || leases(&up).iter().any(|ms| *ms >= 80.0));
    root.until("the app is active", |status| status.is_active("app-1"));
}

#[test]
fn leases_that_frozen_coordinators_were_not_asked_for_do_not_come_later() {
    let (root, up) = Root::with_cluster(&["--apps", "1"]);
    let coordinators = ["coord-1", "coord-2", "coord-3"].map(|name| root.healthy().pid(name));
    coordinators.into_iter().for_each(freeze);
    let failed = root.run(&["lease", "set", "50ms"]).ends(1).err;
    assert!(
        failed.contains("no view with leases of 50.0ms") && failed.contains("No change was requested"),
        "{failed}"
    );
    signal("CONT", &coordinators);
    root.run(&["kill", "app-1"]).ends(0);
    root.until("a view removes it", |status| !status.is_active("app-1"));
    assert!(!leases(&up).contains(&50.0), "{:?}", leases(&up));
    let shown = root.run(&["lease", "show", "--json"]).ends(0).json();
    assert_ne!(shown["lease_us"], 50_000.0, "{shown}");
}

#[test]
fn an_operator_sets_the_duration_of_leases() {
    let (root, up) = Root::with_cluster(&["--apps", "1"]);
    let shown = root.run(&["lease", "show", "--json"]).ends(0).json();
    assert_eq!((&shown["usual_us"], &shown["max_us"]), (&20_000.0.into(), &160_000.0.into()), "{shown}");
    assert_eq!(shown["adapts"], true);
    let set = root.run(&["lease", "set", "100ms", "--json"]).ends(0).json();
    assert!(set["view"].as_u64() > shown["view"].as_u64(), "{shown} {set}");
    until("all processes have it", || leases(&up).contains(&100.0));
    let reach = set["reach_us"].as_f64().expect("a number");
    assert!(reach >= 100_000.0, "a process that cannot be fenced is waited for as long: {set}");
    root.run(&["lease", "set", "default"]).ends(0);
    until("all processes have it", || leases(&up).contains(&20.0));
    let after = root.run(&["lease", "show", "--json"]).ends(0).json();
    assert!(after["reach_us"].as_f64() >= Some(reach), "leases that were given out still count: {after}");
    root.run(&["lease", "set", "1ms"]).refused(&["lapse repeatedly", "lease.renew_every"]);
    root.run(&["lease", "set", "1s"]).refused(&["longer than lease.max", "--beyond-max"]);
    root.run(&["lease", "set", "2m", "--beyond-max"]).refused(&["not possible"]);
    root.run(&["lease", "set", "usual", "--cluster", "none"]).refused(&["none"]);
}

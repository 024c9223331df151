//! `obol doctor` on this host, with and without a cluster.

use crate::support::{Ran, Root, freeze, signal};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};

fn findings<'a>(report: &'a Value, check: &str) -> Vec<&'a Value> {
    let all = report["findings"].as_array().expect("a list");
    all.iter().filter(|finding| finding["check"] == check).collect()
}

fn severities(report: &Value, check: &str) -> Vec<String> {
    findings(report, check).iter().map(|f| f["severity"].as_str().expect("text").to_owned()).collect()
}

/// The report, whose exit code is that of its worst finding.
fn report(ran: &Ran) -> Value {
    let report = ran.json();
    let code = match report["worst"].as_str() {
        Some("good" | "note") => 0,
        Some("warning") => 1,
        Some("problem") => 3,
        other => panic!("{other:?}"),
    };
    assert_eq!(ran.code, Some(code), "{report:#}");
    for finding in report["findings"].as_array().expect("a list") {
        let is_good = finding["severity"] == "good";
        for advice in ["cost", "remedy"] {
            assert_eq!(finding[advice].is_null(), is_good, "{finding}");
        }
    }
    report
}

#[test]
fn every_finding_has_its_cost_and_remedy_and_the_exit_code_is_that_of_the_worst() {
    let root = Root::new();
    let found = report(&root.run(&["doctor", "--for", "300ms", "--json"]));
    for check in [
        "clock source",
        "suspension",
        "pauses",
        "kernel",
        "cores",
        "real-time scheduling",
        "robust futex",
        "death detector",
        "root directory",
        "memory",
        "room for regions",
        "locked memory",
        "open files",
        "RDMA",
        "multicast on this host",
    ] {
        assert_eq!(findings(&found, check).len(), 1, "{check}: {found:#}");
    }
    assert_eq!(severities(&found, "memory"), ["good"]);
    for pauses in found["pauses"].as_array().expect("a list") {
        let bars = pauses["histogram"].as_array().expect("a list").iter();
        let counted: u64 = bars.map(|bar| bar["n"].as_u64().expect("a number")).sum();
        assert!(counted > 0 && pauses["pauses_us"]["n"] == counted, "{pauses}");
    }
    assert!(found["promises"]["cluster"].is_null() && found["cluster"].is_null(), "{found:#}");
    // The same detector as the command that knows about it.
    let detector = root.run(&["detector", "show", "--json"]).json();
    let of = findings(&found, "death detector")[0]["found"].as_str().expect("text");
    assert!(of.starts_with(detector["deadbeat"].as_str().expect("text")), "{of}");

    let shown = root.run(&["doctor", "--for", "100ms"]);
    assert!([Some(0), Some(1), Some(3)].contains(&shown.code), "{shown:?}");
    for text in ["what this host could promise", "pauses under ordinary scheduling", "costs:", "to do:"] {
        assert!(shown.out.contains(text), "{text} is not in {}", shown.out);
    }
    root.run(&["doctor", "--profile", "laptob"]).refused(&["laptop"]);
    root.run(&["doctor", "--address", "10.0.0.1"]).refused(&["--hosts"]);
}

#[test]
fn a_root_that_others_may_write_and_a_file_of_hosts_without_keys_are_problems() {
    let root = Root::new();
    fs::DirBuilder::new().mode(0o700).create(root.path()).expect("made");
    let file = root.path().join("cluster.toml");
    let text = "schema = 1\ncluster = \"default\"\nid = \"00000000000000aa\"\nfabric = \"ip\"\nprofile = \"lan\"\nkeys = \"keys\"\nport = 1\n\
        [[hosts]]\naddress = \"127.0.0.1\"\ncoordinator = 1\nagents = [\"node-1\"]\n\
        [[hosts]]\naddress = \"127.0.0.2\"\ncoordinator = 2\nagents = [\"node-2\"]\n\
        [[hosts]]\naddress = \"127.0.0.3\"\ncoordinator = 3\nagents = [\"node-3\"]\n";
    fs::write(&file, text).expect("written");
    let shown = file.to_str().expect("text");
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o777)).expect("set");
    let ran = root.run(&["doctor", "--for", "100ms", "--json", "--hosts", shown]);
    let found = report(&ran);
    assert_eq!((ran.code, severities(&found, "root directory")), (Some(3), vec!["problem".to_owned()]));
    assert_eq!(severities(&found, "certificate"), ["problem"]);
    // Nobody listens there; this host itself is not asked.
    assert_eq!(severities(&found, "gateway of a host"), ["warning", "warning"]);
    assert_eq!(found["profile"], "lan");
    let other = root.run(&["doctor", "--for", "100ms", "--json", "--hosts", shown, "--address", "10.9.9.9"]);
    assert_eq!(severities(&report(&other), "file of hosts"), ["problem"]);
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o700)).expect("set");
}

#[test]
fn a_running_cluster_has_its_gateways_and_its_history_checked() {
    let (root, up) = Root::with_cluster(&["--hosts", "2"]);
    root.run(&["kill", "app-1"]).ends(0);
    root.run(&["start", "app-1"]).ends(0);
    root.healthy();
    let doctor = || report(&root.run(&["doctor", "--for", "100ms", "--json"]));
    let found = doctor();
    assert_eq!(severities(&found, "certificate"), ["good"]);
    assert_eq!(severities(&found, "gateway of a host"), ["good"]);
    let cluster = &found["promises"]["cluster"];
    assert!(cluster["renewals"].as_u64() > Some(0), "{cluster}");
    // With two clocks it may have no duration, and one failover claims no p99.
    let failovers = |key: &str| cluster[key].as_u64().expect("a number");
    let n = cluster["failovers_us"]["n"].as_u64().expect("a number");
    assert!(
        n + failovers("failovers_incomplete") >= 1 && cluster["failovers_us"]["p99"].is_null(),
        "{cluster}"
    );
    let mut other = root.command(&["doctor", "--for", "50ms", "--json"]);
    let other = Ran::of(other.env("OBOL_TEST_RELEASE", "9.9"));
    assert_eq!(severities(&report(&other), "cluster"), ["problem"], "a release that cannot read it");
    // The kernel still accepts connections for it.
    let there = root.run(&["status", "--cluster", "default.2", "--json"]).json();
    let gateway = there["gateway"]["pid"].as_i64().expect("it runs");
    freeze(gateway);
    assert_eq!(severities(&doctor(), "gateway of a host"), ["warning"]);
    signal("CONT", &[gateway]);
    root.run(&["kill", "gateway-2"]).ends(0);
    assert_eq!(severities(&doctor(), "gateway of a host"), ["warning"]);
    root.run(&["down"]).ends(0);
    up.end().well();
}

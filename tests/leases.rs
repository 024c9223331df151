//! Leases that adapt: longer while renewals come too late, and shorter again once they do not.

use crate::support::{Root, Up, freeze, signal, until};
use std::path::PathBuf;
use std::time::Duration;

/// Longer than a lease of the profile `laptop`, and much shorter than the silence after which anybody misses a process.
const PAUSE: Duration = Duration::from_millis(40);

/// The laptop's profile, with leases that may become eight times as long and have a second to become shorter again.
fn adaptive(root: &Root) -> PathBuf {
    let profile = root.run(&["profile", "show", "laptop"]).ends(0).out;
    let changed =
        profile.replace("max = \"20ms\"", "max = \"160ms\"").replace("calm = \"10s\"", "calm = \"1s\"");
    assert_eq!(changed.len(), profile.len(), "one is a byte longer, the other a byte shorter");
    assert_ne!(changed, profile);
    let path = std::env::temp_dir().join(format!("obol-test-adaptive-{}.toml", std::process::id()));
    std::fs::write(&path, changed).expect("written");
    path
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
    let profile = adaptive(&root);
    let up = root.up(&["--apps", "1", "--profile", profile.to_str().expect("text")]);
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
    std::fs::remove_file(profile).expect("it was written");
}

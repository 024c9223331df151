//! Pulses between three hosts on two networks: which host is silent, and which path. The hosts are
//! network namespaces, and each path is a bridge.

use crate::hosts::Hosts;
use crate::support::bridges::Bridges;
use crate::support::{Ran, Status, freeze, signal};
use serde_json::Value;

const PATHS: u8 = 2;
/// Loose, because the machine is busy.
const PULSE: &str =
    "\n[pulse]\nmode = \"on\"\nperiod = \"5ms\"\ntimeout = \"800ms\"\npaths = 2\npriority = \"none\"\n";

fn profile() -> String {
    obol_profiles::Profile::builtin("lan").expect("built in").to_toml() + PULSE
}

/// What a host says about the pulses of another one.
fn peer(status: &Status, host: u8) -> Value {
    let pulses = &status.json["gateway"]["pulses"];
    assert!(pulses.is_null() || pulses["timeout_us"] == 800_000.0, "{pulses}");
    let peers = pulses["peers"].as_array().cloned().unwrap_or_default();
    peers.into_iter().find(|peer| peer["host"] == host).unwrap_or_default()
}

fn paths(status: &Status, host: u8) -> Vec<String> {
    let paths = peer(status, host)["paths"].as_array().cloned().unwrap_or_default();
    paths.iter().map(|path| path["state"].as_str().unwrap_or_default().to_owned()).collect()
}

fn counted(status: &Status, counter: &str) -> u64 {
    status.json["gateway"]["counters"][counter].as_u64().expect("a counter")
}

fn booted() -> Option<Hosts> {
    let bridges = Bridges::new(crate::hosts::HOSTS, PATHS)?;
    let hosts = Hosts::booted_within(bridges, &profile());
    for host in 1..=crate::hosts::HOSTS {
        hosts.until(host, "all paths deliver", |status| {
            let others = (1..=crate::hosts::HOSTS).filter(|other| *other != host);
            others.into_iter().all(|other| paths(status, other) == ["up", "up"])
        });
    }
    Some(hosts)
}

#[test]
fn a_lost_path_is_named_and_changes_no_view_and_a_host_without_any_is_excluded() {
    let Some(mut hosts) = booted() else { return };
    let before = hosts.healthy(1).view();
    // A busy machine may have lost one meanwhile: then it is back, or cutting it would lose nothing.
    let lost_before = [1, 2].map(|host| {
        let status = hosts.until(host, "the path delivers", |status| paths(status, 3) == ["up", "up"]);
        counted(&status, "pulse_paths_lost")
    });
    hosts.bridges().cut(3, 2);
    for (host, lost_before) in [1, 2].into_iter().zip(lost_before) {
        let status = hosts.until(host, "the path is lost", |status| paths(status, 3) == ["up", "lost"]);
        let wanted = format!("the path from host 3 at {} is lost", Bridges::address(3, 2));
        assert!(status.reasons().contains(&wanted), "{status:?}");
        assert!(counted(&status, "pulse_paths_lost") > lost_before, "{status:?}");
    }
    assert_eq!(hosts.status(1).view(), before, "no process is removed");
    hosts.bridges().heal(3, 2);
    hosts.until(1, "the path is back", |status| paths(status, 3) == ["up", "up"]);
    assert_eq!(hosts.healthy(1).view(), before);

    hosts.bridges().cut(3, 1);
    hosts.bridges().cut(3, 2);
    for host in [1, 2] {
        hosts.until(host, "the others act without the host", |status| {
            let others = ["node-1", "node-2"].iter().all(|name| status.is_active(name));
            peer(status, 3)["silent"] == true && others && status.incarnation("node-3") == 0
        });
    }
    hosts.until(3, "the host does not act", |status| !status.is_active("node-3"));
    hosts.bridges().heal(3, 1);
    hosts.bridges().heal(3, 2);
    (1..=3).for_each(|host| drop(hosts.healthy(host)));

    // A process dies on another host: its gateway says so by pulses and by connections, once.
    let view = hosts.status(1).view();
    hosts.kill(2, "agent --name node-2");
    hosts.until(1, "it is excluded", |status| status.view() > view && status.incarnation("node-2") == 0);
    hosts.start(2, "agent --name node-2");
    hosts.healthy(1);
}

/// Each frame of some seconds, by each path to host 1.
fn detectors_are_compared_on_what_was_recorded(hosts: &Hosts) {
    let folder = tempfile::tempdir().expect("made");
    let recording = folder.path().join("network.rec");
    let path = recording.to_str().expect("text");
    let record = ["tune", "--network", "--record", path, "--for", "8s"];
    let ran = Ran::of(&mut hosts.on(1, &record)).ends(0);
    for stream in ["stream 1: from host 2 to host 1 by", "stream 4: from host 3 to host 1 by"] {
        assert!(ran.out.contains(stream), "{ran:?}");
    }
    Ran::of(&mut hosts.on(1, &record)).ends(2);
    let compare = ["sim", "detectors", "--recording", path, "--stream", "4", "--json"];
    let compared = Ran::of(&mut hosts.on(1, &compare)).ends(0).json();
    let source = compared["delays"].as_str().unwrap_or_default();
    assert!(source.contains("stream 4 of 4: from host 3 to host 1"), "{compared}");
    // The median of the pauses between pulses is the period, whatever the machine does beside.
    assert!((4_000.0..6_000.0).contains(&compared["period_us"].as_f64().unwrap_or_default()), "{compared}");
    assert!(compared["lines"].as_array().is_some_and(|lines| lines.len() > 20), "{compared}");
}

#[test]
fn a_host_whose_gateway_is_frozen_is_silent_and_one_that_starts_again_is_heard_again() {
    let Some(mut hosts) = booted() else { return };
    let gateway = hosts.pid(3, "gateway");
    freeze(gateway);
    for host in [1, 2] {
        hosts.until(host, "it is silent", |status| {
            peer(status, 3)["silent"] == true && status.incarnation("node-3") == 0
        });
    }
    signal("CONT", &[gateway]);
    // What was measured so far bears nothing yet. It is shown also if its evidence has no place.
    let tune = ["tune", "--network", "--json", "--html", "/dev/null/evidence.html"];
    let ran = Ran::of(&mut hosts.on(1, &tune)).ends(1);
    let tuned = ran.json();
    assert!(ran.err.contains("the evidence could not be written to /dev/null/evidence.html: "), "{ran:?}");
    assert_eq!(tuned["directions"].as_array().map(Vec::len), Some(2), "{tuned}");
    assert!(
        tuned["directions"][0]["seconds"].as_u64() > Some(0) && tuned["recommended"].is_null(),
        "{tuned}"
    );
    (1..=3).for_each(|host| drop(hosts.healthy(host)));
    detectors_are_compared_on_what_was_recorded(&hosts);
    // A new life, with numbers and keys of its own.
    hosts.kill(3, "gateway");
    hosts.until(1, "it is silent", |status| peer(status, 3)["silent"] == true);
    hosts.start(3, "gateway");
    for host in 1..=3 {
        hosts.healthy(host);
        let others = (1..=3).filter(|other| *other != host);
        for other in others {
            hosts.until(host, "it is heard", |status| {
                peer(status, other)["silent"] == false && paths(status, other) == ["up", "up"]
            });
        }
    }
}

//! A replicated store with real processes: leaders are killed, and nothing that was answered is
//! lost.

use crate::support::share::Alone;
use crate::support::{Ran, Root, freeze, signal, until};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// A replica in the background, which writes where it stands into a file.
fn serve(root: &Root, name: &str) -> Child {
    serve_with(root, name, &[])
}

fn serve_with(root: &Root, name: &str, options: &[&str]) -> Child {
    serve_saying(root, name, options, Stdio::inherit())
}

fn serve_saying(root: &Root, name: &str, options: &[&str], errors: Stdio) -> Child {
    let said = File::create(root.note(name)).expect("a file");
    let mut command = root.command(&[&["smr", "server", "--name", name, "--json"], options].concat());
    command.stdin(Stdio::null()).stdout(said).stderr(errors).spawn().expect("it starts")
}

/// Three replicas with this preset, all of which have everything: a key `a` with the value 1.
fn three(root: &Root, preset: &str) -> Vec<Child> {
    let start = |name| serve_with(root, name, &["--preset", preset]);
    let mut replicas = vec![start("smr-1")];
    until("the first serves", || says(root, &["put", "a", "1"]).code == Some(0));
    for name in ["smr-2", "smr-3"] {
        replicas.push(start(name));
        root.until("it is a member", |status| status.is_active(name));
    }
    until("all vote and have everything", || {
        std::fs::read_to_string(root.note("smr-1")).is_ok_and(|said| said.contains("\"redundancy\":3"))
    });
    replicas
}

fn says(root: &Root, words: &[&str]) -> Ran {
    root.run(&[&["smr"], words].concat())
}

#[test]
fn no_answer_is_wrong_while_leaders_are_hit_and_the_store_is_redundant_again_each_time() {
    let root = Root::alone(Alone::Measures);
    let _up = root.up(&["--apps", "1"]);
    let faults = ["--kill-every", "300ms", "--freeze-every", "300ms", "--cut-every", "300ms"];
    let check = [&["check", "--for", "3s", "--clients", "1", "--json"], &faults[..]].concat();
    let said = says(&root, &check).ends(0).json();
    assert_eq!([&said["wrong"], &said["lost"]], [0, 0], "{said}");
    for fault in ["kills", "freezes", "cuts", "failovers"] {
        assert!(said[fault].as_u64() >= Some(1), "{fault}: {said}");
    }
    assert!(said["puts"].as_u64() > Some(0) && said["gets"].as_u64() > Some(0), "{said}");
}

#[test]
fn a_store_survives_its_leader_and_a_replica_that_returns_without_memory() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let mut replicas = vec![serve(&root, "smr-1")];
    until("the first serves", || says(&root, &["put", "a", "1"]).code == Some(0));
    for name in ["smr-2", "smr-3"] {
        replicas.push(serve(&root, name));
        root.until("it is a member", |status| status.is_active(name));
    }
    until("all vote and have everything", || {
        std::fs::read_to_string(root.note("smr-1")).is_ok_and(|said| said.contains("\"redundancy\":3"))
    });
    assert_eq!(says(&root, &["put", "b", "2"]).code, Some(0));
    // Not for a terminal, so as it is.
    assert_eq!(says(&root, &["put", "bold", "\u{1b}[1m"]).code, Some(0));
    assert_eq!(says(&root, &["get", "bold"]).ends(0).out, "\u{1b}[1m\n");
    assert_eq!(root.run(&["kill", "smr-1"]).code, Some(0));
    assert!(replicas[0].wait().is_ok());
    assert_eq!(says(&root, &["get", "a"]).ends(0).out.trim(), "1");
    assert_eq!(says(&root, &["get", "b"]).ends(0).out.trim(), "2");
    assert_eq!(says(&root, &["delete", "a"]).code, Some(0));
    let ran = says(&root, &["get", "a"]).ends(1);
    assert!(ran.err.contains("the store does not have this key"), "{ran:?}");
    replicas.push(serve(&root, "smr-1"));
    root.until("it is a member", |status| status.is_active("smr-1"));
    assert_eq!(says(&root, &["get", "b"]).ends(0).out.trim(), "2");
    for name in ["smr-1", "smr-2", "smr-3"] {
        assert_eq!(root.run(&["stop", name]).code, Some(0));
    }
    for mut replica in replicas.into_iter().skip(1) {
        assert_eq!(replica.wait().expect("a child").code(), Some(0));
    }
}

/// Two replicas that have everything, and the first one leads: a key `a` with the value 1.
fn two(root: &Root) -> [Child; 2] {
    two_saying(root, Stdio::inherit())
}

fn two_saying(root: &Root, errors: Stdio) -> [Child; 2] {
    let first = serve_saying(root, "smr-1", &[], errors);
    until("the first serves", || says(root, &["put", "a", "1"]).code == Some(0));
    let second = serve(root, "smr-2");
    until("both vote and have everything", || {
        std::fs::read_to_string(root.note("smr-1")).is_ok_and(|said| said.contains("\"redundancy\":2"))
    });
    [first, second]
}

#[test]
fn a_leader_of_two_that_is_stopped_leaves_the_store_to_the_other_one() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let replicas = two(&root);
    let said = root.run(&["stop", "smr-1"]).ends(0);
    assert!(said.out.contains("it left the cluster") && said.err.is_empty(), "{said:?}");
    assert_eq!(says(&root, &["get", "a"]).ends(0).out.trim(), "1");
    let said = root.run(&["stop", "smr-2"]).ends(0);
    assert!(said.err.contains("smr-2 had the last copy of the store"), "{said:?}");
    for mut replica in replicas {
        assert_eq!(replica.wait().expect("a child").code(), Some(0));
    }
    // It does not begin an empty one by itself.
    let mut first = serve(&root, "smr-1");
    until("it waits", || says(&root, &["status"]).out.contains("waits for a replica that has the log"));
    let said = says(&root, &["status"]).ends(1);
    assert!(said.err.contains("--force-empty"), "{said:?}");
    root.run(&["stop", "smr-1"]).ends(0);
    assert_eq!(first.wait().expect("a child").code(), Some(0));
    let mut first = serve_with(&root, "smr-1", &["--force-empty"]);
    until("it serves", || says(&root, &["put", "b", "2"]).code == Some(0));
    assert!(says(&root, &["get", "a"]).ends(1).err.contains("does not have this key"));
    root.run(&["stop", "smr-1"]).ends(0);
    assert_eq!(first.wait().expect("a child").code(), Some(0));
}

#[test]
fn a_leader_of_two_that_is_stopped_while_the_other_one_is_frozen_says_that_nobody_serves() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let errors = root.note("smr-1-err");
    let [mut first, mut second] = two_saying(&root, File::create(&errors).expect("a file").into());
    let frozen = i64::from(second.id());
    freeze(frozen);
    // While it is a member, entries can still be written into its memory.
    root.until("it is excluded", |status| status.incarnation("smr-2") == 0);
    let said = root.run(&["stop", "smr-1"]).ends(0);
    let why = "the replicas that are left do not serve: one that has the log is frozen";
    assert!([why, "obol smr recover --from NAME"].iter().all(|part| said.err.contains(part)), "{said:?}");
    assert_eq!(first.wait().expect("a child").code(), Some(0));
    let said = std::fs::read_to_string(&errors).expect("text");
    assert!(said.contains("the replicas that are left are not a majority of the voters"), "{said}");
    signal("CONT", &[frozen]);
    until("it lacks the other one", || says(&root, &["status"]).out.contains("lacks a majority"));
    let said = says(&root, &["recover", "--from", "smr-2"]).ends(0);
    assert!(said.out.contains("smr-2 serves with what it has"), "{said:?}");
    assert_eq!(says(&root, &["get", "a"]).ends(0).out.trim(), "1");
    root.run(&["stop", "smr-2"]).ends(0);
    assert_eq!(second.wait().expect("a child").code(), Some(0));
}

/// Replicas of a store that died: none begins an empty one, and they are stopped.
fn wait_and_are_stopped(root: &Root, names: &[&str]) {
    let replicas: Vec<Child> = names.iter().map(|name| serve(root, name)).collect();
    root.until("all are members", |status| names.iter().all(|name| status.is_active(name)));
    // The oldest one says it for all.
    until("they wait", || says(root, &["status"]).out.contains("waits for a replica that has the log"));
    let said = says(root, &["put", "b", "2", "--timeout", "200ms"]).ends(1);
    assert!(said.err.contains("no answer within"), "{said:?}");
    for name in names {
        root.run(&["stop", name]).ends(0);
    }
    for mut replica in replicas {
        assert_eq!(replica.wait().expect("a child").code(), Some(0));
    }
}

#[test]
fn replicas_that_only_waited_keep_the_marks_of_a_store_that_died() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let all = ["smr-1", "smr-2", "smr-3"];
    let mut replicas = three(&root, "view");
    for replica in &mut replicas {
        replica.kill().expect("it runs");
    }
    for mut replica in replicas {
        assert!(replica.wait().is_ok());
    }
    root.until("none is a member", |status| all.iter().all(|name| !status.is_active(name)));
    wait_and_are_stopped(&root, &all);
    let said = says(&root, &["status"]).ends(1);
    assert!(said.out.contains("the store died with the last of smr-1, smr-2, smr-3;"), "{said:?}");
    wait_and_are_stopped(&root, &["smr-1"]);
    let mut first = serve_with(&root, "smr-1", &["--force-empty"]);
    until("it serves", || says(&root, &["put", "b", "2"]).code == Some(0));
    root.run(&["stop", "smr-1"]).ends(0);
    assert_eq!(first.wait().expect("a child").code(), Some(0));
}

#[test]
fn a_check_keeps_the_mark_of_a_store_that_died() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let mut first = serve(&root, "smr-1");
    until("it serves", || says(&root, &["put", "a", "1"]).code == Some(0));
    first.kill().expect("it runs");
    assert!(first.wait().is_ok());
    root.until("it is out", |status| !status.is_active("smr-1"));
    let died = || {
        let said = says(&root, &["status"]).ends(1);
        assert!(said.out.contains("the store died with the last of smr-1; begin"), "{said:?}");
    };
    died();
    let ran = says(&root, &["check", "--for", "1s", "--clients", "1", "--json"]).ends(0);
    // Its own store ends with it, and nobody has to begin anew.
    assert!(!ran.err.contains("last copy"), "{ran:?}");
    let said = ran.json();
    assert_eq!([&said["wrong"], &said["lost"]], [0, 0], "{said}");
    died();
    wait_and_are_stopped(&root, &["smr-1"]);
    died();
}

#[test]
fn a_survivor_of_two_continues_on_an_operators_word() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let [mut first, mut second] = two(&root);
    let refused = says(&root, &["recover", "--from", "smr-2"]).ends(2);
    assert!(refused.err.contains("smr-1 leads, and serves"), "{refused:?}");
    root.run(&["kill", "smr-1"]).ends(0);
    assert!(first.wait().is_ok());
    until("it is stuck", || says(&root, &["status"]).out.contains("lacks a majority"));
    let said = says(&root, &["status"]).ends(1);
    assert!(said.err.contains("obol smr recover --from NAME"), "{said:?}");
    let refused = says(&root, &["recover", "--from", "smr-9"]).ends(2);
    assert!(refused.err.contains("no replica smr-9 runs; there are: smr-2"), "{refused:?}");
    let said = says(&root, &["recover", "--from", "smr-2"]).ends(0);
    assert!(said.out.contains("smr-2 serves with what it has"), "{said:?}");
    assert_eq!(says(&root, &["get", "a"]).ends(0).out.trim(), "1");
    assert_eq!(says(&root, &["put", "b", "2"]).code, Some(0));
    let mut first = serve(&root, "smr-1");
    until("the new one has everything", || {
        std::fs::read_to_string(root.note("smr-2")).is_ok_and(|said| said.contains("\"redundancy\":2"))
    });
    root.run(&["stop", "smr-2"]).ends(0);
    assert_eq!(second.wait().expect("a child").code(), Some(0));
    assert_eq!(says(&root, &["get", "b"]).ends(0).out.trim(), "2");
    root.run(&["stop", "smr-1"]).ends(0);
    assert_eq!(first.wait().expect("a child").code(), Some(0));
}

/// It leads still, or takes over again because it was frozen for too long.
#[test]
fn a_leader_that_has_lost_both_followers_continues_on_an_operators_word() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let mut replicas = three(&root, "view");
    let refused = says(&root, &["recover", "--from", "smr-1"]).ends(2);
    assert!(refused.err.contains("smr-1 leads, and serves"), "{refused:?}");
    // So that it does not replace one voter after the other.
    let leader = i64::from(replicas[0].id());
    freeze(leader);
    for replica in &mut replicas[1..] {
        replica.kill().expect("it runs");
        assert!(replica.wait().is_ok());
    }
    signal("CONT", &[leader]);
    until("it is stuck", || says(&root, &["status"]).out.contains("lacks a majority"));
    let said = says(&root, &["status"]).ends(1);
    assert!(said.err.contains("obol smr recover --from NAME"), "{said:?}");
    let said = says(&root, &["recover", "--from", "smr-1"]).ends(0);
    assert!(said.out.contains("smr-1 serves with what it has"), "{said:?}");
    assert_eq!(says(&root, &["get", "a"]).ends(0).out.trim(), "1");
    assert_eq!(says(&root, &["put", "b", "2"]).code, Some(0));
    let mut second = serve(&root, "smr-2");
    until("the new one has everything", || {
        std::fs::read_to_string(root.note("smr-1")).is_ok_and(|said| said.contains("\"redundancy\":2"))
    });
    for name in ["smr-1", "smr-2"] {
        root.run(&["stop", name]).ends(0);
    }
    assert_eq!(replicas[0].wait().expect("a child").code(), Some(0));
    assert_eq!(second.wait().expect("a child").code(), Some(0));
}

fn figures(status: &Value, figure: &str) -> Vec<u64> {
    let replicas = status["replicas"].as_array().expect("a list");
    replicas.iter().filter_map(|replica| replica["log"][figure].as_u64()).collect()
}

/// A recording, from which the console's screen is drawn, has the figures of `obol smr status` while
/// nothing changes.
fn recorded_as(root: &Root, status: &Value) {
    let path = root.note("recording");
    let words = ["record", path.to_str().expect("text"), "--for", "100ms"];
    root.run(&words).ends(0);
    let bytes = std::fs::read(&path).expect("written");
    // A magic number of 16 bytes; then frames of length, checksum and JSON.
    let (mut rest, mut last) = (&bytes[16..], Value::Null);
    while let Some((len, after)) = rest.split_first_chunk() {
        let (frame, more) = after[4..].split_at(u32::from_le_bytes(*len) as usize);
        (rest, last) = (more, serde_json::from_slice(frame).expect("JSON"));
    }
    let mut recorded = last["sample"]["replicas"].clone();
    let mut status = status.clone();
    // A replica drops the snapshots that it has made when nobody has asked for them for some time.
    for shown in [&mut recorded, &mut status] {
        for replica in shown["replicas"].as_array_mut().expect("a list") {
            replica["log"]["snapshot_bytes"] = Value::Null;
        }
    }
    recorded["cluster"] = status["cluster"].clone();
    recorded["view"] = status["view"].clone();
    assert_eq!(recorded, status);
}

/// The second source of each figure is what the test itself did: each `put` begins a session and
/// sends one command.
#[test]
fn the_status_counts_every_command_and_session_without_help_of_a_replica() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let ran = says(&root, &["status"]).ends(1);
    assert!(ran.out.contains("no replica runs; start the first one with `obol smr server"), "{ran:?}");
    let mut replicas = vec![serve(&root, "smr-1")];
    until("the first serves", || says(&root, &["put", "a", "1"]).code == Some(0));
    for name in ["smr-2", "smr-3"] {
        replicas.push(serve(&root, name));
        root.until("it is a member", |status| status.is_active(name));
    }
    let status = || says(&root, &["status", "--json"]).json();
    let settled = |count: usize| {
        let mut last = Value::Null;
        until("all have applied everything", || {
            last = status();
            let applied = figures(&last, "applied");
            let is_at_end = |figure| figures(&last, figure) == applied;
            let all = applied.len() == count && figures(&last, "lag").iter().all(|lag| *lag == 0);
            all && is_at_end("accepted")
                && is_at_end("committed")
                && figures(&last, "term").iter().min() > Some(&0)
        });
        last
    };
    until("all vote and have everything", || {
        std::fs::read_to_string(root.note("smr-1")).is_ok_and(|said| said.contains("\"redundancy\":3"))
    });
    let before = settled(3);
    assert_eq!(before["leader"], "smr-1", "{before}");
    const PUTS: u64 = 5;
    for n in 0..PUTS {
        assert_eq!(says(&root, &["put", "b", &n.to_string()]).code, Some(0));
    }
    let after = settled(3);
    for (figure, more) in
        [("applied", 2 * PUTS), ("committed", 2 * PUTS), ("accepted", 2 * PUTS), ("sessions", PUTS)]
    {
        let expected: Vec<u64> = figures(&before, figure).iter().map(|n| n + more).collect();
        assert_eq!(figures(&after, figure), expected, "{figure}: {before} {after}");
    }
    assert_eq!(figures(&after, "ring_used_bytes"), [0; 3], "{after}");
    assert_eq!(figures(&after, "lag_bytes"), [0; 3], "{after}");
    assert_eq!(after["redundancy"], 3, "{after}");
    recorded_as(&root, &after);
    assert_eq!(root.run(&["kill", "smr-1"]).code, Some(0));
    assert!(replicas[0].wait().is_ok());
    assert_eq!(says(&root, &["get", "b"]).ends(0).out.trim(), (PUTS - 1).to_string());
    let later = settled(2);
    assert_eq!(later["leader"], "smr-2", "{later}");
    assert!(later["term"].as_u64() > after["term"].as_u64(), "{after} {later}");
    assert!(says(&root, &["status"]).ends(0).out.contains("leads"));
    for (name, mut replica) in ["smr-2", "smr-3"].into_iter().zip(replicas.into_iter().skip(1)) {
        assert_eq!(root.run(&["stop", name]).code, Some(0));
        assert_eq!(replica.wait().expect("a child").code(), Some(0));
    }
}

/// The owner of each replica's memory lets the leader's term alone write to it.
#[test]
fn with_permissions_a_store_survives_its_leader_and_refuses_replicas_of_another_preset() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let mut replicas = three(&root, "mu+views");
    let all_grant_the_leader = |count: usize| {
        until("all let the leader write", || {
            let status = says(&root, &["status", "--json"]).json();
            let granted = figures(&status, "granted");
            status["preset"] == "mu+views" && granted == vec![status["term"].as_u64().unwrap_or(0); count]
        });
    };
    all_grant_the_leader(3);
    let mut other = root.command(&["smr", "server", "--name", "smr-4"]);
    let refused = other.stdin(Stdio::null()).output().expect("it ends");
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("another --preset"), "{refused:?}");
    assert_eq!(says(&root, &["put", "a", "2"]).code, Some(0));
    assert_eq!(root.run(&["kill", "smr-1"]).code, Some(0));
    assert!(replicas[0].wait().is_ok());
    assert_eq!(says(&root, &["get", "a"]).ends(0).out.trim(), "2");
    assert_eq!(says(&root, &["put", "a", "3"]).code, Some(0));
    all_grant_the_leader(2);
    for (name, mut replica) in ["smr-2", "smr-3"].into_iter().zip(replicas.into_iter().skip(1)) {
        assert_eq!(root.run(&["stop", name]).code, Some(0));
        assert_eq!(replica.wait().expect("a child").code(), Some(0));
    }
}

/// One replica on each of three hosts. The leader's loses its gateway: nobody reaches the leader any
/// more, while it runs and reaches the others.
#[test]
fn with_permissions_over_ip_a_store_survives_the_gateway_of_its_leader() {
    let (root, _up) = Root::with_cluster(&["--hosts", "3", "--apps", "1"]);
    let preset = ["--preset", "mu+views", "--cluster"];
    // The leading coordinator is on the first host.
    let at = [("smr-1", "default.3"), ("smr-2", "default.2"), ("smr-3", "default")];
    let mut replicas = Vec::new();
    for (name, cluster) in at {
        replicas.push(serve_with(&root, name, &[&preset[..], &[cluster]].concat()));
        root.until("it is a member", |status| status.is_active(name));
        until("it serves", || says(&root, &["put", "a", name]).code == Some(0));
    }
    until("all vote and have everything", || {
        std::fs::read_to_string(root.note("smr-1")).is_ok_and(|said| said.contains("\"redundancy\":3"))
    });
    // Each host reads the replicas of all.
    until("all are read by the second host", || {
        let status = says(&root, &["status", "--json", "--cluster", "default.2"]).json();
        (&status["leader"], &status["redundancy"]) == (&"smr-1".into(), &3.into())
            && figures(&status, "accepted").len() == 3
    });
    assert_eq!(root.run(&["kill", "gateway-3"]).code, Some(0));
    // What is answered from now on is answered by another leader, and the first one's WRITEs are
    // refused.
    assert_eq!(says(&root, &["get", "a"]).ends(0).out.trim(), "smr-3");
    assert_eq!(says(&root, &["put", "a", "2"]).code, Some(0));
    let status = says(&root, &["status", "--json"]).json();
    assert_eq!(figures(&status, "granted"), [status["term"].as_u64().unwrap_or_default(); 2], "{status}");
    assert_eq!(root.run(&["start", "gateway-3"]).code, Some(0));
    root.until("it is a member again", |status| status.is_active("smr-1"));
    assert_eq!(says(&root, &["get", "a", "--cluster", "default.3"]).ends(0).out.trim(), "2");
    for ((name, cluster), mut replica) in at.into_iter().zip(replicas).rev() {
        assert_eq!(root.run(&["stop", name, "--cluster", cluster]).code, Some(0));
        assert_eq!(replica.wait().expect("a child").code(), Some(0));
    }
}

/// No view names the leader: its counter stands still, and goes on again.
#[test]
fn with_mu_a_leader_that_is_frozen_is_replaced_and_leads_again_when_it_is_back() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let replicas = three(&root, "mu");
    let status = || says(&root, &["status", "--json"]).json();
    assert_eq!((status()["preset"].as_str(), status()["leader"].as_str()), (Some("mu"), Some("smr-1")));
    let pid = i64::from(replicas[0].id());
    freeze(pid);
    assert_eq!(says(&root, &["put", "a", "2"]).code, Some(0));
    until("another one leads", || matches!(status()["leader"].as_str(), Some("smr-2" | "smr-3")));
    signal("CONT", &[pid]);
    until("the first leads again", || status()["leader"].as_str() == Some("smr-1"));
    assert_eq!(says(&root, &["get", "a"]).ends(0).out.trim(), "2");
    for (name, mut replica) in ["smr-1", "smr-2", "smr-3"].into_iter().zip(replicas) {
        assert_eq!(root.run(&["stop", name]).code, Some(0));
        assert_eq!(replica.wait().expect("a child").code(), Some(0));
    }
}

#[test]
fn presets_are_checked_side_by_side_and_no_answer_is_wrong() {
    let root = Root::alone(Alone::Measures);
    let _up = root.up(&["--apps", "1"]);
    let all = ["--preset", "view,mu+views,mu,dare"];
    let check = ["check", "--for", "2s", "--kill-every", "400ms", "--clients", "1", "--json"];
    let ran = says(&root, &[&check, &all[..]].concat()).ends(0);
    let said: Vec<Value> =
        ran.out.lines().map(|line| serde_json::from_str(line).expect("a JSON object")).collect();
    let presets: Vec<&str> = said.iter().filter_map(|of| of["preset"].as_str()).collect();
    assert_eq!(presets, ["view", "mu+views", "mu", "dare"], "{ran:?}");
    for said in &said {
        assert_eq!(said["wrong"], 0, "{said}");
        assert!(said["kills"].as_u64() >= Some(1) && said["failovers"].as_u64() >= Some(1), "{said}");
    }
}

/// Whatever presets there are. The drill starts clusters and stores of its own, and removes them.
#[test]
fn presets_are_compared_under_the_same_faults_and_no_answer_is_lost() {
    let root = Root::alone(Alone::Measures);
    let out = root.note("stores");
    let words = ["drill", "smr", "--count", "1", "--clients", "1", "--json", "--out"];
    let ran = root.run(&[&words[..], &[out.to_str().expect("text")]].concat()).ends(0);
    let report = ran.json();
    let measured = report["measured"].as_array().expect("a list");
    let engines: Vec<&str> = measured.iter().filter_map(|of| of["engine"].as_str()).collect();
    assert_eq!(engines[..3], ["view", "mu+views", "mu"], "{report:#}");
    for of in measured {
        assert_eq!(
            (&of["lost"], &of["stale"], &of["repetitions"]),
            (&0.into(), &0.into(), &1.into()),
            "{of:#}"
        );
        assert!(of["answers"].as_u64() > Some(0) && of["client_us"]["max"].as_f64() > Some(0.0), "{of:#}");
        assert_eq!(of["members_us"]["n"], 1, "{of:#}");
    }
    let page = std::fs::read_to_string(out.join("smr.html")).expect("written");
    assert!(page.contains("mu+views") && page.contains("<svg"), "{page}");
    assert!(root.processes().is_empty() && !root.path().exists(), "{:?}", root.processes());
}

/// A drill of a store: each change is one that clients do not notice, or get over.
const SCRIPT: &str = r#"
[drill]
schema = 1
id = "short"
title = "A store grows, loses its leader, and shrinks"
preset = "dare"
voters = 3

[[step]]
name = "one joins"
change = "grow"
for = "100ms"

[[step]]
name = "the leader dies"
change = "kill-leader"
for = "100ms"

[[step]]
name = "it shrinks by the next one"
change = "shrink-leader"
for = "100ms"

[[step]]
name = "one joins again"
change = "join"
for = "100ms"
"#;

#[test]
fn a_store_is_reconfigured_by_a_script_while_clients_write_and_nothing_is_lost() {
    let root = Root::alone(Alone::Measures);
    let (script, out) = (root.note("script.toml"), root.note("reconfigured"));
    std::fs::write(&script, SCRIPT).expect("written");
    let path = |path: &std::path::Path| path.to_str().expect("text").to_owned();
    let words =
        ["drill", "smr", "--clients", "1", "--json", "--script", &path(&script), "--out", &path(&out)];
    let said = root.run(&words).ends(0).json();
    let steps = said["steps"].as_array().expect("a list");
    let voters: Vec<Value> = steps.iter().map(|step| step["voters"].clone()).collect();
    assert_eq!(Value::from(voters), serde_json::json!([[3, 4], [4, 3], [3, 2], [2, 3]]), "{said:#}");
    assert_eq!((&said["lost"], &said["verdict"]), (&0.into(), &"passed".into()), "{said:#}");
    assert!(said["answers"].as_u64() > Some(0), "{said:#}");
    assert!(std::fs::read_to_string(out.join("smr.html")).is_ok_and(|page| page.contains("<svg")));
    assert!(root.processes().is_empty() && !root.path().exists(), "{:?}", root.processes());
    std::fs::write(&script, SCRIPT.replace("kill-leader", "join")).expect("written");
    let ran = root.run(&["drill", "smr", "--script", &path(&script)]).ends(2);
    assert!(ran.err.contains("a store needs 3 to 7 voters"), "{ran:?}");
}

#[test]
fn an_order_book_survives_its_leader_and_refuses_replicas_of_another_service() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let book = |name: &str| {
        let said = File::create(root.note(name)).expect("a file");
        let words = ["smr", "server", "--name", name, "--service", "orderbook", "--json"];
        root.command(&words).stdin(Stdio::null()).stdout(said).spawn().expect("it starts")
    };
    let mut replicas = vec![book("smr-1")];
    until("the first serves", || says(&root, &["book", "depth"]).code == Some(0));
    assert_eq!(says(&root, &["book", "sell", "10", "--at", "101"]).code, Some(0));
    for name in ["smr-2", "smr-3"] {
        replicas.push(book(name));
        root.until("it is a member", |status| status.is_active(name));
    }
    until("all vote and have everything", || {
        std::fs::read_to_string(root.note("smr-1")).is_ok_and(|said| said.contains("\"redundancy\":3"))
    });
    let mut other = root.command(&["smr", "server", "--name", "smr-4"]);
    let refused = other.stdin(Stdio::null()).output().expect("it ends");
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("keep another --service"), "{refused:?}");
    let bought = says(&root, &["book", "buy", "4", "--at", "102", "--json"]).ends(0).json();
    assert_eq!(bought["fills"][0]["price"], 101, "{bought}");
    assert_eq!(root.run(&["kill", "smr-1"]).code, Some(0));
    assert!(replicas[0].wait().is_ok());
    let depth = says(&root, &["book", "depth", "--json"]).ends(0).json();
    assert_eq!(depth["asks"], serde_json::json!([{ "price": 101, "quantity": 6 }]), "{depth}");
    let ran = says(&root, &["book", "cancel", "99"]).ends(1);
    assert!(ran.err.contains("the book does not have order 99"), "{ran:?}");
    for (name, mut replica) in ["smr-2", "smr-3"].into_iter().zip(replicas.into_iter().skip(1)) {
        assert_eq!(root.run(&["stop", name]).code, Some(0));
        assert_eq!(replica.wait().expect("a child").code(), Some(0));
    }
}

/// Bytes of a value that hundreds of entries carry.
const LONG_BYTES: usize = 300_000;

/// A connection as `redis-cli` makes it, at a replica that does not lead, while the leader is killed:
/// each INCR takes effect once.
#[test]
fn a_session_of_redis_cli_continues_when_the_leader_is_killed() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|taken| taken.local_addr())
        .expect("a port")
        .port();
    let mut replicas = vec![serve(&root, "smr-1")];
    until("the first serves", || says(&root, &["put", "n", "0"]).code == Some(0));
    let resp = format!("127.0.0.1:{port}");
    let said = File::create(root.note("smr-2")).expect("a file");
    let mut second = root.command(&["smr", "server", "--name", "smr-2", "--resp", &resp, "--json"]);
    replicas.push(second.stdin(Stdio::null()).stdout(said).spawn().expect("it starts"));
    root.until("it is a member", |status| status.is_active("smr-2"));
    replicas.push(serve(&root, "smr-3"));
    until("all vote and have everything", || {
        std::fs::read_to_string(root.note("smr-1")).is_ok_and(|said| said.contains("\"redundancy\":3"))
    });
    let mut cli = Command::new("redis-cli");
    let cli = cli.args(["-p", &port.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut cli = cli.spawn().expect("redis-cli (package redis-tools)");
    let (mut to, from) = (cli.stdin.take().expect("piped"), cli.stdout.take().expect("piped"));
    let mut from = BufReader::new(from).lines();
    let mut ask = |command: &str| {
        writeln!(to, "{command}").expect("it runs");
        from.next().expect("an answer").expect("text")
    };
    // Longer than the keys of other clients.
    let long = "k".repeat(300);
    assert_eq!(ask(&format!("SET {long} far")), "OK");
    assert_eq!(says(&root, &["get", &long]).ends(0).out.trim(), "far");
    says(&root, &["delete", &long]).ends(0);
    assert!(says(&root, &["get", &long]).ends(1).err.contains("the store does not have this key"));
    for (command, reply) in [
        ("PING", "PONG"),
        ("SET greeting \"hello there\" EX 1000", "OK"),
        ("GET greeting", "hello there"),
        ("SET greeting again NX", ""),
        ("DBSIZE", "2"),
    ] {
        assert_eq!(ask(command), reply, "{command}");
    }
    let left = ask("TTL greeting");
    assert!(left.parse().is_ok_and(|left: u32| (500..=1000).contains(&left)), "{left}");
    // It shows an empty line after an error.
    assert_eq!(ask("SELECT 1"), "ERR DB index is out of range");
    drop((to, from));
    assert!(cli.wait().is_ok());
    // Beside it, long values are written and read: each takes hundreds of entries.
    let (is_over, rounds) = (AtomicBool::new(false), AtomicU32::new(0));
    let long_values = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        let mut reply = Vec::new();
        while !is_over.load(Ordering::Relaxed) {
            let value = vec![b'a' + (rounds.load(Ordering::Relaxed) % 26) as u8; LONG_BYTES];
            let bulk = [format!("${LONG_BYTES}\r\n").as_bytes(), &value, b"\r\n"].concat();
            let set = [&b"*3\r\n$3\r\nSET\r\n$4\r\nlong\r\n"[..], &bulk, b"GET long\r\n"].concat();
            stream.write_all(&set).expect("it reads");
            let expected = [&b"+OK\r\n"[..], &bulk].concat();
            reply.resize(expected.len(), 0);
            stream.read_exact(&mut reply).expect("it answers");
            assert!(reply == expected, "{}", String::from_utf8_lossy(&reply[..100]));
            rounds.fetch_add(1, Ordering::Relaxed);
        }
    };
    let count = 60;
    let said = std::thread::scope(|scope| {
        let long_values = scope.spawn(long_values);
        let mut cli = Command::new("redis-cli");
        let counted =
            cli.args(["-p", &port.to_string(), "-r", &count.to_string(), "-i", "0.02", "INCR", "n"]);
        let counted = counted.stdout(Stdio::piped()).spawn().expect("it starts");
        let some = |text: &str| text.trim().parse::<u32>().is_ok_and(|n| n > 5);
        until("some are counted", || some(&says(&root, &["get", "n"]).out));
        let before = rounds.load(Ordering::Relaxed);
        assert_eq!(root.run(&["kill", "smr-1"]).code, Some(0));
        assert!(replicas[0].wait().is_ok());
        until("long values are written again", || {
            rounds.load(Ordering::Relaxed) > before + 1 || long_values.is_finished()
        });
        is_over.store(true, Ordering::Relaxed);
        long_values.join().expect("each is read as it was written");
        counted.wait_with_output().expect("it ends")
    });
    let said: Vec<u32> =
        String::from_utf8_lossy(&said.stdout).lines().map(|n| n.parse().expect("a number")).collect();
    assert_eq!(said, (1..=count).collect::<Vec<u32>>(), "once each, and none is lost");
    assert_eq!(says(&root, &["get", "n"]).ends(0).out.trim(), count.to_string());
    let ran = says(&root, &["get", "long"]).ends(1);
    assert!(ran.err.contains("too long"), "{ran:?}");
    for (name, mut replica) in ["smr-2", "smr-3"].into_iter().zip(replicas.into_iter().skip(1)) {
        assert_eq!(root.run(&["stop", name]).code, Some(0));
        assert_eq!(replica.wait().expect("a child").code(), Some(0));
    }
}

#[test]
fn a_replica_that_is_to_begin_anew_beside_a_live_one_says_that_it_does_not() {
    const IN_VAIN: &str = "--force-empty has no effect";
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let said = |name: &str| std::fs::read_to_string(root.note(format!("{name}-err"))).unwrap_or_default();
    let begin = |name: &str| {
        let mut command = root.command(&["smr", "server", "--name", name, "--force-empty"]);
        let errors = std::fs::File::create(root.note(format!("{name}-err"))).expect("made");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).spawn().expect("started")
    };
    let mut replicas = vec![begin("smr-1")];
    until("the first serves", || says(&root, &["put", "a", "1"]).code == Some(0));
    replicas.push(begin("smr-2"));
    until("the second one says it", || said("smr-2").contains(IN_VAIN));
    assert!(!said("smr-1").contains(IN_VAIN), "{}", said("smr-1"));
    assert_eq!(says(&root, &["get", "a"]).ends(0).out.trim(), "1");
    for name in ["smr-2", "smr-1"] {
        root.run(&["stop", name]).ends(0);
    }
    for mut replica in replicas {
        assert!(replica.wait().is_ok());
    }
}

/// A frozen store is not replaced by mistake.
#[test]
fn an_empty_store_is_not_begun_while_replicas_that_have_one_are_frozen() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let replicas = three(&root, "view");
    let pids: Vec<i64> = replicas.iter().map(|replica| i64::from(replica.id())).collect();
    pids.iter().for_each(|pid| freeze(*pid));
    let names = ["smr-1", "smr-2", "smr-3"];
    root.until("they are excluded", |status| names.iter().all(|name| !status.is_active(name)));
    let refused = says(&root, &["server", "--name", "smr-4", "--force-empty"]).ends(2);
    for (name, pid) in names.into_iter().zip(&pids) {
        assert!(refused.err.contains(&format!("{name} (pid {pid}, frozen)")), "{refused:?}");
    }
    let [a, b, c] = pids[..] else { panic!("three") };
    assert!(refused.err.contains(&format!("`kill -CONT {a} {b} {c}`")), "{refused:?}");
    signal("CONT", &pids);
    until("the store serves again", || says(&root, &["put", "b", "2"]).code == Some(0));
    assert_eq!(says(&root, &["get", "a"]).ends(0).out.trim(), "1");
    for (name, mut replica) in names.into_iter().zip(replicas) {
        root.run(&["stop", name]).ends(0);
        assert!(replica.wait().is_ok());
    }
}

/// Voters that were only frozen come back after a recovery: they end, and the new value stays.
fn frozen_voters_end_after_a_recovery(preset: &str) {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let mut replicas = three(&root, preset);
    let away = [0, 2].map(|n: usize| i64::from(replicas[n].id()));
    away.iter().for_each(|pid| freeze(*pid));
    until("it is stuck", || says(&root, &["status"]).out.contains("lacks a majority"));
    let said = says(&root, &["recover", "--from", "smr-2"]).ends(0);
    assert!(said.out.contains("smr-2 serves with what it has"), "{said:?}");
    assert_eq!(says(&root, &["put", "a", "2"]).code, Some(0));
    signal("CONT", &away);
    for n in [0, 2] {
        assert_eq!(replicas[n].wait().expect("a child").code(), Some(2), "smr-{}", n + 1);
    }
    assert_eq!(says(&root, &["get", "a"]).ends(0).out.trim(), "2");
    let mut first = serve_with(&root, "smr-1", &["--preset", preset]);
    until("it has everything", || {
        std::fs::read_to_string(root.note("smr-2")).is_ok_and(|said| said.contains("\"redundancy\":2"))
    });
    root.run(&["stop", "smr-2"]).ends(0);
    assert!(replicas[1].wait().is_ok());
    assert_eq!(says(&root, &["get", "a"]).ends(0).out.trim(), "2");
    root.run(&["stop", "smr-1"]).ends(0);
    assert!(first.wait().is_ok());
}

#[test]
fn with_permissions_voters_that_were_frozen_end_after_a_recovery() {
    frozen_voters_end_after_a_recovery("mu+views");
}

#[test]
fn with_mu_voters_that_were_frozen_end_after_a_recovery() {
    frozen_voters_end_after_a_recovery("mu");
}

#[test]
fn with_dare_a_recovery_is_refused_with_what_to_do_instead() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let mut replicas = three(&root, "dare");
    for n in [0, 2] {
        replicas[n].kill().expect("it runs");
        assert!(replicas[n].wait().is_ok());
    }
    until("none serves", || says(&root, &["status"]).code == Some(1));
    let refused = says(&root, &["recover", "--from", "smr-2"]).ends(2);
    for word in ["replicas with preset dare cannot continue alone", "kill -CONT", "--force-empty"] {
        assert!(refused.err.contains(word), "{refused:?}");
    }
    root.run(&["stop", "smr-2"]);
    assert!(replicas[1].wait().is_ok());
}

#[test]
fn what_cannot_be_stored_is_refused_with_its_reason() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let long = "x".repeat(800);
    let ran = says(&root, &["put", "k", &long]).ends(2);
    assert!(ran.err.contains("a value has at most 767 bytes, this one has 800"), "{ran:?}");
    let ran = says(&root, &["put", "", "v"]).ends(2);
    assert!(ran.err.contains("a key has 1 to 255 bytes, this one has 0"), "{ran:?}");
    let ran = says(&root, &["get", "k", "--timeout", "200ms"]).ends(1);
    assert!(ran.err.contains("no answer within 200ms; see `obol smr status`"), "{ran:?}");
    let ran = says(&root, &["server", "--name", "app-1"]).ends(2);
    assert!(ran.err.contains("a replica's name begins with `smr-`, such as smr-1"), "{ran:?}");
}

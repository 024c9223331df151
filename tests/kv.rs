//! The cache with real processes: kills of the primary that no client's answer shows.

use crate::support::share::Alone;
use crate::support::{Ran, Root, freeze, has_ended, signal, until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::File;
use std::process::{Child, Stdio};

/// A server of the cache in the background.
fn serve(root: &Root, name: &str, options: &[&str]) -> Child {
    let mut command = root.command(&[&["kv", "server", "--name", name], options].concat());
    command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("it starts")
}

/// The first server, `kv-1`, which has a value.
fn serve_first(root: &Root) -> Child {
    let first = serve(root, "kv-1", &[]);
    until("the first serves", || says(root, &["put", "1", "hello"]).code == Some(0));
    first
}

fn says(root: &Root, words: &[&str]) -> Ran {
    root.run(&[&["kv"], words].concat())
}

/// Stops servers, which end well.
fn stop(root: &Root, servers: &mut [(&str, Child)]) {
    for (name, server) in servers {
        assert_eq!(root.run(&["stop", name]).code, Some(0));
        assert_eq!(server.wait().expect("a child").code(), Some(0));
    }
}

/// A check of no answer that is wrong, in a cache that goes on; what it says.
fn no_answer_is_wrong(root: &Root, options: &[&str]) -> Value {
    let said = root.run(&[&["kv", "check", "--clients", "1", "--json"], options].concat()).ends(0).json();
    assert_eq!((said["wrong"].as_u64(), said["stopped"].as_bool()), (Some(0), Some(false)));
    said
}

#[test]
fn no_answer_is_wrong_while_primaries_are_killed_and_the_cache_is_redundant_again_each_time() {
    let root = Root::alone(Alone::Measures);
    let _up = root.up(&["--apps", "1"]);
    let said = no_answer_is_wrong(&root, &["--for", "2s", "--kill-every", "400ms"]);
    assert!(said["kills"].as_u64() >= Some(1) && said["failovers"].as_u64() >= Some(1), "{said}");
    assert!(said["puts"].as_u64() > Some(0) && said["gets"].as_u64() > Some(0), "{said}");
}

#[test]
fn a_check_without_the_kills_that_were_asked_for_is_void() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let check = ["kv", "check", "--for", "1s", "--kill-every", "10s", "--clients", "1", "--json"];
    let ran = root.run(&check).ends(6);
    assert_eq!(ran.json()["kills"], 0, "{ran:?}");
    // None of its members has failed at its end.
    let status = root.status();
    let left: Vec<&Value> = (1..=3).map(|n| &status.process(&format!("kv-{n}"))["left"]).collect();
    assert_eq!(left, [true; 3]);
    assert!(ran.err.contains("inconclusive: no server was hit by --kill-every 10s"), "{ran:?}");
}

#[test]
fn no_answer_of_a_cache_of_two_shards_is_wrong_while_servers_are_killed() {
    let root = Root::alone(Alone::Measures);
    let _up = root.up(&["--apps", "1"]);
    let said = no_answer_is_wrong(&root, &["--shards", "2", "--for", "2s", "--kill-every", "400ms"]);
    // A server that is killed may be the primary of one shard, and the backup of the other.
    assert!(said["kills"].as_u64() >= Some(1) && said["failovers"].as_u64() >= Some(1), "{said}");
}

#[test]
fn nothing_is_lost_when_servers_are_frozen_while_others_are_killed() {
    let root = Root::alone(Alone::Measures);
    let _up = root.up(&["--apps", "1"]);
    let faults = ["--kill-every", "1s", "--freeze-every", "1s", "--freeze-max", "1200ms"];
    let said = no_answer_is_wrong(&root, &[&["--shards", "2", "--for", "6s"], &faults[..]].concat());
    assert!(said["kills"].as_u64() >= Some(1) && said["freezes"].as_u64() >= Some(1), "{said}");
}

#[test]
fn a_check_whose_servers_all_die_fails_and_says_that_the_cache_has_stopped() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let mut command = root.command(&["kv", "check", "--for", "4s", "--clients", "1", "--json"]);
    let ran = std::thread::spawn(move || Ran::of(&mut command));
    let servers = ["kv-1", "kv-2", "kv-3", "kvc-check-0"];
    let status = root.until("all are members", |status| servers.iter().all(|it| status.is_active(it)));
    let before = status.view();
    signal("KILL", &servers[..3].iter().map(|it| status.pid(it)).collect::<Vec<_>>());
    root.until("they are removed", |status| status.view() > before);
    let ran = ran.join().expect("it ends").ends(1);
    assert_eq!(ran.json()["stopped"], true, "{ran:?}");
    assert!(ran.err.contains("the cache has stopped") && !ran.err.contains("inconclusive"), "{ran:?}");
}

#[test]
fn a_first_server_does_not_begin_with_nothing_where_others_died_with_the_state() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let mut first = serve_first(&root);
    assert_eq!(root.run(&["kill", "kv-1"]).code, Some(0));
    first.wait().expect("a child");
    let second = serve(&root, "kv-2", &[]);
    root.until("the second is a member", |status| status.is_active("kv-2"));
    let silent = says(&root, &["get", "1", "--timeout", "300ms"]).ends(1);
    assert!(silent.err.contains("no answer"), "an empty cache answers: {silent:?}");
    stop(&root, &mut [("kv-2", second)]);
    let third = serve(&root, "kv-3", &["--force-empty"]);
    until("it begins with nothing", || says(&root, &["get", "1"]).err.contains("does not have this key"));
    stop(&root, &mut [("kv-3", third)]);
}

#[test]
fn a_frozen_server_that_alone_has_the_state_brings_it_back() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let first = serve_first(&root);
    let first_was = root.status().incarnation("kv-1");
    freeze(i64::from(first.id()));
    root.until("it is removed", |status| !status.is_active("kv-1"));
    let second = serve(&root, "kv-2", &[]);
    root.until("the second is a member", |status| status.is_active("kv-2"));
    assert!(says(&root, &["get", "1", "--timeout", "300ms"]).ends(1).err.contains("no answer"));
    signal("CONT", &[i64::from(first.id())]);
    until("the state is back", || says(&root, &["get", "1"]).out == "hello\n");
    assert!(root.status().incarnation("kv-1") > first_was);
    stop(&root, &mut [("kv-2", second), ("kv-1", first)]);
}

#[test]
fn a_servers_shards_fail_and_leave_together_and_all_servers_have_the_same() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    // The first one is killed, and its state is to be gone.
    let options = ["--shards", "2", "--force-empty"];
    let mut first = serve(&root, "kv-1", &options);
    // Their shards are the first and the second.
    let keys = ["0", "1"];
    for key in keys {
        until("its shard serves", || says(&root, &["put", key, "hello"]).code == Some(0));
    }
    let odd = ["server", "--name", "kv-2"];
    says(&root, &odd).refused(&["--shards 1", "start this server with --shards 2"]);
    let named = ["server", "--shards", "2", "--name", "kv-1.1of2"];
    says(&root, &named).refused(&["`.1of2` at its end is for a shard", "leave it out"]);
    assert_eq!(root.run(&["kill", "kv-1.2of2"]).code, Some(0));
    assert_eq!(first.wait().expect("a child").code(), None, "killed");
    root.until("both shards are removed", |status| {
        ["kv-1.1of2", "kv-1.2of2"].iter().all(|it| !status.is_active(it))
    });
    let next = serve(&root, "kv-2", &options);
    for key in keys {
        until("it begins with nothing", || says(&root, &["get", key]).err.contains("does not have this key"));
    }
    stop(&root, &mut [("kv-2.1of2", next)]);
}

#[test]
fn a_value_outlives_the_server_that_took_it() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let mut first = serve_first(&root);
    let out = File::create(root.note("kv-2")).expect("made");
    let mut second = root.command(&["kv", "server", "--json", "--name", "kv-2"]);
    let second = second.stdin(Stdio::null()).stdout(out).spawn().expect("it starts");
    let standing = "\"standing\":\"backup\",\"redundant\":true";
    until("the second has everything", || {
        std::fs::read_to_string(root.note("kv-2")).is_ok_and(|text| text.contains(standing))
    });
    says(&root, &["put", "2", "world"]).ends(0);
    assert_eq!(root.run(&["kill", "kv-1"]).code, Some(0));
    until("the second serves", || says(&root, &["get", "1"]).out == "hello\n");
    assert_eq!(says(&root, &["get", "2"]).ends(0).out, "world\n");
    assert!(says(&root, &["get", "3"]).ends(1).err.contains("does not have this key"));
    // Not for a terminal, so as it is.
    says(&root, &["put", "2", "\u{1b}[1mbold\u{7}"]).ends(0);
    assert_eq!(says(&root, &["get", "2"]).ends(0).out, "\u{1b}[1mbold\u{7}\n");
    says(&root, &["put", "1", &"x".repeat(1025)]).refused(&["at most 1024 bytes, this one has 1025"]);
    stop(&root, &mut [("kv-2", second)]);
    assert_eq!(first.wait().expect("a child").code(), None, "killed");
    says(&root, &["server", "--name", "other"]).refused(&["begins with `kv-`"]);
}

#[test]
fn a_server_that_was_frozen_is_removed_and_comes_back_with_memory_of_its_own() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let first = serve_first(&root);
    let second = serve(&root, "kv-2", &[]);
    root.until("both are members", |status| status.is_active("kv-1") && status.is_active("kv-2"));
    let regions = || {
        let names =
            std::fs::read_dir(root.cluster()).expect("there").map(|entry| entry.expect("read").file_name());
        names.filter(|name| name.to_string_lossy().starts_with("region-")).collect::<BTreeSet<_>>()
    };
    let was = (root.status(), regions());
    let incarnation = was.0.incarnation("kv-2");
    freeze(i64::from(second.id()));
    root.until("the second is removed", |status| status.view() > was.0.view());
    signal("CONT", &[i64::from(second.id())]);
    root.until("it is back", |status| status.incarnation("kv-2") > incarnation && status.is_active("kv-2"));
    assert_ne!(regions(), was.1);
    assert_eq!(says(&root, &["get", "1"]).ends(0).out, "hello\n");
    stop(&root, &mut [("kv-2", second), ("kv-1", first)]);
}

#[test]
fn a_drill_tells_what_a_client_saw_of_the_failovers_beside_what_the_members_did() {
    let root = Root::alone(Alone::Measures);
    let _up = root.up(&["--apps", "1"]);
    let drill = ["drill", "app", "--observe", "client", "--count", "3", "--json"];
    let said = root.run(&drill).ends(0).json();
    assert_eq!(said["count"], 3);
    assert!(said["client_us"]["max"].as_f64() > Some(0.0) && said["client_us"]["p50"].is_null(), "{said}");
    root.run(&["drill", "leader", "--observe", "client"]).refused(&["is for `obol drill app`"]);
}

#[test]
fn the_demos_cache_serves_its_load() {
    let (root, _up) = Root::with_cluster(&["--apps", "1", "--kv"]);
    // The load writes each of its keys within a second.
    until("the load has written", || root.run(&["kv", "get", "4"]).code == Some(0));
    root.until("all are members", |status| {
        ["kv-1", "kv-2", "kv-3", "kvc-load"].iter().all(|it| status.is_active(it))
    });
    // A test that starts servers of its own would watch servers without clients.
    for own in [&["kv", "check"][..], &["kv", "bench"], &["drill", "app", "--observe", "client"]] {
        root.run(own).refused(&["a cache runs already", "kv-1", "`obol stop kv-"]);
    }
}

#[test]
fn a_cache_dies_with_up() {
    let (root, up) = Root::with_cluster(&["--apps", "1", "--kv"]);
    signal("KILL", &[up.pid()]);
    until("nothing of it runs", || root.processes().is_empty());
    drop(up);
    root.run(&["down"]).ends(0);
}

#[test]
fn nobody_misses_the_state_of_a_check_that_was_killed() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let mut check = root
        .command(&["kv", "check", "--servers", "1", "--for", "600s", "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    until("its server has a state", || says(&root, &["put", "1", "hello"]).code == Some(0));
    let server = root.status().pid("kv-1");
    check.kill().expect("it runs");
    check.wait().expect("a child");
    until("its server dies with it", || has_ended(server));
    root.until("its server is removed", |status| !status.is_active("kv-1"));
    let mut command = root.command(&["kv", "server", "--name", "kv-1"]);
    let server = std::thread::spawn(move || Ran::of(&mut command));
    until("a server begins with nothing", || {
        says(&root, &["get", "1"]).err.contains("does not have this key")
    });
    root.run(&["stop", "kv-1"]).ends(0);
    let ended = server.join().expect("it ends").ends(0);
    assert!(ended.err.contains("it had the last copy of its keys"), "{ended:?}");
}

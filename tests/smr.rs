//! A replicated store with real processes: leaders are killed, and nothing that was answered is
//! lost.

use crate::support::{Ran, Root, until};
use std::fs::File;
use std::process::{Child, Stdio};

/// A replica in the background, which writes where it stands into a file.
fn serve(root: &Root, name: &str) -> Child {
    let said = File::create(root.note(name)).expect("a file");
    let mut command = root.command(&["smr", "server", "--name", name, "--json"]);
    command.stdin(Stdio::null()).stdout(said).spawn().expect("it starts")
}

fn says(root: &Root, words: &[&str]) -> Ran {
    root.run(&[&["smr"], words].concat())
}

#[test]
fn no_answer_is_wrong_while_leaders_are_killed_and_the_store_is_redundant_again_each_time() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let check = ["check", "--for", "2s", "--kill-every", "400ms", "--clients", "1", "--json"];
    let said = says(&root, &check).ends(0).json();
    assert_eq!(said["wrong"], 0, "{said}");
    assert!(said["kills"].as_u64() >= Some(1) && said["failovers"].as_u64() >= Some(1), "{said}");
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

#[test]
fn what_cannot_be_stored_is_refused_with_its_reason() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let long = "x".repeat(800);
    let ran = says(&root, &["put", "k", &long]).ends(2);
    assert!(ran.err.contains("a value has at most 767 bytes, this one has 800"), "{ran:?}");
    let ran = says(&root, &["put", "", "v"]).ends(2);
    assert!(ran.err.contains("a key has 1 to 255 bytes, this one has 0"), "{ran:?}");
    let ran = says(&root, &["get", "k", "--timeout", "200ms"]).ends(1);
    assert!(ran.err.contains("no answer within 200ms; see `obol status`"), "{ran:?}");
    let ran = says(&root, &["server", "--name", "app-1"]).ends(2);
    assert!(ran.err.contains("a replica's name begins with `smr-`, such as smr-1"), "{ran:?}");
}

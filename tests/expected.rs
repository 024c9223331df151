//! Members that are expected back: who is missed, until when, and by which word.

use crate::support::{Root, Status, signal};
use serde_json::json;
use std::process::{Child, Stdio};

fn program(root: &Root, name: &str, of: &str) -> Child {
    let place = root.path().to_str().expect("text").to_owned();
    let words = ["run", "--root", &place, "--name", name, "--node", "node-1", "--", "/bin/sh", "-c", of];
    let child = root.command(&words).stdin(Stdio::null()).spawn().expect("it starts");
    root.until("it is a member", |status| status.is_active(name));
    child
}

fn missed(status: &Status, name: &str) -> bool {
    status.code == Some(1) && status.reasons().contains(&format!("{name} failed, removed by view "))
}

#[test]
fn a_program_that_was_killed_is_missed_until_it_is_back_or_forgotten() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let mut mine = program(&root, "mine", "sleep 600");
    root.healthy();
    root.run(&["kill", "mine"]).ends(0);
    assert!(mine.wait().is_ok());
    root.until("it is missed", |status| missed(status, "mine"));
    // Views remember those that departed within their last 32.
    for n in 0..40 {
        root.run(&["lease", "set", &format!("{}ms", 20 + n % 2)]).ends(0);
    }
    let status = root.until("it still is", |status| missed(status, "mine"));
    assert_eq!(status.process("mine")["left"], false, "{status:?}");
    // It is back.
    let mut mine = program(&root, "mine", "sleep 600");
    root.healthy();
    root.run(&["kill", "mine"]).ends(0);
    assert!(mine.wait().is_ok());
    root.until("it is missed again", |status| missed(status, "mine"));
    root.run(&["forget", "nobody"]).refused(&["nobody is not missed", "mine"]);
    root.run(&["forget", "node-1"]).refused(&["node-1 runs", "obol stop node-1"]);
    root.run(&["forget", "coord-1"]).refused(&["coord-1 runs"]);
    root.run(&["forget", "mine"]).ends(0);
    root.healthy();
    // Nobody is missed any more, as `obol status` says, though its memory is still there.
    for name in ["nobody", "mine"] {
        root.run(&["forget", name]).refused(&["is not missed; those that are: none"]);
    }
    // One that ends badly is missed, one that ends well has done its work, one that is asked to end leaves.
    let ends = |name: &str, of: &str, code: i32| {
        let mut child = program(&root, name, of);
        assert_eq!(child.wait().expect("a child").code(), Some(code));
    };
    ends("well", "sleep 1", 0);
    root.healthy();
    let mut asked = program(&root, "asked", "sleep 600");
    signal("TERM", &[i64::from(asked.id())]);
    assert!(asked.wait().is_ok());
    root.healthy();
    ends("badly", "sleep 1; exit 3", 3);
    root.until("it is missed", |status| missed(status, "badly"));
    // The deployment's own are expected as well, until an operator says otherwise.
    let forgotten = root.run(&["forget", "badly", "--json"]).ends(0).json();
    assert_eq!(forgotten, json!({"cluster": "default", "names": ["badly"], "missed": null}));
    root.run(&["kill", "app-1"]).ends(0);
    root.until("it is down", |status| status.reasons().contains("app-1 down"));
    root.run(&["forget", "app-1"]).ends(0);
    root.healthy();
    root.run(&["forget", "app-1"]).refused(&["app-1 is not missed; those that are: none"]);
    root.run(&["start", "app-1"]).ends(0);
    root.until("it is a member", |status| status.code == Some(0) && status.is_active("app-1"));
}

#[test]
fn a_store_that_does_not_serve_or_lacks_copies_makes_a_cluster_degraded() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let start = |name: &str| {
        let mut command = root.command(&["smr", "server", "--name", name, "--voters", "3"]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("it starts");
        root.until("it is a member", |status| status.is_active(name));
        child
    };
    let says = |what: &'static str| {
        root.until(what, |status| status.code == Some(1) && status.reasons().contains(what));
    };
    let mut replicas = vec![start("smr-1")];
    says("the store has 1 of 3 copies");
    replicas.extend(["smr-2", "smr-3"].map(start));
    root.healthy();
    // A graceful leave is an operator's word; the store lacks a copy all the same.
    root.run(&["stop", "smr-3"]).ends(0);
    says("the store has 2 of 3 copies");
    root.run(&["smr", "resize", "2"]).ends(0);
    root.healthy();
    root.run(&["smr", "resize", "3"]).ends(0);
    replicas.push(start("smr-3"));
    root.healthy();
    // Without a majority nobody serves. Those that are left are whole, and live.
    let pids = ["smr-1", "smr-2"].map(|name| root.status().pid(name));
    signal("KILL", &pids);
    says("the store does not serve");
    root.until("both are missed", |status| {
        let why = status.reasons();
        ["smr-1", "smr-2", "failed, removed last by view "].iter().all(|part| why.contains(part))
    });
    signal("KILL", &[root.status().pid("smr-3")]);
    for mut child in replicas {
        assert!(child.wait().is_ok());
    }
}

//! Upgrades: processes of two releases in one cluster. A process is taken for one of the next
//! release (`OBOL_TEST_RELEASE`); its regions are longer than those of this one.

use crate::support::share::Alone;
use crate::support::{Ran, Root, Status, until_or};
use obol_agent::Embedded;
use obol_fabric::Name;
use obol_node::Site;
use serde_json::Value;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// This release, the next one, and one too far.
const RELEASES: [&str; 3] = ["0.1", "0.2", "0.3"];

/// It is killed with the test.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn of_release<'c>(command: &'c mut Command, release: &str) -> &'c mut Command {
    command.env("OBOL_TEST_RELEASE", release)
}

/// How each process of the cluster is started.
fn arguments(name: &str) -> Vec<&str> {
    match name.split_once('-') {
        Some(("coord", number)) => vec!["coordinator", "run", "--number", number],
        Some(("node", _)) => vec!["agent", "--name", name],
        _ => vec!["app", "--name", name, "--node", if name == "app-1" { "node-1" } else { "node-2" }],
    }
}

/// Replaces a process by one of another release, as the only change of the cluster.
fn replace(root: &Root, name: &str, release: &str) -> Daemon {
    let before = root.healthy().incarnation(name);
    root.run(&["stop", name]).ends(0);
    let mut command = root.command(&arguments(name));
    of_release(&mut command, release).stdin(Stdio::null()).stdout(Stdio::null());
    let daemon = Daemon(command.spawn().expect("it starts"));
    let is_back = |status: &Status| {
        status.json["processes"].as_array().is_some_and(|all| {
            let new = |p: &Value| {
                p["name"] == name
                    && p["alive"] == true
                    && p["version"] == format!("{release}.0")
                    && p["incarnation"].as_u64() > Some(before)
            };
            all.iter().any(new)
        })
    };
    root.until(&format!("{name} of {release} is a member"), is_back);
    root.healthy();
    daemon
}

fn spoken(root: &Root) -> String {
    root.status().json["release"].as_str().unwrap_or_default().to_owned()
}

/// Starts processes of a release which the cluster does not admit: an agent, and a server and a client of each
/// store.
fn refused(root: &Root, release: &str, words: &[&str]) {
    for (daemon, name) in [
        (&["agent", "--name", "node-9"][..], "node-9"),
        (&["kv", "server", "--name", "kv-9"], "kv-9"),
        (&["smr", "server", "--name", "smr-9"], "smr-9"),
        (&["kv", "get", "1", "--name", "kvc-client-9"], "kvc-client-9"),
        (&["smr", "get", "k", "--name", "smrc-9"], "smrc-9"),
    ] {
        let mut command = root.command(daemon);
        let ran = Ran::of(of_release(&mut command, release));
        assert!(matches!(ran.code, Some(1 | 2)), "{ran:?}");
        assert!(words.iter().all(|word| ran.err.contains(word)), "{name}: {words:?} in {}", ran.err);
    }
}

/// Runs `obol upgrade` of the next release, and does what it has restarted.
fn upgrade(root: &Root, mut restarts: impl FnMut(&str)) -> Value {
    let request = root.note("restart");
    let path = request.to_str().expect("text");
    let wish = format!(
        "echo $OBOL_NAME >{path}.new && mv {path}.new {path} && while [ -e {path} ]; do sleep 0.02; done"
    );
    let mut command = root.command(&["upgrade", "--json", "--restart", &wish]);
    let mut running = of_release(&mut command, RELEASES[1]);
    running = running.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = running.spawn().expect("it starts");
    while running.try_wait().expect("a child").is_none() {
        if let Ok(name) = fs::read_to_string(&request) {
            restarts(name.trim());
            fs::remove_file(&request).expect("removed");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let ended = running.wait_with_output().expect("it has ended");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    serde_json::from_slice(&ended.stdout).expect("JSON")
}

#[test]
fn a_cluster_is_upgraded_process_by_process_under_load_and_no_answer_is_wrong() {
    let [this, next, far] = RELEASES;
    assert!(env!("CARGO_PKG_VERSION").starts_with(this), "the releases of this test follow the version");
    let (root, _up) = Root::with_cluster(&["--apps", "2"]);
    assert_eq!(spoken(&root), this);
    let mut check = root.command(&["kv", "check", "--for", "12s", "--clients", "1", "--json"]);
    let check = check.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let check = check.spawn().expect("it starts");
    root.until("the cache serves", |status| status.processes().keys().any(|name| name.contains("kv")));

    let mut daemons = Vec::new();
    let said = upgrade(&root, |name| {
        if name == "coord-2" {
            // A failover in a cluster of both, and one that is refused.
            root.run(&["drill", "app", "--count", "1"]).ends(0);
            refused(&root, far, &["0.2 first"]);
        }
        let leader = root.status().incarnation("coord-1");
        daemons.push(replace(&root, name, next));
        let left = if name == "coord-1" { leader + 1 } else { leader };
        assert!(root.status().incarnation("coord-1") >= left && spoken(&root) == this, "{name}");
    });
    let names: Vec<&str> =
        said["steps"].as_array().expect("an array").iter().flat_map(|s| s["name"].as_str()).collect();
    assert_eq!(names, ["node-1", "node-2", "coord-2", "coord-3", "coord-1"], "{said}");
    for name in ["app-1", "app-2"] {
        daemons.push(replace(&root, name, next));
    }

    let checked = check.wait_with_output().expect("it ends");
    let said: Value = serde_json::from_slice(&checked.stdout).expect("JSON");
    assert!(checked.status.success() && said["wrong"] == 0 && said["puts"].as_u64() > Some(0), "{said}");
    until_or("the new release is spoken", || (spoken(&root) == next).then_some(()), || spoken(&root));
    refused(&root, this, &["upgrade this program to 0.2", "the cluster does not admit"]);
    root.healthy();
}

#[test]
fn every_daemon_of_a_host_is_restarted_its_gateway_too_and_each_is_waited_for() {
    let (root, _up) = Root::with_cluster(&["--hosts", "3"]);
    let place = ["--cluster", "default.2"];
    let gateway = |root: &Root| root.status_in(&place).json["gateway"]["pid"].as_i64();
    let before = gateway(&root);
    assert!(before.is_some());
    let without = root.run(&["upgrade", "--all", "--cluster", "default.2"]);
    without.refused(&["was started by `obol up`", "--restart 'obol stop"]);
    let obol = env!("CARGO_BIN_EXE_obol");
    let at = root.path().to_str().expect("text");
    let restart = format!("{obol} stop $OBOL_NAME --root {at} && {obol} start $OBOL_NAME --root {at}");
    // The first restart sends the signal.
    let interrupting = format!("kill -INT $PPID; {restart}");
    let ran = root.run(&["upgrade", "--all", "--restart", &interrupting, "--cluster", "default.2"]).ends(1);
    for said in ["interrupted by a signal", "not restarted: obol-agent@node-2, obol-coordinator@2; "] {
        assert!(ran.err.contains(said), "{ran:?}");
    }
    root.healthy();
    // What stayed stopped is named.
    root.run(&["stop", "node-2"]).ends(0);
    let plan = || root.run(&["upgrade", "--plan", "--cluster", "default.2"]).ends(0).out;
    until_or("it is named", || plan().contains("obol-agent@node-2 does not run").then_some(()), plan);
    root.run(&["start", "node-2"]).ends(0);
    root.healthy();
    let before = gateway(&root);
    let ran = root.run(&["upgrade", "--all", "--json", "--restart", &restart, "--cluster", "default.2"]);
    let said = ran.ends(0).json();
    let steps = said["steps"].as_array().expect("an array");
    let units: Vec<&str> = steps.iter().filter_map(|step| step["unit"].as_str()).collect();
    assert_eq!(units, ["obol-gateway", "obol-agent@node-2", "obol-coordinator@2"], "{said}");
    assert!(steps.iter().all(|step| step["took_s"].is_f64()), "{said}");
    let after = gateway(&root);
    assert!(after.is_some() && after != before, "{after:?}");
}

/// A cluster of the next release, which this one's programs still read.
fn of_next_release(root: &Root) -> Daemon {
    let mut command = root.command(&["up", "--headless", "--apps", "1"]);
    of_release(&mut command, RELEASES[1]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let up = Daemon(command.spawn().expect("it starts"));
    until_or("it is healthy", || (root.status().code == Some(0)).then_some(()), || root.run(&["status"]).out);
    up
}

#[test]
fn a_release_that_is_not_admitted_any_more_is_refused_before_anything_is_stopped() {
    let root = Root::new();
    let _up = of_next_release(&root);
    root.until("it speaks the next release", |status| status.json["release"] == RELEASES[1]);
    let before = root.healthy().pids();
    let why = ["nothing was stopped", "speaks 0.2 and admits no 0.1", "upgrade this program to 0.2"];
    let plan = root.run(&["upgrade", "--plan"]).ends(2);
    assert!(plan.out.contains("obol-agent@node-1 0.2.0 -> 0.1.0"), "{plan:?}");
    plan.refused(&why);
    let restarted = root.note("restarted");
    let restart = format!("touch {}", restarted.display());
    root.run(&["upgrade", "--restart", &restart]).refused(&why);
    assert!(!restarted.exists(), "a restart was begun");
    assert_eq!(root.healthy().pids(), before);
    // What is stopped all the same cannot come back by the old program, and that is said. A program may be
    // linked with another release.
    let said = root.run(&["stop", "app-1"]).ends(0);
    assert!(!said.err.contains("cannot be started again"), "{said:?}");
    let said = root.run(&["stop", "node-1"]).ends(0);
    let why = "node-1 cannot be started again by this program: cluster default speaks 0.2 and admits no 0.1";
    assert!(said.err.contains(why), "{said:?}");
    let words = ["upgrade this program to 0.2", "the cluster does not admit"];
    refused(&root, RELEASES[0], &words);
    // This process is of this release, too.
    let site = Site::open(root.path(), Name::new("default").expect("a name")).expect("the cluster runs");
    let own = Embedded::start(Arc::new(site), Name::new("own-9").expect("a name")).expect("it starts");
    let said = || own.refusal().map(ToString::to_string);
    let said = until_or("it is refused", said, || format!("{:?}", own.lost()));
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
}

#[test]
fn files_by_which_a_new_daemon_would_not_start_are_found_before_anything_is_stopped() {
    let (root, _up) = Root::with_cluster(&["--hosts", "3"]);
    let before = root.healthy().pids();
    let restarted = root.note("restarted");
    let restart = format!("touch {}", restarted.display());
    let run = |more: &[&str]| root.run(&[&["upgrade", "--all", "--cluster", "default.2"], more].concat());
    // By what `obol host prepare` notes after a reboot, and by files that lack a part.
    let votes = ["nothing was stopped", "coord-2 would not start again"];
    let lost: fn(&str) -> String = |text| text.replacen("[network]\n", "[network]\nmemory_lost = [2]\n", 1);
    let half: fn(&str) -> String = |text| text[..text.len() / 2].to_owned() + "\n[";
    for (file, change, why) in [
        ("deployment.toml", lost, &votes[..]),
        ("deployment.toml", half, &["deployment.toml"]),
        ("profile.toml", half, &["profile.toml"]),
    ] {
        let path = root.path().join("default.2").join(file);
        let whole = fs::read_to_string(&path).expect("it is there");
        let changed = change(&whole);
        assert_ne!(changed, whole, "{file}");
        fs::write(&path, changed).expect("written");
        run(&["--plan"]).refused(why);
        run(&["--restart", &restart]).refused(why);
        assert!(!restarted.exists(), "a restart was begun: {file}");
        fs::write(&path, whole).expect("written");
        run(&["--plan"]).ends(0);
    }
    assert_eq!(root.healthy().pids(), before);
}

#[test]
fn keys_by_which_a_new_daemon_could_not_connect_are_found_before_anything_is_stopped() {
    let (root, _up) = Root::with_cluster(&["--hosts", "2"]);
    let before = root.healthy().pids();
    let [key, away] = ["default.2/host.key", "default.2/away"].map(|name| root.path().join(name));
    fs::rename(&key, &away).expect("it is there");
    let restarted = root.note("restarted");
    let restart = format!("touch {}", restarted.display());
    let place = ["upgrade", "--all", "--cluster", "default.2"];
    let run = |more: &[&str]| root.run(&[&place, more].concat());
    let why = ["nothing was stopped", "by the keys in", "host.key"];
    run(&["--plan"]).refused(&why);
    run(&["--restart", &restart]).refused(&why);
    assert!(!restarted.exists(), "a restart was begun");
    fs::rename(&away, &key).expect("it is there");
    run(&["--plan"]).ends(0);
    assert_eq!(root.healthy().pids(), before);
}

#[test]
fn one_upgrade_of_a_host_runs_at_a_time() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let [begun, gate] = ["begun", "gate"].map(|name| root.note(name));
    fs::write(&gate, "").expect("written");
    let (begun_at, gate_at) = (begun.display(), gate.display());
    let wait = format!("touch {begun_at}; while [ -e {gate_at} ]; do sleep 0.02; done; false");
    let mut command = root.command(&["upgrade", "--all", "--restart", &wait]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut first = Daemon(command.spawn().expect("it starts"));
    until_or("it restarts one", || begun.exists().then_some(()), String::new);
    root.run(&["upgrade", "--all", "--restart", "true"]).refused(&["another `obol upgrade`"]);
    root.run(&["upgrade", "--all", "--plan"]).ends(0);
    fs::remove_file(&gate).expect("removed");
    assert_eq!(first.0.wait().expect("a child").code(), Some(1));
    root.run(&["upgrade", "--all", "--restart", "false"]).ends(1);
}

#[test]
fn the_benchmark_of_upgrades_measures_users_of_both_ways_and_no_answer_is_wrong() {
    let root = Root::alone(Alone::Measures);
    let ran = root.run(&["bench", "upgrade", "--count", "1", "--for", "10s", "--json"]);
    // Which of the two took longer, a busy machine may decide.
    assert!(matches!(ran.code, Some(0 | 1)), "{ran:?}");
    let said = ran.json();
    let figure = |name: &str| {
        let all = said["figures"].as_array().expect("an array");
        let found = all.iter().find(|figure| figure["figure"].as_str().is_some_and(|it| it.contains(name)));
        found.unwrap_or_else(|| panic!("no figure {name} in {said}")).clone()
    };
    for wrong in ["wrong answers, upgrade", "wrong answers, restart"] {
        assert_eq!(
            (&figure(wrong)["measured"], &figure(wrong)["met"]),
            (&0.0.into(), &true.into()),
            "{said}"
        );
    }
    // A restart of all is noticed by all.
    for outage in ["wait of a client", "core of its own", "on a restarted agent"] {
        assert!(figure(outage)["floor"].as_f64() > Some(0.0), "{outage}: {said}");
    }
    // An agent's restart is noticed by its programs.
    assert!(figure("on a restarted agent")["measured"].as_f64() > Some(0.0), "{said}");
    root.is_gone();
}

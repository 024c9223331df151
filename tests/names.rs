//! A name of the cluster belongs to one live process at a time, and commands never choose between
//! two.

use crate::support::{Ran, Root, signal, until, until_or};
use std::process::{Child, Command, Stdio};

/// A process that the test ends.
struct Ending(Child);

impl Ending {
    fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("it starts"))
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.kill().expect("it is a child");
        self.0.wait().expect("it is a child");
    }
}

/// The first of them to join: none is a member yet when the others look.
#[test]
fn of_several_runs_of_one_name_at_once_one_gets_it() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    root.healthy();
    let start = || {
        let mut command = root.command(&["run", "--name", "guest", "--node", "node-1"]);
        command.args(["--", "sleep", "1000"]);
        command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    let mut runs: Vec<Child> = (0..4).map(|_| start()).collect();
    let left = |runs: &mut Vec<Child>| {
        runs.iter_mut().filter_map(|run| run.try_wait().expect("a child").is_none().then_some(())).count()
    };
    until("the others are refused", || left(&mut runs) == 1);
    root.until("one is a member", |status| status.is_active("guest"));
    signal("TERM", &[root.status().pid("guest")]);
    for run in runs {
        let ended = run.wait_with_output().expect("a child");
        let said = String::from_utf8_lossy(&ended.stderr);
        let refused = ["another `obol run` has the name guest", "guest runs already"];
        assert!(said.contains("a member") || refused.iter().any(|why| said.contains(why)), "{said}");
    }
}

#[test]
fn a_name_that_a_live_process_has_is_refused_whoever_asks_for_it() {
    let (root, _up) = Root::with_cluster(&["--apps", "2"]);
    let command = |name: &str, words: &[&str]| {
        let mut command = root.command(&["run", "--name", name, "--node", "node-1"]);
        command.arg("--").args(words);
        command
    };
    let run = |name: &str| Ending::start(&mut command(name, &["sleep", "1000"]));
    let lives = |name: &'static str| root.until("it is a member", |s| s.is_active(name));
    // Names of daemons are refused, whether one has it now or not.
    for (name, whose) in [("node-2", "an agent"), ("coord-4", "a coordinator"), ("leader", "leader")] {
        Ran::of(&mut command(name, &["true"])).refused(&[name, whose, "choose another"]);
    }
    root.run(&["app", "--name", "node-2", "--node", "node-1"]).refused(&["node-2 belongs to an agent"]);
    assert!(!root.cluster().join("ended-node-2").exists(), "node-2 has not ended");
    root.run(&["kill", "app-2"]).ends(0);
    root.until("it is gone", |s| !s.is_active("app-2"));
    let app = run("app-2");
    lives("app-2");
    root.run(&["start", "app-2"]).refused(&["app-2 runs already (pid "]);
    Ran::of(&mut command("app-2", &["true"])).refused(&["app-2 runs already (pid ", "choose another --name"]);
    root.run(&["kill", "app-2"]).ends(0);
    drop(app);
    root.run(&["start", "app-2"]).ends(0);
    lives("app-2");
}

#[test]
fn a_name_that_two_live_processes_have_is_told_with_both_and_none_is_chosen() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let twin = || Ending::start(&mut root.command(&["app", "--name", "twin", "--node", "node-1"]));
    let twins = [twin(), twin()];
    let named = || root.run(&["status"]).out.lines().filter(|line| line.contains("twin")).count();
    until("both are there", || named() >= 2);
    let pids = twins.each_ref().map(|twin| format!("pid {}", twin.0.id()));
    for command in ["kill", "stop"] {
        root.run(&[command, "twin"]).refused(&["several live processes are called twin", &pids[0], &pids[1]]);
    }
    let [first, second] = twins;
    drop(first);
    root.run(&["kill", "twin"]).ends(0);
    drop(second);
}

#[test]
fn the_names_of_members_that_have_gone_are_kept() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    Ran::of(root.command(&["run", "--name", "guest", "--node", "node-1"]).args(["--", "sleep", "1"])).ends(0);
    let status = root.until("it has gone", |status| status.incarnation("guest") == 0);
    assert!(status.processes().contains_key("guest"), "its row is kept: {status:?}");
    let names = || std::fs::read_to_string(root.cluster().join("names")).unwrap_or_default();
    until_or(
        "its name is kept",
        || names().lines().any(|line| line.ends_with(" guest")).then_some(()),
        names,
    );
}

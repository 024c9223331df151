//! A name of the cluster belongs to one live process at a time, and commands never choose between
//! two.

use crate::support::{Ran, Root, freeze, signal, until, until_or};
use obol_agent::{Attached, Embedded};
use obol_fabric::host::Attachment;
use obol_fabric::{Name, Nanos};
use obol_membership::Kind;
use obol_node::Site;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

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
        assert!(said.contains("a member") || said.contains("guest runs already (pid "), "{said}");
    }
}

/// Two processes of one name, started at once on hosts 2 and 3. The one that goes on, after the other was
/// refused for it.
fn the_one_of_two(root: &Root, called: &str, words: impl Fn(u8) -> Vec<String>) -> Child {
    let start = |host: u8| {
        let mut command = root.command(&["--cluster", &format!("default.{host}")]);
        command.args(words(host)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().expect("it starts")
    };
    let [mut first, mut second] = [2, 3].map(start);
    let has_ended = |run: &mut Child| run.try_wait().expect("a child").is_some();
    until("one is refused", || has_ended(&mut first) || has_ended(&mut second));
    let (mut holder, host, refused) =
        if has_ended(&mut first) { (second, 3, first) } else { (first, 2, second) };
    let refused = refused.wait_with_output().expect("a child");
    let said = String::from_utf8_lossy(&refused.stderr);
    let why = format!("{called} runs already (pid {} of host {host})", holder.id());
    assert!(refused.status.code() == Some(2) && said.contains(&why), "{why:?} is not in:\n{said}");
    root.until("the other one is the member", |s| {
        s.incarnation(called) != 0 && s.pid(called) == i64::from(holder.id())
    });
    assert!(!has_ended(&mut holder));
    holder
}

/// Claims reach as far as a host, so neither finds the other before it asks to join: the leader admits one.
#[test]
fn of_two_processes_of_one_name_at_once_on_two_hosts_one_gets_it() {
    let (root, _up) = Root::with_cluster(&["--hosts", "3"]);
    root.healthy();
    let texts = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>();
    let run = |host: u8| {
        texts(&["run", "--name", "guest", "--node", &format!("node-{host}"), "--", "sleep", "1000"])
    };
    let ends = |mut holder: Child, called: &'static str| {
        signal("TERM", &[holder.id().into()]);
        holder.wait().expect("a child");
        root.until("it has left", |status| status.incarnation(called) == 0);
    };
    for _ in 0..3 {
        ends(the_one_of_two(&root, "guest", run), "guest");
    }
    let servers = [
        ("kv-1", &["kv", "server", "--name", "kv-1"][..]),
        ("smr-1", &["smr", "server", "--name", "smr-1", "--voters", "1"]),
    ];
    for (called, words) in servers {
        ends(the_one_of_two(&root, called, |_| texts(words)), called);
    }
    // Libraries are told by the leader as well.
    let mut holder = the_one_of_two(&root, "guest", run);
    let site = Site::open(root.path(), name("default")).expect("the cluster runs");
    let twin = Attached::open(&site, name("node-1"), name("guest")).expect("no process of this host has it");
    let refused = twin.join(Nanos::from_secs(1)).expect_err("it is taken").to_string();
    assert!(refused.contains("another member has its name"), "{refused}");
    drop(twin);
    // A program that moves to another host joins when the death of its predecessor is known.
    holder.kill().expect("a child");
    holder.wait().expect("a child");
    ends(the_one_of_two(&root, "guest", run), "guest");
}

/// Between two lives of the program, another one of its name is admitted on another host.
#[test]
fn a_program_is_not_started_again_beside_its_successor_on_another_host() {
    // Long enough for the successor to join.
    const BACKOFF: [&str; 4] = ["--restart-backoff", "30s", "--restart-backoff-max", "30s"];
    let (root, _up) = Root::with_cluster(&["--hosts", "3"]);
    root.healthy();
    let (lives, end) = (root.note("lives"), root.note("end"));
    let script =
        format!("echo lives >>{}; while [ ! -e {} ]; do sleep 0.05; done", lives.display(), end.display());
    let run = |host: u8, options: &[&str], words: &[&str]| {
        let (cluster, node) = (format!("default.{host}"), format!("node-{host}"));
        let mut command = root.command(&["run", "--cluster", &cluster, "--name", "guest", "--node", &node]);
        command.args(options).arg("--").args(words);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    let first = run(2, &[&["--restart", "always"], &BACKOFF[..]].concat(), &["sh", "-c", &script]);
    root.until("it is a member", |status| status.incarnation("guest") != 0);
    std::fs::write(&end, "").expect("written");
    root.until("it has ended", |status| status.incarnation("guest") == 0);
    let mut second = run(3, &[], &["sleep", "1000"]);
    root.until("its successor is a member", |status| {
        status.incarnation("guest") != 0 && status.pid("guest") == i64::from(second.id())
    });
    let refused = first.wait_with_output().expect("a child");
    let said = String::from_utf8_lossy(&refused.stderr);
    let why = format!("guest runs already (pid {} of host 3); choose another --name", second.id());
    assert!(refused.status.code() == Some(2) && said.contains(&why), "{why:?} is not in:\n{said}");
    assert_eq!(std::fs::read_to_string(&lives).expect("text").lines().count(), 1, "{said}");
    signal("TERM", &[second.id().into()]);
    second.wait().expect("a child");
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
fn a_second_daemon_of_a_taken_name_is_refused_and_changes_nothing() {
    let (root, _up) = Root::with_cluster(&["--apps", "2", "--caches", "1"]);
    let server = |words: &[&str]| Ending::start(&mut root.command(words));
    let (kv, smr) =
        (["kv", "server", "--name", "kv-1"], ["smr", "server", "--name", "smr-1", "--voters", "1"]);
    let _servers = [server(&kv), server(&smr)];
    root.until("they are members", |s| s.is_active("kv-1") && s.is_active("smr-1"));
    let before = root.healthy().pids();
    for (who, words) in [
        ("node-1", &["agent", "--name", "node-1"][..]),
        ("cache-1", &["lease-cache", "--name", "cache-1"]),
        ("coord-1", &["coordinator", "run", "--number", "1"]),
        ("app-1", &["app", "--node", "node-1", "--name", "app-1"]),
        ("kv-1", &kv),
        ("smr-1", &smr),
    ] {
        let holder = format!("{who} runs already (pid {})", before[who]);
        root.run(words).refused(&[&holder]);
    }
    let mut run = root.command(&["run", "--name", "app-1", "--node", "node-2"]);
    Ran::of(run.args(["--", "true"])).refused(&[&format!("app-1 runs already (pid {})", before["app-1"])]);
    assert_eq!(root.healthy().pids(), before);
    // Clients of one operation have no name that is worth a refusal.
    let site = Arc::new(Site::open(root.path(), name("default")).expect("the cluster runs"));
    let _busy = Embedded::start(Arc::clone(&site), name("kvc-client")).expect("it starts");
    root.run(&["kv", "put", "1", "one"]).ends(0);
    let another = |text: &str| root.run(&["kv", "get", "1", "--name", text]);
    another("kvc-client").refused(&["kvc-client runs already (pid "]);
    assert_eq!(another("other").ends(0).out.trim(), "one");
}

#[test]
fn libraries_claim_names_as_daemons_do() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let pid = root.healthy().pid("app-1");
    let site = Arc::new(Site::open(root.path(), name("default")).expect("the cluster runs"));
    let attach = |called| Attached::open(&site, name("node-1"), name(called));
    let embed = |called| Embedded::start(Arc::clone(&site), name(called)).map(drop);
    let holder = format!("app-1 runs already (pid {pid})");
    let refused = attach("app-1").map(drop).expect_err("app-1 has it").to_string();
    assert!(refused.starts_with(&holder), "{refused}");
    let refused = embed("app-1").expect_err("app-1 has it").to_string();
    assert!(refused.starts_with(&holder), "{refused}");
    let guest = attach("guest").expect("free");
    let own = format!("guest runs already (pid {})", std::process::id());
    assert!(attach("guest").map(drop).expect_err("taken").to_string().starts_with(&own));
    assert!(embed("guest").expect_err("taken").to_string().starts_with(&own));
    let mut run = root.command(&["run", "--name", "guest", "--node", "node-1"]);
    Ran::of(run.args(["--", "true"])).refused(&[&own, "choose another --name"]);
    drop(guest);
    attach("guest").expect("free again").join(Nanos::from_secs(20)).expect("admitted");
}

#[test]
fn a_killed_holder_frees_its_name_at_once_and_a_frozen_one_keeps_it() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let words = ["app", "--name", "guest", "--node", "node-1"];
    let mut guest = root.command(&words).stdin(Stdio::null()).spawn().expect("it starts");
    let first = root.until("it is a member", |status| status.is_active("guest")).incarnation("guest");
    freeze(guest.id().into());
    root.run(&words).refused(&[&format!("guest runs already (pid {})", guest.id())]);
    guest.kill().expect("a child");
    // Not waited for: the kernel may not have taken it away yet.
    let _next = Ending::start(&mut root.command(&words));
    root.until("its successor is a member", |s| s.is_active("guest") && s.incarnation("guest") > first);
    guest.wait().expect("a child");
}

/// As programs that are linked with an earlier release do.
#[test]
fn of_two_live_processes_without_a_claim_commands_choose_none() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let site = Site::open(root.path(), name("default")).expect("the cluster runs");
    let agent = (Kind::Agent as u32, name("node-1"));
    let _twin =
        Attachment::open_named(&site.cluster, agent, name("twin"), Nanos::from_millis(1)).expect("a seat");
    let other = Ending::start(&mut root.command(&["app", "--name", "twin", "--node", "node-1"]));
    let named = || root.run(&["status"]).out.lines().filter(|line| line.contains("twin")).count();
    until("both are there", || named() >= 2);
    let pids = [std::process::id(), other.0.id()].map(|pid| format!("pid {pid}"));
    for command in ["kill", "stop"] {
        root.run(&[command, "twin"]).refused(&["several live processes are called twin", &pids[0], &pids[1]]);
    }
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

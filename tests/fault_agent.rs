//! What a drill must never do: a fault agent that is armed by a stranger, fires on a wrong cue,
//! hits another process, or leaves something behind. In every test a bystander must stay untouched.

use crate::support::journals::passes;
use crate::support::share::Alone;
use crate::support::{HANG, Root, Status, Up, freeze, has_ended, obol, signal, until, until_or};
use obol_chaos::drillfile::Allowed;
use obol_chaos::drillfile::Keep;
use obol_chaos::drills::agent::channel::{Arm, Lines, Order, OtherVictim, Reply, socket_name};
use obol_chaos::drills::agent::cue::{REGION_KIND, Token};
use obol_chaos::faults::order::{Injection, Links, TargetProcess};
use obol_fabric::Endpoint;
use obol_fabric::host::{Cluster, Impairment, Observed, Process};
use obol_fabric::{Fabric as _, Group, Name, Nanos, Owner, Wait};
use obol_membership::metrics::Counter;
use serde_json::Value;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

const SECOND: u64 = 1_000_000_000;

/// A process that no drill has to do with.
struct Bystander(Child);

impl Bystander {
    fn new() -> Self {
        Self(Command::new("sleep").arg("3600").stdin(Stdio::null()).spawn().expect("sleep runs"))
    }

    fn pid(&self) -> i64 {
        i64::from(self.0.id())
    }
}

fn state(pid: i64) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let state = state(self.pid());
        self.0.kill().expect("it lives");
        self.0.wait().expect("a child");
        if !std::thread::panicking() {
            assert!(matches!(state, Some('S' | 'R')), "the bystander was affected: {state:?}");
        }
    }
}

/// A cluster, and a bystander that no drill of it may touch.
fn begun(arguments: &[&str]) -> (Root, Up, Bystander) {
    begun_in(Root::new(), arguments)
}

fn begun_in(root: Root, arguments: &[&str]) -> (Root, Up, Bystander) {
    let up = root.up(arguments);
    (root, up, Bystander::new())
}

/// A fault agent whose runner is this test.
struct FaultAgent {
    child: Child,
    stream: Option<UnixStream>,
    lines: Lines<UnixStream>,
}

impl FaultAgent {
    fn start(root: &Root) -> Self {
        let child = root.command(&["fault-agent"]).stdin(Stdio::null()).spawn().expect("it starts");
        let path = root.cluster().join(socket_name(child.id()));
        // The socket's file is there before anybody listens.
        let stream = until_or("the fault agent listens", || UnixStream::connect(&path).ok(), String::new);
        stream.set_read_timeout(Some(HANG)).expect("a socket");
        let lines = Lines::new(stream.try_clone().expect("a socket"));
        Self { child, stream: Some(stream), lines }
    }

    fn pid(&self) -> i64 {
        i64::from(self.child.id())
    }

    fn order(&mut self, order: &Order) {
        let line = serde_json::to_string(order).expect("JSON") + "\n";
        self.stream.as_mut().expect("connected").write_all(line.as_bytes()).expect("it listens");
    }

    fn reply(&mut self) -> Reply {
        self.lines.read().expect("it answers").expect("it is there")
    }

    fn arm(&mut self, arm: Arm) -> Reply {
        self.order(&Order::Arm(Box::new(arm)));
        self.reply()
    }

    #[track_caller]
    fn refuses(&mut self, arm: Arm, words: &str) {
        match self.arm(arm) {
            Reply::Refused { reason } => assert!(reason.contains(words), "{words:?} is not in {reason:?}"),
            other => panic!("{other:?}"),
        }
    }

    fn fired(&mut self) -> Vec<String> {
        match self.reply() {
            Reply::Fired { stamps } => {
                assert!(stamps.iter().all(|stamp| stamp.error.is_none()), "{stamps:?}");
                stamps.into_iter().map(|stamp| stamp.name).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    /// Kills it, and before it the process that would undo what it leaves.
    fn is_killed_with_its_warden(&mut self) {
        let children = format!("/proc/{0}/task/{0}/children", self.pid());
        let children = std::fs::read_to_string(children).expect("it lives");
        let wardens: Vec<i64> = children.split_whitespace().map(|pid| pid.parse().expect("a pid")).collect();
        assert_eq!(wardens.len(), 1, "it has one child: {children}");
        signal("KILL", &wardens);
        signal("KILL", &[self.pid()]);
        self.child.wait().expect("a child");
    }

    /// Ends the conversation, and waits until it has ended.
    fn leave(mut self) {
        let stream = self.stream.take().expect("connected");
        stream.shutdown(std::net::Shutdown::Both).expect("a socket");
        until("the fault agent ends", || self.child.try_wait().expect("a child").is_some());
    }
}

impl Drop for FaultAgent {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process of the cluster that can send cues.
struct Sender {
    endpoint: Endpoint,
    cluster: Cluster,
}

impl Sender {
    fn new(root: &Root) -> Self {
        let cluster = Cluster::open(root.path(), Name::new("default").expect("a name")).expect("it runs");
        let owner =
            Owner { kind: REGION_KIND, name: Name::new("test").expect("a name"), region: None, groups: 0 };
        let endpoint = Endpoint::open(&cluster, owner, Wait::Block).expect("a region");
        Self { endpoint, cluster }
    }

    fn send(&mut self, datagram: &[u8]) {
        self.endpoint.multicast(Group::Drills, datagram);
        self.endpoint.flush();
    }

    fn received(&self, fault_agent: &FaultAgent) -> u64 {
        let mut regions = self.cluster.regions().into_iter();
        let region = regions
            .find(|info| i64::from(info.process.pid) == fault_agent.pid())
            .expect("it has a region")
            .number;
        let observed = Observed::open(&self.cluster, region).expect("it is there");
        observed.reader().counters(0)[Counter::DatagramsReceived as usize]
    }

    /// Waits until the fault agent can hear cues.
    fn find(&self, fault_agent: &FaultAgent) {
        let listens = || {
            self.cluster
                .regions()
                .iter()
                .any(|info| info.alive && i64::from(info.process.pid) == fault_agent.pid())
        };
        until("the fault agent has a region", listens);
    }

    /// Waits until everything that was sent has been handled: a datagram is counted before it is
    /// handled, and the next one after that.
    fn settle(&mut self, fault_agent: &FaultAgent) {
        let before = self.received(fault_agent);
        self.send(b"one");
        self.send(b"two");
        until("the fault agent has heard everything", || self.received(fault_agent) >= before + 2);
    }
}

fn whom(status: &Status, name: &str) -> TargetProcess {
    let pid = status.pid(name) as u32;
    let Process { pid, started } = Process::of(pid).expect("it lives");
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).expect("its program");
    TargetProcess { name: name.to_owned(), pid, started, program: Some(program) }
}

fn of(fault: &str, whom: TargetProcess, lasts: Option<u64>) -> Injection {
    Injection { whom: Some(whom), lasts, ..Injection::new(fault) }
}

fn kill_of(whom: TargetProcess) -> Injection {
    of("kill", whom, None)
}

fn arm(token: Token, injections: Vec<Injection>) -> Arm {
    Arm {
        token: token.to_hex(),
        expires_in: 60 * SECOND,
        dead_man: 60 * SECOND,
        environment: "local".to_owned(),
        max_targets: 3,
        keep_acceptors: Keep::Majority,
        keep_lease_caches: 0,
        deny_hosts: Vec::new(),
        allowed: Allowed::default(),
        injections,
        elsewhere: Vec::new(),
        restart: Vec::new(),
        locks: false,
    }
}

fn token() -> Token {
    Token::draw().expect("random bytes")
}

fn undo_records(root: &Root) -> usize {
    let entries = std::fs::read_dir(root.cluster()).expect("the cluster").filter_map(Result::ok);
    entries.filter(|e| e.file_name().to_string_lossy().starts_with("drill-undo-")).count()
}

#[test]
fn a_helper_fires_once_on_its_own_cue_and_on_no_other() {
    let (root, _up, _bystander) = begun(&[]);
    let before = root.healthy();
    let mut fault_agent = FaultAgent::start(&root);
    let mut sender = Sender::new(&root);
    sender.find(&fault_agent);
    let early = token();
    sender.send(&early.cue());
    sender.settle(&fault_agent);
    let own = token();
    let kill = |name: &str| kill_of(whom(&before, name));
    assert_eq!(fault_agent.arm(arm(own, vec![kill("app-2")])), Reply::Armed);
    assert_eq!(undo_records(&root), 1, "it is there before anything is injected");
    let mut forged = own.cue();
    forged[20] ^= 1;
    for wrong in [&early.cue()[..], &forged, &own.cue()[..39], b"", b"OBOLCUE1"] {
        sender.send(wrong);
    }
    sender.settle(&fault_agent);
    assert_eq!(root.status().pid("app-2"), before.pid("app-2"));
    assert!(!has_ended(before.pid("app-2")));
    fault_agent.refuses(arm(token(), vec![kill("app-1")]), "armed already");
    sender.send(&own.cue());
    assert_eq!(fault_agent.fired(), ["app-2"]);
    until("app-2 has ended", || has_ended(before.pid("app-2")));
    fault_agent.order(&Order::Undone);
    // A replay, while it is armed again for another target.
    assert_eq!(fault_agent.arm(arm(token(), vec![kill("app-1")])), Reply::Armed);
    sender.send(&own.cue());
    sender.settle(&fault_agent);
    assert!(!has_ended(before.pid("app-1")));
    // A cue that comes after its deadline.
    fault_agent.order(&Order::Disarm);
    assert_eq!(fault_agent.reply(), Reply::Disarmed);
    let late = token();
    assert_eq!(fault_agent.arm(Arm { expires_in: 1, ..arm(late, vec![kill("app-1")]) }), Reply::Armed);
    assert_eq!(fault_agent.reply(), Reply::Expired);
    sender.send(&late.cue());
    sender.settle(&fault_agent);
    assert_eq!(undo_records(&root), 0, "nothing was injected since");
    fault_agent.leave();
    for (name, pid) in before.pids() {
        assert_eq!(has_ended(pid), name == "app-2", "{name}");
    }
}

#[test]
fn a_helper_refuses_whoever_is_not_meant_and_whatever_a_guard_forbids() {
    let (root, _up, bystander) = begun(&[]);
    let before = root.healthy();
    let mut fault_agent = FaultAgent::start(&root);
    let kill = |whom: TargetProcess| vec![kill_of(whom)];
    let app = whom(&before, "app-1");
    let successor = TargetProcess { started: app.started + 1, ..app.clone() };
    fault_agent.refuses(arm(token(), kill(successor)), "is not a process of this cluster");
    let other = TargetProcess { program: Some("/bin/true".into()), ..app.clone() };
    fault_agent.refuses(arm(token(), kill(other)), "not /bin/true");
    let process = Process::of(bystander.pid() as u32).expect("it lives");
    let foreign = TargetProcess { pid: process.pid, started: process.started, ..app.clone() };
    fault_agent.refuses(arm(token(), kill(foreign)), "is not a process of this cluster");
    let renamed = TargetProcess { name: "app-2".to_owned(), ..app.clone() };
    fault_agent.refuses(arm(token(), kill(renamed)), "is not a process of this cluster");
    let two = ["coord-1", "coord-2"].map(|name| kill_of(whom(&before, name)));
    fault_agent.refuses(arm(token(), two.to_vec()), "guard keep_acceptors");
    fault_agent.refuses(Arm { max_targets: 1, ..arm(token(), two.to_vec()) }, "guard max_targets");
    // A victim of another host counts as well.
    let elsewhere = vec![OtherVictim { name: "app-9".to_owned(), region: 70, seat: 1 }];
    let one = Arm { max_targets: 1, elsewhere, ..arm(token(), kill(app.clone())) };
    fault_agent.refuses(one, "guard max_targets");
    fault_agent.refuses(
        Arm { environment: "prod".to_owned(), ..arm(token(), kill(app.clone())) },
        "guard environment",
    );
    fault_agent.refuses(
        Arm { deny_hosts: vec!["*".to_owned()], ..arm(token(), kill(app.clone())) },
        "guard deny_hosts",
    );
    let jump = Injection { lasts: Some(SECOND), ..Injection::new("step-clock") };
    let jump = vec![jump.with("by", &(3600 * SECOND))];
    fault_agent.refuses(arm(token(), jump), "allow_clock_step");
    fault_agent.refuses(Arm { token: "00".to_owned(), ..arm(token(), kill(app)) }, "the token");
    fault_agent.refuses(arm(token(), Vec::new()), "0 faults");
    assert_eq!(undo_records(&root), 0);
    fault_agent.leave();
    assert_eq!(root.healthy().pids(), before.pids());
}

#[test]
fn a_helper_is_armed_by_its_parent_alone() {
    let (root, _up, _bystander) = begun(&[]);
    // Its parent is a shell, so this test is a stranger.
    let program = obol().get_program().to_str().expect("text").to_owned();
    let script = format!("{program} fault-agent --root {} & echo $!; wait", root.path().display());
    let mut shell = Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("sh runs");
    let mut first: Lines<_> = Lines::new(shell.stdout.take().expect("piped"));
    let pid: u32 = first.read().expect("a line").expect("its pid");
    let path = root.cluster().join(socket_name(pid));
    let stream = until_or("the fault agent listens", || UnixStream::connect(&path).ok(), String::new);
    stream.set_read_timeout(Some(HANG)).expect("a socket");
    // It may hang up before the line is written.
    let _ = (&stream).write_all(b"{\"do\":\"alive\"}\n");
    assert!(!matches!(Lines::new(stream).read::<Reply>(), Ok(Some(_))), "a stranger is not answered");
    signal("KILL", &[i64::from(pid)]);
    shell.wait().expect("it ends");
}

#[test]
fn what_is_frozen_wakes_when_the_runner_is_gone_or_silent_or_the_helper_was_killed() {
    let (root, _up, _bystander) = begun(&[]);
    let frozen = |pid: i64| state(pid) == Some('T');
    let begin = |fault_agent: &mut FaultAgent, sender: &mut Sender, dead_man: u64| {
        let before = root.healthy();
        let injection = of("freeze", whom(&before, "app-2"), Some(3600 * SECOND));
        let token = token();
        assert_eq!(fault_agent.arm(Arm { dead_man, ..arm(token, vec![injection]) }), Reply::Armed);
        sender.send(&token.cue());
        assert_eq!(fault_agent.fired(), ["app-2"]);
        before.pid("app-2")
    };
    let mut sender = Sender::new(&root);

    let mut fault_agent = FaultAgent::start(&root);
    let pid = begin(&mut fault_agent, &mut sender, 60 * SECOND);
    until("it is frozen", || frozen(pid));
    fault_agent.leave();
    assert!(!frozen(pid) && undo_records(&root) == 0, "the runner is gone");

    let mut fault_agent = FaultAgent::start(&root);
    let pid = begin(&mut fault_agent, &mut sender, SECOND / 5);
    until("the fault agent ends", || fault_agent.child.try_wait().expect("a child").is_some());
    assert!(!frozen(pid) && undo_records(&root) == 0, "the runner is silent");

    let mut fault_agent = FaultAgent::start(&root);
    let pid = begin(&mut fault_agent, &mut sender, 60 * SECOND);
    until("it is frozen", || frozen(pid));
    fault_agent.is_killed_with_its_warden();
    assert!(frozen(pid) && undo_records(&root) == 1, "nothing was undone");
    // A freeze that the drill did not inject is not undone.
    let other = root.status().pid("app-3");
    freeze(other);
    let recovered = root.run(&["drill", "recover", "--json"]).ends(0).json();
    assert!(
        recovered["done"][0].as_str().is_some_and(|done| done.starts_with("app-2 was continued")),
        "{recovered}"
    );
    assert!(!frozen(pid) && frozen(other) && undo_records(&root) == 0);
    assert!(root.run(&["drill", "recover"]).ends(0).out.contains("nothing is left to undo"), "twice");
    signal("CONT", &[other]);
    root.healthy();
}

#[test]
fn links_are_whole_again_when_the_runner_is_gone_or_the_helper_was_killed() {
    let (root, _up, _bystander) = begun(&[]);
    let mut sender = Sender::new(&root);
    let begin = |fault_agent: &mut FaultAgent, sender: &mut Sender, name: &str| {
        let before = root.healthy();
        let links = Links { loss_percent: 1, delay: 1_000, ..Links::default() };
        let injection = of("impair", whom(&before, name), Some(3600 * SECOND)).with("links", &links);
        let token = token();
        assert_eq!(fault_agent.arm(arm(token, vec![injection])), Reply::Armed);
        assert_eq!(undo_records(&root), 1, "it is there before anything is injected");
        sender.send(&token.cue());
        assert_eq!(fault_agent.fired(), [name]);
    };
    let cluster = sender.cluster.clone();
    let impaired = || {
        let all = cluster.regions().into_iter();
        let slow = Impairment { loss_percent: 1, delay: Nanos::from_micros(1), ..Impairment::default() };
        all.filter(|r| cluster.impairment(r.number) == slow).map(|r| r.name.to_string()).collect::<Vec<_>>()
    };
    let mut fault_agent = FaultAgent::start(&root);
    begin(&mut fault_agent, &mut sender, "node-2");
    assert_eq!(impaired(), ["node-2"]);
    fault_agent.leave();
    assert!(impaired().is_empty() && undo_records(&root) == 0, "the runner is gone");

    let mut fault_agent = FaultAgent::start(&root);
    let app = of("impair", whom(&root.healthy(), "app-1"), Some(SECOND)).with("links", &Links::default());
    fault_agent.refuses(arm(token(), vec![app]), "has no links of its own");
    begin(&mut fault_agent, &mut sender, "coord-1");
    fault_agent.is_killed_with_its_warden();
    assert!(impaired() == ["coord-1"] && undo_records(&root) == 1, "nothing was undone");
    let recovered = root.run(&["drill", "recover", "--json"]).ends(0).json();
    assert_eq!(recovered["done"][0], "the links of coord-1 were restored");
    assert!(impaired().is_empty() && undo_records(&root) == 0);
    root.healthy();
}

#[test]
fn a_drill_from_a_file_is_run_and_reported() {
    let (root, _up, _bystander) = begun_in(Root::alone(Alone::Measures), &["--caches", "2"]);
    for (name, injections, victims) in
        [("app", 1, "app-"), ("app+coordinator+cache", 3, "app-"), ("host-loss", 2, "node-")]
    {
        let out = root.path().join(format!("report-{name}"));
        let arguments = [name, "--count", "2", "--out", out.to_str().expect("text")];
        // The report of a run that did not pass.
        let clear = || drop(std::fs::remove_dir_all(&out));
        let journal = passes(&root, &arguments, clear);
        let trials: Vec<&Value> =
            journal["trials"].as_array().expect("trials").iter().filter(|t| t["warmup"] == false).collect();
        assert_eq!(trials.len(), 2, "{journal:#}");
        assert!(trials.iter().any(|trial| trial["failover_ns"].as_u64() > Some(0)), "{journal:#}");
        for trial in trials {
            assert_eq!(trial["stamps"].as_array().map(Vec::len), Some(injections), "{trial}");
            assert!(
                trial["victims"][0]["process"].as_str().is_some_and(|v| v.starts_with(victims)),
                "{trial}"
            );
            assert_eq!(trial["overlap_ns"], 0, "{trial}");
            if let Some(total) = trial["failover_ns"].as_u64() {
                let phases = trial["phases_ns"].as_object().expect("phases").values();
                assert_eq!(phases.map(|p| p.as_u64().expect("a number")).sum::<u64>(), total, "{trial}");
            }
        }
        let read = |file: &str| std::fs::read_to_string(out.join(file)).expect("it was written");
        assert_eq!(serde_json::from_str::<Value>(&read("journal.json")).expect("JSON")["drill"], name);
        assert!(
            serde_json::from_str::<Value>(&read("timeline.json")).expect("JSON")["traceEvents"].is_array()
        );
        assert!(read("metrics.txt").ends_with("# EOF\n"));
        assert!(read("figures.hlog").contains("Tag=cue.skew,"));
        let page = read("postmortem.html");
        assert!(page.contains("<svg") && page.contains("How certain the figures are"));
        for outside in ["src=", "href=", "<script", "url("] {
            assert!(!page.contains(outside), "the page needs another file: {outside}");
        }
        for heading in
            ["## Summary", "## Impact", "## Trigger", "## Time line", "## What went wrong", "## Action items"]
        {
            assert!(read("postmortem.md").contains(heading), "{heading}");
        }
        root.healthy();
        assert_eq!(undo_records(&root), 0);
        std::fs::remove_dir_all(out).expect("removed");
    }
}

#[test]
fn whoever_leaves_counts_as_no_failure() {
    let (root, _up, _bystander) = begun_in(Root::alone(Alone::Measures), &[]);
    let journal = passes(&root, &["rolling-restart", "--count", "2"], || ());
    let count = &journal["judged"][0];
    assert_eq!((&count["metric"], &count["of"]), (&"members.failed".into(), &"at_most".into()));
    assert_eq!((&count["found"], &count["bound"]), (&0.0.into(), &0.0.into()), "{journal:#}");
    assert_eq!(count["holds"], true, "{journal:#}");
    for trial in journal["trials"].as_array().expect("trials") {
        assert_eq!(trial["outcome"], "measured", "{trial}");
        assert!(trial["victims"].as_array().is_some_and(|v| !v.is_empty()), "a victim: {trial}");
    }
    root.healthy();
}

#[test]
fn a_runner_that_is_killed_leaves_nothing_frozen_and_two_drills_never_run_at_once() {
    let (root, _up, _bystander) = begun_in(Root::alone(Alone::Measures), &[]);
    let before = root.healthy();
    let run = || {
        let mut command = root.command(&["drill", "run", "freeze", "--count", "50"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts")
    };
    let frozen = || before.pids().into_values().filter(|pid| state(*pid) == Some('T')).count();
    let mut runner = run();
    until("a node is frozen", || frozen() == 2);
    root.run(&["drill", "run", "app", "--count", "1"]).refused(&["another drill runs"]);
    root.run(&["drill", "recover"]).refused(&["another drill runs"]);
    runner.kill().expect("it lives");
    runner.wait().expect("a child");
    until("the fault agent has undone everything", || frozen() == 0 && undo_records(&root) == 0);
    let after = root.healthy();
    assert_eq!(after.pids(), before.pids(), "no process was restarted");
    // And the next one runs where nothing is left.
    passes(&root, &["app", "--count", "1"], || ());
}

#[test]
fn a_drill_that_may_not_run_touches_nothing() {
    let (root, _up, _bystander) = begun(&[]);
    let before = root.healthy();
    root.run(&["drill", "run", "app+cache"]).refused(&["target cache wants a lease-cache", "--caches"]);
    let own = |old: &str, new: &str| {
        let text = root.run(&["drill", "show", "app+coordinator"]).ends(0).out;
        assert!(text.contains(old), "{old}");
        let path = root.cluster().join("mine.toml");
        std::fs::write(&path, text.replacen(old, new, 1)).expect("written");
        root.run(&["drill", "run", path.to_str().expect("text")])
    };
    own("keep_acceptors = \"majority\"", "keep_acceptors = 3").refused(&["guard keep_acceptors"]);
    own("max_targets = 2", "max_targets = 1").refused(&["guard max_targets"]);
    own("environment = \"local\"", "environment = \"prod\"").refused(&["guard environment"]);
    own("max_targets = 2", "max_targets = 2\nrequire_confirm = true")
        .refused(&["requires confirmation", "--yes"]);
    assert_eq!(root.healthy().pids(), before.pids());
}

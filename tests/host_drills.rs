//! Drills on a cluster of several hosts over IP: started by one `up`, and as deployed.

use crate::hosts::Hosts;
use crate::support::programs::script;
use crate::support::share::Alone;
use crate::support::{Ran, Root, journals, signal, until, until_or};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

fn trials(journal: &Value) -> Vec<&Value> {
    journal["trials"].as_array().expect("trials").iter().collect()
}

/// The faults of all repetitions that were injected: hosts and clock errors.
fn stamps(journal: &Value) -> Vec<(u64, u64)> {
    let all = trials(journal).into_iter().flat_map(|trial| trial["stamps"].as_array().expect("stamps"));
    let injected = all.filter(|stamp| stamp["error"].is_null());
    injected
        .map(|stamp| {
            let number = |key: &str| stamp[key].as_u64().expect("a number");
            (number("host"), number("clock_error_ns"))
        })
        .collect()
}

/// Holds that times of the runner's host are exact, and those of others are not.
fn clocks(journal: &Value) {
    for (host, clock_error) in stamps(journal) {
        assert_eq!(clock_error == 0, host == 1, "{journal:#}");
    }
    for trial in trials(journal) {
        assert!(trial["clock_error_ns"].as_u64() > Some(0), "{trial:#}");
        let hosts: BTreeSet<u64> =
            trial["victims"].as_array().expect("victims").iter().filter_map(|v| v["host"].as_u64()).collect();
        assert_eq!(trial["skew_error_ns"].as_u64() > Some(0), hosts.len() > 1, "{trial:#}");
    }
}

fn undo_records(root: &Root) -> usize {
    let dirs = ["default", "default.2", "default.3"].map(|name| root.path().join(name));
    let files = dirs.iter().flat_map(|dir| fs::read_dir(dir).expect("the host has memory"));
    let names = files.map(|file| file.expect("a file").file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("drill-undo-")).count()
}

/// A drill of a test, as a file.
fn written(root: &Root, text: &str) -> String {
    let at = root.path().join("drill.toml");
    fs::write(&at, text).expect("written");
    at.to_str().expect("text").to_owned()
}

#[test]
fn drills_kill_on_every_host_and_know_the_skew_of_their_cue_within_the_clocks_errors() {
    let root = Root::alone(Alone::Measures);
    let _up = root.up(&["--hosts", "3", "--caches", "3"]);
    for drill in ["app", "leader", "app+coordinator+cache"] {
        let ran = root.run(&["drill", drill, "--count", "2", "--json"]);
        let report = ran.json();
        assert!(matches!(ran.code, Some(0 | 3 | 6)), "{ran:?}");
        assert_eq!((&report["count"], &report["overlap_ns"]), (&2.into(), &0.into()), "{report}");
        root.healthy();
    }
    let all = written(
        &root,
        "[drill]\nschema = 1\nid = \"everywhere\"\ntitle = \"t\"\nenvironment = \"local\"\nrepeat = { count = 2 }\n\
         [targets]\none = { kind = \"app\", name = \"app-1\" }\ntwo = { kind = \"app\", name = \"app-2\" }\n\
         cache = { kind = \"lease-cache\", name = \"cache-3\" }\n\
         [[steady]]\nprobe = \"processes.up\"\n\
         [[step]]\nname = \"kill\"\nmax_cue_skew = \"1s\"\nfault = { kind = \"kill\", target = [\"one\", \"two\", \"cache\"] }\n",
    );
    let by_ssh = root.run(&["drill", "run", &all, "--ssh-config", "/dev/null"]);
    by_ssh.refused(&["--ssh-config", "the only machine"]);
    let plan = root.run(&["drill", "plan", &all]).ends(0).out;
    assert!(plan.contains("app-2 (host 2, pid ") && plan.contains("cache-3 (host 3, pid "), "{plan}");
    let out = root.path().join("report");
    let journal = journals::passes(&root, &[&all, "--out", out.to_str().expect("text")], || {
        let _ = fs::remove_dir_all(&out);
    });
    clocks(&journal);
    let hosts: BTreeSet<u64> = stamps(&journal).into_iter().map(|(host, _)| host).collect();
    assert_eq!(hosts, BTreeSet::from([1, 2, 3]));
    let postmortem = fs::read_to_string(out.join("postmortem.md")).expect("written");
    assert!(
        postmortem.contains("clock error") && postmortem.contains("app-2 is hit, on host 2"),
        "{postmortem}"
    );
    // From any of the hosts.
    let elsewhere = root.run(&["drill", "app", "--count", "1", "--json", "--cluster", "default.2"]);
    assert!(matches!(elsewhere.code, Some(0 | 3 | 6)), "{elsewhere:?}");
    root.healthy();
    assert_eq!(undo_records(&root), 0);
}

/// Whether a process is stopped.
fn is_frozen(pid: &i64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
}

#[test]
fn a_halt_on_any_host_holds_on_all_and_a_host_that_does_not_answer_is_named() {
    let (root, _up) = Root::with_cluster(&["--hosts", "3"]);
    let before = root.healthy().pids();
    let freeze = written(
        &root,
        "[drill]\nschema = 1\nid = \"freeze\"\ntitle = \"t\"\nenvironment = \"local\"\n\
         [guards]\ndead_man = \"1m\"\n\
         [targets]\none = { kind = \"app\", name = \"app-2\" }\ntwo = { kind = \"app\", name = \"app-3\" }\n\
         [[steady]]\nprobe = \"processes.up\"\n\
         [[step]]\nname = \"hang\"\nfault = { kind = \"freeze\", for = \"10m\", target = [\"one\", \"two\"] }\n",
    );
    let victims = ["app-2", "app-3"].map(|name| before[name]);
    let mut runner = root.command(&["drill", "run", &freeze, "--json"]);
    let mut runner =
        runner.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    until("both hang", || victims.iter().all(is_frozen));
    // The runner does not help: each fault agent finds the halt on its own host.
    signal("STOP", &[i64::from(runner.id())]);
    let halted =
        root.run(&["drill", "halt", "--reason", "the sale", "--cluster", "default.2", "--json"]).ends(0);
    assert!(!victims.iter().any(is_frozen), "it was undone before the command ended");
    assert_eq!(undo_records(&root), 0);
    let halted = halted.json();
    assert_eq!((&halted["halted"], &halted["undone"]), (&true.into(), &true.into()), "{halted:#}");
    let hosts: Vec<u64> =
        halted["hosts"].as_array().expect("hosts").iter().filter_map(|one| one["host"].as_u64()).collect();
    assert_eq!(hosts, [1, 2, 3]);
    signal("CONT", &[i64::from(runner.id())]);
    assert_eq!(runner.wait().expect("a child").code(), Some(4), "it was aborted");
    let shown = root.run(&["status"]).out;
    assert!(shown.contains("~ drills are halted since") && shown.contains("the sale"), "{shown}");
    let dirs = ["default", "default.2", "default.3"];
    let is_halted = |name: &str| root.path().join(name).join("drill-halt").exists();
    for name in dirs {
        root.run(&["drill", "app", "--count", "1", "--cluster", name]).refused(&["the sale"]);
    }
    let resumed = root.run(&["drill", "resume", "--cluster", "default.3"]).ends(0);
    assert!(resumed.out.contains("may run again on all 3 hosts"), "{resumed:?}");
    assert!(!dirs.iter().any(|name| is_halted(name)));

    root.run(&["kill", "gateway-3"]).ends(0);
    let halted = root.run(&["drill", "halt", "--reason", "an incident"]).ends(1);
    assert!(
        halted.err.contains("not halted on host 3") && halted.err.contains("`obol drill halt` there"),
        "{halted:?}"
    );
    assert!(halted.out.contains("are halted on hosts 1, 2;"), "{halted:?}");
    assert_eq!(dirs.map(is_halted), [true, true, false]);
    let down = root.run(&["status", "--cluster", "default.3"]).out;
    assert!(down.contains("gateway-3: down") && down.contains("start it"), "{down}");
    // From there the others are reached.
    root.run(&["drill", "halt", "--reason", "an incident", "--cluster", "default.3"]).ends(0);
    assert!(is_halted("default.3"));
    root.run(&["start", "gateway-3"]).ends(0);
    root.run(&["drill", "resume"]).ends(0);
    assert!(!dirs.iter().any(|name| is_halted(name)));
}

#[test]
fn every_host_undoes_its_part_when_the_runner_dies_and_others_are_kept_out_until_then() {
    let (root, _up) = Root::with_cluster(&["--hosts", "3"]);
    let before = root.healthy().pids();
    let freeze = written(
        &root,
        "[drill]\nschema = 1\nid = \"freeze\"\ntitle = \"t\"\nenvironment = \"local\"\n\
         [guards]\ndead_man = \"500ms\"\n\
         [targets]\none = { kind = \"app\", name = \"app-2\" }\ntwo = { kind = \"app\", name = \"app-3\" }\n\
         [[steady]]\nprobe = \"processes.up\"\n\
         [[step]]\nname = \"hang\"\nfault = { kind = \"freeze\", for = \"1m\", target = [\"one\", \"two\"] }\n",
    );
    let victims = ["app-2", "app-3"].map(|name| before[name]);
    let mut runner = root.command(&["drill", "run", &freeze, "--json"]);
    let mut runner =
        runner.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    until("both hang", || victims.iter().all(is_frozen));
    assert_eq!(undo_records(&root), 2);
    let another = root.run(&["drill", "app", "--count", "1", "--cluster", "default.2"]);
    another.refused(&["another drill runs"]);
    signal("KILL", &[i64::from(runner.id())]);
    runner.wait().expect("a child");
    until("both go on, and nothing is left to undo", || {
        !victims.iter().any(is_frozen) && undo_records(&root) == 0
    });
    root.healthy();
    assert_eq!(root.healthy().pids(), before, "no process was restarted");

    // Nothing undoes what a fault agent leaves behind that dies with its warden and its runner, until the
    // next drill.
    let mut runner = root.command(&["drill", "run", &freeze, "--json"]);
    let mut runner =
        runner.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    until("both hang", || victims.iter().all(is_frozen));
    let all = root.processes().into_iter().filter(|(_, command)| command.contains(" fault-agent "));
    let (wardens, agents): (Vec<_>, Vec<_>) = all.partition(|(_, command)| command.contains(" --warden "));
    let pids = |of: Vec<(i64, String)>| of.into_iter().map(|(pid, _)| pid).collect::<Vec<i64>>();
    let (wardens, agents) = (pids(wardens), pids(agents));
    assert_eq!((wardens.len(), agents.len()), (3, 3));
    // One after the other: each would undo when it sees the next one's end.
    for killed in [&wardens[..], &agents, &[i64::from(runner.id())]] {
        signal("KILL", killed);
    }
    runner.wait().expect("a child");
    assert!(victims.iter().all(is_frozen));
    let recovered = root.run(&["drill", "recover"]).ends(0).out;
    assert!(
        recovered.contains("app-2 was continued") && recovered.contains("app-3 was continued"),
        "{recovered}"
    );
    assert!(!victims.iter().any(is_frozen) && undo_records(&root) == 0);
    root.healthy();
}

/// Hosts with supervisors, and with an `ssh` that is a shell on this machine.
struct Deployed {
    hosts: Hosts,
    /// Kept alive by shells that restart them, as systemd does.
    keepers: Vec<i64>,
    started: PathBuf,
}

impl Deployed {
    fn new() -> Self {
        let mut hosts = Hosts::new();
        let (started, start) = (hosts.file("started"), hosts.file("start"));
        let file = hosts.file("cluster.toml");
        let text = fs::read_to_string(&file).expect("written");
        let mut parts = text.split("[[hosts]]\n");
        let mut all = parts.next().expect("the head").to_owned();
        for (n, part) in (1..).zip(parts) {
            let supervisor =
                if n == 1 { format!("command {} agent-of-1", start.display()) } else { "systemd".to_owned() };
            all += &format!("[[hosts]]\nsupervisor = \"{supervisor}\"\n{part}");
        }
        fs::write(&file, all).expect("written");
        // Its shell stays: a daemon dies with the process that started it.
        script(
            &start,
            &format!(
                "#!/bin/sh\n[ \"$1 $2\" = 'agent-of-1 agent' ] || exit 9\n\
                 ( {} --root {} agent --name $3; : ) </dev/null >>{log} 2>&1 &\necho $! >>{}\n",
                env!("CARGO_BIN_EXE_obol"),
                hosts.file("host-1/root").display(),
                started.display(),
                log = hosts.file("log").display()
            ),
        );
        let bin = hosts.file("bin");
        fs::create_dir(&bin).expect("made");
        script(
            &bin.join("ssh"),
            "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nshift\nhost=${1##*.}\nshift\n\
             exec sh -c \"$(echo \"$@\" | sed \"s#/host-1/root#/host-$host/root#\")\"\n",
        );
        hosts.keys().ends(0);
        (1..=3).for_each(|host| hosts.prepare(host));
        for host in 1..=3 {
            hosts.start(host, "gateway");
            hosts.start(host, &format!("coordinator run --number {host}"));
        }
        let mut deployed = Self { hosts, keepers: Vec::new(), started };
        deployed.hosts.start(1, "agent --name node-1");
        (2..=3).for_each(|host| deployed.keep(host));
        (1..=3).for_each(|host| drop(deployed.hosts.healthy(host)));
        deployed
    }

    /// Runs the agent of a host, again and again.
    fn keep(&mut self, host: u8) {
        let agent = self.hosts.on(host, &["agent", "--name", &format!("node-{host}")]);
        let words = std::iter::once(agent.get_program()).chain(agent.get_args());
        let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
        let keeper = Command::new("setsid")
            .args(["sh", "-c", &format!("while :; do {}; sleep 0.2; done", words.join(" "))])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.keepers.push(i64::from(keeper.expect("started").id()));
    }

    fn drill(&self, arguments: &[&str]) -> Ran {
        let path = std::env::var("PATH").expect("set");
        let bin = self.hosts.file("bin");
        let mut command = self.hosts.on(1, &[&["drill"], arguments].concat());
        Ran::of(command.env("PATH", format!("{}:{path}", bin.display())))
    }

    fn pids(&self) -> Vec<i64> {
        (1..=3).map(|n| self.hosts.status(1).pid(&format!("node-{n}"))).collect()
    }
}

impl Drop for Deployed {
    fn drop(&mut self) {
        let started = fs::read_to_string(&self.started).unwrap_or_default();
        let groups = self.keepers.iter().map(|pid| format!("-{pid}"));
        let all: Vec<String> = groups.chain(started.lines().map(str::to_owned)).collect();
        // Some have ended.
        let script = format!("kill -s KILL -- {} 2>/dev/null", all.join(" "));
        let _ = Command::new("sh").args(["-c", &script]).status();
    }
}

#[test]
fn deployed_hosts_are_drilled_by_ssh_and_their_supervisors_restart_the_victims() {
    let deployed = Deployed::new();
    let text = "[drill]\nschema = 1\nid = \"two\"\ntitle = \"t\"\nenvironment = \"local\"\nrepeat = { count = 2 }\n\
                [targets]\none = { kind = \"agent\", name = \"node-1\" }\ntwo = { kind = \"agent\", name = \"node-2\" }\n\
                [[steady]]\nprobe = \"processes.up\"\n\
                [[step]]\nname = \"kill\"\nmax_cue_skew = \"1s\"\nfault = { kind = \"kill\", target = [\"one\", \"two\"] }\n";
    let file = deployed.hosts.file("two.toml");
    fs::write(&file, text).expect("written");
    let before = deployed.pids();
    let ran = deployed.drill(&["run", file.to_str().expect("text"), "--json"]);
    let said = |name: &str| fs::read_to_string(deployed.hosts.file(name)).unwrap_or_default();
    assert!(matches!(ran.code, Some(0 | 3 | 6)), "{ran:?}\n{}\n{}", said("started"), said("log"));
    let journal = ran.json();
    clocks(&journal);
    assert_eq!(stamps(&journal).len(), 4, "{journal:#}");
    assert_eq!(journal["ssh"], deployed.hosts.address(2), "{journal:#}");
    deployed.hosts.healthy(3);
    let after = deployed.pids();
    assert!(before[0] != after[0] && before[1] != after[1] && before[2] == after[2], "{before:?} {after:?}");
    let started = until_or("the command was run", || fs::read_to_string(&deployed.started).ok(), String::new);
    assert_eq!(started.lines().count(), 2, "{started}");
    let only = deployed.drill(&["run", file.to_str().expect("text"), "--ssh", "somewhere"]);
    only.refused(&["--ssh names one host, and this cluster has 3"]);
}

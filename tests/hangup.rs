//! A closed terminal or a lost connection (SIGHUP) ends daemons and long commands as SIGTERM does:
//! nothing that they would have done at their end is lost.

use crate::support::{Root, heeding, signal, until, until_or};
use serde_json::Value;
use std::fs;
use std::io::Read as _;
use std::process::{Child, Command, Stdio};

/// A process of the test, killed at the end.
struct Hung(Child);

impl Hung {
    fn start(command: &Command) -> Self {
        let mut command = heeding(command);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        Self(command.spawn().expect("it starts"))
    }

    fn pid(&self) -> i64 {
        i64::from(self.0.id())
    }

    /// Sends it SIGHUP, and waits until it has ended by itself; returns its exit code, if it did.
    fn hang_up(&mut self) -> Option<i32> {
        signal("HUP", &[self.pid()]);
        let mut ended = None;
        until("it ends", || {
            ended = self.0.try_wait().expect("a child");
            ended.is_some()
        });
        ended.and_then(|status| status.code())
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn daemons_and_servers_leave_when_they_are_hung_up() {
    let (root, _up) = Root::with_cluster(&["--apps", "2", "--caches", "1"]);
    let server = |words: &[&str]| Hung::start(&root.command(words));
    let mut servers =
        [("kv-1", "kv"), ("smr-1", "smr")].map(|(name, of)| (name, server(&[of, "server", "--name", name])));
    let before = root.until("they are members", |s| s.is_active("kv-1") && s.is_active("smr-1"));
    for (name, hung) in &mut servers {
        assert_eq!(hung.hang_up(), Some(0), "{name}");
    }
    // A program before its agent, at which it leaves.
    for name in ["cache-1", "app-2", "node-2", "coord-3"] {
        signal("HUP", &[before.pid(name)]);
        until("it ends", || crate::support::has_ended(before.pid(name)));
    }
    for name in ["kv-1", "smr-1", "cache-1", "app-2", "node-2", "coord-3"] {
        root.until(&format!("{name} has left"), |status| status.process(name)["left"] == true);
    }
    let mut exporter = Hung::start(&root.command(&["export", "--listen", "127.0.0.1:0"]));
    until("it handles the signal", || handles_hangup(exporter.pid()));
    assert_eq!(exporter.hang_up(), Some(0));
}

/// Whether a process handles SIGHUP.
fn handles_hangup(pid: i64) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[test]
fn a_drill_that_is_hung_up_has_a_verdict_and_an_end_in_the_log() {
    let (root, up) = Root::with_cluster(&["--coordinators", "1", "--apps", "1"]);
    let mut drill = Hung::start(&root.command(&["drill", "app", "--count", "100000", "--json"]));
    up.until_view("a process is killed and rejoins", |view| view["view"].as_u64() > Some(8));
    assert_eq!(drill.hang_up(), Some(5));
    let mut out = String::new();
    drill.0.stdout.take().expect("piped").read_to_string(&mut out).expect("text");
    let report: Value = serde_json::from_str(&out).expect("one object");
    assert_eq!(report["verdict"], "interrupted", "{report}");
    let audit = root.run(&["drill", "audit", "--json"]).ends(0).out;
    let last = audit.lines().last().and_then(|line| serde_json::from_str::<Value>(line).ok());
    assert_eq!(last.expect("an entry")["event"], "ended", "{audit}");
    root.healthy();
}

#[test]
fn a_report_that_is_hung_up_is_on_what_it_has_and_says_so() {
    let (root, _up) = Root::with_cluster(&["--coordinators", "1", "--apps", "1"]);
    let file = root.note("report.json");
    let out = file.to_str().expect("text");
    let mut report = Hung::start(&root.command(&["report", "--for", "1h", "--out", out]));
    until("it handles the signal", || handles_hangup(report.pid()));
    assert_eq!(report.hang_up(), Some(0));
    let report: Value = serde_json::from_slice(&fs::read(&file).expect("it was written")).expect("JSON");
    assert!(report["samples"].as_u64() > Some(0) && report["health"].is_string(), "{report}");
    let lacks = report["lacks"][0].as_str().unwrap_or_default();
    assert!(lacks.contains("cut short by a signal") && lacks.ends_with(" of 3600s."), "{report}");
}

#[test]
fn a_check_that_is_hung_up_says_what_it_checked_and_gives_no_verdict() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    for (of, server, client) in [("kv", "kv-1", "kvc-check-0"), ("smr", "smr-1", "smrc-check-0")] {
        let mut check = Hung::start(&root.command(&[of, "check", "--for", "1h", "--clients", "1", "--json"]));
        root.until("a server and the client are members", |status| {
            status.is_active(server) && status.is_active(client)
        });
        assert_eq!(check.hang_up(), Some(5), "{of}");
        let mut out = String::new();
        check.0.stdout.take().expect("piped").read_to_string(&mut out).expect("text");
        let summary: Value = serde_json::from_str(&out).expect("one object");
        assert!(summary["interrupted"] == true && summary["wrong"] == 0, "{summary}");
        // The check of a cache says nothing of lost values, that of a store has not looked for them yet.
        assert_eq!(summary.get("lost"), (of == "smr").then_some(&Value::Null), "{summary}");
    }
}

#[test]
fn deliveries_that_wait_when_hooks_are_hung_up_become_dead_letters_and_programs_end() {
    let (root, _up) = Root::with_cluster(&["--coordinators", "1", "--apps", "1"]);
    let [file, dead, pid] = ["hooks.toml", "hooks.dead", "hooks.pid"].map(|name| root.note(name));
    let script = format!("echo $$ > {}; exec sleep 3600", pid.display());
    let text = format!(
        "schema = 1\ndead_letters = {dead:?}\n[[hook]]\nname = \"hangs\"\non = [\"mark\"]\n\
         exec = [\"/bin/sh\", \"-c\", {script:?}]\n[[hook]]\nname = \"down\"\non = [\"mark\"]\n\
         url = \"http://127.0.0.1:9/obol\"\nallow_http = true\nattempts = 100\n"
    );
    fs::write(&file, text).expect("written");
    root.run(&["hooks", "check", file.to_str().expect("text")]).ends(0);
    let mut hooks = Hung::start(&root.command(&["hooks", "run", file.to_str().expect("text")]));
    let called = || fs::read_to_string(&pid).ok().filter(|text| text.ends_with('\n'));
    // Events of before its start are not reported.
    let called = until_or(
        "a hook runs",
        || {
            root.run(&["mark", "deploy"]).ends(0);
            called()
        },
        String::new,
    );
    assert_eq!(hooks.hang_up(), Some(0));
    let letters = fs::read_to_string(&dead).expect("there are letters");
    for hook in ["hangs", "down"] {
        assert!(letters.lines().any(|line| line.contains(&format!("{hook:?}"))), "{hook}: {letters}");
    }
    let program: i64 = called.trim().parse().expect("a pid");
    until("the program of the hook ends", || crate::support::has_ended(program));
}

#[test]
fn a_program_that_is_to_outlive_its_terminal_does() {
    let (root, _up) = Root::with_cluster(&["--coordinators", "1", "--apps", "1"]);
    let file = root.note("kept.rec");
    let of_root = root.command(&["record", file.to_str().expect("text")]);
    let mut command = Command::new("env");
    command.arg("--ignore-signal=HUP").arg(of_root.get_program()).args(of_root.get_args());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut recorder = Hung(command.spawn().expect("it starts"));
    let len = || fs::metadata(&file).map_or(0, |meta| meta.len());
    until("it records", || len() > 0);
    signal("HUP", &[recorder.pid()]);
    let then = len();
    until("it goes on", || len() > then + 1000);
    signal("TERM", &[recorder.pid()]);
    assert!(recorder.0.wait().expect("a child").success());
}

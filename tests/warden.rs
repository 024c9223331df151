//! What a fault agent that is killed has injected is undone at once, also if others are killed with it; and
//! if all are, it is named where it hurts.

use crate::support::{Root, signal, until, until_or};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Child, Stdio};

/// A drill that stops an app for far longer than a test lasts.
fn file(root: &Root) -> String {
    let path = root.note("hang.toml");
    let text = "[drill]\nschema = 1\nid = \"hang\"\ntitle = \"An app hangs\"\nenvironment = \"local\"\n\
        [targets]\napp = { kind = \"app\", name = \"app-1\" }\n[[steady]]\nprobe = \"processes.up\"\n\
        [[step]]\nname = \"hang\"\nfault = { kind = \"freeze\", for = \"10m\", target = \"app\" }\n";
    std::fs::write(&path, text).expect("written");
    path.to_str().expect("text").to_owned()
}

fn is_stopped(pid: i64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
}

/// A drill whose victim is stopped, and its processes.
struct Hang {
    runner: Child,
    victim: i64,
    fault_agent: i64,
    warden: i64,
}

impl Hang {
    fn begin(root: &Root) -> Self {
        let victim = root.healthy().pid("app-1");
        let mut command = root.command(&["drill", "run", &file(root), "--json"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let runner = command.spawn().expect("it starts");
        until("the victim is stopped", || is_stopped(victim));
        let find = |is_warden: bool| {
            let words =
                |command: &str| command.contains("fault-agent") && command.contains("--warden") == is_warden;
            let found =
                || root.processes().into_iter().find(|(_, command)| words(command)).map(|(pid, _)| pid);
            until_or("it is there", found, || format!("{:#?}", root.processes()))
        };
        let (fault_agent, warden) = (find(false), find(true));
        Self { runner, victim, fault_agent, warden }
    }

    fn runner(&self) -> i64 {
        i64::from(self.runner.id())
    }
}

impl Drop for Hang {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.runner.kill();
        let _ = self.runner.wait();
    }
}

/// Undo records of fault agents.
fn records(root: &Root) -> Vec<PathBuf> {
    let all = crate::support::files(&root.cluster()).into_iter();
    all.filter(|path| path.to_string_lossy().contains("drill-undo-")).collect()
}

fn warnings(root: &Root) -> String {
    root.status().json["warnings"].to_string()
}

#[test]
fn the_faults_of_a_killed_fault_agent_are_undone_and_its_drill_says_so() {
    let (root, _up) = Root::with_cluster(&["--coordinators", "1", "--apps", "1"]);
    let mut hang = Hang::begin(&root);
    assert!(!warnings(&root).contains("drill"), "a drill that runs has left nothing");
    signal("KILL", &[hang.fault_agent]);
    until("the victim goes on", || !is_stopped(hang.victim));
    let out = hang.runner.stdout.take().expect("piped");
    let report: Value = serde_json::from_reader(out).expect("one object");
    assert_eq!(hang.runner.wait().expect("a child").code(), Some(4), "{report}");
    let remarks = report["remarks"].to_string();
    assert!(
        remarks.contains("was lost in repetition 1") && remarks.contains("its faults are undone"),
        "{remarks}"
    );
    assert_eq!(records(&root), Vec::<PathBuf>::new());
    root.healthy();
}

#[test]
fn the_faults_of_a_fault_agent_that_is_killed_with_its_runner_are_undone() {
    let (root, _up) = Root::with_cluster(&["--coordinators", "1", "--apps", "1"]);
    let hang = Hang::begin(&root);
    signal("KILL", &[hang.runner(), hang.fault_agent]);
    until("the victim goes on", || !is_stopped(hang.victim));
    until("nothing is left to undo", || records(&root).is_empty());
    assert!(!warnings(&root).contains("drill recover"), "{}", warnings(&root));
    root.healthy();
}

#[test]
fn the_runner_undoes_what_neither_the_fault_agent_nor_its_warden_can() {
    let (root, _up) = Root::with_cluster(&["--coordinators", "1", "--apps", "1"]);
    let mut hang = Hang::begin(&root);
    signal("KILL", &[hang.warden, hang.fault_agent]);
    until("the victim goes on", || !is_stopped(hang.victim));
    assert_eq!(hang.runner.wait().expect("a child").code(), Some(4));
    assert_eq!(records(&root), Vec::<PathBuf>::new());
    root.healthy();
}

#[test]
fn what_is_left_of_a_drill_that_was_killed_as_a_whole_is_named_with_its_remedy() {
    let (root, _up) = Root::with_cluster(&["--coordinators", "1", "--apps", "1"]);
    let hang = Hang::begin(&root);
    // One after the other: each would undo when it sees the next one's end.
    signal("KILL", &[hang.warden]);
    signal("KILL", &[hang.fault_agent]);
    signal("KILL", &[hang.runner()]);
    until("all have ended", || {
        [hang.warden, hang.runner(), hang.fault_agent].into_iter().all(crate::support::has_ended)
    });
    assert!(is_stopped(hang.victim));
    let named = |text: &str| {
        let words = ["app-1 (pid ", "may be stopped", "obol drill recover --cluster default"];
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    };
    named(&warnings(&root));
    named(&root.run(&["status"]).out);
    let doctor = root.run(&["doctor", "--json", "--for", "10ms"]).json();
    let found = doctor["findings"].as_array().expect("findings").iter().find(|one| one["check"] == "drills");
    named(&found.expect("a finding").to_string());
    root.run(&["drill", "recover"]).ends(0);
    assert!(!is_stopped(hang.victim) && records(&root).is_empty());
    assert!(!warnings(&root).contains("drill recover"), "{}", warnings(&root));
}

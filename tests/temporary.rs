//! Clusters that a command makes for itself end with it, whatever ends it, and leave nothing
//! behind.

use crate::support::{Root, has_ended, heeding, signal, until, until_or};
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// What ends a command: a terminal's Ctrl-C, `kill`, a closed terminal, and the signal that cannot be handled.
const SIGNALS: [&str; 4] = ["INT", "TERM", "HUP", "KILL"];

/// A command under way, in a session of its own, whose temporary files have a folder of their own.
struct Underway {
    child: Child,
    folder: PathBuf,
}

impl Underway {
    fn start(root: &Root, words: &[&str]) -> Self {
        let folder = root.note("temporary");
        std::fs::create_dir_all(&folder).expect("made");
        let mut command = heeding(&root.command(words));
        command.env("TMPDIR", &folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // As a shell gives it, so that a whole group can be hit.
        let child = command.process_group(0).spawn().expect("it starts");
        Self { child, folder }
    }

    fn pid(&self) -> i64 {
        i64::from(self.child.id())
    }

    /// Whether it has a cluster whose name begins with `cluster`, and at least `many` processes.
    fn has(&self, root: &Root, cluster: &str, many: usize) -> bool {
        let made = std::fs::read_dir(root.path()).into_iter().flatten().filter_map(Result::ok);
        let named = made
            .map(|entry| entry.file_name())
            .any(|name| name.to_str().is_some_and(|name| name.starts_with(cluster)));
        named && self.others(root).len() >= many
    }

    /// What it has started.
    fn others(&self, root: &Root) -> BTreeMap<i64, String> {
        let mut all = root.processes();
        all.remove(&self.pid());
        all
    }

    /// Holds that it ends, and nothing of it is left.
    fn leaves_nothing(mut self, root: &Root, why: &str) {
        until_or(
            "everything ends with the command",
            || {
                let gone = self.child.try_wait().expect("a child").is_some() && root.processes().is_empty();
                (gone && !root.path().exists()).then_some(())
            },
            || format!("{why}: {:?}, files: {:?}", root.processes(), root.path().exists()),
        );
        let left: Vec<_> = std::fs::read_dir(&self.folder).expect("its folder").collect();
        assert!(left.is_empty(), "{why}: {left:?}");
        std::fs::remove_dir(&self.folder).expect("removed");
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Ends a command by each signal while it has a cluster of this name with `many` processes.
fn ends_with_its_cluster(words: &[&str], cluster: &str, many: usize) {
    ends_with(words, |underway, root| underway.has(root, cluster, many));
}

/// Ends a command by each signal once it has what it must not leave behind.
fn ends_with(words: &[&str], has: impl Fn(&Underway, &Root) -> bool) {
    ends_by(&SIGNALS, words, has);
}

fn ends_by(signals: &[&str], words: &[&str], has: impl Fn(&Underway, &Root) -> bool) {
    for name in signals {
        let root = Root::new();
        let underway = Underway::start(&root, words);
        until_or(
            "the command has its processes",
            || has(&underway, &root).then_some(()),
            || format!("{:?}", underway.others(&root)),
        );
        // Ctrl-C comes to all of the terminal's group, the others to one process.
        let to = if *name == "INT" { -underway.pid() } else { underway.pid() };
        signal(name, &[to]);
        underway.leaves_nothing(&root, &format!("{words:?}, SIG{name}"));
    }
}

#[test]
fn bench_ends_with_its_cluster_of_bare_memory() {
    ends_with_its_cluster(&["bench", "--count", "10"], "micro-", 1);
}

#[test]
fn bench_ends_with_its_cluster_of_processes() {
    ends_with_its_cluster(&["bench", "--count", "10"], "bench-", 9);
}

#[test]
fn tune_ends_with_its_cluster() {
    ends_with_its_cluster(&["tune", "--for", "60s"], "tune-", 9);
}

/// These are forked by a process that the command has started.
#[test]
fn table2_ends_with_the_processes_of_its_floor() {
    ends_with(&["drill", "run", "table2", "--count", "50"], |underway, root| {
        underway.others(root).values().filter(|command| command.contains(" floor --count")).count() >= 5
    });
}

#[test]
fn table2_ends_with_its_cluster() {
    ends_with_its_cluster(&["drill", "run", "table2", "--count", "50"], "table2-", 9);
}

/// Ctrl-C ends its replicas as well, and SIGKILL does not let it end them.
#[test]
fn the_drill_of_replicated_stores_ends_with_its_cluster_and_replicas() {
    let words = ["drill", "smr", "--preset", "view", "--count", "1000"];
    ends_by(&["INT", "KILL"], &words, |underway, root| {
        underway.others(root).values().filter(|command| command.contains(" smr server ")).count() == 3
    });
}

#[test]
fn the_benchmark_of_upgrades_ends_with_its_cluster() {
    ends_with_its_cluster(&["bench", "upgrade", "--count", "1"], "upgrade-", 9);
}

#[test]
fn the_benchmark_of_the_console_ends_with_its_cluster() {
    ends_with_its_cluster(&["bench", "console", "--nodes", "32"], "console-", 2);
}

/// The kernel sends SIGHUP to the processes of a closed terminal.
#[test]
fn a_closed_terminal_ends_a_command_and_its_cluster() {
    let root = Root::new();
    let words =
        format!("exec {} bench --count 10 --root {}", env!("CARGO_BIN_EXE_obol"), root.path().display());
    let mut terminal = Command::new("script")
        .args(["-q", "-c", &words, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("`script` of util-linux runs");
    let has = || root.processes().values().filter(|command| command.contains(" agent ")).count() == 3;
    until("the command has its cluster", has);
    let all: Vec<i64> = root.processes().into_keys().collect();
    terminal.kill().expect("it ran");
    terminal.wait().expect("a child");
    until("everything ends with the terminal", || all.iter().all(|pid| has_ended(*pid)));
    until("its files are removed", || !root.path().exists());
}

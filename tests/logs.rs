//! Logs of real processes: one command says what happened to a process that is frozen, dead, or of a
//! cluster that has ended.

use crate::support::small::Small;
use crate::support::{Ran, Root, Up, files, freeze, signal, until, until_or};
use serde_json::Value;

/// The lines of a command.
fn lines(ran: &Ran) -> Vec<Value> {
    ran.out.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect()
}

fn logs(root: &Root, arguments: &[&str]) -> Vec<Value> {
    lines(&root.run(&[&["logs", "--json"], arguments].concat()).ends(0))
}

/// Whether a line is of this process and about this event.
fn is(line: &Value, process: &str, event: &str) -> bool {
    line["process"] == process && line["event"] == event
}

/// What is in the file of a process; nothing before there is one.
fn written(root: &Root, name: &str) -> String {
    let all = files(&root.state().join("obol/logs"));
    let found = all.into_iter().find(|path| path.ends_with(format!("{name}.log")));
    found.map_or(String::new(), |path| std::fs::read_to_string(path).expect("text"))
}

/// Waits until a process is excluded while it is frozen; returns its incarnation.
fn frozen_and_excluded(root: &Root, name: &str) -> u64 {
    // What it has not written yet when it is frozen is only in its memory.
    let read = || written(root, name);
    until_or("its join is written", || read().contains("joined").then_some(()), read);
    let status = root.healthy();
    let incarnation = status.process(name)["incarnation"].as_u64().expect("a member");
    freeze(status.pid(name));
    root.until("it is excluded", |status| status.process(name)["incarnation"].is_null());
    incarnation
}

#[test]
fn what_happened_to_a_frozen_node_is_one_command_and_so_it_is_after_its_death_and_after_the_clusters_end() {
    let (root, up): (Root, Up) = Root::with_cluster(&["--apps", "2"]);
    let incarnation = frozen_and_excluded(&root, "node-2");
    let pid = root.status().pid("node-2");
    let told = |lines: &[Value]| {
        let by_others = |line: &Value| {
            line["event"] == "notice" && line["who"] == "node-2" && line["process"] != "node-2"
        };
        let number = |line: &Value| line["who_incarnation"].as_u64() == Some(incarnation);
        lines.iter().any(|line| is(line, "node-2", "joined"))
            && lines.iter().any(|line| by_others(line) && number(line))
            && lines.iter().any(|line| {
                line["event"] == "decide" && line["text"].as_str().is_some_and(|t| t.contains("node-2 ("))
            })
    };
    let since = ["node-2", "--since", "10m"];
    until("its exclusion is logged", || told(&logs(&root, &since)));
    // Nothing is printed twice: the line of a process, or else the event of its recorder.
    let all = logs(&root, &["--since", "10m", "--level", "debug"]);
    let mut stamps: Vec<(String, u64)> = all
        .iter()
        .filter_map(|line| Some((line["process"].as_str()?.to_owned(), line["at_ns"].as_u64()?)))
        .collect();
    let count = stamps.len();
    stamps.sort();
    stamps.dedup();
    assert_eq!(stamps.len(), count);
    let times: Vec<&str> = all.iter().filter_map(|line| line["time"].as_str()).collect();
    assert!(times.is_sorted(), "lines are in the order of time");
    signal("KILL", &[pid]);
    until("its death is logged", || {
        logs(&root, &since)
            .iter()
            .any(|line| line["process"] == "up" && line["who"] == "node-2" && line["level"] == "warn")
    });
    assert!(told(&logs(&root, &since)));
    // Until now that may have been read from memory, which ends with the cluster.
    let others = ["coord-1", "coord-2", "coord-3", "node-1"];
    let has_written = |event: &str| {
        let about = |line: &str| line.contains(event) && line.contains("node-2 (");
        others.iter().any(|name| written(&root, name).lines().any(about))
    };
    until("its exclusion is written", || has_written("notice: ") && has_written("decide: "));
    root.run(&["down"]).ends(0);
    drop(up);
    assert!(told(&logs(&root, &since)), "files are there when the cluster is not");
    assert!(!root.run(&["logs", "node-2", "--until", "2020-01-01"]).ends(0).err.is_empty());
    root.run(&["logs", "nodde-2"]).refused(&["no process nodde-2 has logs", "did you mean node-2?"]);
}

#[test]
fn each_event_of_a_cluster_of_three_hosts_is_logged_once_with_its_host_and_what_the_view_changed() {
    let (root, _up) = Root::with_cluster(&["--hosts", "3", "--apps", "3"]);
    let killed = root.status().incarnation("app-2");
    root.run(&["kill", "app-2"]).ends(0);
    root.until("its death is seen", |status| !status.is_active("app-2"));
    // Views that are followed by others have their causes as well.
    root.run(&["start", "app-2"]).ends(0);
    root.until("it is back", |status| status.is_active("app-2"));
    let failed = format!("app-2 ({killed}) failed: ");
    // Of any of them on the first host, as its logs; on another one it is said where.
    let level = ["log", "level", "app-2"];
    let at = root.run(&level).ends(0).out;
    assert!(at.starts_with("app-2 logs info to ") && at.contains("/default.2/"), "{at}");
    root.run(&[&level[..], &["--cluster", "default.3"]].concat()).refused(&["app-2 is of host 2"]);
    for (cluster, host) in [("default", 1), ("default.2", 2), ("default.3", 3)] {
        let all = logs(&root, &["--cluster", cluster, "--since", "10m", "--level", "debug"]);
        let decided = |line: &&Value| line["event"] == "decide";
        let says = |line: &Value| line["text"].as_str().is_some_and(|text| text.contains(&failed));
        let failures: Vec<&Value> = all.iter().filter(decided).filter(|line| says(line)).collect();
        assert_eq!(failures.len(), 1, "{cluster}: {:#?}", all.iter().filter(decided).collect::<Vec<_>>());
        assert_eq!((&failures[0]["process"], &failures[0]["host"]), (&"coord-1".into(), &1.into()));
        let view = |line: &Value| (line["process"].to_string(), line["view"].as_u64());
        let mut views: Vec<_> = all.iter().filter(decided).map(view).collect();
        let count = views.len();
        views.sort();
        views.dedup();
        assert_eq!(views.len(), count, "{cluster}");
        // Where all hosts are this one, no time is an estimate.
        let estimated = all.iter().filter(|line| !line["clock_error_ns"].is_null());
        assert_eq!(estimated.count() == 0, host == 1, "{cluster}");
        let own = |line: &&Value| line["clock_error_ns"].is_null() && line["host"] == host;
        assert!(all.iter().any(|line| own(&line)), "{cluster}");
    }
    let shown = root.run(&["logs", "app-2", "--since", "10m"]).ends(0).out;
    assert!(shown.lines().any(|line| line.contains(&failed) && line.ends_with("(host 1)")), "{shown}");
}

#[test]
fn levels_change_while_a_process_runs_and_reach_one_that_is_frozen_when_it_continues() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let level = |arguments: &[&str]| root.run(&[&["log", "level", "--json"], arguments].concat());
    assert_eq!(level(&["node-1"]).ends(0).json()["levels"], "info");
    let changed = level(&["node-1", "membership=debug"]).ends(0).json();
    assert_eq!((&changed["levels"], &changed["applied"]), (&"info,membership=debug".into(), &true.into()));
    root.run(&["kill", "app-1"]).ends(0);
    root.run(&["start", "app-1"]).ends(0);
    // Read from its file alone: others see all events in its memory.
    let read = || written(&root, "node-1");
    let has = || read().contains("view received").then_some(());
    until_or("steps of a view change are written", has, read);
    let pid = root.status().pid("node-1");
    freeze(pid);
    let later = level(&["node-1", "warn"]).ends(1).json();
    assert_eq!(later["applied"], false);
    signal("CONT", &[pid]);
    until("it has the levels", || level(&["node-1"]).ends(0).json()["levels"] == "warn");
    let status = root.status();
    let log = &status.process("node-1")["log"];
    assert_eq!((&log["dropped"], &log["unwritten"]), (&0.into(), &0.into()), "{log}");
    level(&["node-9", "debug"]).refused(&["node-9 has no log", "node-1"]);
    level(&["node-1", "membrship=debug"]).refused(&["did you mean membership?"]);
}

#[test]
fn a_log_is_followed_until_the_cluster_ends() {
    let (root, _up) = Root::with_cluster(&["--apps", "1", "--log-format", "json"]);
    let mut command = root.command(&["logs", "--follow", "--json", "--last", "0"]);
    let (path, to) = (root.note("followed"), root.note("followed"));
    std::fs::write(&path, "").expect("written");
    let follower = std::thread::spawn(move || Ran::into_file(&mut command, &to));
    // It follows once it is there, which nothing shows: a kill is repeated until it was seen.
    let has_followed = || {
        let followed = std::fs::read_to_string(&path).expect("text");
        followed.lines().any(|line| line.contains(r#""event":"notice""#) && line.contains(r#""who":"app-1""#))
    };
    until("a death is followed", || {
        root.run(&["kill", "app-1"]).ends(0);
        root.until("its death is seen", |status| !status.is_active("app-1"));
        root.run(&["start", "app-1"]).ends(0);
        root.until("it is back", |status| status.is_active("app-1"));
        has_followed()
    });
    root.run(&["down"]).ends(0);
    let ran = follower.join().expect("it ends").ends(0);
    assert!(ran.err.contains("the cluster has ended"));
}

#[test]
fn processes_run_without_logs_where_there_is_no_place_for_them_or_none_are_wanted() {
    let root = Root::new();
    let logs = root.state().join("obol/logs");
    std::fs::create_dir_all(logs.parent().expect("a folder")).expect("made");
    std::fs::write(&logs, "in the way").expect("written");
    let up = root.up(&["--apps", "1", "--log-to", "files"]);
    assert!(root.healthy().process("node-1")["log"].is_null());
    root.run(&["down"]).ends(0);
    drop(up);
    std::fs::remove_file(&logs).expect("removed");
    let up = root.up(&["--apps", "1", "--log-to", "off"]);
    assert!(root.healthy().process("node-1")["log"].is_null());
    assert!(!logs.exists());
    drop(up);
}

#[test]
fn a_full_disk_costs_log_lines_and_nothing_else_and_the_log_says_how_many() {
    let root = Root::new();
    let logs = root.state().join("obol/logs");
    let Some(_small) = Small::mount(&logs, "256k") else { return };
    let up = root.up(&["--apps", "2", "--log-format", "json", "--log-level", "debug"]);
    let filler = logs.join("filler");
    // Smaller and smaller pieces, so that not a byte is left.
    let mut file = std::fs::File::create(&filler).expect("made");
    for bytes in [4096, 1] {
        while std::io::Write::write(&mut file, &vec![0; bytes]).is_ok_and(|written| written > 0) {}
    }
    let restart = || {
        root.run(&["kill", "app-2"]).ends(0);
        root.until("its death is seen", |status| !status.is_active("app-2"));
        root.run(&["start", "app-2"]).ends(0);
        root.healthy()
    };
    let lost = |status: &crate::support::Status, name: &str| {
        status.process(name)["log"]["unwritten"].as_u64().unwrap_or(0)
    };
    until("lines are lost", || lost(&restart(), "node-1") > 0);
    let status = root.status();
    let warned = status.json["warnings"].to_string();
    assert!(warned.contains("missing in the log of") && warned.contains("No space left"), "{warned}");
    std::fs::remove_file(&filler).expect("removed");
    drop(file);
    let read = || written(&root, "node-1");
    until_or(
        "the log says what it lacks",
        || {
            restart();
            read().contains("lines could not be written").then_some(())
        },
        read,
    );
    for line in read().lines() {
        let parsed: Result<Value, _> = serde_json::from_str(line);
        assert!(parsed.is_ok(), "{line:?} is not whole");
    }
    root.run(&["down"]).ends(0);
    drop(up);
}

//! The life of a cluster: it comes up, is seen, loses processes, gets them back, and ends without a
//! trace.

use crate::support::share::Alone;
use crate::support::{Ran, Root, Status, freeze, signal, until, until_or};
use serde_json::Value;

/// The names of everything that `up` starts.
fn names(coordinators: usize, apps: usize) -> Vec<String> {
    let all = [("app", apps), ("coord", coordinators), ("node", apps)];
    all.iter().flat_map(|(kind, n)| (1..=*n).map(move |n| format!("{kind}-{n}"))).collect()
}

#[test]
fn a_headless_cluster_tells_its_life_in_json_and_ends_by_itself() {
    let root = Root::new();
    let ended = root.begin(&["--for", "2s"]).end().well();
    root.is_gone();
    let events: Vec<&str> = ended.lines.iter().map(|l| l["event"].as_str().expect("a name")).collect();
    assert_eq!(events.iter().filter(|e| **e == "up").count(), 1, "{events:?}");
    assert!(events.contains(&"view") && events.last() == Some(&"summary"), "{events:?}");
    for line in &ended.lines {
        let keys: &[&str] = match line["event"].as_str() {
            Some("up") => &["health", "reasons", "after_s", "deadbeat"],
            Some("view") => {
                &["view", "base", "members", "leader", "causes", "decided_by", "stamps", "received", "active"]
            }
            Some("health") => &["health", "reasons"],
            Some("summary") => &[
                "after_s",
                "view",
                "view_changes",
                "health",
                "reasons",
                "renewals_on_time",
                "renewals_late",
                "renewals_failed",
            ],
            other => panic!("{other:?} is not documented"),
        };
        assert!(keys.iter().all(|key| line.get(key).is_some()), "{keys:?} in {line}");
        let stamps = ["stamps", "received", "active"].map(|key| line[key].as_array().cloned());
        let mut stamps = stamps.into_iter().flatten().flatten();
        assert!(stamps.all(|stamp| stamp["after_us"].is_f64()), "{line}");
    }
    let summary = ended.lines.last().expect("the summary");
    assert!(summary["renewals_on_time"].as_u64() > Some(0), "{summary}");
    assert_eq!(ended.err, "");
}

#[test]
fn everything_that_was_asked_for_is_there_under_its_name() {
    let (root, _up) = Root::with_cluster(&["--coordinators", "5", "--apps", "2"]);
    let status = root.healthy();
    let processes = status.processes();
    assert_eq!(processes.keys().copied().collect::<Vec<_>>(), names(5, 2));
    let has_module = std::fs::File::options().read(true).write(true).open("/dev/deadbeat").is_ok();
    let deadbeat = if has_module { "module" } else { "futex+pidfd" };
    assert_eq!(status.json["deadbeat"], deadbeat);
    for (name, process) in &processes {
        let kind = match &name[..3] {
            "coo" => "coordinator",
            "nod" => "agent",
            _ => "app",
        };
        assert_eq!(process["kind"], kind, "{name}");
        let host = process["host"].as_str().map(str::to_owned);
        assert_eq!(host, name.strip_prefix("app-").map(|n| format!("node-{n}")), "{name}");
        assert_eq!(process["deadbeat"], deadbeat, "{name}");
    }
    assert_eq!((&status.json["cluster"], &status.json["profile"]), (&"default".into(), &"laptop".into()));
    assert_eq!(status.json["health"], "healthy");
}

#[test]
fn ctrl_c_and_sigterm_leave_no_process_and_no_file() {
    // Ctrl-C reaches the whole process group, the daemons too; a SIGTERM only `up`.
    for (name, whole_group) in [("INT", true), ("INT", false), ("TERM", false), ("HUP", false)] {
        let (root, up) = Root::with_cluster(&["--apps", "1"]);
        signal(name, &[if whole_group { -up.pid() } else { up.pid() }]);
        let ended = up.end().well();
        root.is_gone();
        let last = ended.lines.last().expect("a summary");
        assert_eq!(last["event"], "summary", "SIG{name}");
        // The end of the cluster does not count as its fault.
        assert_ne!(last["health"], "unreachable", "SIG{name}");
    }
}

#[test]
fn a_cluster_that_is_just_starting_ends_at_once_too() {
    let root = Root::new();
    let up = root.begin(&[]);
    until("the directory is made", || root.cluster().join("table").exists());
    signal("TERM", &[up.pid()]);
    up.end().well();
    root.is_gone();
}

/// The seconds of its day, of a time such as 2026-11-25T07:00:00.123456789Z.
fn seconds(time: &str) -> Option<f64> {
    let of_day = time.split_once('T')?.1.strip_suffix('Z')?;
    of_day.split(':').try_fold(0.0, |all, part| Some(all * 60.0 + part.parse::<f64>().ok()?))
}

/// The start of the processes is a part of the time until it is up.
#[test]
fn the_time_until_a_cluster_is_up_counts_from_before_its_first_process() {
    let (root, up) = Root::with_cluster(&[]);
    let said = up.lines().into_iter().find(|line| line["event"] == "up").expect("it is up");
    let after = said["after_s"].as_f64().expect("a number");
    let logged = || {
        let ran = root.run(&["logs", "up", "--json", "--since", "10m"]).ends(0);
        let lines = ran.out.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let all: Vec<Value> = lines.collect();
        // Both by the same clock.
        let at = |begin: &str| {
            let about = |line: &&Value| line["text"].as_str().is_some_and(|text| text.starts_with(begin));
            seconds(all.iter().find(about)?["time"].as_str().expect("a time"))
        };
        at("started coord-1 ").zip(at("the cluster is "))
    };
    let (first, healthy) = until_or("its start is logged", logged, || root.run(&["logs", "up"]).out);
    // A day may have ended between the two.
    let logged = (healthy - first).rem_euclid(86_400.0);
    assert!(
        after >= logged,
        "up after {after} s, but {logged} s lie between two lines of its log before that"
    );
}

#[test]
fn a_killed_app_is_removed_and_comes_back_under_its_name_as_a_new_incarnation() {
    let (root, up) = Root::with_cluster(&[]);
    let before = root.healthy();
    let killed = root.run(&["kill", "app-2"]).ends(0).out;
    assert!(killed.starts_with(&format!("killed app-2 (pid {}, ", before.pid("app-2"))), "{killed}");
    let degraded = root.until("app-2 is missed", |s| s.code == Some(1) && s.reasons().contains("app-2"));
    assert!(degraded.reasons().contains("app-2 down"), "{degraded:?}");
    let how = "killed by SIGKILL";
    root.until("how it ended is known", |s| s.reasons().contains(&format!("app-2 down: {how}")));
    let status = root.status();
    assert_eq!(status.process("app-2")["ended"], how);
    let about = status.advice("app-2 down");
    assert!(about["since"].is_string() && about["remedy"] == "`obol start app-2`", "{status:?}");
    let text = root.run(&["status"]).out;
    let below =
        text.lines().skip_while(|line| !line.starts_with("  ! app-2 down")).nth(1).unwrap_or_default();
    assert!(below.starts_with("      since 20") && below.ends_with(" ago): `obol start app-2`"), "{text}");
    up.until_view("app-2 is removed", |view| view["members"] == 8);
    root.until("it is not a member", |s| s.incarnation("app-2") == 0);
    let (_, who) = killed.trim_end_matches(")\n").rsplit_once(' ').expect("its incarnation");
    let out = root.run(&["events", "--last", "100000"]).ends(0).out;
    assert!(out.contains(&format!("app-2 ({who}), reported by ")), "{out}");
    let names = |event: &Value| event["event"] == "notice" && event["a"].as_u64() == who.parse().ok();
    let notice = root.events().into_iter().find(names).expect("it is suspected");
    assert!(notice["who"] == "app-2" && notice["by"].is_string(), "{notice}");
    let text = notice["text"].as_str().expect("text");
    assert!(text.starts_with(&format!("app-2 ({who}), reported by ")), "{notice}");
    let started = root.run(&["start", "app-2"]).ends(0).out;
    assert!(started.starts_with("started app-2 (pid "), "{started}");
    let after = root.healthy();
    let since = |time: &str| root.run(&["events", "--json", "--since", time]).ends(0).out.lines().count();
    let of_last_hour = since("1h");
    let all = root.events().len();
    assert!((1..=all).contains(&of_last_hour) && since("now") < all, "{of_last_hour} of {all}");
    assert!(since(notice["time"].as_str().expect("a time")) > 0, "{notice}");
    assert!(after.incarnation("app-2") > before.incarnation("app-2"));
    assert_ne!(after.pid("app-2"), before.pid("app-2"));
    assert_eq!(after.pid("app-1"), before.pid("app-1"));
    assert!(after.view() > before.view());
    let rows = after.json["processes"].as_array().expect("rows");
    let app_2 = |row: &&Value| row["name"] == "app-2";
    assert_eq!(rows.iter().filter(app_2).count(), 1, "its predecessor is not shown beside it");
}

#[test]
fn every_kind_of_process_leaves_gracefully_when_it_is_stopped_and_nobody_fails() {
    let (root, _up) = Root::with_cluster(&["--caches", "1"]);
    let before = root.healthy();
    // An agent takes its app along, which then attaches to the agent's successor.
    for name in ["app-2", "cache-1", "coord-1", "coord-2", "node-3"] {
        let stopped = root.run(&["stop", name]).ends(0).out;
        assert!(stopped.starts_with(&format!("stopped {name} (pid ")), "{stopped}");
        assert!(stopped.ends_with("it left the cluster\n"), "{stopped}");
        if name != "app-2" {
            // Its flight recorder outlives it until its place is taken.
            let says = |e: &Value| e["event"] == "left" && e["process"] == name;
            assert!(root.events().iter().any(says), "{name}");
        }
        root.run(&["start", name]).ends(0);
        let after = root.healthy();
        assert!(after.incarnation(name) > before.incarnation(name), "{name}");
    }
    let after = root.healthy();
    // What processes have counted since: those that were restarted began at zero.
    let since = |counter: &str| {
        let count = |p: &Value| p["counters"][counter].as_u64().unwrap_or(0);
        let earlier =
            |p: &Value| before.processes().into_values().find(|b| b["pid"] == p["pid"]).map_or(0, count);
        after.processes().into_values().map(|p| count(p) - earlier(p)).sum::<u64>()
    };
    // A busy machine may suspect a process that only got no core; otherwise none failed.
    assert!(since("failures") == 0 || since("heartbeat_suspicions") > 0, "{after:?}");
}

#[test]
fn without_a_majority_a_process_can_only_end() {
    let (root, _up) = Root::with_cluster(&["--coordinators", "1", "--apps", "1"]);
    root.run(&["kill", "coord-1"]).ends(0);
    let stopped = root.run(&["stop", "node-1"]).ends(1).out;
    assert!(stopped.ends_with("it ended without leaving\n"), "{stopped}");
}

#[test]
fn a_process_that_was_just_killed_can_be_started_again_at_once() {
    let (root, _up) = Root::with_cluster(&["--coordinators", "1", "--apps", "1"]);
    for _ in 0..5 {
        root.run(&["kill", "app-1"]).ends(0);
        root.run(&["start", "app-1"]).ends(0);
        root.healthy();
    }
}

#[test]
fn the_leader_can_be_killed_by_its_role_and_another_leads() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let leader = root.until("there is a leader", |s| s.json["leader"].is_string()).json["leader"].clone();
    let killed = root.run(&["kill", "leader"]).ends(0).out;
    assert!(killed.starts_with("killed coord-"), "{killed}");
    let name = killed.split(' ').nth(1).expect("a name").to_owned();
    assert_eq!(leader, name);
    let led = |s: &Status| s.json["leader"].as_str().is_some_and(|new| new != name);
    root.until("another leads, and the app is active", |s| led(s) && s.is_active("app-1"));
    root.run(&["start", &name]).ends(0);
    root.healthy();
}

#[test]
fn down_ends_a_cluster_that_runs() {
    let (root, up) = Root::with_cluster(&["--apps", "1"]);
    assert_eq!(root.run(&["down"]).ends(0).out, "cluster default is down\n");
    // The cluster is gone, and its supervisor is about to end.
    up.end().well();
    root.is_gone();
    root.run(&["status"]).refused(&["no cluster default in", "there are none: `obol up`"]);
    root.run(&["down"]).refused(&["no cluster default in"]);
}

#[test]
fn clusters_side_by_side_do_not_touch_each_other() {
    let root = Root::new();
    let [a, b] = ["alpha", "beta"].map(|name| ["--cluster", name]);
    let small = ["--coordinators", "1", "--apps", "1"];
    let _alpha = root.up(&[&small[..], &a].concat());
    let mut beta = root.up(&[&small[..], &b].concat());
    let before = root.status_in(&b).pids();
    root.run(&[&["kill", "app-1"], &a[..]].concat()).ends(0);
    until("alpha misses its app", || root.status_in(&a).reasons().contains("app-1 down"));
    root.run(&["status"]).refused(&["no cluster default in", "there are: alpha, beta"]);
    root.run(&[&["down"], &a[..]].concat()).ends(0);
    assert_eq!(root.status_in(&b).pids(), before);
    assert!(beta.runs());
    // The environment names a cluster as well as the option does.
    let by_environment = Ran::of(root.command(&["down"]).env("OBOL_CLUSTER", "beta"));
    assert_eq!(by_environment.ends(0).out, "cluster beta is down\n");
    root.is_gone();
}

#[test]
fn the_profile_dedicated_comes_up_with_privileges_and_without() {
    let root = Root::alone(Alone::RealTime);
    let up = root.up(&["--profile", "dedicated", "--coordinators", "1", "--apps", "1"]);
    let status = root.healthy();
    assert_eq!(status.json["profile"], "dedicated");
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", status.pid("coord-1"))).expect("it lives");
    // Field 41; field 3 follows the last bracket. SCHED_FIFO is 1.
    let fields = stat.rsplit(") ").next().expect("fields");
    let fifo = fields.split(' ').nth(41 - 3) == Some("1");
    root.run(&["down"]).ends(0);
    let said = up.end().well().err;
    assert_eq!(fifo, !said.contains("no real-time scheduling"), "{said}");
}

#[test]
fn without_a_majority_and_without_leases_a_cluster_is_unavailable() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    root.run(&["kill", "coord-1"]).ends(0);
    root.until("one of three is missed, and the others do", |s| s.code == Some(1));
    root.run(&["kill", "coord-2"]).ends(0);
    let lost = root.until("every lease has ended", |s| s.code == Some(3));
    assert_eq!(lost.json["health"], "unavailable", "{lost:?}");
    assert!(lost.reasons().contains("coordinator majority lost: 1 of 3 run"), "{lost:?}");
    let text = root.run(&["status"]).ends(3).out;
    assert!(text.starts_with("cluster default  unavailable  "), "{text}");
    root.run(&["start", "coord-2"]).ends(0);
    root.until("programs act again", |s| s.code == Some(1) && s.is_active("app-1"));
    root.run(&["start", "coord-1"]).ends(0);
    root.healthy();
}

#[test]
fn where_no_program_is_a_member_a_cluster_is_unavailable() {
    let root = Root::new();
    let _up = root.up(&["--apps", "1"]);
    root.run(&["kill", "node-1"]).ends(0);
    let none = root.until("no agent is left", |s| s.code == Some(3));
    assert!(none.reasons().contains("no program is a member: no program may act"), "{none:?}");
    root.run(&["start", "node-1"]).ends(0);
    root.healthy();
}

#[test]
fn agents_alone_are_no_programs_that_may_act() {
    let (root, _up) = Root::with_cluster(&["--apps", "2"]);
    root.run(&["kill", "app-1"]).ends(0);
    root.until("the other app acts", |s| s.code == Some(1) && s.reasons().contains("app-1 down"));
    root.run(&["kill", "app-2"]).ends(0);
    let none = root.until("no app is left", |s| s.code == Some(3));
    assert!(none.reasons().contains("no program is a member: no program may act"), "{none:?}");
    root.run(&["start", "app-2"]).ends(0);
    root.until("one app acts again", |s| s.code == Some(1) && s.is_active("app-2"));
    root.run(&["start", "app-1"]).ends(0);
    root.healthy();
}

#[test]
fn an_agent_leaves_with_its_app_and_both_come_back_whenever_it_is_started() {
    let (root, _up) = Root::with_cluster(&["--apps", "2"]);
    let stopped = root.run(&["stop", "node-1"]).ends(0);
    assert!(stopped.err.contains("app-1 cannot act without node-1: start it again"), "{stopped:?}");
    root.until("its program is missed", |s| {
        s.code == Some(1) && s.reasons().contains("app-1 has no agent and cannot act: node-1 left")
    });
    root.run(&["kill", "app-1"]).ends(0);
    root.healthy();
    let started = root.run(&["start", "app-1"]).ends(0);
    assert!(started.err.contains("it waits for its agent: `obol start node-1`"), "{started:?}");
    assert_eq!(root.healthy().process("app-1")["left"], true, "it is not down");
    // Their memory gets other owners.
    for n in 0..20 {
        root.run(&["lease", "set", &format!("{}ms", 20 + n % 2)]).ends(0);
    }
    let after = root.healthy();
    for name in ["node-1", "app-1"] {
        assert_eq!(after.process(name)["left"], true, "{after:?}");
    }
    root.run(&["start", "node-1"]).ends(0);
    root.until("the app attached by itself", |s| s.code == Some(0) && s.is_active("app-1"));
}

#[test]
fn who_is_missed_keeps_a_row_when_its_memory_has_another_owner() {
    let root = Root::new();
    let _up = root.up(&["--apps", "2"]);
    root.run(&["kill", "node-1"]).ends(0);
    // Each of these takes a region for a moment, in time the dead ones'.
    for n in 0..20 {
        root.run(&["lease", "set", &format!("{}ms", 20 + n % 2)]).ends(0);
    }
    let after = root.until("both are missed", |s| s.reasons().contains("node-1, app-1 down"));
    for name in ["node-1", "app-1"] {
        assert_eq!(after.process(name)["alive"], false, "{after:?}");
    }
    let text = root.run(&["status"]).ends(1).out;
    assert!(text.lines().any(|line| line.starts_with("node-1 ") && line.contains(" down ")), "{text}");
}

#[test]
fn while_the_memory_of_frozen_coordinators_answers_a_cluster_is_only_degraded() {
    let (root, _up) = Root::with_cluster(&["--coordinators", "1", "--apps", "1"]);
    let pid = root.status().pid("coord-1");
    freeze(pid);
    let frozen = |s: &Status| s.code == Some(1) && s.reasons().contains("coord-1 is frozen");
    root.until("leases are renewed from its memory", |s| frozen(s) && s.is_active("app-1"));
    signal("CONT", &[pid]);
    root.healthy();
}

#[test]
fn a_coordinator_that_left_is_missed_and_not_called_down() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let said = root.run(&["stop", "coord-2"]).ends(0);
    assert!(said.out.contains("it left the cluster") && !said.err.contains("majority"), "{said:?}");
    let after = root.until("it is missed", |s| s.code == Some(1) && s.reasons().contains("coord-2 left"));
    let coordinator = after.process("coord-2");
    assert_eq!((&coordinator["left"], &coordinator["alive"]), (&true.into(), &false.into()), "{after:?}");
    let text = root.run(&["status"]).ends(1).out;
    let row = text.lines().find(|line| line.starts_with("coord-2 ")).expect("its row is kept");
    assert!(row.contains(" left "), "{text}");
    root.run(&["start", "coord-2"]).ends(0);
    root.healthy();
    root.run(&["kill", "coord-2"]).ends(0);
    root.until("this time it is down", |s| s.reasons().contains("coord-2 down"));
    let said = root.run(&["stop", "coord-3"]);
    assert!(said.err.contains("no majority runs any more (only coord-1)"), "{said:?}");
}

#[test]
fn a_process_that_ended_as_it_was_asked_is_not_missed() {
    let (root, _up) = Root::with_cluster(&["--apps", "2"]);
    root.run(&["stop", "app-1"]).ends(0);
    let after = root.healthy();
    assert_eq!(
        (after.process("app-1")["left"].clone(), after.process("app-1")["alive"].clone()),
        (true.into(), false.into())
    );
    let text = root.run(&["status"]).ends(0).out;
    let row = text.lines().find(|line| line.starts_with("app-1 ")).expect("its row is kept");
    assert!(row.contains(" left "), "{text}");
    // Its seat goes to another program, which has done its work when it ends well.
    let place = root.path().to_str().expect("text");
    root.run(&["run", "--root", place, "--name", "other", "--node", "node-1", "--", "true"]).ends(0);
    let place = root.path().to_str().expect("text");
    root.run(&["run", "--root", place, "--name", "another", "--node", "node-1", "--", "true"]).ends(0);
    root.healthy();
    root.run(&["start", "app-1"]).ends(0);
    root.until("it serves again", |s| s.code == Some(0) && s.is_active("app-1"));
    root.run(&["kill", "app-1"]).ends(0);
    root.until("this time it is missed", |s| s.code == Some(1) && s.reasons().contains("app-1 down"));
}

#[test]
fn a_program_without_an_agent_lives() {
    let (root, _up) = Root::with_cluster(&["--apps", "3"]);
    let flags =
        |s: &Status, name: &str| ["alive", "left", "agent_alive"].map(|key| s.process(name)[key].clone());
    let pid = root.healthy().pid("app-3");
    root.run(&["stop", "node-3"]).ends(0);
    let stopped = |s: &Status| {
        s.reasons().contains("app-3 has no agent and cannot act: node-3 left")
            && flags(s, "app-3") == [true, false, false].map(Value::from)
    };
    root.until("it runs, and cannot act", stopped);
    let text = root.run(&["status"]).ends(1).out;
    let row = text.lines().find(|line| line.starts_with("app-3 ")).expect("a row");
    assert!(row.contains(" no agent "), "{text}");
    assert_eq!(root.status().pid("app-3"), pid);
    root.run(&["kill", "node-2"]).ends(0);
    let killed = |s: &Status| {
        s.reasons().contains("app-2 has no agent")
            && flags(s, "app-2") == [true, false, false].map(Value::from)
    };
    let seen = root.until("its process lives", killed);
    assert_eq!(seen.code, Some(1), "{seen:?}");
    // Its process dies: then it is down.
    root.run(&["kill", "app-2"]).ends(0);
    root.until("it is down", |s| s.reasons().contains("app-2 down") && flags(s, "app-2")[0] == false);
}

//! The gate of a rollout, on a cluster that goes through one.

use crate::support::share::Alone;
use crate::support::{Ran, Root, freeze, signal, until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

fn marks(root: &Root) -> Vec<Value> {
    marks_of(&root.cluster())
}

fn marks_of(dir: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(dir.join("marks")).unwrap_or_default();
    let all = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    all.filter(|mark| mark["rollout"].is_object()).collect()
}

fn gate(root: &Root, options: &[&str], command: &[&str]) -> Ran {
    let mut gate = root.command(&[&["rollout", "--baseline", "1s", "--settle", "1s"], options].concat());
    Ran::of(gate.arg("--").args(command))
}

#[test]
fn a_rollout_passes_if_its_limits_hold_and_fails_by_its_limits_or_its_command() {
    let root = Root::alone(Alone::Measures);
    let _up = root.up(&[]);
    let obol = env!("CARGO_BIN_EXE_obol");
    let at = root.path().to_str().expect("text").to_owned();
    // A member that leaves on request does not count as failed.
    let restart =
        format!("{obol} stop app-2 --root {at} && {obol} start app-2 --root {at} && echo rolled out");
    let out = root.note("report");
    let dir = out.to_str().expect("text");
    let ran =
        gate(&root, &["--max-failed", "0", "--max-failover", "10s", "--out", dir], &["sh", "-c", &restart])
            .ends(0);
    assert!(ran.out.contains("rolled out") && ran.out.contains("passed"), "{ran:?}");
    let read = |name: &str| std::fs::read_to_string(Path::new(dir).join(name)).expect("it was written");
    let json: Value = serde_json::from_str(&read("rollout.json")).expect("JSON");
    assert_eq!((&json["verdict"], &json["since"]["left"]), (&"passed".into(), &1.into()), "{json}");
    assert!(
        read("rollout.md").contains("| members left on request |") && read("rollout.html").contains("<table")
    );
    let steps: Vec<Value> = marks(&root).iter().map(|mark| mark["rollout"]["step"].clone()).collect();
    assert!(steps.first().is_some_and(|step| step == "begins"), "{steps:?}");
    assert!(steps.last().is_some_and(|step| step == "over"), "{steps:?}");

    root.healthy();
    let ran = gate(&root, &["--max-failed", "0", "--json"], &["sh", "-c", "echo out; exit 7"]).ends(3);
    assert!(ran.err.contains("out") && ran.json()["command"]["status"] == "exit status: 7", "{ran:?}");
    let ran = gate(&root, &["--max-failover-p50", "+20%"], &["touch", "/nonexistent/never-run"]).ends(6);
    assert!(ran.out.contains("5 more are needed") && ran.out.contains("not run"), "{ran:?}");
    let ran = gate(&root, &["--max-failover-p50", "10s"], &["true"]).ends(6);
    assert!(ran.out.contains("failover p50 was not judged: it needs 5 more samples since"), "{ran:?}");
    gate(&root, &["--max-failed", "0"], &["no-such-program"])
        .refused(&["there is no program no-such-program"]);
    gate(&root, &["--max-failed", "0", "--out", dir], &["true"]).refused(&["nothing is overwritten"]);
}

#[test]
fn a_rollout_is_aborted_as_soon_as_a_limit_cannot_hold_any_more_and_the_hook_is_run() {
    let (root, _up) = Root::with_cluster(&[]);
    let obol = env!("CARGO_BIN_EXE_obol");
    let at = root.path().to_str().expect("text").to_owned();
    let undone = root.note("undone");
    let hook = format!("echo $OBOL_ROLLOUT_VERDICT: $OBOL_ROLLOUT_REASONS > {}", undone.display());
    let broken = format!("{obol} kill app-2 --root {at}; sleep 600");
    let ran = gate(&root, &["--max-failed", "0", "--abort-hook", &hook], &["sh", "-c", &broken]).ends(4);
    assert!(ran.out.contains("limit EXCEEDED   members failed 1"), "{ran:?}");
    let said = std::fs::read_to_string(&undone).expect("the hook was run");
    let who = said.trim().strip_prefix("aborted: members failed 1 (before 0, limit 0): app-2 (");
    assert!(who.is_some_and(|rest| rest.contains(" by view ")), "{said}");
    assert!(ran.out.contains("failed since    app-2 ("), "{ran:?}");
    let last = marks(&root).pop().expect("marks");
    assert_eq!((&last["rollout"]["phase"], &last["rollout"]["step"]), (&"aborted".into(), &"over".into()));

    // A cluster that is not healthy is none to roll out on.
    root.run(&["start", "app-2"]).ends(0);
    let frozen = root.healthy().pid("app-1");
    freeze(frozen);
    root.until("it shows", |status| status.code == Some(1));
    gate(&root, &["--max-failed", "0"], &["true"]).refused(&["so nothing is rolled out", "app-1"]);
    signal("CONT", &[frozen]);
    root.healthy();

    // A signal ends the command, too.
    let mut command = root.command(&["rollout", "--baseline", "1s", "--max-failed", "9"]);
    let child = command.args(["--", "sleep", "600"]).stdin(Stdio::null()).spawn().expect("it starts");
    until("the command runs", || {
        marks(&root).last().is_some_and(|mark| mark["rollout"]["phase"] == "running")
    });
    signal("TERM", &[i64::from(child.id())]);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(5));
}

#[test]
fn a_rollout_that_ends_the_cluster_fails() {
    let (root, up) = Root::with_cluster(&[]);
    let command = format!("kill -9 {}", up.pid());
    let ran = gate(&root, &["--max-failed", "0"], &["sh", "-c", &command]).ends(1);
    assert!(ran.err.contains("the cluster is un") || ran.out.contains("the cluster is un"), "{ran:?}");
}

#[test]
fn an_exercise_gives_samples_on_both_sides() {
    let root = Root::alone(Alone::Measures);
    let _up = root.up(&[]);
    let obol = env!("CARGO_BIN_EXE_obol");
    let exercise = format!("{obol} drill app --count 6 --root {}", root.path().display());
    let ran = gate(
        &root,
        &["--max-failover-p50", "+100000%", "--max-failed", "0", "--exercise", &exercise, "--json"],
        &["true"],
    )
    .ends(0);
    let json = ran.json();
    for side in ["before", "since"] {
        assert!(json[side]["failovers_us"]["n"].as_u64() >= Some(5), "{json}");
    }
    assert_eq!(json["compared"][0]["holds"], true, "{json}");
    assert_eq!(json["exercises"].as_array().map(Vec::len), Some(2), "{json}");
}

#[test]
fn the_consoles_of_all_hosts_show_a_rollout_with_its_limits() {
    let (root, _up) = Root::with_cluster(&["--hosts", "3"]);
    let limits = ["failover-p50", "failover-p90", "failover-p99", "failover", "renewal-p99", "unavailable"];
    let mut options: Vec<String> = limits.iter().map(|limit| format!("--max-{limit}=60s")).collect();
    options.extend(["--max-late-renewals=100%", "--max-failed=9", "--json"].map(str::to_owned));
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    // Without a failover, its limits cannot be judged; what consoles show is the same.
    let ran = gate(&root, &options, &["true"]).ends(6);
    assert!(!ran.err.contains("consoles of other hosts"), "{ran:?}");
    // Durations are those of all hosts, as the numbers of renewals are. They are read less often.
    let said = ran.json();
    let of_both = |of: &dyn Fn(&Value) -> Option<u64>| -> u64 {
        ["before", "since"].iter().map(|period| of(&said[period]).expect("a number")).sum()
    };
    let durations = of_both(&|period| period["renewals_us"]["n"].as_u64());
    let all = of_both(&|period| period["renewals_timely"].as_u64());
    assert!(durations * 2 > all && all > 0, "{said:#}");
    for dir in ["default", "default.2", "default.3"] {
        let dir = root.path().join(dir);
        // A gateway answers before its annotation is written.
        until("its end is there", || {
            marks_of(&dir).last().is_some_and(|mark| mark["rollout"]["step"] == "over")
        });
        let all = marks_of(&dir);
        assert_eq!(all[0]["rollout"]["step"], "begins", "{all:?}");
        let last = &all[all.len() - 1]["rollout"];
        assert_eq!(last["phase"], "void", "{all:?}");
        assert_eq!(last["compared"].as_array().map(Vec::len), Some(8), "{all:?}");
    }
}

#[test]
fn a_rollout_after_which_members_are_missing_fails_whatever_its_limits() {
    let root = Root::alone(Alone::Measures);
    let _up = root.up(&[]);
    let obol = env!("CARGO_BIN_EXE_obol");
    let at = root.path().to_str().expect("text").to_owned();
    let each = |verb: &str, names: [&str; 2]| {
        names.map(|name| format!("{obol} {verb} {name} --root {at}")).join(" && ")
    };
    // Two nodes are stopped: their leaves do not count as failures, and two programs have no agent.
    let limits = ["--max-failed", "0", "--max-failover", "10s"];
    let ran = gate(&root, &limits, &["sh", "-c", &each("stop", ["node-1", "node-2"])]).ends(1);
    assert!(ran.out.contains("app-1, app-2, node-1, node-2 did not come back, or cannot act"), "{ran:?}");
    assert!(ran.out.contains("app-1 has no agent and cannot act: node-1 left"), "{ran:?}");
    for name in ["node-1", "node-2"] {
        root.run(&["start", name]).ends(0);
    }
    root.healthy();
    // Two programs are killed, and nothing limits failures.
    let killed = each("kill", ["app-1", "app-2"]);
    let ran = gate(&root, &["--max-late-renewals", "100%"], &["sh", "-c", &killed]).ends(1);
    assert!(ran.out.contains("app-1, app-2 did not come back, or cannot act"), "{ran:?}");
    assert!(ran.out.contains("the cluster is degraded: app-1, app-2 down"), "{ran:?}");
    for name in ["app-1", "app-2"] {
        root.run(&["start", name]).ends(0);
    }
    root.healthy();
    // It can be allowed.
    let stopped = each("stop", ["app-1", "app-2"]);
    gate(&root, &["--max-failed", "0", "--allow-degraded"], &["sh", "-c", &stopped]).ends(0);
    // A command that hangs, with all that it has started.
    let options = ["--max-failed", "0", "--timeout", "1s"];
    let ran = gate(&root, &options, &["sh", "-c", "sleep 600 & sleep 600"]).ends(3);
    assert!(ran.out.contains("the command did not end within 1.00s"), "{ran:?}");
    // A coordinator less, whose name comes before those that are left.
    let removed = format!("{obol} coordinator remove 1 --root {at}");
    let ran = gate(&root, &["--max-failed", "0"], &["sh", "-c", &removed]).ends(1);
    assert!(ran.out.contains("fewer coordinators decide than before (2, not 3): coord-1 no more"), "{ran:?}");
    let removed = format!("{obol} coordinator remove 2 --root {at}");
    gate(&root, &["--max-failed", "0", "--allow-degraded"], &["sh", "-c", &removed]).ends(0);
}

/// Two of three replicas are killed, and come back without memory: all members are there.
#[test]
fn a_rollout_after_which_the_store_has_no_majority_fails() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let serve = |name: &str| {
        let mut command = root.command(&["smr", "server", "--name", name, "--voters", "3"]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("it starts");
        root.until("it is a member", |status| status.is_active(name));
        child
    };
    let mut replicas: Vec<Child> = ["smr-1", "smr-2", "smr-3"].map(serve).into();
    // It is not before the store has three copies.
    let before = root.healthy();
    let go_on = root.note("go-on");
    let text = format!("until [ -e {} ]; do sleep 0.02; done", go_on.display());
    let mut command = root.command(&["rollout", "--baseline", "1s", "--settle", "1s"]);
    command.args(["--max-late-renewals", "100%", "--", "sh", "-c", &text]).stdin(Stdio::null());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    until("the command runs", || {
        marks(&root).last().is_some_and(|mark| mark["rollout"]["phase"] == "running")
    });
    let names = ["smr-1", "smr-2"];
    signal("KILL", &names.map(|name| before.pid(name)));
    for replica in &mut replicas[..2] {
        assert!(replica.wait().is_ok());
    }
    root.until("they are removed", |status| names.iter().all(|name| !status.is_active(name)));
    replicas.extend(names.map(serve));
    root.until("the store lacks a majority", |status| status.reasons().contains("the store does not serve"));
    std::fs::write(&go_on, "").expect("written");
    let ended = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stdout);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("the cluster is degraded: the store does not serve"), "{said}");
    assert!(!said.contains("did not come back"), "{said}");
    for mut replica in replicas.into_iter().skip(2) {
        replica.kill().expect("it runs");
        assert!(replica.wait().is_ok());
    }
}

/// The commands in a text that begin with `obol rollout`, with the lines that they go on in.
fn recipes(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let line = line.trim_start().trim_start_matches("- run: ").trim_start_matches("$ ");
        if !line.starts_with("obol rollout -") || line.contains("--help") {
            continue;
        }
        let mut recipe = line.to_owned();
        while recipe.ends_with('\\') || recipe.matches('\'').count() % 2 == 1 {
            recipe.push('\n');
            recipe.push_str(lines.next().expect("the command ends"));
        }
        found.push(recipe);
    }
    found
}

/// Runs a command in a folder, with the programs there.
fn within<'a>(command: &'a mut Command, folder: &Path) -> &'a mut Command {
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").expect("a path"));
    command.env("PATH", path).current_dir(folder)
}

/// What a shell makes of a command's arguments, by a program in this folder that is called `obol`.
fn arguments(recipe: &str, folder: &Path) -> Vec<String> {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec 3>arguments; {recipe}")]);
    Ran::of(within(&mut shell, folder)).ends(0);
    let said = std::fs::read_to_string(folder.join("arguments")).expect("text");
    said.split("\n.\n").filter(|one| !one.is_empty()).map(str::to_owned).collect()
}

/// The recipes of the documentation and of `--help` are understood, and pass no crash loop. A pod of them
/// starts, fails and starts again, as Kubernetes and systemd have it.
#[test]
fn no_recipe_of_the_documentation_passes_a_crash_loop() {
    let root = Root::new();
    let folder = root.note("recipes");
    std::fs::create_dir_all(&folder).expect("made");
    // None of them is run but the first.
    for name in ["obol", "deploy", "ansible-playbook"] {
        let program = folder.join(name);
        std::fs::write(&program, "#!/bin/sh\nprintf '%s\\n.\\n' \"$@\" >&3\n").expect("written");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("set");
    }
    let help = root.run(&["rollout", "--help"]).ends(0).out;
    let read = |name: &str| {
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)).expect("text")
    };
    let texts = [help, read("README.md"), read("docs/rollout.md"), read("docs/operations.md")];
    let all: Vec<Vec<String>> =
        texts.iter().flat_map(|text| recipes(text)).map(|recipe| arguments(&recipe, &folder)).collect();
    assert!(all.len() >= 9, "{all:?}");
    let mut limits = BTreeSet::new();
    for recipe in &all {
        let words: Vec<&str> = recipe.iter().map(String::as_str).collect();
        let own = words.iter().position(|word| *word == "--").expect("a command");
        let (options, command) = words.split_at(own);
        // It is read, and there is no such cluster.
        let ran = Ran::of(within(root.command(options).args(command), &folder));
        assert!(ran.code == Some(2) && ran.err.contains("no cluster"), "{words:?}: {ran:?}");
        let mut kept = Vec::new();
        let mut options = options[1..].iter();
        while let Some(option) = options.next() {
            match *option {
                "--json" => {}
                // Hours, files, commands, and what needs failovers before it is judged.
                "--baseline" | "--settle" | "--timeout" | "--name" | "--out" | "--abort-hook"
                | "--exercise" | "--max-failover-p99" => _ = options.next(),
                option => kept.extend([option, options.next().expect("a value")]),
            }
        }
        if kept.is_empty() {
            kept = vec!["--max-failover", "1h"];
        }
        limits.insert(kept);
    }
    let _up = root.up(&["--apps", "1"]);
    let pod = || {
        let mut command = root.command(&["run", "--name", "shop-7d9fbc6b5-x2x9z", "--node", "node-1"]);
        command.args(["--", "sh", "-c", "sleep 0.3; exit 1"]).stdin(Stdio::null()).stderr(Stdio::null());
        assert_eq!(command.status().expect("it starts").code(), Some(1));
    };
    let go_on = root.note("go-on");
    for limits in limits {
        let text = format!("touch {}; sleep 1", go_on.display());
        // On a busy machine the cluster may not be healthy when the gate looks, which refuses.
        let mut child = loop {
            root.healthy();
            let mut command = root.command(&["rollout", "--baseline", "1s", "--settle", "2s"]);
            command.args(&limits).args(["--", "sh", "-c", &text]).stdin(Stdio::null());
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
            until("it begins", || go_on.exists() || child.try_wait().expect("a child").is_some());
            if go_on.exists() {
                break child;
            }
            let ended = child.wait_with_output().expect("it ended");
            let said = String::from_utf8_lossy(&ended.stderr);
            assert!(ended.status.code() == Some(2) && said.contains("nothing is rolled out"), "{said}");
        };
        while child.try_wait().expect("a child").is_none() {
            pod();
        }
        let ended = child.wait_with_output().expect("it ended");
        let said = String::from_utf8_lossy(&ended.stdout);
        assert!(matches!(ended.status.code(), Some(1 | 4)), "{limits:?}: {said}");
        assert!(said.contains("shop-7d9fbc6b5-x2x9z"), "{limits:?}: {said}");
        std::fs::remove_file(&go_on).expect("it is there");
        root.run(&["forget", "shop-7d9fbc6b5-x2x9z"]).ends(0);
        root.healthy();
    }
}

//! The command line: what is refused and in which words, what is printed for scripts, and what a
//! closed pipe does.

use crate::support::{Ran, Root, obol, until};
use obol_checks::skipped;
use serde_json::json;
use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};

pub(crate) fn ran(arguments: &[&str]) -> Ran {
    Ran::of(obol().args(arguments))
}

/// Groups of commands that work on no cluster of the operator's, and so do not list the cluster's options.
const WITHOUT_CLUSTER: [&str; 5] = ["bench", "sim", "profile", "config", "completions"];

/// Every command that operators see, with its options.
const COMMANDS: [(&[&str], &[&str]); 26] = [
    (&["up"], &["--coordinators", "--apps", "--profile", "--headless", "--for", "--json", "obol status"]),
    (
        &["status"],
        &["--json", "exit code 0 healthy, 1 degraded, 2 unreachable, 3 unavailable", "every lease has ended"],
    ),
    (&["events"], &["--since", "--last", "--json"]),
    (&["watch"], &["--from", "--since", "--count", "--once", "--save", "--json", "Exit codes"]),
    (&["kill"], &["<TARGET>", "leader"]),
    (&["stop"], &["<TARGET>", "gracefully"]),
    (&["start"], &["<TARGET>", "app-2"]),
    (&["down"], &["crashed `up`", "--json"]),
    (&["forget"], &["<NAME>", "--json"]),
    (&["coordinator", "add"], &["[NUMBER]", "--json", "Exit codes"]),
    (&["coordinator", "remove"], &["<NUMBER>", "--json", "Exit codes"]),
    (&["coordinator", "replace"], &["<NUMBER>", "--with", "--json", "Exit codes"]),
    (&["coordinator", "recover"], &["--from", "--json", "Exit codes", "nothing is lost"]),
    (&["drill"], &["--count", "--gap", "--json", "app+coordinator", "void"]),
    (&["bench"], &["--count", "--json"]),
    (&["sim", "campaign"], &["--count", "--seed", "--out", "--json"]),
    (&["sim", "replay"], &["<SEED|FILE>", "--mutant"]),
    (&["sim", "shrink"], &["<SEED|FILE>", "--mutant", "--out", "--budget"]),
    (&["profile", "list"], &["--json"]),
    (&["profile", "show"], &["<PROFILE>", "--json"]),
    (&["profile", "check"], &["<FILE>", "--json"]),
    (&["profile", "reference"], &["--json"]),
    (&["config", "check"], &["[FILE]", "--json"]),
    (&["config", "print"], &["[FILE]", "--json"]),
    (&["config", "schema"], &[]),
    (&["completions"], &["<SHELL>", "bash", "zsh", "fish"]),
];

#[test]
fn the_help_of_each_command_names_its_options() {
    let all = ran(&["--help"]).ends(0).out;
    for (command, wanted) in COMMANDS {
        assert!(all.contains(&format!("\n  {} ", command[0])), "{command:?} in:\n{all}");
        let help = ran(&[command, &["--help"]].concat()).ends(0).out;
        for word in wanted.iter().chain(&["Usage: obol "]) {
            assert!(help.contains(word), "{word:?} is not in:\n{help}");
        }
        assert_eq!(!help.contains("--cluster"), WITHOUT_CLUSTER.contains(&command[0]), "{help}");
    }
    assert!(all.contains("Exit codes") && all.contains("OBOL_CLUSTER"), "{all}");
    for hidden in ["\n  agent ", "\n  app ", "lease-cache", "\n  floor"] {
        assert!(!all.contains(hidden), "{hidden:?} is for the supervisor only:\n{all}");
    }
}

#[test]
fn without_a_command_the_commands_are_listed_whatever_the_environment_says() {
    let bare = ran(&[]);
    assert!(bare.code == Some(2) && bare.err.contains("Start a cluster on this host"), "{bare:?}");
    let with = Ran::of(obol().env("OBOL_CLUSTER", "x")).ends(2).err;
    assert!(with.contains("drill") && !with.contains("\n  floor"), "{with}");
    let mistyped = ran(&["upp"]).ends(2).err;
    assert!(mistyped.contains("a similar subcommand exists: 'up'"), "{mistyped}");
}

#[test]
fn a_name_in_the_wrong_place_leads_to_the_right_one() {
    for (line, tip) in [
        (&["drill", "freeze"][..], "this is a command: 'obol drill run freeze'"),
        (&["freeze"], "this is a command: 'obol drill run freeze'"),
        (&["replace"], "this is a command: 'obol coordinator replace'"),
        (&["drill", "show", "leader"], "see also `obol drill leader`"),
    ] {
        ran(line).refused(&[tip]);
    }
    let help = ran(&["coordinator-replace", "--help"]).ends(0).out;
    assert!(help.contains("Usage: obol coordinator replace "), "{help}");
}

#[test]
fn a_comparison_with_what_is_not_installed_says_what_to_install() {
    let root = Root::new();
    let missing = Ran::of(root.command(&["bench", "--vs", "etcd,serf"]).env("PATH", "/nowhere")).ends(2).err;
    for wanted in ["apt install etcd-server", "apt install serf", "nothing that --vs names is installed"] {
        assert!(missing.contains(wanted), "{wanted:?} is not in:\n{missing}");
    }
    let unknown = ran(&["bench", "--vs", "etc"]).ends(2).err;
    assert!(unknown.contains("possible values: etcd, zookeeper, serf"), "{unknown}");
}

#[test]
fn completions_are_scripts_of_their_shells() {
    for (shell, check) in [("bash", "bash"), ("zsh", "zsh"), ("fish", "fish")] {
        let script = ran(&["completions", shell]).ends(0).out;
        for word in ["drill", "--headless", "status"] {
            assert!(script.contains(word.trim_start_matches("--")), "{word} for {shell}");
        }
        // A shell that is here reads its script without a complaint.
        let file = tempfile::NamedTempFile::new().expect("made");
        fs::write(&file, &script).expect("written");
        match Command::new(check).arg("-n").arg(file.path()).output() {
            Ok(read) => assert!(read.status.success(), "{shell}: {}", String::from_utf8_lossy(&read.stderr)),
            Err(error) => skipped(&format!("completions-{shell}"), error),
        }
    }
    ran(&["completions", "cmd"]).refused(&["invalid value 'cmd'", "bash"]);
}

#[test]
fn numbers_out_of_range_are_refused_with_the_range() {
    for (arguments, words) in [
        (&["up", "--coordinators", "0"][..], ["--coordinators <N>", "0 is not in 1..=7"]),
        (&["up", "--coordinators", "8"], ["--coordinators <N>", "8 is not in 1..=7"]),
        (&["up", "--apps", "0"], ["--apps <N>", "0 is not in 1..=64"]),
        (&["up", "--apps", "-1"], ["unexpected argument '-1'", "Usage"]),
        (&["up", "--apps", "65"], ["--apps <N>", "65 is not in 1..=64"]),
        (&["drill", "app", "--count", "0"], ["--count <N>", "0 is not in 1..=100000"]),
        (&["drill", "app", "--count", "many"], ["--count <N>", "invalid digit"]),
        (&["drill", "everybody"], ["invalid value 'everybody'", "app+coordinator"]),
        (&["events", "--last", "-3"], ["unexpected argument '-3'", "Usage"]),
    ] {
        ran(arguments).refused(&words);
    }
}

#[test]
fn times_and_names_that_make_no_sense_are_refused_with_a_reason() {
    for (arguments, words) in [
        (&["up", "--for", "20"][..], ["has no unit", "20ms"]),
        (&["up", "--for", "20q"], ["--for <TIME>", "20q"]),
        (&["up", "--for", ""], ["--for <TIME>", "''"]),
        (&["up", "--for", "0s"], ["--for <TIME>", "less than 1us"]),
        (&["up", "--for", "99999999999999999999s"], ["--for <TIME>", "99999999999999999999s"]),
        (&["drill", "app", "--gap", "1"], ["--gap <TIME>", "has no unit"]),
        (&["status", "--cluster", "a b"], ["--cluster <NAME>", "a name is made of"]),
        (&["status", "--cluster", "../etc"], ["--cluster <NAME>", "a name is made of"]),
        (&["status", "--cluster", ""], ["--cluster <NAME>", "name"]),
        (&["status", "--cluster", "a-name-that-is-longer-than-23-bytes"], ["--cluster <NAME>", "23"]),
    ] {
        ran(arguments).refused(&words);
    }
}

#[test]
fn the_problems_of_a_refused_file_are_printed_for_scripts() {
    let file = std::env::temp_dir().join(format!("obol-refused-{}.toml", std::process::id()));
    fs::write(&file, "schema = 1\nnosuchkey = 2\n").expect("written");
    let path = file.to_str().expect("text");
    for command in [&["host", "check"][..], &["hooks", "check"], &["plan", "network"], &["profile", "check"]]
    {
        let ran = ran(&[command, &[path, "--json"]].concat()).ends(2);
        let found: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
        let problems = found["problems"].as_array().expect("a list");
        assert!(
            problems.iter().any(|one| one["line"] == 2 && one["text"].is_string()),
            "{command:?}: {found}"
        );
    }
    fs::remove_file(&file).expect("removed");
}

#[test]
fn a_file_without_an_end_or_a_beginning_is_refused() {
    let fifo = std::env::temp_dir().join(format!("obol-fifo-{}", std::process::id()));
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo runs").success());
    let path = fifo.to_str().expect("text");
    for file in ["/dev/zero", path] {
        for arguments in [
            &["sim", "replay", file][..],
            &["profile", "check", file],
            &["host", "check", file],
            &["replay", file],
            &["drill", "show", file],
        ] {
            ran(arguments).refused(&[file, "not a regular file"]);
        }
    }
    fs::remove_file(&fifo).expect("removed");
    // What a shell makes of a pipeline and of <(command) has no name, and is read to its end.
    let piped = "$0 profile show laptop | $0 profile check /dev/stdin";
    Ran::of(Command::new("sh").args(["-c", piped]).arg(env!("CARGO_BIN_EXE_obol"))).ends(0);
}

#[test]
fn a_bad_profile_is_refused_with_line_and_column_and_leaves_nothing() {
    let root = Root::new();
    let good = ran(&["profile", "show", "laptop"]).ends(0).out;
    let file = std::env::temp_dir().join(format!("obol-profile-{}.toml", std::process::id()));
    let path = file.to_str().expect("text").to_owned();
    let line_of = |text: &str, of: &str| text.lines().position(|l| l.starts_with(of)).expect("a line") + 1;
    for (old, new, column, words) in [
        (
            "renew_every = ",
            "renew_evry = ",
            1,
            "unknown key lease.renew_evry; did you mean lease.renew_every?",
        ),
        ("confirm = 3", "confirm = 1", 11, "heartbeat.confirm"),
        ("duration = \"20ms\"", "duration = 20", 12, "lease.duration is the integer 20"),
        ("schema = 1", "schema = 2", 10, "schema is 2, but this obol reads schema 1 only"),
        ("policy = \"other\"", "policy = \"idle\"", 10, "scheduling.policy"),
    ] {
        assert!(good.contains(old), "{old}");
        let bad = good.replacen(old, new, 1);
        fs::write(&file, &bad).expect("written");
        let place = format!("{path}:{}:{column}: ", line_of(&bad, new));
        root.run(&["up", "--headless", "--profile", &path]).refused(&[&place, words]);
        let check = ran(&["profile", "check", &path]);
        assert_eq!(check.out, "", "it is not good");
        check.refused(&[&place, words]);
        root.is_gone();
    }
    fs::write(&file, good).expect("written");
    ran(&["profile", "check", &path]).ends(0);
    fs::remove_file(&file).expect("removed");
    root.run(&["up", "--profile", &path]).refused(&[&path]);
    root.run(&["up", "--profile", "desktop"]).refused(&["desktop", "laptop", "dedicated"]);
    root.is_gone();
}

#[test]
fn profiles_are_listed_shown_and_checked_for_scripts() {
    let listed = ran(&["profile", "list", "--json"]).ends(0).json();
    assert_eq!(listed[0]["name"], "laptop");
    assert!(listed[0]["description"].is_string(), "{listed}");
    let shown = ran(&["profile", "show", "laptop", "--json"]).ends(0).json();
    assert_eq!((&shown["name"], &shown["lease"]["duration"]), (&"laptop".into(), &"20ms".into()));
    let reference = ran(&["profile", "reference", "--json"]).ends(0).json();
    let keys = reference["keys"].as_array().expect("an array");
    let lease = keys.iter().find(|key| key["key"] == "lease.duration").expect("a key");
    assert!(lease["wanted"].as_str().is_some_and(|wanted| wanted.starts_with("A duration from ")), "{lease}");
    assert!(reference["rules"].as_array().is_some_and(|rules| !rules.is_empty()), "{reference}");
    let root = Root::new();
    let file = root.note("profile.toml");
    let path = file.to_str().expect("text");
    let text = ran(&["profile", "show", "laptop"]).ends(0).out;
    fs::write(&file, &text).expect("written");
    assert_eq!(
        ran(&["profile", "check", path, "--json"]).ends(0).json(),
        json!({"file": path, "name": "laptop", "problems": []})
    );
    fs::write(&file, text.replacen("renew_every = ", "renew_evry = ", 1)).expect("written");
    let bad = ran(&["profile", "check", path, "--json"]).ends(2);
    assert!(bad.err.contains("did you mean lease.renew_every?"), "{bad:?}");
    let (json, text) = (bad.json(), "unknown key lease.renew_evry; did you mean lease.renew_every?");
    let mut problems = json["problems"].as_array().expect("an array").iter();
    let problem = problems.find(|problem| problem["text"] == text).expect("the mistyped key");
    assert_eq!((&problem["column"], problem["line"].is_u64()), (&1.into(), true), "{bad:?}");
    fs::remove_file(&file).expect("removed");
    assert_eq!(ran(&["profile", "check", path, "--json"]).ends(2).out, "", "it cannot be read");
}

#[test]
fn configurations_are_printed_and_checked_for_scripts() {
    let root = Root::new();
    let file = root.note("console.toml");
    let path = file.to_str().expect("text");
    fs::write(&file, "theme = \"dark\"\n").expect("written");
    let printed = ran(&["config", "print", path, "--json"]).ends(0).json();
    assert_eq!((&printed["theme"], &printed["mouse"]), (&"dark".into(), &true.into()));
    assert!(printed["keys"]["quit"].is_array(), "{printed}");
    let check = |code| ran(&["config", "check", path, "--json"]).ends(code);
    assert_eq!(check(0).json(), json!({"file": path, "exists": true, "problems": []}));
    fs::write(&file, "theme = \"drak\"\n").expect("written");
    let bad = check(2).json();
    let problem = &bad["problems"][0];
    assert_eq!((&problem["line"], &problem["column"]), (&1.into(), &9.into()), "{bad}");
    assert!(problem["text"].as_str().is_some_and(|text| text.contains("did you mean dark?")), "{bad}");
    let none = root.note("none");
    let mut own = obol();
    own.args(["config", "check", "--json"]).env("XDG_CONFIG_HOME", &none).env_remove("OBOL_CONFIG");
    let own = Ran::of(&mut own).ends(0).json();
    let wanted = none.join("obol/console.toml");
    assert_eq!(own, json!({"file": wanted.to_str(), "exists": false, "problems": []}));
}

#[test]
fn unknown_targets_are_answered_with_what_there_is() {
    let (root, _up) = Root::with_cluster(&["--coordinators", "1", "--apps", "1"]);
    for target in ["app-9", "app", "", "Leader", "app-1 "] {
        root.run(&["kill", target]).refused(&[
            "no live process",
            "coord-1, node-1, app-1",
            "the role leader",
        ]);
        root.run(&["start", target]).refused(&["no process", "app-1, coord-1, node-1"]);
    }
    root.run(&["start", "app-1"]).refused(&["app-1 runs already (pid "]);
    root.run(&["kill", "app-1"]).ends(0);
    root.until("app-1 is dead", |s| s.reasons().contains("app-1 down"));
    root.run(&["kill", "app-1"]).refused(&["no live process app-1", "coord-1, node-1"]);
}

#[test]
fn a_reader_that_goes_away_ends_a_command_quietly() {
    let (root, _up) = Root::with_cluster(&["--coordinators", "1", "--apps", "1"]);
    for command in
        [&["status"][..], &["status", "--json"], &["events"], &["--help"], &["completions", "bash"]]
    {
        let mut child =
            root.command(command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        drop(child.stdout.take());
        let mut said = String::new();
        child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
        let status = child.wait().expect("a child");
        assert_eq!((said.as_str(), status.code().is_some()), ("", true), "{command:?}: {status:?}");
    }
}

#[test]
fn a_verdict_is_the_exit_code_also_if_nobody_reads_the_output() {
    let root = Root::new();
    let (log, drill) = (root.note("audit"), root.note("drill.toml"));
    fs::write(&drill, root.run(&["drill", "show", "app"]).ends(0).out).expect("written");
    let audited = |arguments: &[&str]| {
        let mut command = root.command(arguments);
        command.env("OBOL_AUDIT", &log).stdin(Stdio::null());
        command
    };
    Ran::of(&mut audited(&["drill", "approve", drill.to_str().expect("text")])).ends(0);
    let altered = fs::read_to_string(&log).expect("an entry") + "no entry\n";
    fs::write(&log, altered).expect("written");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let status = audited(&["drill", "audit"]).stdout(writer).stderr(Stdio::null()).status();
    assert_eq!(status.expect("it runs").code(), Some(1), "the log was altered");
}

#[test]
fn an_up_whose_reader_goes_away_ends_its_cluster() {
    let root = Root::new();
    let mut command = root.command(&["up", "--headless", "--json", "--coordinators", "1", "--apps", "1"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut first = [0];
    let mut out = child.stdout.take().expect("piped");
    out.read_exact(&mut first).expect("something is printed");
    drop(out);
    // Nothing happens that it would have to say.
    until("up has ended", || child.try_wait().expect("a child").is_some());
    root.is_gone();
}

/// As `| head -1` does: nothing is written any more that would say so.
#[test]
fn a_command_that_follows_ends_when_its_reader_has_gone() {
    let (root, _up) = Root::with_cluster(&["--coordinators", "1", "--apps", "1"]);
    root.healthy();
    for command in [&["watch"][..], &["watch", "--json"], &["logs", "--follow", "--level", "error"]] {
        let mut child = root.command(command);
        let mut child = child.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut out = child.stdout.take().expect("piped");
        if command[0] == "watch" {
            out.read_exact(&mut [0]).expect("the newest view is printed");
        }
        drop(out);
        until("it ends", || child.try_wait().expect("a child").is_some());
        assert!(child.wait().expect("a child").success(), "{command:?}");
    }
}

#[test]
fn an_output_that_cannot_be_written_has_an_exit_code_that_no_health_has() {
    let (root, _up) = Root::with_cluster(&["--coordinators", "1", "--apps", "1"]);
    root.healthy();
    for command in [
        &["status"][..],
        &["status", "--json"],
        &["events"],
        &["watch", "--once"],
        &["watch", "--count", "1"],
        &["logs"],
        &["profile", "show", "laptop"],
        &["export", "rules"],
        &["completions", "bash"],
        &["--help"],
        &["status", "--help"],
    ] {
        let full = fs::File::options().write(true).open("/dev/full").expect("open");
        let ended = root.command(command).stdin(Stdio::null()).stdout(full).output().expect("it runs");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(7), "{command:?}: {said}");
        assert!(said.contains("could not write the output: No space left"), "{command:?}: {said}");
    }
    // Devices and open files are written to, and not replaced.
    let folder = tempfile::tempdir().expect("made");
    let file = folder.path().join("printed");
    let printed = fs::File::create(&file).expect("made");
    let report = |to: &str| root.command(&["report", "--for", "300ms", "-o", to]);
    let ended = report("/dev/stdout").stdin(Stdio::null()).stdout(printed).status().expect("it runs");
    assert_eq!(ended.code(), Some(0));
    assert!(fs::read_to_string(&file).expect("text").starts_with('#'), "a report in Markdown");
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    let full = Ran::of(&mut report("/dev/full")).ends(1).err;
    assert!(full.contains("cannot write /dev/full: No space left"), "{full}");
    // A health is an answer also if nobody reads the rest.
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    until("a status is the answer of a healthy cluster", || {
        let writer = writer.try_clone().expect("a pipe");
        let unread = root.command(&["status"]).stdout(writer).status().expect("it runs");
        assert!([Some(0), Some(1)].contains(&unread.code()), "{unread}");
        unread.code() == Some(0)
    });
}

#[test]
fn a_file_for_which_there_is_no_space_stays_as_it_was() {
    let folder = tempfile::tempdir().expect("made");
    let page = folder.path().join("obol.1");
    fs::write(&page, "old").expect("written");
    // Whatever file it begins ends in its first block, as on a disk that is full.
    let short = "ulimit -f 1; exec \"$0\" man --out \"$1\"";
    let mut command = Command::new("sh");
    let command = command.args(["-c", short, env!("CARGO_BIN_EXE_obol")]).arg(folder.path());
    let said = Ran::of(command).ends(1).err;
    assert!(said.contains("cannot write") && said.contains("obol.1: File too large"), "{said}");
    assert_eq!(fs::read_to_string(&page).expect("there"), "old");
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "no draft is left");
}

#[test]
fn an_empty_variable_is_as_good_as_none() {
    let root = Root::new();
    let status = |set: &[&str]| {
        let mut command = obol();
        command.args(["status", "--json", "--root"]).arg(root.path()).args(set);
        command.env("OBOL_ROOT", "").env("OBOL_CLUSTER", "");
        Ran::of(&mut command).ends(2)
    };
    assert_eq!(status(&[]).json()["cluster"], "default");
    // What is written on the command line is not.
    assert!(status(&["--cluster", ""]).err.contains("--cluster"));
}

#[test]
fn the_status_of_what_is_not_there_has_every_key() {
    let root = Root::new();
    let (none, root) = (root.run(&["status", "--json"]).ends(2).json(), root);
    for key in ["view", "leader", "deadbeat", "replacement", "gateway"] {
        assert!(none.get(key).is_some_and(serde_json::Value::is_null), "{key}: {none}");
    }
    drop(root);
}

#[test]
fn nothing_is_coloured_without_a_terminal_or_against_no_color() {
    let (root, _up) = Root::with_cluster(&["--coordinators", "1", "--apps", "1"]);
    for command in [
        &["status"][..],
        &["events"],
        &["--help"],
        &["up", "--help"],
        &["kill", "x"],
        &["upp"],
        &["up", "--apps", "0"],
    ] {
        let plain = root.run(command);
        assert!(!plain.out.contains('\x1b') && !plain.err.contains('\x1b'), "{plain:?}");
    }
    let on_terminal = |colour: Option<&str>| {
        let shown = format!("{} up --apps 0; {} status --root {}", bin(), bin(), root.path().display());
        let mut script = Command::new("script");
        script.args(["-qec", &shown, "/dev/null"]).env("TERM", "xterm-256color").env_remove("NO_COLOR");
        if let Some(colour) = colour {
            script.env("NO_COLOR", colour);
        }
        script.stdin(Stdio::null()).output()
    };
    match on_terminal(Some("1")) {
        Ok(shown) => assert!(!shown.stdout.contains(&0x1b), "{}", String::from_utf8_lossy(&shown.stdout)),
        Err(error) => skipped("no-color-on-a-terminal", format_args!("`script` does not run: {error}")),
    }
}

fn bin() -> &'static str {
    env!("CARGO_BIN_EXE_obol")
}

/// What a command printed may move no cursor and name no window, whatever it was given.
#[test]
fn no_text_command_passes_control_sequences_on() {
    const EVIL: &str = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{202e}x";
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let line = serde_json::json!({ "at": 1, "text": EVIL, "drill": { "name": EVIL, "verdict": EVIL } });
    std::fs::write(root.cluster().join("marks"), format!("{line}\n")).expect("written");
    let folder = root.note(format!("evil-{EVIL}"));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("file.toml");
    std::fs::write(&file, format!("title = {:?}\nname = \"{EVIL}\"\n[{EVIL}]\n\"{EVIL}\" = 1\n", "x"))
        .expect("written");
    let path = file.to_str().expect("text");
    let none = folder.join("none");
    let none = none.to_str().expect("text");
    let all: [&[&str]; 16] = [
        &["status"],
        &["status", "--json"],
        &["events"],
        &["events", "--json"],
        &["report", "--for", "300ms"],
        &["report", "--for", "300ms", "--format", "json"],
        &["report", "--for", "300ms", "--format", "html"],
        &["report", path],
        &["replay", none],
        &["drill", "plan", path],
        &["drill", "run", none],
        &["config", "check", path],
        &["config", "print", none],
        &["profile", "check", path],
        &["kill", EVIL],
        &["mark", EVIL],
    ];
    for command in all {
        let ran = root.run(command);
        for text in [&ran.out, &ran.err] {
            let bad = text
                .chars()
                .find(|letter| obol_term::plain::is_hostile(*letter) && !"\n\r\t".contains(*letter));
            assert_eq!(bad, None, "{command:?}: {text:?}");
        }
    }
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn every_simulation_takes_the_largest_seed_and_refuses_any_beyond() {
    let root = Root::new();
    let largest = u64::MAX.to_string();
    let from = |seed: u64, seeds: u64| {
        root.run(&["sim", "campaign", "--count", &seeds.to_string(), "--seed", &seed.to_string(), "--json"])
    };
    from(u64::MAX, 5).refused(&["--count 5", "beyond the largest seed", &largest]);
    from(2, u64::MAX).refused(&["beyond the largest seed", &largest]);
    assert_eq!(from(u64::MAX, 1).ends(0).json()["seeds"], 1);
    assert_eq!(from(u64::MAX - 1, 2).ends(0).json()["seeds"], 2);
    root.run(&["sim", "replay", &largest]).ends(0);
    root.run(&["sim", "shrink", &largest]).refused(&["breaks no invariant"]);
    root.run(&["sim", "table2", "--count", "2", "--seed", &largest, "--json"]).ends(0).json();
    root.run(&["sim", "leases", "--for", "1ms", "--seed", &largest, "--json"]).ends(0).json();
    root.run(&["sim", "scale", "--up-to", "8", "--count", "2", "--seed", &largest, "--json"]).ends(0).json();
    for command in [&["drill", "app", "--count"][..], &["drill", "run", "app", "--sim", "--count"]] {
        let counted = |count: u64| root.run(&[command, &[&count.to_string()]].concat());
        for count in [0, 100_001, u64::from(u32::MAX), u64::MAX] {
            counted(count).refused(&["'--count <N>'"]);
        }
    }
}

#[test]
fn a_campaign_without_seeds_is_refused() {
    let root = Root::new();
    root.run(&["sim", "campaign", "--count", "0"]).refused(&["--count", "0 is not in 1.."]);
}

#[test]
fn a_campaign_whose_scenarios_would_have_no_place_is_refused_before_it_begins() {
    let root = Root::new();
    let keep = root.note("missing");
    let keep = keep.to_str().expect("text");
    root.run(&["sim", "campaign", "--count", "1", "--out", keep])
        .refused(&[keep, "there is no such directory"]);
}

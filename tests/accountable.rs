//! Who may run drills: the kill switch, abort conditions by probes, approvals, and the audit log.

use crate::support::{Ran, Root, obol, signal, until};
use obol_checks::skipped;
use obol_fabric::host::peer::user;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;

/// A drill that stops an app for a long time.
fn file(root: &Root, guards: &str) -> String {
    let path = root.note("mine.toml");
    let text = format!(
        "[drill]\nschema = 1\nid = \"long\"\ntitle = \"An app hangs for long\"\nenvironment = \"local\"\n\
         [guards]\n{guards}\n[targets]\napp = {{ kind = \"app\", name = \"app-1\" }}\n[[steady]]\n\
         probe = \"processes.up\"\n[[step]]\nname = \"hang\"\n\
         fault = {{ kind = \"freeze\", for = \"10m\", target = \"app\" }}\n"
    );
    std::fs::write(&path, text).expect("written");
    path.to_str().expect("text").to_owned()
}

fn state_of(pid: i64) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

/// Runs a drill, and meanwhile, while its victim is stopped, something else.
fn during(root: &Root, file: &str, act: impl FnOnce()) -> Ran {
    let victim = root.healthy().pid("app-1");
    let mut command = root.command(&["drill", "run", file, "--json"]);
    let ran = std::thread::spawn(move || Ran::of(&mut command));
    until("the victim is stopped", || state_of(victim) == Some('T') || ran.is_finished());
    act();
    let ran = ran.join().expect("it ends");
    assert_ne!(state_of(victim), Some('T'), "it was undone: {ran:?}");
    ran
}

fn audit(root: &Root) -> Vec<Value> {
    let ran = root.run(&["drill", "audit", "--json"]).ends(0);
    ran.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn remarks(ran: &Ran) -> String {
    ran.json()["remarks"].to_string()
}

#[test]
fn a_drill_ends_at_once_when_it_is_halted_or_a_probe_aborts_it_and_all_of_it_is_logged() {
    let (root, _up) = Root::with_cluster(&[]);
    let flag = root.note("flag");
    let probe = format!(
        "abort = [{{ probe = \"command\", argv = [\"test\", \"!\", \"-e\", {flag:?}], every = \"100ms\", samples = 2 }}]"
    );
    let aborted = during(&root, &file(&root, &probe), || std::fs::write(&flag, "").expect("written")).ends(4);
    assert!(remarks(&aborted).contains("aborted by a probe after 2 looks in a row"), "{aborted:?}");

    let mine = file(&root, "");
    let halted = during(&root, &mine, || {
        root.run(&["drill", "halt", "--reason", "the shop is on sale"]).ends(0);
        assert_ne!(state_of(root.status().pid("app-1")), Some('T'), "it was undone before the command ended");
    })
    .ends(4);
    assert!(remarks(&halted).contains("the shop is on sale"), "{halted:?}");
    root.run(&["drill", "run", &mine]).refused(&["the shop is on sale", "obol drill resume"]);
    root.run(&["drill", "app", "--count", "1"]).refused(&["the shop is on sale"]);
    let plan = root.run(&["drill", "plan", "app"]).ends(2);
    assert!(plan.out.contains("guard halt") && plan.out.contains("it may not run"), "{plan:?}");
    root.run(&["drill", "resume"]).ends(0);
    root.healthy();
    root.run(&["drill", "app", "--count", "1"]).ends(0);

    let entries = audit(&root);
    let found: Vec<(&str, &str)> = entries
        .iter()
        .map(|entry| (entry["event"].as_str().expect("text"), entry["drill"].as_str().unwrap_or("")))
        .collect();
    let of = |event| (event, "long");
    let expected = [
        of("began"),
        of("ended"),
        of("began"),
        ("halted", ""),
        of("ended"),
        of("refused"),
        ("refused", "app"),
        ("resumed", ""),
        ("began", "app"),
        ("ended", "app"),
    ];
    // The command `halt` and the drill that it ends write at the same time.
    let sorted = |mut all: Vec<(String, String)>| {
        all.sort();
        all
    };
    let owned = |all: &[(&str, &str)]| all.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
    assert_eq!(sorted(owned(&found)), sorted(owned(&expected)), "{entries:#?}");
    let began = &entries[0];
    assert_eq!(began["victims"], serde_json::json!(["app-1"]));
    assert_eq!(began["file"], Value::from(mine));
    assert_eq!(began["sha256"].as_str().map(str::len), Some(64));
    assert!(began["who"]["uid"].is_u64() && began["who"]["host"].is_string(), "{began}");
    assert!(
        entries[1]["outcome"].as_str().is_some_and(|outcome| outcome.starts_with("aborted")),
        "{entries:?}"
    );
    assert_eq!(root.run(&["drill", "audit", "--since", "2000-01-01"]).ends(0).out.lines().count(), 10);
    assert_eq!(root.run(&["drill", "audit", "--since", "2499-01-01"]).ends(0).out, "");
}

#[test]
fn a_halt_that_cannot_be_logged_is_in_force_all_the_same() {
    let (root, _up) = Root::with_cluster(&["--coordinators", "1", "--apps", "1"]);
    for (order, done) in [("halt", "are halted"), ("resume", "may run again")] {
        let ran = Ran::of(root.command(&["drill", order]).env("OBOL_AUDIT", "/dev/null/audit")).ends(0);
        assert!(ran.out.contains(done), "{ran:?}");
        assert!(
            ran.err.contains("this could not be logged: ") && ran.err.contains("/dev/null/audit"),
            "{ran:?}"
        );
    }
}

#[test]
fn a_signal_undoes_a_fault_at_once_however_long_it_lasts() {
    let (root, _up) = Root::with_cluster(&["--coordinators", "1", "--apps", "1"]);
    let victim = root.healthy().pid("app-1");
    let mut command = root.command(&["drill", "run", &file(&root, ""), "--json"]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts");
    until("the victim is stopped", || state_of(victim) == Some('T'));
    signal("INT", &[i64::from(child.id())]);
    let ended = child.wait_with_output().expect("a child");
    assert_ne!(state_of(victim), Some('T'), "it was undone before the command ended");
    let report: Value = serde_json::from_slice(&ended.stdout).expect("one object");
    assert_eq!((ended.status.code(), &report["verdict"]), (Some(5), &"interrupted".into()), "{report}");
    assert!(report["remarks"].to_string().contains("a signal ended the drill"), "{report}");
    root.healthy();
}

/// Makes an approval as another user.
fn approve(root: &Root, file: &str, at: &Path) -> Ran {
    let mut command = obol();
    command.args(["drill", "approve", file, "--out"]).arg(at).arg("--root").arg(root.path());
    Ran::of(command.env("OBOL_AUDIT", at.with_extension("audit")).uid(65534).gid(65534))
}

#[test]
fn a_drill_that_needs_an_approval_runs_after_somebody_else_has_approved_its_text() {
    let (root, _up) = Root::with_cluster(&[]);
    let mine = file(&root, "require_approval = true");
    // A short one, so that it passes.
    let text = std::fs::read_to_string(&mine).expect("read").replace("10m", "1s");
    std::fs::write(&mine, &text).expect("written");
    root.run(&["drill", "run", &mine]).refused(&["another user has to run `obol drill approve"]);
    let plan = root.run(&["drill", "plan", &mine]).ends(2);
    for said in ["guard require_approval", "REFUSES", "obol drill approve", "it may not run"] {
        assert!(plan.out.contains(said), "{plan:?}");
    }
    root.run(&["drill", "approve", &mine]).ends(0);
    root.run(&["drill", "run", &mine]).refused(&["another user has to approve it"]);
    if user() != 0 {
        return skipped("change-user", "an approval of another user");
    }
    let desk = root.note("desk");
    std::fs::create_dir(&desk).expect("made");
    std::fs::set_permissions(&desk, std::fs::Permissions::from_mode(0o1777)).expect("changed");
    let at = desk.join("approval");
    let approval = at.to_str().expect("text");
    approve(&root, &mine, &at).ends(0);
    root.run(&["drill", "run", &mine, "--approval", approval]).ends(0);
    let entries = audit(&root);
    let ended = entries.last().expect("entries");
    assert!(ended["approved_by"].as_str().is_some_and(|who| who.contains("uid 65534")), "{ended}");
    std::fs::write(&mine, text.replace("1s", "2s")).expect("written");
    root.run(&["drill", "run", &mine, "--approval", approval]).refused(&["has to be approved again"]);
}

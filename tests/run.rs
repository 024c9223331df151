//! Programs as they are: `obol run` makes them members, ends their membership with them, and leaves
//! nothing behind.

use crate::support::{Ran, Root, has_ended, signal, until, until_or};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A `run` at `node-1` in the background; the script gets the root, so that a test that fails
/// leaves nothing behind.
pub(crate) fn wrapped(root: &Root, options: &[&str], script: &str) -> Command {
    let mut command = root.command(&["run", "--json", "--name", "guest", "--node", "node-1"]);
    command.args(options).args(["--", "sh", "-c", script, "sh"]).arg(root.path());
    command
}

/// What a `run` has printed on standard error, by the name of the event.
pub(crate) fn events(ran: &Ran, event: &str) -> Vec<serde_json::Value> {
    let lines = ran.err.lines().map(|line| serde_json::from_str(line).expect("a line of JSON"));
    lines.filter(|line: &serde_json::Value| line["event"] == event).collect()
}

/// Runs in the background; gives the pid of `run` when the guest is active, and the rest when it
/// has ended.
pub(crate) struct Background {
    pub(crate) pid: i64,
    ran: std::thread::JoinHandle<Ran>,
}

impl Background {
    pub(crate) fn start(root: &Root, mut command: Command) -> Self {
        let ran = std::thread::spawn(move || Ran::of(&mut command));
        until("the guest is a member", || root.status().is_active("guest"));
        Self { pid: root.status().pid("guest"), ran }
    }

    pub(crate) fn end(self) -> Ran {
        self.ran.join().expect("it ends")
    }
}

pub(crate) fn read(path: &PathBuf) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The process id that a script writes to a note.
pub(crate) fn pid_in(path: &PathBuf) -> i64 {
    until_or("the script runs", || read(path).trim().parse().ok(), String::new)
}

/// A guest that writes its pid to a note and goes on by the rest of its script.
fn guest(root: &Root, options: &[&str], rest: &str) -> (PathBuf, Background) {
    let pid = root.note("pid");
    let script = format!("echo $$ >{}; {rest}", pid.display());
    let run = Background::start(root, wrapped(root, options, &script));
    (pid, run)
}

/// Goes on until it is killed.
const FOREVER: &str = "while :; do sleep 0.01; done";

#[test]
fn a_program_that_dies_is_removed_and_its_exit_code_passed_on_and_hooks_are_told() {
    let (root, up) = Root::with_cluster(&["--apps", "1"]);
    let (views, lost) = (root.note("views"), root.note("lost"));
    let on_view = format!("echo $OBOL_NAME $OBOL_VIEW $OBOL_MEMBERS >>{}", views.display());
    let on_lost = format!("echo $OBOL_INCARNATION $OBOL_LOST >>{}", lost.display());
    let options = ["--shell", "--on-view", &on_view, "--on-lost", &on_lost];
    let (pid, run) = guest(&root, &options, "exec sleep 1000");
    assert_eq!(up.until_view("the guest is a member", |view| view["members"] == 6)["members"], 6);
    until("the hook is called with a view", || {
        read(&views).lines().any(|line| line.ends_with("app-1 guest"))
    });
    assert!(read(&views).starts_with("guest "), "{}", read(&views));
    signal("KILL", &[pid_in(&pid)]);
    let ran = run.end().ends(128 + 9);
    up.until_view("the guest is removed", |view| view["members"] == 5);
    let member = &events(&ran, "member")[0]["incarnation"];
    assert_eq!(read(&lost), format!("{member} it died of signal 9\n"));
    assert_eq!(events(&ran, "ended")[0]["code"], 137, "{ran:?}");
}

#[test]
fn a_hook_that_stays_is_told_by_lines_is_started_again_and_ends_with_run() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let (hook, lines) = (root.note("hook"), root.note("lines"));
    let stays = format!(
        "echo $$ >{}; while read -r line; do echo $OBOL_NAME: $line >>{}; done",
        hook.display(),
        lines.display()
    );
    let (pid, run) = guest(&root, &["--shell", "--hook-stream", &stays], "exec sleep 1000");
    until("the hook is called with a view", || {
        read(&lines).lines().any(|line| line.ends_with("app-1 guest"))
    });
    assert!(read(&lines).starts_with("guest: view "), "{}", read(&lines));
    let first = pid_in(&hook);
    let guard = parent(first);
    signal("KILL", &[first]);
    until("the hook is dead, and that is known", || has_ended(first) && has_ended(guard));
    signal("KILL", &[pid_in(&pid)]);
    let ran = run.end().ends(128 + 9);
    let member = &events(&ran, "member")[0]["incarnation"];
    assert!(read(&lines).ends_with(&format!(" {member} it died of signal 9\n")), "{}", read(&lines));
    let second = pid_in(&hook);
    assert!(first != second && has_ended(second), "{first}, {second}");
}

#[test]
fn a_program_that_is_asked_to_end_stays_a_member_until_it_has_ended() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let (asked, go, lost) = (root.note("asked"), root.note("go"), root.note("lost"));
    let script = format!(
        "trap 'echo asked >{}; until [ -e {} ]; do sleep 0.01; done; exit 7' TERM; while :; do sleep 0.01; done",
        asked.display(),
        go.display()
    );
    let on_lost = format!("echo $OBOL_LOST >>{}", lost.display());
    let run = Background::start(&root, wrapped(&root, &["--shell", "--on-lost", &on_lost], &script));
    signal("TERM", &[run.pid]);
    until("the program is asked to end", || read(&asked) == "asked\n");
    let member = root.status().incarnation("guest");
    assert!(member > 0, "it left while its program ran");
    assert_eq!(read(&lost), "", "and the role is its own");
    std::fs::write(&go, "").expect("written");
    let ran = run.end().ends(7);
    assert_eq!(read(&lost), "it was asked to end\n");
    assert_eq!((events(&ran, "left").len(), events(&ran, "lost").len()), (1, 0), "{ran:?}");
    assert_eq!(events(&ran, "killed").len(), 0, "{ran:?}");
}

#[test]
fn a_program_that_does_not_end_is_killed_with_all_it_started_before_another_takes_its_role() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let (pids, roles) = (root.note("pids"), root.note("roles"));
    // One that ignores the signal, and a child of it in a session of its own.
    let script = format!(
        "trap '' TERM; setsid sleep 1000 & echo $$ $! >{}; while :; do sleep 0.01; done",
        pids.display()
    );
    let run = Background::start(&root, wrapped(&root, &["--grace", "200ms"], &script));
    let both = || read(&pids).split_whitespace().map(|pid| pid.parse().expect("a pid")).collect::<Vec<i64>>();
    until("the program runs", || both().len() == 2);
    // The other one has the role as soon as the guest is not a member any more.
    let takes = format!(
        "case \" $OBOL_MEMBERS \" in *\" guest \"*) echo waits;; *) kill -0 $(cat {}) 2>/dev/null && echo two || echo one;; esac >>{}",
        pids.display(),
        roles.display()
    );
    let mut heir =
        root.command(&["run", "--name", "heir", "--node", "node-1", "--shell", "--on-view", &takes]);
    heir.args(["--", "sh", "-c", "while :; do sleep 0.01; done", "sh"]).arg(root.path());
    let heir = std::thread::spawn(move || Ran::of(&mut heir));
    until("the heir waits", || read(&roles) == "waits\n");
    signal("TERM", &[run.pid]);
    let ran = run.end().ends(128 + 9);
    assert_eq!(events(&ran, "killed").len(), 1, "{ran:?}");
    assert!(both().into_iter().all(has_ended));
    until("the heir has the role", || read(&roles).ends_with("one\n"));
    assert!(!read(&roles).contains("two"), "both had it: {}", read(&roles));
    signal("TERM", &[root.status().pid("heir")]);
    heir.join().expect("it ends").ends(128 + 15);
}

#[test]
fn a_second_signal_kills_at_once() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let asked = root.note("asked");
    let script = format!("trap 'echo asked >>{}' TERM; while :; do sleep 0.01; done", asked.display());
    let run = Background::start(&root, wrapped(&root, &["--grace", "600s"], &script));
    signal("TERM", &[run.pid]);
    until("the program is asked to end", || read(&asked) == "asked\n");
    signal("TERM", &[run.pid]);
    let ran = run.end().ends(128 + 9);
    assert_eq!(events(&ran, "killed")[0]["why"], "it was terminated twice");
    assert_eq!(events(&ran, "left").len(), 1, "{ran:?}");
}

/// The parent of a process.
pub(crate) fn parent(pid: i64) -> i64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let fields = stat.rsplit(") ").next().expect("fields");
    fields.split_whitespace().nth(1).expect("a parent").parse().expect("a pid")
}

#[test]
fn a_program_that_changed_its_user_dies_with_run() {
    if std::fs::read_to_string("/proc/self/status").is_ok_and(|status| !status.contains("Uid:\t0\t0\t0\t0")) {
        return obol_checks::skipped("change-user", "only root may change the user of a process");
    }
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    // By the kernel's control groups where there are any, and by the shim alone.
    for options in [&[][..], &["--no-group"]] {
        // The kernel forgets then that it was to die with its parent.
        let rest = "exec setpriv --reuid 65534 --clear-groups sh -c 'trap \"\" TERM; while :; do sleep 0.01; done' sh \"$1\"";
        let (pid, run) = guest(&root, options, rest);
        let program = pid_in(&pid);
        until("it has changed its user", || {
            std::fs::read_to_string(format!("/proc/{program}/status"))
                .expect("it lives")
                .contains("Uid:\t65534")
        });
        signal("KILL", &[run.pid]);
        assert_eq!(run.end().code, None, "killed");
        until("the program is gone", || has_ended(program));
        root.until("the guest is removed", |s| !s.is_active("guest"));
        std::fs::remove_file(pid).expect("removed");
    }
}

#[test]
fn a_program_dies_with_its_shim_and_run_says_so() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let (pid, run) = guest(&root, &[], FOREVER);
    let program = pid_in(&pid);
    signal("KILL", &[parent(program)]);
    let ran = run.ran.join().expect("it ends").ends(1);
    assert!(ran.err.contains("the shim, the parent of the program, was killed"), "{ran:?}");
    assert!(has_ended(program));
    root.until("the guest is removed", |s| !s.is_active("guest"));
}

#[test]
fn what_can_not_be_executed_never_joins() {
    let (root, up) = Root::with_cluster(&["--apps", "1"]);
    let data = root.note("data");
    std::fs::write(&data, "no program").expect("written");
    for (program, code) in [("no-such-program", 127), (data.to_str().expect("text"), 126)] {
        let mut command = root.command(&["run", "--json", "--name", "guest", "--node", "node-1"]);
        let ran = Ran::of(command.args(["--", program]));
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(ran.err.contains(program), "{ran:?}");
        for event in ["started", "member", "lost"] {
            assert!(!ran.err.contains(&format!("\"event\":\"{event}\"")), "{ran:?}");
        }
    }
    assert!(up.lines().iter().all(|line| line["members"].as_u64().unwrap_or(0) <= 5), "none joined");
}

#[test]
fn a_frozen_program_is_removed_and_never_wakes_up() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let (pid, run) = guest(&root, &[], FOREVER);
    signal("STOP", &[pid_in(&pid)]);
    let ran = run.end().ends(128 + 9);
    assert_eq!(events(&ran, "lost")[0]["why"], "it was frozen");
    root.until("the guest is removed", |s| !s.is_active("guest"));
}

#[test]
fn a_program_starts_again_by_policy_and_what_it_left_behind_is_ended() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let pid = root.note("pid");
    // Each life leaves an orphan in a session of its own; the last life ends well.
    let script = format!(
        "setsid sleep 1000 & echo $! >>{0}; [ $(wc -l <{0}) -lt 3 ] && exit 1; exit 0",
        pid.display()
    );
    let options = ["--restart", "on-failure", "--restart-backoff", "10ms"];
    let ran = Ran::of(&mut wrapped(&root, &options, &script)).ends(0);
    assert_eq!(events(&ran, "started").len(), 3, "{ran:?}");
    assert_eq!(events(&ran, "restart").len(), 2, "{ran:?}");
    let orphans: Vec<i64> = read(&pid).lines().map(|line| line.parse().expect("a pid")).collect();
    assert!(orphans.iter().all(|orphan| has_ended(*orphan)), "{orphans:?}");
}

#[test]
fn a_program_dies_with_run_and_its_membership_with_both() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let (pid, run) = guest(&root, &[], "exec sleep 1000");
    let program = pid_in(&pid);
    signal("KILL", &[run.pid]);
    assert_eq!(run.end().code, None, "killed");
    until("the program is gone", || has_ended(program));
    root.until("the guest is removed", |s| !s.is_active("guest"));
}

#[test]
fn a_program_without_an_agent_goes_on_if_its_hook_is_told_and_joins_again() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let lost = root.note("lost");
    let on_lost = format!("echo $OBOL_LOST >>{}", lost.display());
    let script = "trap 'exit 0' TERM; while :; do sleep 0.01; done";
    let run = Background::start(&root, wrapped(&root, &["--shell", "--on-lost", &on_lost], script));
    let before = root.healthy().incarnation("guest");
    root.run(&["kill", "node-1"]).ends(0);
    until("the hook is called", || read(&lost).ends_with("its agent ended\n"));
    root.run(&["start", "node-1"]).ends(0);
    root.until("it is a new incarnation", |s| s.incarnation("guest") > before && s.is_active("guest"));
    signal("TERM", &[run.pid]);
    let ran = run.end().ends(0);
    assert_eq!(events(&ran, "started").len(), 1, "one life: {ran:?}");
}

#[test]
fn a_program_joins_when_it_is_healthy_and_is_killed_when_it_is_not_any_more() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let well = root.note("well");
    let health = format!("printf . >>{}; [ -e {} ]", root.note("tries").display(), well.display());
    let options = ["--shell", "--health", &health, "--health-every", "10ms", "--health-failures", "2"];
    let mut command = wrapped(&root, &options, "exec sleep 1000");
    command.stdin(Stdio::null());
    let ran = std::thread::spawn(move || Ran::of(&mut command));
    assert!(!root.healthy().is_active("guest"));
    let tries = root.note("tries");
    until("it was tried often enough", || read(&tries).len() > 5);
    std::fs::write(&well, "").expect("written");
    root.until("the guest is a member", |s| s.is_active("guest"));
    std::fs::remove_file(&well).expect("removed");
    let ran = ran.join().expect("it ends").ends(128 + 9);
    assert_eq!(events(&ran, "lost")[0]["why"], "its health command fails");
    let text = "no member yet: its health command has failed 2 times, and has never succeeded";
    assert_eq!(events(&ran, "trouble")[0]["text"], text);
}

#[test]
fn what_can_not_be_run_is_refused() {
    let (root, _up) = Root::with_cluster(&["--apps", "2"]);
    let run = |options: &[&str], words: &[&str]| {
        let mut command = root.command(&[&["run", "--name", "guest"], options].concat());
        Ran::of(command.arg("--").args(words))
    };
    run(&[], &["true"]).refused(&["several agents", "--node node-1|node-2"]);
    run(&["--node", "node-9"], &["true"]).refused(&["no agent node-9", "--node node-1|node-2"]);
    let mut twin = root.command(&["run", "--name", "app-2", "--node", "node-1"]);
    Ran::of(twin.args(["--", "true"])).refused(&["app-2 runs already", "another --name"]);
    for role in ["leader", "app", "cache"] {
        let mut named = root.command(&["run", "--name", role, "--node", "node-1"]);
        Ran::of(named.args(["--", "true"])).refused(&[role, "a role", "another --name"]);
    }
    run(&["--cluster", "other"], &["true"]).refused(&["no cluster other in"]);
    let missing = run(&["--node", "node-1"], &["no-such-program"]).ends(127).err;
    assert!(missing.contains("no-such-program: No such file"), "{missing}");
    run(&["--node", "node-1"], &["sh", "-c", "exit 3"]).ends(3);
}

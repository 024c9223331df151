//! `obol run`, its shim and the cluster stand still or go: the program does not go on without a
//! member that stands for it.

use crate::frozen::Freezer;
use crate::run::{Background, events, parent, pid_in, read, wrapped};
use crate::support::{Root, freeze, has_ended, signal, until};
use obol_checks::skipped;

#[test]
fn a_program_dies_when_run_stands_still_and_does_not_join_when_it_wakes_up() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let (pid, lost) = (root.note("pid"), root.note("lost"));
    let script = format!("echo $$ >{}; while :; do sleep 0.01; done", pid.display());
    let on_lost = format!("echo lost >>{}", lost.display());
    // With the hook a member that was excluded joins again; without, its program is killed for
    // that.
    let mut losses = 0;
    for options in [&["--shell", "--on-lost", &on_lost][..], &[]] {
        let run = Background::start(&root, wrapped(&root, options, &script));
        let program = pid_in(&pid);
        freeze(run.pid);
        until("the program is dead", || has_ended(program));
        root.until("the guest is removed", |s| !s.is_active("guest"));
        signal("CONT", &[run.pid]);
        let ran = run.end().ends(128 + 9);
        assert_eq!(events(&ran, "killed")[0]["why"], "obol run was frozen", "{ran:?}");
        let after = ran.err.split("\"event\":\"killed\"").last().expect("the rest");
        assert!(!after.contains("\"event\":\"member\""), "it joined again: {ran:?}");
        assert_eq!(events(&ran, "member").len(), events(&ran, "lost").len(), "{ran:?}");
        losses += events(&ran, "lost").len() * usize::from(!options.is_empty());
        std::fs::remove_file(&pid).expect("removed");
    }
    assert_eq!(read(&lost), "lost\n".repeat(losses), "each is reported once");
}

#[test]
fn a_program_dies_when_its_shim_stands_still() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let (pid, lost) = (root.note("pid"), root.note("lost"));
    // A child that has left the program's session.
    let script = format!(
        "setsid sh -c 'while :; do sleep 0.01; done' sh \"$1\" & echo $! >{}; while :; do sleep 0.01; done",
        pid.display()
    );
    let on_lost = format!("echo $OBOL_LOST >>{}", lost.display());
    for options in [&["--shell", "--on-lost", &on_lost][..], &["--no-group"]] {
        let run = Background::start(&root, wrapped(&root, options, &script));
        let child = pid_in(&pid);
        let program = parent(child);
        signal("STOP", &[parent(program)]);
        let ran = run.end().ends(1);
        assert!(ran.err.contains("stood still and was killed, and so was the program"), "{ran:?}");
        assert!(has_ended(program) && has_ended(child));
        let count = |event| ran.err.matches(&format!("\"event\":\"{event}\"")).count();
        assert_eq!(count("lost"), count("member"), "{ran:?}");
        root.until("the guest is removed", |s| !s.is_active("guest"));
        std::fs::remove_file(&pid).expect("removed");
    }
    assert!(read(&lost).ends_with("its shim process died\n"), "{}", read(&lost));
}

#[test]
fn a_program_whose_control_group_is_frozen_is_killed() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let (pid, lost) = (root.note("pid"), root.note("lost"));
    let script = format!("echo $$ >{}; while :; do sleep 0.01; done", pid.display());
    let on_lost = format!("echo $OBOL_LOST >>{}", lost.display());
    let run =
        Background::start(&root, wrapped(&root, &["--shell", "--on-lost", &on_lost, "--no-group"], &script));
    let program = pid_in(&pid);
    root.until("it is a member", |s| s.is_active("guest"));
    let Some(group) = Freezer::with(program) else {
        return skipped("frozen-program", "no control group can be made and frozen");
    };
    until("it is seen", || read(&lost).contains("it was frozen"));
    // In a group of version 1 it dies only now, and stays a member until then.
    group.thaw();
    let ran = run.end().ends(128 + 9);
    assert_eq!(events(&ran, "killed")[0]["why"], "it was frozen", "{ran:?}");
    assert!(has_ended(program));
    root.until("the guest is removed", |s| !s.is_active("guest"));
}

#[test]
fn a_program_joins_the_cluster_that_comes_up_after_its_own_went_down() {
    let (root, up) = Root::with_cluster(&["--apps", "1"]);
    let script = "trap 'exit 0' TERM; while :; do sleep 0.01; done";
    let options = ["--restart", "always", "--restart-backoff", "10ms"];
    let run = Background::start(&root, wrapped(&root, &options, script));
    root.run(&["down"]).ends(0);
    up.end().well();
    let _up = root.up(&["--apps", "1"]);
    let again = root.until("the guest is a member again", |s| s.is_active("guest"));
    assert_eq!(again.pid("guest"), run.pid);
    signal("TERM", &[run.pid]);
    let ran = run.end().ends(0);
    assert!(events(&ran, "member").len() >= 2, "{ran:?}");
}

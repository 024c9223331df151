//! What hooks of `obol run` leave behind when it ends or is killed: nothing.

use crate::run::{Background, events, pid_in, wrapped};
use crate::support::{Root, has_ended, signal, until};
use std::path::Path;

/// A line for the shell that leaves a process in a session of its own, and writes its process id to
/// a note.
fn leaves(root: &Root, note: &Path) -> String {
    let (root, note) = (root.path().display(), note.display());
    format!("setsid sh -c 'echo $$ >{note}; while :; do sleep 0.01; done' sh {root} &")
}

#[test]
fn what_hooks_have_started_dies_with_run() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let left = root.note("left");
    let leaves = leaves(&root, &left);
    let (waits, feeds) = (format!("{leaves} sleep 1000"), format!("{leaves} exec cat"));
    for options in [
        // A hook that runs, one that has ended, one that stays, and a health command.
        ["--shell", "--hook-timeout", "600s", "--on-view", &waits],
        ["--shell", "--hook-timeout", "600s", "--on-view", &leaves],
        ["--shell", "--hook-timeout", "600s", "--hook-stream", &feeds],
        ["--shell", "--health-every", "600s", "--health", &leaves],
    ] {
        let run = Background::start(&root, wrapped(&root, &options, "exec sleep 1000"));
        let process = pid_in(&left);
        signal("KILL", &[run.pid]);
        assert_eq!(run.end().code, None, "killed");
        until("what the hook has started is gone", || has_ended(process));
        root.until("the guest is removed", |s| !s.is_active("guest"));
        std::fs::remove_file(&left).expect("removed");
    }
}

#[test]
fn what_hooks_have_started_ends_with_the_program() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let left = root.note("left");
    let leaves = leaves(&root, &left);
    let feeds = format!("{leaves} exec cat");
    for options in [["--shell", "--on-view", &leaves], ["--shell", "--hook-stream", &feeds]] {
        let run = Background::start(&root, wrapped(&root, &options, "exec sleep 1000"));
        let process = pid_in(&left);
        signal("TERM", &[run.pid]);
        run.end().ends(128 + 15);
        assert!(has_ended(process), "{options:?}");
        std::fs::remove_file(&left).expect("removed");
    }
}

#[test]
fn a_hook_that_takes_too_long_is_killed_with_all_it_has_started() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let left = root.note("left");
    let waits = format!("{} sleep 1000", leaves(&root, &left));
    let options = ["--shell", "--hook-timeout", "5s", "--on-view", &waits];
    let run = Background::start(&root, wrapped(&root, &options, "exec sleep 1000"));
    let process = pid_in(&left);
    until("what the hook has started is gone", || has_ended(process));
    signal("TERM", &[run.pid]);
    let ran = run.end().ends(128 + 15);
    assert_eq!(events(&ran, "hook")[0]["error"], "it took too long and was killed", "{ran:?}");
}

//! Processes in other namespaces of the kernel than the cluster's: from there its pids and times
//! mean something else, so processes that open it from there are refused.

use crate::support::{Ran, Root, Status};
use obol_checks::skipped;
use std::process::Command;

/// A command of `obol`'s under `unshare`.
fn elsewhere(root: &Root, how: &[&str], args: &[&str]) -> Ran {
    let obol = root.command(args);
    let mut unshare = Command::new("unshare");
    unshare.args(how).arg(obol.get_program()).args(obol.get_args());
    // What follows `--` is not read for the root.
    unshare.env("OBOL_ROOT", root.path());
    Ran::of(unshare.envs(obol.get_envs().filter_map(|(key, value)| Some((key, value?)))))
}

#[test]
fn a_cluster_is_refused_from_another_namespace_of_pids_or_clocks_and_bears_it() {
    let root = Root::new();
    let _up = root.up(&["--apps", "1"]);
    let before = root.healthy();
    for (name, how) in [
        ("pid", &["--pid", "--fork", "--mount-proc"][..]),
        ("time", &["--time", "--fork", "--monotonic", "-20"][..]),
    ] {
        let probe = Command::new("unshare").args(how).arg("true").output().expect("util-linux has unshare");
        if !probe.status.success() {
            skipped(&format!("{name}-namespace"), String::from_utf8_lossy(&probe.stderr));
            continue;
        }
        let refusal = format!("was made in another {name} namespace");
        for args in [
            &["status"][..],
            &["down"],
            &["kill", "app-1"],
            &["coordinator", "run", "--number", "6"],
            &["app", "--name", "intruder", "--node", "node-1"],
            &["run", "--name", "intruder", "--node", "node-1", "--", "true"],
        ] {
            let ran = elsewhere(&root, how, args);
            assert!(ran.code == Some(2) && ran.err.contains(&refusal), "{name}, {args:?}: {ran:?}");
        }
    }
    let after = root.healthy();
    // On a busy machine a member may have been suspected meanwhile, and have joined again.
    let members = |of: &Status| of.processes().into_keys().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(members(&after), members(&before), "the membership is unchanged");
}

//! The Python package as its users have it: over the installed library, at a cluster's agent.

use crate::capi::install;
use crate::support::{Ran, Root, alone, until};
use obol_checks::skipped;
use std::path::Path;
use std::process::Command;

const PACKAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../python");

/// The oldest Python with which the package works (`requires-python` in its `pyproject.toml`).
const NEEDED: (u32, u32) = (3, 9);

/// The interpreter with the package and the library; `None` if none can run it here.
fn python(prefix: &Path) -> Option<Command> {
    let mut python = alone(Command::new("python3"));
    let version = "import sys; print(*sys.version_info[:2])";
    let found = python.args(["-c", version]).output().map_err(|error| error.to_string()).and_then(|ran| {
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        let (major, minor) = said.trim().split_once(' ').ok_or_else(|| format!("{ran:?}"))?;
        let numbers: Option<(u32, u32)> = major.parse().ok().zip(minor.parse().ok());
        numbers.filter(|found| *found >= NEEDED).ok_or_else(|| format!("python3 has version {major}.{minor}"))
    });
    if let Err(why) = found {
        skipped("python3", why);
        return None;
    }
    let mut python = alone(Command::new("python3"));
    python
        .args(["-X", "faulthandler"])
        .env("PYTHONPATH", format!("{PACKAGE}/src"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("OBOL_LIBRARY", prefix.join("lib/libobol.so"));
    Some(python)
}

#[test]
fn the_package_fits_the_library_and_passes_its_own_tests() {
    let root = Root::new();
    let prefix = install(&root);
    if let Some(mut python) = python(&prefix) {
        python.args(["-m", "unittest", "discover", "--start-directory"]).arg(format!("{PACKAGE}/tests"));
        let said = Ran::of(&mut python).ends(0).err;
        assert!(said.contains("\nOK") && !said.contains("skipped"), "{said}");
    }
    std::fs::remove_dir_all(&prefix).expect("removed");
}

#[test]
fn a_program_in_python_joins_is_guarded_forks_sees_a_death_and_leaves() {
    let root = Root::new();
    let prefix = install(&root);
    if let Some(mut python) = python(&prefix) {
        let _up = root.up(&["--apps", "2"]);
        python
            .arg(format!("{PACKAGE}/tests/member.py"))
            .args(["node-1", "guest"])
            .arg(root.path())
            .arg("app-2");
        let path = prefix.join("said");
        python.stdout(std::fs::File::create(&path).expect("a file"));
        let said = || std::fs::read_to_string(&path).expect("text");
        let mut guest = python.spawn().expect("it starts");
        until("the program watches, or ends", || {
            said().contains("\nwatches\n") || guest.try_wait().expect("its status").is_some()
        });
        root.run(&["kill", "app-2"]).ends(0);
        until("it ends", || guest.try_wait().expect("its status").is_some());
        assert!(guest.wait().expect("its status").success(), "{}", said());
        let expected = "refused ClusterError\n\
            refused ArgumentError\n\
            member ['APP']\n\
            refused ClusterError\n\
            guarded WORK\n\
            guard_within True\n\
            confirmed\n\
            child Forked Forked Forked Forked Forked Forked Forked active False joins True\n\
            parent is active True\n\
            first view True\n\
            watches\n\
            failed app-2 APP\n\
            still in the view False\n\
            old view False\n\
            closed Closed False\n";
        assert_eq!(said(), expected);
        // It has left gracefully, so nobody misses it.
        root.run(&["start", "app-2"]).ends(0);
        root.healthy();
    }
    std::fs::remove_dir_all(&prefix).expect("removed");
}

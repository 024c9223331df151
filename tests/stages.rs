//! What the runner of the stages in virtual machines says of them.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Stages without a machine, in place of those of `tests/vm`.
#[test]
fn a_stage_that_fails_is_killed_or_skips_a_check_is_not_said_to_hold() {
    let home = tempfile::tempdir().expect("made");
    let of = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/vm");
    for file in ["run", "lib.sh"] {
        fs::copy(of.join(file), home.path().join(file)).expect("copied");
    }
    fs::create_dir(home.path().join("stages")).expect("made");
    let stages = [
        ("sound", "exit 0"),
        ("broken", "echo FAILED: one of two; exit 3"),
        ("killed", "kill -KILL $$"),
        ("absent", ". \"$VM_HOME/lib.sh\"; skipped machines 'there are none'"),
    ];
    for (name, script) in stages {
        fs::write(home.path().join(format!("stages/{name}.sh")), script).expect("written");
    }
    let run = |stages: &[&str]| {
        let mut command = Command::new("bash");
        command.arg(home.path().join("run")).env("OBOL_VM_CACHE", home.path().join("cache"));
        // `.ci/run` must not count what these stages skip.
        command.env_remove(obol_checks::SKIPS);
        for stage in stages {
            command.args(["--only", stage]);
        }
        let ran = command.output().expect("it runs");
        (ran.status.code(), String::from_utf8(ran.stdout).expect("text"))
    };
    let (code, said) = run(&["sound"]);
    assert!(code == Some(0) && said.contains("sound holds"), "{said}");
    let (code, said) = run(&["absent"]);
    assert!(code == Some(0) && said.contains("absent skipped machines;"), "{said}");
    assert!(!said.contains(" holds"), "{said}");
    for (stage, status) in [("broken", 3), ("killed", 137)] {
        let (code, said) = run(&["sound", stage]);
        assert!(said.contains("sound holds") && !said.contains(&format!("{stage} holds")), "{said}");
        assert!(said.contains(&format!("{stage} FAILED with status {status}")), "{said}");
        assert_eq!(code, Some(status), "{said}");
    }
}

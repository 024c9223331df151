//! `packaging/check` says that something holds only if it does: its functions run with stand-ins for the
//! programs that they call.

use std::path::Path;
use std::process::Command;

/// Whether a call of the script's functions succeeds, and what it prints. `stand_ins` are functions of the
/// shell in place of programs, or of functions of the script.
fn ran(stand_ins: &str, call: &str) -> (bool, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/check");
    let folder = tempfile::tempdir().expect("made");
    let body = format!("source \"$1\"; root=$PWD work=$PWD; mkdir -p tmp usr/bin etc\n{stand_ins}\n{call}\n");
    let mut command = Command::new("bash");
    let ended = command
        .args(["-c", &body, "test"])
        .arg(&script)
        .current_dir(folder.path())
        .output()
        .expect("bash runs");
    (ended.status.success(), String::from_utf8(ended.stdout).expect("text"))
}

/// That the call says these words with the first of the stand-ins, and with none of the others, which fail.
fn says_only_with_the_first(words: &str, call: &str, stand_ins: &[&str]) {
    for (at, stand_in) in stand_ins.iter().enumerate() {
        let (succeeded, said) = ran(stand_in, call);
        assert_eq!((succeeded, said.contains(words)), (at == 0, at == 0), "{stand_in}: {said}");
    }
}

#[test]
fn a_cluster_was_healthy_only_if_its_summary_says_so() {
    says_only_with_the_first(
        "was healthy",
        "starts_a_cluster",
        &[
            r#"inside() { echo '{"event":"view"}'; echo '{"event":"summary","health":"healthy"}'; }"#,
            r#"inside() { echo '{"event":"summary","health":"degraded"}'; }"#,
            r#"inside() { echo '{"event":"view","health":"healthy"}'; }"#,
            r#"inside() { echo '{"event":"summary","health":"healthy"}'; echo killed; }"#,
            r#"inside() { echo '{"event":"summary","health":"healthy"}'; return 1; }"#,
            "inside() { :; }",
            "inside() { return 127; }",
        ],
    );
}

#[test]
fn a_program_in_c_was_a_member_only_if_it_saw_a_death() {
    let compiled = "touch usr/bin/guest; inside() { echo \"$SAID\" >tmp/said; return \"$ENDED\"; };";
    let of = |said: &str, ended: u32| format!("{compiled} SAID='{said}' ENDED={ended}");
    let all = [
        of("app-2 failed", 0),
        of("app-1 failed", 0),
        of("", 0),
        of("app-2 failed", 1),
        "inside() { :; }".into(),
    ];
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    says_only_with_the_first("was a member", "a_program_in_c_is_a_member cache.c ''", &all);
}

#[test]
fn a_root_is_fresh_only_if_it_was_made() {
    says_only_with_the_first(
        "a fresh ",
        "make_root",
        &[
            "mmdebstrap() { echo 12.5 >etc/debian_version; }",
            "mmdebstrap() { echo 12.5 >etc/debian_version; return 1; }",
            "mmdebstrap() { :; }",
        ],
    );
}

#[test]
fn a_unit_has_an_exposure_only_if_it_was_told_and_is_low() {
    says_only_with_the_first(
        "obol-agent@1.service: ",
        "is_not_exposed obol-agent@1.service",
        &[
            "systemd-analyze() { echo '-> Overall exposure level for obol-agent@1.service: 1.9 OK'; }",
            "systemd-analyze() { echo '-> Overall exposure level for obol-agent@1.service: 9.6 UNSAFE'; return 1; }",
            "systemd-analyze() { :; }",
            "systemd-analyze() { echo 'Unit not found.'; }",
        ],
    );
}

#[test]
fn debs_and_rpms_hold_only_if_every_step_does() {
    const STEPS: [&str; 7] = [
        "find_packages",
        "list_contents",
        "make_root",
        "install_debs",
        "check_units",
        "purge_debs",
        "check_rpms",
    ];
    let all_well: String = STEPS.iter().map(|step| format!("{step}() {{ :; }}; ")).collect();
    let one_fails = STEPS.iter().flat_map(|step| {
        // Also where not the last of its commands has failed.
        ["die no", "false", "false; true"].map(|how| format!("{all_well} {step}() {{ {how}; }}"))
    });
    let all: Vec<String> = [all_well.clone()].into_iter().chain(one_fails).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    says_only_with_the_first("hold", "main", &all);
}

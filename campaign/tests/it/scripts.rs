//! Recorded runs: they replay exactly, shrink to the relevant acts, and are rejected with a reason
//! if invalid.

use obol_campaign::{Act, CANARY_EVERY, Scenario, Script, Timed, replay, run, shrink};
use obol_membership::ActiveMutant;

/// A run that violates a row in every build.
const CANARY: u64 = CANARY_EVERY - 1;
/// A seed whose hosts exchange pulses.
const PULSES: u64 = 15;

fn canary() -> Script {
    *run(CANARY, ActiveMutant::NONE, false).script.expect("a canary breaks an invariant")
}

#[test]
fn a_recorded_run_replays_exactly() {
    let first = run(CANARY, ActiveMutant::NONE, false);
    let again = replay(&canary(), ActiveMutant::NONE, false);
    assert_eq!((first.hash, first.time, first.violation), (again.hash, again.time, again.violation));
}

#[test]
fn a_script_survives_a_round_trip() {
    let script = canary();
    let text = script.to_string();
    assert_eq!(Script::parse(&text).as_ref(), Ok(&script), "{text}");
    assert!(script.is_current());
    assert!(!Script { cluster: Some("0".to_owned()), ..script }.is_current());
}

/// A run that once violated a row.
fn holds(text: &str) {
    let script = Script::parse(text).expect("a script");
    assert!(
        script.is_current(),
        "its seed draws another cluster now, {}, so it shows nothing: record another one",
        Scenario::draw(script.seed, ActiveMutant::NONE).fingerprint()
    );
    let run = replay(&script, ActiveMutant::NONE, false);
    assert_eq!(run.violation, None);
}

#[test]
fn contending_leaders_with_short_backoffs_settle() {
    holds(include_str!("scripts/contending-leaders.toml"));
}

#[test]
fn contending_leaders_settle_if_attempts_take_longer_than_backoffs() {
    holds(include_str!("scripts/contending-leaders-far-apart.toml"));
}

#[test]
fn a_program_whose_rejected_join_was_decided_makes_room_for_itself() {
    holds(include_str!("scripts/stray-in-a-full-view.toml"));
}

#[test]
fn a_newcomer_for_whom_one_byte_is_missing_is_rejected() {
    holds(include_str!("scripts/full-but-for-a-byte.toml"));
}

#[test]
fn operations_that_a_process_did_not_post_before_its_death_are_not_posted() {
    holds(include_str!("scripts/killed-in-a-stall.toml"));
}

#[test]
fn irrelevant_acts_are_dropped() {
    let mut script = canary();
    let idle = |n: u32| Timed { at: 1_000 * u64::from(n), after: 0, act: Act::Thaw(n % 6) };
    script.acts.splice(0..0, (0..20).map(idle));
    let shrunk = shrink(&script, ActiveMutant::NONE, 500).expect("it breaks the same row again");
    let (few, many) = (&shrunk.script, &script);
    assert!(few.acts.len() < many.acts.len(), "{few}");
    let run = replay(few, ActiveMutant::NONE, false);
    assert_eq!(run.violation.map(|v| v.row), script.row, "what is left still shows it");
    for drop in 0..few.acts.len() {
        let mut fewer = few.clone();
        fewer.acts.remove(drop);
        let run = replay(&fewer, ActiveMutant::NONE, false);
        assert_ne!(run.violation.map(|v| v.row), script.row, "act {drop} was not needed: {few}");
    }
}

#[test]
fn a_script_without_a_violation_is_not_shrunk() {
    let quiet = Script { acts: Vec::new(), ..canary() };
    assert!(shrink(&quiet, ActiveMutant::NONE, 10).is_none());
}

#[test]
fn an_invalid_script_is_rejected_with_a_reason() {
    let refused = |text: &str| Script::parse(text).expect_err(text).to_string();
    let syntax = refused("seed = 3\nfaults_end = 9\nsurvivours = [1]\n");
    assert!(syntax.contains("line 3") && syntax.contains("`survivors`"), "{syntax}");
    let act = refused("seed = 3\nfaults_end = 9\nacts = [{ at = 1, do = { explode = 3 } }]\n");
    assert!(act.contains("line 3") && act.contains("explode") && act.contains("kill"), "{act}");
    for (acts, reason) in [
        ("{ at = 1, do = { kill = 99 } }", "nodes 0 to"),
        ("{ at = 1, do = { attach = [0, 1] } }", "programs take seats"),
        ("{ at = 5, do = { kill = 1 } }, { at = 4, do = { start = 1 } }", "sort them by time"),
        ("{ at = 3600000000001, do = { kill = 1 } }", "at most"),
        ("{ at = 1, do = { set_lease = [3600000000001, 1] } }", "at most"),
        ("{ at = 1, do = { pause_host = 0 } }", "draws no hosts"),
    ] {
        let text = refused(&format!("seed = 3\nfaults_end = 9\nacts = [{acts}]\n"));
        assert!(text.contains(reason), "{text}");
    }
    let pulses = |act| format!("seed = {PULSES}\nfaults_end = 9\nacts = [{{ at = 1, do = {{ {act} }} }}]\n");
    for act in ["restart_gateway = 9", "heal_path = [0, 9, 0]", "delay_path = [0, 1, 9, 5]"] {
        let text = refused(&pulses(act));
        assert!(text.contains("draws hosts 0 to"), "{text}");
    }
    for act in ["resume_host = 1", "cut_path = [0, 1, 0]"] {
        assert_eq!(Script::parse(&pulses(act)).map(|script| script.acts.len()), Ok(1));
    }
    let minority = refused("seed = 3\nfaults_end = 9\nsurvivors = [0]\n");
    assert!(minority.contains("not a majority"), "{minority}");
}

//! Statements about runs that are written down: they play again as they were, shrink to what
//! matters, and are refused with a reason if they make no sense.

use obol_campaign::{Act, CANARY_EVERY, Scenario, Script, Timed, replay, run, shrink};
use obol_membership::ActiveMutant;

/// A run that breaks a row in every build.
const CANARY: u64 = CANARY_EVERY - 1;

fn canary() -> Script {
    *run(CANARY, ActiveMutant::NONE, false).script.expect("a canary breaks an invariant")
}

#[test]
fn a_recorded_run_plays_again_to_the_step() {
    let first = run(CANARY, ActiveMutant::NONE, false);
    let again = replay(&canary(), ActiveMutant::NONE, false);
    assert_eq!((first.hash, first.time, first.violation), (again.hash, again.time, again.violation));
}

#[test]
fn a_script_survives_being_written_and_read() {
    let script = canary();
    let text = script.to_string();
    assert_eq!(Script::parse(&text).as_ref(), Ok(&script), "{text}");
    assert!(script.is_current());
    assert!(!Script { cluster: Some("0".to_owned()), ..script }.is_current());
}

/// A run that once broke a row.
fn mended(text: &str) {
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
fn contending_leaders_whose_pauses_are_short_settle() {
    mended(include_str!("scripts/contending-leaders.toml"));
}

#[test]
fn contending_leaders_settle_where_an_attempt_takes_far_longer_than_a_pause() {
    mended(include_str!("scripts/contending-leaders-far-apart.toml"));
}

#[test]
fn a_program_whose_refused_join_was_decided_makes_room_for_itself() {
    mended(include_str!("scripts/stray-in-a-full-view.toml"));
}

#[test]
fn a_newcomer_for_whom_one_byte_is_missing_is_refused_as_is_right() {
    mended(include_str!("scripts/full-but-for-a-byte.toml"));
}

#[test]
fn what_a_process_had_not_posted_when_it_died_is_not_posted() {
    mended(include_str!("scripts/killed-in-a-stall.toml"));
}

#[test]
fn what_a_violation_does_not_need_is_dropped() {
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
fn a_script_that_shows_nothing_is_not_shrunk() {
    let quiet = Script { acts: Vec::new(), ..canary() };
    assert!(shrink(&quiet, ActiveMutant::NONE, 10).is_none());
}

#[test]
fn a_script_that_makes_no_sense_is_refused_with_a_reason() {
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
    ] {
        let text = refused(&format!("seed = 3\nfaults_end = 9\nacts = [{acts}]\n"));
        assert!(text.contains(reason), "{text}");
    }
    let minority = refused("seed = 3\nfaults_end = 9\nsurvivors = [0]\n");
    assert!(minority.contains("no majority"), "{minority}");
}

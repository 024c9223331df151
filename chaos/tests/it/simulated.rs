//! Drills in the simulator: shipped ones either pass or are rejected with the faults that the
//! simulator lacks, the same drill gives the same result, and a mutant is caught.

use obol_chaos::drillfile::{self, Drill, StepFault, shipped};
use obol_chaos::drills::{Journal, Options, RunError, Verdict, simulate};
use obol_fabric::Name;
use obol_membership::ActiveMutant;
use obol_profiles::Profile;
use serde_json::Value;
use std::path::PathBuf;

/// Repetitions of each drill.
const COUNT: u32 = 5;

fn run(drill: &Drill, mutant: ActiveMutant) -> Result<Journal, RunError> {
    let profile = Profile::builtin("laptop").expect("a profile");
    // An operator has to undo a crash.
    let crashes = drill.steps.iter().flat_map(|step| &step.faults).any(StepFault::crashes_hosts);
    let count = if crashes { 1 } else { COUNT };
    let options = Options { count: Some(count), ..Options::new(PathBuf::new()) };
    simulate(drill, profile, mutant, &options, |_| true)
}

fn load(name: &str) -> Drill {
    drillfile::load(name).expect("a drill that ships").0
}

/// The result without what depends on this machine.
fn result(name: &str) -> Value {
    let journal = run(&load(name), ActiveMutant::NONE).expect("it runs");
    let mut json = serde_json::to_value(&journal).expect("JSON");
    json["began"] = Value::Null;
    json
}

#[test]
fn every_shipped_drill_passes_or_names_the_missing_faults() {
    for one in shipped() {
        match run(&load(one.name), ActiveMutant::NONE) {
            Ok(journal) => {
                assert_eq!(journal.verdict, Verdict::Passed, "{}: {journal:#?}", one.name);
            }
            Err(RunError::NotSimulated(faults)) => {
                assert_eq!((one.name, &faults[..]), ("multicast-outage", &["multicast-loss"][..]));
            }
            Err(error) => panic!("{}: {error}", one.name),
        }
    }
}

#[test]
fn the_same_drill_gives_the_same_result() {
    for name in ["triple-loss", "partition-leader"] {
        assert_eq!(result(name), result(name));
    }
}

#[test]
fn each_fault_is_noticed_by_its_detector_and_by_no_other() {
    use obol_chaos::drills::studies::detectors::{Detector, Measured, Plan, Report};
    let profile = Profile::builtin("laptop").expect("a profile");
    let plan = Plan::simulated(&[]).expect("all of them");
    let measured: Vec<Measured> = plan
        .faults()
        .into_iter()
        .map(|(fault, detector)| {
            let drill = plan.drill(fault, &profile, Name::new("local").expect("a name"), COUNT);
            let journal = run(&drill.expect("a drill"), ActiveMutant::NONE).expect("it runs");
            Measured::of(detector, fault, &profile, &journal)
        })
        .collect();
    assert_eq!(Report::judge(&measured, &[]), Verdict::Passed, "{measured:#?}");
    let of = |detector| measured.iter().find(|found| found.detector == detector).expect("it ran");
    let took = |detector| of(detector).detection_us.p50.expect("five samples");
    let [notice, heartbeat, operation] =
        [Detector::Notice, Detector::Heartbeat, Detector::Operation].map(took);
    // A kernel's notice comes at once; a counter has to stand still for the time that confirms it.
    let still = profile.timing.heartbeat_period.saturating_mul(profile.timing.heartbeat_confirm.into());
    assert!(notice < 1_000.0 && heartbeat >= still.as_micros_f64() * 0.7, "{notice} {heartbeat}");
    assert!(operation > notice, "{operation}");
    assert!(measured.iter().all(|found| found.faults == COUNT as usize), "{measured:#?}");
}

#[test]
fn an_outage_aborts_a_drill_also_where_the_failover_could_not_be_measured() {
    let text = r#"
[drill]
schema = 1
id = "cut-off"
title = "No agent reaches anybody"
environment = "local"
repeat = { count = 3, gap = "20ms" }
timeout = "2m"
[guards]
max_targets = 9
abort = [{ when = "unavailable_us > 1000" }]
[targets]
agents = { kind = "agent", select = "all" }
[[step]]
name = "f"
fault = { kind = "partition", layer = "fabric", for = "1500ms", target = "agents" }
[[steady]]
probe = "processes.up"
    "#;
    let drill = drillfile::parse(text, "cut-off").expect("it can be read");
    let journal = run(&drill, ActiveMutant::NONE).expect("it runs");
    assert_eq!(journal.verdict, Verdict::Aborted, "{journal:#?}");
    assert!(journal.trials[0].unavailable_ns > Some(1_000_000_000), "{journal:#?}");
}

#[cfg(feature = "mutants")]
#[test]
fn a_planted_bug_fails_a_drill() {
    use obol_membership::Mutant;
    let plant = Mutant::ALL.iter().find(|mutant| mutant.name() == "failed-fence-is-ack").expect("a bug");
    for name in ["host-loss", "triple-loss", "freeze"] {
        let journal = run(&load(name), ActiveMutant::new(*plant)).expect("it runs");
        assert_eq!(journal.verdict, Verdict::Failed, "{name}: {journal:#?}");
        let reasons: Vec<&String> = journal.trials.iter().filter_map(|t| t.reason.as_ref()).collect();
        assert!(reasons.iter().any(|reason| reason.contains("oracle")), "{name}: {reasons:?}");
    }
}

/// A drill that pauses an app.
fn pause(lasts: &str, expect: &str) -> Drill {
    let text = format!(
        "[drill]\nschema = 1\nid = \"pause\"\ntitle = \"t\"\nenvironment = \"local\"\nrepeat = {{ count = 5 }}\n\
         [targets]\na = {{ kind = \"app\", select = \"one\" }}\n[[step]]\nname = \"s\"\n\
         fault = {{ kind = \"freeze\", for = \"{lasts}\", target = \"a\"{expect} }}\n"
    );
    drillfile::parse(&text, "pause").expect("a drill")
}

#[test]
fn a_short_pause_passes_only_where_it_is_to_be_tolerated_and_a_long_one_only_where_it_is_not() {
    const TOLERATED: &str = ", expect = \"tolerated\"";
    let passed = run(&pause("3ms", TOLERATED), ActiveMutant::NONE).expect("it runs");
    assert_eq!((passed.verdict, passed.void), (Verdict::Passed, 0), "{passed:#?}");
    // Nothing else is judged, so the same drill says nothing if it was not tried.
    assert!(passed.judged.is_empty() && passed.after.is_empty());
    for (lasts, expect) in [("3ms", ""), ("30s", TOLERATED)] {
        let refused = run(&pause(lasts, expect), ActiveMutant::NONE).expect_err("refused").to_string();
        assert!(refused.contains("a stalled process is suspected after"), "{refused}");
    }
    let unjudged = run(&pause("30s", ""), ActiveMutant::NONE).expect("it runs");
    assert_eq!(unjudged.verdict, Verdict::Void, "without a bound nothing is judged");
}

/// A drill with one fault at the host of an agent, which in the simulator is the agent's own.
fn at_host(fault: &str, guards: &str) -> Drill {
    let text = format!(
        "[drill]\nschema = 1\nid = \"host\"\ntitle = \"t\"\nenvironment = \"local\"\nrepeat = {{ count = 5 }}\n\
         [guards]\n{guards}\n[targets]\na = {{ kind = \"agent\", select = \"one\" }}\n\
         [[steady]]\nprobe = \"processes.up\"\n[[step]]\nname = \"s\"\nfault = {{ {fault}, target = \"a\" }}\n"
    );
    drillfile::parse(&text, "host").unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_host_that_is_cut_off_in_one_direction_is_excluded_and_one_that_loses_a_few_packets_is_not() {
    let judged =
        |fault: &str, guards: &str| run(&at_host(fault, guards), ActiveMutant::NONE).expect("it runs");
    for direction in ["in", "out", "both"] {
        let cut =
            format!("kind = \"partition\", layer = \"host\", direction = \"{direction}\", for = \"1500ms\"");
        let journal = judged(&cut, "");
        // The agent and the app in its seat; one that hears nobody has others excluded as well, because its
        // reports arrive.
        let all = journal.trials.iter().all(|trial| trial.failed >= 2);
        let others = journal.trials.iter().any(|trial| trial.falsely_failed > 0);
        assert!(all && (!others || direction == "in"), "{direction}: {journal:#?}");
        // The same is said to be wrong where it has to be tolerated.
        let tolerated = judged(&format!("{cut}, expect = \"tolerated\""), "");
        assert_eq!(tolerated.verdict, Verdict::Failed, "{direction}: {tolerated:#?}");
    }
    let burst =
        "kind = \"burst\", layer = \"host\", enter = 5, leave = 100, for = \"1s\", expect = \"tolerated\"";
    let slow = "kind = \"delay\", layer = \"host\", by = \"200us\", direction = \"out\", for = \"1s\", expect = \"tolerated\"";
    for fault in [burst, slow] {
        let journal = judged(fault, "");
        assert_eq!(journal.verdict, Verdict::Passed, "{fault}: {journal:#?}");
    }
}

#[test]
fn a_host_that_crashes_is_excluded_and_left_to_an_operator() {
    let journal = run(&load("host-crash"), ActiveMutant::NONE).expect("it runs");
    assert_eq!((journal.verdict, journal.trials.len()), (Verdict::Passed, 1), "{journal:#?}");
    assert_eq!(journal.trials[0].failed, 2, "{journal:#?}");
    assert!(journal.remarks.iter().any(|remark| remark.contains("but an operator")), "{journal:#?}");
}

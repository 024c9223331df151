//! JUnit files as another program reads them.

use junit_parser::{TestCase, TestSuite, TestSuites, from_reader};
use obol_chaos::drillfile::parse;
use obol_chaos::drills::report::{annotations, junit, junit_refused};
use obol_chaos::drills::{Journal, Options, Verdict, simulate};
use obol_membership::ActiveMutant;
use obol_profiles::Profile;
use std::path::PathBuf;

/// The bound in these lines is on line 15.
const DRILL: &str = r#"[drill]
schema = 1
id = "a<b"
title = "An app dies & returns"
environment = "local"
repeat = { count = 6, gap = "20ms" }
[targets]
app = { kind = "app", select = "one" }
[[step]]
name = "kill"
fault = { kind = "kill", target = "app" }
[[steady]]
probe = "processes.up"

[[expect]]
metric = "failover.cue_to_active"
p50 = "BOUND"
"#;

fn text(bound: &str) -> String {
    DRILL.replace("a<b", "dies").replace("BOUND", bound)
}

fn run(text: &str) -> Journal {
    let drill = parse(text, "d.toml").unwrap_or_else(|error| panic!("{error}"));
    let profile = Profile::builtin("laptop").expect("a profile");
    simulate(&drill, profile, ActiveMutant::NONE, &Options::new(PathBuf::new()), |_| true).expect("it runs")
}

fn read(text: &str) -> TestSuites {
    from_reader(text.as_bytes()).unwrap_or_else(|error| panic!("{error:?}: {text}"))
}

fn one(suites: &TestSuites) -> &TestSuite {
    assert_eq!(suites.suites.len(), 1);
    &suites.suites[0]
}

fn case<'a>(suite: &'a TestSuite, name: &str) -> &'a TestCase {
    let names: Vec<&str> = suite.cases.iter().map(|case| case.original_name.as_str()).collect();
    suite.cases.iter().find(|case| case.original_name == name).unwrap_or_else(|| panic!("{names:?}"))
}

#[test]
fn every_repetition_bound_and_state_is_a_case() {
    let journal = run(&text("10s"));
    assert_eq!(journal.verdict, Verdict::Passed);
    let suites = read(&junit(&journal));
    let suite = one(&suites);
    assert_eq!(
        (suite.name.as_str(), suite.tests, suite.failures, suite.errors, suite.skipped),
        ("dies", 9, 0, 0, 0)
    );
    assert_eq!(suite.cases.len(), 9);
    for name in ["1 kill", "6 kill", "failover.cue_to_active p50 <= 10.0s", "processes.up", "verdict"] {
        assert!(case(suite, name).status.is_success(), "{name}");
    }
    let took = case(suite, "1 kill").time;
    assert!((took - journal.trials[0].failover_ns.expect("measured") as f64 / 1e9).abs() < 1e-6, "{took}");
}

#[test]
fn a_missed_bound_is_a_failure_and_annotates_its_line() {
    let text = text("1us");
    let journal = run(&text);
    let suites = read(&junit(&journal));
    let suite = one(&suites);
    assert_eq!((suite.failures, suite.errors, suite.skipped), (2, 0, 0));
    let bound = case(suite, "failover.cue_to_active p50 <= 1.00us");
    assert!(bound.status.is_failure() && case(suite, "verdict").status.is_failure());
    let failure = bound.status.failure_as_ref();
    assert!(failure.message.contains("its bound is 1.00us"), "{failure:?}");
    let drill = parse(&text, "d.toml").expect("a drill");
    let lines = annotations(&journal, &drill, Some("drills/d.toml"), &text);
    let prefix =
        "::error file=drills/d.toml,line=15,title=drill dies%3A deviated::failover.cue_to_active p50 is ";
    assert!(lines.iter().any(|line| line.starts_with(prefix)), "{lines:?}");
    assert!(annotations(&journal, &drill, None, &text)[0].starts_with("::error title=drill dies"));
}

#[test]
fn what_is_void_is_skipped_and_what_was_refused_is_an_error() {
    let mut journal = run(&text("10s"));
    journal.verdict = Verdict::Void;
    journal.remarks = vec!["<too few>".to_owned()];
    let judged = &mut journal.judged[0];
    (judged.found, judged.holds, judged.samples) = (None, None, 3);
    let suites = read(&junit(&journal));
    let suite = one(&suites);
    assert_eq!((suite.failures, suite.errors, suite.skipped), (0, 0, 2));
    assert!(case(suite, "verdict").status.is_skipped());
    let skipped = case(suite, "failover.cue_to_active p50 <= 10.0s").status.skipped_as_ref();
    assert_eq!(skipped.message, "failover.cue_to_active p50: 3 samples are too few");
    let suites = read(&junit_refused("./x.toml", 0, "no <cluster>"));
    let refused = case(one(&suites), "verdict");
    assert!(refused.status.is_error() && refused.status.error_as_ref().message == "refused: no <cluster>");
}

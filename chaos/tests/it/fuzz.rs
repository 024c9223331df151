//! Any text is either a drill or rejected with places that exist.

use obol_chaos::drillfile;
use obol_chaos::drills::studies::tune_network::NetworkTuned;
use obol_config::FileError;
use obol_fabric_ip::PulseReport;
use obol_fuzz::{Shape, Target, outcome};
use obol_observe::tail::Wanted;
use std::path::Path;

#[test]
fn drill_files() {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("drills");
    Target::new("drill-files", Shape::Text, 6_000).with_files(shipped, ".toml").run(|input| {
        let text = String::from_utf8_lossy(input);
        match drillfile::parse(&text, "any.toml") {
            Ok(drill) => outcome(format!("{drill:?}").len()),
            Err(error) => {
                let FileError::Refused { problems, .. } = &error else { panic!("{error:?}") };
                assert!(!problems.is_empty());
                for problem in problems {
                    let line = text.split('\n').nth(problem.line - 1);
                    assert!(
                        line.is_some_and(|line| problem.column <= line.chars().count() + 1),
                        "{problem:?}"
                    );
                }
                assert_eq!(error.to_string().lines().count(), problems.len(), "{error}");
                outcome(
                    problems
                        .iter()
                        .map(|problem| core::mem::discriminant(&problem.problem))
                        .collect::<Vec<_>>(),
                )
            }
        }
    });
}

/// Whatever gateways have written to their files of pulses is a measurement, or refused.
#[test]
fn reports_of_pulses() {
    let second = |at: u64, gap: u64| {
        format!(
            r#"{{"at":{at},"period":1000000,"timeout":20000000,"busy":5,"waits":6,"peers":[{{"host":2,"heard":true,"silent":false,"paths":[{{"address":"10.0.0.2","state":"up"}}],"block":{{"pulses":1000,"gap_max":{gap},"silences":0,"paths":[{{"frames":1000,"floor":-4000,"spread_max":30,"spread_mean":14}}]}}}}]}}"#
        )
    };
    let seconds: Vec<String> = (1..40).map(|n| second(n * 1_000_000_000, 1_100_000 + n * 37)).collect();
    let wanted = Wanted { every_seconds: 3600.0, confidence: 0.95 };
    Target::new("reports-of-pulses", Shape::Text, 3_000).with(seconds.join("\n")).run(|input| {
        let text = String::from_utf8_lossy(input);
        let reports: Vec<PulseReport> =
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let both = [(1, reports.clone()), (2, reports.clone())];
        let tuned = NetworkTuned::of(&both, 2, wanted);
        let texts: Vec<_> = tuned.directions.iter().map(|direction| direction.text().len()).collect();
        outcome((tuned.advice().len(), tuned.html().len(), tuned.text().len(), texts, reports.len()))
    });
}

//! What the journals of drills must say, on a machine that may be busy.

use super::Root;
use serde_json::Value;

/// A busy machine voids a repetition or suspects somebody who only got no core. So often in a row
/// it does not.
const TRIES: u32 = 6;

fn sum(of: &[&Value], key: &str) -> u64 {
    of.iter().map(|trial| trial[key].as_u64().expect("a number")).sum()
}

/// Runs a drill until it passes, and gives its journal. Each run that does not pass must say why,
/// in its own figures.
pub(crate) fn passes(root: &Root, arguments: &[&str], before: impl Fn()) -> Value {
    let mut why = Vec::new();
    for _ in 0..TRIES {
        before();
        let ran = root.run(&[&["drill", "run"], arguments, &["--json"]].concat());
        let journal = ran.json();
        let trials: Vec<&Value> =
            journal["trials"].as_array().expect("trials").iter().filter(|t| t["warmup"] == false).collect();
        let all = journal["trials"].as_array().expect("trials");
        assert!(all.iter().all(|trial| trial["overlap_ns"] == 0), "{journal:#}");
        let held = journal["judged"]
            .as_array()
            .expect("bounds")
            .iter()
            .chain(journal["after"].as_array().expect("probes"));
        let missed: Vec<&Value> = held.filter(|one| one["holds"] == false).collect();
        let failed = trials.iter().filter(|t| t["outcome"] == "failed").count();
        let void = trials.iter().filter(|t| t["outcome"] == "void").count();
        let falsely = sum(&trials, "falsely_failed");
        let (verdict, code) = (journal["verdict"].as_str().expect("text"), ran.code);
        match (verdict, code) {
            ("passed", Some(0)) => {
                assert!(failed == 0 && missed.is_empty() && void * 2 <= trials.len(), "{journal:#}");
                assert!(!trials.is_empty(), "{journal:#}");
                return journal;
            }
            // A figure missed its bound: of a time, or of those who were suspected wrongly.
            ("deviated", Some(3)) => {
                assert!(failed == 0 && !missed.is_empty(), "{journal:#}");
                let timed = |one: &&&Value| one["of"].as_str().is_some_and(|of| of != "count");
                assert!(missed.iter().any(|one| timed(&one)) || falsely > 0, "{journal:#}");
            }
            ("void", Some(6)) => assert!(failed == 0 && void > 0, "{journal:#}"),
            // Only who was suspected wrongly keeps a failover from ending.
            ("failed", Some(1)) => {
                let strangers = all.iter().filter_map(|t| t["falsely_failed"].as_u64()).sum::<u64>();
                assert!(strangers > 0, "{journal:#}");
            }
            other => panic!("{other:?}: {journal:#}"),
        }
        why.push(journal);
        root.healthy();
    }
    panic!("{arguments:?} did not pass in {TRIES} runs: {why:#?}");
}

//! The built-in testbeds are valid, and the faults of a file are reported with their positions.

use obol_fabric::Nanos;
use obol_profiles::testbed::{BUILTIN, Testbed};

fn text() -> String {
    std::fs::read_to_string("sim/infiniband.toml").expect("the file is in the crate")
}

fn refused(text: &str) -> Vec<String> {
    let refused = Testbed::parse(text, "bad.toml").expect_err("it is wrong");
    refused.to_string().lines().map(str::to_owned).collect()
}

#[test]
fn every_parameter_of_a_built_in_testbed_has_a_source() {
    for name in BUILTIN {
        let testbed = Testbed::builtin(name).expect("it is in order");
        assert_eq!(testbed.name.as_str(), name);
        for parameter in testbed.parameters() {
            assert!(!parameter.source.is_empty() && !parameter.value.is_empty(), "{parameter:?}");
        }
    }
}

#[test]
fn the_first_testbed_is_the_papers() {
    let testbed = Testbed::builtin("infiniband").expect("it is in order");
    assert_eq!(testbed.model.read.latency.median(), Nanos(1_380));
    assert_eq!(testbed.deployment.lease, Nanos::from_micros(23));
    // The proof at the exit follows the notice at the signal.
    let early = testbed.clone().with_early_notice();
    assert_eq!(early.model.notice, testbed.signal);
    assert_eq!(early.model.proof.median(), Nanos(17_390 - 4_580));
}

#[test]
fn a_misspelt_parameter_is_named_with_the_one_that_was_meant() {
    let text = text().replace("[read]\noverhead", "[read]\noverhaed");
    let faults = refused(&text);
    assert_eq!(faults, ["bad.toml:9:1: unknown table [read.overhaed]; did you mean [read.overhead]?"]);
}

#[test]
fn every_value_needs_a_source_a_unit_and_sense() {
    let text = text()
        .replace(
            "poll = { value = \"0.07us\", source = \"DARE Table 1, op\" }",
            "poll = { value = \"0.07us\" }",
        )
        .replace("gap = { value = \"5ns\"", "gap = { value = \"5\"")
        .replace("[[0, \"10us\"], [0.5, \"21us\"]", "[[0, \"10us\"], [0.5, \"9us\"]")
        .replace("value = 4096", "value = 40960")
        .replace("value = \"0.2us\", source = \"assumed", "value = \"2s\", source = \"assumed");
    let faults = refused(&text);
    let has = |part: &str| assert!(faults.iter().any(|f| f.contains(part)), "{part}: {faults:#?}");
    has("core.poll is without a source");
    has("nic.gap: \"5\" has no unit");
    has("network.saturated is not a distribution (point 2 must have a higher quantile");
    has("nic.mtu_bytes is 40960, but must lie in 256..=9000");
    has("multicast.extra is 2s, but must lie in 0ns..=100ms");
    assert_eq!(faults.len(), 5, "{faults:#?}");
}

#[test]
fn a_missing_table_or_file_is_reported() {
    let text = text();
    let faults = refused(&text.replace("[network]\nsaturated", "[netwrok]\nsaturated"));
    assert!(faults.iter().any(|f| f.contains("did you mean [network]?")), "{faults:?}");
    let (before, rest) = text.split_once("[network]\n").expect("a table");
    let (_, after) = rest.split_once("\n[").expect("another table");
    let faults = refused(&format!("{before}[{after}"));
    assert!(faults.iter().any(|f| f.contains("missing table [network]")), "{faults:?}");
    let unknown = Testbed::load("infinibnd").expect_err("no such testbed").to_string();
    assert!(unknown.contains("did you mean infiniband?"), "{unknown}");
    let missing = Testbed::load("/nowhere/x.toml").expect_err("no such file").to_string();
    assert!(missing.starts_with("/nowhere/x.toml: "), "{missing}");
}

#[test]
fn no_text_is_a_panic() {
    for cut in 0..text().len() {
        if let Some(part) = text().get(..cut)
            && cut % 13 == 0
        {
            let _ = Testbed::parse(part, "part.toml");
        }
    }
}

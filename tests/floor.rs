//! The benchmark's floor against the same processes in C: forked from a program of fifty megabytes,
//! it must not be a higher one.

use crate::commands::ran;
use crate::support::{Ran, Root};
use serde_json::Value;
use std::process::Command;

const TURNS: usize = 9;
const COUNT: &str = "100";
const AGREEMENT: f64 = 0.15;

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

/// The times to the notice and to the last app, in nanoseconds.
fn ours(count: &str) -> [Vec<f64>; 2] {
    let out = ran(&["floor", "--count", count]).ends(0).out;
    let measured: Value = serde_json::from_str(&out).expect("a JSON object");
    ["detected_ns", "last_ns"].map(|key| {
        let times = measured[key].as_array().expect("a list");
        times.iter().map(|time| time.as_f64().expect("a number")).collect()
    })
}

/// `cargo test --release --test processes -- --ignored --nocapture floor_agrees`, on a quiet machine.
#[test]
#[ignore = "a measurement"]
fn the_floor_agrees_with_the_same_in_c() {
    let folder = Root::new();
    std::fs::create_dir(folder.path()).expect("made");
    let program = folder.path().join("floor");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
    Ran::of(compiler.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/floor.c"))).ends(0);
    let in_c = || {
        let out = Ran::of(Command::new(&program).arg(COUNT)).ends(0).out;
        let times: Vec<f64> = out.split_whitespace().map(|time| time.parse().expect("a number")).collect();
        [times[0], times[1]]
    };
    let ratios: Vec<[f64; 2]> = (0..TURNS)
        .map(|_| {
            let (own, other) = (ours(COUNT).map(median), in_c());
            println!("obol {own:.0?} ns, C {other:.0?} ns");
            [own[0] / other[0], own[1] / other[1]]
        })
        .collect();
    let [detected, last] = [0, 1].map(|which| median(ratios.iter().map(|ratio| ratio[which]).collect()));
    println!("obol / C: detected {detected:.2}, last {last:.2}");
    assert!((last - 1.0).abs() <= AGREEMENT, "the floor is {last:.2} of the one in C");
}

#[test]
fn the_floor_measures_each_failover() {
    let [detected, last] = ours("3");
    assert!(detected.len() == 3 && last.len() == 3, "{detected:?} {last:?}");
    // An app knows after the coordinator, and neither before the kill.
    assert!(
        detected.iter().zip(&last).all(|(detected, last)| 0.0 < *detected && detected < last),
        "{detected:?} {last:?}"
    );
}

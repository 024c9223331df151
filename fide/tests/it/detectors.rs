//! Detectors on delays whose outcome is known, and recordings that must be refused.

use obol_fabric::Nanos;
use obol_fide::detectors::{Comparison, Delays, Line, Model, compare};
use obol_rng::Rng;
use std::fmt::Write;

fn still() -> Model {
    Model {
        floor: Nanos(10_000),
        jitter: Nanos(0),
        between_pauses: Nanos(u64::MAX >> 4),
        pause: Nanos(0),
        pause_max: Nanos(0),
        lost_ppm: 0,
    }
}

fn lines<'c>(comparison: &'c Comparison, detector: &str) -> Vec<&'c Line> {
    let lines: Vec<_> = comparison.lines.iter().filter(|line| line.detector == detector).collect();
    assert!(!lines.is_empty(), "{detector}");
    lines
}

#[test]
fn without_jitter_nothing_is_suspected_and_times_are_those_of_the_rule() {
    let comparison = compare(&still().draw(Nanos(100_000), 50_000, 1), 1);
    for line in &comparison.lines {
        // An operation of 20 us is in time for all timeouts; so is a ping, for a third of 120 us.
        assert_eq!(line.false_suspicions, 0, "{line:?}");
    }
    let pulse = lines(&comparison, "pulse, one path")[3];
    assert_eq!(pulse.setting, "300us");
    // The last frame left 0 to 100 us before the failure, and took 10.
    assert!((pulse.p50_us.expect("detected") - 260.0).abs() < 3.0, "{pulse:?}");
    assert!((pulse.p9999_us.expect("detected") - 310.0).abs() < 1.0, "{pulse:?}");
    let operation = lines(&comparison, "uKharon 3: operation")[3];
    // The next one is posted 0 to 100 us later, unless one is under way.
    assert!((operation.p50_us.expect("detected") - 340.0).abs() < 3.0, "{operation:?}");
}

#[test]
fn longer_timeouts_suspect_falsely_less_often_and_detect_later() {
    let comparison = compare(&Model::default().draw(Nanos(100_000), 300_000, 3), 3);
    for detector in [
        "uKharon 2: counter",
        "uKharon 3: operation",
        "pulse, one path",
        "pulse, two paths",
        "Sentinel, 2 of 3",
        "phi-accrual",
    ] {
        let lines = lines(&comparison, detector);
        for pair in lines.windows(2) {
            assert!(pair[0].false_suspicions >= pair[1].false_suspicions, "{detector}: {pair:?}");
            assert!(pair[0].p50_us <= pair[1].p50_us, "{detector}: {pair:?}");
        }
        assert!(lines[0].false_suspicions > 0, "{detector} must be able to be wrong");
    }
    let [one, two] = ["pulse, one path", "pulse, two paths"].map(|name| lines(&comparison, name));
    assert!(one[3].false_suspicions > 2 * two[3].false_suspicions, "a second path helps");
}

#[test]
fn one_pause_is_one_false_suspicion() {
    let mut text = String::new();
    for number in 0..5_000_u64 {
        let sent = number * 100_000;
        // From 100 ms to 105 ms nothing arrives.
        let arrives = sent + 10_000;
        let arrives = if (100_000_000..105_000_000).contains(&arrives) { 105_000_000 } else { arrives };
        let _ = writeln!(text, "{sent} {arrives}");
    }
    let delays = Delays::parse(&text, "mine.txt", 1).expect("a recording");
    assert_eq!(delays.period, 100_000);
    let comparison = compare(&delays, 1);
    let pulse = lines(&comparison, "pulse, one path");
    let counts: Vec<u64> = pulse.iter().map(|line| line.false_suspicions).collect();
    // Timeouts of 0.12 to 5 ms, and 10: the gap is longer than the pause.
    assert_eq!(counts, [1, 1, 1, 1, 1, 1, 1, 1, 0]);
    let operation = lines(&comparison, "uKharon 3: operation");
    assert_eq!(operation[6].false_suspicions, 2, "both ways once, not once for each operation");
    assert_eq!(
        lines(&comparison, "pulse, two paths")[0].false_suspicions,
        0,
        "the other path has another pause"
    );
}

#[test]
fn swim_with_less_time_than_a_ping_takes_suspects_in_every_period() {
    let model = Model { floor: Nanos(50_000), ..still() };
    let comparison = compare(&model.draw(Nanos(100_000), 12_001, 1), 1);
    let swim = lines(&comparison, "SWIM, 8 members");
    assert_eq!((swim[0].setting.as_str(), swim[0].false_suspicions), ("120us", 10_000));
    assert_eq!((swim[3].setting.as_str(), swim[3].false_suspicions), ("300us", 0));
}

#[test]
fn the_drawing_has_every_detector_with_a_timeout() {
    let svg = compare(&Model::default().draw(Nanos(100_000), 20_000, 5), 5).svg().expect("a drawing");
    for name in
        ["counter", "operation", "one path", "two paths", "phi-accrual", "SWIM", "Sentinel", "none seen"]
    {
        assert!(svg.contains(name), "{name}");
    }
}

#[test]
fn clocks_that_differ_shift_all_delays() {
    let text = |offset: i64| {
        (0..2_000_i64).fold(String::from("# sent received\n"), |mut text, n| {
            let lost = n % 500 == 7;
            let received = 1_000_000 + n * 100_000 + 10_000 + n % 13 + offset;
            let received = if lost { "-".to_owned() } else { received.to_string() };
            let _ = writeln!(text, "{},{received}", 1_000_000 + n * 100_000);
            text
        })
    };
    let same = Delays::parse(&text(0), "a", 1).expect("a recording");
    let apart = Delays::parse(&text(-500_000), "a", 1).expect("a recording");
    assert_eq!(same.frames[1].delay, Some(10_001));
    assert_eq!(apart.frames[1].delay, Some(1));
    assert_eq!(same.frames[7].delay, None);
    assert!(apart.source.contains("clocks differ"));
}

#[test]
fn bad_recordings_are_refused_with_their_place() {
    let mut long = (0..1_000).fold(String::new(), |text, n| text + &format!("{n} {n}\n"));
    long += "18446744073709551615 18446744073709551615\n";
    for (text, said) in [
        ("1 2\nfoo\n", "mine.txt:2:1: a line must be"),
        ("1 2\n3 x\n", "mine.txt:2:3: a line must be"),
        ("5 6\n5 7\n", "mine.txt:2:1: frames must be in the order"),
        ("1 2\n", "mine.txt: 1 frames that arrived are too few"),
        ("", "mine.txt: 0 frames"),
        ("1 99999999999999999999999\n", "mine.txt:1:3:"),
        (&long, "mine.txt: the frames, or their delays, extend over more than 30 days"),
    ] {
        let error = Delays::parse(text, "mine.txt", 1).expect_err(text).to_string();
        assert!(error.starts_with(said), "{error}");
    }
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    let delays = || Model::default().draw(Nanos(100_000), 20_000, 5);
    assert_eq!(compare(&delays(), 5), compare(&delays(), 5));
}

/// A recording of two hosts, one of whose clocks gains 50 ppm.
fn drifting() -> String {
    let mut rng = Rng::new(3);
    let mut text = String::from("obol-network 1\n");
    for (path, lost) in [(0, 7), (1, 0)] {
        text += &format!("stream from=2 to=1 path={path} address=10.{path}.0.2 period=1000000\n");
        for n in 0..20_000_u64 {
            let sent = 5_000_000_000 + n * 1_000_000;
            let received = sent + n * 50 + 20_000 + rng.below(10_000) - 1_000_000_000;
            text += &match n % 100 == lost && lost > 0 {
                true => format!("{sent} -\n"),
                false => format!("{sent} {received}\n"),
            };
        }
    }
    text
}

#[test]
fn a_recording_of_a_cluster_is_read_by_stream_and_the_drift_of_its_clocks_is_no_delay() {
    let of = |stream| Delays::parse(&drifting(), "net.rec", stream);
    let first = of(1).expect("a recording");
    assert_eq!((first.period, first.frames.len()), (1_000_000, 20_000));
    assert_eq!(first.frames.iter().filter(|frame| frame.delay.is_none()).count(), 200);
    let longest = first.frames.iter().filter_map(|frame| frame.delay).max().expect("some");
    assert!((9_000..12_000).contains(&longest), "{longest}: a millisecond of drift would be in it");
    assert!(first.source.contains("stream 1 of 2: from host 2 to host 1 by 10.0.0.2"), "{}", first.source);
    assert!(of(2).expect("a recording").frames.iter().all(|frame| frame.delay.is_some()));
    for wrong in [0, 3] {
        let said = of(wrong).expect_err("no such stream").to_string();
        assert!(
            said.starts_with(&format!("net.rec: there is no stream {wrong}; it has: 1: from host 2")),
            "{said}"
        );
    }
    let said = Delays::parse("obol-network 9\n", "net.rec", 1).expect_err("unknown").to_string();
    assert_eq!(said, "net.rec:1:14: the recording has version 9; this release reads version 1");
}

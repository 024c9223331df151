//! What operators are shown of a real cluster, against what its processes themselves have counted:
//! every counter and every histogram, by the console, a recording and its replay.

use crate::console::Pty;
use crate::export::Exporter;
use crate::support::{HANG, Root, freeze, has_ended, signal, until, until_or};
use obol_fabric::Name;
use obol_fabric::host::{Cluster, Observed};
use obol_membership::metrics::{Counter, Histogram};
use obol_observe::histograms::Counts;
use obol_observe::metrics::Metric;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

/// How long the cluster runs, and how long it is looked at afterwards. The console looks once a second,
/// and reads all buckets of a histogram at every eighth look: a bucket that is counted twice is
/// counted twice by then.
const ROUNDS: Duration = Duration::from_secs(18);
/// Samples of the time that an observer takes to have read all buckets once more: nine seconds, at
/// four a second.
const ROUND_SAMPLES: u64 = 40;

/// How often nodes are killed, unless that takes longer than [`ROUNDS`].
const KILLS: usize = 60;

/// A histogram of one life of a region's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct HistogramKey {
    region: u32,
    generation: u32,
    name: &'static str,
}

/// What the owners of the regions have counted, each life by its region and generation, in mappings
/// of their memory.
#[derive(Debug, Default)]
struct Truth {
    histograms: BTreeMap<HistogramKey, Vec<(u16, u64)>>,
    /// By process.
    counters: BTreeMap<String, Vec<u64>>,
}

fn truth(root: &Root) -> Truth {
    let name = Name::new("default").expect("a name");
    let cluster = Cluster::open(root.path(), name).expect("it runs");
    let seats = cluster.layout().limits().seats as u16;
    let mut truth = Truth::default();
    for region in cluster.regions() {
        let observed = Observed::open(&cluster, region.number).expect("mapped");
        let reader = observed.reader();
        for which in Histogram::ALL {
            let (region, generation) = (region.number, region.generation);
            let key = HistogramKey { region, generation, name: which.name() };
            truth.histograms.insert(key, reader.buckets((*which).into()).collect());
        }
        if region.alive {
            truth.counters.insert(region.name.to_string(), reader.counters(0));
            for seat in (1..seats).filter_map(|seat| reader.seat(seat)).filter(|seat| !seat.dead) {
                truth.counters.insert(seat.name.to_string(), reader.counters(seat.seat));
            }
        }
    }
    truth
}

/// What was counted since.
fn grown(before: &Truth, after: &Truth) -> BTreeMap<&'static str, u64> {
    let mut all = BTreeMap::new();
    for (life, now) in &after.histograms {
        let mut known = before.histograms.get(life).cloned().unwrap_or_default().into();
        *all.entry(life.name).or_default() += Counts::advance(&mut known, now).len();
    }
    all
}

fn counted(report: &Value) -> BTreeMap<&'static str, u64> {
    let all = report["latencies"].as_array().expect("a list");
    let of = |which: &Histogram| all.iter().find(|one| one["of"] == which.name()).expect("all are there");
    Histogram::ALL.iter().map(|which| (which.name(), of(which)["n"].as_u64().expect("a number"))).collect()
}

fn json(file: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).expect("exported")).expect("JSON")
}

/// Holds that the OpenMetrics text has these counters and numbers of samples, and no other.
fn holds(metrics: &str, truth: &Truth, grown: &BTreeMap<&str, u64>) {
    let number = |start: &str| -> Vec<u64> {
        let lines = metrics.lines().filter(|line| line.starts_with(start));
        lines.map(|line| line.rsplit(' ').next().expect("a value").parse().expect("a number")).collect()
    };
    for (of, n) in grown {
        let start = format!("obol_span_seconds_count{{cluster=\"default\",of=\"{of}\"}}");
        assert_eq!(number(&start), [*n], "{of}");
    }
    for (process, counters) in &truth.counters {
        for (counter, n) in Counter::ALL.iter().zip(counters) {
            let name = counter.name();
            let start = format!("obol_{name}_total{{cluster=\"default\",process=\"{process}\",");
            assert_eq!(number(&start), [*n], "{process} {name}");
        }
    }
}

/// Freezes all processes that live, and gives them.
fn freeze_all(root: &Root) -> Vec<i64> {
    let alive: Vec<i64> = root.status().pids().into_values().filter(|pid| !has_ended(*pid)).collect();
    alive.iter().for_each(|pid| freeze(*pid));
    alive
}

/// Begins a recording while all processes are frozen, so that no counter changes meanwhile: what they
/// had counted, who is frozen, the file, the recorder.
fn begin(root: &Root) -> (Truth, Vec<i64>, String, Child) {
    let all = freeze_all(root);
    let before = truth(root);
    let file = root.note("obolrec");
    let shown = file.to_str().expect("text").to_owned();
    let recorder = root.command(&["record", &shown]).spawn().expect("it starts");
    until("the recorder has looked", || std::fs::metadata(&file).is_ok_and(|meta| meta.len() > 20_000));
    (before, all, shown, recorder)
}

#[test]
fn what_is_shown_is_what_the_cluster_counted() {
    let (root, _up) = Root::with_cluster(&["--apps", "2"]);
    let (before, all, shown, mut recorder) = begin(&root);
    let mut console = Pty::new(&root, "console");
    console.until_line(&["OBOL", "LIVE"]);
    signal("CONT", &all);
    root.healthy();
    let began = std::time::Instant::now();
    let mut rounds = 0;
    while began.elapsed() < ROUNDS || rounds < 3 {
        root.run(&["kill", "app-1"]).ends(0);
        root.run(&["start", "app-1"]).ends(0);
        root.healthy();
        rounds += 1;
        assert!(began.elapsed() < 2 * HANG, "this hangs");
    }
    // One that is gone counted, too.
    root.run(&["kill", "app-2"]).ends(0);
    root.run(&["kill", "node-2"]).ends(0);
    let gone = |status: &crate::support::Status| !status.is_active("app-2") && status.is_active("app-1");
    root.until("the others go on", gone);
    let alive = freeze_all(&root);
    let after = truth(&root);
    let wanted = grown(&before, &after);
    assert!(wanted.values().all(|n| *n > 0), "each histogram is tried: {wanted:?}");

    let report = |format: &str| root.run(&["report", &shown, "--format", format]).ends(0).out;
    let of_recording = || serde_json::from_str::<Value>(&report("json")).expect("JSON");
    let samples = || of_recording()["samples"].as_u64().expect("a number");
    let least = samples() + ROUND_SAMPLES;
    until_or("all has been read once more", || (samples() >= least).then_some(()), || samples().to_string());
    console.press("x");
    console.until_line(&["the report and the screen are in obol-default-1/"]);
    let folder = console.folder.join("obol-default-1");
    assert_eq!(counted(&json(&folder.join("report.json"))), wanted, "by the console");
    holds(&std::fs::read_to_string(folder.join("metrics.txt")).expect("exported"), &after, &wanted);
    console.press("q");
    assert_eq!(console.ends(), 0);
    signal("INT", &[i64::from(recorder.id())]);
    assert!(recorder.wait().expect("a child").success());
    assert_eq!(counted(&of_recording()), wanted, "by the recording");
    clears_last_as_stamped(&of_recording());
    holds(&report("openmetrics"), &after, &wanted);
    drop(console);

    let mut replay = Pty::new(&root, &format!("replay {shown}"));
    replay.until_line(&["OBOL", "default", "REPLAY"]);
    // To its end, as fast as that goes.
    replay.press(">>>>>>>> ");
    replay.until_line(&["the recording ends here"]);
    replay.press("x");
    replay.until_line(&["the report and the screen are in obol-default-1/"]);
    let folder = replay.folder.join("obol-default-1");
    assert_eq!(counted(&json(&folder.join("report.json"))), wanted, "by the replay");
    holds(&std::fs::read_to_string(folder.join("metrics.txt")).expect("exported"), &after, &wanted);
    replay.press("q");
    assert_eq!(replay.ends(), 0);
    signal("CONT", &alive);
}

/// The histogram of CLEARs is not shorter than the stamps of flight recorders say.
fn clears_last_as_stamped(report: &Value) {
    let latencies = report["latencies"].as_array().expect("a list");
    let clear = latencies.iter().find(|one| one["of"] == "clear").expect("it is there");
    let longest = clear["worst_ns"].as_u64().expect("some samples");
    let failovers = report["failovers"].as_array().expect("a list").iter();
    let phase = |one: &Value, name| one["phases_ns"][name].as_u64();
    let stamped = failovers.filter_map(|one| Some(phase(one, "fence")? + phase(one, "clear")?)).max();
    let stamped = stamped.expect("some failover is complete");
    // A bucket is known to 1/32 of its values.
    assert!(stamped > 0 && longest + longest / 16 >= stamped, "{longest} {stamped}");
}

/// A recording ends at some look: what was counted until then is in it, however short it is, and
/// wherever a sample fell.
/// A recording without its last byte lacks its last sample, and a report on it says so.
fn says_what_is_cut_off(root: &Root, whole: &Path) {
    let bytes = std::fs::read(whole).expect("read");
    let cut = whole.with_extension("cut");
    std::fs::write(&cut, &bytes[..bytes.len() - 1]).expect("written");
    let cut = cut.to_str().expect("text");
    for format in ["md", "html", "json", "csv", "openmetrics"] {
        let said = root.run(&["report", cut, "--format", format]).ends(0);
        assert!(said.err.contains("bytes at the end are ignored"), "{format}: {said:?}");
        let shows = said.out.contains("bytes at the end are ignored");
        assert_eq!(shows, ["md", "html", "json"].contains(&format), "{format}: {said:?}");
    }
}

#[test]
fn a_short_recording_has_every_sample_of_every_histogram() {
    let (root, _up) = Root::with_cluster(&["--apps", "2"]);
    let (before, all, shown, mut recorder) = begin(&root);
    signal("CONT", &all);
    root.healthy();
    for name in ["app-1", "app-1", "coord-3", "app-1"] {
        root.run(&["kill", name]).ends(0);
        root.run(&["start", name]).ends(0);
        root.healthy();
    }
    root.run(&["kill", "node-2"]).ends(0);
    root.until("its app is removed", |status| !status.is_active("app-2") && status.is_active("app-1"));
    let alive = freeze_all(&root);
    let after = truth(&root);
    signal("INT", &[i64::from(recorder.id())]);
    assert!(recorder.wait().expect("a child").success());
    let report = root.run(&["report", &shown, "--format", "json"]).json();
    assert_eq!(counted(&report), grown(&before, &after));
    assert!(report["gap"].is_null(), "{report}");
    says_what_is_cut_off(&root, Path::new(&shown));
    let counter = |truth: &Truth, which: Counter| -> u64 {
        let coordinators = truth.counters.iter().filter(|(name, _)| name.starts_with("coord"));
        coordinators.map(|(_, counters)| counters[which as usize]).sum()
    };
    // coord-3 is not the leader, so no decision is lost with it.
    let decisions = counter(&after, Counter::Decisions) - counter(&before, Counter::Decisions);
    assert!(decisions >= 7 && counted(&report)["decide"] >= decisions, "{decisions}: {report}");
    signal("CONT", &alive);
}

/// What `up` says at its end, a report on a recording, the console, `status` and the exporter, of a cluster
/// whose nodes were killed and started again and again. `OBOL_KILLS=500` says how often.
#[test]
fn the_summary_of_up_and_a_report_are_about_all_lives_and_agree() {
    const RENEWALS: [(&str, Counter); 3] = [
        ("on_time", Counter::RenewalsOnTime),
        ("late", Counter::RenewalsLate),
        ("failed", Counter::RenewalsFailed),
    ];
    let (root, up) = Root::with_cluster(&["--apps", "2"]);
    let kills = std::env::var("OBOL_KILLS").ok().map(|text| text.parse::<usize>().expect("a number"));
    let (before, all, shown, mut recorder) = begin(&root);
    let mut console = Pty::new(&root, "console");
    console.until_line(&["OBOL", "LIVE"]);
    signal("CONT", &all);
    root.healthy();
    let sum = |truth: &Truth, counter: Counter| -> u64 {
        truth.counters.values().filter_map(|counters| counters.get(counter as usize)).sum()
    };
    let began = std::time::Instant::now();
    let mut killed = 0;
    let goes_on = |killed| match kills {
        Some(kills) => killed < kills,
        None => killed < 6 || killed < KILLS && began.elapsed() < ROUNDS,
    };
    while goes_on(killed) {
        let name = ["node-1", "node-2"][killed % 2];
        root.run(&["kill", name]).ends(0);
        root.run(&["start", name]).ends(0);
        root.healthy();
        killed += 1;
    }
    eprintln!("{killed} kills in {:?}", began.elapsed());
    freeze_all(&root);
    let after = truth(&root);
    // Its last look is at the frozen cluster.
    signal("INT", &[i64::from(recorder.id())]);
    assert!(recorder.wait().expect("a child").success());
    let report: Value = root.run(&["report", &shown, "--format", "json"]).ends(0).json();
    // The console looks once a second; what it exports after its next look cannot change any more.
    let mut exported = 0;
    until_or(
        "the console has counted what the recording has",
        || {
            console.press("x");
            exported += 1;
            let path = console.folder.join(format!("obol-default-{exported}/screen.svg"));
            // The screen is written last.
            until("it is exported", || path.exists());
            let of_console = json(&path.with_file_name("report.json"));
            (of_console["renewals"] == report["renewals"]).then_some(())
        },
        || report.to_string(),
    );
    console.press("q");
    assert_eq!(console.ends(), 0);
    let status = root.status();
    let exporter = Exporter::start(&root, &[]);
    let exported = exporter.fresh();
    exporter.end();
    for (name, counter) in RENEWALS {
        let series = format!("{}{{", Metric::from(counter).series());
        let of_series = exported.iter().filter(|(key, _)| key.starts_with(&series));
        let of_exporter: f64 = of_series.map(|(_, value)| value).sum();
        assert_eq!(of_exporter, sum(&after, counter) as f64, "{series}: exported is what status has");
        let of_status: u64 = status.json["processes"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|process| process["renewals"][name].as_u64())
            .sum();
        assert_eq!(of_status, sum(&after, counter), "{name}: status has those of the lives that are left");
    }
    signal("INT", &[up.pid()]);
    let ended = up.end().well();
    let summary = ended.lines.iter().rfind(|line| line["event"] == "summary").expect("a summary");
    for (name, counter) in RENEWALS {
        let said = summary[format!("renewals_{name}")].as_u64().expect("a number");
        let recorded = report["renewals"][name].as_u64().expect("a number");
        assert_eq!(said, sum(&before, counter) + recorded, "{name}: {summary} {report}");
    }
    let on_time = summary["renewals_on_time"].as_u64().expect("a number");
    assert!(on_time > sum(&after, Counter::RenewalsOnTime), "more than those that are left have counted");
}

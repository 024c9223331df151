//! Every format, checked with parsers of the formats.

use super::*;
use crate::logged::logged;
use crate::samples;
use obol_fabric::{Incarnation, ViewId};
use obol_membership::Reason;
use obol_observe::Health;
use obol_observe::failovers::PHASES;
use obol_observe::sampling::sample::{ChangeRow, EventRow, Life, MarkRow, ProcessRow};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

fn report() -> Report {
    let start = 3_600_000_000_000;
    let mut all: Vec<Arc<Sample>> =
        (0..8).map(|n| Arc::new(samples::healthy(Instant(start + n * 250_000_000)))).collect();
    let mut last = samples::degraded(Instant(start + 2_000_000_000));
    let text = "deploy \"1.4\" | <b>, *now*".to_owned();
    last.marks.push(MarkRow { at: Instant(start), text, drill: None, rollout: None, acknowledged: None });
    all.push(Arc::new(last));
    Report::new(samples::name("default"), all).expect("there are samples")
}

fn text(format: ReportFormat) -> String {
    report().text(format).expect("it is written")
}

#[test]
fn json_and_csv_say_the_same_of_the_failover() {
    let json: Value = serde_json::from_str(&text(ReportFormat::Json)).expect("JSON");
    let one = &json["failovers"][0];
    assert_eq!((json["health"].as_str(), one["view"].as_u64()), (Some("degraded"), Some(7)));
    assert_eq!(json["marks"][0]["text"].as_str(), Some("deploy \"1.4\" | <b>, *now*"));
    let margin = json["latencies"].as_array().and_then(|all| all.iter().find(|one| one["of"] == "margin"));
    let counted: u64 = report().totals[Histogram::Margin as usize].len();
    assert_eq!(margin.and_then(|one| one["n"].as_u64()), Some(counted));
    let csv = text(ReportFormat::Csv);
    let mut lines = csv.split("\r\n");
    let fields = |line: Option<&str>| -> Vec<String> {
        line.unwrap_or_default().split(',').map(str::to_owned).collect()
    };
    let (heads, values) = (fields(lines.next()), fields(lines.next()));
    let row: BTreeMap<String, String> = heads.into_iter().zip(values).collect();
    for phase in PHASES {
        assert_eq!(row[&format!("{phase}_ns")], one["phases_ns"][phase].to_string(), "{phase}");
    }
    assert_eq!(row["total_ns"], one["total_ns"].to_string());
    assert_eq!((row["dead"].as_str(), lines.next()), ("app-2 (7)", Some("")));
}

/// Trace Event Format: required fields of each phase, and spans begin before they end.
#[test]
fn the_trace_follows_the_format() {
    let trace: Value = serde_json::from_str(&text(ReportFormat::Perfetto)).expect("JSON");
    assert_eq!(trace["displayTimeUnit"], "ns");
    let mut open: BTreeMap<(String, String), Vec<(String, f64)>> = BTreeMap::new();
    let mut names = BTreeMap::new();
    let mut spans = 0;
    for event in trace["traceEvents"].as_array().expect("a list") {
        let ph = event["ph"].as_str().expect("a phase");
        let name = event["name"].as_str().expect("a name");
        let (pid, tid) = (event["pid"].as_u64().expect("a pid"), event["tid"].as_u64().expect("a tid"));
        let ts = event["ts"].as_f64();
        match ph {
            "M" => drop(names.insert((pid, tid), event["args"]["name"].as_str().expect("named").to_owned())),
            "i" => assert!(ts.is_some() && matches!(event["s"].as_str(), Some("t" | "p" | "g")), "{event}"),
            "b" | "e" => {
                let ts = ts.expect("a time");
                let key = (
                    event["cat"].as_str().expect("a category").to_owned(),
                    event["id"].as_str().expect("an id").to_owned(),
                );
                let stack = open.entry(key).or_default();
                if ph == "b" {
                    stack.push((name.to_owned(), ts));
                } else {
                    let (began, from) = stack.pop().expect("it began");
                    assert!(began == name && from <= ts, "{event}");
                    spans += 1;
                }
            }
            other => panic!("no phase {other}"),
        }
        assert!(tid == 0 || names.contains_key(&(pid, tid)), "a track has a name: {event}");
    }
    assert!(open.values().all(Vec::is_empty), "what began has ended");
    assert_eq!(spans, 1 + PHASES.len() + 1, "the failover, its phases, and what was wrong");
    let at = |name: &str| {
        let events = trace["traceEvents"].as_array().expect("a list");
        events
            .iter()
            .find(|event| event["name"] == name && event["ph"] == "i")
            .and_then(|event| event["ts"].as_f64())
    };
    assert_eq!(at("decide").zip(at("notice")).map(|(decide, notice)| (decide - notice).round()), Some(18.0));
    let times =
        || trace["traceEvents"].as_array().expect("a list").iter().filter_map(|event| event["ts"].as_f64());
    assert_eq!(times().fold(f64::MAX, f64::min), 0.0, "times count from whatever was first");
}

#[test]
fn the_log_is_read_by_a_standard_reader() {
    let counted = logged(&text(ReportFormat::Hdr));
    let report = report();
    for which in [Histogram::Renewal, Histogram::Margin] {
        assert_eq!(counted[which.name()], report.totals[which as usize].len(), "{}", which.name());
    }
}

#[test]
fn markdown_and_html_escape_untrusted_text() {
    let markdown = text(ReportFormat::Md);
    assert!(markdown.contains("deploy \"1.4\" \\| \\<b>, \\*now\\*"), "{markdown}");
    assert!(markdown.contains("| 5.00us | 13.0us | 12.0us | 1.00us | 125us | 156us | app-1 |"), "{markdown}");
    for table in markdown.split("\n\n").filter(|part| part.starts_with('|')) {
        let columns: Vec<usize> =
            table.lines().map(|line| line.replace("\\|", "").matches('|').count()).collect();
        assert!(columns.iter().all(|n| *n == columns[0]), "{table}");
    }
    let html = text(ReportFormat::Html);
    assert!(
        html.starts_with("<!DOCTYPE html>") && html.contains("<svg") && html.contains("&lt;b&gt;, *now*")
    );
    assert!(!html.contains("<b>") && !html.contains("http-equiv") && !html.contains("src="), "{html}");
}

#[test]
fn openmetrics_is_read_by_a_parser_of_it() {
    let text = text(ReportFormat::Openmetrics);
    let set = openmetrics_parser::openmetrics::parse_openmetrics(&text).expect("OpenMetrics");
    let family = &set.families["obol_renewals_on_time"];
    assert_eq!(family.iter_samples().count(), 9);
    assert!(set.families.contains_key("obol_span_seconds"));
}

#[test]
fn of_two_processes_of_one_name_openmetrics_has_the_newest_that_runs() {
    let mut last = samples::healthy(Instant(3_600_000_000_000));
    let own = last.processes.iter().position(|row| row.name.as_str() == "node-1").expect("node-1");
    let row = last.processes[own].clone();
    let newer = Incarnation(row.incarnation.0 + 100);
    let mut dead = row.clone();
    (dead.life, dead.incarnation) = (Life::Down, Incarnation(newer.0 + 100));
    let mut counters = row.counters.clone();
    counters.iter_mut().for_each(|counter| *counter += 1_000_000);
    last.processes.push(ProcessRow { region: 200, incarnation: newer, counters, ..row.clone() });
    last.processes.push(ProcessRow { region: 201, ..dead });
    let report = Report::new(samples::name("default"), vec![Arc::new(last)]).expect("a sample");
    let text = report.text(ReportFormat::Openmetrics).expect("written");
    openmetrics_parser::openmetrics::parse_openmetrics(&text).expect("OpenMetrics");
    let of_node = |line: &&str| line.starts_with("obol_") && line.contains("\"node-1\"");
    let series: Vec<&str> = text.lines().filter(of_node).collect();
    let all: BTreeSet<&str> =
        series.iter().filter_map(|line| line.rsplit_once(' ')).map(|(of, _)| of).collect();
    assert!(all.len() > 10 && all.len() == series.len(), "each series once: {series:#?}");
    let loops = series.iter().find(|line| line.starts_with("obol_loops_total")).expect("counted");
    let value: u64 = loops.rsplit_once(' ').and_then(|(_, value)| value.parse().ok()).expect("a number");
    assert!(value >= 1_000_000, "of the newest that runs: {loops}");
}

/// Two seconds of a cluster, with a sample every quarter of a second made by this.
fn quarters(from: u64, make: impl Fn(u64, Instant) -> Sample) -> Vec<Arc<Sample>> {
    (0..8).map(|n| Arc::new(make(n, Instant(from + n * 250_000_000)))).collect()
}

/// A cluster with an outage of half a second in the middle.
fn with_an_outage(n: u64, at: Instant) -> Sample {
    let mut sample = samples::healthy(at);
    let reason = match n {
        2 => (Health::Degraded, "coord-1 down"),
        3 | 4 => (Health::Unavailable, "coordinator majority lost"),
        5 => (Health::Degraded, "coord-1 has no view"),
        _ => return sample,
    };
    sample.health = reason.0;
    sample.reasons = vec![reason.1.to_owned()];
    sample
}

#[test]
fn an_outage_in_the_middle_is_in_every_format() {
    let start = 3_600_000_000_000;
    let report = Report::new(samples::name("default"), quarters(start, with_an_outage)).expect("samples");
    let text = |format| report.text(format).expect("written");
    let json: Value = serde_json::from_str(&text(ReportFormat::Json)).expect("JSON");
    assert_eq!(
        (json["health"].as_str(), json["no_service_ns"].as_u64()),
        (Some("healthy"), Some(500_000_000))
    );
    let summary = json["summary"].as_str().expect("a text");
    let (from, to) =
        (iso(report.unix(Instant(start + 500_000_000))), iso(report.unix(Instant(start + 1_500_000_000))));
    let begins = format!(
        "From {from} to {to} the cluster was not healthy: coord-1 down; coordinator majority lost; coord-1 has no view. No \
         program could act for 500ms, in 1 interval."
    );
    assert_eq!(summary, begins, "the failover was before the first sample");
    assert!(text(ReportFormat::Md).contains(&begins), "{summary}");
    let outages = json["outages"].as_array().expect("a list");
    let names: Vec<_> = outages.iter().map(|one| one["health"].as_str().expect("a word")).collect();
    assert_eq!(names, ["degraded", "unavailable", "degraded"]);
    let lost = &outages[1];
    assert_eq!((&lost["from"], &lost["to"]), (&outages[0]["to"], &outages[2]["from"]));
    assert_eq!((lost["lasts"].as_bool(), lost["serves"].as_bool()), (Some(false), Some(false)));
    assert_eq!(lost["reasons"], serde_json::json!(["coordinator majority lost"]));
    for format in [ReportFormat::Md, ReportFormat::Html] {
        let text = text(format);
        assert!(text.contains("Outages") && text.contains("coordinator majority lost"), "{text}");
        assert!(text.contains("No program could act for 500ms, in 1 interval."), "{text}");
    }
    assert!(text(ReportFormat::Openmetrics).contains("obol_no_service_seconds{cluster=\"default\"} 0.5\n"));
    assert_eq!(text(ReportFormat::Perfetto).matches("coordinator majority lost").count(), 2);
}

#[test]
fn an_outage_at_the_last_sample_lasts() {
    let json: Value = serde_json::from_str(&text(ReportFormat::Json)).expect("JSON");
    assert_eq!(
        (json["outages"][0]["lasts"].as_bool(), json["no_service_ns"].as_u64()),
        (Some(true), Some(0))
    );
    assert_eq!(json["outages"][0]["reasons"], json["reasons"]);
}

#[test]
fn a_cluster_that_ended_before_the_report_did_gives_no_service_until_the_end() {
    let start = 3_600_000_000_000;
    let all = quarters(start, |_, at| samples::healthy(at));
    let mut report = Report::new(samples::name("default"), all).expect("samples");
    report.ends_without_cluster(report.last.at + Nanos::from_secs(3));
    let json: Value = serde_json::from_str(&report.text(ReportFormat::Json).expect("written")).expect("JSON");
    assert_eq!(
        (&json["health"], json["no_service_ns"].as_u64()),
        (&"no cluster".into(), Some(3_000_000_000))
    );
    assert_eq!(json["outages"][0]["reasons"], serde_json::json!(["the cluster ended"]));
    for format in [ReportFormat::Md, ReportFormat::Html] {
        let text = report.text(format).expect("written");
        assert!(text.contains("No program could act for 3.0s") && text.contains("no cluster"), "{text}");
    }
}

/// Two clusters of one name: in the second, incarnation 7 is another member.
fn two_clusters(ids: [Option<u64>; 2]) -> Report {
    let start = 3_600_000_000_000;
    let mut all = quarters(start, |n, at| {
        let sample = if n < 4 { samples::healthy(at) } else { samples::degraded(at) };
        let events = if n == 4 { sample.events.clone() } else { Vec::new() };
        Sample { cluster_id: ids[0], events, ..sample }
    });
    all.extend(quarters(start + 4_000_000_000, |_, at| {
        let mut sample = samples::healthy(at);
        sample.cluster_id = ids[1];
        sample.view.as_mut().expect("a view").id = ViewId(2);
        for row in &mut sample.processes {
            row.pid += 1000;
            row.incarnation = match row.incarnation.0 {
                7 => Incarnation(4),
                4 => Incarnation(7),
                other => Incarnation(other),
            };
        }
        sample
    }));
    Report::new(samples::name("default"), all).expect("samples")
}

#[test]
fn names_of_one_cluster_are_not_used_for_the_next() {
    // Old recordings have no cluster id.
    for ids in [[Some(1), Some(2)], [None, None]] {
        let report = two_clusters(ids);
        let json: Value =
            serde_json::from_str(&report.text(ReportFormat::Json).expect("written")).expect("JSON");
        assert_eq!(json["failovers"].as_array().map(Vec::len), Some(1));
        assert_eq!(json["failovers"][0]["dead"][0]["who"], "app-2 (7)");
        assert!(report.text(ReportFormat::Csv).expect("written").contains(",app-2 (7),"));
        let health: Vec<_> =
            json["outages"].as_array().expect("a list").iter().map(|one| one["health"].clone()).collect();
        assert_eq!(health, ["degraded", "no cluster"]);
        assert_eq!(json["outages"][0]["lasts"], false);
        assert_eq!(json["no_service_ns"], 2_250_000_000u64, "while there was no cluster");
    }
    assert_eq!(two_clusters([Some(1), Some(1)]).parts.len(), 2, "a cluster made anew with its former id");
}

#[test]
fn a_trace_has_no_negative_time_also_if_a_note_or_an_event_was_before_the_first_failover() {
    let start = 3_600_000_000_000;
    let mut last = samples::degraded(Instant(start + 2_000_000_000));
    let text = "long before".to_owned();
    last.marks.push(MarkRow {
        at: Instant(start - 700_000_000),
        text,
        drill: None,
        rollout: None,
        acknowledged: None,
    });
    last.events.insert(0, samples::event(Instant(start - 500_000_000), 0));
    let report = Report::new(samples::name("default"), [Arc::new(last)]).expect("a sample");
    let trace = report.text(ReportFormat::Perfetto).expect("written");
    let trace: Value = serde_json::from_str(&trace).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("a list");
    let times: Vec<f64> = events.iter().filter_map(|event| event["ts"].as_f64()).collect();
    assert!(times.len() > 5 && times.iter().all(|ts| *ts >= 0.0), "{times:?}");
    let mark = events.iter().find(|event| event["name"] == "long before").expect("the note");
    assert_eq!(mark["ts"], 0.0);
}

#[test]
fn what_was_before_the_first_sample_and_what_no_recorder_shows_is_said() {
    let start = 3_600_000_000_000;
    let mut sample = samples::degraded(Instant(start));
    for (at, text) in [(start - 60_000_000_000, "before"), (start, "during")] {
        let text = text.to_owned();
        sample.marks.push(MarkRow { at: Instant(at), text, drill: None, rollout: None, acknowledged: None });
    }
    let report = Report::new(samples::name("default"), [Arc::new(sample.clone())]).expect("a sample");
    let json: Value = serde_json::from_str(&report.text(ReportFormat::Json).expect("written")).expect("JSON");
    let before: Vec<_> =
        json["marks"].as_array().expect("a list").iter().map(|m| &m["before_first_sample"]).collect();
    assert_eq!(before, [true, false]);
    assert_eq!(json["failovers"][0]["before_first_sample"], true, "its stamps are before the sample");
    // The view is the seventh, and the events have the decision of one.
    let lacks = json["lacks"].as_array().expect("a list");
    assert_eq!(lacks.len(), 1, "{lacks:?}");
    assert!(lacks[0].as_str().expect("text").starts_with("6 of the 7 view changes"), "{lacks:?}");
    for format in [ReportFormat::Md, ReportFormat::Html] {
        let text = report.text(format).expect("written");
        assert!(text.contains("6 of the 7 view changes"), "{text}");
        assert_eq!(text.matches("before the first sample").count(), 2, "{text}");
    }
    // All decisions are there: nothing is missing.
    sample.events = (1..=7).map(|view| decide(view, start + view)).collect();
    let whole = Report::new(samples::name("default"), [Arc::new(sample)]).expect("a sample");
    assert_eq!(whole.lacks(), [""; 0]);
}

fn decide(view: u64, at: u64) -> EventRow {
    let event = obol_membership::recorder::EventKind::Decide;
    EventRow { event, a: view, ..samples::event(Instant(at), view) }
}

#[test]
fn no_table_is_empty_and_problems_have_the_time_of_the_sample_that_had_them() {
    let start = 3_600_000_000_000;
    let mut sample = samples::healthy(Instant(start));
    sample.reasons = vec!["something".to_owned()];
    let mut report = Report::new(samples::name("default"), [Arc::new(sample)]).expect("a sample");
    let text = report.text(ReportFormat::Md).expect("written");
    assert!(!text.contains("Outages") && text.contains("Problems at the last sample"), "{text}");
    // The cluster ended, and the report later.
    report.ends_without_cluster(report.last.at + Nanos::from_secs(60));
    let text = report.text(ReportFormat::Md).expect("written");
    let (_, problems) = text.split_once("Problems at the last sample").expect("a heading");
    assert!(problems.contains(&iso(report.last.unix)), "{text}");
}

#[test]
fn the_phases_of_a_failover_and_what_is_between_missing_stamps_add_up_to_the_total() {
    use obol_membership::recorder::EventKind;
    let mut sample = samples::degraded(Instant(3_600_000_000_000));
    let whole = Report::new(samples::name("default"), [Arc::new(sample.clone())]).expect("a sample");
    let sum = |report: &Report| {
        let failover = report.failovers().next().map(|(_, failover)| failover.clone()).expect("one");
        let known: u64 = failover.phases().iter().flatten().map(|span| span.0).sum();
        (known, failover.unstamped().map(|span| span.0), failover.total().expect("a total").0)
    };
    let (known, rest, total) = sum(&whole);
    assert_eq!((known, rest), (total, None));
    sample.events.retain(|event| event.event != EventKind::Fenced && event.event != EventKind::Clear);
    let lacking = Report::new(samples::name("default"), [Arc::new(sample)]).expect("a sample");
    let (known, rest, total) = sum(&lacking);
    assert!(known < total);
    assert_eq!(known + rest.expect("a rest"), total);
    let html = lacking.text(ReportFormat::Html).expect("written");
    assert!(html.contains("between missing stamps"), "{html}");
    assert!(!whole.text(ReportFormat::Html).expect("written").contains("between missing stamps</text>"));
}

#[test]
fn renewals_are_those_of_the_covered_time_over_all_lives() {
    let start = 3_600_000_000_000;
    let renewals = |on_time| Some(Renewals { on_time, late: 1, failed: 0 });
    let all = [100, 250, 240, 300].into_iter().zip(0..).map(|(n, at)| {
        // The observer was opened anew before the third: it does not know the lives that ended before.
        Arc::new(Sample { renewals: renewals(n), ..samples::healthy(Instant(start + at * 250_000_000)) })
    });
    let report = Report::new(samples::name("default"), all).expect("samples");
    assert_eq!(report.renewals, Some(Renewals { on_time: 210, late: 0, failed: 0 }));
    assert!(report.text(ReportFormat::Md).expect("written").contains("210 on time, 0 late, 0 failed"));
    let old =
        Report::new(samples::name("default"), [Arc::new(samples::healthy(Instant(start)))]).expect("one");
    assert_eq!(old.renewals, None, "an old recording does not say it");
}

#[test]
fn a_long_recording_has_the_same_failovers_and_counts_in_bounded_memory() {
    use obol_membership::recorder::EventKind;
    const FAILOVERS: u64 = 12_000;
    let start = 3_600_000_000_000;
    let mut builder = Builder::new(samples::name("default"));
    let mut counted = 0;
    for n in 0..FAILOVERS {
        let at = start + n * 250_000_000;
        let mut sample = samples::healthy(Instant(at));
        counted += sample.spans.iter().map(|span| span.counts.len()).sum::<u64>();
        let view = 7 + n;
        let who = Incarnation(1_000 + n);
        let failed = ChangeRow::Failed { who, accuser: Incarnation(1), reason: Reason::Deadbeat };
        let row = sample.view.as_mut().expect("a view");
        (row.id, row.changes) = (ViewId(view), vec![failed]);
        let of = |process: &str, event, a, us: u64| EventRow {
            process: samples::name(process),
            event,
            a,
            at: Instant(at - 1_000_000 + us * 1000),
            ..samples::event(Instant(at), us)
        };
        sample.events = vec![
            of("coord-1", EventKind::Notice, 1_000 + n, 0),
            of("coord-1", EventKind::Propose, view, 5),
            of("coord-1", EventKind::Decide, view, 18),
            of("coord-1", EventKind::Fenced, view, 30),
            of("coord-1", EventKind::Clear, view, 31),
            of("app-1", EventKind::Active, view, 156),
        ];
        builder.take(Arc::new(sample));
        assert!(builder.size() <= (1 << 16) + 8 + (1 << 14) + 8, "{} after {n}", builder.size());
    }
    let report = builder.finish().expect("samples");
    let views: Vec<u64> = report.failovers().map(|(_, failover)| failover.view.0).collect();
    assert_eq!(views, (7..7 + FAILOVERS).collect::<Vec<_>>(), "each once, in their order");
    let totals: BTreeSet<_> = report.failovers().map(|(_, failover)| failover.total()).collect();
    assert_eq!(totals, BTreeSet::from([Some(Nanos::from_micros(156))]), "each whole");
    let logged: u64 = logged(&report.text(ReportFormat::Hdr).expect("written")).values().sum();
    assert_eq!(logged, counted);
}

#[test]
fn incidents_that_are_not_listed_are_counted() {
    let lacks = |incidents: u64| {
        let mut builder = Builder::new(samples::name("default"));
        // Each lasts for 2 s, and the next one begins 3 s after that.
        for n in 0..incidents * 5 {
            let mut sample = samples::healthy(Instant(3_600_000_000_000 + n * 1_000_000_000));
            if n % 5 < 3 {
                sample.health = Health::Degraded;
                sample.reasons = vec!["node-2 is frozen (stopped)".to_owned()];
            }
            builder.take(Arc::new(sample));
        }
        builder.finish().expect("samples").lacks().join("\n")
    };
    assert!(!lacks(100).contains("incidents"), "{}", lacks(100));
    assert!(lacks(103).contains("3 incidents before those that are listed"), "{}", lacks(103));
}

#[test]
fn of_many_clusters_the_newest_are_kept_and_the_report_says_so() {
    let mut builder = Builder::new(samples::name("default"));
    for n in 0..500 {
        let mut sample = samples::degraded(Instant(3_600_000_000_000 + n * 1_000_000_000));
        sample.cluster_id = Some(n);
        builder.take(Arc::new(sample));
        assert!(builder.parts() <= 33, "{} after {n}", builder.parts());
    }
    let report = builder.finish().expect("samples");
    assert_eq!(report.samples, 500);
    let lacks = report.lacks().join("\n");
    assert!(
        lacks.contains("468 clusters with their events and annotations, 468 failovers before"),
        "{lacks}"
    );
}

#[test]
fn a_report_that_was_cut_short_says_so_in_every_format_that_has_sentences() {
    let whole = report();
    let cut = Report { cut_short: Some(Duration::from_secs(3600)), ..report() };
    for format in [ReportFormat::Md, ReportFormat::Html, ReportFormat::Json] {
        let text = cut.text(format).expect("text");
        assert!(text.contains("cut short by a signal: it covers ") && text.contains(" of 3600s."), "{text}");
        assert!(!whole.text(format).expect("text").contains("cut short"));
    }
}

#[test]
fn healthy_in_every_sample_is_said_only_of_a_report_without_outages_and_failovers() {
    const HEALTHY: &str = "healthy in every sample";
    let start = 3_600_000_000_000;
    let of = |make: &dyn Fn(u64, Instant) -> Sample| {
        Report::new(samples::name("default"), quarters(start, make)).expect("samples").summary()
    };
    let quiet = |_, at| Sample { events: Vec::new(), ..samples::healthy(at) };
    assert!(of(&quiet).contains(HEALTHY));
    let early = quiet(0, Instant(start / 2));
    let all = [early, samples::degraded(Instant(start))].map(Arc::new);
    let failed = Report::new(samples::name("default"), all).expect("samples").summary();
    assert!(!failed.contains(HEALTHY) && failed.contains("app-2 (7) failed at "), "{failed}");
    let ill = |n, at| Sample { events: Vec::new(), ..with_an_outage(n, at) };
    assert!(!of(&ill).contains(HEALTHY));
    let degraded = of(&|n, at| Sample {
        health: if n == 3 { Health::Degraded } else { Health::Healthy },
        ..quiet(n, at)
    });
    assert!(degraded.ends_with("Some program could act in every sample."), "{degraded}");
    let unknown = of(&|n, at| Sample {
        health: if n == 3 { Health::Unknown } else { Health::Healthy },
        ..quiet(n, at)
    });
    assert!(unknown.ends_with("is not known for all of this time."), "{unknown}");
}

//! The report for readers, which becomes a page or Markdown.

use crate::{Part, Report};
use obol_fabric::Instant;
use obol_observe::Renewals;
use obol_observe::calendar::{age, iso};
use obol_observe::failovers::{Failover, PHASES};
use obol_observe::incidents::incident::Incident;
use obol_observe::plot::{Bars, Cell, Document, PlotError};
use obol_observe::sampling::windows::PERCENTILES;
use obol_term::output::Failure;

/// Failovers in the chart at most, the newest.
const CHART_MAX: usize = 24;
/// What a failover has beside its phases.
const UNSTAMPED: &str = "between missing stamps";
/// Under the chart.
const CAPTION: &str = "The newest failovers, with the phases of each. They add up to the total; of phases without stamps \
                       it is known only how long they took together.";

/// A number that may be missing.
fn known(value: Option<impl ToString>) -> Cell {
    Cell::Number(value.map_or("--".to_owned(), |value| value.to_string()))
}

/// All outages, and the problems at the end.
fn outages(report: &Report, doc: &mut Document) {
    let mut rows = report.outages.iter().peekable();
    if rows.peek().is_some() {
        doc.heading("Outages");
        if let Some(line) = report.outages.without_service_text() {
            doc.say(line);
        }
        let rows = rows.map(|outage| {
            let to = if outage.lasts { "the end".to_owned() } else { iso(report.unix(outage.to)) };
            vec![
                Cell::text(iso(report.unix(outage.from))),
                Cell::text(to),
                Cell::number(age(outage.span())),
                Cell::text(outage.name()),
                Cell::text(outage.why()),
            ]
        });
        doc.table(&["from", "to", "for", "cluster", "reasons"], rows);
    }
    let alerts = report.data().alerts.iter().map(|(alert, clause)| format!("{alert}: {clause}"));
    let problems: Vec<String> = report.last.reasons.iter().cloned().chain(alerts).collect();
    if !problems.is_empty() {
        doc.heading("Problems at the last sample");
        doc.say(format!("What was wrong at {}:", iso(report.last.unix)));
        doc.list(problems);
    }
}

/// What happened: each incident in its sentence, oldest first.
fn incidents(report: &Report, doc: &mut Document) {
    let told = |one: Incident| format!("{}: {}", iso(report.unix(one.since)), one.told());
    let all: Vec<String> = report.incidents().map(told).collect();
    if !all.is_empty() {
        doc.heading("What happened");
        doc.list(all);
    }
}

/// A time, and whether it is before what the report covers.
fn time(report: &Report, at: Instant) -> String {
    let before = if report.is_before(at) { " (before the first sample)" } else { "" };
    format!("{}{before}", iso(report.unix(at)))
}

/// Every failover, and a chart of the phases of the newest.
fn failovers(report: &Report, doc: &mut Document) -> Result<(), Failure> {
    doc.heading("Failovers");
    let all: Vec<(&Part, &Failover)> = report.failovers().collect();
    if all.is_empty() {
        doc.say("None in the events that were read.");
        return Ok(());
    }
    let shown = &all[all.len().saturating_sub(CHART_MAX)..];
    let groups = shown.iter().map(|(_, failover)| format!("view {}", failover.view)).collect();
    let mut bars = Bars::stacked("microseconds from the first notice", groups);
    for (at, phase) in PHASES.iter().enumerate() {
        let values =
            shown.iter().map(|(_, failover)| failover.phases()[at].map(|span| span.0 as f64 / 1000.0));
        bars = bars.with(phase, values.collect());
    }
    let rest = shown.iter().map(|(_, failover)| failover.unstamped().map(|span| span.0 as f64 / 1000.0));
    let rest: Vec<Option<f64>> = rest.collect();
    if rest.iter().any(Option::is_some) {
        bars = bars.with(UNSTAMPED, rest);
    }
    match bars.svg() {
        Ok(svg) => doc.figure("failovers", svg, CAPTION),
        // No failover has complete stamps.
        Err(PlotError::Empty) => {}
        Err(error) => return Err(Failure::failed(error)),
    }
    let heads = [&["began", "view", "dead", "decided by"], &PHASES[..], &["total", "active last"]].concat();
    let rows = all.iter().map(|(part, failover)| {
        let mut cells = vec![
            Cell::text(time(report, failover.began)),
            Cell::number(failover.view),
            Cell::text(part.dead(failover)),
            Cell::text(failover.decider),
        ];
        cells.extend(failover.phases().map(known));
        let last = failover.last_active().map_or("--".to_owned(), |(name, _)| name.to_string());
        cells.extend([known(failover.total()), Cell::text(last)]);
        cells
    });
    doc.table(&heads, rows);
    doc.say("Times are the processes' own stamps; phases with missing stamps are left out.");
    Ok(())
}

/// The whole report.
pub(super) fn document(report: &Report) -> Result<Document, Failure> {
    let sample = &report.last;
    let view = sample.view.as_ref();
    let mut doc = Document::new(format!("Cluster {}", report.cluster));
    doc.say(format!(
        "{} samples over {}, from {} until {}. At the end: {}{}.",
        report.samples,
        age(report.span()),
        iso(report.first.1),
        iso(sample.unix),
        report.health(),
        view.map_or(String::new(), |view| format!(", in view {} with {} members", view.id, view.members))
    ));
    report.lacks().into_iter().for_each(|lack| doc.say(lack));
    incidents(report, &mut doc);
    outages(report, &mut doc);
    let marks: Vec<String> =
        report.marks().map(|mark| format!("{}: {}", time(report, mark.at), mark.text)).collect();
    if !marks.is_empty() {
        doc.heading("Notes");
        doc.list(marks);
    }
    failovers(report, &mut doc)?;
    doc.heading("Latencies");
    let mut heads = vec!["of", "samples"];
    heads.extend(PERCENTILES.map(|(name, ..)| name));
    heads.push("worst");
    let rows = report.latencies().map(|latency| {
        let mut cells = vec![Cell::text(latency.of.name()), Cell::number(latency.n)];
        cells.extend(latency.percentiles.map(known));
        cells.push(known(latency.worst));
        cells
    });
    doc.table(&heads, rows);
    doc.say(
        "The nodes' own histograms, within 1/16; a percentile is shown only with enough samples. For the margin low is \
         bad: 99 % of the renewals had at least its p99 left.",
    );
    if let Some(Renewals { on_time, late, failed }) = report.renewals {
        doc.say(format!(
            "Renewals of leases in this time, also of processes that have ended: {on_time} on time, {late} late, {failed} \
             failed."
        ));
    }
    let processes = sample.processes.iter().map(|row| {
        vec![
            Cell::text(row.name),
            Cell::text(row.kind.name()),
            Cell::text(report.data().status(row).words().1),
            Cell::number(row.incarnation),
            known(row.view),
        ]
    });
    doc.folded("Processes", &["name", "kind", "state", "incarnation", "view"], processes);
    Ok(doc)
}

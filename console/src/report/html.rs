//! The report as one self-contained page.

use crate::output::Failure;
use crate::report::{Part, Report, iso};
use crate::state::windows::PERCENTILES;
use crate::widgets::canvas::age;
use obol_fabric::Nanos;
use obol_observe::failovers::{Failover, PHASES};
use obol_observe::plot::{Bars, Cell, Page, PlotError};

/// Failovers in the chart at most, the newest.
const CHART_MAX: usize = 24;

fn span(value: Option<Nanos>) -> Cell {
    Cell::Number(value.map_or("--".to_owned(), |value| value.to_string()))
}

fn text_cell(text: &impl ToString) -> Cell {
    Cell::Text(text.to_string())
}

/// Every failover, and a chart of the phases of the newest.
fn failovers(report: &Report, page: &mut Page) -> Result<(), Failure> {
    page.heading("Failovers");
    let all: Vec<(&Part, &Failover)> = report.failovers().collect();
    if all.is_empty() {
        page.paragraph("None in the events that were read.");
    } else {
        let shown = &all[all.len().saturating_sub(CHART_MAX)..];
        let groups = shown.iter().map(|(_, failover)| format!("view {}", failover.view)).collect();
        let mut bars = Bars::stacked("microseconds from the first notice", groups);
        for (at, phase) in PHASES.iter().enumerate() {
            let values =
                shown.iter().map(|(_, failover)| failover.phases()[at].map(|span| span.0 as f64 / 1000.0));
            bars = bars.with(phase, values.collect());
        }
        match bars.svg() {
            Ok(svg) => page.figure(
                &svg,
                "Phases of each failover by the processes' own stamps; the phases add up to the total.",
            ),
            // No failover has complete stamps.
            Err(PlotError::Empty) => {}
            Err(error) => return Err(Failure::failed(error)),
        }
        let mut heads = vec!["began", "view", "dead", "decided by"];
        heads.extend(PHASES);
        heads.extend(["total", "active last"]);
        let row = |(part, failover): &(&Part, &Failover)| {
            let mut cells = vec![
                text_cell(&iso(report.unix(failover.began))),
                text_cell(&failover.view),
                text_cell(&part.dead(failover)),
                text_cell(&failover.decider),
            ];
            cells.extend(failover.phases().map(span));
            cells.push(span(failover.total()));
            cells.push(text_cell(
                &failover.last_active().map_or("--".to_owned(), |(name, _)| name.to_string()),
            ));
            cells
        };
        page.table(&heads, &all.iter().map(row).collect::<Vec<_>>());
    }
    Ok(())
}

/// The whole text.
pub(super) fn text(report: &Report) -> Result<String, Failure> {
    let sample = &report.last;
    let mut page = Page::new(&format!("Cluster {}", report.cluster));
    page.paragraph(&format!(
        "{} samples over {}, until {}. At the end: {}.",
        report.samples.len(),
        age(report.span()),
        iso(sample.unix),
        report.health()
    ));
    if let Some(gap) = &report.gap {
        page.paragraph(&format!("! The recording is not whole: {gap}."));
    }
    if let Some(line) = report.outages.without_service_text() {
        page.paragraph(&line);
    }
    let rows = report.outages.iter().map(|outage| {
        let to = if outage.lasts { "the end".to_owned() } else { iso(report.unix(outage.to)) };
        vec![
            text_cell(&iso(report.unix(outage.from))),
            text_cell(&to),
            Cell::Number(age(outage.span())),
            text_cell(&outage.name()),
            text_cell(&outage.why()),
        ]
    });
    let rows: Vec<Vec<Cell>> = rows.collect();
    if !rows.is_empty() {
        page.heading("Outages");
        page.table(&["from", "to", "for", "cluster", "reasons"], &rows);
    }
    let wrong = sample.reasons.iter().cloned();
    let alerts = report.data().alerts.iter().map(|(alert, clause)| format!("{alert}: {clause}"));
    wrong.chain(alerts).for_each(|line| page.paragraph(&format!("! {line}")));
    for mark in report.marks() {
        page.paragraph(&format!("{}: {}", iso(report.unix(mark.at)), mark.text));
    }
    failovers(report, &mut page)?;
    page.heading("Latencies");
    let mut heads = vec!["of", "samples"];
    heads.extend(PERCENTILES.map(|(name, ..)| name));
    heads.push("worst");
    let rows: Vec<Vec<Cell>> = report
        .latencies()
        .map(|latency| {
            let mut cells = vec![text_cell(&latency.of.name()), Cell::Number(latency.n.to_string())];
            cells.extend(latency.percentiles.map(span));
            cells.push(span(latency.worst));
            cells
        })
        .collect();
    page.table(&heads, &rows);
    page.paragraph(
        "The nodes' own histograms, within 1/16; a percentile is shown only with enough samples. For the margin low is \
         bad: 99 % of the renewals had at least its p99 left.",
    );
    page.folded("Processes", |page| {
        let rows: Vec<Vec<Cell>> = sample
            .processes
            .iter()
            .map(|row| {
                vec![
                    text_cell(&row.name),
                    text_cell(&row.kind.name()),
                    text_cell(&report.data().status(row).words().1),
                    Cell::Number(row.incarnation.to_string()),
                    Cell::Number(row.view.map_or("--".to_owned(), |view| view.to_string())),
                ]
            })
            .collect();
        page.table(&["name", "kind", "state", "incarnation", "view"], &rows);
    });
    Ok(page.finish())
}

//! The report for a postmortem, in Markdown.

use crate::report::{Report, iso, phases};
use crate::state::windows::PERCENTILES;
use crate::widgets::canvas::age;
use obol_fabric::Nanos;
use std::fmt::Write as _;

/// Text in a table's cell or in a line, with markup escaped.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if matches!(letter, '|' | '*' | '_' | '`' | '<' | '[' | '\\' | '#') {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

fn span(value: Option<Nanos>) -> String {
    value.map_or("--".to_owned(), |value| value.to_string())
}

/// All outages, and the problems at the end.
fn wrong(report: &Report, text: &mut String) {
    let (reasons, alerts) = (&report.last.reasons, &report.data().alerts);
    if report.outages.iter().next().is_none() && alerts.is_empty() {
        return;
    }
    text.push_str("\n## Outages\n\n");
    if let Some(line) = report.outages.without_service_text() {
        let _ = writeln!(text, "{line}\n");
    }
    for (n, outage) in report.outages.iter().enumerate() {
        if n == 0 {
            text.push_str("| from | to | for | cluster | reasons |\n|---|---|--:|---|---|\n");
        }
        let to = if outage.lasts { "the end".to_owned() } else { iso(report.unix(outage.to)) };
        let (from, span, name) = (iso(report.unix(outage.from)), age(outage.span()), outage.name());
        let _ = writeln!(text, "| {from} | {to} | {span} | {name} | {} |", plain(&outage.why()));
    }
    if !reasons.is_empty() || !alerts.is_empty() {
        text.push_str("\nAt the end:\n\n");
    }
    for reason in reasons {
        let _ = writeln!(text, "- {}", plain(reason));
    }
    for (alert, clause) in alerts {
        let _ = writeln!(text, "- {alert}: {}", plain(clause));
    }
}

/// The whole text. Writing to a string cannot fail.
pub(super) fn text(report: &Report) -> String {
    let sample = &report.last;
    let mut text = format!("# Cluster {}\n\n", plain(report.cluster.as_str()));
    let _ = writeln!(
        text,
        "{} samples over {}, until {}. At the end: **{}**{}.",
        report.samples.len(),
        age(report.span()),
        iso(sample.unix),
        report.health(),
        sample
            .view
            .as_ref()
            .map_or(String::new(), |view| format!(", in view {} with {} members", view.id, view.members))
    );
    if let Some(gap) = &report.gap {
        let _ = writeln!(text, "\nThe recording is not whole: {gap}.");
    }
    wrong(report, &mut text);
    for (n, mark) in report.marks().enumerate() {
        text.push_str(if n == 0 { "\n## Notes\n\n" } else { "" });
        let _ = writeln!(text, "- {}: {}", iso(report.unix(mark.at)), plain(&mark.text));
    }
    let _ = writeln!(text, "\n## Failovers\n");
    if report.failovers().next().is_none() {
        text.push_str("None in the events that were read.\n");
    } else {
        text.push_str("| began | view | dead | decided by | phases | total | active last |\n|---|--:|---|---|---|--:|---|\n");
        for (part, failover) in report.failovers() {
            let last = failover.last_active().map_or("--".to_owned(), |(name, _)| name.to_string());
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} |",
                iso(report.unix(failover.began)),
                failover.view,
                plain(&part.dead(failover)),
                failover.decider,
                phases(failover),
                span(failover.total()),
                last
            );
        }
        text.push_str("\nTimes are the processes' own stamps; phases with missing stamps are left out.\n");
    }
    text.push_str("\n## Latencies\n\n| of | samples |");
    for (name, ..) in PERCENTILES {
        let _ = write!(text, " {name} |");
    }
    text.push_str(" worst |\n|---|--:|--:|--:|--:|--:|--:|\n");
    for latency in report.latencies() {
        let _ = write!(text, "| {} | {} |", latency.of.name(), latency.n);
        for found in latency.percentiles {
            let _ = write!(text, " {} |", span(found));
        }
        let _ = writeln!(text, " {} |", span(latency.worst));
    }
    text.push_str(
        "\nThe nodes' own histograms, within 1/16; a percentile is shown only with enough samples. For the margin low is \
         bad: 99 % of the renewals had at least its p99 left.\n",
    );
    text.push_str("\n## Processes\n\n| name | kind | state | incarnation | view |\n|---|---|---|--:|--:|\n");
    for row in &sample.processes {
        let view = row.view.map_or("--".to_owned(), |view| view.to_string());
        let state = report.data().status(row).words().1;
        let _ =
            writeln!(text, "| {} | {} | {state} | {} | {view} |", row.name, row.kind.name(), row.incarnation);
    }
    text
}

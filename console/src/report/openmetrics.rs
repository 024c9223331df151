//! The newest figures for monitoring, as OpenMetrics text (specification 1.0.0): all counters and
//! states of processes, and the distributions as summaries in seconds.

use crate::poll::sample::Life;
use crate::report::Report;
use crate::state::windows::PERCENTILES;
use obol_membership::metrics::Counter;
use std::fmt::Write as _;

/// Nanoseconds as exact seconds.
fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

/// The whole text. Names consist of letters, digits, `-` and `_`, so labels need no escape; writing
/// to a string cannot fail.
pub(super) fn text(report: &Report) -> String {
    let sample = &report.last;
    let cluster = report.cluster;
    let mut text = String::new();
    for counter in Counter::ALL {
        let name = counter.name();
        let _ = writeln!(text, "# TYPE obol_{name} counter");
        for row in &sample.processes {
            let _ = writeln!(
                text,
                "obol_{name}_total{{cluster=\"{cluster}\",process=\"{}\",kind=\"{}\"}} {}",
                row.name,
                row.kind.name(),
                row.counter(*counter)
            );
        }
    }
    text.push_str(
        "# TYPE obol_runs gauge\n# HELP obol_runs Whether a process runs: neither stopped nor dead.\n",
    );
    for row in &sample.processes {
        let runs = u8::from(row.life == Life::Runs);
        let _ = writeln!(text, "obol_runs{{cluster=\"{cluster}\",process=\"{}\"}} {runs}", row.name);
    }
    text.push_str(
        "# TYPE obol_active gauge\n# HELP obol_active Whether the newest view is active for a process.\n",
    );
    for row in &sample.processes {
        let _ = writeln!(
            text,
            "obol_active{{cluster=\"{cluster}\",process=\"{}\"}} {}",
            row.name,
            u8::from(row.active)
        );
    }
    if let Some(view) = &sample.view {
        text.push_str("# TYPE obol_view gauge\n# HELP obol_view The newest decided view.\n");
        let _ = writeln!(text, "obol_view{{cluster=\"{cluster}\"}} {}", view.id);
    }
    text.push_str("# TYPE obol_no_service_seconds gauge\n# UNIT obol_no_service_seconds seconds\n");
    text.push_str(
        "# HELP obol_no_service_seconds How long no program could act, in the time of the report.\n",
    );
    let no_service = seconds(report.outages.without_service().0.0);
    let _ = writeln!(text, "obol_no_service_seconds{{cluster=\"{cluster}\"}} {no_service}");
    text.push_str("# TYPE obol_span_seconds summary\n");
    text.push_str("# HELP obol_span_seconds Durations; for the margin, the time left, from above.\n");
    for latency in report.latencies() {
        let of = latency.of.name();
        for ((_, q, _), found) in PERCENTILES.iter().zip(latency.percentiles) {
            let Some(found) = found else { continue };
            let value = seconds(found.0);
            let _ = writeln!(
                text,
                "obol_span_seconds{{cluster=\"{cluster}\",of=\"{of}\",quantile=\"{q}\"}} {value}"
            );
        }
        let _ = writeln!(text, "obol_span_seconds_count{{cluster=\"{cluster}\",of=\"{of}\"}} {}", latency.n);
    }
    text.push_str("# EOF\n");
    text
}

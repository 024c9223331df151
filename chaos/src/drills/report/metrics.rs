//! OpenMetrics (specification 1.0.0): the figures as summaries in seconds, and counts.

use crate::drills::engine::journal::{Journal, Outcome, counted};
use obol_observe::figures::total;
use std::fmt::Write as _;

/// A label's value, escaped.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The whole text.
pub(super) fn text(journal: &Journal) -> String {
    let drill = escaped(&journal.drill);
    let mut text = String::from("# TYPE obol_drill_seconds summary\n# UNIT obol_drill_seconds seconds\n");
    text.push_str("# HELP obol_drill_seconds Durations of a drill by figure.\n");
    for (figure, summary) in &journal.figures_us {
        let mut line = |quantile: &str, us: f64| {
            let seconds = us / 1e6;
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "obol_drill_seconds{{drill=\"{drill}\",figure=\"{figure}\",quantile=\"{quantile}\"}} {seconds}"
            );
        };
        let percentiles = [("0.5", summary.p50), ("0.9", summary.p90), ("0.99", summary.p99)];
        percentiles
            .into_iter()
            .filter_map(|(q, value)| Some((q, value?)))
            .for_each(|(q, value)| line(q, value));
        line("1", summary.max);
        let _ =
            writeln!(text, "obol_drill_seconds_count{{drill=\"{drill}\",figure=\"{figure}\"}} {}", summary.n);
    }
    text.push_str("# TYPE obol_drill_trials gauge\n# HELP obol_drill_trials Trials of a drill by outcome.\n");
    for &(name, outcome) in Outcome::ALL {
        let n = counted(&journal.trials).filter(|trial| trial.outcome == outcome).count();
        let _ = writeln!(text, "obol_drill_trials{{drill=\"{drill}\",outcome=\"{name}\"}} {n}");
    }
    let falsely = total(counted(&journal.trials).map(|trial| trial.falsely_failed));
    text.push_str("# TYPE obol_drill_falsely_failed gauge\n");
    text.push_str("# HELP obol_drill_falsely_failed Members removed as failed that no fault had hit.\n");
    let _ = writeln!(text, "obol_drill_falsely_failed{{drill=\"{drill}\"}} {falsely}");
    text.push_str("# EOF\n");
    text
}

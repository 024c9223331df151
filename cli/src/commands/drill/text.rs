//! The results of drills as text.

use obol_chaos::drillfile::Metric;
use obol_chaos::drills::Journal;
use obol_chaos::drills::engine::journal::counted;
use obol_fabric::Nanos;
use obol_observe::calendar::age_of_seconds;
use obol_observe::figures::total;
use obol_observe::stats::{P99_SAMPLES_MIN, Summary, shown as us};
use obol_term::output;

/// Repetitions that are reported one by one.
const REASONS_MAX: usize = 10;

/// The heads of a table of distributions.
pub(crate) fn head(of: &str) -> std::io::Result<()> {
    let [min, p50, p90, p99, max] = ["min", "p50", "p90", "p99", "max"];
    output::line(format_args!("{of:<24} {:>6} {min:>8} {p50:>8} {p90:>8} {p99:>8} {max:>8}", "n"))
}

pub(crate) fn row(name: &str, s: &Summary) -> std::io::Result<()> {
    output::line(row_text(name, s))
}

fn row_text(name: &str, s: &Summary) -> String {
    let is_any = s.n > 0;
    let figures = [is_any.then_some(s.min), s.p50, s.p90, s.p99, is_any.then_some(s.max)];
    let [min, p50, p90, p99, max] = figures.map(|claimed| claimed.map_or("--".to_owned(), us));
    format!("{name:<24} {:>6} {min:>8} {p50:>8} {p90:>8} {p99:>8} {max:>8}", s.n)
}

pub(super) fn print(journal: &Journal) -> std::io::Result<()> {
    output::line(format_args!(
        "drill {}: {}, {} repetitions in {}, {} void, {} false suspicions (profile {}, {} cores, kernel {})",
        journal.drill,
        journal.verdict.name(),
        journal.count,
        age_of_seconds(journal.took),
        journal.void,
        total(counted(&journal.trials).map(|trial| trial.falsely_failed)),
        journal.profile,
        journal.host.cores,
        journal.host.kernel
    ))?;
    head("")?;
    // In the order of a failover.
    for metric in Metric::figures() {
        if let Some(summary) = journal.figures_us.get(metric.name()) {
            row(metric.name(), summary)?;
        }
    }
    beside_the_figures(journal)?;
    journal.judged.iter().try_for_each(output::line)?;
    for one in journal.after.iter().filter(|one| !one.holds) {
        output::line(format_args!("  ! afterwards the steady state does not hold: {}", one.saw))?;
    }
    let with_reason = || counted(&journal.trials).filter(|trial| trial.reason.is_some());
    for trial in with_reason().take(REASONS_MAX) {
        let reason = trial.reason.as_deref().unwrap_or_default();
        output::line(format_args!("  ! repetition {}, {}: {reason}", trial.number, trial.step))?;
    }
    let more = with_reason().count().saturating_sub(REASONS_MAX);
    if more > 0 {
        output::line(format_args!("  ! {more} more were void or failed; --json and the journal have them"))?;
    }
    for remark in &journal.remarks {
        output::line(format_args!("  ! {remark}"))?;
    }
    Ok(())
}

/// What the failovers do not say, and how long they would have lasted without fences.
fn beside_the_figures(journal: &Journal) -> std::io::Result<()> {
    let failovers = journal.figures_us.get(Metric::CueToActive.name()).map_or(0, |summary| summary.n);
    if failovers == 0 {
        return Ok(());
    }
    if failovers < P99_SAMPLES_MIN {
        output::line(format_args!("no p99: it needs {P99_SAMPLES_MIN} samples, there are {failovers}"))?;
    }
    let longest = counted(&journal.trials).map(|trial| trial.lease_wait_ns).max().unwrap_or(0);
    output::line(format_args!(
        "the lease rule alone would have made the survivors wait {}",
        us(Nanos(longest).as_micros_f64())
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_samples_there_are_no_figures() {
        let none = Summary { n: 0, min: 0.0, p50: None, p90: None, p99: None, max: 0.0 };
        let cells = |summary: &Summary| -> Vec<String> {
            row_text("failover", summary).split_whitespace().map(str::to_owned).collect()
        };
        assert_eq!(cells(&none), ["failover", "0", "--", "--", "--", "--", "--"]);
        let one = Summary { n: 1, min: 5.0, max: 5.0, ..none };
        assert_eq!(cells(&one), ["failover", "1", "5.00us", "--", "--", "--", "5.00us"]);
    }
}

//! What clients of a replicated store had while its replicas joined, died and left: throughput over time
//! (`obol drill smr --script`).

use crate::drillfile::Change;
use crate::drills::engine::journal::{Host, Verdict};
use obol_observe::plot::{Axis, Chart, Document, Series};
use serde::Serialize;

/// What followed a step.
#[derive(Clone, Debug, Serialize)]
pub struct StepReport {
    /// What happened.
    pub name: String,
    /// What it did.
    pub change: Change,
    /// When, in seconds since the clients began.
    pub at_s: f64,
    /// Voters before and after it.
    pub voters: (u32, u32),
    /// Answers a second in the half second before it.
    pub before_per_s: f64,
    /// The longest time without any answer that ended between this step and the next.
    pub gap_ms: f64,
    /// The fewest answers of one interval of the series meanwhile, by the second.
    pub lowest_per_s: f64,
    /// From the step until all replicas that run voted and had everything.
    pub settled_ms: f64,
    /// Answers a second from then on, and in the second half of the step's time at most.
    pub after_per_s: f64,
}

/// A drill of a store.
#[derive(Clone, Debug, Serialize)]
pub struct Timeline {
    pub drill: String,
    /// What it is about.
    pub title: String,
    /// The verdict: an answered write must not be lost, and each step has to take place.
    pub verdict: Verdict,
    pub preset: String,
    /// Clients, each with as many writes outstanding as it may have.
    pub clients: u32,
    pub value_bytes: u32,
    /// The profile of the cluster.
    pub profile: String,
    /// The machine.
    pub host: Host,
    /// What followed each step that took place.
    pub steps: Vec<StepReport>,
    /// Answered writes.
    pub answers: u64,
    /// Answered writes that were not there at the end; `None` if it was not reached.
    pub lost: Option<u64>,
    /// Why it ended early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Length of an interval of the series.
    pub interval_ms: f64,
    /// Answers in each interval, from the beginning of the clients.
    pub series: Vec<u64>,
}

/// The columns of the table.
pub const HEADS: [&str; 8] =
    ["at s", "step", "voters", "before /s", "gap ms", "lowest /s", "settled ms", "after /s"];
/// The column that is text.
pub const TEXT_COLUMN: usize = 1;

impl Timeline {
    /// The rows of the table.
    pub fn rows(&self) -> Vec<[String; 8]> {
        let row = |step: &StepReport| {
            [
                format!("{:.2}", step.at_s),
                step.name.clone(),
                format!("{} -> {}", step.voters.0, step.voters.1),
                format!("{:.0}", step.before_per_s),
                format!("{:.1}", step.gap_ms),
                format!("{:.0}", step.lowest_per_s),
                format!("{:.1}", step.settled_ms),
                format!("{:.0}", step.after_per_s),
            ]
        };
        self.steps.iter().map(row).collect()
    }

    /// How the figures came about.
    pub fn explains(&self) -> String {
        format!(
            "{}: preset {}, {} clients that write {} bytes, profile {}, {} cores, Linux {}. before, after: answered writes a second \
             in the half second before the step, and when all replicas that run vote and have everything; gap: the longest time \
             without any answer until the next step; lowest: the interval of {} ms with the fewest answers; settled: from the \
             step until they all vote and have everything.",
            self.title,
            self.preset,
            self.clients,
            self.value_bytes,
            self.profile,
            self.host.cores,
            self.host.kernel,
            self.interval_ms
        )
    }

    /// What else there is to say, a line each.
    pub fn remarks(&self) -> Vec<String> {
        let lost = match self.lost {
            Some(lost) => format!("{} writes were answered, {lost} of the newest were lost", self.answers),
            None => format!("{} writes were answered; whether any was lost is unknown", self.answers),
        };
        std::iter::once(lost).chain(self.error.clone()).collect()
    }

    /// Throughput over time; `None` if there were no answers.
    fn chart(&self) -> Option<String> {
        let per_s = 1000.0 / self.interval_ms;
        let at = |n: usize| n as f64 * self.interval_ms / 1000.0;
        let points: Vec<(f64, f64)> =
            self.series.iter().enumerate().map(|(n, answers)| (at(n), *answers as f64 * per_s)).collect();
        let steps = self.steps.iter().map(|step| (step.at_s, 0.0)).collect();
        Chart::new(Axis::linear("s"), Axis::linear("answered writes a second"))
            .with(Series::dots("answers", points))
            .with(Series::dots("steps", steps))
            .svg()
            .ok()
    }

    /// The report for readers.
    pub fn document(&self) -> Document {
        let mut doc = Document::new(format!("{}: {}", self.drill, self.verdict.name()));
        doc.say(self.explains());
        doc.rows(&HEADS, self.rows(), |column| column == TEXT_COLUMN);
        if let Some(chart) = self.chart() {
            doc.figure("throughput", chart, "Answered writes over time, and when each step took place.");
        }
        doc.list(self.remarks());
        doc
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_has_each_step_and_what_was_lost() {
        let step = StepReport {
            name: "a server joins".to_owned(),
            change: Change::Grow,
            at_s: 1.25,
            voters: (5, 6),
            before_per_s: 1000.0,
            gap_ms: 3.5,
            lowest_per_s: 200.0,
            settled_ms: 40.0,
            after_per_s: 900.0,
        };
        let timeline = Timeline {
            drill: "d".to_owned(),
            title: "t".to_owned(),
            verdict: Verdict::Passed,
            preset: "dare".to_owned(),
            clients: 2,
            value_bytes: 64,
            profile: "laptop".to_owned(),
            host: Host::this(),
            steps: vec![step],
            answers: 7,
            lost: Some(0),
            error: None,
            interval_ms: 10.0,
            series: vec![1, 2, 4],
        };
        let row = ["1.25", "a server joins", "5 -> 6", "1000", "3.5", "200", "40.0", "900"];
        assert_eq!(timeline.rows(), [row.map(str::to_owned)]);
        assert_eq!(timeline.remarks(), ["7 writes were answered, 0 of the newest were lost"]);
        let html = timeline.document().html();
        assert!(html.contains("a server joins") && html.contains("<svg"), "{html}");
    }
}

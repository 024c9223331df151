//! uKharon's Table 2 with real processes: the shipped drill of each of its cells, and the measured
//! beside the published values.

use crate::drillfile::{Drill, Metric, load};
use crate::drills::engine::journal::{Host, Journal, Outcome, Verdict, counted, distribution};
use obol_campaign::papers::{Detector, Scenario};
use obol_config::FileError;
use obol_observe::stats::Summary;
use serde::Serialize;
use std::fmt::Write as _;

/// The name of the table among the drills.
pub const NAME: &str = "table2";
pub const TITLE: &str = "uKharon's Table 2 on this host: eight drills, beside the published medians";
/// Repetitions of each cell.
pub const COUNT: u32 = 100;

/// A cell before it is measured.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// What fails and how it is detected.
    pub scenario: Scenario,
    pub drill: Drill,
}

/// The eight cells: those that lose a lease cache are measured on a cluster with caches, the others
/// without.
pub fn cells() -> Result<Vec<Wanted>, FileError> {
    Scenario::all()
        .filter(|scenario| scenario.caches == scenario.cache)
        .map(|scenario| {
            let who = match (scenario.leader, scenario.cache) {
                (false, false) => "app",
                (true, false) => "app+coordinator",
                (false, true) => "app+cache",
                (true, true) => "app+coordinator+cache",
            };
            let how = match scenario.detector {
                Detector::Deadbeat => "",
                Detector::Heartbeat => "-heartbeat",
            };
            Ok(Wanted { scenario, drill: load(&format!("{who}{how}"))?.0 })
        })
        .collect()
}

/// The results of one drill on one cluster.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// How the drill ended.
    pub verdict: Verdict,
    /// First fault to the last survivor's `active`, in microseconds.
    pub failover_us: Summary,
    /// Between the first fault and the last, in microseconds.
    pub skew_us: Summary,
    /// The wait of the survivors by the lease rule alone, in microseconds.
    pub lease_wait_us: f64,
    /// Repetitions that were void.
    pub void: u32,
    /// The longest time for which a victim could still act beside the survivors; must be 0.
    pub overlap_ns: u64,
    pub remarks: Vec<String>,
}

impl Found {
    /// The figures of a run.
    pub fn of(journal: &Journal) -> Self {
        let trials = || counted(&journal.trials);
        let reasons = trials().filter(|trial| trial.outcome == Outcome::Failed);
        let reasons =
            reasons.filter_map(|t| Some(format!("repetition {}: {}", t.number, t.reason.as_ref()?)));
        Self {
            verdict: journal.verdict,
            failover_us: distribution(&journal.trials, Metric::CueToActive).summary(),
            skew_us: distribution(&journal.trials, Metric::Skew).summary(),
            lease_wait_us: trials().map(|trial| trial.lease_wait_ns as f64 / 1000.0).fold(0.0, f64::max),
            void: journal.void,
            overlap_ns: trials().map(|trial| trial.overlap_ns).max().unwrap_or(0),
            remarks: reasons.chain(journal.remarks.iter().cloned()).collect(),
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// What failed, in the paper's notation: A, A+C, A+L, A+L+C.
    pub failed: &'static str,
    /// How it is detected.
    pub detector: Detector,
    /// The published median in microseconds.
    pub published_us: f64,
    pub fenced: Option<Found>,
    /// Without: leases are waited for, as in the paper. Only on request.
    pub waited: Option<Found>,
    /// Why a drill could not be completed.
    pub errors: Vec<String>,
}

impl Cell {
    /// Without results.
    pub const fn new(scenario: &Scenario) -> Self {
        Self {
            failed: scenario.name(),
            detector: scenario.detector,
            published_us: scenario.published,
            fenced: None,
            waited: None,
            errors: Vec::new(),
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// Repetitions of each cell.
    pub repetitions: u32,
    /// The minimal cost of a failover on this host, measured alternately with the cells: nine
    /// processes without a protocol. In microseconds.
    pub floor_us: Summary,
    /// How long a heartbeat may stall without a suspicion, in microseconds.
    pub heartbeat_us: f64,
    /// The cluster's profile.
    pub profile: String,
    /// The machine.
    pub host: Host,
    pub cells: Vec<Cell>,
}

impl Table {
    /// The worst verdict of all cells; void if a drill could not be run.
    pub fn verdict(&self) -> Verdict {
        let found = self.cells.iter().flat_map(|cell| cell.fenced.iter().chain(&cell.waited));
        let verdicts: Vec<Verdict> = found.map(|found| found.verdict).collect();
        let worst =
            [Verdict::Failed, Verdict::Aborted, Verdict::Interrupted, Verdict::Void, Verdict::Deviated];
        let errors = self.cells.iter().any(|cell| !cell.errors.is_empty());
        match worst.into_iter().find(|worst| verdicts.contains(worst)) {
            Some(worst) => worst,
            None if errors || verdicts.is_empty() => Verdict::Void,
            None => Verdict::Passed,
        }
    }

    /// The table for readers, as Markdown.
    pub fn markdown(&self) -> String {
        let waited = self.cells.iter().any(|cell| cell.waited.is_some());
        let mut text = format!(
            "# uKharon, Table 2, on this host\n\nFrom the first fault to the last survivor's `active`, {} repetitions a cell. \
             A: an app, C: the leading coordinator, L: the lease cache that serves it. Profile {}, {} cores, Linux {}.\n\n\
             This host's floor (nine processes that do only what a failover needs): p50 {} us of {} runs, alternating \
             with the cells. By heartbeat, processes are stopped, and suspected after {:.0} us here \
             (uKharon: some 30 us); that column compares profiles, not code.\n\n",
            self.repetitions,
            self.profile,
            self.host.cores,
            self.host.kernel,
            claimed(self.floor_us.p50),
            self.floor_us.n,
            self.heartbeat_us,
        );
        let mut line = |cells: &[String]| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        };
        let mut head =
            vec!["failed", "detector", "published p50", "p50", "p90", "p99", "max", "p50 / floor", "void"];
        if waited {
            head.extend(["no fence: p50", "p90", "p99", "lease rule"]);
        }
        line(&head.iter().map(|head| (*head).to_owned()).collect::<Vec<_>>());
        let rule = |n| if n < 2 { "---" } else { "---:" }.to_owned();
        line(&(0..head.len()).map(rule).collect::<Vec<_>>());
        for cell in &self.cells {
            let mut row =
                vec![cell.failed.to_owned(), cell.detector.name().to_owned(), us(cell.published_us)];
            row.extend(quantiles(
                cell.fenced.as_ref(),
                |s| vec![claimed(s.p50), claimed(s.p90), claimed(s.p99), us(s.max)],
                4,
            ));
            let ratio = cell.fenced.as_ref().and_then(|found| found.failover_us.p50.zip(self.floor_us.p50));
            row.push(match (ratio, cell.detector) {
                (Some((found, floor)), Detector::Deadbeat) => format!("{:.2}", found / floor),
                _ => "-".to_owned(),
            });
            row.push(cell.fenced.as_ref().map_or("-".to_owned(), |found| found.void.to_string()));
            if waited {
                row.extend(quantiles(
                    cell.waited.as_ref(),
                    |s| vec![claimed(s.p50), claimed(s.p90), claimed(s.p99)],
                    3,
                ));
                row.push(cell.waited.as_ref().map_or("-".to_owned(), |found| us(found.lease_wait_us)));
            }
            line(&row);
        }
        text.push_str("\nTimes in microseconds; `-`: too few repetitions for a percentile.\n");
        self.remarks(&mut text);
        text
    }

    fn remarks(&self, text: &mut String) {
        for cell in &self.cells {
            let found = [("", &cell.fenced), (" without fences", &cell.waited)];
            for (how, found) in found.iter().filter_map(|(how, found)| Some((how, (*found).as_ref()?))) {
                for remark in found.remarks.iter() {
                    let _ = writeln!(text, "- {} by {}{how}: {remark}", cell.failed, cell.detector.name());
                }
                if found.overlap_ns > 0 {
                    let _ = writeln!(
                        text,
                        "- {} by {}{how}: VIEWS OVERLAPPED for {} ns",
                        cell.failed,
                        cell.detector.name(),
                        found.overlap_ns
                    );
                }
            }
            for error in &cell.errors {
                let _ = writeln!(text, "- {} by {}: {error}", cell.failed, cell.detector.name());
            }
        }
    }
}

fn us(value: f64) -> String {
    format!("{value:.1}")
}

/// A percentile, or a dash with too few samples.
fn claimed(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), us)
}

/// Columns of a distribution; dashes if there is none.
fn quantiles(found: Option<&Found>, columns: fn(&Summary) -> Vec<String>, many: usize) -> Vec<String> {
    match found.filter(|found| found.failover_us.n > 0) {
        Some(found) => columns(&found.failover_us),
        None => vec!["-".to_owned(); many],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_observe::stats::Distribution;

    fn found(verdict: Verdict) -> Found {
        let none = || Distribution::new().summary();
        Found {
            verdict,
            failover_us: none(),
            skew_us: none(),
            lease_wait_us: 0.0,
            void: 0,
            overlap_ns: 0,
            remarks: Vec::new(),
        }
    }

    fn table(verdicts: &[Verdict], errors: &[&str]) -> Verdict {
        let cell = |verdict: &Verdict| Cell {
            fenced: Some(found(*verdict)),
            waited: Some(found(Verdict::Passed)),
            errors: errors.iter().map(|error| (*error).to_owned()).collect(),
            ..Cell::new(&Scenario::all().next().expect("there are some"))
        };
        let table = Table {
            repetitions: 1,
            floor_us: Distribution::new().summary(),
            heartbeat_us: 0.0,
            profile: "laptop".to_owned(),
            host: Host::this(),
            cells: verdicts.iter().map(cell).collect(),
        };
        table.verdict()
    }

    #[test]
    fn a_table_passes_only_if_every_cell_was_measured_and_passed() {
        use Verdict::{Aborted, Deviated, Failed, Interrupted, Passed, Void};
        assert_eq!(table(&[Passed, Passed], &[]), Passed);
        for other in [Failed, Aborted, Interrupted, Void, Deviated] {
            assert_eq!(table(&[Passed, other], &[]), other);
        }
        assert_eq!(table(&[Deviated, Failed], &[]), Failed);
        assert_eq!(table(&[Passed], &["a drill could not be run"]), Void);
        assert_eq!(table(&[], &[]), Void);
    }
}

//! The report of a rollout, with both sides beside each other: as text, Markdown, a page, and JSON.

use super::Verdict;
use super::judge::{Compared, Periods};
use super::period::{Failed, Period};
use obol_observe::calendar;
use obol_observe::plot::{Cell, Document};
use obol_observe::stats::{Distribution, Summary, shown};
use serde::Serialize;
use std::io;
use std::path::Path;

/// The schema of the JSON form.
const SCHEMA: u32 = 2;

/// How a program of the rollout ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ended {
    /// The command line.
    pub command: String,
    /// How it ended, such as `exit status: 0`; null if it was not run.
    pub status: Option<String>,
    pub succeeded: bool,
    /// Seconds that it took.
    #[serde(rename = "took_s")]
    pub took: f64,
}

/// The figures of one side.
#[derive(Clone, Debug, Serialize)]
struct Side {
    observed_s: f64,
    failovers_us: Summary,
    /// Failovers whose stamps are not complete.
    failovers_unmeasured: usize,
    renewals_us: Summary,
    renewals_timely: u64,
    renewals_late: u64,
    late_share: Option<f64>,
    unavailable_us: f64,
    degraded_us: f64,
    joined: u64,
    left: u64,
    failed: u64,
    /// The first of them.
    who_failed: Vec<Failed>,
}

/// The results of a rollout.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    schema: u32,
    pub cluster: String,
    /// When it began, in UTC.
    pub began: String,
    /// How it ended.
    pub verdict: Verdict,
    pub reasons: Vec<String>,
    /// The command that rolls out.
    pub command: Ended,
    /// What was run before and after it, if anything.
    pub exercises: Vec<Ended>,
    /// The hook that undoes, if it was run.
    pub hook: Option<Ended>,
    /// The limits, with both sides.
    pub compared: Vec<Compared>,
    before: Side,
    since: Side,
}

fn distribution(period: &Period) -> Distribution {
    let mut distribution = Distribution::new();
    period.measured().for_each(|span| distribution.add(span));
    distribution
}

impl Side {
    fn of(period: &Period) -> Self {
        let mut renewals = Distribution::new();
        for (bucket, n) in period.renewals.pairs() {
            renewals.add_many(obol_observe::histograms::floor(bucket), n);
        }
        Self {
            observed_s: period.span.0 as f64 / 1e9,
            failovers_us: distribution(period).summary(),
            failovers_unmeasured: period.failovers.values().filter(|span| span.is_none()).count(),
            renewals_us: renewals.summary(),
            renewals_timely: period.timely,
            renewals_late: period.late,
            late_share: period.late_share(),
            unavailable_us: period.unavailable.as_micros_f64(),
            degraded_us: period.degraded.as_micros_f64(),
            joined: period.joined,
            left: period.left,
            failed: period.failed,
            who_failed: period.who_failed.clone(),
        }
    }

    /// The rows of a table: what, and the value.
    fn rows(&self) -> Vec<(&'static str, String)> {
        let claimed = |value: Option<f64>| value.map_or("--".to_owned(), shown);
        let (failovers, renewals) = (&self.failovers_us, &self.renewals_us);
        let longest = |summary: &Summary| if summary.n == 0 { "--".to_owned() } else { shown(summary.max) };
        let share = self.late_share.map_or("--".to_owned(), |share| format!("{:.4} %", share * 100.0));
        vec![
            ("observed for", shown(self.observed_s * 1e6)),
            ("failovers", failovers.n.to_string()),
            ("failover p50", claimed(failovers.p50)),
            ("failover p90", claimed(failovers.p90)),
            ("failover p99", claimed(failovers.p99)),
            ("failover max", longest(failovers)),
            ("renewals", self.renewals_timely.saturating_add(self.renewals_late).to_string()),
            ("renewal p50", claimed(renewals.p50)),
            ("renewal p99", claimed(renewals.p99)),
            ("renewal max", longest(renewals)),
            ("late renewals", share),
            ("unavailable", shown(self.unavailable_us)),
            ("degraded or unavailable", shown(self.degraded_us)),
            ("members joined", self.joined.to_string()),
            ("members left on request", self.left.to_string()),
            ("members failed", self.failed.to_string()),
        ]
    }
}

/// How a rollout has ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub verdict: Verdict,
    pub reasons: Vec<String>,
    /// How the command has ended.
    pub command: Ended,
    /// The judged limits.
    pub compared: Vec<Compared>,
}

impl Report {
    /// A report on both periods. `began` is in nanoseconds since 1970.
    pub fn new(cluster: String, began: u64, outcome: Outcome, periods: Periods<'_>) -> Self {
        let Outcome { verdict, reasons, command, compared } = outcome;
        Self {
            schema: SCHEMA,
            cluster,
            began: calendar::utc(began, "%FT%TZ"),
            verdict,
            reasons,
            command,
            exercises: Vec::new(),
            hook: None,
            compared,
            before: Side::of(periods.before),
            since: Side::of(periods.since),
        }
    }

    /// The lines for a terminal.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("rollout on {}: {}", self.cluster, self.verdict.name())];
        lines.extend(self.reasons.iter().map(|reason| format!("  ! {reason}")));
        lines.push(format!("{:<26} {:>12} {:>12}", "", "before", "since"));
        for ((what, before), (_, since)) in self.before.rows().into_iter().zip(self.since.rows()) {
            lines.push(format!("{what:<26} {before:>12} {since:>12}"));
        }
        for (when, one) in self.failed() {
            lines.push(format!("failed {when:<8} {one}"));
        }
        for one in &self.compared {
            let mark = match one.holds {
                Some(true) => "holds",
                Some(false) => "EXCEEDED",
                None => "not judged",
            };
            lines.push(format!("limit {mark:<10} {}", one.line()));
        }
        for ended in [&self.command].into_iter().chain(&self.exercises).chain(&self.hook) {
            let status = ended.status.as_deref().unwrap_or("not run");
            lines.push(format!("{}: {status}, {}", ended.command, shown(ended.took * 1e6)));
        }
        lines
    }

    /// Who failed, before the command and since.
    fn failed(&self) -> impl Iterator<Item = (&'static str, &Failed)> {
        let before = self.before.who_failed.iter().map(|one| ("before", one));
        before.chain(self.since.who_failed.iter().map(|one| ("since", one)))
    }

    fn document(&self) -> Document {
        let mut doc = Document::new(format!("Rollout on {}: {}", self.cluster, self.verdict.name()));
        doc.say(format!("Begun {}. Command: {}.", self.began, self.command.command));
        if !self.reasons.is_empty() {
            doc.list(self.reasons.clone());
        }
        doc.heading("Limits");
        let value = |one: &Compared, value: Option<f64>| {
            Cell::number(value.map_or("not claimed".to_owned(), |value| one.shown(value)))
        };
        let rows = self.compared.iter().map(|one| {
            let holds = match one.holds {
                Some(true) => "yes",
                Some(false) => "NO",
                None => "too few samples",
            };
            vec![
                Cell::text(&one.what),
                value(one, one.before),
                value(one, one.after),
                Cell::number(one.change().unwrap_or_else(|| "--".to_owned())),
                Cell::number(&one.limit),
                value(one, one.bound),
                Cell::text(holds),
            ]
        });
        doc.table(&["figure", "before", "since", "change", "limit", "at most", "holds"], rows);
        doc.heading("Before and since");
        let both = self.before.rows().into_iter().zip(self.since.rows());
        let rows = both.map(|((what, before), (_, since))| {
            vec![Cell::text(what), Cell::number(before), Cell::number(since)]
        });
        doc.table(&["figure", "before", "since"], rows);
        doc.say(
            "A percentile is reported only with enough samples for 95 % confidence that one of them reached it. \
             A failover lasts from the notice to the last process that became active. Members that leave on \
             request do not count as failures.",
        );
        if self.failed().next().is_some() {
            doc.heading("Members that failed");
            let rows = self.failed().map(|(when, one)| {
                let host = one.host.map_or("--".to_owned(), |host| host.to_string());
                vec![
                    Cell::text(&one.name),
                    Cell::number(one.incarnation.to_string()),
                    Cell::number(host),
                    Cell::number(one.view.to_string()),
                    Cell::text(one.detector.unwrap_or("--")),
                    Cell::text(when),
                ]
            });
            doc.table(&["member", "incarnation", "host", "removed by view", "detector", "when"], rows);
        }
        doc.heading("Commands");
        let ended = [&self.command].into_iter().chain(&self.exercises).chain(&self.hook);
        let rows = ended.map(|ended| {
            let status = ended.status.clone().unwrap_or_else(|| "not run".to_owned());
            vec![Cell::text(&ended.command), Cell::text(status), Cell::number(shown(ended.took * 1e6))]
        });
        doc.table(&["command", "ended with", "took"], rows);
        doc
    }

    /// Writes `rollout.md`, `rollout.html` and `rollout.json` into a directory.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        self.document().write(dir, "rollout", self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ahead, Subject, judge};
    use obol_fabric::Nanos;
    use obol_fabric::ViewId;
    use obol_observe::Percentile;

    fn report() -> Report {
        let period = |us: u64| {
            let failovers = (1..=30).map(|n| (ViewId(n), Some(Nanos::from_micros(us)))).collect();
            let who = Failed {
                name: format!("app-{us}"),
                incarnation: us,
                host: Some(2),
                view: 9,
                detector: Some("deadbeat"),
            };
            let mut period =
                Period { failovers, timely: 9, late: 1, span: Nanos::from_secs(60), ..Period::default() };
            period.count(0, 0, vec![who]);
            period
        };
        let (before, since) = (period(100), period(150));
        let limits = [(Subject::Failover(Percentile::P90), "+20%"), (Subject::LateRenewals, "0.01%")];
        let limits = limits.map(|(subject, text)| subject.limit(text).expect("a limit"));
        let periods = Periods { before: &before, since: &since, settling: None };
        let compared = judge(&limits, periods, Ahead { longest: Nanos::ZERO });
        let command = Ended {
            command: "deploy <1.4>".to_owned(),
            status: Some("exit status: 0".to_owned()),
            succeeded: true,
            took: 12.5,
        };
        let reasons = vec!["failover p90".to_owned()];
        let outcome = Outcome { verdict: Verdict::Failed, reasons, command, compared };
        Report::new("prod".to_owned(), 0, outcome, periods)
    }

    #[test]
    fn a_limit_holds_only_if_it_was_judged_and_found_to() {
        let mut report = report();
        report.compared.truncate(1);
        let mut said = |holds| {
            report.compared[0].holds = holds;
            (
                report.lines().iter().any(|line| line.starts_with("limit holds ")),
                report.document().markdown(None).contains("| yes |"),
            )
        };
        assert_eq!(said(Some(true)), (true, true));
        assert_eq!([said(Some(false)), said(None)], [(false, false); 2]);
    }

    #[test]
    fn both_sides_stand_beside_each_other_in_every_form() {
        let report = report();
        let lines = report.lines().join("\n");
        assert!(lines.contains("failover p90                      100us        150us"), "{lines}");
        assert!(lines.contains("failover p99                         --           --"), "{lines}");
        assert!(
            lines.contains("limit EXCEEDED   failover p90 150us (before 100us, limit +20 % = 120us)"),
            "{lines}"
        );
        assert!(lines.contains("limit not judged late renewals"), "{lines}");
        assert!(lines.contains("failed since    app-150 (150) on host 2 by view 9 (deadbeat)"), "{lines}");
        let dir = tempfile::tempdir().expect("made");
        report.write(dir.path()).expect("written");
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).expect("it was written");
        assert!(read("rollout.md").contains("| failover p90 | 100us | 150us | +50 % | +20 % | 120us | NO |"));
        assert!(read("rollout.html").contains("deploy &lt;1.4&gt;"));
        let json: serde_json::Value = serde_json::from_str(&read("rollout.json")).expect("JSON");
        assert!(read("rollout.md").contains("| app-100 | 100 | 2 | 9 | deadbeat | before |"));
        let who = &json["since"]["who_failed"][0];
        assert_eq!((&who["name"], &who["host"], &who["view"]), (&"app-150".into(), &2.into(), &9.into()));
        assert_eq!(json["verdict"], "failed");
        assert_eq!((&json["command"]["took_s"], &json["before"]["observed_s"]), (&12.5.into(), &60.0.into()));
        assert_eq!(json["began"], "1970-01-01T00:00:00Z");
        assert_eq!(json["compared"][0]["holds"], false);
        assert_eq!(json["before"]["failovers_us"]["n"], 30);
        assert_eq!(json["before"]["failovers_us"]["p99"], serde_json::Value::Null);
    }
}

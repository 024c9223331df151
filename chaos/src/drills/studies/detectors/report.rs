//! The report of a comparison: for scripts, and as a table.

use super::{Detector, Measured};
use crate::drills::engine::journal::{Host, Verdict};
use obol_fide::detectors::Beside;
use obol_observe::calendar::age_of_seconds;
use obol_observe::plot::Document;
use obol_observe::stats::shown;
use serde::Serialize;

/// A detector that did not run.
#[derive(Clone, Debug, Serialize)]
pub struct Missing {
    pub detector: Detector,
    pub why: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The worst verdict of those that ran.
    pub verdict: Verdict,
    /// The cluster's profile.
    pub profile: String,
    /// The machine.
    pub host: Host,
    /// What reports deaths here: the kernel module, eBPF programs, or futexes and pidfds.
    pub deaths: &'static str,
    /// Those that ran.
    pub measured: Vec<Measured>,
    /// Those that were computed from the arrivals meanwhile.
    pub computed: Vec<Beside>,
    /// What the computed ones are computed from.
    pub arrivals: String,
    /// Those that are not there.
    pub missing: Vec<Missing>,
    /// Why parts of it could not be carried out.
    pub errors: Vec<String>,
}

/// The columns of the table.
pub const HEADS: [&str; 11] = [
    "detector", "fault", "setting", "noticed", "p50", "p99", "p99.9", "p99.99", "longest", "false", "verdict",
];

fn time(us: Option<f64>) -> String {
    us.map_or("--".to_owned(), shown)
}

impl Report {
    /// The worst verdict: void if nothing ran, or something could not.
    pub fn judge(measured: &[Measured], errors: &[String]) -> Verdict {
        let verdicts: Vec<Verdict> = measured.iter().map(Measured::verdict).collect();
        let worst =
            [Verdict::Failed, Verdict::Aborted, Verdict::Interrupted, Verdict::Void, Verdict::Deviated];
        match worst.into_iter().find(|worst| verdicts.contains(worst)) {
            Some(worst) => worst,
            None if verdicts.is_empty() || !errors.is_empty() => Verdict::Void,
            None => Verdict::Passed,
        }
    }

    /// The rows of the table.
    pub fn rows(&self) -> Vec<[String; 11]> {
        let measured = self.measured.iter().map(|of| {
            let times = &of.detection_us;
            [
                format!("{}, measured", of.detector.name()),
                of.fault.name().to_owned(),
                of.setting.clone(),
                format!("{} of {}", of.detected, of.faults),
                time(times.p50),
                time(times.p99),
                time(times.p999),
                time(times.p9999),
                time(times.max),
                format!("{} in {}", of.false_suspicions, age_of_seconds(of.seconds)),
                of.verdict().name().to_owned(),
            ]
        });
        let computed = self.computed.iter().map(|of| {
            let line = &of.line;
            [
                format!("{}, computed", line.detector),
                "cut-off".to_owned(),
                line.setting.clone(),
                format!("{} of {}", of.detected, of.faults),
                time(line.p50_us),
                time(line.p99_us),
                time(line.p999_us),
                time(line.p9999_us),
                time(of.at_faults_max_us),
                format!("{} in {}", line.false_suspicions, age_of_seconds(of.hours * 3600.0)),
                "--".to_owned(),
            ]
        });
        measured.chain(computed).collect()
    }

    /// Remarks, one for each line.
    pub fn remarks(&self) -> Vec<String> {
        let mut all = Vec::new();
        for of in &self.measured {
            let name = of.detector.name();
            for (reason, count) in &of.otherwise {
                all.push(format!("{name}: {count} of {} faults were noticed first by {reason}", of.faults));
            }
            if let Some(p50) = of.suspicion_us.p50.filter(|_| of.detector == Detector::Pulse) {
                all.push(format!(
                    "{name}: from the fault until a process suspects the victim, {} at the median",
                    shown(p50)
                ));
            }
            all.extend(of.remarks.iter().map(|remark| format!("{name}: {remark}")));
        }
        all.extend(self.missing.iter().map(|of| format!("{} did not run: {}", of.detector.name(), of.why)));
        all.extend(self.errors.iter().cloned());
        all
    }

    /// How the figures came about.
    pub fn explains(&self) -> Vec<String> {
        let mut all = vec![format!(
            "Measured: from the fault agent's stamp until the detector has noticed; percentiles with enough repetitions \
             only. Deaths are reported by {}. Profile {}, {} cores, Linux {}.",
            self.deaths, self.profile, self.host.cores, self.host.kernel
        )];
        if !self.computed.is_empty() {
            all.push(format!(
                "Computed: what the detector would have done with {}. Percentiles are of random moments, \"noticed\" and \
                 \"longest\" of the faults themselves.",
                self.arrivals
            ));
        }
        all
    }

    /// The report for readers.
    pub fn document(&self) -> Document {
        let mut doc = Document::new(format!("Detectors beside each other: {}", self.verdict.name()));
        self.explains().into_iter().for_each(|text| doc.say(text));
        doc.rows(&HEADS, self.rows(), |column| column < 4);
        doc.remarks(self.remarks());
        doc
    }
}

#[cfg(test)]
mod tests {
    use super::super::measured::tests::journal;
    use super::super::{Fault, How, Plan};
    use super::*;
    use obol_fabric::Nanos;
    use obol_fide::detectors::{Model, WithOutages, beside};
    use obol_profiles::Profile;

    #[test]
    fn a_report_has_all_rows_and_nothing_measured_is_void() {
        let profile = Profile::builtin("laptop").expect("it is built in");
        let measured = vec![Measured::of(Detector::Notice, Fault::Kill, &profile, &journal(Vec::new()))];
        let plan = Plan::simulated(&[]).expect("all");
        assert!(plan.detectors.iter().any(|(of, how)| *of == Detector::Pulse && *how == How::Computed));
        let delays = Model::default().draw(Nanos::from_millis(1), 10_000, 1);
        let arrivals = delays.source.clone();
        let recorded = [WithOutages { delays, outages: Vec::new() }];
        let computed = plan.computed(Nanos::from_millis(20));
        assert_eq!(computed.len(), 4);
        let computed = computed.into_iter().map(|(of, setting)| beside(of, setting, &recorded, 1)).collect();
        let report = Report {
            verdict: Report::judge(&measured, &[]),
            profile: "laptop".to_owned(),
            host: Host::this(),
            deaths: "module",
            measured,
            computed,
            arrivals,
            missing: vec![Missing { detector: Detector::Operation, why: "none".to_owned() }],
            errors: Vec::new(),
        };
        assert_eq!((report.verdict, report.rows().len()), (Verdict::Void, 5));
        let text = report.document().markdown(None);
        for said in ["notice, measured", "SWIM, 8 members, computed", "operation did not run: none", "void"] {
            assert!(text.contains(said), "{said} is not in\n{text}");
        }
    }
}

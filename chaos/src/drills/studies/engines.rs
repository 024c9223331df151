//! Presets of replicated state machines beside each other under the same faults: what was measured,
//! the verdict, and the report (`obol drill smr`).

use crate::drills::engine::journal::{Host, Verdict};
use obol_fabric::Nanos;
use obol_observe::named_enum;
use obol_observe::plot::{Bars, Document};
use obol_observe::stats::{Distribution, P99_SAMPLES_MIN, Summary, shown};
use serde::Serialize;

named_enum! {
    /// What happens to a replica.
    Fault {
        /// It is killed, and started again with empty memory.
        Kill = "kill",
        /// It is stopped, and continued when the others have excluded it.
        Freeze = "freeze",
        /// It is cut off from all others, until they have excluded it.
        Cut = "cut",
    }
}

named_enum! {
    /// Which replica is hit.
    Victim {
        Leader = "leader",
        /// Another one.
        Follower = "follower",
    }
}

/// What one fault has cost.
#[derive(Clone, Copy, Debug)]
pub struct Repetition {
    /// The longest time that a client was without an answer, of those that ended between the fault and
    /// its end.
    pub clients: Nanos,
    /// From the fault until the last survivor's view without the victim was active.
    pub members: Option<Nanos>,
    /// The longest time that a client was without an answer while the victim came back.
    pub comeback: Nanos,
}

/// A preset under a fault, as it is measured.
#[derive(Clone, Debug)]
pub struct Measuring {
    engine: String,
    fault: Fault,
    clients: Distribution,
    members: Distribution,
    comeback: Distribution,
}

impl Measuring {
    /// Without a repetition so far.
    pub fn new(engine: String, fault: Fault) -> Self {
        let [clients, members, comeback] = std::array::from_fn(|_| Distribution::new());
        Self { engine, fault, clients, members, comeback }
    }

    /// Adds one that is over.
    pub fn add(&mut self, repetition: Repetition) {
        self.clients.add(repetition.clients);
        self.comeback.add(repetition.comeback);
        if let Some(members) = repetition.members {
            self.members.add(members);
        }
    }

    /// Ends it. A client that waited longer than `at_most` is a deviation.
    pub fn end(self, answers: Answers, end: End, at_most: Option<Nanos>) -> Measured {
        let client_us = self.clients.summary();
        let is_late = at_most.is_some_and(|at_most| client_us.max > at_most.as_micros_f64());
        let verdict = match &end {
            _ if answers.lost + answers.stale > 0 => Verdict::Failed,
            End::Failed(_) => Verdict::Failed,
            End::Interrupted => Verdict::Interrupted,
            End::Complete if self.clients.is_empty() => Verdict::Void,
            End::Complete if is_late => Verdict::Deviated,
            End::Complete => Verdict::Passed,
        };
        Measured {
            engine: self.engine,
            fault: self.fault,
            repetitions: client_us.n,
            client_us,
            members_us: self.members.summary(),
            comeback_us: self.comeback.summary(),
            answers: answers.all,
            lost: answers.lost,
            stale: answers.stale,
            examples: answers.examples,
            error: if let End::Failed(error) = end { Some(error) } else { None },
            verdict,
        }
    }
}

/// The answers that clients had.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// Answers in all.
    pub all: u64,
    /// Answered writes that were not there at the end.
    pub lost: u64,
    /// Reads that did not have what had been answered before them, or had what was never written.
    pub stale: u64,
    /// Some of those, in words.
    pub examples: Vec<String>,
}

/// How the repetitions of a preset ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// All took place.
    Complete,
    /// By the operator.
    Interrupted,
    /// One did not end, or the store did not run.
    Failed(String),
}

/// A preset under a fault.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// The preset.
    pub engine: String,
    pub fault: Fault,
    /// Those that ended.
    pub repetitions: u64,
    /// The longest wait of a client for an answer around the fault, of each repetition.
    pub client_us: Summary,
    /// From the fault until the last survivor's `active`, of each repetition.
    pub members_us: Summary,
    /// The longest wait of a client while the victim came back, of each repetition.
    pub comeback_us: Summary,
    /// Answers that clients had.
    pub answers: u64,
    /// Answered writes that were not there at the end.
    pub lost: u64,
    /// Reads that were wrong when they were answered.
    pub stale: u64,
    /// Some of those, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
    /// Why it ended early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub verdict: Verdict,
}

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The worst verdict.
    pub verdict: Verdict,
    /// Which replica was hit.
    pub victim: Victim,
    /// Repetitions of each fault that were wanted.
    pub count: u32,
    /// Replicas of each store.
    pub replicas: u32,
    /// Clients of each store.
    pub clients: u32,
    /// The bound of the clients' waits.
    pub at_most_us: Option<f64>,
    /// The profile of the clusters.
    pub profile: String,
    /// The machine.
    pub host: Host,
    /// In the order in which they were asked for.
    pub measured: Vec<Measured>,
}

/// The columns of the table.
pub const HEADS: [&str; 13] = [
    "engine",
    "fault",
    "ended",
    "client p50",
    "p90",
    "p99",
    "longest",
    "members p50",
    "longest",
    "return",
    "lost",
    "stale",
    "verdict",
];
/// Number of leading text columns.
pub const TEXT_COLUMNS: usize = 2;

fn time(us: Option<f64>) -> String {
    us.map_or("--".to_owned(), shown)
}

fn longest(of: &Summary) -> String {
    time((of.n > 0).then_some(of.max))
}

impl Report {
    /// The worst verdict; void if nothing ran.
    pub fn judge(measured: &[Measured]) -> Verdict {
        let worst = [Verdict::Failed, Verdict::Interrupted, Verdict::Void, Verdict::Deviated];
        let has = |verdict: &Verdict| measured.iter().any(|of| of.verdict == *verdict);
        match worst.into_iter().find(has) {
            Some(worst) => worst,
            None if measured.is_empty() => Verdict::Void,
            None => Verdict::Passed,
        }
    }

    /// The rows of the table.
    pub fn rows(&self) -> Vec<[String; 13]> {
        let row = |of: &Measured| {
            [
                of.engine.clone(),
                of.fault.name().to_owned(),
                format!("{} of {}", of.repetitions, self.count),
                time(of.client_us.p50),
                time(of.client_us.p90),
                time(of.client_us.p99),
                longest(&of.client_us),
                time(of.members_us.p50),
                longest(&of.members_us),
                longest(&of.comeback_us),
                of.lost.to_string(),
                of.stale.to_string(),
                of.verdict.name().to_owned(),
            ]
        };
        self.measured.iter().map(row).collect()
    }

    /// How the figures came about.
    pub fn explains(&self) -> String {
        format!(
            "The {} is hit; {} replicas, {} clients, profile {}, {} cores, Linux {}. client: the longest time that a client was \
             without an answer around the fault; members: from the fault until the last survivor's view without the victim was \
             active; return: the longest time that a client was without an answer while the victim came back; lost: answered \
             writes that were not there at the end; stale: reads that did not have what had been answered before. Each client \
             always has several operations outstanding. A p50 needs 5 repetitions, a p90 29, a p99 {P99_SAMPLES_MIN}.",
            self.victim.name(),
            self.replicas,
            self.clients,
            self.profile,
            self.host.cores,
            self.host.kernel
        )
    }

    /// The medians of each preset over that of the first one that has any, under the same fault.
    fn ratios(&self) -> Vec<String> {
        let mut all = Vec::new();
        for (_, fault) in Fault::ALL {
            let mut of_fault = self.measured.iter().filter(|of| of.fault == *fault);
            let Some((first, base)) = of_fault.by_ref().find_map(|of| Some((&of.engine, of.client_us.p50?)))
            else {
                continue;
            };
            for of in of_fault {
                if let Some(p50) = of.client_us.p50 {
                    let ratio = p50 / base.max(0.001);
                    let (engine, fault) = (&of.engine, fault.name());
                    all.push(format!(
                        "{engine}: a client waits {ratio:.2} times as long as with {first} ({fault}, p50)"
                    ));
                }
            }
        }
        all
    }

    /// Remarks, one for each line.
    pub fn remarks(&self) -> Vec<String> {
        let mut all = self.ratios();
        for of in &self.measured {
            let name = format!("{}, {}", of.engine, of.fault.name());
            all.extend(of.error.iter().map(|error| format!("{name}: {error}")));
            all.extend(of.examples.iter().map(|example| format!("{name}: {example}")));
            let is_late = |at_most: &f64| of.client_us.max > *at_most;
            if let Some(at_most) = self.at_most_us.filter(is_late) {
                let (max, at_most) = (shown(of.client_us.max), shown(at_most));
                all.push(format!("{name}: a client waited {max}; at most {at_most} was allowed"));
            }
            let missing = of.repetitions.saturating_sub(of.members_us.n);
            if missing > 0 {
                all.push(format!("{name}: {missing} failovers of the members were not seen"));
            }
        }
        all
    }

    /// The waits as bars; `None` if nothing was measured.
    fn bars(&self) -> Option<String> {
        let groups = self.measured.iter().map(|of| format!("{}, {}", of.engine, of.fault.name())).collect();
        let each = |value: fn(&Measured) -> Option<f64>| self.measured.iter().map(value).collect();
        Bars::grouped("us", groups)
            .with("clients, longest", each(|of| (of.client_us.n > 0).then_some(of.client_us.max)))
            .with("clients, median", each(|of| of.client_us.p50))
            .with("members, longest", each(|of| (of.members_us.n > 0).then_some(of.members_us.max)))
            .svg()
            .ok()
    }

    /// The report for readers.
    pub fn document(&self) -> Document {
        let title = format!("Replicated stores beside each other: {}", self.verdict.name());
        let mut doc = Document::new(title);
        doc.say(self.explains());
        doc.rows(&HEADS, self.rows(), |column| column < TEXT_COLUMNS);
        if let Some(bars) = self.bars() {
            doc.figure("waits", bars, "Waits of clients around the fault, and failovers of the members.");
        }
        doc.remarks(self.remarks());
        doc
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(engine: &str, ms: u64, count: u32, answers: Answers, end: End) -> Measured {
        let mut measuring = Measuring::new(engine.to_owned(), Fault::Kill);
        for _ in 0..count {
            let (clients, members) = (Nanos::from_millis(ms), Some(Nanos::from_micros(900)));
            measuring.add(Repetition { clients, members, comeback: Nanos::from_micros(50) });
        }
        measuring.end(answers, end, Some(Nanos::from_millis(20)))
    }

    fn right() -> Answers {
        Answers { all: 1000, ..Answers::default() }
    }

    fn report(measured: Vec<Measured>) -> Report {
        Report {
            verdict: Report::judge(&measured),
            victim: Victim::Leader,
            count: 5,
            replicas: 3,
            clients: 2,
            at_most_us: Some(20_000.0),
            profile: "laptop".to_owned(),
            host: Host::this(),
            measured,
        }
    }

    #[test]
    fn an_answer_that_is_lost_or_stale_fails_whatever_else_happened() {
        let verdict = |answers, end| measured("view", 1, 5, answers, end).verdict;
        assert_eq!(verdict(right(), End::Complete), Verdict::Passed);
        for answers in [Answers { lost: 1, ..right() }, Answers { stale: 1, ..right() }] {
            assert_eq!(verdict(answers.clone(), End::Complete), Verdict::Failed);
            assert_eq!(verdict(answers, End::Interrupted), Verdict::Failed);
        }
        assert_eq!(verdict(right(), End::Failed("no answer".to_owned())), Verdict::Failed);
        assert_eq!(verdict(right(), End::Interrupted), Verdict::Interrupted);
    }

    #[test]
    fn a_wait_above_the_bound_deviates_and_no_repetition_is_void() {
        assert_eq!(measured("view", 21, 5, right(), End::Complete).verdict, Verdict::Deviated);
        assert_eq!(measured("view", 19, 5, right(), End::Complete).verdict, Verdict::Passed);
        assert_eq!(measured("view", 1, 0, right(), End::Complete).verdict, Verdict::Void);
        assert_eq!(Report::judge(&[]), Verdict::Void);
    }

    #[test]
    fn the_worst_verdict_counts() {
        let passed = || measured("view", 1, 5, right(), End::Complete);
        let late = || measured("mu", 21, 5, right(), End::Complete);
        let stopped = || measured("mu", 1, 2, right(), End::Interrupted);
        let failed = || measured("mu", 1, 2, right(), End::Failed("no leader".to_owned()));
        assert_eq!(Report::judge(&[passed(), passed()]), Verdict::Passed);
        assert_eq!(Report::judge(&[passed(), late()]), Verdict::Deviated);
        assert_eq!(Report::judge(&[late(), stopped()]), Verdict::Interrupted);
        assert_eq!(Report::judge(&[stopped(), failed(), late()]), Verdict::Failed);
    }

    #[test]
    fn engines_are_side_by_side_with_what_went_wrong() {
        let lost = Answers { lost: 1, examples: vec!["key 7 had 3, 4 was answered".to_owned()], ..right() };
        let all = vec![
            measured("view", 2, 5, right(), End::Complete),
            measured("mu", 30, 5, lost, End::Complete),
            measured("mu+views", 2, 3, right(), End::Failed("no client had an answer".to_owned())),
        ];
        let report = report(all);
        assert_eq!(report.verdict, Verdict::Failed);
        let rows = report.rows();
        assert_eq!(rows[0][..3], ["view", "kill", "5 of 5"]);
        assert_eq!(rows[2][2..4], ["3 of 5", "--"], "a median needs 5");
        let (text, page) = (report.document().markdown(None), report.document().html());
        for said in [
            "key 7 had 3, 4 was answered",
            "times as long as with view (kill, p50)",
            "at most 20.0ms was allowed",
            "mu+views, kill: no client had an answer",
        ] {
            assert!(text.contains(said) && page.contains(said), "{said} is not in\n{text}");
        }
        assert!(page.contains("<svg"), "the waits are drawn");
    }
}

//! The postmortem, in the usual form of SRE teams: what happened, how certain the figures are, and
//! what to do.

use super::figures;
use crate::drillfile::{Drill, Metric};
use crate::drills::engine::follow::UNSEEN;
use crate::drills::engine::journal::{
    Journal, Judged, Outcome, Trial, Verdict, counted, distribution, measured, samples,
};
use obol_fabric::Nanos;
use obol_observe::figures::total;
use obol_observe::plot::{Cell, Document};
use obol_observe::stats::shown as us;
use obol_observe::timeline::Phases;
use obol_observe::{Percentile, calendar};

/// What has happened by the end of each phase.
const DONE: [&str; 6] = [
    "a coordinator is notified",
    "a view without the dead is proposed",
    "it is decided",
    "no older lease is left",
    "the leader announces that (CLEAR)",
    "the last survivor is active",
];
/// Trials that are listed one by one.
const REASONS_MAX: usize = 20;
/// The 97.5 % quantile of the normal distribution.
const Z95: f64 = 1.96;

/// A count with its noun.
fn count(n: usize, what: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{n} {what}{s}")
}

/// A text with a full stop.
fn sentence(text: &str) -> String {
    let end = if text.ends_with('.') { "" } else { "." };
    format!("{text}{end}")
}

/// The trials that count, and the measured ones among them.
struct Trials<'a> {
    counted: Vec<&'a Trial>,
    measured: Vec<&'a Trial>,
}

/// The whole report.
pub(super) fn document(journal: &Journal, drill: &Drill) -> Document {
    let trials =
        Trials { counted: counted(&journal.trials).collect(), measured: measured(&journal.trials).collect() };
    let mut doc = Document::new(format!("Drill {}: {}", journal.drill, journal.verdict.name()));
    doc.say(journal.title.clone());
    doc.heading("Summary");
    summary(journal, &trials, &mut doc);
    doc.heading("Impact");
    impact(journal, &trials, &mut doc);
    doc.heading("Trigger");
    trigger(drill, &mut doc);
    doc.heading("Detection and resolution");
    detection(journal, &mut doc);
    doc.heading("How certain the figures are");
    sureness(journal, &trials, &mut doc);
    if let Some(trial) = trials.counted.iter().find(|trial| trial.outcome == Outcome::Failed) {
        doc.heading("Time line of the failure");
        time_line(trial, &mut doc);
    }
    if let Some(trial) = trials.measured.iter().max_by_key(|trial| trial.failover_ns) {
        doc.heading("Time line of the slowest failover");
        time_line(trial, &mut doc);
    }
    doc.heading("Expected and found");
    expected(journal, &mut doc);
    lessons(journal, &trials, &mut doc);
    doc
}

fn summary(journal: &Journal, trials: &Trials<'_>, doc: &mut Document) {
    let open = journal.judged.iter().filter(|one| one.holds.is_none()).count();
    let verdict = match journal.verdict {
        Verdict::Passed if open > 0 => "All that could be judged held, but some bounds had too few samples.",
        Verdict::Passed => "Everything held.",
        Verdict::Deviated => {
            "The cluster recovered, but a figure missed its bound or a steady state did not hold."
        }
        Verdict::Failed => "The cluster did not recover as required.",
        Verdict::Aborted => "A guard or an abort condition ended the drill.",
        Verdict::Interrupted => "It was ended early; the figures cover the repetitions until then.",
        Verdict::Void => "Too many repetitions were void: the others do not suffice.",
    };
    doc.say(format!("{} {verdict}", capital(journal.verdict.name())));
    // The reasons belong into the summary.
    let mut why: Vec<String> = journal.remarks.iter().map(|remark| sentence(remark)).collect();
    let failed = trials.counted.iter().filter(|trial| trial.outcome == Outcome::Failed);
    why.extend(
        failed.take(REASONS_MAX).map(|trial| format!("Repetition {}: {}.", trial.number, reason(trial))),
    );
    why.extend(journal.judged.iter().filter(|one| one.holds == Some(false)).map(missed));
    why.extend(journal.judged.iter().filter(|one| one.holds.is_none()).map(|one| {
        let are = if one.samples == 1 { "is" } else { "are" };
        format!("{} was not judged: {} {are} too few.", one.figure(), count(one.samples as usize, "sample"))
    }));
    if !why.is_empty() {
        doc.list(why);
    }
    let fact = |what: &str, value: String| vec![Cell::text(what), Cell::text(value)];
    let mut rows = vec![
        fact("repetitions", format!("{}, {} of them void", journal.count, journal.void)),
        fact("begun", date(journal.began)),
        fact("cluster", format!("labelled {}, profile {}", journal.environment, journal.profile)),
        fact("machine", format!("{} cores, Linux {}", journal.host.cores, journal.host.kernel)),
    ];
    rows.extend(journal.after.iter().map(|one| {
        let state = if one.holds { "held" } else { "DID NOT HOLD" };
        fact("afterwards", format!("{} {state}: {}", one.probe.name(), one.saw))
    }));
    rows.extend(journal.ssh.as_ref().map(|host| fact("fault agent", format!("reached by ssh: {host}"))));
    doc.table(&["what", "value"], rows);
}

fn reason(trial: &Trial) -> &str {
    trial.reason.as_deref().unwrap_or("no reason was found")
}

fn missed(one: &Judged) -> String {
    format!("{}.", one.deviation())
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or(String::new(), |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
}

fn impact(journal: &Journal, trials: &Trials<'_>, doc: &mut Document) {
    doc.say(match journal.figures_us.get(Metric::CueToActive.name()) {
        Some(s) => {
            let spans = match s.p50 {
                Some(median) => format!("the median was {}, and the worst of {} was {}", us(median), s.n, us(s.max)),
                None if s.n == 1 => format!("it took {}", us(s.max)),
                None => format!("it took {} to {} in {} repetitions", us(s.min), us(s.max), s.n),
            };
            format!(
                "From the first fault until the last survivor could act again, {spans}. In this time, no process could act for \
                 the dead."
            )
        }
        None => "No failover was measured.".to_owned(),
    });
    let wait = trials.measured.iter().map(|t| t.lease_wait_ns).max().unwrap_or(0);
    if wait > 0 {
        doc.say(format!(
            "The lease rule alone, without fences, would have made the survivors wait {}.",
            Nanos(wait)
        ));
    }
    let falsely = total(trials.counted.iter().map(|t| t.falsely_failed));
    let overlap = journal.trials.iter().map(|t| t.overlap_ns).max().unwrap_or(0);
    doc.list(vec![
        format!("Members that were removed although no fault had hit them: {falsely}."),
        format!(
            "Longest time for which a victim could still act in the old view after the new one was active (must be 0): {}.",
            Nanos(overlap)
        ),
    ]);
    if let Some((svg, shown)) = figures::repetitions(journal) {
        let caption = format!(
            "All measured repetitions in their order: {}. A drift or a step indicates that the machine changed meanwhile.",
            count(shown, "repetition")
        );
        doc.figure("repetitions", svg, caption);
    }
}

fn trigger(drill: &Drill, doc: &mut Document) {
    let mut lines = Vec::new();
    for step in &drill.steps {
        for fault in &step.faults {
            let lasts = fault.lasts.map_or(String::new(), |span| format!(" for {span}"));
            let whom =
                if fault.targets.is_empty() { "the host".to_owned() } else { fault.targets.join(", ") };
            let tolerated = if fault.tolerated { ", which the cluster is expected to tolerate" } else { "" };
            let cue = if step.faults.len() > 1 { ", on one cue with the others of this step" } else { "" };
            lines.push(format!(
                "Step {}: {} at {whom}{lasts}{tolerated}{cue}.",
                step.name,
                fault.kind.describe()
            ));
        }
    }
    doc.list(lines);
}

/// Figures, their meanings, and the usual causes of long ones.
const MEANINGS: [(Metric, &str, &str); 10] = [
    (Metric::CueToActive, "first fault until the last surviving program is active in the new view", ""),
    (Metric::ToAgents, "first fault until the last surviving agent has a lease on the new view", ""),
    (Metric::ToCoordinators, "first fault until the last surviving coordinator has the new view", ""),
    (
        Metric::Notice,
        "first fault to the notice at the coordinator that decided",
        "the available detector (obol status: deadbeat); for frozen processes, heartbeat.period and \
         heartbeat.confirm; a coordinator that was not scheduled",
    ),
    (
        Metric::Propose,
        "notice to proposal; includes a change of leader",
        "a leader that died with the others, or a coordinator that was not scheduled",
    ),
    (
        Metric::Decide,
        "proposal to decision",
        "two round trips to a majority of acceptors; contending leaders (coordinator.backoff_max)",
    ),
    (
        Metric::Fence,
        "decision to the end of all older leases",
        "a holder that can neither be fenced nor proved dead makes all wait for lease.duration, as does lease.fencing = \
         false",
    ),
    (
        Metric::Clear,
        "that to CLEAR, the leader's announcement that no older lease is left",
        "a leader that was not scheduled",
    ),
    (
        Metric::Active,
        "CLEAR until the last surviving program is active in the new view",
        "waking every program: more processes than cores, wait.strategy, load beside the cluster",
    ),
    (
        Metric::Skew,
        "first to last fault of one cue",
        "a fault agent that was interrupted between two faults: load beside the cluster; between hosts, the way of the \
         cue and the error of the clocks",
    ),
];

fn detection(journal: &Journal, doc: &mut Document) {
    let mut rows = Vec::new();
    for (metric, meaning, _) in MEANINGS {
        let Some(s) = journal.figures_us.get(metric.name()) else { continue };
        let percentiles = [s.p50, s.p90, s.p99];
        let mut row = vec![Cell::text(metric.name()), Cell::text(meaning)];
        row.extend(percentiles.map(|value| Cell::number(value.map_or("not claimed".to_owned(), us))));
        row.push(Cell::number(us(s.max)));
        rows.push(row);
    }
    if rows.is_empty() {
        doc.say("Nothing was measured, so there are no figures.");
        return;
    }
    doc.table(&["figure", "what it is", "p50", "p90", "p99", "max"], rows);
    if let Some(svg) = figures::phases(journal) {
        let caption =
            "Where the time goes: the phases of the median and of the slowest failovers.".to_owned();
        doc.figure("phases", svg, caption);
    }
}

/// The 95 % confidence interval of a quantile, from the ranks of the samples (normal approximation
/// of the binomial distribution); `None` with too few samples. `sorted` is ascending.
fn interval(sorted: &[Nanos], q: f64) -> Option<(Nanos, Nanos)> {
    let n = sorted.len() as f64;
    let (middle, spread) = (n * q, Z95 * (n * q * (1.0 - q)).sqrt());
    let (low, high) = ((middle - spread).floor(), (middle + spread).ceil());
    if low < 1.0 || high > n {
        return None;
    }
    Some((*sorted.get(low as usize - 1)?, *sorted.get(high as usize - 1)?))
}

fn sureness(journal: &Journal, trials: &Trials<'_>, doc: &mut Document) {
    let [p50, p90, p99] =
        [Percentile::P50, Percentile::P90, Percentile::P99].map(|percentile| percentile.samples_min());
    let error = trials.counted.iter().map(|trial| trial.clock_error_ns).max().unwrap_or(0);
    let clocks = match error {
        0 => "all on one clock".to_owned(),
        _ => format!(
            "each on the clock of its host. Compared with this host's clock, those of others may be off by {} at most, \
             which the skew of a cue and the search for overlapping views take into account",
            Nanos(error)
        ),
    };
    doc.say(format!(
        "Every stamp is from a process's own flight recorder or from the fault agent that injected, {clocks}; \
         the tool does not delay a failover. A percentile is reported only with enough \
         samples for 95 % confidence that one of them reached it: p50 needs {p50}, p90 {p90}, p99 {p99}; there are {}.",
        trials.measured.len()
    ));
    let mut sorted: Vec<Nanos> = samples(&journal.trials, Metric::CueToActive).collect();
    sorted.sort_unstable();
    let within = |q: f64| match interval(&sorted, q) {
        Some((low, high)) => format!("between {low} and {high}"),
        None => "unknown, because there are too few repetitions".to_owned(),
    };
    if !sorted.is_empty() {
        doc.list(vec![
            format!("With 95 %, the true median is {}.", within(0.5)),
            format!("With 95 %, the true 90th percentile is {}.", within(0.9)),
            format!(
                "{} of {} repetitions were void{}",
                journal.void,
                trials.counted.len(),
                if journal.void == 0 { "." } else { ": they are excluded, and the journal has each reason." }
            ),
            "The figures hold for this machine at that time. Another profile, kernel or load gives others."
                .to_owned(),
        ]);
    }
    if let Some(svg) = figures::distribution(journal) {
        let caption =
            "Share of failovers by their longest duration. Dashed: the bounds of the drill.".to_owned();
        doc.figure("distribution", svg, caption);
    }
}

/// The events of one repetition.
fn time_line(trial: &Trial, doc: &mut Document) {
    let victims: Vec<String> =
        trial.victims.iter().map(|v| format!("{} (pid {})", v.process, v.pid)).collect();
    doc.say(format!("Repetition {}, step {}: {}.", trial.number, trial.step, victims.join(", ")));
    let mut rows = Vec::new();
    let first = trial.stamps.iter().map(|stamp| stamp.at).min().unwrap_or_default();
    let several = trial.stamps.iter().any(|stamp| stamp.host != 1) || trial.clock_error_ns > 0;
    let within = |error: u64| {
        let shown = if error == 0 { "exact".to_owned() } else { format!("\u{b1} {}", Nanos(error)) };
        several.then(|| Cell::number(shown))
    };
    for stamp in &trial.stamps {
        let at = Nanos(stamp.at.saturating_sub(first));
        let injection = match &stamp.error {
            Some(error) => format!("{} is missed: {error}", stamp.name),
            None => format!("{} is hit", stamp.name),
        };
        let on = if several { format!(", on host {}", stamp.host) } else { String::new() };
        let row = [
            Some(Cell::number(format!("+{at}"))),
            within(stamp.clock_error),
            Some(Cell::text(injection + &on)),
        ];
        rows.push(row.into_iter().flatten().collect());
    }
    let mut at = 0;
    for (phase, done) in Phases::NAMES.into_iter().zip(DONE) {
        let Some(span) = trial.phases_ns.get(phase) else { continue };
        at += span;
        let done = format!("{done}, {} later ({phase})", Nanos(*span));
        let row = [
            Some(Cell::number(format!("+{}", Nanos(at)))),
            within(trial.clock_error_ns),
            Some(Cell::text(done)),
        ];
        rows.push(row.into_iter().flatten().collect());
    }
    if trial.outcome == Outcome::Failed {
        let row =
            [Some(Cell::number("then")), several.then(|| Cell::number("")), Some(Cell::text(reason(trial)))];
        rows.push(row.into_iter().flatten().collect());
    }
    let heads: &[&str] = if several { &["at", "clock error", "what"] } else { &["at", "what"] };
    doc.table(heads, rows);
}

fn expected(journal: &Journal, doc: &mut Document) {
    if journal.judged.is_empty() {
        doc.say("The drill has no bounds.");
        return;
    }
    let row = |one: &Judged| {
        let holds = match one.holds {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "too few samples",
        };
        vec![
            Cell::text(format!("{} {}", one.metric, one.of)),
            Cell::number(one.shown(one.bound)),
            Cell::number(one.found.map_or("not claimed".to_owned(), |found| one.shown(found))),
            Cell::number(one.samples.to_string()),
            Cell::text(holds),
        ]
    };
    let rows = journal.judged.iter().map(row);
    doc.table(&["figure", "bound", "found", "samples", "holds"], rows);
}

fn lessons(journal: &Journal, trials: &Trials<'_>, doc: &mut Document) {
    let of = |outcome: Outcome| trials.counted.iter().filter(move |trial| trial.outcome == outcome);
    doc.heading("What went well");
    let mut well = match trials.measured.len() {
        0 => vec!["Nothing was measured.".to_owned()],
        n => vec![format!("{n} of {} were measured.", count(trials.counted.len(), "trial"))],
    };
    let held = journal.judged.iter().filter(|one| one.holds == Some(true));
    well.extend(held.map(|one| format!("{} held its bound.", one.figure())));
    doc.list(well);

    doc.heading("What went wrong");
    let missed: Vec<&Judged> = journal.judged.iter().filter(|one| one.holds == Some(false)).collect();
    let mut wrong: Vec<String> = missed.iter().map(|one| self::missed(one)).collect();
    wrong.extend(of(Outcome::Failed).map(|t| format!("Repetition {} failed: {}.", t.number, reason(t))));
    let broken = journal.after.iter().filter(|one| !one.holds);
    wrong.extend(broken.map(|one| format!("Afterwards {} did not hold: {}.", one.probe.name(), one.saw)));
    wrong.extend(journal.remarks.iter().map(|remark| sentence(remark)));
    if wrong.is_empty() {
        wrong.push("Nothing.".to_owned());
    }
    doc.list(wrong);

    doc.heading("Where we got lucky");
    let void: Vec<&&Trial> = of(Outcome::Void).collect();
    let mut lucky: Vec<String> = void
        .iter()
        .take(REASONS_MAX)
        .map(|t| format!("Repetition {} was void: {}.", t.number, reason(t)))
        .collect();
    if void.len() > REASONS_MAX {
        lucky.push(format!("{} more were void; the journal lists them.", void.len() - REASONS_MAX));
    }
    if trials.measured.is_empty() && void.is_empty() {
        lucky.push("Nothing indicates that.".to_owned());
    } else if void.is_empty() {
        lucky.push("No repetition was void.".to_owned());
    }
    doc.list(lucky);

    doc.heading("Action items");
    doc.list(actions(journal, &missed, of(Outcome::Failed).count()));
}

fn actions(journal: &Journal, missed: &[&Judged], failed: usize) -> Vec<String> {
    let mut actions = Vec::new();
    if !missed.is_empty()
        && let Some((metric, meaning, cause)) = longest(journal)
    {
        actions.push(format!(
            "The longest phase is {} ({meaning}). Usual causes: {cause}. Look at the slowest repetitions in the \
             trace (timeline.json, in Perfetto), change one thing, and run the drill again.",
            metric.name()
        ));
    }
    match journal.verdict {
        Verdict::Aborted => actions.push(
            "Find out why the drill was aborted (What went wrong) before you run it again. Its faults are undone by its \
             fault agent; obol drill recover undoes what may be left."
                .to_owned(),
        ),
        Verdict::Interrupted => actions.push("Run it again to its end; nothing is left to undo.".to_owned()),
        _ => {}
    }
    if journal.trials.iter().any(|trial| trial.overlap_ns > 0) {
        actions.push(
            "Two views could be used at once, which must never be. Keep this directory and the cluster's flight recorders \
             (obol events --json), and treat it as a defect of obol."
                .to_owned(),
        );
    }
    // More repetitions do not help a drill that was ended early.
    let whole = matches!(journal.verdict, Verdict::Passed | Verdict::Deviated | Verdict::Void);
    for one in journal.judged.iter().filter(|one| whole && one.holds.is_none()) {
        actions.push(format!(
            "{}: repeat more often (--count), {} {} too few.",
            one.figure(),
            count(one.samples as usize, "sample"),
            if one.samples == 1 { "is" } else { "are" }
        ));
    }
    if journal.void * 10 > journal.count {
        actions.push(
            "More than one in ten repetitions was void. Run the drill on an otherwise idle machine, or increase \
             max_cue_skew if the skew does not matter here."
                .to_owned(),
        );
    }
    if failed > 0 {
        let unseen =
            journal.trials.iter().filter_map(|t| t.reason.as_deref()).any(|why| why.contains(UNSEEN));
        if unseen {
            actions.push(format!(
                "A process that was silenced was not suspected. A stalled process is suspected after heartbeat.period times heartbeat.confirm (obol \
                 profile show {}): let the fault last longer than that, write expect = \"tolerated\" if it is to be tolerated, or find out why no detector worked (obol status, obol \
                 events).",
                journal.profile
            ));
        }
        actions.push(
            "Run the failed repetition again with obol events beside it, before you change anything else."
                .to_owned(),
        );
    }
    if actions.is_empty() {
        actions.push("None.".to_owned());
    }
    actions
}

/// The phase whose median is the longest.
fn longest(journal: &Journal) -> Option<(Metric, &'static str, &'static str)> {
    let median = |metric: Metric| {
        let times = distribution(&journal.trials, metric);
        (!times.is_empty()).then(|| times.quantile(0.5))
    };
    let phases = MEANINGS.into_iter().filter(|(metric, ..)| metric.is_phase());
    phases.filter(|(metric, ..)| median(*metric).is_some()).max_by_key(|(metric, ..)| median(*metric))
}

/// Seconds since 1970 as a date in UTC.
fn date(seconds: u64) -> String {
    calendar::utc(Nanos::from_secs(seconds).0, "%F %T UTC")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drillfile::Probe;
    use crate::drills::engine::journal::Probed;

    const DRILL: &str = r#"[drill]
schema = 1
id = "dies"
title = "An app dies"
environment = "local"
repeat = { count = 6, gap = "20ms" }
[targets]
app = { kind = "app", select = "one" }
[[step]]
name = "kill"
fault = { kind = "kill", target = "app" }
[[expect]]
metric = "failover.cue_to_active"
p50 = "10s"
"#;

    fn simulated() -> (Drill, Journal) {
        let drill = crate::drillfile::parse(DRILL, "d.toml").expect("a drill");
        let profile = obol_profiles::Profile::builtin("laptop").expect("a profile");
        let options = crate::drills::Options::new(std::path::PathBuf::new());
        let none = obol_membership::ActiveMutant::NONE;
        let journal = crate::drills::simulate(&drill, profile, none, &options, |_| true).expect("it runs");
        (drill, journal)
    }

    #[test]
    fn everything_held_is_said_only_of_a_drill_that_passed_with_all_bounds_judged() {
        let (drill, passed) = simulated();
        let says = |journal: &Journal| document(journal, &drill).html().contains("Everything held.");
        assert!(says(&passed), "{:?}", passed.verdict);
        use Verdict::{Aborted, Deviated, Failed, Interrupted, Void};
        for verdict in [Failed, Deviated, Aborted, Interrupted, Void] {
            assert!(!says(&Journal { verdict, ..passed.clone() }), "{verdict:?}");
        }
        let mut open = passed.clone();
        open.judged[0].holds = None;
        assert!(!says(&open));
        let says = |journal: &Journal| document(journal, &drill).html().contains("could be judged held");
        assert!(says(&open) && !says(&passed));
        for verdict in [Failed, Deviated, Aborted, Interrupted, Void] {
            assert!(!says(&Journal { verdict, ..open.clone() }), "{verdict:?}");
        }
    }

    #[test]
    fn that_a_bound_or_a_probe_held_is_said_only_if_it_did() {
        let (drill, mut journal) = simulated();
        let probed = |holds| Probed { probe: Probe::ViewConverged, holds, saw: "3 of 4".to_owned() };
        let mut said = |judged, after| {
            journal.judged[0].holds = judged;
            journal.after = vec![probed(after)];
            let text = document(&journal, &drill).markdown(None);
            let bound = text.contains("| yes |") || text.contains("held its bound");
            (bound, text.contains(&format!("{} held: 3 of 4", Probe::ViewConverged.name())))
        };
        assert_eq!(said(Some(true), true), (true, true));
        for judged in [Some(false), None] {
            assert_eq!(said(judged, false), (false, false), "{judged:?}");
        }
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00:00 UTC");
        assert!(date(u64::MAX).starts_with("2554-"));
    }

    #[test]
    fn an_interval_of_a_quantile_needs_enough_samples() {
        let sorted: Vec<Nanos> = (1..=100).map(Nanos).collect();
        // Ranks 40 and 60 enclose the median with 95 %: the usual table of order statistics.
        assert_eq!(interval(&sorted, 0.5), Some((Nanos(40), Nanos(60))));
        assert_eq!(interval(&sorted, 0.99), None);
        assert_eq!(interval(&sorted[..5], 0.5).map(|_| ()), None);
        assert_eq!(interval(&[], 0.5), None);
    }
}

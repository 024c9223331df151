//! The postmortem, in the shape that SRE teams use, for a reader who was not there.

use crate::drillfile::{Drill, Metric, Percentile};
use crate::drills::journal::{Journal, Judged, Outcome, Trial, Verdict};
use crate::timeline::Phases;
use obol_fabric::Nanos;

/// Voided trials that are told one by one.
const REASONS_MAX: usize = 20;

fn us(value: f64) -> String {
    Nanos((value * 1000.0) as u64).to_string()
}

/// A text within a table's cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// The whole text.
pub(super) fn text(journal: &Journal, drill: &Drill) -> String {
    let mut text = String::new();
    let mut line = |part: String| {
        text.push_str(&part);
        text.push('\n');
    };
    let counted: Vec<&Trial> = journal.trials.iter().filter(|trial| !trial.warmup).collect();
    let measured: Vec<&Trial> = counted.iter().copied().filter(|t| t.outcome == Outcome::Measured).collect();
    line(format!("# Drill {}: {}\n", journal.drill, journal.verdict.name()));
    line(format!("{}\n", cell(&journal.title)));
    line("## Summary\n".to_owned());
    line(format!(
        "{} repetitions of {} on a cluster labelled `{}` (profile `{}`, {} cores, Linux {}), begun {} s after 1970-01-01. {}\n",
        journal.count,
        cell(&journal.title),
        journal.environment,
        journal.profile,
        journal.host.cores,
        journal.host.kernel,
        journal.began,
        verdict(journal.verdict)
    ));
    line("## Impact\n".to_owned());
    line(impact(journal, &measured));
    line("## Trigger\n".to_owned());
    for step in &drill.steps {
        for fault in &step.faults {
            let lasts = fault.lasts.map_or(String::new(), |span| format!(" for {span}"));
            let whom =
                if fault.targets.is_empty() { "the host".to_owned() } else { fault.targets.join(", ") };
            line(format!(
                "- step {}: `{}` at {whom}{lasts}, on one cue",
                cell(&step.name),
                fault.kind.name()
            ));
        }
    }
    line("\n## Detection and resolution\n".to_owned());
    line("| phase | what it is | p50 | p90 | p99 | max |\n|---|---|---:|---:|---:|---:|".to_owned());
    for (name, meaning) in meanings() {
        let Some(s) = journal.figures_us.get(name) else { continue };
        let p99 = s.p99.map_or("too few samples".to_owned(), us);
        line(format!("| `{name}` | {meaning} | {} | {} | {p99} | {} |", us(s.p50), us(s.p90), us(s.max)));
    }
    let needed = Percentile::P99.samples_min();
    line(format!(
        "\nA percentile is told only where there are enough samples to be 95 % sure that one of them reached it: p99 needs \
         {needed}, here are {}. Stamps come from the processes' own flight recorders and from the helper that struck, all \
         on one clock.\n",
        measured.len()
    ));
    line("## Time line of the slowest failover\n".to_owned());
    slowest(&measured, &mut line);
    line("## Expected and found\n".to_owned());
    line("| figure | bound | found | samples | holds |\n|---|---:|---:|---:|---|".to_owned());
    for Judged { metric, of, bound, found, samples, holds } in &journal.judged {
        let shown = |value: f64| if *of == "count" { value.to_string() } else { us(value) };
        let found = found.map_or("not claimed".to_owned(), shown);
        let holds = match holds {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "too few samples",
        };
        line(format!("| `{metric}` {of} | {} | {found} | {samples} | {holds} |", shown(*bound)));
    }
    lessons(journal, &counted, &measured, &mut line);
    text
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Passed => "Everything held.",
        Verdict::Deviated => {
            "The cluster recovered, but a figure missed its bound or a steady state did not hold."
        }
        Verdict::Failed => "The cluster did not recover as it must.",
        Verdict::Aborted => "A guard or an abort condition ended the drill.",
        Verdict::Interrupted => "It was ended early, and the figures are of what was done until then.",
        Verdict::Void => "Nothing could be measured, so nothing is known.",
    }
}

fn impact(journal: &Journal, measured: &[&Trial]) -> String {
    let falsely: u64 = journal.trials.iter().filter(|t| !t.warmup).map(|t| t.falsely_failed).sum();
    let overlap = journal.trials.iter().map(|t| t.overlap_ns).max().unwrap_or(0);
    let failover = journal.figures_us.get(Metric::CueToActive.name());
    let time = match failover {
        Some(s) => format!(
            "From the first blow until the last survivor was active again, the median was {}, and the worst of {} was {}.",
            us(s.p50),
            s.n,
            us(s.max)
        ),
        None => "No failover was measured.".to_owned(),
    };
    let wait = measured.iter().map(|t| t.lease_wait_ns).max().unwrap_or(0);
    let lease = if wait > 0 {
        format!(" The lease rule alone would have made the survivors wait {}.", Nanos(wait))
    } else {
        String::new()
    };
    format!(
        "{time}{lease} Members that were removed although nothing had hit them: {falsely}. Longest time in which a victim \
         could still have used the old view beside the new one: {}.\n",
        Nanos(overlap)
    )
}

/// Figures and what they are.
fn meanings() -> [(&'static str, &'static str); 8] {
    [
        (Metric::CueToActive.name(), "first blow to the last survivor's `active`"),
        (Metric::Notice.name(), "first blow to the notice at the coordinator that decided"),
        (Metric::Propose.name(), "notice to proposal; a change of leader is in here"),
        (Metric::Decide.name(), "proposal to decision"),
        (Metric::Fence.name(), "decision to the end of all older leases"),
        (Metric::Clear.name(), "that to CLEAR"),
        (Metric::Active.name(), "CLEAR to the last survivor's `active`"),
        (Metric::Skew.name(), "first to last blow of one cue"),
    ]
}

fn slowest(measured: &[&Trial], line: &mut impl FnMut(String)) {
    let Some(trial) = measured.iter().max_by_key(|trial| trial.failover_ns) else {
        line("None was measured.\n".to_owned());
        return;
    };
    let victims: Vec<String> =
        trial.victims.iter().map(|v| format!("{} (pid {})", v.process, v.pid)).collect();
    line(format!("Repetition {}, step {}: {}.\n", trial.number, cell(&trial.step), victims.join(", ")));
    line("| at | what |\n|---:|---|".to_owned());
    let first = trial.stamps.iter().map(|stamp| stamp.at).min().unwrap_or_default();
    for stamp in &trial.stamps {
        line(format!("| +{} | {} is hit |", Nanos(stamp.at - first), stamp.name));
    }
    let mut at = 0;
    for phase in Phases::NAMES {
        let Some(span) = trial.phases_ns.get(phase) else { continue };
        at += span;
        line(format!("| +{} | {phase} done, after {} |", Nanos(at), Nanos(*span)));
    }
    line(String::new());
}

fn lessons(journal: &Journal, counted: &[&Trial], measured: &[&Trial], line: &mut impl FnMut(String)) {
    let missed: Vec<&Judged> = journal.judged.iter().filter(|one| one.holds == Some(false)).collect();
    let failed: Vec<&&Trial> = counted.iter().filter(|trial| trial.outcome == Outcome::Failed).collect();
    let void: Vec<&&Trial> = counted.iter().filter(|trial| trial.outcome == Outcome::Void).collect();
    line("\n## What went well\n".to_owned());
    line(format!("- {} of {} trials were measured.", measured.len(), counted.len()));
    for one in journal.judged.iter().filter(|one| one.holds == Some(true)) {
        line(format!("- `{}` {} held its bound.", one.metric, one.of));
    }
    line("\n## What went wrong\n".to_owned());
    for one in &missed {
        line(format!("- `{}` {} missed its bound.", one.metric, one.of));
    }
    for trial in &failed {
        let why = trial.reason.as_deref().unwrap_or("no reason was found");
        line(format!("- Repetition {} failed: {}.", trial.number, cell(why)));
    }
    for one in journal.after.iter().filter(|one| !one.holds) {
        line(format!("- Afterwards `{}` did not hold: {}.", one.probe.name(), cell(&one.saw)));
    }
    for remark in &journal.remarks {
        line(format!("- {}.", cell(remark)));
    }
    if missed.is_empty()
        && failed.is_empty()
        && journal.remarks.is_empty()
        && journal.after.iter().all(|o| o.holds)
    {
        line("- Nothing.".to_owned());
    }
    line("\n## Where we got lucky\n".to_owned());
    for trial in void.iter().take(REASONS_MAX) {
        let why = trial.reason.as_deref().unwrap_or("no reason was found");
        line(format!("- Repetition {} says nothing: {}.", trial.number, cell(why)));
    }
    if void.len() > REASONS_MAX {
        line(format!("- {} more say nothing; the journal has them.", void.len() - REASONS_MAX));
    }
    if void.is_empty() {
        line("- No repetition was void, so no luck is needed to explain these figures.".to_owned());
    }
    line("\n## Action items\n".to_owned());
    for one in &missed {
        line(format!(
            "- [ ] `{}` {}: find the phase in the table above that takes longest, and look at its repetitions in the trace.",
            one.metric, one.of
        ));
    }
    for one in journal.judged.iter().filter(|one| one.holds.is_none()) {
        line(format!(
            "- [ ] `{}` {}: repeat more often; {} samples claim nothing.",
            one.metric, one.of, one.samples
        ));
    }
    if !failed.is_empty() {
        line("- [ ] Run the failed repetition again with `obol events` beside it, before anything else is changed.".to_owned());
    }
    if missed.is_empty() && failed.is_empty() && journal.judged.iter().all(|one| one.holds.is_some()) {
        line("- None.".to_owned());
    }
}

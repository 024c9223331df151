//! `obol drill list|show|schema|plan|probes|run|recover`: drills from files.

use super::accountable::{self, Approve, Audit, HaltDrills};
use super::detectors::DrillDetectors;
use super::format::Format;
use super::options::{DrillFile, DrillReplay, DrillRun, Json};
use super::running::{go, simulate};
use super::smr::DrillSmr;
use crate::cli::elsewhere;
use crate::commands::root::command;
use clap::Subcommand;
use obol_chaos::drillfile::{self, Drill, ReportFiles};
use obol_chaos::drills::agent::ssh::{Login, Ssh};
use obol_chaos::drills::audit::approval::Source;
use obol_chaos::drills::audit::log::Event;
use obol_chaos::drills::engine::attended::{How, report};
use obol_chaos::drills::engine::progress;
use obol_chaos::drills::studies::table2;
use obol_chaos::drills::{self, Fleet, Probed};
use obol_config::FileError;
use obol_fabric::host::this_program;
use obol_fabric::{Name, Nanos};
use obol_observe::Observer;
use obol_supervise::signals;
use obol_term::output::{self, Failure};
use serde::Serialize;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

/// Drills from files.
#[derive(Debug, Subcommand)]
pub(crate) enum DrillCommand {
    /// List the built-in drills
    List(Json),
    /// Print a built-in drill, as a template for your own
    Show {
        /// Its name
        drill: String,
    },
    /// Print the JSON Schema of drill files, or of journals
    Schema {
        /// Print that of journals (`journal.json` of a run) instead
        #[arg(long)]
        journal: bool,
    },
    /// Show a drill's victims and guards; injects nothing
    #[command(after_help = "Exit codes: 0 it may run, 2 a guard or the file refuses it.")]
    Plan(DrillFile),
    /// Check the steady state of a drill
    #[command(
        after_help = "Exit codes: 0 it holds, 1 it does not, 2 the file or the cluster is not available."
    )]
    Probes(DrillFile),
    /// Run a drill: steady state, cue, failover, undo, and again; then the verdict
    #[command(
        after_help = "Exit codes: 0 passed, 1 failed, 2 refused, 3 deviated, 4 aborted, 5 interrupted, 6 void.\n\
        A fault agent injects on the cue, and undoes its faults if this process dies.\n\
        With --sim a drill is judged by the simulator's oracle as well. Faults that the simulator lacks are refused by \
        name: all but kill, freeze and partition.\n\
        \ntable2 (uKharon, Table 2) starts clusters of its own: obol drill run table2 --no-fence --out table2"
    )]
    Run(Box<DrillRun>),
    /// Compare failure detectors on the same faults of one cluster
    Detectors(Box<DrillDetectors>),
    /// Compare presets of replicated state machines under the same faults
    Smr(Box<DrillSmr>),
    /// Play the faults of a simulator's scenario file on processes, and wait until the cluster is healthy
    #[command(
        after_help = "Exit codes: 0 the cluster is healthy afterwards, 1 it is not, 2 refused, or --yes is missing.\n\
        \nFILE is one of `obol sim shrink`. Its nodes represent the processes of `obol up`: start as many \
        coordinators, app nodes and lease caches as it has. Times are stretched by the ratio of the leases. Kills, \
        starts, freezes, leaves and single links that are cut exist on processes; what does not is listed and left \
        out. Only processes that `obol up` started are hit. Without --yes nothing is touched."
    )]
    Replay(DrillReplay),
    /// Halt all drills on all hosts: fault agents undo their faults within a second, and new drills
    /// are refused
    #[command(
        after_help = "It may be run on any host of the cluster: this one is halted first, and the gateways of the \
        others write the halt there. It returns when each host has answered and undone its faults; one that does not \
        answer within 3 s is named. A halt holds until `obol drill resume`.\n\
        Exit codes: 0 halted and undone on all hosts, 1 a host did not answer or has something left to undo, 2 there is \
        no such cluster."
    )]
    Halt(HaltDrills),
    /// Allow drills again after `obol drill halt`, on all hosts
    Resume(Json),
    /// Approve a drill file that requires a second person
    #[command(
        after_help = "The approval is for this text of the file, this cluster and a limited time. It is a file beside \
        the drill's, whose owner has to be another user than the one who runs the drill."
    )]
    Approve(Approve),
    /// Show who ran which drill on whom, and how it ended
    #[command(
        after_help = "Every run, refusal, halt and approval is a line of JSON in OBOL_AUDIT, or else in \
        $XDG_STATE_HOME/obol/drill-audit.jsonl; drills are refused where it cannot be written. Each line has the hash \
        of the one before it.\n\
        Exit codes: 0 shown, 1 the log was altered, 2 it cannot be read."
    )]
    Audit(Audit),
    /// Undo what a drill left behind when its processes were killed; idempotent
    Recover(Json),
}

/// Reports of one drill that a directory holds by numbers.
const REPORTS_MAX: u32 = 9999;
/// Refused by a guard.
const REFUSED: u8 = 2;
pub(crate) fn run(root: &Path, cluster: Name, command: &DrillCommand) -> Result<ExitCode, Failure> {
    match command {
        DrillCommand::List(how) => list(how.json),
        DrillCommand::Show { drill } => show(drill),
        DrillCommand::Schema { journal } => {
            let schema = if *journal { drills::journal_schema() } else { drillfile::schema() };
            output::line(serde_json::to_string_pretty(&schema).map_err(Failure::failed)?)?;
            Ok(ExitCode::SUCCESS)
        }
        DrillCommand::Plan(file) => plan(root, cluster, file),
        DrillCommand::Probes(file) => probes(root, cluster, file),
        DrillCommand::Run(options) => run_one(root, cluster, options),
        DrillCommand::Detectors(options) => super::detectors::run(root, cluster, options),
        DrillCommand::Smr(options) => super::smr::run(root, options),
        DrillCommand::Replay(options) => replay(root, cluster, options),
        DrillCommand::Recover(how) => recover(root, cluster, how.json),
        DrillCommand::Halt(options) => accountable::halt(root, cluster, options),
        DrillCommand::Resume(how) => accountable::resume(root, cluster, how.json),
        DrillCommand::Approve(options) => accountable::approve(root, cluster, options),
        DrillCommand::Audit(options) => accountable::audit(options),
    }
}

fn list(json: bool) -> Result<ExitCode, Failure> {
    #[derive(Serialize)]
    struct Line<'a> {
        name: &'a str,
        title: String,
        count: u32,
    }
    let mut lines = Vec::new();
    for one in drillfile::shipped() {
        let (Drill { title, repeat, .. }, _) = drillfile::load(one.name).map_err(Failure::failed)?;
        lines.push(Line { name: one.name, title, count: repeat.count });
    }
    lines.push(Line { name: table2::NAME, title: table2::TITLE.to_owned(), count: table2::COUNT });
    if json {
        output::json(&lines)?;
        return Ok(ExitCode::SUCCESS);
    }
    let width = lines.iter().map(|line| line.name.len()).max().unwrap_or(0);
    for line in lines {
        output::line(format_args!("{:<width$}  {:>4} x  {}", line.name, line.count, line.title))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(name: &str) -> Result<ExitCode, Failure> {
    let (_, text) = load(name)?;
    output::text(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// A drill that is one.
fn load(name: &str) -> Result<(Drill, String), Failure> {
    if name == table2::NAME {
        return Err(Failure::Refused(
            "table2 is eight drills on clusters of its own: see app, app+coordinator, app+cache and \
             app+coordinator+cache, and at each with -heartbeat"
                .to_owned(),
        ));
    }
    drillfile::load(name).map_err(|error| {
        let meant = match error {
            FileError::Unknown { .. } => elsewhere(&command(), name),
            _ => Vec::new(),
        };
        let meant: String = meant.iter().map(|line| format!("; see also `{line}`")).collect();
        Failure::Refused(format!("{error}{meant}"))
    })
}

/// The drill with its text, and the cluster as it is now.
fn look(root: &Path, cluster: Name, file: &DrillFile) -> Result<((Drill, String), Fleet), Failure> {
    Ok((load(&file.drill)?, Fleet::open(root, cluster).map_err(Failure::refused)?))
}

fn plan(root: &Path, cluster: Name, file: &DrillFile) -> Result<ExitCode, Failure> {
    let ((drill, text), mut fleet) = look(root, cluster, file)?;
    let (snapshot, supervisor) = fleet.look();
    let plan = drills::plan(&drill, &fleet, &snapshot, &supervisor, 1);
    let plan = plan.permitted(&drill, &Source::new(&file.drill, &text), &fleet, cluster);
    let code = if plan.allowed { ExitCode::SUCCESS } else { ExitCode::from(REFUSED) };
    let several = fleet.has_several_hosts();
    if file.json {
        output::json(&plan)?;
        return Ok(code);
    }
    output::line(format_args!(
        "drill {}: {}, {} repetitions. Nothing was touched",
        plan.drill, plan.title, plan.count
    ))?;
    let of = if plan.count > 1 { " in the first repetition; each chooses its victims anew" } else { "" };
    for step in &plan.steps {
        output::line(format_args!("step {}{of}", step.step))?;
        for fault in &step.faults {
            let lasts = fault.lasts.as_ref().map_or(String::new(), |span| format!(" for {span}"));
            let tolerated = if fault.tolerated { ", to be tolerated" } else { "" };
            output::line(format_args!("  {}{lasts}{tolerated}", fault.fault))?;
            for hit in &fault.hits {
                let program = hit
                    .program
                    .as_ref()
                    .map_or("a program that cannot be seen".into(), |p| p.to_string_lossy());
                let alone = if hit.supervised { "" } else { ", which nothing restarts" };
                let host = if several { format!("host {}, ", hit.host) } else { String::new() };
                output::line(format_args!(
                    "    {:<10} {} ({host}pid {}, {program}{alone})",
                    hit.target, hit.process, hit.pid
                ))?;
            }
        }
        if let Some(refusal) = &step.refusal {
            output::line(format_args!("  ! {refusal}"))?;
        }
    }
    for answer in &plan.guards {
        let mark = if answer.allows { "allows" } else { "REFUSES" };
        output::line(format_args!("guard {:<18} {mark:<8} {}", answer.guard, answer.says))?;
    }
    if !plan.judges {
        output::line(
            "it judges nothing: without an [[expect]] or a [[steady]] for afterwards it cannot pass",
        )?;
    }
    let verdict = if plan.allowed { "it may run" } else { "it may not run" };
    output::line(verdict)?;
    Ok(code)
}

fn probed_text(Probed { probe, holds, saw }: &Probed) -> String {
    let mark = if *holds { "holds" } else { "DEVIATES" };
    format!("{:<22} {mark:<9} {saw}", probe.name())
}

fn probes(root: &Path, cluster: Name, file: &DrillFile) -> Result<ExitCode, Failure> {
    let ((drill, _), mut fleet) = look(root, cluster, file)?;
    let (snapshot, _) = fleet.look();
    let probed: Vec<Probed> = drill.steady.iter().map(|s| drills::probe(&fleet, &snapshot, s)).collect();
    let holds = probed.iter().all(|one| one.holds);
    if file.json {
        output::json(&probed)?;
    } else {
        probed.iter().map(probed_text).try_for_each(output::line)?;
        if probed.is_empty() {
            output::line(format_args!("drill {} has no [[steady]]", drill.id))?;
        }
    }
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn recover(root: &Path, cluster: Name, json: bool) -> Result<ExitCode, Failure> {
    let undone = drills::recover(root, cluster).map_err(Failure::refused)?;
    if !undone.done.is_empty() || !undone.failed.is_empty() {
        let reason = undone.done.iter().chain(&undone.failed).cloned().collect::<Vec<_>>().join("; ");
        let noted = accountable::note(root, cluster, Event::Recovered, |entry| entry.reason = Some(reason));
        accountable::done_already(noted);
    }
    let fleet = Fleet::open(root, cluster).map_err(Failure::refused)?;
    if !fleet.is_here() {
        output::remark(
            "obol: this was for the hosts that are this machine; on others run it there, or run another drill here",
        )?;
    }
    if json {
        output::json(&undone)?;
    } else {
        for line in &undone.done {
            output::line(line)?;
        }
        for line in &undone.failed {
            output::line(format_args!("  ! {line}"))?;
        }
        if undone.done.is_empty() && undone.failed.is_empty() {
            output::line("nothing is left to undo")?;
        }
    }
    Ok(if undone.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn replay(root: &Path, cluster: Name, options: &DrillReplay) -> Result<ExitCode, Failure> {
    let script = crate::commands::sim::script(&options.script.to_string_lossy())?;
    let observer = Observer::open(root, cluster).map_err(Failure::refused)?;
    let plan = drills::plan_script(&observer, &script);
    for why in plan.missing.iter().filter(|_| !options.json) {
        output::remark(format_args!("left out: {why}"))?;
    }
    if plan.acts == 0 {
        return Err(Failure::refused("the scenario has no fault that exists on these processes"));
    }
    if !options.yes {
        let (acts, slower) = (plan.acts, plan.slower);
        return Err(Failure::refused(format_args!(
            "{acts} acts, {slower} times slower than in the scenario, would hit the processes of {cluster}; add --yes"
        )));
    }
    let stop = signals::ending()?;
    let name = options.script.display().to_string();
    let logged = |event, outcome: Option<String>| {
        accountable::note(root, cluster, event, |entry| {
            (entry.drill, entry.file, entry.outcome) =
                (Some("replay".to_owned()), Some(name.clone()), outcome);
        })
    };
    logged(Event::Began, None)?;
    let program = this_program::file().map_err(Failure::failed)?;
    let replayed = drills::replay_script(root, cluster, &program, &script, || !stop.load(Ordering::Relaxed));
    let outcome = match &replayed {
        Ok(replayed) => format!("played {} of {} acts", replayed.played, script.acts.len()),
        Err(error) => format!("refused: {error}"),
    };
    accountable::done_already(logged(Event::Ended, Some(outcome)));
    let replayed = replayed.map_err(Failure::refused)?;
    if options.json {
        output::json(&replayed)?;
    } else {
        output::line(format_args!("played {} of {} acts", replayed.played, script.acts.len()))?;
        for line in &replayed.undone.done {
            output::line(line)?;
        }
        let wrong = replayed.missed.iter().chain(&replayed.undone.failed).chain(&replayed.unhealthy);
        for line in wrong {
            output::line(format_args!("  ! {line}"))?;
        }
    }
    let well = replayed.undone.failed.is_empty() && replayed.unhealthy.is_empty();
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_one(root: &Path, cluster: Name, options: &DrillRun) -> Result<ExitCode, Failure> {
    if options.file.drill == table2::NAME && !options.sim {
        if options.gap.is_some() {
            return Err(Failure::Refused(
                "--gap is for one drill; table2 has eight, with gaps of their own".to_owned(),
            ));
        }
        return super::table2::run(root, options);
    }
    if options.no_fence {
        return Err(Failure::Refused(
            "--no-fence belongs to `obol drill run table2`, which starts its own clusters; a cluster that runs has what \
             its profile says (lease.fencing)"
                .to_owned(),
        ));
    }
    let format = if options.file.json { Format::Json } else { options.format };
    run_file(root, cluster, options, format).inspect_err(|failure| {
        // The failure itself is reported in any case.
        let _ = format.refused(&options.file.drill, failure);
        if options.progress {
            report(&progress::Line::Failed { reason: failure.to_string() });
        }
    })
}

fn run_file(root: &Path, cluster: Name, options: &DrillRun, format: Format) -> Result<ExitCode, Failure> {
    let (mut drill, text) = load(&options.file.drill)?;
    if let Some(gap) = options.gap {
        drill.repeat.gap = Nanos::from_std(gap);
    }
    if drill.guards.require_confirm && !options.yes && !options.sim {
        return Err(Failure::Refused(format!(
            "drill {} requires confirmation: check `obol drill plan {}`, then add --yes",
            drill.id, options.file.drill
        )));
    }
    let ssh = options.ssh.clone().map(|ssh| Ssh {
        config: options.ssh_config.clone(),
        program: options.ssh_program.clone(),
        ..ssh
    });
    let approval = options.approval.as_deref();
    let accountable = accountable::of_file(&options.file.drill, &text, approval)?;
    let login = Login { config: options.ssh_config.clone(), program: options.ssh_program.clone() };
    let progress = options.progress;
    let (count, crash) = (options.count, options.crash.clone());
    let how = How { count, undo_early: false, ssh, crash, login, accountable, progress };
    // Before anything is broken: what was found would have no place.
    let out = place(&drill, options.out.as_deref())?;
    let journal = match options.sim {
        true => simulate(&drill, &options.profile, how),
        false => go(root, cluster, &drill, &options.log, how),
    }
    .inspect_err(|_| {
        // It is empty. If it cannot be removed, it stays so.
        let _ = out.as_deref().map(std::fs::remove_dir);
    })?;
    let said = format.print(&options.file.drill, &drill, &text, &journal);
    if let Some(dir) = out {
        let files = if drill.report.is_empty() { ReportFiles::all() } else { drill.report.clone() };
        output::kept("report", &dir, drills::report::write(&files, &journal, &drill, &dir));
    }
    Ok(output::verdict(journal.verdict.code(), said))
}

/// Makes the directory for the files that the drill names, or for all where only a directory is
/// named.
fn place(drill: &Drill, out: Option<&Path>) -> Result<Option<PathBuf>, Failure> {
    if let Some(dir) = out {
        return output::new_directory(dir).map(|dir| Some(dir.to_owned()));
    }
    if drill.report.is_empty() {
        return Ok(None);
    }
    for n in 1..=REPORTS_MAX {
        let dir = PathBuf::from(format!("drill-{}-{n}", drill.id));
        match std::fs::create_dir(&dir) {
            Ok(()) => return Ok(Some(dir)),
            // What an earlier run found is evidence, too.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Failure::refused_at(&dir)(error)),
        }
    }
    Err(Failure::Refused(format!("drill-{}-1 to {REPORTS_MAX} exist; choose a place by --out", drill.id)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_chaos::drillfile::Probe;

    #[test]
    fn a_steady_state_holds_only_if_its_probe_says_so() {
        let text = |holds| probed_text(&Probed { probe: Probe::Majority, holds, saw: "1 of 3".to_owned() });
        assert!(text(true).contains(" holds "));
        assert!(!text(false).contains("holds") && text(false).contains(" DEVIATES "), "{}", text(false));
    }
}

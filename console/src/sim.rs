//! `obol sim`: the simulation campaign, one seed again, and the planted bugs.

use crate::output::{self, Failure};
use crate::{cli, output::json};
use obol_chaos::campaign::{self, Options};
use obol_membership::Plant;
use std::io::IsTerminal;
use std::process::{Command, ExitCode};

/// Progress is shown so many times in a campaign.
const PROGRESS_LINES: u64 = 20;

pub(crate) fn run(command: &cli::Sim) -> Result<ExitCode, Failure> {
    match command {
        cli::Sim::Campaign { seeds, seed, json } => run_campaign(*seeds, *seed, *json),
        cli::Sim::Replay { seed, mutant } => replay(*seed, mutant.as_deref()),
        cli::Sim::Mutants { budget, json } => mutants(*budget, *json),
    }
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// What this binary was built from, as well as can be told: the commit, or the version.
fn commit() -> String {
    if let Some(commit) = option_env!("OBOL_COMMIT") {
        return commit.to_owned();
    }
    let asked = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    let told = asked.ok().filter(|o| o.status.success()).and_then(|o| String::from_utf8(o.stdout).ok());
    told.map_or_else(|| format!("version {}", env!("CARGO_PKG_VERSION")), |text| text.trim().to_owned())
}

fn run_campaign(seeds: u64, first: u64, as_json: bool) -> Result<ExitCode, Failure> {
    let show = std::io::stderr().is_terminal();
    let every = (seeds / PROGRESS_LINES).max(1);
    let progress = move |done: u64| {
        if show && done.is_multiple_of(every) {
            // Progress that can not be shown is no reason to stop.
            let _ = output::remark(format_args!("{done} of {seeds} seeds"));
        }
    };
    let options = Options { seeds, first, threads: threads(), plant: Plant::NONE };
    let report = campaign::campaign(&options, &progress);
    if as_json {
        json(&report)?;
    } else {
        for (name, value) in [
            ("seeds", report.seeds.to_string()),
            ("canaries that failed as they must", report.canaries.to_string()),
            ("simulated failovers", report.failovers.to_string()),
            ("simulated hours", format!("{:.4}", report.simulated_hours)),
            ("violations", report.violations.len().to_string()),
            ("bound on their rate (95 %)", format!("{:.6}", report.upper_bound_95)),
            ("paths never taken", report.marks_missing.join(" ")),
            (
                "longest recovery, of its bound",
                format!("{:.1} %", report.recovery_permille_max as f64 / 10.0),
            ),
            ("wall time", format!("{:.1} s", report.wall_seconds)),
            ("failovers per second and core", format!("{:.0}", report.failovers_per_second_per_core)),
        ] {
            output::line(format_args!("{name:<36} {value}"))?;
        }
    }
    for v in &report.violations {
        output::remark(format_args!(
            "seed {} at commit {}: row {} at {} ns: {}\n  replay: obol sim replay {}",
            v.seed,
            commit(),
            v.row,
            v.time,
            v.what,
            v.seed
        ))?;
    }
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn replay(seed: u64, mutant: Option<&str>) -> Result<ExitCode, Failure> {
    let run = campaign::run(seed, mutant.map_or(Ok(Plant::NONE), plant)?, true);
    for line in &run.story {
        output::line(line)?;
    }
    output::line(format_args!(
        "seed {seed} at commit {}: {} views, {} failovers, {} ns, trace hash {:016x}",
        commit(),
        run.views,
        run.failovers,
        run.time,
        run.hash
    ))?;
    Ok(if run.violation.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(not(feature = "mutants"))]
fn plant(_: &str) -> Result<Plant, Failure> {
    Err(no_mutants())
}

#[cfg(not(feature = "mutants"))]
fn mutants(_: u64, _: bool) -> Result<ExitCode, Failure> {
    Err(no_mutants())
}

#[cfg(not(feature = "mutants"))]
fn no_mutants() -> Failure {
    Failure::refused(
        "this build has no planted bugs in it; build one that has: cargo build --release -p obol --features mutants",
    )
}

#[cfg(feature = "mutants")]
fn plant(name: &str) -> Result<Plant, Failure> {
    use obol_membership::Mutant;
    Mutant::ALL.iter().find(|m| m.name() == name).map(|m| Plant::new(*m)).ok_or_else(|| {
        let names: Vec<&str> = Mutant::ALL.iter().map(|m| m.name()).collect();
        Failure::refused(format_args!("there is no planted bug `{name}`; there are: {}", names.join(" ")))
    })
}

/// Rows that the campaign does not play: acceptors that change and programs that observe have tests of their own, with
/// their mutants, in `membership/tests`.
#[cfg(feature = "mutants")]
const MODELLED_ROWS: [u8; 2] = [16, 19];

#[cfg(feature = "mutants")]
fn mutants(budget: u64, as_json: bool) -> Result<ExitCode, Failure> {
    use obol_membership::Mutant;
    let show = std::io::stderr().is_terminal();
    let mut hunt = campaign::Hunt { mutants: Vec::new() };
    for mutant in Mutant::ALL.iter().filter(|mutant| !MODELLED_ROWS.contains(&mutant.row())) {
        let found = campaign::hunt(mutant.name(), mutant.row(), Plant::new(*mutant), 1, budget, threads());
        let seeds = found.seeds_to_detection.map_or("SURVIVED".to_owned(), |n| n.to_string());
        let shown = found.shown.as_ref().map_or(0, |failure| failure.row);
        let line = format!("{:<24} row {:>2}  seeds {seeds:>8}  shown by row {shown}", found.name, found.row);
        if !as_json {
            output::line(line)?;
        } else if show {
            output::remark(line)?;
        }
        hunt.mutants.push(found);
    }
    if as_json {
        json(&hunt)?;
    }
    Ok(if hunt.mutants.iter().all(|m| m.caught) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

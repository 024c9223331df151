//! `obol sim`: the simulation campaign, one seed again, the planted bugs, and the papers'
//! experiments.

mod detectors;
mod fide;
mod papers;
mod reproductions;

use crate::values::span;
use clap::Subcommand;
use obol_campaign::{DriftSweepStep, Options, Report, Script, Shard, Trial};
use obol_config::file;
use obol_fabric::Name;
use obol_membership::ActiveMutant;
use obol_observe::calendar::age_of_seconds;
use obol_term::output::{self, Failure};
use std::io::IsTerminal;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Run whole clusters in virtual time under faults and check them against the invariants
#[derive(Debug, Subcommand)]
pub(crate) enum Sim {
    /// Run many seeds; exit code 1 if an invariant is violated
    Campaign {
        /// How many seeds
        #[arg(long = "count", alias = "seeds", value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
        seeds: u64,
        /// The first seed
        #[arg(long, value_name = "SEED", default_value_t = 1)]
        seed: u64,
        /// Directory for the shrunk scenarios of violating seeds
        #[arg(long = "out", alias = "keep", value_name = "DIR", default_value = ".")]
        keep: PathBuf,
        /// Run one of N parts of the seeds, as a task of a batch engine; merge the JSON of all parts
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        shards: Option<u64>,
        /// Which part, from 0 on
        #[arg(long, value_name = "I", requires = "shards")]
        index: Option<u64>,
        /// Take it from JOB_COMPLETION_INDEX (Kubernetes), SLURM_ARRAY_TASK_ID or NOMAD_ALLOC_INDEX
        #[arg(long, requires = "shards", conflicts_with = "index")]
        index_from_env: bool,
        /// Print one JSON object for scripts
        #[arg(long)]
        json: bool,
    },
    /// Make one report from the JSON of all parts of a campaign; exit code 1 if an invariant is
    /// violated
    ///
    /// Parts of different builds are refused, and gaps and overlaps of seeds.
    Merge {
        /// What `obol sim campaign --shards N --json` printed
        #[arg(value_name = "FILE", required = true)]
        reports: Vec<PathBuf>,
        /// Print one JSON object for scripts
        #[arg(long)]
        json: bool,
    },
    /// Run one seed or scenario file again and print what happened
    #[command(
        after_help = "Exit code 0 if no invariant is broken, 1 if one is, 2 if there is nothing to replay.\n\
        \nA scenario file names a seed, which draws the cluster, and lists acts and their times; \
        `obol sim shrink` writes one, and it can be edited:\n\
        \n  obol sim shrink 42 && obol sim replay obol-seed-42.toml"
    )]
    Replay {
        /// A seed, or a scenario file
        #[arg(value_name = "SEED|FILE")]
        what: String,
        /// Plant this bug (in a build with the feature `mutants`) instead of what the file names
        #[arg(long, value_name = "NAME")]
        mutant: Option<String>,
    },
    /// Minimize a seed or scenario that violates an invariant, and save it
    Shrink {
        /// A seed, or a scenario file
        #[arg(value_name = "SEED|FILE")]
        what: String,
        /// Plant this bug (in a build with the feature `mutants`)
        #[arg(long, value_name = "NAME")]
        mutant: Option<String>,
        /// Where to save it [default: obol-seed-SEED.toml]
        #[arg(long = "out", alias = "output", short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Runs that it may take
        #[arg(long, value_name = "N", default_value_t = 3000)]
        budget: u32,
    },
    /// Plant each bug and count the seeds until it is caught (in a build with the feature
    /// `mutants`)
    Mutants {
        /// Seeds within which each bug must be caught
        #[arg(long, value_name = "N", default_value_t = 2000)]
        budget: u64,
        /// Print one JSON object for scripts
        #[arg(long)]
        json: bool,
    },
    /// uKharon's Table 2 on a simulated testbed: failover times beside the published ones
    ///
    /// Runs this program's machines, leases and all, on the testbed's parameters. Each row is a
    /// failure of an app (A) alone or with the leader (C), a lease cache (L), or both. Columns: as
    /// in the paper (leases are waited for); with fencing; with fencing and kernels that report a
    /// kill at its signal. Times are medians in microseconds from the death of the app to the first
    /// survivor that is active without it, the 99th percentile in brackets (from 299 repetitions
    /// on). ALL OUT is until no failed process is left in the view.
    Table2 {
        /// Failovers behind each figure
        #[arg(long = "count", alias = "repetitions", value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        repetitions: u32,
        #[command(flatten)]
        options: papers::PapersOptions,
    },
    /// uKharon's Figure 3 on a simulated testbed: how long leases must be to be renewed in time
    ///
    /// 32 members renew at the coordinators while other traffic loads the network and other
    /// programs load the memory. Each figure is the percentage of renewals that would have been
    /// timely with leases of that length.
    Leases {
        /// Simulated time of each load
        #[arg(long = "for", value_name = "TIME", default_value = "20ms", value_parser = simulated_ms)]
        time: u32,
        /// The same in milliseconds: its former spelling
        #[arg(long, value_name = "MS", hide = true, conflicts_with = "time", value_parser = clap::value_parser!(u32).range(i64::from(*SIMULATED_MS.start())..=i64::from(*SIMULATED_MS.end())))]
        span_ms: Option<u32>,
        #[command(flatten)]
        options: papers::PapersOptions,
    },
    /// How failovers and renewals scale on a simulated testbed, from 8 to 4096 members
    ///
    /// Each member has a lease page of its own. Methods: leases waited for or fenced, renewed at
    /// the acceptors or at lease caches, fences raised by the leader or fanned out through the
    /// caches. Up to 32 members leases are as published; beyond that they grow with the members, so
    /// that renewals cost a coordinator the same at any size.
    ///
    /// Clusters are simulated on all cores, but no more than 4096 members at once, which take 1.5
    /// GB of memory.
    Scale {
        /// The largest size; sizes double from 8 on
        #[arg(long = "up-to", value_name = "MEMBERS", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(8..=4096))]
        largest: u32,
        /// Failovers behind each figure
        #[arg(long = "count", alias = "repetitions", value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        repetitions: u32,
        #[command(flatten)]
        options: papers::PapersOptions,
    },
    /// Failure detectors on the same delays: detection times against false suspicions
    ///
    /// uKharon's three levels, pulses over one path and two, phi-accrual, SWIM and Sentinel's rule, each
    /// with several timeouts or thresholds, on the delays of a recording or of a modelled network, whose
    /// numbers are assumptions. Detection times are from a host's silence to its suspicion (of a process's
    /// death for the notice, which a silent host does not send). All send once in a period; a suspicion is
    /// counted once, however long it lasts. Delays of two paths, and those of replies, are taken from
    /// different parts of the run, as if they were independent: where hosts pause, not the network, two
    /// paths are not better than one.
    ///
    /// Where none was seen, FALSE AN HOUR is what is not exceeded with 95 % confidence.
    Detectors(detectors::Detectors),
    /// FiDe's tables, figures and algorithms: what follows from its inputs, and what breaks
    ///
    /// A reproduction of FiDe (USENIX ATC 2025); this program's own protocol relies on none of it. The
    /// published figures stand beside what its inputs predict, with the reason where they differ.
    /// `--counterexamples` explores every state of its consensus algorithms HSUC and HUC among two or
    /// three processes, of which one may crash: within their assumptions, and with one given up.
    Fide(fide::Fide),
    /// Mu's failover and replication: the shipped replicas of the preset mu on a simulated testbed
    ///
    /// A reproduction of Mu (OSDI 2020). Its leader is delayed, as in its test, or killed; what comes out
    /// stands beside the published figures, with the reason where they differ. Inputs are listed first:
    /// the durations of permission changes are Mu's own, the interval at which it looks at counters is
    /// derived from its detection time.
    Mu(reproductions::Mu),
    /// DARE's bounds, reliability, throughput and failover: what follows from its inputs
    ///
    /// A reproduction of DARE (HPDC 2015) by its formulas, and by the rules of its detector and election.
    /// The published figures stand beside it, with the reason where they differ. No replica runs.
    Dare(reproductions::Dare),
    /// Run table2, leases and scale, and draw them into one HTML page
    ///
    /// The page needs no other file. In a directory it is called report.html, and each plot lies
    /// beside it as SVG. It takes 1.5 GB of memory: see scale.
    Report {
        /// Where to write it: a file, or a directory that exists
        #[arg(value_name = "FILE|DIR")]
        to: PathBuf,
        /// The largest size for `scale`
        #[arg(long = "up-to", value_name = "MEMBERS", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(8..=4096))]
        largest: u32,
        /// Testbed: infiniband, or a file
        #[arg(long, value_name = "NAME|FILE", default_value = "infiniband")]
        model: String,
        /// The first seed; the same seed gives the same figures
        #[arg(long, value_name = "SEED", default_value_t = 1)]
        seed: u64,
    },
}

const NANOS_PER_MS: u64 = 1_000_000;
/// Milliseconds of simulated time that a load may take.
const SIMULATED_MS: RangeInclusive<u32> = 1..=60_000;

/// A simulated time, in milliseconds.
fn simulated_ms(text: &str) -> Result<u32, String> {
    let time = span(text)?;
    let ms = u32::try_from(time.0 / NANOS_PER_MS).ok().filter(|ms| SIMULATED_MS.contains(ms));
    ms.filter(|_| time.0.is_multiple_of(NANOS_PER_MS))
        .ok_or_else(|| "whole milliseconds, from 1ms to 60s".to_owned())
}

/// Violating seeds of a campaign that are shrunk; the others are named.
const SHRUNK_MAX: usize = 3;
/// Runs that shrinking one of them may take.
const SHRINK_RUNS: u32 = 3000;
/// Progress reports per campaign.
const PROGRESS_LINES: u64 = 20;

pub(crate) fn run(_: &Path, _: Name, command: &Sim) -> Result<ExitCode, Failure> {
    match command {
        Sim::Campaign { seeds, seed, keep, shards, index, index_from_env, json } => {
            if seed.checked_add(seeds - 1).is_none() {
                return Err(Failure::refused(format_args!(
                    "--count {seeds} from --seed {seed} on go beyond the largest seed, {}",
                    u64::MAX
                )));
            }
            let whole = Shard { first: *seed, seeds: *seeds };
            let shard = match (shards, index) {
                (None, _) => Ok(whole),
                (Some(shards), Some(index)) => Shard::new(whole, *index, *shards),
                (Some(shards), None) if *index_from_env => {
                    obol_campaign::index_from(|name| std::env::var(name).ok())
                        .and_then(|index| Shard::new(whole, index, *shards))
                }
                (Some(_), None) => {
                    return Err(Failure::refused("--shards needs --index, or --index-from-env"));
                }
            };
            run_campaign(shard.map_err(Failure::refused)?, whole, keep, *json)
        }
        Sim::Merge { reports, json } => merge(reports, *json),
        Sim::Replay { what, mutant } => replay(what, mutant.as_deref()),
        Sim::Shrink { what, mutant, output, budget } => {
            shrink(what, mutant.as_deref(), output.as_deref(), *budget)
        }
        Sim::Mutants { budget, json } => mutants(*budget, *json),
        Sim::Table2 { repetitions, options } => papers::table2(*repetitions, options),
        Sim::Leases { time, span_ms, options } => papers::leases(span_ms.unwrap_or(*time), options),
        Sim::Scale { largest, repetitions, options } => papers::scale(*largest, *repetitions, options),
        Sim::Detectors(options) => detectors::run(options),
        Sim::Fide(options) => fide::run(options),
        Sim::Mu(options) => reproductions::mu(options),
        Sim::Dare(options) => reproductions::dare(options),
        Sim::Report { to, largest, model, seed } => papers::report(to, *largest, model, *seed),
    }
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The commit from which this binary was built, or else the version.
fn commit() -> String {
    if let Some(commit) = option_env!("OBOL_COMMIT") {
        return format!("commit {commit}");
    }
    let asked = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    let answer = asked.ok().filter(|o| o.status.success()).and_then(|o| String::from_utf8(o.stdout).ok());
    answer.map_or_else(
        || format!("version {}", env!("CARGO_PKG_VERSION")),
        |text| format!("commit {}", text.trim()),
    )
}

fn run_campaign(
    Shard { first, seeds }: Shard,
    of: Shard,
    keep: &Path,
    as_json: bool,
) -> Result<ExitCode, Failure> {
    // Now, not after hours.
    if !keep.is_dir() {
        return Err(Failure::refused(format_args!("--out {}: there is no such directory", keep.display())));
    }
    let show = std::io::stderr().is_terminal();
    let every = (seeds / PROGRESS_LINES).max(1);
    let progress = move |done: u64| {
        if show && done.is_multiple_of(every) {
            // Progress that cannot be shown does not stop it.
            let _ = output::remark(format_args!("{done} of {seeds} seeds"));
        }
    };
    let build = obol_campaign::build().map_err(Failure::failed_at(Path::new("/proc/self/exe")))?;
    let options = Options { build, seeds, first, of, threads: threads(), plant: ActiveMutant::NONE };
    let report = obol_campaign::campaign(&options, &progress);
    let said = output::json_or(as_json, &report, print);
    for (number, v) in report.failures.iter().enumerate() {
        let commit = commit();
        output::remark(format_args!(
            "seed {} at {commit}: row {} at {} ns: {}",
            v.seed, v.row, v.time, v.what
        ))?;
        let run = obol_campaign::run(v.seed, ActiveMutant::NONE, false);
        match run.script.filter(|_| run.trial != Trial::Canary && number < SHRUNK_MAX) {
            Some(script) => {
                let file = keep.join(format!("obol-seed-{}.toml", v.seed));
                if let Err(failure) = save_shrunk(&script, ActiveMutant::NONE, &file, SHRINK_RUNS) {
                    // The seed says the same, and others are still to be named.
                    output::complain(&failure)?;
                    output::remark(format_args!("  replay: obol sim replay {}", v.seed))?;
                }
            }
            None => output::remark(format_args!("  replay: obol sim replay {}", v.seed))?,
        }
    }
    let code = if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    Ok(output::verdict(code, said))
}

/// Bytes of a report; one has a few thousand.
const REPORT_BYTES_MAX: u64 = 4 << 20;

fn merge(paths: &[PathBuf], as_json: bool) -> Result<ExitCode, Failure> {
    let mut reports = Vec::new();
    for path in paths {
        let text = file::text(path, REPORT_BYTES_MAX, "report").map_err(Failure::refused_at(path))?;
        reports.push(serde_json::from_str(&text).map_err(|e| {
            Failure::refused(format_args!("{}: not a report of a campaign: {e}", path.display()))
        })?);
    }
    let report = obol_campaign::merge(reports).map_err(Failure::refused)?;
    let said = output::json_or(as_json, &report, print);
    for v in &report.failures {
        output::remark(format_args!("seed {}: row {} at {} ns: {}", v.seed, v.row, v.time, v.what))?;
        output::remark(format_args!("  replay: obol sim replay {}", v.seed))?;
    }
    let code = if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    Ok(output::verdict(code, said))
}

fn print(report: &Report) -> std::io::Result<()> {
    for (name, value) in [
        ("seeds", report.seeds.to_string()),
        ("canaries that failed as they must", report.canaries.to_string()),
        ("simulated failovers", report.failovers.to_string()),
        ("simulated hours", format!("{:.4}", report.simulated_hours)),
        ("clock rates (x bound: overlaps)", sweep(report)),
        ("violations", report.violations.to_string()),
        ("bound on their rate (95 %)", format!("{:.6}", report.upper_bound_95)),
        ("paths never taken", report.marks_missing.join(" ")),
        ("longest recovery, of its bound", format!("{:.1} %", report.recovery_permille_max as f64 / 10.0)),
        ("wall time", age_of_seconds(report.wall_seconds)),
        ("processor time", age_of_seconds(report.cpu_seconds)),
        ("failovers per second of processor", format!("{:.0}", report.failovers_per_second_per_core)),
    ] {
        output::line(format_args!("{name:<36} {value}"))?;
    }
    Ok(())
}

/// How many seeds overlapped at which part of the drift bound.
fn sweep(report: &Report) -> String {
    let step =
        |s: &DriftSweepStep| format!("{}: {}/{}", f64::from(s.permille) / 1000.0, s.overlapped, s.seeds);
    report.clock_sweep.iter().map(step).collect::<Vec<_>>().join("  ")
}

/// Bytes of a run that was written down; those that are drawn have a few hundred lines.
const SCRIPT_BYTES_MAX: u64 = 4 << 20;

/// What to run again.
enum Named {
    Seed(u64),
    File(Box<Script>),
}

fn named(what: &str) -> Result<Named, Failure> {
    if let Ok(seed) = what.parse() {
        return Ok(Named::Seed(seed));
    }
    let text = file::text(Path::new(what), SCRIPT_BYTES_MAX, "run").map_err(|e| {
        Failure::refused(format_args!("`{what}` is not a seed, and not a file that can be read: {e}"))
    })?;
    let script = Script::parse(&text).map_err(|e| Failure::refused(format_args!("{what}: {e}")))?;
    if !script.is_current() {
        output::remark(format_args!(
            "{what} was written for another cluster than seed {} draws in this build: this is another run",
            script.seed
        ))?;
    }
    Ok(Named::File(Box::new(script)))
}

/// A script from a file.
pub(crate) fn script(path: &str) -> Result<Script, Failure> {
    match named(path)? {
        Named::File(script) => Ok(*script),
        Named::Seed(seed) => Err(Failure::refused(format_args!(
            "{seed} is a seed; write its faults to a file by `obol sim shrink {seed}`"
        ))),
    }
}

fn planted(script: Option<&Script>, mutant: Option<&str>) -> Result<ActiveMutant, Failure> {
    let plant = match (mutant, script) {
        (Some(name), _) => obol_campaign::plant(name),
        (None, Some(script)) => script.plant(),
        (None, None) => Ok(ActiveMutant::NONE),
    };
    plant.map_err(|e| Failure::refused(e.to_string()))
}

fn replay(what: &str, mutant: Option<&str>) -> Result<ExitCode, Failure> {
    let run = match named(what)? {
        Named::Seed(seed) => obol_campaign::run(seed, planted(None, mutant)?, true),
        Named::File(script) => obol_campaign::replay(&script, planted(Some(&script), mutant)?, true),
    };
    for line in &run.log {
        output::line(line)?;
    }
    output::line(format_args!(
        "seed {} at {}: {} views, {} failovers, {} ns, trace hash {:016x}",
        run.seed,
        commit(),
        run.views,
        run.failovers,
        run.time,
        run.hash
    ))?;
    Ok(if run.violation.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn shrink(what: &str, mutant: Option<&str>, to: Option<&Path>, budget: u32) -> Result<ExitCode, Failure> {
    let (run, plant, name) = match named(what)? {
        Named::Seed(seed) => {
            let plant = planted(None, mutant)?;
            (obol_campaign::run(seed, plant, false), plant, mutant.map(str::to_owned))
        }
        Named::File(script) => {
            let plant = planted(Some(&script), mutant)?;
            (obol_campaign::replay(&script, plant, false), plant, mutant.map(str::to_owned).or(script.mutant))
        }
    };
    let Some(script) = run.script else {
        return Err(Failure::refused(format_args!("{what} breaks no invariant: there is nothing to shrink")));
    };
    let script = Script { mutant: name, ..*script };
    let file = to.map_or_else(|| PathBuf::from(format!("obol-seed-{}.toml", script.seed)), Path::to_owned);
    save_shrunk(&script, plant, &file, budget)?;
    Ok(ExitCode::SUCCESS)
}

/// Shrinks a script and saves what is left.
fn save_shrunk(script: &Script, plant: ActiveMutant, file: &Path, budget: u32) -> Result<(), Failure> {
    let shrunk = obol_campaign::shrink(script, plant, budget).ok_or_else(|| {
        Failure::failed(format_args!(
            "seed {} does not break the same row when it is played again",
            script.seed
        ))
    })?;
    let text = shrunk.script.to_string();
    output::file(file, &text)?;
    let (before, after, runs) = (shrunk.acts_before, shrunk.script.acts.len(), shrunk.runs);
    output::remark(format_args!("  {before} acts shrunk to {after} in {runs} runs:"))?;
    for line in text.lines() {
        output::remark(format_args!("    {line}"))?;
    }
    output::remark(format_args!("  replay: obol sim replay {}", file.display()))?;
    Ok(())
}

#[cfg(not(feature = "mutants"))]
fn mutants(_: u64, _: bool) -> Result<ExitCode, Failure> {
    Err(Failure::refused(
        "this build has no planted bugs in it; build one that has: cargo build --release -p obol --features mutants",
    ))
}

#[cfg(feature = "mutants")]
fn mutants(budget: u64, as_json: bool) -> Result<ExitCode, Failure> {
    use obol_membership::Mutant;
    let show = std::io::stderr().is_terminal();
    let mut results = obol_campaign::MutationResults { mutants: Vec::new() };
    for mutant in Mutant::ALL {
        let found = obol_campaign::hunt(
            mutant.name(),
            mutant.row(),
            ActiveMutant::new(*mutant),
            1,
            budget,
            threads(),
        );
        let seeds = found.seeds_to_detection.map_or("SURVIVED".to_owned(), |n| n.to_string());
        let others: Vec<String> =
            found.other_rows.iter().map(|(row, seeds)| format!("row {row} by {seeds}")).collect();
        let others =
            if others.is_empty() { String::new() } else { format!("  not counted: {}", others.join(", ")) };
        let line = format!("{:<24} row {:>2}  seeds {seeds:>8}{others}", found.name, found.row);
        if !as_json {
            output::line(line)?;
        } else if show {
            output::remark(line)?;
        }
        results.mutants.push(found);
    }
    if as_json {
        output::json(&results)?;
    }
    Ok(if results.mutants.iter().all(|m| m.caught) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

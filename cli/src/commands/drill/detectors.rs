//! `obol drill detectors`: failure detectors beside each other on a cluster.

use super::accountable;
use super::running::{go, keep_in, simulate};
use crate::logging::LogOptions;
use clap::{Args, ValueEnum};
use obol_chaos::drillfile::Drill;
use obol_chaos::drills::engine::attended::How;
use obol_chaos::drills::studies::detectors::{self, Detector, Drills, HEADS, Report};
use obol_chaos::drills::{Accountable, Journal};
use obol_fabric::Name;
use obol_profiles::Profile;
use obol_term::output::{self, Failure};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Compare failure detectors on the same faults of one cluster
#[derive(Debug, Args)]
#[command(
    after_help = "On the cluster an app is killed, an app is stopped, and a node or host is cut off, each in every repetition, by drills \
    with all their guards. What the cluster runs is measured: notices of the kernel, heartbeats, and pulses between hosts or, \
    without pulses, operations that are not answered. Meanwhile each pulse that arrives is recorded, and what the cluster does \
    not run is computed from the same arrivals and the same faults: phi-accrual, SWIM, the rule of Redis Sentinel. They get \
    the timeout of the pulse; phi-accrual has the threshold 8.\n\
    \nCutting a host off needs CAP_NET_ADMIN, and takes some seconds each time. A detector that this cluster lacks is left out \
    with the reason, or refused if --detector names it. `obol sim detectors` compares more settings on a recording.\n\
    \nExit codes: 0 each fault was noticed by its detector and nothing else was, 1 a failover failed, 2 refused, 3 deviated, \
    4 aborted, 5 interrupted, 6 void.\n\
    \nTry: obol up --hosts 3 --profile FILE, with a [pulse] as docs/network.md has it; then obol drill detectors --out detectors"
)]
pub(crate) struct DrillDetectors {
    /// Only these detectors; all that the cluster can run if none is named
    #[arg(long = "detector", value_name = "NAME", value_enum)]
    detectors: Vec<Which>,
    /// Repetitions of each fault; a p99 needs 299
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=30_000))]
    count: u32,
    /// Compare them in the simulator instead: no process is touched, and the same figures come again
    #[arg(long)]
    sim: bool,
    /// With --sim: the profile of the cluster, a name or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "laptop", requires = "sim")]
    profile: String,
    /// Directory for the report and the journals of the drills, which must not exist yet
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON object for scripts
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    log: LogOptions,
}

/// A detector, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Which {
    /// The kernel reports the end of a process
    Notice,
    /// A counter in memory stands still
    Heartbeat,
    /// An operation is not answered
    Operation,
    /// Frames of a host, once in a period
    Pulse,
    /// Phi-accrual, from recorded pulses
    Phi,
    /// SWIM, from recorded pulses
    Swim,
    /// The rule of Redis Sentinel, from recorded pulses
    Sentinel,
}

impl Which {
    const fn detector(self) -> Detector {
        match self {
            Self::Notice => Detector::Notice,
            Self::Heartbeat => Detector::Heartbeat,
            Self::Operation => Detector::Operation,
            Self::Pulse => Detector::Pulse,
            Self::Phi => Detector::Phi,
            Self::Swim => Detector::Swim,
            Self::Sentinel => Detector::Sentinel,
        }
    }
}

pub(super) fn run(root: &Path, cluster: Name, options: &DrillDetectors) -> Result<ExitCode, Failure> {
    let wanted: Vec<Detector> = options.detectors.iter().map(|which| which.detector()).collect();
    let mut drills = Run { root, cluster, options };
    let report = if options.sim {
        let profile = Profile::load(&options.profile).map_err(Failure::refused)?;
        detectors::simulated(&profile, &wanted, options.count, &mut drills)?
    } else {
        detectors::measured(root, cluster, &wanted, options.count, &mut drills)?
    };
    let said = output::json_or(options.json, &report, print);
    if let Some(out) = &options.out {
        output::kept("report", out, report.document().write(out, "detectors", &report));
    }
    Ok(output::verdict(report.verdict.code(), said))
}

/// How the drills of the comparison run.
struct Run<'a> {
    root: &'a Path,
    cluster: Name,
    options: &'a DrillDetectors,
}

impl Drills for Run<'_> {
    fn place(&mut self) -> Result<(), Failure> {
        let out = self.options.out.as_ref();
        out.map_or(Ok(()), |out| std::fs::create_dir(out).map_err(Failure::refused_at(out)))
    }

    fn run(&mut self, drill: &Drill) -> Result<Journal, Failure> {
        if self.options.sim {
            return simulate(drill, &self.options.profile, How::default());
        }
        let accountable = Accountable { log: Some(accountable::log()?), source: None };
        let how = How { accountable, ..How::default() };
        go(self.root, self.cluster, drill, &self.options.log, how)
    }

    fn keep(&mut self, drill: &Drill, journal: &Journal) {
        if let Some(out) = &self.options.out {
            keep_in(&out.join(&drill.id), drill, journal);
        }
    }
}

fn print(report: &Report) -> std::io::Result<()> {
    let rows = report.rows();
    let mut widths = HEADS.map(str::len);
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &[&str]| {
        let cells = cells.iter().zip(widths).enumerate();
        let text: Vec<String> = cells
            .map(
                |(n, (cell, width))| {
                    if n < 4 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
                },
            )
            .collect();
        output::line(text.join("  ").trim_end())
    };
    line(&HEADS.map(str::to_uppercase).iter().map(String::as_str).collect::<Vec<_>>())?;
    for row in &rows {
        line(&row.iter().map(String::as_str).collect::<Vec<_>>())?;
    }
    for text in report.explains() {
        output::line(text)?;
    }
    for text in report.remarks() {
        output::line(format_args!("  ! {text}"))?;
    }
    output::line(format_args!("verdict: {}", report.verdict.name()))
}

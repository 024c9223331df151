//! `obol drill smr`: presets of replicated state machines beside each other under the same faults, or
//! one store whose replicas join, die and leave.

use crate::commands::smr::preset::{PresetName, VictimName, distinct};
use clap::{Args, ValueEnum};
use obol_chaos::drillfile::StoreDrill;
use obol_chaos::drills::studies::engines::{Fault, HEADS, Report, TEXT_COLUMNS};
use obol_chaos::drills::studies::timeline::{self, Timeline};
use obol_config::duration;
use obol_profiles::Profile;
use obol_smr::VOTERS_MAX;
use obol_supervise::signals;
use obol_term::output::{self, Failure};
use obol_workload::drill::{presets, script};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Compare presets of replicated state machines under the same faults
#[derive(Debug, Args)]
#[command(
    after_help = "For each preset and fault, a cluster and a replicated store of its own are started on this host, and ended \
    with this command, however it ends. Clients write and read throughout. In each repetition a replica is hit; when the \
    members have excluded it and all clients have answers again, the fault ends, and the next repetition begins when all \
    replicas have everything again.\n\
    \nkill: it starts again with empty memory. freeze: it is stopped, and continues with its memory. cut: it reaches no other \
    process, and none reaches it.\n\
    \nclient is the longest time that a client was without an answer around the fault, members the time from the fault until \
    the last survivor's view without the victim was active. lost counts answered writes that were not there at the end, \
    stale the reads that did not have what had been answered before: both must be 0.\n\
    \nExit codes: 0 passed, 1 an answer was lost or stale, or a store did not recover, 2 refused, 3 a client waited longer \
    than --max-wait, 5 interrupted, 6 void.\n\
    \nWith --script, before and after are answered writes a second around a step, gap the longest time without any answer.\n\
    \nTry: obol drill smr --preset view,mu,mu+views\n  \
    obol drill smr --script dare-figure9a --out figure9a\n  \
    obol drill smr --victim follower --faults kill,freeze,cut --out stores"
)]
pub(crate) struct DrillSmr {
    /// The presets, separated by commas; all if none is named
    #[arg(long = "preset", alias = "engines", value_name = "PRESETS", value_enum, value_delimiter = ',')]
    engines: Vec<PresetName>,
    /// Which replica is hit
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = VictimName::Leader)]
    victim: VictimName,
    /// What happens to it; several are separated by commas
    #[arg(long, value_name = "FAULTS", value_enum, value_delimiter = ',', default_value = "kill")]
    faults: Vec<What>,
    /// Repetitions of each fault with each preset; a p50 needs 5, a p99 299
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    count: u32,
    /// Replicas of each store, all of which vote
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(3..=VOTERS_MAX as i64))]
    replicas: u32,
    /// Clients of each store, each a thread and a member
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=8))]
    clients: u32,
    /// The profile of the clusters, a name or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "laptop")]
    profile: String,
    /// The longest that a client may wait for an answer around a fault
    #[arg(long = "max-wait", alias = "at-most", value_name = "TIME", value_parser = duration::argument)]
    at_most: Option<Duration>,
    /// Play a drill of a store instead: what its file says happens to the replicas of one store, one thing
    /// after the other, while clients write. dare-figure9a, or a file if it has a '/' or ends in .toml
    #[arg(long, value_name = "FILE|NAME", conflicts_with_all = ["engines", "victim", "faults", "count", "replicas", "at_most"])]
    script: Option<String>,
    /// Directory for the report, which must not exist yet
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON object for scripts
    #[arg(long)]
    json: bool,
}

/// What happens to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// It is killed
    Kill,
    /// It is stopped for a while
    Freeze,
    /// It is cut off for a while
    Cut,
}

impl What {
    const fn fault(self) -> Fault {
        match self {
            Self::Kill => Fault::Kill,
            Self::Freeze => Fault::Freeze,
            Self::Cut => Fault::Cut,
        }
    }
}

impl DrillSmr {
    fn compared<'a>(&self, profile: &'a Profile) -> presets::Options<'a> {
        let engines = match self.engines.as_slice() {
            [] => PresetName::value_variants(),
            named => named,
        };
        presets::Options {
            engines: distinct(engines).into_iter().map(PresetName::preset).collect(),
            faults: distinct(&self.faults).into_iter().map(What::fault).collect(),
            victim: self.victim.victim(),
            count: self.count,
            replicas: self.replicas,
            clients: self.clients,
            profile,
            at_most: self.at_most,
        }
    }
}

pub(super) fn run(root: &Path, options: &DrillSmr) -> Result<ExitCode, Failure> {
    if let Some(script) = &options.script {
        return play(root, script, options);
    }
    let profile = Profile::load(&options.profile).map_err(Failure::refused)?;
    if let Some(out) = &options.out {
        std::fs::create_dir(out).map_err(Failure::refused_at(out))?;
    }
    let stop = signals::ending()?;
    let report = presets::compare(root, &options.compared(&profile), &stop);
    let said = output::json_or(options.json, &report, print);
    if let Some(out) = &options.out {
        output::kept("report", out, report.document().write(out, "smr", &report));
    }
    Ok(output::verdict(report.verdict.code(), said))
}

/// Plays a drill of one store.
fn play(root: &Path, script: &str, options: &DrillSmr) -> Result<ExitCode, Failure> {
    let drill = StoreDrill::load(script).map_err(Failure::refused)?;
    let profile = Profile::load(&options.profile).map_err(Failure::refused)?;
    if let Some(out) = &options.out {
        std::fs::create_dir(out).map_err(Failure::refused_at(out))?;
    }
    let stop = signals::ending()?;
    let timeline = script::run(root, &drill, &profile, options.clients, &stop);
    let said = output::json_or(options.json, &timeline, print_timeline);
    if let Some(out) = &options.out {
        output::kept("report", out, timeline.document().write(out, "smr", &timeline));
    }
    Ok(output::verdict(timeline.verdict.code(), said))
}

/// Prints a table; columns of numbers are aligned at the right.
fn table<const N: usize>(
    heads: &[&str; N],
    rows: &[[String; N]],
    is_text: impl Fn(usize) -> bool,
) -> std::io::Result<()> {
    let heads = heads.map(str::to_uppercase);
    let widths: Vec<usize> = (0..N)
        .map(|n| rows.iter().map(|row| row[n].chars().count()).max().unwrap_or(0).max(heads[n].len()))
        .collect();
    for row in std::iter::once(&heads).chain(rows) {
        let cells = row.iter().zip(&widths).enumerate().map(|(n, (cell, &width))| {
            if is_text(n) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        output::line(cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

fn print(report: &Report) -> std::io::Result<()> {
    table(&HEADS, &report.rows(), |column| column < TEXT_COLUMNS)?;
    output::line(report.explains())?;
    for remark in report.remarks() {
        output::line(format_args!("  ! {remark}"))?;
    }
    output::line(format_args!("verdict: {}", report.verdict.name()))
}

fn print_timeline(of: &Timeline) -> std::io::Result<()> {
    table(&timeline::HEADS, &of.rows(), |column| column == timeline::TEXT_COLUMN)?;
    output::line(of.explains())?;
    for remark in of.remarks() {
        output::line(format_args!("  ! {remark}"))?;
    }
    output::line(format_args!("verdict: {}", of.verdict.name()))
}

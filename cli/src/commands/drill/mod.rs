//! `obol drill`: run a drill and print its report.

mod accountable;
mod detectors;
mod files;
mod format;
mod options;
mod running;
mod smr;
mod table2;
pub(crate) mod text;

use crate::commands::kv;
use crate::logging::LogOptions;
use clap::{Args, ValueEnum};
use obol_chaos::drills::engine::attended::How;
use obol_chaos::drills::studies::quick::Report;
use obol_chaos::drills::{Accountable, Victims};
use obol_config::duration;
use obol_fabric::{Name, Nanos};
use obol_node::Site;
use obol_term::output::{self, Failure};
use obol_workload::kv::failover;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Inject faults into a cluster and check the outcome against a budget
#[derive(Debug, Args)]
#[command(
    after_help = "Kills only what something restarts: processes of `obol up`, and of hosts whose supervisor the file of hosts \
    names.\n\
    A drill is void, not failed, if its measurement is unreliable.\n\
    \nExit codes: 0 passed, 1 failed, 2 refused, 3 deviated, 4 aborted, 5 interrupted, 6 void.\n\
    \n`obol drill KIND` kills again and again, on any cluster of processes that something restarts, and judges nothing but \
    false suspicions. `obol drill run NAME` is a drill of a file, with all that a file says: environment, guards, other \
    faults, bounds, reports. Of the same kill both print the same figures, and --count and --gap mean the same; a KIND \
    is repeated 20 times unless said otherwise, a file as often as it says. --json is one flat object of a KIND, and the \
    journal of a file.\n\
    \nQuick: obol drill app --count 300\n\
    From a file: obol drill list; obol drill run app --count 300\n\
    Your own: obol drill show freeze > mine.toml; obol drill plan ./mine.toml; obol drill run ./mine.toml"
)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Drill {
    #[command(subcommand)]
    pub(crate) command: Option<files::DrillCommand>,
    /// What to kill: an app, the leading coordinator, a lease cache, or several at once
    #[arg(required = true)]
    pub(crate) kind: Option<DrillKind>,
    /// Repetitions; a p99 needs 299
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) count: u32,
    /// Pause between repetitions
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = duration::argument)]
    pub(crate) gap: Duration,
    /// What to measure: the failover of the members, or also the outage for a client of a
    /// replicated cache, whose primary is then the app that is killed
    #[arg(long, value_enum, default_value_t = Observe::Members)]
    pub(crate) observe: Observe,
    #[command(flatten)]
    pub(crate) sharding: kv::Sharding,
    /// Print one JSON object for scripts
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) log: LogOptions,
}

/// Which processes a drill kills on one cue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DrillKind {
    App,
    Leader,
    Cache,
    #[value(name = "app+coordinator", alias = "app+leader")]
    AppLeader,
    #[value(name = "app+cache")]
    AppCache,
    #[value(name = "app+coordinator+cache", alias = "app+leader+cache")]
    AppLeaderCache,
}

/// What a drill measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Observe {
    /// Until every survivor's view is active
    Members,
    /// From a client's last success to its first at the new primary
    Client,
}

pub(crate) fn run(root: &Path, cluster: Name, options: &Drill) -> Result<ExitCode, Failure> {
    if let Some(command) = &options.command {
        return files::run(root, cluster, command);
    }
    let Some(kind) = options.kind else {
        return Err(Failure::Refused("say who dies, or which drill; see `obol drill --help`".to_owned()));
    };
    let shards = options.sharding.shards;
    if options.observe != Observe::Client && shards > 1 {
        return Err(Failure::Refused(
            "--shards is for the cache of `obol drill app --observe client`".to_owned(),
        ));
    }
    if options.observe == Observe::Client {
        if kind != DrillKind::App {
            return Err(Failure::Refused("--observe client is for `obol drill app`".to_owned()));
        }
        let report = failover::run(root, cluster, options.count, options.gap, shards)?;
        output::json_or(options.json, &report, print_client)?;
        return Ok(ExitCode::SUCCESS);
    }
    let victims = match kind {
        DrillKind::App => Victims::App,
        DrillKind::Leader => Victims::Leader,
        DrillKind::Cache => Victims::Cache,
        DrillKind::AppLeader => Victims::AppAndLeader,
        DrillKind::AppCache => Victims::AppAndCache,
        DrillKind::AppLeaderCache => Victims::AppLeaderAndCache,
    };
    let site = Site::open(root, cluster).map_err(Failure::refused)?;
    let gap = Nanos::from_std(options.gap);
    let drill = victims.drill(site.deployment.environment, options.count, gap);
    let accountable = Accountable { log: Some(accountable::log()?), source: None };
    let how = How { accountable, ..How::default() };
    let journal = running::go(root, cluster, &drill, &options.log, how)?;
    let report = Report::of(&journal);
    let said = output::json_or(options.json, &report, |_| text::print(&journal));
    Ok(output::verdict(report.code(), said))
}

/// Prints the outage of a client beside the failovers of the members.
fn print_client(report: &failover::Report) -> std::io::Result<()> {
    text::head("")?;
    text::row("failover", &report.failover_us)?;
    text::row("client", &report.client_us)?;
    let p99 = report.ratio_p99.map_or(String::new(), |ratio| format!(", p99 {ratio:.2}"));
    output::line(match report.ratio_p50 {
        Some(p50) => {
            format!(
                "a client waits {p50:.2} times as long (p50{p99}) as the membership takes for the same kills"
            )
        }
        None => "no ratio: a p50 needs more samples".to_owned(),
    })
}

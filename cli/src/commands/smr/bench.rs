//! `obol smr bench`: what is measured.

use super::preset::{PresetName, distinct};
use clap::{Args, Subcommand};
use obol_bench::smr;
use obol_config::duration;
use obol_node::Site;
use obol_smr::VOTERS_MAX;
use obol_term::output::Failure;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// What is measured.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// What to measure instead
    #[command(subcommand)]
    what: Option<What>,
    /// The presets, separated by commas: their figures are put beside each other, and targets
    /// are those of view
    #[arg(
        long = "preset",
        alias = "engines",
        value_name = "PRESETS",
        value_enum,
        value_delimiter = ',',
        default_value = "view"
    )]
    engines: Vec<PresetName>,
    /// Duration of each measurement
    #[arg(long = "for", value_name = "TIME", value_parser = duration::argument, default_value = "500ms")]
    time: Duration,
    /// Turns of each
    #[arg(long = "count", alias = "turns", value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    turns: u32,
    /// Leaders that are killed, one after the other
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(5..=1000))]
    failovers: u32,
    #[command(flatten)]
    common: Common,
}

/// What all measurements have in common.
#[derive(Debug, Args)]
struct Common {
    /// Replicas, all of which vote; the oldest leads
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=VOTERS_MAX as i64))]
    replicas: u32,
    /// Poll interval of the replicas, and of the client that is measured without redis-benchmark; 0 keeps
    /// a core busy for each
    #[arg(long, value_name = "TIME", default_value = "20us")]
    poll_every: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Measure the replicas with redis-benchmark, beside one real Redis with the same settings
    #[command(
        after_help = "Needs redis-server and redis-benchmark (Debian packages redis-server and redis-tools), and a cluster: \
        obol up --apps 1 &  obol smr bench resp\n\
        \nRedis runs without persistence. Both are measured in turns; each figure is the median of the turns.\n\
        \nExit codes: 0 all figures meet their targets, 1 one does not, 2 refused."
    )]
    Resp(RespOptions),
}

#[derive(Debug, Args)]
struct RespOptions {
    /// Requests of each measurement
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(100..=100_000_000))]
    requests: u32,
    /// Connections
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    connections: u32,
    /// Requests that a connection sends at once; a measurement for each
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,16", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pipeline: Vec<u32>,
    /// Bytes of each value
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=767))]
    bytes: u32,
    /// Turns of each
    #[arg(long = "count", alias = "turns", value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    turns: u32,
    #[command(flatten)]
    common: Common,
}

impl Common {
    fn plain(&self) -> smr::Common {
        let Self { replicas, poll_every, json } = self;
        smr::Common { replicas: *replicas, poll_every: poll_every.clone(), json: *json }
    }
}

pub(super) fn run(root: &Path, site: &Arc<Site>, options: &Options) -> Result<ExitCode, Failure> {
    if let Some(What::Resp(options)) = &options.what {
        let &RespOptions { requests, connections, ref pipeline, bytes, turns, ref common } = options;
        let (pipeline, common) = (pipeline.clone(), common.plain());
        let options = smr::resp::Options { requests, connections, pipeline, bytes, turns, common };
        return smr::resp::run(root, site, &options);
    }
    let &Options { ref engines, time, turns, failovers, ref common, .. } = options;
    let engines = distinct(engines).into_iter().map(PresetName::preset).collect();
    let options = smr::Options { engines, time, turns, failovers, common: common.plain() };
    smr::run(root, site, &options)
}

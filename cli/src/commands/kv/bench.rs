//! `obol kv bench`: what is measured.

use super::Sharding;
use clap::Args;
use obol_config::duration;
use obol_node::Site;
use obol_term::output::Failure;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// What is measured.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Duration of each server's turn in a round
    #[arg(long = "for", alias = "turn", value_name = "TIME", value_parser = duration::argument, default_value = "300ms")]
    turn: Duration,
    /// Rounds; figures are the medians of all
    #[arg(long = "count", alias = "rounds", value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Backups of the cache's primary
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=2))]
    backups: u32,
    #[command(flatten)]
    sharding: Sharding,
    /// Print one JSON object per server
    #[arg(long)]
    json: bool,
}

pub(super) fn run(root: &Path, site: &Site, options: &Options) -> Result<ExitCode, Failure> {
    let &Options { turn, rounds, backups, sharding: Sharding { shards }, json } = options;
    obol_bench::kv::run(root, site, &obol_bench::kv::Options { turn, rounds, backups, shards, json })
}

//! `obol kv check`: what is checked, and what came out of it.

use super::Sharding;
use clap::Args;
use obol_config::duration;
use obol_node::Site;
use obol_observe::stats::shown;
use obol_supervise::signals;
use obol_term::output::{self, Failure};
use obol_workload::kv::check::{self, Checked, Summary};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// What is checked.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Duration of the check
    #[arg(long = "for", value_name = "TIME", value_parser = duration::argument, default_value = "10s")]
    time: Duration,
    /// Servers; killed ones are restarted
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=8))]
    servers: u32,
    #[command(flatten)]
    sharding: Sharding,
    /// Clients, each a thread and a member
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=8))]
    clients: u32,
    /// Interval of kills of the primary, when its backup has everything
    #[arg(long, value_name = "TIME", value_parser = duration::argument)]
    kill_every: Option<Duration>,
    /// Approximate interval of freezes of a server
    #[arg(long, value_name = "TIME", value_parser = duration::argument)]
    freeze_every: Option<Duration>,
    /// Longest duration of a freeze
    #[arg(long, value_name = "TIME", value_parser = duration::argument, default_value = "1200ms", requires = "freeze_every")]
    freeze_max: Duration,
    /// Poll interval of servers and clients
    #[arg(long, value_name = "TIME", value_parser = duration::argument, default_value = "20us")]
    poll_every: Duration,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(root: &Path, site: &Arc<Site>, options: &Options) -> Result<ExitCode, Failure> {
    let Checked { summary, wrong, verdict } = check::run(
        root,
        site,
        &check::Options {
            time: options.time,
            servers: options.servers,
            shards: options.sharding.shards,
            clients: options.clients,
            kill_every: options.kill_every,
            freeze_every: options.freeze_every,
            freeze_max: options.freeze_max,
            poll_every: options.poll_every,
        },
        &*signals::ending()?,
    )?;
    report(&summary, &wrong, options.json)?;
    verdict.map(|()| ExitCode::SUCCESS)
}

fn report(summary: &Summary, wrong_examples: &[String], json: bool) -> Result<(), Failure> {
    if json {
        output::json(summary)?;
    } else {
        let Summary { gets, puts, kills, freezes, failovers, wrong, .. } = summary;
        output::line(format_args!("{gets} GETs, {puts} PUTs, {wrong} wrong answers"))?;
        output::line(format_args!(
            "GET p50 {}, p99 {}; PUT p50 {}, p99 {}",
            shown(summary.get_p50_us),
            shown(summary.get_p99_us),
            shown(summary.put_p50_us),
            shown(summary.put_p99_us)
        ))?;
        let failover = |us: Option<f64>| us.map_or("--".to_owned(), shown);
        output::line(format_args!(
            "{kills} kills, {freezes} freezes; {failovers} failovers as clients saw them, p50 {}, longest {}",
            failover(summary.failover_p50_us),
            failover(summary.failover_max_us)
        ))?;
        output::line(format_args!("longest wait for an answer {}", shown(summary.longest_wait_us)))?;
    }
    for wrong in wrong_examples {
        output::remark(format_args!("obol: {wrong}"))?;
    }
    Ok(())
}

//! `obol smr bench`: what copies cost, against the same server without them, in turns.

mod failover;
mod load;
mod memory;
mod resp;

use super::check::Replicas;
use crate::commands::bench::{Figure, code, table};
use clap::{Args, Subcommand};
use failover::Outages;
use load::{KEYS, Kind, Measured, RING};
use obol_chaos::drills::Host;
use obol_console::options::duration;
use obol_console::output::{self, Failure};
use obol_fabric::Nanos;
use obol_node::Site;
use obol_smr::{PAYLOAD_BYTES_MAX, VOTERS_MAX};
use serde::Serialize;
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
    /// Duration of each measurement
    #[arg(long = "for", value_name = "TIME", value_parser = duration, default_value = "500ms")]
    time: Duration,
    /// Turns of each
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
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
    Resp(resp::Options),
}

#[derive(Serialize)]
struct Report<'a> {
    bench: &'static str,
    replicas: u32,
    poll_every: &'a str,
    turns: u32,
    figures: Vec<Figure>,
    host: Host,
    profile: String,
}

/// Prints a report, and returns the exit code that it means.
fn report(report: &Report<'_>, json: bool) -> Result<ExitCode, Failure> {
    output::json_or(json, report, |report| {
        table(&report.figures)?;
        output::line(format_args!(
            "{} replicas, poll interval {}, {} turns, profile {}, {} cores, kernel {}",
            report.replicas,
            report.poll_every,
            report.turns,
            report.profile,
            report.host.cores,
            report.host.kernel
        ))
    })?;
    Ok(code(&report.figures))
}

/// The middle one.
fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Some of each kind.
type Turn = Vec<Measured>;

/// What all turns yielded for a kind.
fn of(turns: &[Turn], kind: Kind, figure: impl Fn(&Measured) -> f64) -> f64 {
    median(turns.iter().flatten().filter(|one| one.kind == kind).map(figure).collect())
}

/// The 99.9th percentile of what all turns yielded for a kind, in microseconds.
fn tail(turns: &[Turn], kind: Kind) -> f64 {
    let mut all = turns.iter().flatten().filter(|one| one.kind == kind).map(|one| one.times.clone());
    let merged = all.next().map(|first| {
        all.fold(first, |mut sum, one| {
            // All have the same bounds, so none is refused.
            let _ = sum.add(one);
            sum
        })
    });
    merged.map_or(f64::NAN, |all| Nanos(all.value_at_quantile(0.999)).as_micros_f64())
}

/// Figures of replicas only.
fn own_figures(replicas: u32, turns: &[Turn], copied: f64, outages: &Outages) -> [Figure; 3] {
    let tails = (tail(turns, Kind::Put), tail(turns, Kind::Bursts));
    let bytes = f64::from(replicas) * PAYLOAD_BYTES_MAX as f64;
    let replicated = of(turns, Kind::Bytes, |one| one.per_s) * bytes;
    let name = format!("bytes to all replicas, 7 x {PAYLOAD_BYTES_MAX} at once");
    [
        Figure::against("PUT, p99.9, ring laps / never half full", "us", tails.0, tails.1, 1.2),
        Figure::at_least_times(name, "MB/s", replicated / 1e6, copied / 1e6, 0.5),
        Figure::against("client's failover / members', p50", "us", outages.client, outages.members, 1.1),
    ]
}

fn figures(replicated: &[Turn], alone: &[Turn]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (kind, name, must) in
        [(Kind::Put, "PUT, p50", 1.35), (Kind::Get, "GET, p50", 1.05), (Kind::Order, "order, p50", 1.35)]
    {
        let p50 = |turns| of(turns, kind, Measured::p50_us);
        figures.push(Figure::against(name, "us", p50(replicated), p50(alone), must));
    }
    for (kind, name, must) in
        [(Kind::Puts, "PUTs, pipelined", 1.0 / 1.35), (Kind::Gets, "GETs, pipelined", 1.0 / 1.05)]
    {
        let rate = |turns| of(turns, kind, |one| one.per_s);
        figures.push(Figure::at_least_times(name, "/s", rate(replicated), rate(alone), must));
    }
    figures
}

pub(super) fn run(root: &Path, site: &Arc<Site>, options: &Options) -> Result<ExitCode, Failure> {
    if let Some(What::Resp(options)) = &options.what {
        return resp::run(root, site, options);
    }
    let Common { replicas, poll_every, json } = &options.common;
    let poll_interval = match poll_every.as_str() {
        "0" => Nanos::ZERO,
        text => Nanos::from_std(duration(text).map_err(Failure::Refused)?),
    };
    let voters = replicas.to_string();
    let sides: [(u32, &[&str]); 2] = [(*replicas, &["--voters", &voters]), (1, &["--unreplicated"])];
    let (mut turns, mut copied): ([Vec<Turn>; 2], Vec<f64>) = Default::default();
    for turn in 0..options.turns {
        for (of_side, (count, first)) in turns.iter_mut().zip(sides) {
            let what = if count == 1 { "one server without copies" } else { "replicas" };
            // Informative only: the benchmark continues without it.
            let _ = output::remark(format_args!("bench: turn {}, {what}", turn + 1));
            let services: [(&[Kind], &[&str]); 2] =
                [(&KEYS, &[]), (&[Kind::Order], &["--service", "orderbook"])];
            for (kinds, service) in services {
                let replicas = Replicas::start(root, site, count, poll_every, first, service)?;
                replicas.redundant()?;
                of_side.push(load::measure(site, poll_interval, options.time, kinds)?);
                if count > 1 && service.is_empty() {
                    of_side.push(load::measure(site, poll_interval, options.time, &RING)?);
                }
            }
        }
        copied.push(memory::copied_per_s());
    }
    // Informative only: the benchmark continues without it.
    let _ = output::remark(format_args!("bench: {} failovers", options.failovers));
    let outages = failover::measure(root, site, *replicas, options.failovers)?;
    let [replicated, alone] = &turns;
    let mut figures = figures(replicated, alone);
    figures.extend(own_figures(*replicas, replicated, median(copied), &outages));
    let profile = site.deployment.profile.name.to_string();
    let (replicas, turns, host) = (*replicas, options.turns, Host::this());
    report(&Report { bench: "smr", replicas, poll_every, turns, figures, host, profile }, *json)
}

//! `obol smr bench`: reads and writes of one client, one at a time and pipelined.

use super::check::{PATIENCE, Replicas};
use super::session::{Session, Work};
use clap::Args;
use hdrhistogram::Histogram;
use obol_console::options::duration;
use obol_console::output::{self, Failure};
use obol_fabric::host::clock;
use obol_fabric::{Drive, Instant, Name, Nanos};
use obol_node::Site;
use obol_smr::{Client, KeyValue, Operation, WINDOW};
use serde::Serialize;
use std::collections::VecDeque;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The value of every write.
const VALUE: &[u8; 32] = b"0123456789abcdef0123456789abcdef";
const KEY: &[u8] = b"key";

/// What is measured.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Duration of each of the three measurements
    #[arg(long = "for", value_name = "TIME", value_parser = duration, default_value = "1s")]
    time: Duration,
    /// Replicas, all of which vote
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=7))]
    replicas: u32,
    /// Poll interval of the replicas and the client; 0 keeps a core busy for each
    #[arg(long, value_name = "TIME", default_value = "20us")]
    poll_every: String,
    /// Print one JSON object per measurement
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Figure {
    what: &'static str,
    operations: u64,
    per_s: f64,
    p50_us: f64,
    p99_us: f64,
}

/// Operations, so many at a time, until a time.
struct Load {
    writes: bool,
    window: usize,
    until: std::time::Instant,
    begun: VecDeque<Instant>,
    times: Histogram<u64>,
}

impl Work for Load {
    fn turn<D: Drive>(&mut self, client: &mut Client, endpoint: &mut D) -> bool {
        while client.take().is_some() {
            // Answers come in order.
            if let Some(begun) = self.begun.pop_front() {
                self.times.saturating_record(clock::now().since(begun).0);
            }
        }
        let is_over = std::time::Instant::now() >= self.until;
        while !is_over && client.is_open() && self.begun.len() < self.window {
            let operation = if self.writes {
                KeyValue::put(KEY, VALUE).map(Operation::Propose)
            } else {
                KeyValue::get(KEY).map(Operation::Query)
            };
            let now = clock::now();
            let Ok(operation) = operation else { return true };
            if client.begin(now, operation, endpoint).is_err() {
                break;
            }
            self.begun.push_back(now);
        }
        is_over && self.begun.is_empty()
    }
}

pub(super) fn run(root: &Path, site: &Arc<Site>, options: &Options) -> Result<ExitCode, Failure> {
    let poll_interval = match options.poll_every.as_str() {
        "0" => Nanos::ZERO,
        text => Nanos::from_std(duration(text).map_err(Failure::Refused)?),
    };
    let replicas = Replicas::start(root, site, options.replicas, &options.poll_every)?;
    replicas.redundant()?;
    let name = Name::new("smrc-bench").map_err(Failure::failed)?;
    let (mut endpoint, mut node) = super::join(site, name, super::client(site, poll_interval)?)?;
    let kinds = [
        ("write", true, 1),
        ("read", false, 1),
        ("pipelined writes", true, WINDOW as usize - 1),
        ("pipelined reads", false, WINDOW as usize - 1),
    ];
    let mut figures = Vec::new();
    let outcome = kinds.into_iter().try_for_each(|(what, writes, window)| {
        let begun = std::time::Instant::now();
        let times = Histogram::new_with_bounds(1, 100_000_000_000, 3).map_err(Failure::failed)?;
        let until = begun + options.time;
        let mut load = Load { writes, window, until, begun: VecDeque::new(), times };
        let stop = AtomicBool::new(false);
        Session { node: &mut node, work: &mut load, stop: &stop }.in_full(&mut endpoint)?;
        if load.times.is_empty() {
            return Err(Failure::Failed(format!("no answer within {:?}", options.time.min(PATIENCE))));
        }
        let us = |quantile| Nanos(load.times.value_at_quantile(quantile)).as_micros_f64();
        let operations = load.times.len();
        let per_s = operations as f64 / begun.elapsed().as_secs_f64();
        figures.push(Figure { what, operations, per_s, p50_us: us(0.5), p99_us: us(0.99) });
        Ok(())
    });
    endpoint.serve(&mut node, &AtomicBool::new(true));
    outcome?;
    for figure in &figures {
        if options.json {
            output::json(figure)?;
        } else {
            let Figure { what, operations, per_s, p50_us, p99_us } = figure;
            output::line(format_args!(
                "{what:<17} {operations:>9} operations, {per_s:>9.0} a second, {p50_us:>8.2} us p50, {p99_us:>8.2} us p99"
            ))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

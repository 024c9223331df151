//! A light load: a few operations at a time, and sleep in between. The demo of `obol up --kv`.

use super::session::{Session, Work};
use super::{AGAIN_EVERY, LATENCY_MAX, area, join};
use crate::signals;
use clap::Args;
use obol_config::duration;
use obol_fabric::host::{clock, sched};
use obol_fabric::{Drive, Instant, Name, Nanos};
use obol_kv::{Client, Operation, Service, Status};
use obol_node::Site;
use obol_term::output::{self, Failure};
use serde::Serialize;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Keys that are read and written.
const KEYS: u64 = 64;
/// Operations of a burst: one is a PUT.
const BURST: u64 = 4;
/// Poll interval of a client without a wakeup, because a wakeup may be lost.
const POLL_INTERVAL: Nanos = Nanos::from_millis(5);

/// How gentle.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Name of this client in the cluster
    #[arg(long, default_value = "kv_load")]
    name: Name,
    /// Interval between batches of four operations
    #[arg(long, value_name = "TIME", value_parser = duration::argument, default_value = "10ms")]
    every: Duration,
    /// Interval of progress reports
    #[arg(long, alias = "tell-every", value_name = "TIME", value_parser = duration::argument, default_value = "1s")]
    report_every: Duration,
    /// Print JSON lines
    #[arg(long)]
    json: bool,
    /// End with the process that started it
    #[arg(long, hide = true)]
    tied: bool,
}

/// What was done since the last line.
#[derive(Default, Serialize)]
struct Done {
    gets: u64,
    puts: u64,
    /// The longest wait for an answer, failovers included.
    longest_us: f64,
}

struct Load {
    every: Nanos,
    report_every: Nanos,
    json: bool,
    next_at: Instant,
    report_at: Instant,
    burst_at: Instant,
    begun: u64,
    done: Done,
}

impl Load {
    fn report(&self) {
        let Done { gets, puts, longest_us } = &self.done;
        // It continues whether or not this is read.
        let _ = if self.json {
            output::json(&self.done)
        } else {
            output::line(format_args!("{gets} GETs, {puts} PUTs, none took longer than {longest_us:.0} us"))
        };
    }
}

impl Work for Load {
    fn turn<D: Drive>(&mut self, client: &mut Client, endpoint: &mut D) -> bool {
        let now = clock::now();
        while let Some(done) = client.take() {
            let is_put = done.value.is_empty() && done.status == Status::Done;
            *(if is_put { &mut self.done.puts } else { &mut self.done.gets }) += 1;
            let waited = now.since(self.burst_at).min(LATENCY_MAX).as_micros_f64();
            self.done.longest_us = self.done.longest_us.max(waited);
        }
        if now >= self.report_at {
            self.report();
            (self.report_at, self.done) = (now + self.report_every, Done::default());
        }
        if now >= self.next_at && client.waiting() == 0 && !client.is_busy() {
            (self.next_at, self.burst_at) = (now + self.every, now);
            for _ in 0..BURST {
                self.begun += 1;
                let key = self.begun % KEYS;
                let is_put = self.begun.is_multiple_of(BURST);
                let operation = if is_put {
                    Operation::Put(key, self.begun.to_le_bytes().into())
                } else {
                    Operation::Get(key)
                };
                // Empty windows take a burst.
                let _ = client.begin(now, operation, endpoint);
            }
        }
        false
    }
}

pub(super) fn run(site: &Site, options: &Options) -> Result<ExitCode, Failure> {
    if options.tied {
        sched::die_with_parent().map_err(Failure::failed)?;
    }
    let stop = signals::ending()?;
    let client = Client::new(area(site)?, obol_agent::seed(), POLL_INTERVAL, AGAIN_EVERY).with_wakeups();
    let (mut endpoint, mut node) = join(site, options.name, Service::Client(Box::new(client)))?;
    let now = clock::now();
    let mut load = Load {
        every: Nanos::from_std(options.every),
        report_every: Nanos::from_std(options.report_every),
        json: options.json,
        next_at: now,
        report_at: now + Nanos::from_std(options.report_every),
        burst_at: now,
        begun: 0,
        done: Done::default(),
    };
    let used = Session { node: &mut node, work: &mut load, stop: &stop }.in_full(&mut endpoint);
    endpoint.serve(&mut node, &AtomicBool::new(true));
    used?;
    if !stop.load(Ordering::Relaxed) {
        return Err(Failure::Failed("the load ended by itself".to_owned()));
    }
    Ok(ExitCode::SUCCESS)
}

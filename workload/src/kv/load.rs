//! A light load: a few operations at a time, and sleep in between. The demo of `obol up --kv`.

use crate::LATENCY_MAX;
use obol_fabric::host::clock;
use obol_fabric::{Endpoint, Instant, Name, Nanos};
use obol_kv::{Client, Operation, Service, Status};
use obol_node::{Site, endpoint};
use obol_server::kv::{AGAIN_EVERY, Session, Work, area, join};
use obol_term::output::Failure;
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Keys that are read and written.
const KEYS: u64 = 64;
/// Operations of a burst: one is a PUT.
const BURST: u64 = 4;
/// Poll interval of a client without a wakeup, because a wakeup may be lost.
const POLL_INTERVAL: Nanos = Nanos::from_millis(5);

/// How gentle.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Name of the client in the cluster.
    pub name: Name,
    /// Interval between bursts.
    pub every: Duration,
    /// Interval of reports.
    pub report_every: Duration,
}

/// What was done since the last report.
#[derive(Debug, Default, Serialize)]
pub struct Done {
    /// GETs that were answered.
    pub gets: u64,
    /// PUTs that were answered.
    pub puts: u64,
    /// The longest wait for an answer, failovers included.
    pub longest_us: f64,
}

struct Load<F> {
    every: Nanos,
    report_every: Nanos,
    report: F,
    next_at: Instant,
    report_at: Instant,
    burst_at: Instant,
    begun: u64,
    done: Done,
}

impl<F: FnMut(&Done)> Work for Load<F> {
    fn turn(&mut self, client: &mut Client, endpoint: &mut Endpoint) -> bool {
        let now = clock::now();
        while let Some(done) = client.take() {
            let is_put = done.value.is_empty() && done.status == Status::Done;
            *(if is_put { &mut self.done.puts } else { &mut self.done.gets }) += 1;
            let waited = now.since(self.burst_at).min(LATENCY_MAX).as_micros_f64();
            self.done.longest_us = self.done.longest_us.max(waited);
        }
        if now >= self.report_at {
            (self.report)(&self.done);
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

/// Loads the cache until `stop` is set.
pub fn run(
    site: &Site,
    options: &Options,
    stop: &AtomicBool,
    report: impl FnMut(&Done),
) -> Result<(), Failure> {
    let client = Client::new(area(site)?, obol_agent::seed(), POLL_INTERVAL, AGAIN_EVERY).with_wakeups();
    let (mut endpoint, mut node) = join(site, options.name, Service::Client(Box::new(client)))?;
    let now = clock::now();
    let mut load = Load {
        every: Nanos::from_std(options.every),
        report_every: Nanos::from_std(options.report_every),
        report,
        next_at: now,
        report_at: now + Nanos::from_std(options.report_every),
        burst_at: now,
        begun: 0,
        done: Done::default(),
    };
    let used = Session { node: &mut node, work: &mut load, stop }.in_full(&mut endpoint);
    endpoint::serve(&mut endpoint, &mut node, &AtomicBool::new(true));
    used?;
    if !stop.load(Ordering::Relaxed) {
        return Err(Failure::Failed("the load ended by itself".to_owned()));
    }
    Ok(())
}

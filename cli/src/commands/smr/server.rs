//! `obol smr server`: a replica of the store.

use super::preset::PresetName;
use super::resp::Front;
use super::{area, join, marks, named};
use crate::signals;
use clap::{Args, ValueEnum};
use obol_console::options::duration;
use obol_console::output::{self, Failure};
use obol_fabric::host::{clock, sched};
use obol_fabric::{Drive, Name, Nanos};
use obol_node::Site;
use obol_node::endpoint::Act;
use obol_smr::{
    Active, Actor, Grants, Guard, KeyValue, Node, OrderBook, Pace, REPLICA_PREFIX, Replica, ReplicaState,
    Service, VOTERS_MAX, Views,
};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a replica that sends no part of a snapshot may take before another one is asked.
const PATIENCE: Nanos = Nanos::from_millis(20);

/// How often a replica looks for what it was not woken up for. Whoever takes over applies first what it
/// has received since its last look.
const IDLE_EVERY: Nanos = Nanos::from_micros(500);

/// Interval at which a leader's redundancy is reported at most.
const LEADS_EVERY: Duration = Duration::from_millis(50);

/// What the replicas keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kept {
    /// Keys and values (`obol smr get`, `put`, clients of Redis)
    #[value(name = "keys")]
    Keys,
    /// Orders that are matched by price and time (`obol smr book`)
    #[value(name = "orderbook")]
    OrderBook,
}

/// How a replica runs.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Its name: smr- and something
    #[arg(long, value_parser = replica_name)]
    name: Name,
    /// What it keeps; the same for all replicas of a cluster
    #[arg(long, value_name = "SERVICE", value_enum, default_value = "keys")]
    service: Kept,
    /// How an earlier leader is excluded; the same for all replicas of a
    /// cluster
    #[arg(long, value_name = "PRESET", value_enum, default_value = "view", conflicts_with = "unreplicated")]
    preset: PresetName,
    /// Replicas that should have every answered command, for a new store: a
    /// majority of them has to survive
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=VOTERS_MAX as i64))]
    voters: u32,
    /// Keep no copies, as a baseline for benchmarks: one process answers at once,
    /// as HERD does, and the keys are lost with it
    #[arg(long, conflicts_with = "voters")]
    unreplicated: bool,
    /// Poll interval; 0 keeps an otherwise unused core busy
    #[arg(long, value_name = "TIME", value_parser = pause, default_value = "20us")]
    poll_every: Duration,
    /// Stay on this core
    #[arg(long, value_name = "N")]
    core: Option<u32>,
    /// Begin a new, empty store even if earlier replicas held one; stop all of
    /// them first
    #[arg(long)]
    force_empty: bool,
    /// Serve clients of Redis at this address, such as 127.0.0.1:6379: any
    /// replica does, also one that does not lead. There are no passwords
    #[arg(long, value_name = "ADDRESS")]
    resp: Option<SocketAddr>,
    /// Print its state as JSON lines
    #[arg(long)]
    json: bool,
    /// End with the process that started it
    #[arg(long, hide = true)]
    tied: bool,
}

fn replica_name(text: &str) -> Result<Name, String> {
    named(text, REPLICA_PREFIX, "replica")
}

/// A span that may be zero.
fn pause(text: &str) -> Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { duration(text) }
}

#[derive(Serialize)]
struct StandingJson {
    event: &'static str,
    standing: &'static str,
    /// It has all of the log; of a leader: it serves.
    whole: bool,
    /// Of a leader: voters that have everything.
    redundancy: usize,
    voters: usize,
    term: u64,
    applied: u64,
}

fn standing(state: ReplicaState) -> (&'static str, bool, usize) {
    match state {
        ReplicaState::Out => ("out", false, 0),
        ReplicaState::Following { whole } => ("following", whole, 0),
        ReplicaState::TakingOver => ("taking-over", false, 0),
        ReplicaState::Leading { ready, redundancy } => ("leading", ready, redundancy),
        ReplicaState::Waiting => ("waiting", false, 0),
        ReplicaState::Yields => ("yields", false, 0),
        ReplicaState::Misfit => ("misfit", false, 0),
        ReplicaState::Unsupported => ("unsupported", false, 0),
    }
}

/// To whom a replica's state is reported.
#[derive(Clone, Copy)]
struct Audience<'a> {
    json: bool,
    site: &'a Site,
    name: Name,
}

impl Audience<'_> {
    fn report<S: Service, G: Guard>(self, replica: &Replica<S, Views, G>, state: ReplicaState) {
        let (standing, whole, redundancy) = standing(state);
        if whole && let Err(error) = marks::set(self.site, self.name) {
            // It serves all the same; a later replica may then begin a new store.
            let _ = output::remark(format_args!("obol: {}: {error:?}", self.name));
        }
        if state == ReplicaState::Waiting {
            // It waits whether or not this is read.
            let _ = output::remark(format_args!(
                "obol: {}: no replica that runs has the store. It continues when a majority of its voters returns, such as one that \
                 was frozen. If there is none, end all replicas and start the first one with --force-empty: the keys are lost then",
                self.name
            ));
        }
        if self.json {
            let (voters, term, applied) =
                (replica.config().voters.len(), replica.term().0, replica.applied().0);
            let event = "standing";
            let line = StandingJson { event, standing, whole, redundancy, voters, term, applied };
            // A replica continues whether or not this is read.
            let _ = output::json(&line);
        }
    }
}

/// Runs a replica, and reports its state, until it is stopped or cannot serve any more.
struct Reporter<'a, S, G> {
    node: &'a mut Node<S, Views, G>,
    stop: &'a AtomicBool,
    audience: Audience<'a>,
    /// It polls without a pause, so it yields its core to other processes.
    yields: bool,
}

impl<S: Service, G: Guard> Act for Reporter<'_, S, G> {
    type Output = ReplicaState;

    fn on<D: Drive>(self, endpoint: &mut D) -> ReplicaState {
        let Self { node, stop, audience, yields } = self;
        let (done, mut reported) = (AtomicBool::new(false), None);
        let (mut last, mut at) = (ReplicaState::Out, std::time::Instant::now());
        endpoint.run(node, &done, |node, _| {
            let Some(replica) = node.replica() else { return };
            last = replica.state();
            // While there are commands on the way, a leader's redundancy changes with each.
            let is_same = |before: ReplicaState| {
                let leads = |state| matches!(state, ReplicaState::Leading { ready: true, .. });
                before == last || leads(before) && leads(last) && at.elapsed() < LEADS_EVERY
            };
            if !reported.is_some_and(is_same) {
                (reported, at) = (Some(last), std::time::Instant::now());
                audience.report(replica, last);
            } else if yields {
                std::thread::yield_now();
            }
            let is_over =
                matches!(last, ReplicaState::Yields | ReplicaState::Misfit | ReplicaState::Unsupported);
            if is_over || stop.load(Ordering::Relaxed) {
                done.store(true, Ordering::Relaxed);
            }
        });
        last
    }
}

pub(super) fn run(site: &Site, options: &Options) -> Result<ExitCode, Failure> {
    if options.tied {
        sched::die_with_parent().map_err(Failure::failed)?;
    }
    if options.service != Kept::Keys && options.resp.is_some() {
        return Err(Failure::Refused(
            "--resp: clients of Redis need keys and values; leave out --service, or --resp".to_owned(),
        ));
    }
    if let Some(core) = options.core {
        sched::pin_to_core(core).map_err(|error| {
            Failure::Refused(format!(
                "--core: core {core}: {error}; `nproc` prints the number of cores, which count from 0"
            ))
        })?;
    }
    let stop = signals::flag(&[SIGTERM, SIGINT])?;
    let front = options.resp.map(|address| Front::bind(address, options.name)).transpose()?;
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Before this thread gets its priority, which new threads would have as well.
        let started = front.map_or(Ok(()), |front| front.start(scope, site, [&stop, &ended]));
        let code = started.and_then(|()| match (options.service, options.preset) {
            (Kept::Keys, PresetName::View) => serve::<KeyValue, Active>(site, options, &stop),
            (Kept::Keys, PresetName::MuViews) => serve::<KeyValue, Grants>(site, options, &stop),
            (Kept::OrderBook, PresetName::View) => serve::<OrderBook, Active>(site, options, &stop),
            (Kept::OrderBook, PresetName::MuViews) => serve::<OrderBook, Grants>(site, options, &stop),
        });
        ended.store(true, Ordering::Relaxed);
        code
    })
}

/// The Unix time at the beginning of the fabric's time, in ms.
fn epoch_ms() -> u64 {
    let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let unix = u64::try_from(unix.as_millis()).unwrap_or(u64::MAX);
    unix.saturating_sub(clock::now().0 / 1_000_000)
}

/// Runs replicas, one after the other, until stopped.
fn serve<S: Service + Default, G: Guard>(
    site: &Site,
    options: &Options,
    stop: &AtomicBool,
) -> Result<ExitCode, Failure> {
    let mut founds = options.force_empty || marks::left(site)?.is_empty();
    let poll_every = Nanos::from_std(options.poll_every);
    let yields = poll_every == Nanos::ZERO;
    // Scheduled as the agent that watches it; a thread that polls without a pause would block its
    // core for all others.
    if let Some(priority) = site.deployment.profile.scheduling.priority().filter(|_| !yields) {
        // Without the right to it the replica works all the same; `obol status` shows who has none.
        let _ = sched::run_fifo_alone(priority);
    }
    let audience = Audience { json: options.json, site, name: options.name };
    loop {
        let pace = Pace { poll_every, idle_every: IDLE_EVERY, patience: PATIENCE };
        let replica = Replica::<S, Views, G>::new(area(site)?, pace, S::default()).with_epoch(epoch_ms());
        let voters = if options.unreplicated { 1 } else { options.voters };
        let replica = if founds { replica.founding(obol_agent::seed(), voters) } else { replica };
        let replica = if options.unreplicated { replica.unreplicated() } else { replica };
        let (mut endpoint, mut node) = join(site, options.name, Actor::Replica(Box::new(replica)))?;
        let last = endpoint.each(Reporter { node: &mut node, stop, audience, yields });
        endpoint.serve(&mut node, &AtomicBool::new(true));
        if stop.load(Ordering::Relaxed) {
            marks::clear(site, options.name.as_str());
            return Ok(ExitCode::SUCCESS);
        }
        if last == ReplicaState::Misfit {
            return Err(Failure::Refused(format!(
                "{}: the replicas of this cluster have another store than this one: it was begun anew with --force-empty, or they \
                 keep another --service or have another --preset; end those of one of the two",
                options.name
            )));
        }
        if last == ReplicaState::Unsupported {
            return Err(Failure::Refused(format!(
                "{}: --preset {} needs permissions to write that can be revoked, which this cluster does not have: only the processes \
                 of one host that communicate by shared memory have them; use --preset {}",
                options.name,
                options.preset.preset(),
                PresetName::View.preset()
            )));
        }
        // As the oldest without a place it gives way to a replica that has the log, and returns
        // with nothing: it had nothing.
        founds = false;
    }
}

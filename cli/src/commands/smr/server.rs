//! `obol smr server`: a replica of the store.

use super::failure;
use super::preset::PresetName;
use super::resp::{Front, Server};
use crate::signals;
use clap::{Args, ValueEnum};
use obol_console::options::duration;
use obol_console::output::{self, Failure};
use obol_fabric::host::{Waker, sched};
use obol_fabric::{Drive, Name, Nanos};
use obol_node::Site;
use obol_replica::{Observer, ReplicaError, Settings, named};
use obol_smr::{
    Active, Beats, Client, ClientError, Detector, Grants, Guard, KeyValue, OrderBook, PullScore,
    REPLICA_PREFIX, Replica, ReplicaState, Service, VOTERS_MAX, Views, Votes,
};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

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
    named(text, REPLICA_PREFIX)
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
        ReplicaState::Refuses => ("refuses", false, 0),
    }
}

/// Prints a replica's state, and serves connections between its turns.
struct Printer<'a> {
    json: bool,
    name: Name,
    server: Option<Server<'a>>,
}

impl Observer for Printer<'_> {
    fn joined(&mut self, waker: Waker) {
        if let Some(server) = &self.server {
            server.joined(waker);
        }
    }

    fn needs_client(&self) -> bool {
        self.server.is_some()
    }

    fn work<D: Drive>(&mut self, client: &mut Client, endpoint: &mut D) {
        if let Some(server) = &mut self.server {
            server.work_beside(client, endpoint);
        }
    }

    fn client_failed(&mut self, error: ClientError) {
        if let Some(server) = &mut self.server {
            server.client_failed(error);
        }
    }

    fn changed<S: Service, E: Detector, G: Guard>(
        &mut self,
        replica: &Replica<S, E, G>,
        state: ReplicaState,
    ) {
        if state == ReplicaState::Waiting {
            // It waits whether or not this is read.
            let _ = output::remark(format_args!(
                "obol: {}: no replica that runs has the store. It continues when a majority of its voters returns, such as one that \
                 was frozen. If there is none, end all replicas and start the first one with --force-empty: the keys are lost then",
                self.name
            ));
        }
        if self.json {
            let (standing, whole, redundancy) = standing(state);
            let (voters, term, applied) =
                (replica.config().voters.len(), replica.term().0, replica.applied().0);
            let event = "standing";
            let line = StandingJson { event, standing, whole, redundancy, voters, term, applied };
            // A replica continues whether or not this is read.
            let _ = output::json(&line);
        }
    }

    fn unmarked(&mut self, error: ReplicaError) {
        // It serves all the same.
        let _ = output::remark(format_args!("obol: {}: {error}", self.name));
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
    // With a priority, or without a pause, connections would take the core from all others.
    let may_serve = site.deployment.profile.scheduling.priority().is_none() && !options.poll_every.is_zero();
    std::thread::scope(|scope| {
        let flags = [&stop, &ended];
        // Before this thread gets its priority, which new threads would have as well.
        let server = match front {
            Some(front) if may_serve => front.beside(scope, flags).map(Some).map_err(Failure::failed),
            Some(front) => front.start(scope, site, flags).map(|()| None),
            None => Ok(None),
        };
        let code = server.and_then(|server| {
            let mut printer = Printer { json: options.json, name: options.name, server };
            match options.service {
                Kept::Keys => serve_as::<KeyValue>(site, options, &stop, &mut printer),
                Kept::OrderBook => serve_as::<OrderBook>(site, options, &stop, &mut printer),
            }
        });
        ended.store(true, Ordering::Relaxed);
        code
    })
}

/// Runs replicas with the preset of the options.
fn serve_as<S: Service + Default>(
    site: &Site,
    options: &Options,
    stop: &AtomicBool,
    printer: &mut Printer<'_>,
) -> Result<ExitCode, Failure> {
    match options.preset {
        PresetName::View => serve::<S, Views, Active>(site, options, stop, printer),
        PresetName::MuViews => serve::<S, Views, Grants>(site, options, stop, printer),
        PresetName::Mu => serve::<S, PullScore, Grants<false>>(site, options, stop, printer),
        PresetName::Dare => serve::<S, Beats, Votes>(site, options, stop, printer),
    }
}

/// Runs replicas, one after the other, until stopped.
fn serve<S: Service + Default, E: Detector, G: Guard>(
    site: &Site,
    options: &Options,
    stop: &AtomicBool,
    printer: &mut Printer<'_>,
) -> Result<ExitCode, Failure> {
    let settings = Settings {
        name: options.name,
        voters: options.voters,
        unreplicated: options.unreplicated,
        force_empty: options.force_empty,
        poll_every: Nanos::from_std(options.poll_every),
    };
    obol_replica::serve::<S, E, G>(site, &settings, || Ok(S::default()), stop, printer).map_err(failure)?;
    Ok(ExitCode::SUCCESS)
}

//! `obol smr server`: a replica of the store.

use super::failure;
use super::preset::PresetName;
use crate::ending::unused_elsewhere;
use crate::signals;
use clap::{Args, ValueEnum};
use obol_config::duration;
use obol_fabric::host::{NameClaim, Waker, program, sched};
use obol_fabric::{Drive, Name, Nanos};
use obol_node::Site;
use obol_replica::{Observer, ReplicaError, Settings, named};
use obol_resp::{Front, Server};
use obol_smr::{
    Active, Beats, Client, ClientError, Departure, Detector, Grants, Guard, KeyValue, OrderBook, PullScore,
    REPLICA_PREFIX, Replica, ReplicaState, Service, VOTERS_MAX, Views, Votes,
};
use obol_term::output::{self, Failure};
use serde::Serialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
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
    #[arg(long, value_name = "TIME", value_parser = duration::argument_or_zero, default_value = "20us")]
    poll_every: Duration,
    /// Stay on this core
    #[arg(long, value_name = "N")]
    core: Option<u32>,
    /// Begin a new, empty store even if earlier replicas held one; stop all of
    /// them first
    #[arg(long)]
    force_empty: bool,
    /// Serve clients of Redis at this address, such as 127.0.0.1:6379: any
    /// replica does, also one that does not lead
    #[arg(long, value_name = "ADDRESS")]
    resp: Option<SocketAddr>,
    /// The password that clients of Redis have to send: the first line of this
    /// file, which only its owner or group may read
    #[arg(long, value_name = "FILE", requires = "resp")]
    resp_password_file: Option<PathBuf>,
    /// Serve clients of Redis on other hosts, though all that they send and get
    /// can be read on the way, the password as well
    #[arg(long, requires = "resp_password_file")]
    resp_unencrypted: bool,
    /// Refuse commands that need memory while it leads and keys and values take
    /// more than this: bytes, or with K, M or G. The same for all replicas
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory_max: Option<u64>,
    /// Print its state as JSON lines
    #[arg(long)]
    json: bool,
    /// End with the process that started it, and the store with it
    #[arg(long, hide = true)]
    tied: bool,
}

fn replica_name(text: &str) -> Result<Name, String> {
    named(text, REPLICA_PREFIX)
}

/// A number of bytes, such as 500M.
fn size(text: &str) -> Result<u64, String> {
    let units = [("K", 1 << 10), ("M", 1 << 20), ("G", 1_u64 << 30)];
    let unit = units.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes)));
    let (number, unit) = unit.unwrap_or((text, 1));
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    bytes.filter(|bytes| *bytes > 0).ok_or_else(|| {
        format!("{text:?} is not a size: give a number of bytes, or of K, M or G, such as 500M")
    })
}

/// What a replica keeps, when it begins.
trait Begins: Service {
    fn begin(options: &Options) -> Self;
}

impl Begins for KeyValue {
    fn begin(options: &Options) -> Self {
        options.memory_max.map_or_else(Self::default, |most| Self::default().with_memory_max(most))
    }
}

impl Begins for OrderBook {
    fn begin(_: &Options) -> Self {
        Self::default()
    }
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
    /// Whether it was asked to begin an empty store and has not led yet.
    to_begin_anew: bool,
    /// The store ends with the command that started it, which is not worth a remark.
    temporary: bool,
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
        match state {
            ReplicaState::TakingOver | ReplicaState::Leading { .. } => self.to_begin_anew = false,
            ReplicaState::Following { whole: true } | ReplicaState::Yields if self.to_begin_anew => {
                self.to_begin_anew = false;
                // It follows whether or not this is read.
                let _ = output::remark(format_args!(
                    "obol: {}: --force-empty has no effect, and nothing was lost: replicas that run have a store, and this one takes \
                     that. To begin an empty one, stop all replicas first",
                    self.name
                ));
            }
            _ => {}
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
            let (standing, whole, redundancy) = standing(state);
            let (voters, term, applied) =
                (replica.config().voters.len(), replica.term().0, replica.applied().0);
            let event = "standing";
            let line = StandingJson { event, standing, whole, redundancy, voters, term, applied };
            // A replica continues whether or not this is read.
            let _ = output::json(&line);
        }
    }

    fn leaves(&mut self, departure: Departure) -> bool {
        let what = match departure {
            Departure::Left => return false,
            Departure::Last if self.temporary => return true,
            Departure::Last => {
                "it had the last copy of the store, which ends with it. A first replica of this host now waits for the store; \
                 --force-empty begins an empty one"
            }
            Departure::Pending => {
                "it leaves, and the replicas that are left are not a majority of the voters, or lack what it has: they do not serve \
                 until those return that are frozen or cut off. `obol smr status` shows what each has; `obol smr recover` \
                 continues with that of one"
            }
        };
        // It ends whether or not this is read.
        let _ = output::remark(format_args!("obol: {}: {what}", self.name));
        true
    }

    fn recovers(&mut self) {
        // It continues whether or not this is read.
        let _ = output::remark(format_args!(
            "obol: {}: it continues alone with what it has, as the only voter of a new log (`obol smr recover`)",
            self.name
        ));
    }

    fn unmarked(&mut self, error: ReplicaError) {
        // It serves all the same.
        let _ = output::remark(format_args!("obol: {}: {error}", self.name));
    }
}

pub(super) fn run(root: &Path, site: &Site, options: &Options) -> Result<ExitCode, Failure> {
    if options.tied {
        sched::die_with_parent().map_err(Failure::failed)?;
    }
    if options.service != Kept::Keys && options.resp.is_some() {
        return Err(Failure::Refused(
            "--resp: clients of Redis need keys and values; leave out --service, or --resp".to_owned(),
        ));
    }
    if options.service != Kept::Keys && options.memory_max.is_some() {
        return Err(Failure::Refused(
            "--memory-max: only keys and values have a bound; leave out --service, or --memory-max"
                .to_owned(),
        ));
    }
    if let Some(core) = options.core {
        sched::pin_to_core(core).map_err(|error| {
            Failure::Refused(format!(
                "--core: core {core}: {error}; `nproc` prints the number of cores, which count from 0"
            ))
        })?;
    }
    let stop = signals::ending()?;
    // Also between two of its lives.
    let _name = NameClaim::reserve(&site.cluster, options.name).map_err(Failure::refused)?;
    unused_elsewhere(root, site.cluster.name(), options.name)?;
    let front = options
        .resp
        .map(|address| {
            let password = options.resp_password_file.as_deref();
            Front::bind(address, options.name, password, options.resp_unencrypted)
        })
        .transpose()?;
    // Keys are dropped in steps, and no step may join or give back what all of them have freed.
    program::keep_freed();
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
            let to_begin_anew = options.force_empty;
            let (json, name, temporary) = (options.json, options.name, options.tied);
            let mut printer = Printer { json, name, server, to_begin_anew, temporary };
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
fn serve_as<S: Begins>(
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
fn serve<S: Begins, E: Detector, G: Guard>(
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
        temporary: options.tied,
        poll_every: Nanos::from_std(options.poll_every),
    };
    obol_replica::serve::<S, E, G>(site, &settings, || Ok(S::begin(options)), stop, printer)
        .map_err(failure)?;
    Ok(ExitCode::SUCCESS)
}

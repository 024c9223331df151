//! The threads of a server, one for each shard, each a member of its own.

use super::marks::MarkOwner;
use super::{Patience, area, join};
use obol_fabric::host::{program, sched};
use obol_fabric::{Endpoint, Name, Nanos};
use obol_kv::{Node, Server, ServerState, Service, Shard};
use obol_logs::{Line, Severity};
use obol_node::Site;
use obol_node::endpoint::{self, EndpointError};
use obol_observe::namesakes::Namesakes;
use obol_term::output::{self, Failure};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// How a server runs.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Its name; the members of its shards have names derived from it.
    pub name: Name,
    /// How many threads share the keys.
    pub shards: u32,
    /// Poll interval; 0 keeps a core busy for each shard.
    pub poll_every: Duration,
    /// The core of the first shard; further ones are on those that follow.
    pub core: Option<u32>,
    /// Start empty even if earlier servers held state.
    pub force_empty: bool,
    /// Print its state as JSON lines.
    pub json: bool,
    /// Whose state it keeps.
    pub whose: MarkOwner,
}

#[derive(Serialize)]
struct StandingJson {
    event: &'static str,
    /// Of how many, counted from 1.
    shard: u32,
    shards: u32,
    standing: &'static str,
    /// Of a primary: its backup has everything; of a backup: it has.
    redundant: bool,
    answered: u64,
}

impl StandingJson {
    fn of(shard: Shard, standing: ServerState, answered: u64) -> Self {
        let (standing, redundant) = match standing {
            ServerState::Out => ("out", false),
            ServerState::Spare => ("spare", false),
            ServerState::Backup { synced } => ("backup", synced),
            ServerState::TakingOver => ("taking-over", false),
            ServerState::Primary { redundant } => ("primary", redundant),
            ServerState::Stopped => ("stopped", false),
            ServerState::Yields => ("yields", false),
            ServerState::Misfit { .. } => ("misfit", false),
        };
        let (number, shards) = (shard.index() + 1, shard.count());
        Self { event: "standing", shard: number, shards, standing, redundant, answered }
    }
}

/// The state of a shard, where its thread leaves it and the log's thread finds it: a change is on the
/// path of a failover, so nothing is formatted there.
#[derive(Clone, Default)]
struct LoggedState(Arc<AtomicUsize>);

/// States as lines of the log have them, and how much they matter.
const LOGGED: [(&str, Severity); 10] = [
    ("out", Severity::Info),
    ("a spare", Severity::Info),
    ("a backup without the whole state", Severity::Info),
    ("a backup", Severity::Info),
    ("taking over", Severity::Warn),
    ("the primary, without a backup that has everything", Severity::Warn),
    ("the primary", Severity::Info),
    ("stopped: no server that runs has the whole state", Severity::Error),
    ("yielding", Severity::Info),
    ("misfit: the cache has another number of shards", Severity::Error),
];

impl LoggedState {
    fn set(&self, state: ServerState) {
        let number = match state {
            ServerState::Out => 0,
            ServerState::Spare => 1,
            ServerState::Backup { synced: false } => 2,
            ServerState::Backup { synced: true } => 3,
            ServerState::TakingOver => 4,
            ServerState::Primary { redundant: false } => 5,
            ServerState::Primary { redundant: true } => 6,
            ServerState::Stopped => 7,
            ServerState::Yields => 8,
            ServerState::Misfit { .. } => 9,
        };
        self.0.store(number, Ordering::Relaxed);
    }

    /// Has changes logged, as far as they last until the log's thread sees them.
    fn log(&self, name: Name) {
        let (state, mut logged) = (self.clone(), 0);
        obol_logs::probe(Box::new(move |unix, give| {
            let now = state.0.load(Ordering::Relaxed);
            if std::mem::replace(&mut logged, now) != now
                && let Some((text, severity)) = LOGGED.get(now)
            {
                give(Line::new(unix, *severity, name, "kv", format!("is {text}")));
            }
        }));
    }
}

/// Reports the state of a server until it is stopped, cannot serve any more, or was excluded.
struct Reporter<'a> {
    shard: Shard,
    node: &'a mut Node,
    stop: &'a AtomicBool,
    json: bool,
    site: &'a Site,
    name: Name,
    whose: MarkOwner,
    logged: &'a LoggedState,
    namesakes: &'a mut Namesakes,
    /// Why it is not admitted, and ends.
    refusal: &'a mut Option<String>,
    /// It polls without a pause, so it yields its core to other processes instead of waiting until
    /// the kernel preempts it.
    yields: bool,
}

/// Records the state of a server for later servers and the operator.
fn note(site: &Site, name: Name, whose: MarkOwner, standing: ServerState) {
    match standing {
        ServerState::Primary { .. } | ServerState::Backup { synced: true } => {
            if let Err(error) = whose.set(site, name) {
                // It serves all the same; a later server may then begin with nothing.
                let _ = output::remark(format_args!("obol: {}: {error:?}", name));
            }
        }
        ServerState::Stopped => {
            // It waits whether or not this is read.
            let _ = output::remark(format_args!(
                "obol: {}: the cache has stopped: no server that runs has the complete state. It continues when a server returns that \
                 has it, such as one that was frozen. If there is none, end all servers of the cache and start the first one \
                 with --force-empty: the keys are lost then",
                name
            ));
        }
        _ => {}
    }
}

impl Reporter<'_> {
    /// Drives the server. Returns where it stood at last; out if it was excluded.
    fn run(self, endpoint: &mut Endpoint) -> ServerState {
        let mut reported = None;
        let done = AtomicBool::new(false);
        let (mut patience, mut answered) = (Patience::default(), 0);
        endpoint.run(self.node, &done, |node, _| {
            let Some(server) = node.server() else { return };
            if server.answered() != answered {
                (answered, patience) = (server.answered(), Patience::default());
            } else if self.yields {
                patience.idle();
            }
            let standing = if node.is_over() { ServerState::Out } else { server.state() };
            // While there is traffic the log is never empty for long: that the backup has
            // everything is reported once.
            let is_news = match (reported, standing) {
                (
                    Some(ServerState::Primary { redundant: true }),
                    ServerState::Primary { redundant: false },
                ) => !server.has_synced_backups(),
                _ => reported != Some(standing),
            };
            if is_news {
                reported = Some(standing);
                self.logged.set(standing);
                note(self.site, self.name, self.whose, standing);
                if self.json {
                    // A server continues whether or not this is read.
                    let _ = output::json(&StandingJson::of(self.shard, standing, server.answered()));
                }
            }
            if node.member().is_name_taken() {
                *self.refusal = self.namesakes.refusal();
            }
            if let Err(error) = EndpointError::refused(self.name, node) {
                *self.refusal = Some(error.to_string());
            }
            let is_over = matches!(standing, ServerState::Yields | ServerState::Misfit { .. })
                || self.refusal.is_some();
            if is_over || node.is_over() || self.stop.load(Ordering::Relaxed) {
                done.store(true, Ordering::Relaxed);
            }
        });
        reported.unwrap_or(ServerState::Out)
    }
}

/// Ends all threads when one ends, however it does: a server without one of its shards would never
/// be complete again.
struct EndAll<'a>(&'a AtomicBool);

impl Drop for EndAll<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Serves a shard on this thread; as the first server it may begin with nothing.
fn serve(
    site: &Site,
    settings: &Settings,
    shard: Shard,
    mut begins: bool,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let _end_all = EndAll(stop);
    if let Some(core) = settings.core.map(|first| first + shard.index()) {
        sched::pin_to_core(core).map_err(|error| {
            Failure::Refused(format!(
                "--core: core {core}: {error}; `nproc` prints the number of cores, which count from 0"
            ))
        })?;
    }
    let every = Nanos::from_std(settings.poll_every);
    let name = shard.name(settings.name).map_err(|error| {
        Failure::Refused(format!("--name {} with `.{shard}` at its end: {error}", settings.name))
    })?;
    let yields = every == Nanos::ZERO;
    let logged = LoggedState::default();
    logged.log(name);
    // Scheduled as the agent that watches it; a thread that polls without a pause would block its
    // core for all others.
    if let Some(priority) = site.deployment.profile.scheduling.priority().filter(|_| !yields) {
        // Without the right to it the server works all the same; `obol status` shows who has none.
        let _ = sched::run_fifo_alone(priority);
    }
    // A server that was excluded comes back with memory of its own: what a primary of before still
    // writes, which may have slept longer, comes into no log that counts. What it had it brings
    // along: it may be all that is left.
    let mut copy = None;
    let (mut namesakes, mut refusal) = (Namesakes::of(site, name), None);
    let last = loop {
        let newest = site.newest().map_err(Failure::refused)?;
        let server = Server::new(area(site)?, shard, every, newest).carrying(copy.take());
        let server = if std::mem::take(&mut begins) { server.beginning() } else { server };
        let (mut endpoint, node) = join(site, name, Service::Server(Box::new(server)))?;
        let mut node = node.once();
        let (json, whose) = (settings.json, settings.whose);
        let logged = &logged;
        let reporter = Reporter {
            shard,
            node: &mut node,
            stop,
            json,
            yields,
            site,
            name,
            whose,
            logged,
            namesakes: &mut namesakes,
            refusal: &mut refusal,
        };
        let last = reporter.run(&mut endpoint);
        if let Some(refusal) = refusal {
            return Err(Failure::Refused(refusal));
        }
        let is_stopped = stop.load(Ordering::Relaxed);
        if last != ServerState::Out || is_stopped {
            let is_last = obol_kv::servers(node.member().view(), shard).count() <= 1;
            endpoint::serve(&mut endpoint, &mut node, &AtomicBool::new(true));
            if is_stopped {
                whose.clear(site, name);
                if is_last {
                    whose.clear_shard(site, shard);
                    if matches!(last, ServerState::Primary { .. }) {
                        // It ends whether or not this is read.
                        let _ = output::remark(format_args!(
                            "obol: {name}: it had the last copy of its keys, which end with it: the next first server begins with \
                             none"
                        ));
                    }
                }
            }
            if last != ServerState::Yields || is_stopped {
                break last;
            }
        }
        copy = node.take_copy();
    };
    match last {
        ServerState::Misfit { shards } => Err(Failure::Refused(format!(
            "--shards {}: the cache that runs has its keys split into {shards}; start this server with --shards {shards}",
            shard.count()
        ))),
        _ => Ok(()),
    }
}

/// Serves until `stop` is set; the caller has reserved the name.
pub fn run(site: &Site, settings: &Settings, stop: &AtomicBool) -> Result<(), Failure> {
    // Its state may be large, and no step may join or give back all that was freed.
    program::keep_freed();
    // Before any of its own shards has a state.
    let begins = settings.force_empty || settings.whose.left(site)?.is_empty();
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for shard in Shard::split(settings.shards) {
            let thread = std::thread::Builder::new().name(format!("obol-kv-{shard}"));
            let run = move || serve(site, settings, shard, begins, stop);
            threads.push(thread.spawn_scoped(scope, run).map_err(|error| {
                drop(EndAll(stop));
                Failure::failed(error)
            })?);
        }
        // The first that says why counts; the others ended for it.
        let ended = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(Failure::Failed("a shard's thread panicked".to_owned())))
        });
        ended.collect::<Vec<_>>().into_iter().collect()
    })
}

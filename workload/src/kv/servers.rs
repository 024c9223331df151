//! Servers of the cache that a command starts and ends, and hears of by what they print.

use super::freeze::Running;
use crate::process::{POLL_INTERVAL, Process, SERVE_TIMEOUT, living};
use obol_fabric::Name;
use obol_node::Site;
use obol_server::kv::MarkOwner;
use obol_supervise::leaving::{forget_own, terminate_and_wait};
use obol_term::output::Failure;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How a rejected server ends; restarting it would not help.
const REFUSED: i32 = 2;
/// How often servers look into their memory.
pub const POLL_EVERY: &[&str] = &["--poll-every", "20us"];

/// Set when a server reports that no server has the complete state.
#[derive(Debug, Default)]
pub struct Disruption {
    pub(super) stopped: AtomicBool,
}

impl Disruption {
    /// Takes note of where a server stands now.
    fn note(&self, now: &str) {
        if now == "stopped" {
            self.stopped.store(true, Ordering::SeqCst);
        }
    }
}

/// Where a server says that it stands with a shard.
#[derive(Clone, Debug, Default)]
struct Standing {
    name: String,
    redundant: bool,
}

/// A server that runs.
pub struct Server {
    /// By shard.
    process: Process<Vec<Standing>>,
}

impl Server {
    /// Starts one with these options.
    pub fn start(
        root: &Path,
        cluster: Name,
        name: &str,
        shards: u32,
        options: &[&str],
        disruption: &Arc<Disruption>,
    ) -> Result<Self, Failure> {
        let count = shards.to_string();
        let mut arguments = vec!["kv", "server", "--json", "--tied", "--temporary", "--name", name];
        arguments.extend(options);
        arguments.extend(["--shards", &count]);
        let disruption = Arc::clone(disruption);
        let hear = move |line: &serde_json::Value, shards: &mut Vec<Standing>| {
            let shard = line["shard"].as_u64().and_then(|shard| usize::try_from(shard).ok());
            let Some(state) = shard.and_then(|shard| shards.get_mut(shard.wrapping_sub(1))) else { return };
            let name = line["standing"].as_str().unwrap_or_default().to_owned();
            disruption.note(&name);
            *state = Standing { name, redundant: line["redundant"] == true };
        };
        let standing = vec![Standing::default(); shards as usize];
        Ok(Self { process: Process::start(root, cluster, &arguments, standing, hear)? })
    }

    /// Waits until it stands so with all shards, and redundantly if that is wanted.
    pub fn until(&self, standing: &str, redundant: bool) -> Result<(), Failure> {
        let end = std::time::Instant::now() + SERVE_TIMEOUT;
        loop {
            let stands = self.stands();
            if stands.iter().all(|of| of.name == standing && (of.redundant || !redundant)) {
                return Ok(());
            }
            if std::time::Instant::now() > end {
                return Err(Failure::Failed(format!(
                    "the server is not a {standing} within {SERVE_TIMEOUT:?}: {:?}",
                    stands.iter().map(|of| (&of.name, of.redundant)).collect::<Vec<_>>()
                )));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn stands(&self) -> Vec<Standing> {
        self.process.standing().clone()
    }
}

impl Server {
    /// Kills it; it is started again once it is reaped.
    pub fn end(&mut self) {
        // It may have ended.
        let _ = self.process.child.kill();
    }

    /// Waits until it has ended.
    pub fn reap(&mut self) -> Result<(), Failure> {
        self.process.child.wait().map(drop).map_err(Failure::failed)
    }
}

/// Rejects a cluster with servers: further ones would not serve.
pub fn require_no_servers(root: &Path, cluster: Name) -> Result<(), Failure> {
    let others = living(root, cluster, obol_kv::SERVER_PREFIX)?;
    let others: Vec<&str> = others.iter().map(Name::as_str).collect();
    let Some(one) = others.first() else { return Ok(()) };
    Err(Failure::Refused(format!(
        "a cache runs already ({}), and this starts its own: end each of its servers (`obol stop {one}`), or use a cluster \
         without (`obol up --cluster NAME`)",
        others.join(", ")
    )))
}

/// How the server of a place is called.
pub fn name(place: usize) -> String {
    format!("{}{}", obol_kv::SERVER_PREFIX, place + 1)
}

/// The servers by number.
pub struct Servers<'a> {
    root: &'a Path,
    cluster: Name,
    shards: u32,
    /// Of each server.
    options: &'a [&'a str],
    pub(super) running: Vec<Server>,
    pub(super) pids: Running,
    pub(super) disruption: Arc<Disruption>,
}

impl Drop for Servers<'_> {
    fn drop(&mut self) {
        terminate_and_wait(self.running.iter_mut().map(|server| &mut server.process.child));
        let places = self.running.len();
        self.running.clear();
        // The keys belonged to this command only, and so did servers that it has killed.
        if let Ok(site) = Site::open(self.root, self.cluster) {
            MarkOwner::Command.clear_all(&site);
        }
        let own: Vec<String> = (0..places).map(name).collect();
        // Servers of shards have a suffix.
        forget_own(self.root, self.cluster, |name| own.iter().any(|own| name.split('.').next() == Some(own)));
    }
}

impl<'a> Servers<'a> {
    /// Starts this many, in a cluster without any.
    pub fn start(
        root: &'a Path,
        cluster: Name,
        count: usize,
        shards: u32,
        options: &'a [&'a str],
    ) -> Result<Self, Failure> {
        require_no_servers(root, cluster)?;
        let (running, pids, disruption) = (Vec::new(), Arc::default(), Arc::default());
        let mut all = Self { root, cluster, shards, options, running, pids, disruption };
        let anew = [options, &["--force-empty"]].concat();
        for place in 0..count {
            // The check starts empty, whatever was there before. No server may start empty later.
            let server = Server::start(root, cluster, &name(place), shards, &anew, &all.disruption);
            all.running.push(server?);
        }
        all.list();
        Ok(all)
    }

    /// Reports the servers that may be frozen.
    fn list(&self) {
        let pids = self.running.iter().map(|server| server.process.child.id()).collect();
        *self.pids.lock() = pids;
    }

    /// Starts the server of a place.
    fn server(&self, place: usize) -> Result<Server, Failure> {
        Server::start(self.root, self.cluster, &name(place), self.shards, self.options, &self.disruption)
    }

    /// The place of the first shard's primary, once the backups of all primaries have everything.
    /// Starts servers again that have ended.
    pub fn redundant(&mut self) -> Result<usize, Failure> {
        let primary = self.redundant_unless(&AtomicBool::new(false))?;
        primary.ok_or_else(|| Failure::Failed("nobody waits for the cache any more".to_owned()))
    }

    /// The same until the operator has set `stop`, then `None`.
    pub(super) fn redundant_unless(&mut self, stop: &AtomicBool) -> Result<Option<usize>, Failure> {
        let end = std::time::Instant::now() + SERVE_TIMEOUT;
        loop {
            // Ctrl-C ends the servers as well: a new one would begin with nothing.
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            for place in 0..self.running.len() {
                if let Some(how) = self.running[place].process.child.try_wait().map_err(Failure::failed)? {
                    if how.code() == Some(REFUSED) {
                        return Err(Failure::Refused(format!("{} was refused, and said why", name(place))));
                    }
                    self.running[place] = self.server(place)?;
                    self.list();
                }
            }
            let stands: Vec<Vec<Standing>> = self.running.iter().map(Server::stands).collect();
            let alone = self.running.len() == 1;
            let primary = |shard: usize| {
                let leads = |of: &Standing| of.name == "primary" && (of.redundant || alone);
                stands.iter().position(|of| of.get(shard).is_some_and(leads))
            };
            let primaries: Option<Vec<usize>> = (0..self.shards as usize).map(primary).collect();
            if let Some(first) = primaries.and_then(|all| all.first().copied()) {
                return Ok(Some(first));
            }
            if std::time::Instant::now() > end {
                let lines = stands.iter().enumerate().map(|(place, of)| {
                    let of: Vec<&str> = of.iter().map(|of| of.name.as_str()).collect();
                    format!(
                        "{} is {}",
                        name(place),
                        if of.concat().is_empty() { "not there".into() } else { of.join(", ") }
                    )
                });
                return Err(Failure::Failed(format!(
                    "the cache is not redundant within {SERVE_TIMEOUT:?}: {}",
                    lines.collect::<Vec<_>>().join("; ")
                )));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Kills a server and starts it again. Output that the killed one left in its pipe is
    /// discarded.
    pub(super) fn kill(&mut self, place: usize) -> Result<(), Failure> {
        let server = &mut self.running[place].process;
        server.child.kill().map_err(Failure::failed)?;
        server.child.wait().map_err(Failure::failed)?;
        self.running[place] = self.server(place)?;
        self.list();
        Ok(())
    }
}

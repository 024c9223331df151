//! `obol up`: makes a cluster's memory, starts its processes, restarts what is asked for, and ends it
//! without a trace.

mod child_logs;
mod log;
mod server;
mod spares;
mod start;
mod supervisor;

pub use spares::Spare;

use crate::control::{Answer, Request};
use crate::directory::Made;
use crate::hosts::{self, HostNames};
use crate::saved;
use obol_fabric::Name;
use obol_fabric::host::clock;
use obol_logs::Settings;
use obol_membership::View;
use obol_membership::view::coordinator_name;
use obol_node::Deployment;
use obol_observe::Snapshot;
use obol_term::output::{self, Failure};
use server::Ask;
use spares::Spares;
use start::Start;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use supervisor::Supervisor;

/// Poll interval for the cluster. Stamps come from the processes; this only bounds how late they
/// are shown.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Poll interval while the console is open: only the summary and reaping depend on it.
const POLL_INTERVAL_BESIDE_CONSOLE: Duration = Duration::from_secs(1);

/// Who is shown a cluster while it is supervised.
pub trait Audience {
    /// What is left of the audience after the end.
    type Summary;

    /// The cluster now.
    fn snapshot(&mut self) -> Snapshot;

    /// Looks at the cluster, and shows what is new. How it is counts once it is `up`: before, some
    /// processes have just not begun. Gives the newest view.
    fn look(&mut self, up: bool) -> io::Result<Option<Arc<View>>>;

    /// The cluster is up.
    fn came_up(&mut self, snapshot: &Snapshot) -> io::Result<()>;

    /// A spare coordinator was started because others are missing, or could not be.
    fn spare(&mut self, started: &Result<Spare, String>) -> io::Result<()>;

    /// Whether a console has the terminal, so that nothing else is printed there.
    fn has_terminal(&self) -> bool;

    /// Gives the terminal back.
    fn release_terminal(&mut self);

    /// The cluster is about to end.
    fn end(self) -> Self::Summary;
}

/// Which cluster is made.
pub struct Options {
    /// Its name on each of its hosts.
    pub hosts: HostNames,
    /// Its processes.
    pub deployment: Deployment,
    /// Whether a replicated cache runs beside the apps, with a light load.
    pub kv: bool,
    /// Whether it belongs to a command, and ends with it.
    pub temporary: bool,
    /// How its processes log.
    pub log: Settings,
}

/// A cluster of this process. When it is dropped, its processes end first, then its memory is removed.
pub struct Supervised {
    supervisor: Supervisor,
    requests: Receiver<Ask>,
    spares: Option<Spares>,
    directories: Vec<Made>,
}

impl Supervised {
    /// Makes the memory of a cluster.
    pub fn make(root: &Path, options: &Options) -> Result<Self, Failure> {
        let Options { hosts, deployment, kv, temporary, log } = options;
        let cluster = hosts.of(1);
        let former = hosts::further_hosts(root, cluster);
        let deployments = hosts::deployments(deployment, root, hosts, obol_agent::seed())?;
        let made = hosts.all().iter().zip(&deployments).map(|(name, of)| Made::new(root, *name, of));
        let directories: Vec<Made> = made.collect::<Result<_, _>>()?;
        // A crashed one of this name may have had more hosts: their memory is made anew, and goes at once.
        for name in former.iter().filter(|name| !hosts.all().contains(name)) {
            drop(Made::new(root, *name, deployment)?);
        }
        hosts::make_keys(&deployments)?;
        let requests = server::listen(&root.join(cluster.as_str()))?;
        log::begin(root, hosts, log)?;
        let saves = if *temporary { None } else { saves(root, cluster)? };
        let saves = saves.unwrap_or_else(|| root.join(cluster.as_str()));
        let supervisor = Supervisor::new(root, hosts.clone(), deployment, *kv, log, saves)?;
        Ok(Self { supervisor, requests, spares: Spares::new(deployment), directories })
    }

    /// Starts its processes, until all run or it is enough.
    pub fn start(&mut self, is_enough: impl Fn() -> bool) -> Result<(), Failure> {
        let ordered = self.supervisor.ordered();
        start_each(&ordered, is_enough, |name| self.supervisor.start(name).map(drop)).map_err(Failure::Failed)
    }

    /// Serves requests and shows the cluster until it is to end; then ends it. Returns why it did not come
    /// up, if it did not, and what is left of the audience.
    pub fn supervise<A: Audience>(
        self,
        time: Option<Limit>,
        stop: &AtomicBool,
        audience: A,
    ) -> Result<(Option<String>, A::Summary), Failure> {
        // Dropped from the last to the first, should anything fail: the terminal is free before the processes
        // end, and they have ended before their memory is removed.
        let Self { directories, requests, mut spares, mut supervisor } = self;
        let mut audience = audience;
        let mut start = Start::new();
        let mut failed = None;
        let mut asked_to_stop = None;
        let mut next_look = Instant::now() + POLL_INTERVAL;
        while !stop.load(Ordering::Relaxed) && asked_to_stop.is_none() && failed.is_none() {
            if let Some(limit) = time.filter(Limit::is_over) {
                supervisor.reap();
                failed = start.check_at_end(limit.time, &audience.snapshot(), &supervisor).err();
                break;
            }
            let end = time.and_then(|limit| limit.end()).map_or(next_look, |end| next_look.min(end));
            match requests.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(ask) => asked_to_stop = serve(ask, &mut supervisor),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(POLL_INTERVAL),
            }
            // Requests may come faster than looks are due, and must not keep them off.
            if Instant::now() < next_look || stop.load(Ordering::Relaxed) || asked_to_stop.is_some() {
                continue;
            }
            // The console looks by itself.
            let is_beside = start.up && audience.has_terminal();
            next_look = Instant::now() + if is_beside { POLL_INTERVAL_BESIDE_CONSOLE } else { POLL_INTERVAL };
            if let Some(gone) = directories.iter().find(|directory| !directory.is_there()) {
                let cluster = gone.cluster();
                // Nothing is printed over the console.
                audience.release_terminal();
                output::remark(format_args!("obol: the directory of cluster {cluster} was removed; ending"))?;
                break;
            }
            supervisor.reap();
            let view = audience.look(start.up)?;
            if let Some(started) = start_spare(spares.as_mut(), view.as_deref(), &mut supervisor) {
                audience.spare(&started)?;
            }
            if !start.up {
                let snapshot = audience.snapshot();
                failed = start.judge(&snapshot, &supervisor).err();
                if start.up {
                    tracing::info!(target: "up", "the cluster is {}", snapshot.health.name());
                    audience.came_up(&snapshot)?;
                    if !audience.has_terminal() {
                        supervisor.child_logs.pass();
                    }
                }
            }
        }
        let summary = audience.end();
        if failed.is_some() {
            supervisor.child_logs.drop_kept();
        }
        let logs = Arc::clone(&supervisor.child_logs);
        drop(supervisor);
        if let Some(ask) = asked_to_stop {
            ask.answer(&Answer::Done { pid: None });
        }
        if failed.is_none() {
            // The terminal is free again.
            logs.pass();
        }
        Ok((failed, summary))
    }
}

/// Starts one after the other, until it is enough: many of them take long on a small machine.
fn start_each(
    names: &[String],
    is_enough: impl Fn() -> bool,
    mut start: impl FnMut(&str) -> Result<(), String>,
) -> Result<(), String> {
    names.iter().take_while(|_| !is_enough()).try_for_each(|name| start(name))
}

/// How long a cluster runs.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// When the command began.
    pub began: Instant,
    /// The time that it has.
    pub time: Duration,
}

impl Limit {
    /// Whether the time is over.
    pub fn is_over(&self) -> bool {
        self.began.elapsed() >= self.time
    }

    fn end(&self) -> Option<Instant> {
        self.began.checked_add(self.time)
    }
}

/// The folder of a cluster's saved views; none if there can be none that outlives a boot.
fn saves(root: &Path, cluster: Name) -> Result<Option<PathBuf>, Failure> {
    match saved::begin(root, cluster) {
        Ok(saves) => Ok(saves),
        Err((at, error)) => {
            output::remark(format_args!(
                "obol: {}: {error}; coordinators save views in the cluster's directory, which does not outlive a boot",
                at.display()
            ))?;
            Ok(None)
        }
    }
}

/// Answers a request; gives back that to stop, which is answered at the end.
fn serve(ask: Ask, supervisor: &mut Supervisor) -> Option<Ask> {
    ask.answer(&match &ask.request {
        Request::Start { name } => match supervisor.start_again(name) {
            Ok(pid) => Answer::Done { pid: Some(pid) },
            Err(reason) => Answer::Refused { reason },
        },
        Request::Why { name } => Answer::Refused { reason: supervisor.why(name) },
        Request::Hello => Answer::Done { pid: Some(std::process::id()) },
        Request::Stop => return Some(ask),
    });
    None
}

/// Starts a spare coordinator where one is wanted.
fn start_spare(
    spares: Option<&mut Spares>,
    view: Option<&View>,
    supervisor: &mut Supervisor,
) -> Option<Result<Spare, String>> {
    let (view, spares) = view.zip(spares)?;
    let number = spares.wanted(view, clock::now(), |n| supervisor.is_used(n))?;
    let started = supervisor.start_again(coordinator_name(number).as_str());
    match &started {
        Ok(_) => tracing::warn!(target: "up", "started coord-{number} as a spare: another is missing"),
        Err(reason) => tracing::error!(target: "up", "no spare coordinator: {reason}"),
    }
    Some(started.map(|pid| Spare::of(number, pid, view)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn a_signal_that_comes_while_processes_are_started_ends_that_at_the_next_one() {
        let names = ["coord-1", "coord-2", "coord-3", "node-1"].map(str::to_owned);
        let (stop, (blocks, blocked), (free, freed)) =
            (AtomicBool::new(false), sync_channel::<()>(0), sync_channel::<()>(0));
        let mut started = Vec::new();
        std::thread::scope(|scope| {
            let stop = &stop;
            scope.spawn(move || {
                blocked.recv().expect("the second one begins");
                stop.store(true, Ordering::Relaxed);
                free.send(()).expect("it waits");
            });
            let start = |name: &str| {
                started.push(name.to_owned());
                if started.len() == 2 {
                    blocks.send(()).expect("its peer waits");
                    freed.recv().expect("freed");
                }
                Ok(())
            };
            start_each(&names, || stop.load(Ordering::Relaxed), start).expect("started");
        });
        assert_eq!(started, ["coord-1", "coord-2"]);
    }

    #[test]
    fn one_that_cannot_be_started_is_the_last_that_is_tried() {
        let names = ["coord-1", "coord-2"].map(str::to_owned);
        let mut tried = 0;
        let start = |name: &str| {
            tried += 1;
            Err(format!("could not start {name}"))
        };
        assert_eq!(start_each(&names, || false, start), Err("could not start coord-1".to_owned()));
        assert_eq!(tried, 1);
    }
}

//! The processes of a cluster: how each is started, and how it ended.

use super::child_logs::ChildLogs;
use super::log;
use crate::hosts::HostNames;
use crate::logging;
use crate::processes::{DYING_TIMEOUT, unused};
use obol_fabric::Name;
use obol_fabric::host::this_program;
use obol_fabric::host::{Cluster, is_dying, sched};
use obol_logs::Settings;
use obol_membership::view::coordinator_name;
use obol_node::Deployment;
use obol_node::deployment::{app_node_names, cache_name};
use obol_term::output::Failure;
use signal_hook::consts::{SIGBUS, SIGINT, SIGKILL, SIGTERM};
use std::collections::BTreeMap;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The command of a host's gateway, and the beginning of its name.
const GATEWAY: &str = "gateway";
/// Servers of the demo's cache: one dies, one takes over, one becomes its backup.
const KV_SERVERS: u16 = 3;
/// How often they look into their memory unasked, and the demo's client asks: it rings, and backups
/// have room for seconds of it.
const KV_EVERY: &str = "100ms";
/// The demo's client.
const KV_LOAD: &str = "kvc-load";

/// The arguments of coordinator `number`. It keeps the newest view in a file: an operator continues
/// from it after the memory of a majority is lost.
fn coordinator(number: u16, saves: &Path) -> Vec<String> {
    let save = saves.join(format!("{}.view", coordinator_name(number)));
    let save = save.display().to_string();
    vec!["coordinator".into(), "run".into(), "--number".into(), number.to_string(), "--save".into(), save]
}

/// A process, and the thread that listens to its standard error.
struct Started {
    child: Child,
    listener: Option<JoinHandle<()>>,
    /// Its cluster's, on its host.
    dir: PathBuf,
    ended: Option<ExitStatus>,
    /// It was started after the others: its failure says nothing about the start of the cluster.
    later: bool,
}

/// How a process is started.
#[derive(Clone)]
struct Spec {
    /// The name of the cluster on its host.
    cluster: Name,
    arguments: Vec<String>,
}

/// The processes of a cluster.
pub(super) struct Supervisor {
    root: PathBuf,
    hosts: HostNames,
    program: PathBuf,
    /// The cluster's.
    directory: PathBuf,
    /// Where coordinators save views.
    saves: PathBuf,
    /// How each process is started, by name.
    specs: BTreeMap<String, Spec>,
    /// Coordinators that the profile has room for; those beyond the first ones may be added later.
    coordinators_max: u16,
    children: BTreeMap<String, Started>,
    pub(super) child_logs: Arc<ChildLogs>,
    /// How they log.
    environment: [(&'static str, String); 3],
}

impl Supervisor {
    pub(super) fn new(
        root: &Path,
        hosts: HostNames,
        deployment: &Deployment,
        kv: bool,
        log: &Settings,
        saves: PathBuf,
    ) -> Result<Self, Failure> {
        let program = this_program::file().map_err(Failure::failed)?;
        let directory = root.join(hosts.of(1).as_str());
        let mut specs = BTreeMap::new();
        // Processes of a kind take turns on the hosts; what belongs together has one number.
        let mut add = |number: u16, name: String, arguments: Vec<String>| {
            specs.insert(name, Spec { cluster: hosts.of(number), arguments });
        };
        if hosts.are_several() {
            for n in (1..).take(hosts.all().len()) {
                let name = format!("{GATEWAY}-{n}");
                add(n, name.clone(), vec![GATEWAY.into(), "--name".into(), name]);
            }
        }
        for n in 1..=deployment.coordinators {
            add(n, coordinator_name(n).to_string(), coordinator(n, &saves));
        }
        for n in 1..=deployment.caches {
            let name = cache_name(n);
            add(n, name.clone(), vec!["lease-cache".into(), "--name".into(), name]);
        }
        for n in 1..=deployment.apps {
            let [node, app] = app_node_names(n);
            add(n, node.clone(), vec!["agent".into(), "--name".into(), node.clone()]);
            add(n, app.clone(), vec!["app".into(), "--name".into(), app, "--node".into(), node]);
        }
        if kv {
            for n in 1..=KV_SERVERS {
                let name = format!("{}{n}", obol_kv::SERVER_PREFIX);
                let look = ["--poll-every".into(), KV_EVERY.into(), "--tied".into()];
                let server = ["kv".into(), "server".into(), "--name".into(), name.clone()];
                add(n, name, server.into_iter().chain(look).collect());
            }
            let load = ["kv", "load", "--name", KV_LOAD, "--every", KV_EVERY, "--tied"];
            add(1, KV_LOAD.into(), load.map(String::from).into());
        }
        let coordinators_max = u16::try_from(deployment.profile.limits.proposers).unwrap_or(u16::MAX);
        Ok(Self {
            root: root.to_owned(),
            hosts,
            program,
            directory,
            saves,
            specs,
            coordinators_max,
            children: BTreeMap::new(),
            child_logs: Arc::default(),
            environment: logging::environment(log),
        })
    }

    /// The names of the first processes, in the order in which they are started.
    pub(super) fn ordered(&self) -> Vec<String> {
        let order = |name: &String| {
            [GATEWAY, "coord", "cache", "node", "app", "kv-", KV_LOAD]
                .iter()
                .position(|kind| name.starts_with(kind))
        };
        let mut ordered: Vec<String> = self.specs.keys().cloned().collect();
        ordered.sort_by_key(order);
        ordered
    }

    /// How a process is started.
    fn spec(&self, name: &str) -> Result<Spec, String> {
        let added = (1..=self.coordinators_max).find(|n| coordinator_name(*n).as_str() == name);
        let added = added.map(|n| Spec { cluster: self.hosts.of(n), arguments: coordinator(n, &self.saves) });
        self.specs.get(name).cloned().or(added).ok_or_else(|| {
            let names: Vec<&str> = self.specs.keys().map(String::as_str).collect();
            format!("no process {name} belongs to this cluster; there are: {}", names.join(", "))
        })
    }

    /// Starts a process that was asked for: one that does not run, and whose name was not taken
    /// meanwhile.
    pub(super) fn start_again(&mut self, name: &str) -> Result<u32, String> {
        let home = self.spec(name)?.cluster;
        self.wait_for_end(name)?;
        unused(&self.root, home, name).map_err(|failure| failure.to_string())?;
        let pid = self.start(name)?;
        if let Some(started) = self.children.get_mut(name) {
            started.later = true;
        }
        Ok(pid)
    }

    /// Refuses a child that runs.
    fn wait_for_end(&mut self, name: &str) -> Result<(), String> {
        let Some(Started { child, .. }) = self.children.get_mut(name) else { return Ok(()) };
        let end = Instant::now() + DYING_TIMEOUT;
        loop {
            match child.try_wait() {
                Ok(Some(_)) => return Ok(()),
                // Asked for right after a kill: the kernel may not have taken the old one away yet.
                Ok(None) if is_dying(child.id()) && Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Ok(None) => return Err(format!("{name} runs already (pid {})", child.id())),
                Err(error) => return Err(format!("could not check {name}: {error}")),
            }
        }
    }

    /// Starts a process that does not run.
    pub(super) fn start(&mut self, name: &str) -> Result<u32, String> {
        let Spec { cluster, arguments } = self.spec(name)?;
        self.wait_for_end(name)?;
        // The end of an earlier one is logged before.
        self.reap();
        let dir = self.root.join(cluster.as_str());
        log::begins(&dir, name);
        let mut child = sched::pass_parent_id(&mut Command::new(&self.program))
            .args(["--cluster", cluster.as_str(), "--root"])
            .arg(&self.root)
            .args(arguments)
            .envs(self.environment.clone())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // Ctrl-C is for `up` alone, which then ends them; otherwise they would seem to fail.
            .process_group(0)
            .spawn()
            .map_err(|error| format!("could not start {name}: {error}"))?;
        let pid = child.id();
        tracing::info!(target: "up", who = name, pid, "started {name} (pid {pid})");
        let logged = child.stderr.take().map(|from| self.child_logs.listen(name, from)).transpose();
        let failed = logged
            .as_ref()
            .err()
            .map(|error| format!("could not start a thread for the errors of {name}: {error}"));
        let listener = logged.unwrap_or_default();
        self.children.insert(name.to_owned(), Started { child, listener, dir, ended: None, later: false });
        failed.map_or(Ok(pid), Err)
    }

    /// Whether a process has been started and has not ended.
    fn runs(&self, name: &str) -> bool {
        self.children.get(name).is_some_and(|started| started.ended.is_none())
    }

    /// Whether a coordinator could not be started as a spare: it runs, or its number was lost with
    /// its memory.
    pub(super) fn is_used(&self, number: u16) -> bool {
        let cluster = Cluster::open(&self.root, self.hosts.of(number));
        self.runs(coordinator_name(number).as_str())
            || cluster.is_ok_and(|cluster| cluster.has_lost_memory(u32::from(number)))
    }

    /// Takes away processes that have ended, so that no zombie is left.
    pub(super) fn reap(&mut self) {
        for (name, started) in self.children.iter_mut().filter(|(_, started)| started.ended.is_none()) {
            // An error means that it is not a child any more, which is what reaping is for.
            started.ended = started.child.try_wait().ok().flatten();
            if let Some(status) = started.ended {
                log::end(&started.dir, name, started.child.id(), status);
            }
            if let (Some(_), Some(listener)) =
                (started.ended, started.listener.take_if(|_| started.ended.is_some()))
            {
                // Its end of the pipe is closed: what it said last is read to the end. A panic was
                // reported by the runtime.
                let _ = listener.join();
            }
        }
    }

    /// Why a process is missing, if it failed by itself and was neither stopped nor killed.
    fn failure(&self, name: &str) -> Option<String> {
        let status = self.children.get(name)?.ended?;
        let asked = matches!(status.signal(), Some(SIGKILL | SIGTERM | SIGINT));
        if status.success() || asked {
            return None;
        }
        let (last, how) = (self.child_logs.last(name), log::words(status));
        Some(match (status.signal(), last) {
            (None, Some(last)) => last,
            (None, None) => format!("{how}, and it wrote nothing"),
            (Some(SIGBUS), _) => {
                format!("{how}: there is no room for its memory; free space in {}", self.directory.display())
            }
            (Some(_), last) => format!("{how}{}", last.map_or(String::new(), |s| format!(": {s}"))),
        })
    }

    /// Who of those that the cluster begins with has failed by itself, and why.
    pub(super) fn failures(&self) -> BTreeMap<String, String> {
        let first = self.children.iter().filter(|(_, started)| !started.later);
        first.filter_map(|(name, _)| Some((name.clone(), self.failure(name)?))).collect()
    }

    /// Why a process that was started is not there.
    pub(super) fn why(&mut self, name: &str) -> String {
        self.reap();
        match (self.children.get(name), self.failure(name)) {
            (_, Some(reason)) => format!("{name} ended at once: {reason}"),
            (Some(Started { ended: Some(status), .. }), None) => {
                format!("{name} has ended: {}", log::words(*status))
            }
            (Some(started), None) => format!("{name} runs (pid {})", started.child.id()),
            (None, None) => format!("{name} was not started"),
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        for started in self.children.values_mut() {
            // Who has ended already cannot be killed.
            let _ = started.child.kill();
        }
        for started in self.children.values_mut() {
            let _ = started.child.wait();
            // Its last lines are forwarded before `up` ends.
            let _ = started.listener.take().map(JoinHandle::join);
        }
    }
}

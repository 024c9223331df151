//! `obol up`: make a cluster's memory, start its processes, show it, and end it without a trace.

mod announce;
mod child_logs;
pub(crate) mod live;
mod log;
mod spares;

use crate::directory::Made;
use crate::ending::{DYING_TIMEOUT, unused};
use crate::logging::LogOptions;
use crate::{saved, signals};
use announce::announce;
use child_logs::{ChildLogs, by_reason};
use clap::Args;
use clap::builder::ArgPredicate;
use live::{Live, SummaryJson};
use obol_chaos::control::{self, Answer, Request};
use obol_chaos::hosts::{self, HostNames};
use obol_chaos::running;
use obol_config::duration;
use obol_console::options::Look;
use obol_console::{Background, Console};
use obol_fabric::Name;
use obol_fabric::host::peer::{peer, user};
use obol_fabric::host::{Cluster, clock, is_dying, sched};
use obol_fabric::notice::Detection;
use obol_membership::View;
use obol_membership::view::coordinator_name;
use obol_node::ClusterLocation;
use obol_node::deployment::{app_node_names, cache_name};
use obol_node::{Deployment, Network};
use obol_observe::{Health, Observer, Snapshot};
use obol_profiles::Profile;
use obol_term::output::{self, Failure};
use serde::Serialize;
use signal_hook::consts::{SIGBUS, SIGINT, SIGKILL, SIGTERM};
use spares::Spares;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Start a cluster on this host and show it live
#[derive(Debug, Args)]
#[command(
    after_help = "Ctrl-C ends the cluster and removes everything it left in /dev/shm; the console asks first.\n\
    \nTry in another terminal:\n  obol status\n  obol kill app-2 && obol start app-2\n  obol drill app --count 300"
)]
pub(crate) struct Up {
    /// Coordinators (1 to 7; a majority must run)
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=7))]
    pub(crate) coordinators: u16,
    /// App nodes, each an agent with a demo app attached to it
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) apps: u16,
    /// Lease caches, which renew the leases of agents so that coordinators need not
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=16))]
    pub(crate) caches: u16,
    /// A replicated cache beside the apps, with a light load: kill its primary without an outage
    #[arg(long)]
    pub(crate) kv: bool,
    /// Profile: a name that `obol profile list` knows, or a file
    #[arg(
        long,
        value_name = "NAME|FILE",
        default_value = "laptop",
        default_value_if("hosts", ArgPredicate::IsPresent, "lan")
    )]
    pub(crate) profile: String,
    /// Simulate this many hosts on loopback addresses, each with memory, keys and a gateway of its
    /// own; they reach each other over IP. The default profile is then lan
    #[arg(long, value_name = "N", conflicts_with = "rdma", value_parser = clap::value_parser!(u8).range(2..=9))]
    pub(crate) hosts: Option<u8>,
    /// Label of the environment; a drill runs only in the one that it names
    #[arg(long, value_name = "LABEL", default_value = obol_node::deployment::ENVIRONMENT)]
    pub(crate) environment: obol_fabric::Name,
    /// Join the processes over RDMA, by this address of the host, instead of shared memory; try the
    /// profile soft-roce
    #[arg(long, value_name = "IP[:PORT]", value_parser = obol_node::network::listen)]
    pub(crate) rdma: Option<SocketAddr>,
    /// Have them know each other by keys, as the processes of several hosts do: connections and
    /// datagrams are authenticated
    #[arg(long, requires = "rdma")]
    pub(crate) rdma_keys: bool,
    /// Do not show the cluster; print one line when it is up
    #[arg(long)]
    pub(crate) headless: bool,
    /// Print lines instead of opening the console, as it does where there is no terminal
    #[arg(long)]
    pub(crate) plain: bool,
    /// Record the console's samples to this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["headless", "plain", "json"])]
    pub(crate) record: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) look: Look,
    /// Let drills be armed in the console, on screen 6
    #[arg(long, conflicts_with_all = ["headless", "plain", "json"])]
    pub(crate) arm: bool,
    /// End by itself after this time, such as 20s or 1500ms
    #[arg(long = "for", value_name = "TIME", value_parser = duration::argument)]
    pub(crate) time: Option<Duration>,
    /// Print events, and at the end a summary, as lines of JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Read the profile from standard input, and end with it (asked for by commands with a cluster
    /// of their own)
    #[arg(long, hide = true)]
    pub(crate) temporary: bool,
    #[command(flatten)]
    pub(crate) log: LogOptions,
}

/// Poll interval for the cluster. Stamps come from the processes; this only bounds how late they
/// are shown.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The same while the console shows the cluster, and only the summary and the dead children are to
/// be cared for.
const LOOK_BESIDE: Duration = Duration::from_secs(1);
/// Time from the start of the last process. A cluster that is not healthy by then is shown as it is;
/// one in which no process acts has failed to start.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Grace period after the first failed start, so that one message reports all.
const FAILING_TIMEOUT: Duration = Duration::from_millis(300);
/// A caller that does not read its answer is given up after this long.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// The command of a host's gateway, and the beginning of its name.
const GATEWAY: &str = "gateway";
/// Servers of the demo's cache: one dies, one takes over, one becomes its backup.
const KV_SERVERS: u16 = 3;
/// How often they look into their memory unasked, and the demo's client asks: it rings, and backups
/// have room for seconds of it.
const KV_EVERY: &str = "100ms";
/// The demo's client.
const KV_LOAD: &str = "kv_load";

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
    /// How it ended.
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
struct Supervisor {
    root: PathBuf,
    cluster: Name,
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
    child_logs: Arc<ChildLogs>,
    /// How they log.
    environment: [(&'static str, String); 3],
}

impl Supervisor {
    fn new(
        root: &Path,
        hosts: HostNames,
        deployment: &Deployment,
        (kv, log): (bool, &LogOptions),
        saves: PathBuf,
    ) -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(Failure::failed)?;
        let cluster = hosts.of(1);
        let directory = root.join(cluster.as_str());
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
            cluster,
            hosts,
            program,
            directory,
            saves,
            specs,
            coordinators_max,
            children: BTreeMap::new(),
            child_logs: Arc::default(),
            environment: log.environment(),
        })
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
    fn start_again(&mut self, name: &str) -> Result<u32, String> {
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
    fn start(&mut self, name: &str) -> Result<u32, String> {
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
    fn is_used(&self, number: u16) -> bool {
        let cluster = Cluster::open(&self.root, self.hosts.of(number));
        self.runs(coordinator_name(number).as_str())
            || cluster.is_ok_and(|cluster| cluster.has_lost_memory(u32::from(number)))
    }

    /// Takes away processes that have ended, so that no zombie is left.
    fn reap(&mut self) {
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
    fn failures(&self) -> BTreeMap<String, String> {
        let first = self.children.iter().filter(|(_, started)| !started.later);
        first.filter_map(|(name, _)| Some((name.clone(), self.failure(name)?))).collect()
    }

    /// Why a process that was started is not there.
    fn why(&mut self, name: &str) -> String {
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

/// A request and its caller.
struct Ask {
    request: Request,
    caller: UnixStream,
}

impl Ask {
    fn answer(&self, answer: &Answer) {
        // A caller that went away does not want to know.
        let _ = control::write_line(&self.caller, answer);
    }
}

fn listen(dir: &Path) -> Result<Receiver<Ask>, Failure> {
    let at = dir.join(control::SOCKET);
    let failed = Failure::refused_at(&at);
    let listener = UnixListener::bind(&at).map_err(failed)?;
    let (tx, rx) = mpsc::channel();
    let accept = move || {
        for caller in listener.incoming().flatten() {
            let tx = tx.clone();
            // Each caller has a thread, so a silent one delays no other.
            std::thread::spawn(move || read_request(caller, &tx));
        }
    };
    std::thread::Builder::new().name("control".to_owned()).spawn(accept).map_err(failed)?;
    Ok(rx)
}

fn read_request(caller: UnixStream, tx: &Sender<Ask>) {
    // Directory and socket are private, but modes can be changed, and descriptors handed on.
    let allowed = peer(&caller).is_ok_and(|who| who.uid == 0 || who.uid == user());
    // The supervisor writes the answer itself and must not hang on a caller that does not read.
    if caller.set_write_timeout(Some(ANSWER_TIMEOUT)).is_err() {
        return;
    }
    if !allowed && caller.set_read_timeout(Some(ANSWER_TIMEOUT)).is_err() {
        return;
    }
    let reason = match control::read_line::<Request>(&caller) {
        // If the supervisor is ending, the caller sees the connection close.
        Ok(request) if allowed => return drop(tx.send(Ask { request, caller })),
        // It was read first: an answer to what was not read is lost with the connection.
        Ok(_) => "only the user who runs `obol up`, and root, may ask it for anything".to_owned(),
        Err(_) if !allowed => return,
        Err(error) => format!("not a request: {error}"),
    };
    // A caller that went away does not want to know.
    let _ = control::write_line(&caller, &Answer::Refused { reason });
}

pub(crate) fn run(root: &Path, cluster: Name, options: &Up) -> Result<ExitCode, Failure> {
    // What it takes to start the processes is part of the start.
    let (began, began_at) = (Instant::now(), clock::now());
    let profile = match options.temporary {
        true => running::profile_sent()?,
        false => Profile::load(&options.profile).map_err(Failure::refused)?,
    };
    let mut deployment = Deployment::new(options.coordinators, options.apps, options.caches, profile)
        .map_err(Failure::refused)?
        .labelled(options.environment);
    if let Some(at) = options.rdma {
        // One that comes later, in place of another, needs an address as well.
        let most = u16::try_from(deployment.profile.limits.proposers).unwrap_or(u16::MAX);
        let network = Network::local(obol_agent::seed(), at.ip(), at.port(), most);
        let keys = options.rdma_keys.then(|| root.join(cluster.as_str()));
        deployment = deployment.over(Network { rdma_keys: keys, ..network });
    }
    let console = !options.json && !options.headless && !options.plain && obol_console::is_possible();
    // Before anything is started.
    if options.record.is_some() && !obol_console::is_possible() {
        return Err(Failure::Refused(
            "--record records what the console sees, and there is no terminal for it; use `obol record FILE` beside `up`"
                .to_owned(),
        ));
    }
    let config = match console {
        true => obol_console::config::Config::load(options.look.config.as_deref())?,
        false => obol_console::config::Config::default(),
    };
    let stop = signals::ending()?;
    if options.temporary {
        running::stop_with_sender(Arc::clone(&stop))?;
    }
    // From here on everything is undone when this function is left: first the processes, then the
    // directory.
    let hosts = HostNames::new(cluster, options.hosts)?;
    let former = hosts::further_hosts(root, cluster);
    let deployments = hosts::deployments(&deployment, root, &hosts, obol_agent::seed())?;
    let made = hosts.all().iter().zip(&deployments).map(|(name, of)| Made::new(root, *name, of));
    let directories: Vec<Made> = made.collect::<Result<_, _>>()?;
    // A crashed one of this name may have had more hosts: their memory is made anew, and goes at once.
    for name in former.iter().filter(|name| !hosts.all().contains(name)) {
        drop(Made::new(root, *name, &deployment)?);
    }
    hosts::make_keys(&deployments)?;
    let requests = listen(&root.join(cluster.as_str()))?;
    let log = if options.temporary { options.log.off_unless_asked() } else { options.log.clone() };
    log::begin(root, &hosts, &log)?;
    let saves = if options.temporary { None } else { saves(root, cluster)? };
    let saves = saves.unwrap_or_else(|| root.join(cluster.as_str()));
    let mut supervisor = Supervisor::new(root, hosts.clone(), &deployment, (options.kv, &log), saves)?;
    let order = |name: &String| {
        [GATEWAY, "coord", "cache", "node", "app", "kv-", KV_LOAD]
            .iter()
            .position(|kind| name.starts_with(kind))
    };
    let mut ordered: Vec<String> = supervisor.specs.keys().cloned().collect();
    ordered.sort_by_key(order);
    for name in &ordered {
        // Many of them take long on a small machine.
        if stop.load(Ordering::Relaxed) || options.time.is_some_and(|time| began.elapsed() >= time) {
            break;
        }
        supervisor.start(name).map_err(Failure::Failed)?;
    }
    if !options.json && !console {
        announce(&hosts, &deployment)?;
    }
    let observer = Observer::open(root, cluster).map_err(Failure::failed)?;
    let quiet = console || options.headless && !options.json;
    let live = Live::new(cluster, observer, options.json, quiet, began_at);
    let spares = Spares::new(&deployment);
    let location = ClusterLocation { root: root.to_owned(), cluster };
    let shown = console.then(|| {
        let console = Console::new(location, options.look.clone(), config, true);
        Background::start(console.record(options.record.clone()).arm(options.arm), Arc::clone(&stop))
    });
    let shown = shown.transpose()?;
    event_loop(&directories, (live, spares), supervisor, (&requests, &stop), options, (began, shown))
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

/// How far a cluster is that starts.
struct Start {
    /// When its last process had been started.
    all_started: Instant,
    /// When the first process was found to have failed.
    failing: Option<Instant>,
    up: bool,
}

impl Start {
    /// Judges a cluster that is not up yet; why it never will be.
    fn judge(&mut self, snapshot: &Snapshot, supervisor: &Supervisor) -> Result<(), String> {
        let failures = supervisor.failures();
        if snapshot.health == Health::Healthy && failures.is_empty() {
            self.up = true;
            return Ok(());
        }
        if !failures.is_empty() && self.failing.get_or_insert_with(Instant::now).elapsed() >= FAILING_TIMEOUT
        {
            return Err(by_reason(&failures));
        }
        if self.all_started.elapsed() > START_TIMEOUT {
            self.up = acts(snapshot);
            if !self.up {
                return Err(unstarted(snapshot, &failures));
            }
        }
        Ok(())
    }

    /// Checks a cluster whose time is over; the error says why it did not come up.
    fn check_at_end(
        &self,
        time: Duration,
        snapshot: &Snapshot,
        supervisor: &Supervisor,
    ) -> Result<(), String> {
        if self.up || acts(snapshot) {
            return Ok(());
        }
        Err(format!("it had {time:?}, and then\n  {}", unstarted(snapshot, &supervisor.failures())))
    }
}

/// Whether any program may act.
fn acts(snapshot: &Snapshot) -> bool {
    snapshot.all_processes().any(|process| process.is_active(snapshot.at))
}

fn unstarted(snapshot: &Snapshot, failures: &BTreeMap<String, String>) -> String {
    if !failures.is_empty() {
        return by_reason(failures);
    }
    let why = if snapshot.reasons.is_empty() {
        "no program may act yet".to_owned()
    } else {
        snapshot.reasons.join("\n  ")
    };
    format!("it is {}\n  {why}", snapshot.health.name())
}

/// Shows the cluster and serves requests until the end.
fn event_loop(
    directories: &[Made],
    (mut live, mut spares): (Live, Option<Spares>),
    mut supervisor: Supervisor,
    (requests, stop): (&Receiver<Ask>, &AtomicBool),
    options: &Up,
    (began, mut shown): (Instant, Option<Background>),
) -> Result<ExitCode, Failure> {
    let cluster = supervisor.cluster;
    let mut start = Start { all_started: Instant::now(), failing: None, up: false };
    let mut failed = None;
    let mut asked_to_stop = None;
    let mut next_look = start.all_started + POLL_INTERVAL;
    while !stop.load(Ordering::Relaxed) && asked_to_stop.is_none() && failed.is_none() {
        if let Some(time) = options.time.filter(|time| began.elapsed() >= *time) {
            supervisor.reap();
            failed = start.check_at_end(time, &live.snapshot(), &supervisor).err();
            break;
        }
        let end =
            options.time.and_then(|time| began.checked_add(time)).map_or(next_look, |end| next_look.min(end));
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
        next_look = Instant::now() + if start.up && shown.is_some() { LOOK_BESIDE } else { POLL_INTERVAL };
        if let Some(gone) = directories.iter().find(|directory| !directory.is_there()) {
            let cluster = gone.cluster();
            // Nothing is printed over the console.
            drop(shown.take());
            output::remark(format_args!("obol: the directory of cluster {cluster} was removed; ending"))?;
            break;
        }
        supervisor.reap();
        let view = live.look(start.up)?;
        start_spare(spares.as_mut(), view.as_deref(), &mut supervisor, (shown.is_some(), options.json))?;
        if !start.up {
            let snapshot = live.snapshot();
            failed = start.judge(&snapshot, &supervisor).err();
            if start.up {
                tracing::info!(target: "up", "the cluster is {}", snapshot.health.name());
                report_up(&snapshot, began, options)?;
                if shown.is_none() {
                    supervisor.child_logs.pass();
                }
            }
        }
    }
    let summary = live.summary();
    let console = shown.map_or(Ok(()), Background::close);
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
    conclude(cluster, failed, &summary, console, options.json)
}

/// Reports how a cluster ended.
fn conclude(
    cluster: Name,
    failed: Option<String>,
    summary: &SummaryJson,
    console: Result<(), Failure>,
    json: bool,
) -> Result<ExitCode, Failure> {
    match &failed {
        Some(reason) => tracing::error!(target: "up", "the cluster did not come up: {reason}"),
        None => tracing::info!(target: "up", "the cluster has ended. {}", summary.words()),
    }
    let Some(reason) = failed else {
        output::json_or(json, summary, |summary| {
            output::line(format_args!("obol: cluster {cluster} has ended. {}", summary.words()))
        })?;
        return console.map(|()| ExitCode::SUCCESS);
    };
    if json {
        output::json(&FailedJson { event: "failed", reason: &reason })?;
        output::json(summary)?;
    }
    console?;
    Err(Failure::Failed(format!("cluster {cluster} did not come up:\n  {reason}")))
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
    (is_shown, json): (bool, bool),
) -> Result<(), Failure> {
    let Some((view, spares)) = view.zip(spares) else { return Ok(()) };
    let Some(number) = spares.wanted(view, clock::now(), |n| supervisor.is_used(n)) else { return Ok(()) };
    // The console has the terminal; it shows views and events itself.
    let started = supervisor.start_again(coordinator_name(number).as_str());
    match &started {
        Ok(_) => tracing::warn!(target: "up", "started coord-{number} as a spare: another is missing"),
        Err(reason) => tracing::error!(target: "up", "no spare coordinator: {reason}"),
    }
    match started {
        Ok(pid) if !is_shown => spares::report(number, pid, view, json)?,
        Err(reason) if !is_shown => output::remark(format_args!("obol: {reason}"))?,
        Ok(_) | Err(_) => {}
    }
    Ok(())
}

/// That a cluster did not come up, in JSON.
#[derive(Serialize)]
struct FailedJson<'a> {
    event: &'static str,
    reason: &'a str,
}

fn report_up(snapshot: &Snapshot, began: Instant, options: &Up) -> std::io::Result<()> {
    let after_s = began.elapsed().as_secs_f64();
    if options.json {
        #[derive(Serialize)]
        struct UpJson<'a> {
            event: &'static str,
            health: Health,
            reasons: &'a [String],
            after_s: f64,
            deadbeat: Option<&'static str>,
        }
        let (health, reasons) = (snapshot.health, snapshot.reasons.as_slice());
        let deadbeat = snapshot.detection().map(Detection::name);
        return output::json(&UpJson { event: "up", health, reasons, after_s, deadbeat });
    }
    if options.headless {
        let deaths = snapshot
            .detection()
            .map_or(String::new(), |by| format!("; deaths are detected by {}", by.name()));
        output::line(format_args!("up after {after_s:.2}s: {}{deaths}", snapshot.health.name()))?;
        for reason in &snapshot.reasons {
            output::line(format_args!("  ! {reason}"))?;
        }
    }
    Ok(())
}

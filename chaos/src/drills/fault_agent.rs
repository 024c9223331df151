//! The fault agent: injects faults on the cue, without depending on the runner being scheduled, and
//! undoes them when the runner is gone.
//!
//! It takes orders from one runner: its parent over a Unix socket or, on another host, the
//! operator's ssh over standard input and output. It is armed with a single-use token and a
//! deadline. From then on it holds its targets by pidfd, and it checks every guard itself. Before
//! it reports that it is armed, its undo record is on disk. On the cue it injects and stamps each
//! fault.

use super::channel::{
    Arm, INJECTIONS_MAX, Injection, Lines, Order, Reply, Stamp, TargetProcess, socket_name,
};
use super::core_warmer::CoreWarmer;
use super::cue::{REGION_KIND, Token};
use super::select::Chosen;
use super::undo::{Record, Undone};
use super::{guard, halt};
use crate::control::write_line;
use crate::drillfile::Guards;
use crate::faults::{self, Armed, Arming};
use obol_fabric::host::peer::{peer, user};
use obol_fabric::host::{Cluster, Held, HostError, Process, clock, sched};
use obol_fabric::shm::Endpoint;
use obol_fabric::{Drive as _, Event, Fabric, Group, Instant, Machine, Name, Nanos, Owner, Wait};
use obol_node::SiteError;
use obol_observe::{Observer, Snapshot};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;
use std::{fs, thread};

/// A runner that does not connect in this time is gone.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Poll interval for its connection.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Timeout for the runner's next order until the fault agent is armed for the first time.
const DEAD_MAN: Nanos = Nanos::from_secs(10);
/// The lowest real-time priority: above all ordinary programs, below those that have one on
/// purpose.
const PRIORITY: u32 = 1;
/// Pause before the replies: processes woken by them would take a core from the failover, which
/// takes this long on an emulated fabric.
const QUIET: Duration = Duration::from_millis(20);
/// How often the endpoint's loop wakes up without events.
const BEAT_EVERY: Nanos = Nanos::from_millis(200);

/// Why a fault agent cannot run.
#[derive(Debug, thiserror::Error)]
pub enum FaultAgentError {
    /// The cluster cannot be observed.
    #[error(transparent)]
    Observe(#[from] SiteError),
    /// No region, or no multicast.
    #[error(transparent)]
    Fabric(#[from] HostError),
    /// The channel failed.
    #[error("{0}: {1}")]
    Channel(PathBuf, io::Error),
    /// The parent did not connect.
    #[error("no runner connected to this fault agent; it is started by `obol drill run`")]
    NoRunner,
}

/// An injected fault that can be undone.
struct Injected {
    armed: Box<dyn Armed>,
    until: Instant,
}

/// A fault prepared for injection.
struct ArmedInjection {
    injection: Injection,
    armed: Box<dyn Armed>,
}

/// The injections that wait for the cue.
struct ArmedCue {
    token: Token,
    expires: Instant,
    injections: Vec<ArmedInjection>,
    /// Wakes the cores on which targets sleep, if there are several injections.
    core_warmer: Option<CoreWarmer>,
}

#[derive(Default)]
struct State {
    armed: Option<ArmedCue>,
    injected: Vec<Injected>,
}

type Shared = Arc<Mutex<State>>;

/// What the main loop receives.
enum Message {
    Order(Order),
    Fired(Vec<Stamp>),
    Gone,
}

/// Receives cues from the fabric.
struct Listener {
    state: Shared,
    tx: Sender<Message>,
}

impl Machine for Listener {
    fn handle<F: Fabric>(&mut self, _now: Instant, event: Event<'_>, _fabric: &mut F) {
        let Event::Datagram { bytes, .. } = event else { return };
        let mut state = self.state.lock();
        if !state.armed.as_ref().is_some_and(|armed| armed.token.is_cue(bytes)) {
            return;
        }
        // A token serves once, even if it comes too late.
        let Some(mut cue) = state.armed.take() else { return };
        if clock::now() > cue.expires {
            return;
        }
        if let Some(core_warmer) = &cue.core_warmer {
            core_warmer.wake();
        }
        // Between two injections there is only one clock reading and one system call.
        let mut results = Vec::with_capacity(cue.injections.len());
        for injection in &mut cue.injections {
            results.push((clock::now(), injection.armed.inject()));
        }
        if let Some(core_warmer) = &cue.core_warmer {
            core_warmer.stop();
        }
        let mut stamps = Vec::with_capacity(results.len());
        for (ArmedInjection { injection, armed }, (at, result)) in cue.injections.into_iter().zip(results) {
            let until = at + Nanos(injection.lasts.unwrap_or_default());
            if armed.is_undone(result.is_ok()) {
                state.injected.push(Injected { armed, until });
            }
            let name = injection.whom.map_or_else(|| "host".to_owned(), |whom| whom.name);
            stamps.push(Stamp { name, at: at.0, error: result.err().map(|error| error.to_string()) });
        }
        let due = state.injected.iter().map(|injected| injected.until).fold(Instant::NEVER, Instant::min);
        drop(state);
        // The main loop undoes what is due earlier.
        thread::sleep(QUIET.min(due.since(clock::now()).to_std()));
        // If the receiver is gone, the main loop has ended and has undone everything.
        let _ = self.tx.send(Message::Fired(stamps));
    }
}

/// How a fault agent is connected to its runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReachedBy {
    /// A Unix socket in the cluster's directory, and only from the parent.
    Socket,
    /// Standard input and output, connected by ssh, which has authenticated the operator.
    Standard,
}

/// Runs a fault agent until its runner is gone. `program` is this program, which starts loads.
pub fn run(root: &Path, cluster: Name, program: &Path, way: ReachedBy) -> Result<(), FaultAgentError> {
    let mut observer = Observer::open(root, cluster)?;
    let (reader, writer): (Box<dyn Read + Send>, Box<dyn Write>) = match way {
        ReachedBy::Socket => {
            let stream = parent(&observer)?;
            let reader =
                stream.try_clone().map_err(|error| FaultAgentError::Channel("the channel".into(), error))?;
            (Box::new(reader), Box::new(stream))
        }
        ReachedBy::Standard => (Box::new(io::stdin()), Box::new(io::stdout())),
    };
    let state = Shared::default();
    let (tx, rx) = mpsc::channel();
    let stop = Arc::new(AtomicBool::new(false));
    let listener = listen(observer.cluster(), &state, &tx, &stop)?;
    thread::spawn(move || read_orders(reader, &tx));
    let mut fault_agent =
        FaultAgent { observer: &mut observer, program, state: &state, writer, record: None };
    fault_agent.run(&rx);
    stop.store(true, Ordering::Relaxed);
    fault_agent.undo_all();
    // The loop wakes up periodically; there is nothing else to do on an error.
    drop(listener);
    Ok(())
}

/// The connection to the parent.
fn parent(observer: &Observer) -> Result<UnixStream, FaultAgentError> {
    let path = observer.cluster().dir().join(socket_name(std::process::id()));
    let failed = |error| FaultAgentError::Channel(path.clone(), error);
    let stream = accept(&path);
    // Whether or not the parent connected: no other process may.
    let _ = fs::remove_file(&path);
    stream.map_err(failed)?.ok_or(FaultAgentError::NoRunner)
}

/// Waits for the parent. Other processes are rejected.
fn accept(path: &Path) -> io::Result<Option<UnixStream>> {
    let runner = parent_id();
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    let end = std::time::Instant::now() + CONNECT_TIMEOUT;
    while std::time::Instant::now() < end && parent_id() == runner {
        match listener.accept() {
            Ok((stream, _)) => {
                let who = peer(&stream)?;
                if who.pid == runner && who.uid == user() {
                    stream.set_nonblocking(false)?;
                    return Ok(Some(stream));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(POLL_INTERVAL),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Starts the thread that receives cues. Returns when its region exists, so that no cue is missed.
fn listen(
    cluster: &Cluster,
    state: &Shared,
    tx: &Sender<Message>,
    stop: &Arc<AtomicBool>,
) -> Result<thread::JoinHandle<()>, FaultAgentError> {
    let owner = Owner {
        kind: REGION_KIND,
        name: Name::new("fault-agent").unwrap_or_default(),
        region: None,
        groups: Group::Drills.bit(),
    };
    let (ready_tx, ready_rx) = mpsc::channel();
    let (cluster, stop) = (cluster.clone(), Arc::clone(stop));
    let mut listener = Listener { state: Arc::clone(state), tx: tx.clone() };
    let handle = thread::spawn(move || match Endpoint::open(&cluster, owner, Wait::Block) {
        Ok(mut endpoint) => {
            endpoint.beat_every(BEAT_EVERY);
            // Nothing should run between two injections. Without permission for it, the effect
            // shows in the skew.
            let _ = sched::run_fifo_alone(PRIORITY);
            // The receiver waits only for this message.
            let _ = ready_tx.send(Ok(()));
            endpoint.run(&mut listener, &stop, |_, _| {});
        }
        Err(error) => drop(ready_tx.send(Err(error))),
    });
    match ready_rx.recv() {
        Ok(ready) => Ok(ready.map(|()| handle)?),
        Err(_) => Err(FaultAgentError::NoRunner),
    }
}

fn read_orders(from: impl Read, tx: &Sender<Message>) {
    let mut lines = Lines::new(from);
    // An invalid line ends the session, as silence does: the runner is another program.
    while let Ok(Some(order)) = lines.read::<Order>() {
        if tx.send(Message::Order(order)).is_err() {
            return;
        }
    }
    let _ = tx.send(Message::Gone);
}

struct FaultAgent<'a> {
    observer: &'a mut Observer,
    /// This program, which starts loads.
    program: &'a Path,
    state: &'a Mutex<State>,
    writer: Box<dyn Write>,
    record: Option<Record>,
}

impl FaultAgent<'_> {
    /// Replies to the runner. If it is gone, the reading side notices.
    fn reply(&mut self, reply: &Reply) {
        log(reply);
        let _ = write_line(&mut self.writer, reply);
    }

    /// Serves the runner until it is gone or silent for too long.
    fn run(&mut self, rx: &mpsc::Receiver<Message>) {
        let mut dead_man = DEAD_MAN;
        let mut last_order = clock::now();
        loop {
            let now = clock::now();
            // However long a fault lasts, a halt is obeyed soon.
            let halts = now + Nanos::from_std(halt::POLL_INTERVAL);
            let due = self.due().min(last_order + dead_man).min(halts);
            match rx.recv_timeout(due.since(now).to_std()) {
                Ok(Message::Order(order)) => {
                    last_order = clock::now();
                    if let Order::Arm(arm) = &order {
                        dead_man = Nanos(arm.dead_man);
                    }
                    self.handle(order);
                }
                Ok(Message::Fired(stamps)) => self.reply(&Reply::Fired { stamps }),
                Ok(Message::Gone) | Err(RecvTimeoutError::Disconnected) => return,
                // Orders that arrived while the last one was carried out are handled first, however
                // long that took.
                Err(RecvTimeoutError::Timeout) if clock::now() >= last_order + dead_man => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Some(reason) = halt::in_force(self.observer.cluster().dir()) {
                self.reply(&Reply::Halted { reason });
                return;
            }
            let now = clock::now();
            self.expire(now);
            self.undo(now);
        }
    }

    /// When the next timer is due.
    fn due(&self) -> Instant {
        let state = self.state.lock();
        let expires = state.armed.as_ref().map_or(Instant::NEVER, |armed| armed.expires);
        state.injected.iter().map(|injected| injected.until).fold(expires, Instant::min)
    }

    fn expire(&mut self, now: Instant) {
        let expired = {
            let mut state = self.state.lock();
            let late = state.armed.as_ref().is_some_and(|armed| now > armed.expires);
            late && state.armed.take().is_some()
        };
        if expired {
            self.remove_record();
            self.reply(&Reply::Expired);
        }
    }

    /// Undoes what is due at `now`. Reports it when nothing is left to undo.
    fn undo(&mut self, now: Instant) {
        let mut state = self.state.lock();
        let (mut due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut state.injected).into_iter().partition(|injected| injected.until <= now);
        state.injected = later;
        let done = !due.is_empty() && state.injected.is_empty();
        drop(state);
        let failed: Vec<String> = due.iter_mut().filter_map(|injected| injected.armed.undo().err()).collect();
        if done || !failed.is_empty() {
            self.reply(&Reply::Undone { failed });
        }
    }

    fn handle(&mut self, order: Order) {
        match order {
            Order::Alive => {}
            Order::Arm(arm) => match self.arm(*arm) {
                Ok(()) => self.reply(&Reply::Armed),
                Err(reason) => self.reply(&Reply::Refused { reason }),
            },
            Order::Disarm => {
                if self.state.lock().armed.take().is_some() {
                    self.remove_record();
                }
                self.reply(&Reply::Disarmed);
            }
            Order::Undo => self.undo(Instant::NEVER),
            Order::Undone => self.remove_record(),
        }
    }

    /// Removes the undo record.
    fn remove_record(&mut self) {
        if let Some(record) = self.record.take()
            && let Err(error) = record.remove(self.observer.cluster().dir())
        {
            self.reply(&Reply::Undone {
                failed: vec![format!("the undo record could not be removed: {error}")],
            });
        }
    }

    fn arm(&mut self, arm: Arm) -> Result<(), String> {
        if self.record.is_some() {
            return Err("it is armed already, or its faults are not undone yet".to_owned());
        }
        if let Some(reason) = halt::in_force(self.observer.cluster().dir()) {
            return Err(reason);
        }
        let token = Token::from_hex(&arm.token).ok_or("the token is invalid")?;
        if arm.injections.is_empty() || arm.injections.len() > INJECTIONS_MAX {
            return Err(format!("{} faults; one cue injects 1 to {INJECTIONS_MAX}", arm.injections.len()));
        }
        let snapshot = self.observer.snapshot();
        self.guard(&arm, &snapshot)?;
        let expires = clock::now() + Nanos(arm.expires_in);
        let mut injections = Vec::new();
        let me = Process::current().map_err(|error| error.to_string())?;
        let mut record = Record::new((me.pid, me.started), arm.restart);
        for injection in arm.injections {
            let kind = faults::ordered(&injection.fault)
                .ok_or_else(|| format!("this fault agent has no fault {:?}", injection.fault))?;
            let arming = Arming {
                cluster: self.observer.cluster(),
                deployment: self.observer.deployment(),
                snapshot: &snapshot,
                program: self.program,
                allow_clock_step: arm.allow_clock_step,
                held: injection.whom.as_ref().map(hold).transpose()?,
                record: &mut record,
            };
            let armed = kind.arm(&injection, arming)?;
            injections.push(ArmedInjection { injection, armed });
        }
        record
            .write(self.observer.cluster().dir())
            .map_err(|error| format!("the undo record could not be written: {error}"))?;
        self.record = Some(record);
        // A single fault has no skew.
        let cores =
            || injections.iter().filter_map(|one| one.injection.whom.as_ref()).flat_map(cores).collect();
        let core_warmer = (injections.len() > 1).then(|| CoreWarmer::on(cores(), PRIORITY));
        self.state.lock().armed = Some(ArmedCue { token, expires, injections, core_warmer });
        Ok(())
    }

    /// Checks every guard against this process's own observations.
    fn guard(&self, arm: &Arm, snapshot: &Snapshot) -> Result<(), String> {
        let deployment = self.observer.deployment();
        let mut out = Vec::new();
        for injection in &arm.injections {
            let Some(whom) = &injection.whom else { continue };
            let process = Process { pid: whom.pid, started: whom.started };
            let found =
                snapshot.processes.iter().find(|p| p.process == process && p.name.as_str() == whom.name);
            let found = found.ok_or_else(|| {
                format!("{} (pid {}) is not a process of this cluster", whom.name, whom.pid)
            })?;
            // Unknown orders are rejected when they are armed.
            if faults::ordered(&injection.fault).is_some_and(|kind| kind.takes_out(injection)) {
                out.push(Chosen { target: whom.name.clone(), process: found.clone(), supervised: false });
            }
        }
        let guards = Guards {
            max_targets: arm.max_targets,
            keep_acceptors: arm.keep_acceptors,
            keep_lease_caches: arm.keep_lease_caches,
            deny_hosts: arm.deny_hosts.clone(),
            ..Guards::default()
        };
        let out: Vec<&Chosen> = out.iter().collect();
        let mut answers = guard::check(&guards, snapshot, &out, arm.injections.len());
        answers.push(guard::environment(&arm.environment, deployment));
        match answers.into_iter().find(|answer| !answer.allows) {
            Some(answer) => Err(format!("guard {}: {}", answer.guard, answer.says)),
            None => Ok(()),
        }
    }

    /// The runner is gone: disarms, undoes all faults, and restarts what was killed.
    fn undo_all(&mut self) {
        self.state.lock().armed = None;
        self.undo(Instant::NEVER);
        let Some(record) = self.record.take() else { return };
        let mut undone = Undone::default();
        record.undo(self.observer, &mut undone);
        if undone.failed.is_empty() {
            // What remains is undone again by the next drill, which is idempotent.
            let _ = record.remove(self.observer.cluster().dir());
        }
    }
}

/// A reply as a line of the log. Replies to a cue come when the failover is over.
fn log(reply: &Reply) {
    match reply {
        Reply::Armed => tracing::info!(target: "drill", "armed"),
        Reply::Refused { reason } => tracing::warn!(target: "drill", "refuses to be armed: {reason}"),
        Reply::Fired { stamps } => {
            for Stamp { name, at, error } in stamps {
                match error {
                    None => {
                        tracing::warn!(target: "drill", who = name.as_str(), at_ns = at, "injected at {name}")
                    }
                    Some(error) => {
                        tracing::warn!(target: "drill", who = name.as_str(), "not injected at {name}: {error}")
                    }
                }
            }
        }
        Reply::Expired => tracing::warn!(target: "drill", "disarmed: no cue came in time"),
        Reply::Disarmed => tracing::info!(target: "drill", "disarmed"),
        Reply::Halted { reason } => tracing::warn!(target: "drill", "halted: {reason}"),
        Reply::Undone { failed } if failed.is_empty() => tracing::info!(target: "drill", "faults are undone"),
        Reply::Undone { failed } => tracing::error!(target: "drill", "not undone: {}", failed.join("; ")),
    }
}

/// The cores that a process last ran on.
fn cores(whom: &TargetProcess) -> BTreeSet<u32> {
    Process { pid: whom.pid, started: whom.started }.cores()
}

/// Holds a process by pidfd after checking that it is the intended one.
fn hold(whom: &TargetProcess) -> Result<Held, String> {
    let who = format!("{} (pid {})", whom.name, whom.pid);
    let held = Process { pid: whom.pid, started: whom.started }
        .hold()
        .map_err(|error| format!("{who} cannot be held: {error}"))?;
    // After the pidfd was opened, the pid cannot be reused.
    let program = fs::read_link(format!("/proc/{}/exe", whom.pid))
        .map_err(|error| format!("the program of {who} cannot be read: {error}"))?;
    if program != whom.program {
        return Err(format!("{who} runs {}, not {}", program.display(), whom.program.display()));
    }
    Ok(held)
}

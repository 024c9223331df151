//! The fault agent: the process that breaks things on the cue, so that the runner does not have to
//! be awake, and that undoes them when the runner is gone.
//!
//! It takes orders from one runner: its parent over a Unix socket, or, on another host, whoever the operator's
//! ssh let in, over its own standard input and output. It is armed with a single-use token and a
//! deadline; it holds its targets by pidfd from then on, and asks every guard again by what it sees
//! itself. On the cue it injects and stamps each fault. Before it answers that it is armed, its
//! undo record is on disk.

use super::channel::{Arm, INJECTIONS_MAX, Injection, Lines, Order, Reply, Stamp, Whom, socket_name};
use super::core_warmer::CoreWarmer;
use super::cue::{REGION_KIND, Token};
use super::guard;
use super::select::Chosen;
use super::undo::{Record, Undone};
use crate::control::write_line;
use crate::drillfile::{Guards, Keep};
use crate::faults::{self, Armed, Arming};
use obol_fabric::host::peer::{peer, user};
use obol_fabric::host::{Cluster, Held, HostError, Process, clock, sched};
use obol_fabric::shm::Endpoint;
use obol_fabric::{Drive as _, Event, Fabric, Group, Instant, Machine, Name, Nanos};
use obol_fabric::{Owner, Wait};
use obol_node::SiteError;
use obol_observe::{Observer, Snapshot};
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// A runner that does not connect in this time is gone.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two looks for it.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Until it is armed for the first time, a fault agent waits so long for its runner's next word.
const DEAD_MAN: Nanos = Nanos::from_secs(10);
/// The lowest real-time priority: above every ordinary program, below whatever has one for a
/// reason.
const PRIORITY: u32 = 1;
/// The processes that are notified of the faults wake up, and would take a core from the failover,
/// which takes this long on an emulated one.
const QUIET: Duration = Duration::from_millis(20);
/// How often the endpoint's loop turns by itself while nothing comes.
const BEAT_EVERY: Nanos = Nanos::from_millis(200);

/// Why there is no fault agent.
#[derive(Debug, thiserror::Error)]
pub enum FaultAgentError {
    /// The cluster can not be observed.
    #[error(transparent)]
    Observe(SiteError),
    /// No region, or no multicast.
    #[error(transparent)]
    Fabric(HostError),
    /// The channel failed.
    #[error("{0}: {1}")]
    Channel(PathBuf, io::Error),
    /// The parent did not connect.
    #[error("no runner connected to this fault agent; it is started by `obol drill run`")]
    NoRunner,
}

/// What was done and can be undone.
struct Injected {
    armed: Box<dyn Armed>,
    until: Instant,
}

/// A fault and all that it takes to inject it.
struct ArmedInjection {
    injection: Injection,
    armed: Box<dyn Armed>,
}

/// What waits for the cue.
struct ArmedCue {
    token: Token,
    expires: Instant,
    injections: Vec<ArmedInjection>,
    /// The cores that targets sleep on, where several are injected.
    core_warmer: Option<CoreWarmer>,
}

#[derive(Default)]
struct State {
    armed: Option<ArmedCue>,
    injected: Vec<Injected>,
}

type Shared = Arc<Mutex<State>>;

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the main loop receives.
enum Message {
    Order(Order),
    Fired(Vec<Stamp>),
    Gone,
}

/// Takes cues from the fabric.
struct Listener {
    state: Shared,
    tx: Sender<Message>,
}

impl Machine for Listener {
    fn start<F: Fabric>(&mut self, _now: Instant, _fabric: &mut F) {}

    fn handle<F: Fabric>(&mut self, _now: Instant, event: Event<'_>, _fabric: &mut F) {
        let Event::Datagram { bytes, .. } = event else { return };
        let mut state = lock(&self.state);
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
        // Whatever can wait does: between two faults lie one look at the clock and one system call.
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
        // What has to be undone sooner is undone by the main loop.
        thread::sleep(QUIET.min(due.since(clock::now()).to_std()));
        // If the receiver is gone, the main loop has ended and has undone everything.
        let _ = self.tx.send(Message::Fired(stamps));
    }

    fn tick<F: Fabric>(&mut self, _now: Instant, _fabric: &mut F) {}

    fn deadline(&self) -> Instant {
        Instant::NEVER
    }
}

/// How a fault agent is connected to its runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReachedBy {
    /// A Unix socket in the cluster's directory, and only from the parent.
    Socket,
    /// Standard input and output, which ssh has connected: it has said who the operator is.
    Standard,
}

/// Runs a fault agent until its runner is gone. `program` is this program, which a load is started
/// from.
pub fn run(root: &Path, cluster: Name, program: &Path, way: ReachedBy) -> Result<(), FaultAgentError> {
    let mut observer = Observer::open(root, cluster).map_err(FaultAgentError::Observe)?;
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
    // It turns every so often by itself; there is nothing left that it could do.
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

/// Waits for the parent. Any other process is turned away.
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

/// Starts the thread that takes cues. Returns when its region is there, so that no cue is missed.
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
            // Nothing should run between two faults. Where the system does not allow that, the skew
            // says what came of it.
            let _ = sched::run_fifo_alone(PRIORITY);
            // The receiver waits for this word alone.
            let _ = ready_tx.send(Ok(()));
            endpoint.run(&mut listener, &stop, |_, _| {});
        }
        Err(error) => drop(ready_tx.send(Err(error))),
    });
    match ready_rx.recv() {
        Ok(Ok(())) => Ok(handle),
        Ok(Err(error)) => Err(FaultAgentError::Fabric(error)),
        Err(_) => Err(FaultAgentError::NoRunner),
    }
}

fn read_orders(from: impl Read, tx: &Sender<Message>) {
    let mut lines = Lines::new(from);
    // A line that is no order ends the conversation, as silence does: the runner is another program
    // than ours.
    while let Ok(Some(order)) = lines.read::<Order>() {
        if tx.send(Message::Order(order)).is_err() {
            return;
        }
    }
    let _ = tx.send(Message::Gone);
}

struct FaultAgent<'a> {
    observer: &'a mut Observer,
    /// This program, which a load is started from.
    program: &'a Path,
    state: &'a Mutex<State>,
    writer: Box<dyn Write>,
    record: Option<Record>,
}

impl FaultAgent<'_> {
    /// Replies to the runner. If it is gone, the reading side notices.
    fn reply(&mut self, reply: &Reply) {
        let _ = write_line(&mut self.writer, reply);
    }

    /// Serves the runner until it is gone or silent for too long.
    fn run(&mut self, rx: &mpsc::Receiver<Message>) {
        let mut dead_man = DEAD_MAN;
        let mut last_order = clock::now();
        loop {
            let now = clock::now();
            let due = self.due().min(last_order + dead_man);
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
                // Orders that came while the last one was carried out are taken first, however long
                // that took.
                Err(RecvTimeoutError::Timeout) if clock::now() >= last_order + dead_man => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = clock::now();
            self.expire(now);
            self.undo(now);
        }
    }

    /// When something happens by itself.
    fn due(&self) -> Instant {
        let state = lock(self.state);
        let expires = state.armed.as_ref().map_or(Instant::NEVER, |armed| armed.expires);
        state.injected.iter().map(|injected| injected.until).fold(expires, Instant::min)
    }

    fn expire(&mut self, now: Instant) {
        let expired = {
            let mut state = lock(self.state);
            let late = state.armed.as_ref().is_some_and(|armed| now > armed.expires);
            late && state.armed.take().is_some()
        };
        if expired {
            self.forget();
            self.reply(&Reply::Expired);
        }
    }

    /// Undoes what is due at `now`. Says so when nothing is left of it.
    fn undo(&mut self, now: Instant) {
        let mut state = lock(self.state);
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
                if lock(self.state).armed.take().is_some() {
                    self.forget();
                }
                self.reply(&Reply::Disarmed);
            }
            Order::Undo => self.undo(Instant::NEVER),
            Order::Undone => self.forget(),
        }
    }

    /// Removes the undo record.
    fn forget(&mut self) {
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
            return Err("it is armed already, or what it did is not undone yet".to_owned());
        }
        let token = Token::from_hex(&arm.token).ok_or("the token is not one")?;
        if arm.injections.is_empty() || arm.injections.len() > INJECTIONS_MAX {
            return Err(format!(
                "{} faults; 1 to {INJECTIONS_MAX} can be injected on one cue",
                arm.injections.len()
            ));
        }
        let snapshot = self.observer.snapshot();
        self.guard(&arm, &snapshot)?;
        let expires = clock::now() + Nanos(arm.expires_in);
        let mut injections = Vec::new();
        let me = Process::current().map_err(|error| error.to_string())?;
        let mut record = Record::new((me.pid, me.started), arm.restart);
        for injection in arm.injections {
            let kind = faults::ordered(&injection.fault)
                .ok_or_else(|| format!("this fault agent knows no fault {:?}", injection.fault))?;
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
        // One fault is not held against another.
        let cores =
            || injections.iter().filter_map(|one| one.injection.whom.as_ref()).flat_map(cores).collect();
        let core_warmer = (injections.len() > 1).then(|| CoreWarmer::on(cores(), PRIORITY));
        lock(self.state).armed = Some(ArmedCue { token, expires, injections, core_warmer });
        Ok(())
    }

    /// Asks every guard by what this process sees itself.
    fn guard(&self, arm: &Arm, snapshot: &Snapshot) -> Result<(), String> {
        let deployment = self.observer.deployment();
        let mut out = Vec::new();
        for injection in &arm.injections {
            let Some(whom) = &injection.whom else { continue };
            let process = Process { pid: whom.pid, started: whom.started };
            let found =
                snapshot.processes.iter().find(|p| p.process == process && p.name.as_str() == whom.name);
            let found = found.ok_or_else(|| {
                format!("{} (pid {}) is no process of this cluster; look at it again", whom.name, whom.pid)
            })?;
            // An order that no kind knows is refused when it is armed.
            if faults::ordered(&injection.fault).is_some_and(|kind| kind.takes_out(injection)) {
                out.push(Chosen { target: whom.name.clone(), process: found.clone(), supervised: false });
            }
        }
        let guards = Guards {
            max_targets: arm.max_targets,
            keep_acceptors: Keep::Number(arm.keep_acceptors),
            keep_lease_caches: arm.keep_lease_caches,
            deny_hosts: arm.deny_hosts.clone(),
            ..Guards::default()
        };
        let out: Vec<&Chosen> = out.iter().collect();
        let mut answers = guard::ask(&guards, deployment, snapshot, &out, arm.injections.len());
        answers.push(guard::environment(&arm.environment, deployment));
        match answers.into_iter().find(|answer| !answer.allows) {
            Some(answer) => Err(format!("guard {}: {}", answer.guard, answer.says)),
            None => Ok(()),
        }
    }

    /// The runner is gone: nothing more is injected, what was is undone, and what was killed is
    /// started again.
    fn undo_all(&mut self) {
        lock(self.state).armed = None;
        self.undo(Instant::NEVER);
        let Some(record) = self.record.take() else { return };
        let mut undone = Undone::default();
        record.undo(self.observer, &mut undone);
        if undone.failed.is_empty() {
            // What stays is undone again by the next drill, which changes nothing.
            let _ = record.remove(self.observer.cluster().dir());
        }
    }
}

/// The cores that a process was seen on last.
fn cores(whom: &Whom) -> BTreeSet<u32> {
    Process { pid: whom.pid, started: whom.started }.cores()
}

/// Takes hold of a process, and sees that it is the one that is meant.
fn hold(whom: &Whom) -> Result<Held, String> {
    let who = format!("{} (pid {})", whom.name, whom.pid);
    let held = Process { pid: whom.pid, started: whom.started }
        .hold()
        .map_err(|error| format!("{who} can not be held: {error}"))?;
    // After the descriptor was opened: the number can not have been given to another process since.
    let program = fs::read_link(format!("/proc/{}/exe", whom.pid))
        .map_err(|error| format!("the program of {who} can not be seen: {error}"))?;
    if program != whom.program {
        return Err(format!("{who} runs {}, not {}", program.display(), whom.program.display()));
    }
    Ok(held)
}

//! The fault agent: injects faults on the cue, without depending on the runner being scheduled, and
//! undoes them when the runner is gone.
//!
//! It takes orders from one runner: its parent over a Unix socket or, on another host, the
//! operator's ssh over standard input and output. It is armed with a single-use token and a
//! deadline. From then on it holds its targets by pidfd, and it checks every guard itself. Before
//! it reports that it is armed, its undo record is on disk. On the cue it injects and stamps each
//! fault.

mod arming;

use super::channel::{Lines, Order, Reply, Stamp, socket_name};
use super::core_warmer::CoreWarmer;
use super::cue::{REGION_KIND, Token};
use super::halt;
use super::undo;
use super::warden::Warden;
use crate::faults::order::Injection;
use crate::faults::{Armed, Record, Undone};
use obol_fabric::host::peer::{peer, user};
use obol_fabric::host::{Process, clock, sched};
use obol_fabric::{Event, Fabric, Group, Instant, Machine, Name, Nanos};
use obol_node::endpoint::EndpointError;
use obol_node::{FileLock, Site, SiteError};
use obol_observe::Observer;
use obol_supervise::control::write_line;
use parking_lot::Mutex;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

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
/// How long victims may take to end.
const DYING_TIMEOUT: Nanos = Nanos::from_secs(5);
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
    Fabric(#[from] EndpointError),
    /// The channel failed.
    #[error("{0}: {1}")]
    Channel(PathBuf, io::Error),
    /// Nobody would undo what it leaves when it is killed.
    #[error("cannot start the warden, which undoes the faults of a fault agent that is killed: {0}")]
    Warden(io::Error),
    /// The parent did not connect.
    #[error("no runner connected to this fault agent; it is started by `obol drill run`")]
    NoRunner,
}

/// An injected fault that can be undone.
struct Injected {
    armed: Box<dyn Armed>,
    until: Instant,
}

impl Injected {
    /// One without an end is undone if the drill ends before it takes effect.
    fn new(armed: Box<dyn Armed>, at: Instant, lasts: Option<u64>) -> Self {
        Self { armed, until: lasts.map_or(Instant::NEVER, |lasts| at + Nanos(lasts)) }
    }
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
    /// The runner has no report of the cue yet. Until then nothing that was injected is due,
    /// because an injection may take longer than its fault lasts, and the runner expects the replies in
    /// this order.
    unreported: bool,
}

impl State {
    /// When there is something to do.
    fn due(&self) -> Instant {
        let expires = self.armed.as_ref().map_or(Instant::NEVER, |armed| armed.expires);
        let injected = self.injected.iter().filter(|_| !self.unreported);
        injected.map(|injected| injected.until).fold(expires, Instant::min)
    }

    /// Takes the injections that are due at `now`.
    fn take_due(&mut self, now: Instant) -> Vec<Injected> {
        if self.unreported {
            return Vec::new();
        }
        self.injected.extract_if(.., |injected| injected.until <= now).collect()
    }
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
            results.push((clock::now() + injection.armed.lead(), injection.armed.inject()));
        }
        if let Some(core_warmer) = &cue.core_warmer {
            core_warmer.stop();
        }
        state.unreported = true;
        let mut stamps = Vec::with_capacity(results.len());
        for (ArmedInjection { injection, armed }, (at, result)) in cue.injections.into_iter().zip(results) {
            if armed.is_undone(result.is_ok()) {
                state.injected.push(Injected::new(armed, at, injection.lasts));
            }
            let error = result.err().map(|error| error.to_string());
            // The runner adds what it knows of this host.
            stamps.push(Stamp { name: injection.victim(), at: at.0, error, host: 0, clock_error: 0 });
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
    let listener = listen(Site::open(root, cluster)?, &state, &tx, &stop)?;
    thread::spawn(move || read_orders(reader, &tx));
    let mut fault_agent = FaultAgent {
        warden: Warden::start(program, root, cluster).map_err(FaultAgentError::Warden)?,
        root,
        observer: &mut observer,
        program,
        state: &state,
        writer,
        record: None,
        ending: Vec::new(),
        lock: None,
    };
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
    site: Site,
    state: &Shared,
    tx: &Sender<Message>,
    stop: &Arc<AtomicBool>,
) -> Result<thread::JoinHandle<()>, FaultAgentError> {
    let (ready_tx, ready_rx) = mpsc::channel();
    let stop = Arc::clone(stop);
    let mut listener = Listener { state: Arc::clone(state), tx: tx.clone() };
    let handle = thread::spawn(move || {
        let name = Name::new("fault-agent").unwrap_or_default();
        match site.drill(REGION_KIND, name, Group::Drills.bit()) {
            Ok(mut endpoint) => {
                // Nothing should run between two injections. Without permission for it, the effect
                // shows in the skew.
                let _ = sched::run_fifo_alone(PRIORITY);
                // The receiver waits only for this message.
                let _ = ready_tx.send(Ok(()));
                endpoint.beat_every(BEAT_EVERY);
                endpoint.run(&mut listener, &stop, |_, _| {});
            }
            Err(error) => drop(ready_tx.send(Err(error))),
        }
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
    /// Undoes what is left if this process is killed.
    warden: Warden,
    root: &'a Path,
    observer: &'a mut Observer,
    /// This program, which starts loads.
    program: &'a Path,
    state: &'a Mutex<State>,
    writer: Box<dyn Write>,
    record: Option<Record>,
    /// The victims that are to be restarted.
    ending: Vec<Process>,
    /// Keeps other drills from this host, where the runner does not.
    lock: Option<FileLock>,
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
            let halts = now + Nanos::from_std(self.halt_interval());
            let due = self.state.lock().due().min(last_order + dead_man).min(halts);
            match rx.recv_timeout(due.since(now).to_std()) {
                Ok(Message::Order(order)) => {
                    last_order = clock::now();
                    if let Order::Arm(arm) = &order {
                        dead_man = Nanos(arm.dead_man);
                    }
                    self.handle(order);
                }
                Ok(Message::Fired(stamps)) => {
                    self.reply(&Reply::Fired { stamps });
                    self.state.lock().unreported = false;
                }
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

    /// How often a halt is looked for: more often if one may still prevent what was injected.
    fn halt_interval(&self) -> Duration {
        let leads = self.state.lock().injected.iter().any(|injected| injected.armed.lead() > Nanos::ZERO);
        if leads { halt::POLL_INTERVAL / 10 } else { halt::POLL_INTERVAL }
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
        let mut due = state.take_due(now);
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
            Order::Restart => {
                self.await_ends();
                let mut undone = Undone::default();
                if let Some(record) = &self.record {
                    undo::restart(record, self.observer, &mut undone);
                }
                self.reply(&Reply::Undone { failed: undone.failed });
            }
            Order::Undone => self.remove_record(),
        }
    }

    /// Waits until the kernel has taken away the victims that are to be restarted: until then they
    /// seem to run.
    fn await_ends(&mut self) {
        let end = clock::now() + DYING_TIMEOUT;
        let runs = |process: &Process| process.hold().is_ok_and(|held| !held.has_ended());
        self.ending.retain(runs);
        while !self.ending.is_empty() && clock::now() < end {
            thread::sleep(POLL_INTERVAL);
            self.ending.retain(runs);
        }
        self.ending.clear();
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

    /// The runner is gone: disarms, undoes all faults, and restarts what was killed.
    fn undo_all(&mut self) {
        if self.state.lock().armed.take().is_some() {
            // Nothing was injected.
            self.ending.clear();
        }
        self.state.lock().unreported = false;
        self.undo(Instant::NEVER);
        let Some(record) = self.record.take() else { return };
        self.await_ends();
        let mut undone = Undone::default();
        undo::undo(&record, self.observer, &mut undone);
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
            for Stamp { name, at, error, .. } in stamps {
                match error {
                    None => {
                        tracing::warn!(target: "drill", who = name.as_str(), at_ns = at, "injected at {name}");
                    }
                    Some(error) => {
                        tracing::warn!(target: "drill", who = name.as_str(), "not injected at {name}: {error}");
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

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake;

    impl Armed for Fake {
        fn inject(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_fault_that_is_over_before_its_cue_was_reported_is_undone_afterwards() {
        let injected = |lasts| Injected::new(Box::new(Fake), Instant(1), lasts);
        let mut state = State { unreported: true, ..State::default() };
        state.injected = vec![injected(Some(4)), injected(Some(8)), injected(None)];
        assert_eq!((state.due(), state.take_due(Instant(7)).len()), (Instant::NEVER, 0));
        state.unreported = false;
        assert_eq!((state.due(), state.take_due(Instant(7)).len()), (Instant(5), 1));
        assert_eq!((state.due(), state.take_due(Instant(7)).len()), (Instant(9), 0));
        assert_eq!(state.take_due(Instant(9)).len(), 1);
        // One that has no end is undone with all.
        assert_eq!((state.due(), state.take_due(Instant(99)).len()), (Instant::NEVER, 0));
        assert_eq!(state.take_due(Instant::NEVER).len(), 1);
    }
}

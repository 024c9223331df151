//! The thread behind the queue.

use crate::control::{Control, State};
use crate::follow::Follower;
use crate::levels::Severity;
use crate::line::Line;
use crate::settings::{LogOwner, Settings};
use crate::shared::{Message, Probe, QUEUE_LINES, Shared};
use crate::sink::Sink;
use crate::subscriber::Subscribed;
use obol_observe::calendar::unix_now;
use parking_lot::{Mutex, RwLock};
use std::io;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TrySendError, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// How often the flight recorder and the wanted levels are looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How long the end of a process waits for its log.
const END_TIMEOUT: Duration = Duration::from_secs(2);
const END_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The log of this process.
struct Log {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    is_journal: bool,
}

static LOG: OnceLock<Log> = OnceLock::new();
static STARTING: AtomicBool = AtomicBool::new(false);

/// Starts the log of this process, once; a later call does nothing. To be called before the process
/// asks for real-time scheduling, which the thread would inherit, and after it has forked.
pub fn start(settings: &Settings, owner: LogOwner) -> io::Result<()> {
    if STARTING.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    let Some(sink) = Sink::open(settings, &owner)? else { return Ok(()) };
    let is_journal = sink.is_journal();
    let (tx, rx) = sync_channel(QUEUE_LINES);
    let mut control = Control::new(owner.cluster.dir(), owner.process);
    let levels = control.wanted().unwrap_or_else(|| settings.levels.clone());
    let shared = Arc::new(Shared {
        process: owner.process,
        levels: RwLock::new(levels),
        tx,
        dropped: AtomicU64::new(0),
    });
    let follower = Follower::new(owner.cluster, owner.agent)?;
    let mut writer = Writer {
        shared: Arc::clone(&shared),
        rx,
        sink,
        follower,
        control,
        probes: Vec::new(),
        reported: 0,
        missed: 0,
    };
    // Before the first line.
    writer.show();
    let thread = Builder::new().name("obol-log".to_owned()).spawn(move || writer.run())?;
    let subscribed = tracing::subscriber::set_global_default(Subscribed(Arc::clone(&shared)));
    let log = Log { shared, thread: Mutex::new(Some(thread)), is_journal };
    // Nothing else sets it: `STARTING` lets one caller in.
    let _ = LOG.set(log);
    subscribed.map_err(io::Error::other)
}

/// Adds a probe. Without a log it is never called.
pub fn probe(probe: Probe) {
    if let Some(log) = LOG.get() {
        // The queue is full at most for a moment, and a thread that has ended calls nothing.
        let _ = log.shared.tx.send(Message::Probe(probe));
    }
}

/// Whether lines go to the journal, where standard error goes as well.
pub fn is_journal() -> bool {
    LOG.get().is_some_and(|log| log.is_journal)
}

/// Writes what waits, and ends the thread. A file system that does not answer is not waited for.
pub fn finish() {
    let Some(log) = LOG.get() else { return };
    let Some(thread) = log.thread.lock().take() else { return };
    let end = Instant::now() + END_TIMEOUT;
    let mut message = Message::End;
    // It takes lines until this one.
    while let Err(TrySendError::Full(unsent)) = log.shared.tx.try_send(message) {
        if Instant::now() >= end {
            return;
        }
        message = unsent;
        std::thread::sleep(END_POLL_INTERVAL);
    }
    while !thread.is_finished() && Instant::now() < end {
        std::thread::sleep(END_POLL_INTERVAL);
    }
}

/// The thread.
struct Writer {
    shared: Arc<Shared>,
    rx: Receiver<Message>,
    sink: Sink,
    follower: Follower,
    control: Control,
    probes: Vec<Probe>,
    /// Dropped and unwritten lines that the log says already.
    reported: u64,
    missed: u64,
}

impl Writer {
    fn run(mut self) {
        let mut due = Instant::now();
        loop {
            let ends = match self.rx.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Ok(Message::Line(line)) => {
                    self.sink.line(&line);
                    false
                }
                Ok(Message::Probe(probe)) => {
                    self.probes.push(probe);
                    false
                }
                Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => true,
                Err(RecvTimeoutError::Timeout) => false,
            };
            if ends || Instant::now() >= due {
                self.turn();
                due = Instant::now() + POLL_INTERVAL;
            }
            if ends {
                return;
            }
        }
    }

    /// Everything but the queue.
    fn turn(&mut self) {
        if let Some(levels) = self.control.wanted() {
            let text = format!("levels are {levels} from now on");
            *self.shared.levels.write() = levels;
            self.sink.line(&self.own(Severity::Info, text));
        }
        let Self { shared, sink, follower, probes, .. } = self;
        let levels = shared.levels.read().clone();
        let mut take = |line: Line| {
            if levels.takes(&line.module, line.severity) {
                sink.line(&line);
            }
        };
        follower.poll(&mut take);
        probes.iter_mut().for_each(|probe| probe(unix_now(), &mut take));
        let dropped = self.shared.dropped.load(Ordering::Relaxed);
        if let Some(more) = dropped.checked_sub(self.reported).filter(|more| *more > 0) {
            self.reported = dropped;
            let text =
                format!("{more} lines were dropped: more than {QUEUE_LINES} waited ({dropped} in all)");
            self.sink.line(&self.own(Severity::Warn, text).with("dropped", dropped));
        }
        self.sink.flush();
        self.report_unwritten();
        self.show();
    }

    /// Says how many lines could not be written, once lines can be written again.
    fn report_unwritten(&mut self) {
        let unwritten = self.sink.unwritten;
        if unwritten == self.missed || !self.sink.writes {
            return;
        }
        let more = unwritten - self.missed;
        let why = self.sink.trouble.as_ref().map_or(String::new(), |why| format!(": {why}"));
        let text = format!("{more} lines could not be written ({unwritten} in all){why}");
        self.sink.line(&self.own(Severity::Warn, text).with("unwritten", unwritten));
        self.sink.flush();
        // If this one could not be, it counts as the next one.
        self.missed = unwritten;
    }

    /// A line of the log itself.
    fn own(&self, severity: Severity, text: String) -> Line {
        Line::new(unix_now(), severity, self.shared.process, "process", text)
    }

    fn show(&mut self) {
        let state = State {
            pid: std::process::id(),
            levels: self.shared.levels.read().to_string(),
            to: self.sink.to(),
            dropped: self.shared.dropped.load(Ordering::Relaxed),
            unwritten: self.sink.unwritten,
            trouble: self.sink.trouble.clone(),
            request: 0,
        };
        self.control.show(state);
    }
}

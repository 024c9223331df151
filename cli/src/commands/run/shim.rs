//! The process between `run` and the program: the program's parent. It adopts whatever the program
//! leaves behind, ends all of it when it is asked to or when `run` dies, and proves that it has
//! ended: a process that adopts orphans and has no child has no descendant. So nothing depends on
//! the program's user, session or parent.
//!
//! `run` and the shim talk over a socket, a line of JSON for each message.

use super::group::Group;
use super::listen;
use super::program::{Environment, kill_descendants};
use obol_chaos::control;
use obol_fabric::host::supervise::{self, Reaped};
use obol_fabric::host::{Process, sched};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTTIN, SIGTTOU};
use std::cell::Cell;
use std::ffi::OsString;
use std::io::{self, ErrorKind, IsTerminal};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// Between two attempts to kill what is left of the program: at first, and once it has taken long.
const KILL_EVERY: Duration = Duration::from_millis(2);
const KILL_EVERY_LATER: Duration = Duration::from_millis(100);
/// Processes that have not ended this long after SIGKILL are reported.
const KILL_IS_SLOW: Duration = Duration::from_secs(5);

/// How often the shim checks whether `run` is stopped. The kernel notifies only the parent of a
/// stopped process.
const RUN_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How often it checks whether the program's control group is frozen, of which it is not notified.
const GROUP_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// What the shim is asked for.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Start the program with this added to its environment.
    Start(Vec<(String, String)>),
    /// Kill the program and all that it started.
    Kill,
    /// Say whether the program lives, and is not about to be killed.
    Confirm,
}

/// What the shim says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Report {
    /// The program runs: its `exec` has succeeded.
    Started { pid: u32, started: u64 },
    /// It could not be executed.
    NotStarted { text: String, is_missing: bool },
    /// It was stopped by a signal.
    Stopped,
    /// It lives, and is not being killed.
    Lives,
    /// It is being killed, with all that it started: SIGKILL was sent.
    Killed(Cause),
    /// It has ended, with this status of `wait`; what it started may still run.
    Ended(i32),
    /// Nothing runs any more of all that it started.
    Gone,
    /// These processes do not end.
    Slow(Vec<u32>),
    /// Something else does not work.
    Trouble(String),
}

/// Why the shim kills a program that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Cause {
    /// `run` has asked for it.
    Asked,
    /// `run` was stopped by a signal: it sends the program nothing any more, and its membership
    /// ends.
    RunStopped,
}

/// What happens to the shim.
enum Event {
    Request(Request),
    /// `run` is gone, or wants nothing any more.
    Closed,
    Child,
}

/// `run`'s end.
pub(super) struct Shim {
    pub(super) pid: u32,
    stream: UnixStream,
    was_stopped: Cell<bool>,
}

/// Which of the two processes this is after [`split`].
pub(super) enum Split {
    Run(Shim),
    /// The shim, which has nothing to do any more.
    Shim(ExitCode),
}

/// Splits this process in two. The shim returns from here at its end.
pub(super) fn split(words: &[OsString], uses_group: bool) -> io::Result<Split> {
    let (own, its) = UnixStream::pair()?;
    let run = std::process::id();
    match supervise::fork()? {
        Some(pid) => Ok(Split::Run(Shim { pid, stream: own, was_stopped: Cell::new(false) })),
        None => {
            drop(own);
            let code =
                if keep(run, words, uses_group, its).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
            Ok(Split::Shim(code))
        }
    }
}

impl Shim {
    pub(super) fn ask(&self, request: &Request) -> io::Result<()> {
        control::write_line(&self.stream, request)
    }

    pub(super) fn start(&self, environment: &Environment) -> io::Result<()> {
        let environment = environment.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        self.ask(&Request::Start(environment))
    }

    /// Starts a thread that passes on the reports of the shim, until it ends.
    pub(super) fn listen(&self, on_report: impl FnMut(Option<Report>) + Send + 'static) -> io::Result<()> {
        listen::messages(self.stream.try_clone()?, on_report)
    }

    /// Kills it if it was stopped by a signal: it can end nothing any more. `run` then adopts
    /// its descendants.
    pub(super) fn end_if_stopped(&self) {
        if is_stopped(self.pid) {
            self.was_stopped.set(true);
            // The end of its stream reports one that has ended meanwhile.
            let _ = Process::of(self.pid).and_then(Process::hold).and_then(|held| held.kill());
        }
    }

    /// Whether it was found stopped, and killed for that.
    pub(super) fn was_stopped(&self) -> bool {
        self.was_stopped.get()
    }

    /// Lets it end.
    pub(super) fn close(&self) {
        // It may be gone.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

/// Whether a signal has stopped this process. Not whether a debugger has, which may do so at every
/// call of the system.
fn is_stopped(pid: u32) -> bool {
    // The first thread's: all are stopped together, and for the process's the kernel would add up
    // all of them.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

/// A program that was started and is not proved to have ended.
struct Life {
    process: Process,
    /// It has ended itself.
    is_over: bool,
    was_stopped: bool,
    /// When its control group was last looked at.
    looked: Instant,
}

struct ShimState<'a> {
    /// `run`'s process id, as long as the stream is open.
    run: u32,
    words: &'a [OsString],
    group: Option<Group>,
    stream: UnixStream,
    life: Option<Life>,
    /// Since when everything is being killed.
    killing: Option<Instant>,
    /// The reason, while it has to be reported.
    cause: Option<Cause>,
    slow_reported: bool,
}

/// The shim's life. Its error is that `run` is gone, so it is not reported.
fn keep(run: u32, words: &[OsString], uses_group: bool, stream: UnixStream) -> io::Result<()> {
    // What `ps` shows; nothing depends on it.
    let _ = std::fs::write("/proc/self/comm", "obol-shim");
    supervise::leave_group()?;
    sched::adopt_orphans()?;
    let (tx, rx) = mpsc::channel();
    listen_for_signals(tx.clone())?;
    listen::messages(stream.try_clone()?, move |request| {
        // The receiver may be gone.
        let _ = tx.send(request.map_or(Event::Closed, Event::Request));
    })?;
    let group = if uses_group { Group::make() } else { None };
    let mut state =
        ShimState { run, words, group, stream, life: None, killing: None, cause: None, slow_reported: false };
    let ended = state.serve(&rx);
    // Whatever went wrong, it leaves nothing behind, so this need not be reported.
    state.killing.get_or_insert_with(Instant::now);
    while supervise::reap_any().is_ok_and(|reaped| reaped != Reaped::None) {
        state.kill();
        let _ = rx.recv_timeout(state.pause());
    }
    ended
}

/// Signals that end programs are for `run`, which says what is to be done. They are caught and not
/// ignored, because a program inherits what is ignored.
fn listen_for_signals(tx: Sender<Event>) -> io::Result<()> {
    let signals = [SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGTTIN, SIGTTOU];
    listen::signals(&signals, move |signal| signal != SIGCHLD || tx.send(Event::Child).is_ok())
}

impl ShimState<'_> {
    fn serve(&mut self, rx: &Receiver<Event>) -> io::Result<()> {
        loop {
            let event = match (self.killing, &self.life) {
                (Some(_), _) => rx.recv_timeout(self.pause()),
                (None, Some(_)) => rx.recv_timeout(RUN_POLL_INTERVAL),
                (None, None) => rx.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let (mut is_to_confirm, is_idle) = (false, matches!(event, Err(RecvTimeoutError::Timeout)));
            match event {
                Ok(Event::Closed) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Ok(Event::Request(Request::Start(environment))) => self.start(&environment)?,
                Ok(Event::Request(Request::Kill)) => self.kill_for(Cause::Asked),
                Ok(Event::Request(Request::Confirm)) => is_to_confirm = true,
                Ok(Event::Child) | Err(RecvTimeoutError::Timeout) => {}
            }
            if self.killing.is_none() && self.life.is_some() && is_stopped(self.run) {
                self.kill_for(Cause::RunStopped);
            } else if is_idle && self.killing.is_none() && !self.is_found_frozen() {
                // Whatever else the program does wakes this process.
                continue;
            }
            self.look()?;
            let lives = self.life.as_ref().is_some_and(|life| !life.is_over && !life.was_stopped);
            if is_to_confirm && lives && self.killing.is_none() {
                self.report(&Report::Lives)?;
            }
        }
    }

    fn start(&mut self, environment: &[(String, String)]) -> io::Result<()> {
        let [program, arguments @ ..] = self.words else {
            return self
                .report(&Report::NotStarted { text: "no program is named".to_owned(), is_missing: true });
        };
        let mut command = Command::new(program);
        command.args(arguments).envs(environment.iter().map(|(key, value)| (key, value)));
        // A group of its own, so that a terminal's Ctrl-C comes to it once, by way of `run`. A
        // program in the background is stopped when it reads from a terminal.
        command.process_group(0);
        if io::stdin().is_terminal() {
            command.stdin(Stdio::null());
        }
        let group = match self.group.as_ref().map(Group::entry).transpose() {
            Ok(group) => group,
            Err(error) => {
                self.report(&Report::Trouble(format!("its control group cannot be used: {error}")))?;
                self.group = None;
                None
            }
        };
        supervise::tie(&mut command, group);
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                let is_missing = error.kind() == ErrorKind::NotFound;
                let text = format!("{}: {error}", program.display());
                return self.report(&Report::NotStarted { text, is_missing });
            }
        };
        // It is not reaped before this, so the number is its own.
        let process = Process::of(child.id())?;
        self.life = Some(Life { process, is_over: false, was_stopped: false, looked: Instant::now() });
        self.report(&Report::Started { pid: process.pid, started: process.started })
    }

    /// Whether the program's control group was frozen since the last look.
    fn is_found_frozen(&mut self) -> bool {
        let Some(life) = &mut self.life else { return false };
        if life.was_stopped || life.looked.elapsed() < GROUP_POLL_INTERVAL {
            return false;
        }
        life.looked = Instant::now();
        life.process.is_stopped()
    }

    /// Has the program killed, unless that is under way.
    fn kill_for(&mut self, cause: Cause) {
        if self.killing.is_none() {
            (self.killing, self.cause) = (Some(Instant::now()), Some(cause));
        }
    }

    /// Takes note of what has ended, and ends what is to end.
    fn look(&mut self) -> io::Result<()> {
        let is_none = loop {
            match supervise::reap_any()? {
                Reaped::Ended(pid, status) => self.ended(pid, status)?,
                Reaped::Running => break false,
                Reaped::None => break true,
            }
        };
        let Some(life) = &mut self.life else {
            (self.killing, self.cause) = (None, None);
            return Ok(());
        };
        if is_none && self.group.as_ref().is_none_or(Group::is_empty) {
            (self.life, self.killing, self.cause, self.slow_reported) = (None, None, None, false);
            return self.report(&Report::Gone);
        }
        if life.process.is_stopped() {
            if !std::mem::replace(&mut life.was_stopped, true) {
                self.report(&Report::Stopped)?;
            }
        } else {
            life.was_stopped = false;
        }
        if self.killing.is_some() {
            self.kill();
            if let Some(cause) = self.cause.take() {
                self.report(&Report::Killed(cause))?;
            }
            if !self.slow_reported && self.killing.is_some_and(|since| since.elapsed() > KILL_IS_SLOW) {
                self.slow_reported = true;
                self.report(&Report::Slow(supervise::descendants(std::process::id())))?;
            }
        }
        Ok(())
    }

    /// A child was reaped: with the program, all that it left behind is to end.
    fn ended(&mut self, pid: u32, status: ExitStatus) -> io::Result<()> {
        let Some(life) = self.life.as_mut().filter(|life| life.process.pid == pid && !life.is_over) else {
            return Ok(());
        };
        life.is_over = true;
        self.killing.get_or_insert_with(Instant::now);
        self.report(&Report::Ended(status.into_raw()))
    }

    fn kill(&self) {
        if let Some(group) = &self.group {
            group.kill();
        }
        kill_descendants();
    }

    fn pause(&self) -> Duration {
        let is_slow = self.killing.is_some_and(|since| since.elapsed() > KILL_IS_SLOW);
        if is_slow { KILL_EVERY_LATER } else { KILL_EVERY }
    }

    fn report(&self, report: &Report) -> io::Result<()> {
        control::write_line(&self.stream, report)
    }
}

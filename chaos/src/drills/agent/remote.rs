//! The runner's side of a fault agent: starts it, connects, sends keep-alives, and ends it.

use super::channel::{Lines, Order, Reply, socket_name};
use super::halt;
use super::invocation::Invocation;
use super::ssh::Ssh;
use obol_fabric::Nanos;
use obol_supervise::control::write_line;
use parking_lot::Mutex;
use std::cell::RefCell;
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

/// A fault agent that does not connect or answer in this time hangs.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The first answer of one on another host includes the login: a busy host takes long for its keys.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(20);
/// Poll interval for its socket, or for its end.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Bytes of error output to keep.
const ERRORS_BYTES_MAX: u64 = 4096;
/// How long error output is collected.
const ERRORS_TIMEOUT: Duration = Duration::from_secs(1);
/// Keep-alives per dead man's switch timeout.
const ALIVE_PER_DEAD_MAN: u64 = 4;

/// Why a fault agent does not carry out an order.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// It could not be started or reached.
    #[error("could not {0}: {1}")]
    Io(&'static str, io::Error),
    #[error("the fault agent has ended")]
    Ended,
    /// It does not answer.
    #[error("the fault agent does not {0}")]
    Silent(&'static str),
    /// It refused to be armed.
    #[error("the fault agent refuses: {0}")]
    Refused(String),
    /// It sent an unexpected reply.
    #[error("the fault agent sent an unexpected reply: {0:?}")]
    Answer(Reply),
    /// There is no fault agent on that host.
    #[error("no fault agent on {host}: {error}{}; try `ssh {host}`", in_brackets(.said))]
    Ssh {
        host: String,
        /// What went wrong.
        error: Box<RemoteError>,
        /// The error output of ssh, or of the other end.
        said: String,
    },
}

fn in_brackets(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(" (ssh says: {said})") }
}

/// A fault agent of this runner.
pub struct Remote {
    child: Child,
    writing: Writing,
    rx: Receiver<Reply>,
    /// A reply that was seen and not taken yet.
    seen: RefCell<Option<Reply>>,
    /// Set when it has ended.
    gone: Arc<AtomicBool>,
}

/// The channel for orders. When it is closed, the fault agent undoes its faults.
type Writing = Arc<Mutex<Option<Box<dyn Write + Send>>>>;

impl Remote {
    /// Starts a fault agent on this host and connects to it. `dir` is the cluster's directory.
    pub fn start(invocation: Invocation<'_>, dir: &Path, dead_man: Nanos) -> Result<Self, RemoteError> {
        let mut child = Command::new(invocation.program)
            .args(invocation.arguments())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| RemoteError::Io("start a fault agent", error))?;
        let connected = connect(&mut child, dir).and_then(|stream| {
            let reading = stream
                .try_clone()
                .map_err(|error| RemoteError::Io("share the fault agent's socket", error))?;
            Ok((reading, stream))
        });
        match connected {
            Ok((reading, stream)) => Ok(Self::over(child, reading, Box::new(Channel(stream)), dead_man, dir)),
            Err(error) => {
                // It cannot serve, and nothing has been injected.
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Starts a fault agent through the operator's own ssh, with their configuration, agent, jump
    /// hosts and known hosts.
    pub fn by_ssh(ssh: &Ssh, invocation: Invocation<'_>, dead_man: Nanos) -> Result<Self, RemoteError> {
        let mut child = ssh
            .command(invocation)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| RemoteError::Io("start ssh", error))?;
        let (Some(writing), Some(reading), Some(errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(RemoteError::Ended);
        };
        let (tx, lines_rx) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(errors.take(ERRORS_BYTES_MAX)).lines().map_while(Result::ok) {
                // After the fault agent has answered, the receiver is gone; but the pipe must stay
                // open for ssh.
                let _ = tx.send(line);
            }
        });
        let remote = Self::over(child, reading, Box::new(writing), dead_man, &invocation.dir());
        // An answer proves that ssh connected, that the program runs there and can access the
        // cluster.
        remote.order(&Order::Disarm).and_then(|()| remote.reply(LOGIN_TIMEOUT, "answer")).map_err(
            |error| RemoteError::Ssh {
                host: ssh.host.clone(),
                error: Box::new(error),
                said: said(&lines_rx),
            },
        )?;
        Ok(remote)
    }

    fn over(
        child: Child,
        reading: impl Read + Send + 'static,
        writing: Box<dyn Write + Send>,
        dead_man: Nanos,
        dir: &Path,
    ) -> Self {
        let (tx, rx) = mpsc::channel();
        let gone = Arc::<AtomicBool>::default();
        let is_gone = Arc::clone(&gone);
        thread::spawn(move || {
            let mut lines = Lines::new(reading);
            while let Ok(Some(one)) = lines.read::<Reply>() {
                if tx.send(one).is_err() {
                    return;
                }
            }
            is_gone.store(true, Ordering::Relaxed);
        });
        let writing: Writing = Arc::new(Mutex::new(Some(writing)));
        let for_thread = Arc::clone(&writing);
        let pause = Duration::from_nanos(dead_man.0 / ALIVE_PER_DEAD_MAN);
        let dir = dir.to_owned();
        thread::spawn(move || {
            // Ends when the channel is closed, or the fault agent is gone.
            while send(&for_thread, &Order::Alive).is_ok() {
                let end = Instant::now() + pause;
                while Instant::now() < end {
                    thread::sleep(end.saturating_duration_since(Instant::now()).min(halt::POLL_INTERVAL));
                    // The fault agent may be on a host that knows nothing of the halt.
                    if halt::in_force(&dir).is_some() {
                        drop(for_thread.lock().take());
                        return;
                    }
                }
            }
        });
        Self { child, writing, rx, seen: RefCell::new(None), gone }
    }

    /// Sends an order.
    pub fn order(&self, order: &Order) -> Result<(), RemoteError> {
        send(&self.writing, order).map_err(|error| RemoteError::Io("send an order to the fault agent", error))
    }

    /// A flag that is set when it has ended.
    pub(crate) fn gone(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.gone)
    }

    /// Looks whether it has ended, and all that it has replied is taken.
    pub(crate) fn has_ended(&self) -> bool {
        let mut seen = self.seen.borrow_mut();
        if seen.is_none() {
            match self.rx.try_recv() {
                Ok(reply) => *seen = Some(reply),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return true,
            }
        }
        false
    }

    /// Looks whether its faults have ended, without waiting: `Some(true)` if it has undone them,
    /// `Some(false)` if it has replied something else, or is gone.
    pub(crate) fn has_undone(&self) -> Option<bool> {
        if self.has_ended() {
            return Some(false);
        }
        self.seen.borrow().as_ref().map(|reply| matches!(reply, Reply::Undone { .. }))
    }

    /// Closes the channel, upon which it undoes what is left and ends; does not wait for that.
    pub(crate) fn close(&self) {
        drop(self.writing.lock().take());
    }

    /// Its next reply.
    pub fn reply(&self, within: Duration, doing: &'static str) -> Result<Reply, RemoteError> {
        if let Some(reply) = self.seen.take() {
            return Ok(reply);
        }
        match self.rx.recv_timeout(within) {
            Ok(reply) => Ok(reply),
            Err(RecvTimeoutError::Timeout) => Err(RemoteError::Silent(doing)),
            Err(RecvTimeoutError::Disconnected) => Err(RemoteError::Ended),
        }
    }

    /// Waits until it is armed.
    pub fn armed(&self, within: Duration) -> Result<(), RemoteError> {
        match self.reply(within, "arm itself")? {
            Reply::Armed => Ok(()),
            Reply::Refused { reason } => Err(RemoteError::Refused(reason)),
            other => Err(RemoteError::Answer(other)),
        }
    }

    /// Disarms it, whatever it has still to say.
    pub fn disarm(&self) -> Result<(), RemoteError> {
        self.order(&Order::Disarm)?;
        while self.reply(ANSWER_TIMEOUT, "disarm itself")? != Reply::Disarmed {}
        Ok(())
    }
}

/// The error output of the other end up to its end; ssh may write it late.
fn said(lines_rx: &Receiver<String>) -> String {
    let end = Instant::now() + ERRORS_TIMEOUT;
    let next = || lines_rx.recv_timeout(end.saturating_duration_since(Instant::now())).ok();
    let lines: Vec<String> = std::iter::from_fn(next).map(|line| line.trim().to_owned()).collect();
    lines.join("; ")
}

fn send(writing: &Mutex<Option<Box<dyn Write + Send>>>, order: &Order) -> io::Result<()> {
    let mut writing = writing.lock();
    match writing.as_mut() {
        Some(writing) => write_line(writing, order),
        None => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

/// A socket whose end the reader notices at once.
struct Channel(UnixStream);

impl Write for Channel {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // It is closed in any case.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

fn connect(child: &mut Child, dir: &Path) -> Result<UnixStream, RemoteError> {
    let path = dir.join(socket_name(child.id()));
    let end = Instant::now() + ANSWER_TIMEOUT;
    loop {
        match UnixStream::connect(&path) {
            Ok(stream) => return Ok(stream),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {}
            Err(error) => return Err(RemoteError::Io("reach the fault agent", error)),
        }
        if matches!(child.try_wait(), Ok(Some(_))) {
            return Err(RemoteError::Ended);
        }
        if Instant::now() > end {
            return Err(RemoteError::Silent("listen"));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

impl Drop for Remote {
    /// Ends the session, upon which the fault agent undoes what is left and ends.
    fn drop(&mut self) {
        self.close();
        let end = Instant::now() + ANSWER_TIMEOUT;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < end {
            thread::sleep(POLL_INTERVAL);
        }
        // A hanging one leaves its undo record to its warden.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

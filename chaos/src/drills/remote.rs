//! The runner's side of a helper: starts it, connects, keeps telling it that somebody is there, and ends it.

use super::channel::{Arm, Lines, Order, Told, socket_name};
use crate::control::write_line;
use obol_fabric::{Name, Nanos};
use std::fmt;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A helper that does not listen, or does not answer an order, in this time hangs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two looks for its socket, or for its end.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// The helper hears from the runner so many times before it would take it for dead.
const WORDS_PER_DEAD_MAN: u64 = 4;

/// Why a helper does not do what it is told.
#[derive(Debug)]
pub enum RemoteError {
    /// It could not be started or reached.
    Io(&'static str, io::Error),
    /// It ended.
    Ended,
    /// It says nothing.
    Silent(&'static str),
    /// It refused to be armed.
    Refused(String),
    /// It answered something else.
    Answer(Told),
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(doing, error) => write!(f, "could not {doing}: {error}"),
            Self::Ended => write!(f, "the helper has ended; `obol drill recover` mends what it left"),
            Self::Silent(doing) => {
                write!(f, "the helper does not {doing}; `obol drill recover` ends it and mends what it left")
            }
            Self::Refused(reason) => write!(f, "the helper refuses: {reason}"),
            Self::Answer(told) => write!(f, "the helper answered something else than expected: {told:?}"),
        }
    }
}

impl std::error::Error for RemoteError {}

/// A helper of this runner's.
pub struct Remote {
    child: Child,
    stream: UnixStream,
    writing: Arc<Mutex<UnixStream>>,
    told: Receiver<Told>,
}

impl Remote {
    /// Starts a helper of this program and connects to it.
    pub fn start(
        program: &Path,
        root: &Path,
        dir: &Path,
        cluster: Name,
        dead_man: Nanos,
    ) -> Result<Self, RemoteError> {
        let mut child = Command::new(program)
            .args(["drill-helper", "--cluster", cluster.as_str(), "--root"])
            .arg(root)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| RemoteError::Io("start a helper", error))?;
        let connected = connect(&mut child, dir).and_then(|stream| {
            let share = |error| RemoteError::Io("share the helper's socket", error);
            let (reading, writing) = (stream.try_clone().map_err(share)?, stream.try_clone().map_err(share)?);
            Ok((stream, reading, writing))
        });
        let (stream, reading, writing) = match connected {
            Ok(connected) => connected,
            Err(error) => {
                // It is of no use, and nothing has been injected.
                let _ = child.kill();
                let _ = child.wait();
                return Err(error);
            }
        };
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let mut lines = Lines::new(reading);
            while let Ok(Some(one)) = lines.read::<Told>() {
                if tell.send(one).is_err() {
                    return;
                }
            }
        });
        let writing = Arc::new(Mutex::new(writing));
        let voice = Arc::clone(&writing);
        let pause = Duration::from_nanos(dead_man.0 / WORDS_PER_DEAD_MAN);
        thread::spawn(move || {
            // Ends when the socket is shut down, or the helper is gone.
            while say(&voice, &Order::Alive).is_ok() {
                thread::sleep(pause);
            }
        });
        Ok(Self { child, stream, writing, told })
    }

    /// Gives an order.
    pub fn order(&self, order: &Order) -> Result<(), RemoteError> {
        say(&self.writing, order).map_err(|error| RemoteError::Io("talk to the helper", error))
    }

    /// What it says next.
    pub fn told(&self, within: Duration, doing: &'static str) -> Result<Told, RemoteError> {
        match self.told.recv_timeout(within) {
            Ok(told) => Ok(told),
            Err(RecvTimeoutError::Timeout) => Err(RemoteError::Silent(doing)),
            Err(RecvTimeoutError::Disconnected) => Err(RemoteError::Ended),
        }
    }

    /// Arms it.
    pub fn arm(&self, arm: Arm) -> Result<(), RemoteError> {
        self.order(&Order::Arm(Box::new(arm)))?;
        match self.told(ANSWER_TIMEOUT, "arm itself")? {
            Told::Armed => Ok(()),
            Told::Refused { reason } => Err(RemoteError::Refused(reason)),
            other => Err(RemoteError::Answer(other)),
        }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

fn say(writing: &Mutex<UnixStream>, order: &Order) -> io::Result<()> {
    let stream = writing.lock().unwrap_or_else(PoisonError::into_inner);
    write_line(&stream, order)
}

fn connect(child: &mut Child, dir: &Path) -> Result<UnixStream, RemoteError> {
    let path = dir.join(socket_name(child.id()));
    let end = Instant::now() + ANSWER_TIMEOUT;
    loop {
        match UnixStream::connect(&path) {
            Ok(stream) => return Ok(stream),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {}
            Err(error) => return Err(RemoteError::Io("reach the helper", error)),
        }
        if matches!(child.try_wait(), Ok(Some(_))) {
            return Err(RemoteError::Ended);
        }
        if Instant::now() > end {
            return Err(RemoteError::Silent("listen"));
        }
        thread::sleep(LOOK_EVERY);
    }
}

impl Drop for Remote {
    /// Ends the conversation, upon which the helper mends what is left and ends.
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
        let end = Instant::now() + ANSWER_TIMEOUT;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < end {
            thread::sleep(LOOK_EVERY);
        }
        // One that hangs leaves its undo record to whoever recovers.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

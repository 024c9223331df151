//! How commands talk to the `up` that supervises a cluster: one line of JSON each way over a Unix socket in the
//! cluster's directory.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The socket's name in a cluster's directory.
pub const SOCKET: &str = "up.sock";

/// A supervisor that says nothing for so long is taken for stopped.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest request or answer in bytes.
pub const LINE_BYTES_MAX: u64 = 64 * 1024;

/// What a command asks of a supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "do")]
pub enum Request {
    /// Start a process that is down.
    Start {
        /// Its name, such as `app-2`.
        name: String,
    },
    /// Say that somebody listens.
    Hello,
    /// End the whole cluster.
    Stop,
}

/// What the supervisor answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "result")]
pub enum Answer {
    /// Done; the process id where a process was started.
    Done {
        /// The new process.
        pid: Option<u32>,
    },
    /// Not done.
    Refused {
        /// Why, and what to do.
        reason: String,
    },
}

/// Why a supervisor did not do what was asked.
#[derive(Debug)]
pub enum ControlError {
    /// Nobody listens: the cluster was not started by a running `up`.
    NoSupervisor(PathBuf),
    /// The connection failed.
    Io(PathBuf, io::Error),
    /// The supervisor refused.
    Refused(String),
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSupervisor(at) => write!(
                f,
                "no `obol up` supervises this cluster (nobody listens at {}); start processes yourself, or run `obol down` and `obol up`",
                at.display()
            ),
            Self::Io(at, error) => write!(f, "could not talk to the supervisor at {}: {error}", at.display()),
            Self::Refused(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for ControlError {}

/// Asks the supervisor of the cluster in `dir`, and waits for its answer.
pub fn ask(dir: &Path, request: &Request) -> Result<Option<u32>, ControlError> {
    ask_within(dir, request, ANSWER_TIMEOUT)
}

/// The same with a bound of the caller's.
pub fn ask_within(dir: &Path, request: &Request, timeout: Duration) -> Result<Option<u32>, ControlError> {
    let at = dir.join(SOCKET);
    let failed = |error: io::Error| ControlError::Io(at.clone(), error);
    let stream = match UnixStream::connect(&at) {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Err(ControlError::NoSupervisor(at));
        }
        Err(error) => return Err(failed(error)),
    };
    stream.set_read_timeout(Some(timeout)).map_err(failed)?;
    write_line(&stream, request).map_err(failed)?;
    match read_line(&stream).map_err(failed)? {
        Answer::Done { pid } => Ok(pid),
        Answer::Refused { reason } => Err(ControlError::Refused(reason)),
    }
}

/// Sends one line of JSON.
pub fn write_line<T: Serialize>(mut to: impl Write, value: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// Takes one line of JSON.
pub fn read_line<T: for<'a> Deserialize<'a>>(stream: &UnixStream) -> io::Result<T> {
    let mut line = String::new();
    BufReader::new(io::Read::take(stream, LINE_BYTES_MAX)).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

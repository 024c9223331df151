//! How commands request something of the `up` that supervises a cluster: one line of JSON each way
//! over a Unix socket in the cluster's directory.

use obol_fabric::host::peer::peer;
use obol_fabric::host::{Cluster, Process};
use obol_node::hosts_here;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// The socket's name in a cluster's directory.
pub const SOCKET: &str = "up.sock";

/// A supervisor that does not answer for this long is considered stopped.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Poll interval for the supervisor's answer.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The longest request or answer in bytes.
pub const LINE_BYTES_MAX: u64 = 64 * 1024;

/// The directory in which the supervisor of a cluster listens: that of this host, or of another one that
/// is this machine, because one `up` runs the processes of all of them. Without a supervisor it is that of
/// this host.
pub fn supervised(cluster: &Cluster) -> PathBuf {
    let own = cluster.dir().to_owned();
    let listens = |dir: &PathBuf| dir.join(SOCKET).exists();
    if listens(&own) {
        return own;
    }
    let root = own.parent().unwrap_or(&own);
    let mut others = hosts_here(root, cluster.name()).into_values().map(|name| root.join(name.as_str()));
    let found = others.find(listens);
    found.unwrap_or(own)
}

/// A request to the supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "do")]
pub enum Request {
    /// Start a process that is down.
    Start {
        /// Its name, such as `app-2`.
        name: String,
    },
    /// Report why a process that was started is not running; the answer is a refusal with the
    /// reason.
    Why { name: String },
    /// Check whether a supervisor listens.
    Hello,
    /// End the whole cluster.
    Stop,
}

/// The supervisor's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "result")]
pub enum Answer {
    /// Done; with the pid if a process was started.
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

/// Why a supervisor did not carry out a request.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No process listens: the cluster was not started by a running `up`.
    #[error(
        "no `obol up` supervises this cluster (no process listens at {0}); start processes yourself, or run `obol down` and `obol up`"
    )]
    NoSupervisor(PathBuf),
    /// The connection failed.
    #[error("the connection to the supervisor at {0} failed: {1}")]
    Io(PathBuf, io::Error),
    /// The supervisor is stopped by a signal, and cannot answer until it is continued.
    #[error(
        "the `obol up` that supervises this cluster (pid {pid}) is stopped by a signal; `kill -CONT {pid}` continues it, \
         `obol down` ends the cluster"
    )]
    Stopped { pid: u32 },
    /// The supervisor did not answer in time.
    #[error("the supervisor at {0} did not answer within {1:?}; `obol down` ends the cluster")]
    Silent(PathBuf, Duration),
    /// The supervisor refused.
    #[error("{0}")]
    Refused(String),
}

/// Sends a request to the supervisor of the cluster in `dir`, and waits for the answer.
pub fn request(dir: &Path, request: &Request) -> Result<Option<u32>, ControlError> {
    request_within(dir, request, ANSWER_TIMEOUT)
}

/// The same with a timeout.
pub fn request_within(dir: &Path, request: &Request, timeout: Duration) -> Result<Option<u32>, ControlError> {
    let at = dir.join(SOCKET);
    let failed = |error: io::Error| ControlError::Io(at.clone(), error);
    let end = Instant::now() + timeout;
    let stream = match connect(&at, timeout) {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Err(ControlError::NoSupervisor(at));
        }
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            return Err(ControlError::Silent(at, timeout));
        }
        Err(error) => return Err(failed(error)),
    };
    let listener = peer(&stream).map_err(failed)?.pid;
    stream.set_write_timeout(Some(timeout)).map_err(failed)?;
    write_line(&stream, request).map_err(failed)?;
    let mut reader = BufReader::new(Read::take(&stream, LINE_BYTES_MAX));
    let mut line = Vec::new();
    // With a short read timeout: a stopped supervisor is detected at once, and the part of the
    // answer that was read stays.
    loop {
        if Process::of(listener).is_ok_and(Process::is_stopped) {
            return Err(ControlError::Stopped { pid: listener });
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ControlError::Silent(at, timeout));
        }
        stream.set_read_timeout(Some(left.min(POLL_INTERVAL))).map_err(failed)?;
        match reader.read_until(b'\n', &mut line) {
            Ok(_) => break,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    match serde_json::from_slice(&line).map_err(|error| failed(error.into()))? {
        Answer::Done { pid } => Ok(pid),
        Answer::Refused { reason } => Err(ControlError::Refused(reason)),
    }
}

/// Connects with a timeout: if the backlog of a stopped supervisor is full, the kernel blocks.
fn connect(at: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let (tx, rx) = mpsc::channel();
    let to = at.to_owned();
    // At worst the thread waits until this process ends.
    thread::Builder::new().name("connect".to_owned()).spawn(move || tx.send(UnixStream::connect(to)))?;
    rx.recv_timeout(timeout).unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Sends one line of JSON.
pub fn write_line<T: Serialize>(mut to: impl Write, value: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// Reads one line of JSON.
pub fn read_line<T: for<'a> Deserialize<'a>>(stream: &UnixStream) -> io::Result<T> {
    let mut line = String::new();
    BufReader::new(io::Read::take(stream, LINE_BYTES_MAX)).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::{self, HostNames};
    use obol_fabric::Name;
    use obol_node::{Deployment, Site};
    use obol_profiles::Profile;
    use std::fs::File;

    #[test]
    fn a_supervisor_is_found_from_each_host_that_is_this_machine() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("made");
        let root = folder.path().join("root");
        let profile = Profile::builtin("lan").expect("built in");
        let deployment = Deployment::new(2, 2, 0, profile).expect("in bounds");
        let names = HostNames::new(Name::new("one").expect("a name"), Some(2)).expect("names");
        let deployments = hosts::deployments(&deployment, &root, &names, 7).expect("two hosts");
        let made = names.all().iter().zip(deployments);
        let sites: Vec<Site> = made.map(|(name, of)| Site::create(&root, *name, of).expect("made")).collect();
        let own: Vec<PathBuf> = sites.iter().map(|site| site.cluster.dir().to_owned()).collect();
        let found = || -> Vec<PathBuf> { sites.iter().map(|site| supervised(&site.cluster)).collect() };
        assert_eq!(found(), own, "none listens");
        File::create(own[0].join(SOCKET)).expect("made");
        assert_eq!(found(), [own[0].clone(), own[0].clone()]);
        File::create(own[1].join(SOCKET)).expect("made");
        assert_eq!(found(), own, "that of the host itself comes first");
    }
}

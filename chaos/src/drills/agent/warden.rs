//! The warden: a process that does nothing but wait for the end of a fault agent, and then undo what
//! that has left.
//!
//! A fault agent undoes its faults itself, however its runner ends. If it is killed (by the kernel when
//! memory is short, or by mistake), nobody on its host would: the runner may be on another host, or dead
//! as well. So each fault agent has a child that reads from a pipe which the fault agent holds and never
//! writes to again. When the kernel closes the pipe, the warden looks for the undo record, and undoes
//! what it names. After an orderly end there is no record.

use super::undo;
use crate::faults::Undone;
use obol_fabric::Name;
use obol_fabric::host::Process;
use obol_node::SiteError;
use obol_observe::Observer;
use serde::{Deserialize, Serialize};
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fmt, thread};

/// A warden has this long to end after its fault agent has closed the pipe in order. With something left
/// that could not be undone, it waits for the end of the fault agent, and tries again.
const END_TIMEOUT: Duration = Duration::from_secs(1);
/// Poll interval meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Longest message to a warden, in bytes.
const WARD_BYTES_MAX: u64 = 256;

/// The word that makes `obol fault-agent` a warden.
pub const ARGUMENT: &str = "--warden";

/// Whom a warden waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Ward {
    pid: u32,
    started: u64,
}

/// The warden of this process. It ends with this.
pub struct Warden {
    child: Child,
    /// Open for as long as this process lives.
    pipe: Option<ChildStdin>,
}

impl fmt::Debug for Warden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Warden").field(&self.child.id()).finish()
    }
}

impl Warden {
    /// Starts a warden of the calling process, by this program.
    pub fn start(program: &Path, root: &Path, cluster: Name) -> io::Result<Self> {
        let Process { pid, started } = Process::current()?;
        let mut child = Command::new(program)
            .args(["fault-agent", ARGUMENT, "--cluster", cluster.as_str(), "--root"])
            .arg(root)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // What a terminal sends to this process's group must not end it.
            .process_group(0)
            .spawn()?;
        let mut pipe = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut line = serde_json::to_vec(&Ward { pid, started })?;
        line.push(b'\n');
        let sent = pipe.write_all(&line);
        let warden = Self { child, pipe: Some(pipe) };
        sent.map(|()| warden)
    }

    /// Whether it waits.
    pub fn is_there(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Warden {
    fn drop(&mut self) {
        self.pipe = None;
        let end = Instant::now() + END_TIMEOUT;
        // One that takes longer goes on alone.
        while self.is_there() && Instant::now() < end {
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Waits for the end of the process that has started this one, as it says on `from`, and undoes what it
/// has left.
pub fn watch(root: &Path, cluster: Name, from: impl io::Read) -> Result<Undone, WardenError> {
    let mut said = String::new();
    from.take(WARD_BYTES_MAX).read_to_string(&mut said).map_err(WardenError::Pipe)?;
    let Ward { pid, started } =
        serde_json::from_str(&said).map_err(|error| WardenError::Pipe(error.into()))?;
    let fault_agent = Process { pid, started };
    // Mostly nothing is left. With the cluster its processes have ended.
    if !undo::is_anything_left_of(&root.join(cluster.as_str()), fault_agent).map_err(WardenError::Undo)? {
        return Ok(Undone::default());
    }
    let mut observer = Observer::open(root, cluster)?;
    undo::recover_after(&mut observer, fault_agent).map_err(WardenError::Undo)
}

/// Why a warden cannot do its work.
#[derive(Debug, thiserror::Error)]
pub enum WardenError {
    /// It was not started by a fault agent.
    #[error("a warden is started by a fault agent, and learns from it whom it waits for: {0}")]
    Pipe(io::Error),
    /// The cluster cannot be observed.
    #[error(transparent)]
    Observe(#[from] SiteError),
    /// The undo record cannot be read.
    #[error("the undo record of a fault agent that was killed: {0}; see `obol drill recover`")]
    Undo(io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warden_that_no_fault_agent_has_started_is_refused() {
        let name = Name::new("c").expect("a name");
        for said in ["", "{}\n", "7\n", &"x".repeat(1000)] {
            let refused = watch(Path::new("/nonexistent"), name, said.as_bytes()).map(drop);
            assert!(matches!(refused, Err(WardenError::Pipe(_))), "{said:?}: {refused:?}");
        }
    }
}

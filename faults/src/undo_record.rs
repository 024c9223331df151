//! Undo records, written before anything is injected, so that others can undo what a fault agent
//! left behind.

use super::Record;
use obol_fabric::host::{Cluster, Process, remove_if_present};
use obol_node::FileLock;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

/// Prefix of the records' names, before the fault agent's pid.
const PREFIX: &str = "drill-undo-";
/// How long one who is to undo waits for another who does so.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// Poll interval meanwhile.
const LOCK_POLL: Duration = Duration::from_millis(5);

impl Record {
    fn path(&self, dir: &Path) -> PathBuf {
        dir.join(format!("{PREFIX}{}", self.fault_agent.0))
    }

    /// Writes it atomically.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        let path = self.path(dir);
        let draft = dir.join(format!("drill-draft-{}", self.fault_agent.0));
        fs::write(&draft, serde_json::to_vec(self)?)?;
        fs::rename(draft, path)
    }

    /// Has it undone by one process at a time: the lock, or `None` if it was undone meanwhile. Its fault
    /// agent has ended, and writes it no more.
    pub fn lock(&self, dir: &Path) -> io::Result<Option<FileLock>> {
        let path = self.path(dir);
        let end = Instant::now() + LOCK_TIMEOUT;
        loop {
            let file = match fs::File::open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                opened => opened?,
            };
            let opened = file.metadata()?.ino();
            if let Some(lock) = FileLock::try_new(file)? {
                let is_there = fs::metadata(&path).is_ok_and(|meta| meta.ino() == opened);
                return Ok(is_there.then_some(lock));
            }
            if Instant::now() >= end {
                return Err(io::Error::other("another process undoes it, and does not come to an end"));
            }
            thread::sleep(LOCK_POLL);
        }
    }

    /// Whether it is of this fault agent.
    pub fn is_of(&self, fault_agent: Process) -> bool {
        self.fault_agent == (fault_agent.pid, fault_agent.started)
    }

    /// Whether its fault agent has ended, so that it undoes nothing any more.
    pub fn is_left(&self) -> bool {
        let (pid, started) = self.fault_agent;
        !(Process { pid, started }).is_alive()
    }

    /// Removes it: nothing is left to undo.
    pub fn remove(&self, dir: &Path) -> io::Result<()> {
        remove_if_present(&self.path(dir))
    }
}

/// What drills have left in force on this host: parts of records whose fault agents have ended.
fn left(dir: &Path) -> io::Result<Vec<String>> {
    let records = records(dir)?.into_iter().filter(Record::is_left);
    Ok(records.flat_map(|record| record.parts()).collect())
}

/// What drills have left in force on this host, and how that is undone.
pub fn left_by_drills(cluster: &Cluster) -> Option<String> {
    let undo = format!("`obol drill recover --cluster {}` undoes it", cluster.name());
    match left(cluster.dir()) {
        Ok(left) if left.is_empty() => None,
        Ok(left) => {
            Some(format!("a drill was killed and has left faults on this host: {}; {undo}", left.join(", ")))
        }
        Err(error) => Some(format!("what a drill has left on this host cannot be read: {error}; {undo}")),
    }
}

/// The records in a cluster's directory.
pub fn records(dir: &Path) -> io::Result<Vec<Record>> {
    let mut records = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX)) {
            let bytes = match fs::read(entry.path()) {
                // Its fault agent has just undone everything itself.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                bytes => bytes?,
            };
            records.push(serde_json::from_slice(&bytes).map_err(io::Error::from)?);
        }
    }
    Ok(records)
}

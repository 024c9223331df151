//! Saves the newest decided view to a file, for recovery after the loss of all memory.
//!
//! A coordinator publishes each view in its region before it announces it; a separate thread polls
//! the region and saves new views. So the deciding thread never waits for a disk.

use obol_fabric::ViewId;
use obol_fabric::host::{Cluster, Observed};
use obol_membership::View;
use obol_node::saved_view;
use obol_term::file;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

/// The polling period, which bounds how far the file lags behind.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Saves views until it is dropped, and the newest one then.
#[derive(Debug)]
pub struct Saver {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Saver {
    /// Starts to save the views that coordinator `number` knows. Start it before the process
    /// requests real-time scheduling, which the thread would inherit. `report` is called with each
    /// failure that differs from the previous one, and with `None` once saving works again.
    pub fn start(
        cluster: Cluster,
        number: u16,
        path: PathBuf,
        report: impl Fn(&Path, Option<&io::Error>) + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel::<()>();
        let work = move || {
            let mut source = Source { cluster, number, region: None, saved: None, bytes: Vec::new() };
            let mut said = None;
            loop {
                let ends = stopped.recv_timeout(POLL_INTERVAL) != Err(RecvTimeoutError::Timeout);
                let error = source.save_newest(&path).err();
                let kind = error.as_ref().map(io::Error::kind);
                if kind != said {
                    report(&path, error.as_ref());
                }
                said = kind;
                if ends {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("saver".to_owned()).spawn(work)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It only panics if memory is exhausted, which cannot be reported here.
            let _ = thread.join();
        }
    }
}

struct Source {
    cluster: Cluster,
    number: u16,
    region: Option<Observed>,
    saved: Option<ViewId>,
    bytes: Vec<u8>,
}

impl Source {
    fn save_newest(&mut self, path: &Path) -> io::Result<()> {
        if self.region.is_none() {
            // Absent until the coordinator has started.
            self.region = Observed::open(&self.cluster, u32::from(self.number)).ok();
        }
        let Some(region) = &self.region else { return Ok(()) };
        let reader = region.reader();
        if reader.view_id().is_none_or(|id| self.saved.is_some_and(|saved| id <= saved)) {
            return Ok(());
        }
        self.bytes.clear();
        let found = reader.view_into(&mut self.bytes);
        // A view that is being replaced is read again at the next poll.
        let Some(view) = found.and_then(|_| View::from_frame(&self.bytes)) else { return Ok(()) };
        save(path, &saved_view::encode(self.cluster.nonce(), view.id, &self.bytes))?;
        self.saved = Some(view.id);
        Ok(())
    }
}

/// Replaces a file atomically: after a failure either the old or the new one is there whole.
/// Devices, links and directories are refused: a view that was written there could not be found again.
pub fn save(path: &Path, bytes: &[u8]) -> io::Result<()> {
    file::replace_whole(path, bytes)
}

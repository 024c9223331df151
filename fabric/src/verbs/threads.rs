//! The two threads beside an endpoint's own: one connects, one sleeps on the device's events and rings the doorbell.

use super::connector::Connector;
use super::queue::CompletionChannel;
use super::wake::Wake;
use crate::shm::region::Region;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

/// Both threads. They end when this is dropped.
#[derive(Debug)]
pub(super) struct Threads {
    stop: Arc<AtomicBool>,
    /// Each thread with what ends its wait; the connector's first.
    all: Vec<(Arc<Wake>, JoinHandle<()>)>,
}

impl Threads {
    pub(super) fn start(
        connector: Connector,
        connector_wake: &Arc<Wake>,
        channel: Arc<CompletionChannel>,
        region: Region,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Self { stop: Arc::clone(&stop), all: Vec::new() };
        let stopped = Arc::clone(&stop);
        let connect =
            Builder::new().name("obol-connect".to_owned()).spawn(move || connector.run(&stopped))?;
        threads.all.push((Arc::clone(connector_wake), connect));
        let wake = Arc::new(Wake::new()?);
        let awake = Arc::clone(&wake);
        let sleep = Builder::new().name("obol-sleep".to_owned()).spawn(move || {
            while !stop.load(Ordering::Acquire) {
                awake.wait(&*channel, None);
                // A futex and a descriptor can not be waited on together, so the event becomes a ring. The endpoint's
                // thread compares the doorbell before it sleeps: a ring that comes before is not lost.
                let mut rang = false;
                while channel.take_event().unwrap_or(false) {
                    rang = true;
                }
                if rang {
                    region.ring();
                }
            }
        })?;
        threads.all.push((wake, sleep));
        Ok(threads)
    }

    /// Has the connector look at its commands.
    pub(super) fn wake(&self) {
        if let Some((wake, _)) = self.all.first() {
            wake.wake();
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for (wake, _) in &self.all {
            wake.wake();
        }
        for (_, thread) in self.all.drain(..) {
            // One that panicked has told so already.
            let _ = thread.join();
        }
    }
}

//! The two threads besides an endpoint's own: one connects, one sleeps on the device's events and
//! rings the doorbell.

use super::connector::Connector;
use super::introduction::TicketGate;
use super::queue::CompletionChannel;
use core::sync::atomic::AtomicU64;
use obol_fabric::host::{Region, Wake};
use obol_identity::Admit;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

/// Both threads. They end when this is dropped.
#[derive(Debug)]
pub(super) struct Threads {
    stop: Arc<AtomicBool>,
    /// Each thread with its wake-up; the connector's first.
    all: Vec<(Arc<Wake>, JoinHandle<()>)>,
}

impl Threads {
    pub(super) fn start(connector: Connector, wake: &Arc<Wake>) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Self { stop: Arc::clone(&stop), all: Vec::new() };
        let connect = Builder::new().name("obol-connect".to_owned()).spawn(move || connector.run(&stop))?;
        threads.all.push((Arc::clone(wake), connect));
        Ok(threads)
    }

    /// Starts the thread to which peers introduce themselves.
    pub(super) fn admit(&mut self, mut admit: Admit<TicketGate>) -> io::Result<()> {
        let wake = Arc::new(Wake::new()?);
        let (awake, stop) = (Arc::clone(&wake), Arc::clone(&self.stop));
        let thread = Builder::new().name("obol-admit".to_owned()).spawn(move || {
            let turns = AtomicU64::new(0);
            admit.run(&stop, &awake, &turns);
        })?;
        self.all.push((wake, thread));
        Ok(())
    }

    /// Starts the ringing thread.
    pub(super) fn sleep_on(&mut self, channel: Arc<CompletionChannel>, region: Region) -> io::Result<()> {
        let wake = Arc::new(Wake::new()?);
        let (awake, stop) = (Arc::clone(&wake), Arc::clone(&self.stop));
        let sleep = Builder::new().name("obol-sleep".to_owned()).spawn(move || {
            while !stop.load(Ordering::Acquire) {
                awake.wait(&*channel, None);
                // A thread cannot wait on a futex and a descriptor together, so the event is
                // converted to a ring. The endpoint's thread compares the doorbell before it
                // sleeps, so an earlier ring is not lost.
                match channel.take_event() {
                    Ok(true) => region.ring(),
                    Ok(false) => {}
                    // A removed device reports nothing any more, and its descriptor may stay
                    // readable for ever.
                    Err(_) => return,
                }
            }
        })?;
        self.all.push((wake, sleep));
        Ok(())
    }

    /// Makes the connector check its commands.
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
            // A panic was already reported.
            let _ = thread.join();
        }
    }
}

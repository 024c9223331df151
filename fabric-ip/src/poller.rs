//! Rings the doorbell of an endpoint that sleeps when a gateway sends something: a thread cannot
//! wait for a futex and a descriptor together.

use obol_fabric::host::{Region, Wake};
use obol_identity::Stream;
use rustix::event::epoll::{self, EventData, EventFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

/// The thread. It ends when this is dropped.
pub(super) struct Poller {
    epoll: Arc<OwnedFd>,
    wake: Wake,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Poller {
    pub(super) fn start(region: Region) -> io::Result<Self> {
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let wake = Wake::new()?;
        epoll::add(&epoll, &wake, EventData::new_u64(0), EventFlags::IN)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (waits, stopped) = (Arc::clone(&epoll), Arc::clone(&stop));
        let thread = Builder::new().name("obol-poll".to_owned()).spawn(move || {
            let mut ready = Vec::with_capacity(8);
            while !stopped.load(Ordering::Acquire) {
                ready.clear();
                match epoll::wait(&waits, rustix::buffer::spare_capacity(&mut ready), None) {
                    Ok(_) => region.ring(),
                    Err(rustix::io::Errno::INTR) => {}
                    Err(_) => return,
                }
            }
        })?;
        Ok(Self { epoll, wake, stop, thread: Some(thread) })
    }

    /// Adds a new connection. Closing it removes it.
    pub(super) fn add(&self, stream: &Stream) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, stream, EventData::new_u64(1), EventFlags::ONESHOT)?)
    }

    /// Requests one ring when something arrives, or has arrived; and when the rest of the output can
    /// be sent.
    pub(super) fn arm(&self, stream: &Stream) -> io::Result<()> {
        let mut flags = EventFlags::IN | EventFlags::ONESHOT;
        if stream.is_stalled() {
            flags |= EventFlags::OUT;
        }
        Ok(epoll::modify(&self.epoll, stream, EventData::new_u64(1), flags)?)
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.wake.wake();
        if let Some(thread) = self.thread.take() {
            // A panic was already reported.
            let _ = thread.join();
        }
    }
}

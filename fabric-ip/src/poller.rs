//! Rings the doorbell of an endpoint that sleeps when a gateway sends something: a thread cannot
//! wait for a futex and a descriptor together.

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use obol_fabric::host::{Region, Wake};
use obol_identity::Stream;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

/// The thread. It ends when this is dropped.
pub(super) struct Poller {
    epoll: Arc<Epoll>,
    wake: Wake,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Poller {
    pub(super) fn start(region: Region) -> io::Result<Self> {
        let epoll = Arc::new(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?);
        let wake = Wake::new()?;
        epoll.add(&wake, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        let stop = Arc::new(AtomicBool::new(false));
        let (waits, stopped) = (Arc::clone(&epoll), Arc::clone(&stop));
        let thread = Builder::new().name("obol-poll".to_owned()).spawn(move || {
            let mut ready = [EpollEvent::empty(); 8];
            while !stopped.load(Ordering::Acquire) {
                match waits.wait(&mut ready, EpollTimeout::NONE) {
                    Ok(_) => region.ring(),
                    Err(Errno::EINTR) => {}
                    Err(_) => return,
                }
            }
        })?;
        Ok(Self { epoll, wake, stop, thread: Some(thread) })
    }

    /// Adds a new connection. Closing it removes it.
    pub(super) fn add(&self, stream: &Stream) -> io::Result<()> {
        Ok(self.epoll.add(stream, EpollEvent::new(EpollFlags::EPOLLONESHOT, 1))?)
    }

    /// Requests one ring when something arrives, or has arrived; and when the rest of the output can
    /// be sent.
    pub(super) fn arm(&self, stream: &Stream) -> io::Result<()> {
        let mut flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLONESHOT;
        if stream.is_stalled() {
            flags |= EpollFlags::EPOLLOUT;
        }
        Ok(self.epoll.modify(stream, &mut EpollEvent::new(flags, 1))?)
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

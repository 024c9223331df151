//! The front on the thread of its replica: it works between two turns of that thread, by a client beside
//! the replica. So while the replica leads, a command takes no switch to another thread and no wakeup.
//!
//! That thread sleeps on the futexes of its endpoint. Another one, the *socket watcher*, sleeps until a
//! connection has sent something, and wakes it up. It is armed once for each sleep, so it costs nothing
//! while commands follow each other.

use super::{Front, Server, Through};
use nix::poll::{PollFd, PollFlags};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use obol_fabric::host::Waker;
use obol_fabric::host::poll::poll;
use obol_fabric::{Endpoint, Fabric};
use obol_smr::{Client, ClientError};
use obol_term::output;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

/// What is taken at once of what is ready: the replica has its turns in between.
pub(super) const READY_MAX_BESIDE: usize = 64;
/// Bytes that are read of a connection at once, for the same reason.
const READ_BYTES_BESIDE: usize = 16 * 1024;
/// How long the thread waits for its connections before it sleeps on the futexes of its endpoint: a
/// client that sends one command at a time is back before that, and a wakeup by the watcher costs more.
const AWAKE_FOR: Duration = Duration::from_micros(200);
/// Longest time that this thread may block: the replica receives nothing meanwhile.
const IDLE_WAIT: Duration = Duration::from_micros(30);
/// How often the watcher looks whether it is to end.
const POLL_INTERVAL_MS: u8 = 50;

/// Reports what has arrived once, until it is armed again.
const ONCE: EpollFlags = EpollFlags::EPOLLIN.union(EpollFlags::EPOLLONESHOT);

/// What the socket watcher shares with the thread that it wakes up.
struct Shared {
    /// Reports once, when it is armed, that the set of sockets has something.
    epoll: Epoll,
    /// It has to be armed again.
    has_fired: AtomicBool,
    /// Of the replica's thread, while that has a place in the cluster.
    waker: Mutex<Option<Waker>>,
}

/// Has the replica's thread woken up when a connection has sent something.
pub(super) struct Sleeper {
    shared: Arc<Shared>,
    /// When there was something to do last.
    busy: Instant,
}

impl Shared {
    /// The thread of the watcher.
    fn watch(&self, flags: [&AtomicBool; 2]) {
        let mut events = [EpollEvent::empty(); 1];
        while !flags.iter().any(|flag| flag.load(Ordering::Relaxed)) {
            let interval = EpollTimeout::from(POLL_INTERVAL_MS);
            if self.epoll.wait(&mut events, interval).is_ok_and(|count| count > 0) {
                // Before the wakeup: the thread that is woken up arms this again.
                self.has_fired.store(true, Ordering::Release);
                if let Some(waker) = &*self.waker.lock().unwrap_or_else(PoisonError::into_inner) {
                    waker.wake();
                }
            }
        }
    }
}

impl Sleeper {
    /// Starts the watcher of a set of sockets.
    fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        sockets: &Epoll,
        flags: [&'scope AtomicBool; 2],
    ) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&sockets.0, EpollEvent::new(ONCE, 0))?;
        let shared = Arc::new(Shared { epoll, has_fired: AtomicBool::new(false), waker: Mutex::new(None) });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("obol-smr-socket".to_owned());
        thread.spawn_scoped(scope, move || theirs.watch(flags))?;
        Ok(Self { shared, busy: Instant::now() })
    }

    /// Before the thread sleeps. What has arrived already ends the sleep at once.
    fn arm(&self, sockets: &Epoll) {
        if self.shared.has_fired.swap(false, Ordering::Acquire)
            && self.shared.epoll.modify(&sockets.0, &mut EpollEvent::new(ONCE, 0)).is_err()
        {
            // It fails only without memory: the next sleep arms it.
            self.shared.has_fired.store(true, Ordering::Release);
        }
    }
}

impl Front {
    /// Serves on the thread of the replica, which calls [`Server::work_beside`]. Starts the socket
    /// watcher, which ends with `stop` or `ended`.
    pub fn beside<'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        flags: [&'scope AtomicBool; 2],
    ) -> io::Result<Server<'scope>> {
        let mut server = Server::new(self, flags)?;
        server.buffer.truncate(READ_BYTES_BESIDE);
        server.sleeper = Some(Sleeper::start(scope, &server.epoll, flags)?);
        Ok(server)
    }
}

impl Server<'_> {
    /// The replica's thread has a place in the cluster.
    pub fn joined(&self, waker: Waker) {
        if let Some(sleeper) = &self.sleeper {
            *sleeper.shared.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker);
        }
    }

    /// Between two turns of the replica.
    pub fn work_beside(&mut self, client: &mut Client, endpoint: &mut Endpoint) {
        let is_here = client.leader_at() == Some(endpoint.address());
        let any = self.exchange(is_here, &mut Through { client, endpoint });
        let now = Instant::now();
        let Some(sleeper) = &mut self.sleeper else { return };
        if any {
            sleeper.busy = now;
        }
        // What is on the way comes by the endpoint.
        let is_active = now.duration_since(sleeper.busy) < AWAKE_FOR && !self.batches.are_sent();
        if any || is_active || self.batches.are_held() {
            // The endpoint does not sleep, and this looks at the connections again after the next turn.
            client.look_soon();
            if !any && self.batches.are_held() {
                std::thread::yield_now();
            } else if !any {
                self.wait_idle();
            }
        } else {
            sleeper.arm(&self.epoll);
        }
    }

    /// Sleeps until a connection has sent something, but not for long: nothing else ends this sleep. It is
    /// left to the next turn to take that.
    fn wait_idle(&self) {
        // `epoll_wait` counts milliseconds. After an error the next turn looks.
        let _ = poll(&mut [PollFd::new(self.epoll.0.as_fd(), PollFlags::POLLIN)], Some(IDLE_WAIT));
    }

    /// The client of the store has ended: what its batches did is unknown, and nothing can be done before
    /// there is another one. All connections get an error, also those that wait to be accepted.
    pub fn client_failed(&mut self, error: ClientError) {
        // The server goes on whether or not this is read.
        let _ = output::remark(format_args!("obol: {}: {error}", self.front.name));
        self.batches.abandon(&error.to_string(), &mut self.connections, &mut self.touched);
        self.batches.drop_unsent();
        self.accept();
        for (id, connection) in &mut self.connections {
            connection.fail(&format!("ERR no command can be taken: {error}"));
            self.touched.push(*id);
        }
        self.settle();
    }
}

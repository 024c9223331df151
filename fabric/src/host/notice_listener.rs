//! Receives death notices of the kernel: a thread that blocks on the socket of the group to which
//! the module sends, and passes them to the loop; or one that waits for the eBPF programs to report
//! a death.
//!
//! The loop sleeps on futexes, which neither of them can wake; so the thread rings the loop's
//! doorbell, but only for deaths that this process has to handle at once. The notices are not
//! trusted yet: [`crate::host::watch`] compares them with the seat of the process that reportedly
//! died.

use crate::host::region::Region;
use crate::host::{Waker, multicast};
use crate::layout::Seat;
use crate::notice::{NOTICE_BYTES, Notice};
use crate::types::Address;
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::sockopt::ReuseAddr;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, setsockopt, socket};
use obol_deaths::ebpf::{Deaths, Wakes};
use obol_deaths::{Detection, Stage};
use std::collections::VecDeque;
use std::io::{self, PipeReader, PipeWriter};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// The interface that connects exactly the processes of this host.
pub(crate) const INTERFACE: &str = "lo";
/// The port of all clusters' groups; the address distinguishes them. Below Linux's ephemeral ports,
/// so that no program has it by chance.
pub(crate) const PORT: u16 = 28_473;
/// Notices queued for a loop that does not turn; more are dropped, and pidfds report those deaths.
const WAITING_MAX: usize = 1024;
const STACK_BYTES: usize = 64 << 10;
/// What ended a wait for a report of the eBPF programs: they have reported a death, or the thread has
/// to end.
const WOKEN: u64 = 0;
const STOPPED: u64 = 1;

/// The group of a cluster: one of the 65536 that stay on a host's own networks (RFC 2365,
/// 239.255.0.0/16). Two clusters that share one reject each other's notices.
pub(crate) fn group(nonce: u64) -> Ipv4Addr {
    let [a, b, ..] = nonce.to_le_bytes();
    Ipv4Addr::new(239, 255, a, b)
}

/// The seat of a process that is watched, as it is named by notices: without a host, and with the
/// generation.
#[derive(Clone, Debug)]
pub(crate) struct WatchedSeat {
    pub(crate) region: Region,
    pub(crate) at: Address,
}

impl WatchedSeat {
    /// Whether the occupant itself registered this token with its kernel.
    pub(crate) fn has_drawn(&self, stage: Stage, token: u64) -> bool {
        let drawn = self.region.token(self.at.seat, stage).load(Ordering::Acquire);
        // In this order: a successor changes the generation before it draws tokens.
        token == drawn && self.region.generation(self.at.seat) == self.at.generation
    }

    /// Whether the eBPF programs have reported this about the occupant.
    pub(crate) fn is_reported_by(&self, deaths: &Deaths, stage: Stage) -> bool {
        let word = self.region.seat_word(self.at.seat, offset_of!(Seat, detection)).load(Ordering::Acquire);
        let token = Detection::slot(word).map_or(0, |slot| deaths.token(slot, stage));
        token != 0 && self.has_drawn(stage, token)
    }
}

/// Received notices that are not handled yet. Shared by the thread and the loop.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// Set when a notice was added since the last check of the loop.
    pending: AtomicBool,
    notices: Mutex<VecDeque<Notice>>,
    /// The processes whose deaths wake the loop, each with what the eBPF programs had reported when
    /// the thread looked.
    urgent: Mutex<Vec<(WatchedSeat, Option<Stage>)>>,
    /// Datagrams that are not notices of this cluster, and notices dropped for lack of space.
    refused: AtomicU64,
}

impl Inbox {
    /// Whether notices are pending. One load.
    pub(crate) fn has_notices(&self) -> bool {
        self.pending.load(Ordering::SeqCst)
    }

    /// All pending notices. `into` is replaced.
    pub(crate) fn take(&self, into: &mut VecDeque<Notice>) {
        into.clear();
        self.pending.store(false, Ordering::SeqCst);
        core::mem::swap(into, &mut self.notices.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Rejections since the last call.
    pub(crate) fn take_refused(&self) -> u64 {
        self.refused.swap(0, Ordering::Relaxed)
    }

    /// Sets the processes whose death is urgent.
    pub(crate) fn set_urgent(&self, whom: impl Iterator<Item = WatchedSeat>) {
        let mut urgent = self.urgent.lock().unwrap_or_else(PoisonError::into_inner);
        urgent.clear();
        urgent.extend(whom.map(|watched| (watched, None)));
    }

    /// Whether there are processes whose death is urgent.
    pub(crate) fn has_urgent(&self) -> bool {
        !self.urgent.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Whether the eBPF programs have reported an urgent death since the last call.
    fn has_news(&self, deaths: &Deaths) -> bool {
        let mut any = false;
        for (watched, known) in self.urgent.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
            let is_reported = |stage: &Stage| watched.is_reported_by(deaths, *stage);
            let reported = [Stage::Dead, Stage::Dying].into_iter().find(is_reported);
            any |= reported.is_some() && reported != *known;
            *known = reported;
        }
        any
    }

    fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds a notice; returns whether the loop must be woken.
    fn put(&self, notice: Notice) -> bool {
        let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        if notices.len() >= WAITING_MAX {
            self.refuse();
            return true;
        }
        notices.push_back(notice);
        drop(notices);
        // Before the ring: a reader of the doorbell that sees it sees this, too.
        self.pending.store(true, Ordering::SeqCst);
        self.urgent
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .any(|(watched, _)| watched.at == notice.who)
    }
}

/// The listening thread. Dropping this ends it.
#[derive(Debug)]
pub(crate) struct NoticeListener {
    /// Closed to end the thread.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl NoticeListener {
    /// Joins the group of the cluster and starts to listen.
    pub(crate) fn start(cluster: u64, inbox: Arc<Inbox>, waker: Waker) -> io::Result<Self> {
        let socket = join(group(cluster))?;
        Self::spawn(move |stopped| listen(&socket, &stopped, cluster, &inbox, &waker))
    }

    /// Starts to wait for the reports of the eBPF programs.
    pub(crate) fn start_with_programs(
        wakes: Arc<Wakes>,
        deaths: Arc<Deaths>,
        inbox: Arc<Inbox>,
        waker: Waker,
    ) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        wakes.wait_with(&epoll, WOKEN)?;
        Self::spawn(move |stopped| {
            // It waits only as long as the descriptor is open.
            let _wakes = wakes;
            if epoll.add(&stopped, EpollEvent::new(EpollFlags::empty(), STOPPED)).is_ok() {
                while wait_for_report(&epoll) {
                    if inbox.has_news(&deaths) {
                        waker.wake();
                    }
                }
            }
        })
    }

    fn spawn(run: impl FnOnce(PipeReader) + Send + 'static) -> io::Result<Self> {
        let (stopped, stop) = io::pipe()?;
        let thread = std::thread::Builder::new()
            .name("obol-deaths".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || run(stopped))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }

    /// Whether it still listens.
    pub(crate) fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for NoticeListener {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It only panics if memory is exhausted, which cannot be reported here.
            let _ = thread.join();
        }
    }
}

fn listen(socket: &UdpSocket, stopped: &PipeReader, cluster: u64, inbox: &Inbox, waker: &Waker) {
    // One byte more than a notice, to detect longer datagrams.
    let mut bytes = [0u8; NOTICE_BYTES + 1];
    while wait(socket, stopped) {
        match socket.recv(&mut bytes) {
            Ok(n) => match bytes.get(..n).and_then(Notice::decode) {
                Some(notice) if notice.cluster == cluster => {
                    if inbox.put(notice) {
                        waker.wake();
                    }
                }
                _ => inbox.refuse(),
            },
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            // The network failed; the loop notices that this thread has ended, and restarts it
            // later.
            Err(_) => return,
        }
    }
}

/// Waits for a datagram. `false` when the thread has to end.
fn wait(socket: &UdpSocket, stopped: &PipeReader) -> bool {
    let mut fds = [socket.as_fd(), stopped.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    match poll(&mut fds, PollTimeout::NONE) {
        Ok(_) => fds[1].any() == Some(false),
        Err(error) => error == Errno::EINTR,
    }
}

/// Waits until the eBPF programs report a death. `false` when the thread has to end.
fn wait_for_report(epoll: &Epoll) -> bool {
    let mut events = [EpollEvent::empty(); 2];
    match epoll.wait(&mut events, EpollTimeout::NONE) {
        Ok(n) => events[..n].iter().all(|event| event.data() != STOPPED),
        Err(error) => error == Errno::EINTR,
    }
}

/// A socket that receives one group on this host's own interface, shared with other listeners.
fn join(group: Ipv4Addr) -> io::Result<UdpSocket> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Inet, SockType::Datagram, flags, None)?;
    setsockopt(&socket, ReuseAddr, &true)?;
    let address = SocketAddrV4::new(group, PORT);
    bind(socket.as_raw_fd(), &SockaddrIn::from(address))?;
    multicast::join_only(&socket, group, INTERFACE)?;
    let socket = UdpSocket::from(socket);
    debug_assert_eq!(socket.local_addr().ok(), Some(address.into()));
    Ok(socket)
}

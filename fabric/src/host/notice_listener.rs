//! Takes death notices off the network: a thread that blocks on the group's socket and hands what
//! it hears to the loop.
//!
//! The loop sleeps on futexes, which no socket can wake; so the thread rings the loop's doorbell,
//! but only for those whose death this process has to act on at once. What the thread hears is not
//! believed yet: [`crate::host::watch`] compares it with the seat of the one that is said to have
//! died.
#![allow(unsafe_code)]

use crate::host::Waker;
use crate::notice::{NOTICE_BYTES, Notice};
use crate::types::Address;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::VecDeque;
use std::ffi::CStr;
use std::io::{self, PipeReader, PipeWriter};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// The interface that joins the processes of a host, and nobody else.
pub(crate) const INTERFACE: &CStr = c"lo";
/// The port of all clusters' groups; the address tells them apart. Below Linux's ephemeral ports,
/// so that no program has it by chance.
pub(crate) const PORT: u16 = 28_473;
/// Notices that may wait for a loop that does not turn; what is more is lost, and told by pidfds.
const WAITING_MAX: usize = 1024;
const STACK_BYTES: usize = 64 << 10;

/// The group of a cluster: one of the 65536 that stay on a host's own networks (RFC 2365,
/// 239.255.0.0/16). Two clusters that share one refuse each other's notices.
pub(crate) fn group(nonce: u64) -> Ipv4Addr {
    let [a, b, ..] = nonce.to_le_bytes();
    Ipv4Addr::new(239, 255, a, b)
}

/// What was heard and not yet looked at. Shared by the thread and the loop.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// Something was put in since the loop last looked.
    pending: AtomicBool,
    notices: Mutex<VecDeque<Notice>>,
    /// Those for whom the loop is woken.
    urgent: Mutex<Vec<Address>>,
    /// Datagrams that are no notices of this cluster, and notices that found no room.
    refused: AtomicU64,
}

impl Inbox {
    /// Whether there is something to take. One load.
    pub(crate) fn has_mail(&self) -> bool {
        self.pending.load(Ordering::SeqCst)
    }

    /// All that was heard. `into` is replaced.
    pub(crate) fn take(&self, into: &mut VecDeque<Notice>) {
        into.clear();
        self.pending.store(false, Ordering::SeqCst);
        core::mem::swap(into, &mut self.notices.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// What was refused since the last call.
    pub(crate) fn take_refused(&self) -> u64 {
        self.refused.swap(0, Ordering::Relaxed)
    }

    /// Whose death is urgent from now on.
    pub(crate) fn set_urgent(&self, whom: impl Iterator<Item = Address>) {
        let mut urgent = self.urgent.lock().unwrap_or_else(PoisonError::into_inner);
        urgent.clear();
        urgent.extend(whom);
    }

    fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Tells whether the loop must look now.
    fn put(&self, notice: Notice) -> bool {
        let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        if notices.len() >= WAITING_MAX {
            self.refuse();
            return true;
        }
        notices.push_back(notice);
        drop(notices);
        // Before the ring: whoever reads the doorbell after it sees this, too.
        self.pending.store(true, Ordering::SeqCst);
        self.urgent.lock().unwrap_or_else(PoisonError::into_inner).contains(&notice.who)
    }
}

/// The thread. Dropping this ends it.
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
        let (stopped, stop) = io::pipe()?;
        let thread = std::thread::Builder::new()
            .name("obol-deaths".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || listen(&socket, &stopped, cluster, &inbox, &waker))?;
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
            // It only panics if memory runs out; there is nobody left to tell.
            let _ = thread.join();
        }
    }
}

fn listen(socket: &UdpSocket, stopped: &PipeReader, cluster: u64, inbox: &Inbox, waker: &Waker) {
    // A byte more than a notice has, to see that a datagram is longer.
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
            // The network is gone; the loop sees that this thread has ended, and starts another
            // later.
            Err(_) => return,
        }
    }
}

/// Waits for a datagram. `false` when it is time to end.
fn wait(socket: &UdpSocket, stopped: &PipeReader) -> bool {
    let watched = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut fds = [watched(socket.as_raw_fd()), watched(stopped.as_raw_fd())];
    // SAFETY: `fds` has two valid entries.
    let n = unsafe { libc::poll(fds.as_mut_ptr(), 2, -1) };
    let interrupted = n < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
    interrupted || n > 0 && fds[1].revents == 0
}

/// A socket that hears one group on this host's own interface, beside others that do.
fn join(group: Ipv4Addr) -> io::Result<UdpSocket> {
    let checked = |result: i32| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) };
    let flags = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the call takes integers.
    let raw = checked(unsafe { libc::socket(libc::AF_INET, flags, 0) })?;
    // SAFETY: the kernel has just made this descriptor for us.
    let socket = unsafe { OwnedFd::from_raw_fd(raw) };
    let set = |level, option, value: *const libc::c_void, bytes: usize| {
        // SAFETY: each caller gives a pointer to a value of its own with its size.
        checked(unsafe { libc::setsockopt(raw, level, option, value, bytes as libc::socklen_t) })
    };
    let (yes, no): (libc::c_int, libc::c_int) = (1, 0);
    set(libc::SOL_SOCKET, libc::SO_REUSEADDR, (&raw const yes).cast(), size_of_val(&yes))?;
    // Only what this socket itself has joined.
    set(libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, (&raw const no).cast(), size_of_val(&no))?;
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: PORT.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(group.octets()) },
        sin_zero: [0; 8],
    };
    let bytes = size_of_val(&address) as libc::socklen_t;
    // SAFETY: `address` is a valid address of this length.
    checked(unsafe { libc::bind(raw, (&raw const address).cast(), bytes) })?;
    // SAFETY: the name ends with a zero.
    let interface = unsafe { libc::if_nametoindex(INTERFACE.as_ptr()) };
    if interface == 0 {
        return Err(io::Error::last_os_error());
    }
    let membership = libc::ip_mreqn {
        imr_multiaddr: address.sin_addr,
        imr_address: libc::in_addr { s_addr: 0 },
        imr_ifindex: interface as libc::c_int,
    };
    set(libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP, (&raw const membership).cast(), size_of_val(&membership))?;
    let socket = UdpSocket::from(socket);
    debug_assert_eq!(socket.local_addr().ok(), Some(SocketAddrV4::new(group, PORT).into()));
    Ok(socket)
}

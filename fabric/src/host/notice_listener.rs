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
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use std::collections::VecDeque;
use std::io::{self, PipeReader, PipeWriter};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// The interface that joins the processes of a host, and nobody else.
pub(crate) const INTERFACE: &str = "lo";
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
    let mut fds = [PollFd::new(socket, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
    match poll(&mut fds, None) {
        Ok(_) => fds[1].revents().is_empty(),
        Err(error) => error == Errno::INTR,
    }
}

/// A socket that hears one group on this host's own interface, beside others that do.
fn join(group: Ipv4Addr) -> io::Result<UdpSocket> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    hear_only_joined(&socket)?;
    let address = SocketAddrV4::new(group, PORT);
    bind(&socket, &address)?;
    let interface = name_to_index(&socket, INTERFACE)?;
    sockopt::set_ip_add_membership_with_ifindex(&socket, &group, &Ipv4Addr::UNSPECIFIED, interface)?;
    let socket = UdpSocket::from(socket);
    debug_assert_eq!(socket.local_addr().ok(), Some(address.into()));
    Ok(socket)
}

/// Otherwise a socket hears whatever group another socket of the host has joined.
fn hear_only_joined(socket: &OwnedFd) -> io::Result<()> {
    let (no, bytes): (libc::c_int, _) = (0, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: the option takes an integer, whose size this is.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_MULTICAST_ALL,
            (&raw const no).cast(),
            bytes,
        )
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

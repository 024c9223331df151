//! The sockets of a path, and several datagrams by one call of the kernel.
//!
//! A path has two sockets at one port: one for pulses, which the thread empties once per period, and
//! one for notices, which wake it. The kernel sorts by a byte of the datagram ([`super::seal`]), and
//! drops what is not a frame ([`super::filter`]). For each datagram it notes when it has arrived, so
//! a pulse is not late because it was read late.
#![allow(unsafe_code)]

use super::filter::{self, Open};
use super::seal::{DATAGRAM_BYTES_MAX, KIND_AT, NOTICE};
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::sockopt::{AttachReusePortCbpf, RcvBuf, RcvBufForce, ReceiveTimestampns, ReusePort};
use nix::sys::socket::{
    AddressFamily, SetSockOpt, SockFlag, SockType, SockaddrLike, SockaddrStorage, bind, setsockopt, socket,
};
use nix::{setsockopt_impl, sockopt_impl};
use obol_fabric::host::clock;
use obol_fabric::host::poll::poll;
use obol_fabric::types::{Instant, Nanos};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};

/// A pulse without deaths.
const PULSE_BYTES: usize = 74;
/// Datagrams of one call.
const CALL_MAX: usize = 16;
/// Datagrams that are taken from a socket before anything is judged: with the most hosts, those of
/// four periods.
const TAKEN_MAX: usize = 128;
/// Room for what arrives while the thread is away: 4,096 datagrams, which the kernel counts as a
/// kilobyte each. It takes less where the system allows less (`net.core.rmem_max`).
const BUFFER_BYTES: usize = 4 << 20;
/// Between the kernel's noting an arrival and its putting the datagram into the socket.
const DELIVERY: Nanos = Nanos::from_micros(100);
/// Room for the time of arrival: a `cmsghdr` and a `timespec`.
const CONTROL_WORDS: usize = 4;

/// The sockets of a path.
#[derive(Debug)]
pub(super) struct PathSockets {
    pub(super) pulses: UdpSocket,
    pub(super) notices: UdpSocket,
}

impl PathSockets {
    pub(super) fn bind(at: SocketAddr) -> io::Result<Self> {
        // Alone at first, so that no second gateway shares the port.
        let pulses = UdpSocket::bind(at)?;
        setsockopt(&pulses, ReusePort, &true)?;
        let family = if at.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let notices = socket(family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
        setsockopt(&notices, ReusePort, &true)?;
        bind(notices.as_raw_fd(), &SockaddrStorage::from(at))?;
        let notices = UdpSocket::from(notices);
        sort(&notices)?;
        for socket in [&pulses, &notices] {
            socket.set_nonblocking(true)?;
            setsockopt(socket, ReceiveTimestampns, &true)?;
            // Beyond the system's bound with the right to it, else up to that bound.
            if setsockopt(socket, RcvBufForce, &BUFFER_BYTES).is_err() {
                setsockopt(socket, RcvBuf, &BUFFER_BYTES)?;
            }
        }
        Ok(Self { pulses, notices })
    }

    /// Has the kernel drop all datagrams but frames of these sessions by this path.
    pub(super) fn take_only(&self, path: u8, open: &[Open]) -> io::Result<()> {
        for (socket, notices) in [(&self.pulses, false), (&self.notices, true)] {
            attach(socket, AttachFilter, &mut filter::program(path, notices, open))?;
        }
        Ok(())
    }

    /// How many datagrams the kernel has dropped so far, because they were not frames of an open session
    /// or found no room. It wraps.
    pub(super) fn dropped(&self) -> Option<u32> {
        Some(dropped(&self.pulses)?.wrapping_add(dropped(&self.notices)?))
    }
}

/// The numbers of `SO_MEMINFO`, and that of dropped datagrams among them.
const MEMORY_NUMBERS: usize = 9;
const MEMORY_DROPS: usize = 8;

/// Raw, because nix panics if the kernel has fewer numbers.
fn dropped(socket: &UdpSocket) -> Option<u32> {
    let mut numbers = [0u32; MEMORY_NUMBERS];
    let mut bytes = size_of_val(&numbers) as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes to `numbers`, which has as many and outlives the
    // call, and their count to `bytes`.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            numbers.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    };
    let whole = done == 0 && bytes as usize == size_of_val(&numbers);
    numbers.get(MEMORY_DROPS).copied().filter(|_| whole)
}

sockopt_impl!(AttachFilter, SetOnly, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, libc::sock_fprog);

/// Gives a socket a program.
fn attach(
    socket: &UdpSocket,
    option: impl SetSockOpt<Val = libc::sock_fprog>,
    program: &mut [libc::sock_filter],
) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // The kernel copies what the pointer names, which outlives the call.
    Ok(setsockopt(socket, option, &libc::sock_fprog { len, filter: program.as_mut_ptr() })?)
}

/// Has the kernel put notices into the second socket of the port, and all else into the first.
fn sort(second: &UdpSocket) -> io::Result<()> {
    let op = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut program = [
        // A byte beyond the end ends the program with 0.
        op((libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16, 0, 0, KIND_AT as u32),
        op((libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, 0, 1, u32::from(NOTICE)),
        op((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, 1),
        op((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, 0),
    ];
    attach(second, AttachReusePortCbpf, &mut program)
}

/// A datagram and the time of its arrival by CLOCK_REALTIME, in nanoseconds.
struct Slot {
    bytes: [u8; DATAGRAM_BYTES_MAX + 1],
    len: usize,
    control: [u64; CONTROL_WORDS],
    arrived: Option<u64>,
}

/// Datagrams that were taken from a socket.
pub(super) struct Inbox {
    slots: Vec<Slot>,
    taken: usize,
}

impl Inbox {
    pub(super) fn new() -> Self {
        let slot = || Slot {
            bytes: [0; DATAGRAM_BYTES_MAX + 1],
            len: 0,
            control: [0; CONTROL_WORDS],
            arrived: None,
        };
        Self { slots: std::iter::repeat_with(slot).take(TAKEN_MAX).collect(), taken: 0 }
    }

    /// Takes what has arrived. Returns whether there may be more.
    pub(super) fn fill(&mut self, socket: &UdpSocket) -> bool {
        self.taken = 0;
        for slots in self.slots.chunks_mut(CALL_MAX) {
            let taken = receive(socket, slots);
            self.taken += taken;
            if taken < slots.len() {
                return false;
            }
        }
        true
    }

    pub(super) fn clear(&mut self) {
        self.taken = 0;
    }

    pub(super) fn len(&self) -> usize {
        self.taken
    }

    /// When a datagram has arrived, by CLOCK_REALTIME.
    pub(super) fn arrived(&self, index: usize) -> Option<u64> {
        self.slots.get(index)?.arrived
    }

    pub(super) fn datagram(&mut self, index: usize) -> &mut [u8] {
        let slot = self.slots.get_mut(index).filter(|_| index < self.taken);
        slot.and_then(|slot| slot.bytes.get_mut(..slot.len)).unwrap_or_default()
    }
}

/// Takes datagrams by one call. An error is the end of them.
fn receive(socket: &UdpSocket, slots: &mut [Slot]) -> usize {
    // SAFETY: all fields are numbers or pointers, for which zero is valid.
    let mut parts: [libc::iovec; CALL_MAX] = unsafe { core::mem::zeroed() };
    // SAFETY: as above.
    let mut heads: [libc::mmsghdr; CALL_MAX] = unsafe { core::mem::zeroed() };
    for ((slot, part), head) in slots.iter_mut().zip(&mut parts).zip(&mut heads) {
        *part = libc::iovec { iov_base: slot.bytes.as_mut_ptr().cast(), iov_len: slot.bytes.len() };
        head.msg_hdr.msg_iov = part;
        head.msg_hdr.msg_iovlen = 1;
        head.msg_hdr.msg_control = slot.control.as_mut_ptr().cast();
        head.msg_hdr.msg_controllen = size_of_val(&slot.control) as _;
    }
    let count = slots.len().min(CALL_MAX) as libc::c_uint;
    let (none, flags) = (core::ptr::null_mut(), libc::MSG_DONTWAIT);
    // SAFETY: the first `count` heads point to a part and to room for control messages each, which
    // have the lengths that they say, are used for nothing else, and outlive the call.
    let taken = unsafe { libc::recvmmsg(socket.as_raw_fd(), heads.as_mut_ptr(), count, flags, none) };
    let taken = usize::try_from(taken).unwrap_or(0);
    for (slot, head) in slots.iter_mut().zip(&heads).take(taken) {
        slot.len = (head.msg_len as usize).min(slot.bytes.len());
        slot.arrived = arrival(&head.msg_hdr);
    }
    taken
}

/// The time of arrival among the control messages of a datagram.
fn arrival(head: &libc::msghdr) -> Option<u64> {
    // SAFETY: the kernel has filled the control buffer of this head, which is still there, as far as
    // the head's length says; the first message lies in it as a whole, or there is none.
    let time = unsafe {
        let first = libc::CMSG_FIRSTHDR(head);
        let is_time = !first.is_null()
            && (*first).cmsg_level == libc::SOL_SOCKET
            && (*first).cmsg_type == libc::SCM_TIMESTAMPNS
            && (*first).cmsg_len as usize >= libc::CMSG_LEN(size_of::<libc::timespec>() as u32) as usize;
        is_time.then(|| libc::CMSG_DATA(first).cast::<libc::timespec>().read_unaligned())
    }?;
    let (seconds, nanos) = (u64::try_from(time.tv_sec).ok()?, u64::try_from(time.tv_nsec).ok()?);
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
}

/// Sends datagrams. One that the kernel does not take is a lost one.
pub(super) fn send(socket: &UdpSocket, datagrams: &[(Vec<u8>, &SockaddrStorage)]) {
    for datagrams in datagrams.chunks(CALL_MAX) {
        // SAFETY: all fields are numbers or pointers, for which zero is valid.
        let mut parts: [libc::iovec; CALL_MAX] = unsafe { core::mem::zeroed() };
        // SAFETY: as above.
        let mut heads: [libc::mmsghdr; CALL_MAX] = unsafe { core::mem::zeroed() };
        for (((bytes, to), part), head) in datagrams.iter().zip(&mut parts).zip(&mut heads) {
            *part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
            head.msg_hdr.msg_name = to.as_ptr().cast_mut().cast();
            head.msg_hdr.msg_namelen = to.len();
            head.msg_hdr.msg_iov = part;
            head.msg_hdr.msg_iovlen = 1;
        }
        let mut from = 0;
        while let Some(rest) = heads.get_mut(from..datagrams.len()).filter(|rest| !rest.is_empty()) {
            let (count, flags) = (rest.len() as libc::c_uint, libc::MSG_DONTWAIT);
            // SAFETY: each of the heads points to an address and to a part, whose lengths they say,
            // and which the kernel only reads; all outlive the call.
            let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), rest.as_mut_ptr(), count, flags) };
            // The first of the rest is the one that is refused.
            from += usize::try_from(sent).unwrap_or(0).max(1);
        }
    }
}

/// Bare datagrams in the rhythm of pulses: the same calls of the kernel, and nothing else.
pub(crate) struct BareDatagrams {
    sockets: PathSockets,
    to: SockaddrStorage,
    datagrams: Vec<Vec<u8>>,
    inbox: Inbox,
}

impl BareDatagrams {
    pub(crate) fn open(at: IpAddr, peers: usize) -> io::Result<Self> {
        let at = UdpSocket::bind((at, 0))?.local_addr()?;
        let sockets = PathSockets::bind(at)?;
        let datagrams = vec![vec![0; PULSE_BYTES]; peers];
        Ok(Self { sockets, to: at.into(), datagrams, inbox: Inbox::new() })
    }

    pub(crate) fn turn(&mut self) {
        let all: Vec<_> = self.datagrams.drain(..).map(|bytes| (bytes, &self.to)).collect();
        send(&self.sockets.pulses, &all);
        self.datagrams.extend(all.into_iter().map(|(bytes, _)| bytes));
        self.inbox.fill(&self.sockets.pulses);
    }

    pub(crate) fn wait(&self, until: Instant) {
        wait([&self.sockets.notices], until);
    }
}

/// Waits until a time, or for a notice.
pub(super) fn wait<'a>(notices: impl IntoIterator<Item = &'a UdpSocket>, until: Instant) {
    let mut fds: Vec<_> =
        notices.into_iter().map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)).collect();
    // An error is an early return.
    let _ = poll(&mut fds, Some(until.since(clock::now()).to_std()));
}

/// Readings of two clocks this close together count as one.
const CLOSE: Nanos = Nanos::from_micros(2);
/// Readings at most. A thread that is interrupted in each of them takes the closest.
const READINGS: u32 = 4;

/// Converts times of arrival to this host's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrivals {
    now: Instant,
    realtime: u64,
    /// The last time when the sockets were emptied.
    since: Instant,
}

impl Arrivals {
    /// For what is taken now, and has arrived after `since`.
    pub(super) fn new(since: Instant) -> Self {
        Self::by(clock::now, clock::realtime, since)
    }

    /// The two clocks cannot be read at once. What goes by between them, because this thread was not
    /// running, would be added to the age of all that is taken: too long a silence, and a delay below
    /// zero. So the own clock is read on both sides, and the closest of some readings counts.
    fn by(mut now: impl FnMut() -> Instant, mut realtime: impl FnMut() -> u64, since: Instant) -> Self {
        let mut read = || {
            let (before, realtime, after) = (now(), realtime(), now());
            (after.since(before), Self { now: after, realtime, since })
        };
        let mut closest = read();
        for _ in 1..READINGS {
            if closest.0 <= CLOSE {
                break;
            }
            let again = read();
            if again.0 < closest.0 {
                closest = again;
            }
        }
        closest.1
    }

    pub(super) const fn now(&self) -> Instant {
        self.now
    }

    /// When a datagram has arrived. It counts as arrived now if the time cannot be: CLOCK_REALTIME was
    /// set meanwhile. It does so as well if this thread was away for longer than `away`: the socket's
    /// buffer may have overflowed, and others are not to blame for this thread's absence.
    pub(super) fn of(&self, stamp: u64, away: Nanos) -> Instant {
        let age = self.realtime.checked_sub(stamp);
        let gap = self.now.since(self.since);
        match age {
            Some(age) if gap <= away && age <= gap.0.saturating_add(DELIVERY.0) => {
                Instant(self.now.0.saturating_sub(age))
            }
            _ => self.now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::getsockopt;
    use std::net::Ipv4Addr;

    fn bound() -> (PathSockets, SocketAddr) {
        // The second socket needs the port of the first one, which a process that another test forks at
        // this moment keeps in use.
        let one = || {
            let at = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| socket.local_addr());
            let at = at.expect("a port");
            PathSockets::bind(at).ok().map(|sockets| (sockets, at))
        };
        (0..100).find_map(|_| one()).expect("bound")
    }

    fn wait(inbox: &mut Inbox, socket: &UdpSocket, count: usize) {
        let mut all = Vec::new();
        while all.len() < count {
            inbox.fill(socket);
            all.extend((0..inbox.len()).map(|index| inbox.datagram(index).to_vec()));
            std::thread::yield_now();
        }
        assert_eq!(all.len(), count);
    }

    #[test]
    fn notices_come_to_a_socket_of_their_own_and_all_else_to_the_other() {
        let (sockets, at) = bound();
        let to = SockaddrStorage::from(at);
        let mut notice = vec![0; 74];
        notice[KIND_AT] = NOTICE;
        let other = vec![2; 74];
        let all = [vec![], vec![1; KIND_AT], notice.clone(), vec![0; 74], other, notice.clone()];
        let all: Vec<_> = all.into_iter().map(|bytes| (bytes, &to)).collect();
        send(&sockets.pulses, &all);
        let mut inbox = Inbox::new();
        wait(&mut inbox, &sockets.notices, 2);
        wait(&mut inbox, &sockets.pulses, 4);
        inbox.fill(&sockets.notices);
        assert_eq!(inbox.len(), 0);
    }

    const PATH: u8 = 2;

    /// A datagram that passes for a frame of a session, as far as the kernel looks.
    fn frame(host: u8, kind: u8, session: u64) -> Vec<u8> {
        let mut bytes = b"oblp".to_vec();
        bytes.extend([host, PATH, kind, 0]);
        bytes.extend(session.to_le_bytes());
        bytes.resize(PULSE_BYTES, 0);
        bytes
    }

    #[test]
    fn the_kernel_takes_frames_of_open_sessions_alone() {
        let open = [(1, 0x0102_0304_0506_0708), (31, u64::MAX), (7, 9)];
        let (sockets, at) = bound();
        sockets.take_only(PATH, &open).expect("attached");
        let to = SockaddrStorage::from(at);
        let mut others = vec![vec![], b"hello".to_vec(), vec![0; 1400], frame(2, 0, 9), frame(7, 2, 9)];
        let [one, host_only, session_only] =
            [(7, 9), (7, u64::MAX), (2, 9)].map(|(host, session)| frame(host, 0, session));
        others.extend([host_only, session_only, one[..PULSE_BYTES - 1].to_vec()]);
        for at in 0..16 {
            let mut changed = one.clone();
            changed[at] ^= 0x80;
            others.push(changed);
        }
        let mut long = one.clone();
        long.resize(DATAGRAM_BYTES_MAX + 1, 0);
        others.push(long.clone());
        send(&sockets.pulses, &others.iter().map(|bytes| (bytes.clone(), &to)).collect::<Vec<_>>());
        long.truncate(DATAGRAM_BYTES_MAX);
        let mut frames: Vec<_> = open.iter().map(|(host, session)| frame(*host, 0, *session)).collect();
        frames.push(long);
        send(&sockets.pulses, &frames.iter().map(|bytes| (bytes.clone(), &to)).collect::<Vec<_>>());
        send(&sockets.pulses, &[(frame(31, NOTICE, u64::MAX), &to)]);
        let mut inbox = Inbox::new();
        wait(&mut inbox, &sockets.notices, 1);
        wait(&mut inbox, &sockets.pulses, frames.len());
        assert_eq!(sockets.dropped(), Some(others.len() as u32));
        // A session that has ended is dropped as well.
        sockets.take_only(PATH, &open[..1]).expect("attached");
        send(&sockets.pulses, &[(frame(7, 0, 9), &to), (frame(1, 0, open[0].1), &to)]);
        wait(&mut inbox, &sockets.pulses, 1);
        sockets.take_only(PATH, &[]).expect("attached");
    }

    #[test]
    fn a_flood_of_strangers_takes_no_room_of_pulses() {
        const FLOOD: usize = 20_000;
        let (sockets, at) = bound();
        sockets.take_only(PATH, &[(1, 5)]).expect("attached");
        let to = SockaddrStorage::from(at);
        let flood: Vec<_> =
            (0..64).map(|n| (vec![n; if n < 32 { 1400 } else { PULSE_BYTES }], &to)).collect();
        for _ in 0..FLOOD / flood.len() {
            send(&sockets.pulses, &flood);
        }
        send(&sockets.pulses, &[(frame(1, 0, 5), &to)]);
        wait(&mut Inbox::new(), &sockets.pulses, 1);
    }

    /// What the kernel gives a socket that demands this much room: twice that, for what it needs itself, up
    /// to its bound if this process has no right to more.
    fn given(demanded: usize) -> usize {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
        if setsockopt(&socket, RcvBufForce, &(1 << 16)).is_ok() {
            return 2 * demanded;
        }
        let bound = std::fs::read_to_string("/proc/sys/net/core/rmem_max").expect("read");
        2 * demanded.min(bound.trim().parse().expect("a number"))
    }

    #[test]
    fn both_sockets_have_the_room_that_is_demanded_or_all_that_the_system_allows() {
        let (sockets, _) = bound();
        // Of 4,096 datagrams; not read from what it judges.
        let wanted = given(4 << 20);
        for socket in [&sockets.pulses, &sockets.notices] {
            assert_eq!(getsockopt(socket, RcvBuf).expect("read"), wanted);
        }
    }

    #[test]
    fn a_burst_of_pulses_finds_room_while_the_thread_is_away() {
        // Four turns of ten milliseconds, with as many hosts as there can be and a pulse per millisecond;
        // the system's bound may be as low as this.
        const BURST: usize = 200;
        let (sockets, at) = bound();
        let to = SockaddrStorage::from(at);
        let burst: Vec<_> = (0..BURST).map(|_| (frame(1, 0, 5), &to)).collect();
        send(&sockets.pulses, &burst);
        wait(&mut Inbox::new(), &sockets.pulses, BURST);
    }

    #[test]
    fn more_datagrams_than_one_call_takes_arrive_in_order_with_their_times() {
        let (sockets, at) = bound();
        let to = SockaddrStorage::from(at);
        let since = clock::now();
        let sent: Vec<_> = (0..CALL_MAX as u8 * 2 + 1).map(|n| (vec![n; KIND_AT], &to)).collect();
        send(&sockets.pulses, &sent);
        let (mut inbox, mut all) = (Inbox::new(), Vec::new());
        while all.len() < sent.len() {
            inbox.fill(&sockets.pulses);
            let arrivals = Arrivals::new(since);
            for index in 0..inbox.len() {
                let arrived = arrivals.of(inbox.arrived(index).expect("noted"), Nanos::MAX);
                all.push((inbox.datagram(index).to_vec(), arrived, arrivals.now()));
            }
        }
        let mut last = since;
        for ((bytes, _), (read, arrived, now)) in sent.iter().zip(&all) {
            assert!(bytes == read && last <= *arrived && arrived < now, "{read:?} {arrived:?} {now:?}");
            last = *arrived;
        }
    }

    #[test]
    fn a_second_gateway_cannot_share_the_port() {
        let (_sockets, at) = bound();
        let error = PathSockets::bind(at).expect_err("taken");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn a_datagram_that_is_refused_does_not_keep_back_the_others() {
        let (sockets, at) = bound();
        let to = SockaddrStorage::from(at);
        // Longer than a datagram can be.
        let all = [vec![1], vec![0; 70_000], vec![2], vec![0; 70_000]];
        send(&sockets.pulses, &all.map(|bytes| (bytes, &to)));
        let mut inbox = Inbox::new();
        wait(&mut inbox, &sockets.pulses, 2);
    }

    #[test]
    fn a_time_of_arrival_that_cannot_be_and_one_after_an_absence_count_as_now() {
        let (now, realtime) = (Instant(1_000_000), 5_000_000);
        let arrivals = Arrivals { now, realtime, since: Instant(999_000) };
        let away = Nanos(2000);
        assert_eq!(arrivals.of(realtime - 500, away), Instant(999_500));
        assert_eq!(arrivals.of(realtime - 1000 - DELIVERY.0, away), Instant(999_000 - DELIVERY.0));
        for stamp in [0, realtime + 1, realtime - 1001 - DELIVERY.0] {
            assert_eq!(arrivals.of(stamp, away), now, "{stamp}");
        }
        assert_eq!(arrivals.of(realtime - 500, Nanos(999)), now, "this thread was away");
    }

    #[test]
    fn a_pause_between_the_readings_of_two_clocks_makes_nothing_older() {
        // The thread is paused for 10 ms before or after CLOCK_REALTIME is read, the first times.
        for (pauses, before) in [(0, true), (1, true), (1, false), (3, true), (3, false)] {
            let time = core::cell::Cell::new(1_000_000_000);
            let tick = |pause: bool| time.set(time.get() + 100 + if pause { 10_000_000 } else { 0 });
            let (mut readings, mut paused) = (0, 0);
            let now = || {
                readings += 1;
                // Even readings of the own clock follow CLOCK_REALTIME.
                let pause = !before && readings % 2 == 0 && readings / 2 <= pauses;
                tick(pause);
                Instant(time.get())
            };
            let realtime = || {
                paused += 1;
                tick(before && paused <= pauses);
                time.get() + 5_000_000_000
            };
            let arrivals = Arrivals::by(now, realtime, Instant(0));
            let error = (arrivals.now.0 + 5_000_000_000).abs_diff(arrivals.realtime);
            assert!(error <= CLOSE.0, "{pauses} pauses, before: {before}: {error} ns apart");
            assert!(arrivals.now.0 + 5_000_000_000 >= arrivals.realtime, "nothing is dated too early");
        }
    }
}

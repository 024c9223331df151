//! Has the kernel report the death of a seat's occupant. It registers its process with the module
//! deadbeat, or else with the eBPF programs, as long as one of them is loaded, and again after a
//! reload.
//!
//! This is optional: the words of [`crate::host::death`] and pidfds report every death in any case.

use crate::host::notice_listener::{self, Inbox, NoticeListener};
use crate::host::process::{Held, Process};
use crate::host::region::Region;
use crate::host::{Waker, kernel};
use crate::layout::Seat;
use crate::notice::{NOTICE_BYTES, Notice};
use crate::types::{Address, Instant, Nanos};
use core::mem::offset_of;
use core::sync::atomic::Ordering;
use obol_deaths::deadbeat::{Deadbeat, DeadbeatError, Destinations, Registration, UdpGroup, VerbsGroup};
use obol_deaths::ebpf::{Deaths, EbpfError, Programs, Tokens};
use obol_deaths::{Detection, Stage};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

/// How often a process checks whether the module was loaded, or is being unloaded.
const MAINTAIN_INTERVAL: Nanos = Nanos::from_millis(250);

/// The mechanism that reports this process's death, with its handles.
enum Registered {
    /// The registration is dropped before the device.
    Module { _registration: Registration, device: Deadbeat },
    /// It lasts until the process ends. After the process has left the seat, the seat has no
    /// tokens, so its notices are rejected. The listener exists while there is somebody whose
    /// death is urgent.
    Ebpf { programs: Programs, tokens: Tokens, listener: Option<NoticeListener> },
}

impl Registered {
    fn is_unloading(&self) -> bool {
        match self {
            Self::Module { device, .. } => device.is_unloading(),
            Self::Ebpf { programs, .. } => programs.are_gone(),
        }
    }

    const fn detection(&self) -> Detection {
        match self {
            Self::Module { .. } => Detection::Module,
            Self::Ebpf { .. } => Detection::Ebpf,
        }
    }

    const fn word(&self) -> u64 {
        match self {
            Self::Module { .. } => Detection::Module.word(0),
            Self::Ebpf { tokens, .. } => Detection::Ebpf.word(tokens.slot),
        }
    }
}

/// The mechanism that notifies other hosts: the module, or why it does not.
struct RemoteRegistration {
    group: VerbsGroup,
    /// The registration is dropped first.
    registered: Result<(Registration, Deadbeat), DeadbeatError>,
}

/// The tokens of a seat's notices. `None` from a kernel without random numbers.
pub(crate) fn draw() -> Option<[u64; 2]> {
    let token = || kernel::random().filter(|&token| token != 0);
    Some([token()?, token()?])
}

/// One occupant's registration with the kernel.
pub(crate) struct KernelNotifier {
    region: Region,
    who: Address,
    cluster: u64,
    me: Process,
    /// For the notices of dying and of being dead. They stay the same while the seat is held, so
    /// that peers that know them accept them from any mechanism. `None` if the kernel gave no
    /// random numbers.
    tokens: Option<[u64; 2]>,
    registered: Option<Registered>,
    remote: Option<RemoteRegistration>,
    /// Why there is none.
    refusal: Option<DeadbeatError>,
    /// For a process that watches others.
    receiver: Option<NoticeReceiver>,
    maintained_at: Instant,
}

struct NoticeReceiver {
    inbox: Arc<Inbox>,
    waker: Waker,
    listener: Option<NoticeListener>,
}

impl KernelNotifier {
    /// Registers the calling process if the module or the programs are loaded. `who` includes its
    /// generation. With an inbox, notices about others are received as well.
    pub(crate) fn new(
        region: &Region,
        who: Address,
        cluster: u64,
        me: Process,
        tokens: Option<[u64; 2]>,
        receiver: Option<(Arc<Inbox>, Waker)>,
        now: Instant,
    ) -> Self {
        let receiver = receiver.map(|(inbox, waker)| NoticeReceiver { inbox, waker, listener: None });
        let mut new = Self {
            region: region.clone(),
            who,
            cluster,
            me,
            tokens,
            registered: None,
            remote: None,
            refusal: None,
            receiver,
            maintained_at: Instant::ZERO,
        };
        new.maintain(now, |_| None);
        new
    }

    /// The mechanism that reports this process's death first.
    pub(crate) fn detection(&self) -> Detection {
        self.registered.as_ref().map_or(Detection::FutexPidfd, Registered::detection)
    }

    /// Why it is neither the module nor a program, or why the module does not notify other hosts.
    pub(crate) fn refusal(&self) -> Option<&DeadbeatError> {
        let remote = self.remote.as_ref().and_then(|remote| remote.registered.as_ref().err());
        self.refusal.as_ref().or(remote)
    }

    /// The array in which the eBPF programs report deaths, if this process uses them.
    pub(crate) fn deaths(&self) -> Option<&Arc<Deaths>> {
        match &self.registered {
            Some(Registered::Ebpf { programs, .. }) => Some(programs.deaths()),
            _ => None,
        }
    }

    /// Releases a mechanism that is being unloaded, and registers with the module, or else the
    /// programs, once loaded. To be called often; costs a few system calls per
    /// [`MAINTAIN_INTERVAL`].
    ///
    /// `route` returns the destination of notices on other hosts and their encoding; `None` while
    /// that is unknown.
    pub(crate) fn maintain(&mut self, now: Instant, route: impl Fn(&[u8]) -> Option<(VerbsGroup, Vec<u8>)>) {
        if self.maintained_at != Instant::ZERO && now.since(self.maintained_at) < MAINTAIN_INTERVAL
            || !self.region.is_here()
        {
            return;
        }
        self.maintained_at = now;
        if self.registered.as_ref().is_some_and(Registered::is_unloading) {
            self.unregister();
        }
        if !matches!(self.registered, Some(Registered::Module { .. })) {
            match self.register_with_module() {
                Ok(registered) => self.take(registered),
                Err(refusal) if self.registered.is_none() => match self.register_with_programs() {
                    Ok(registered) => self.take(registered),
                    Err(refusal_too) => {
                        self.write_tokens([0; 2]);
                        let is_known = matches!(refusal_too, DeadbeatError::Ebpf(EbpfError::Absent));
                        self.refusal = Some(if is_known { refusal } else { refusal_too });
                    }
                },
                // The attempt may have written its own tokens, which are never sent.
                Err(_) => {
                    if let Some(Registered::Ebpf { tokens, .. }) = self.registered {
                        self.write_tokens([tokens.dying, tokens.dead]);
                    }
                }
            }
        }
        if let Err(error) = self.listen() {
            // This process's death is reported nevertheless; the deaths of others are reported by
            // their words and pidfds.
            self.refusal = Some(DeadbeatError::Kernel { doing: "listen to death notices", error });
        }
        if matches!(self.registered, Some(Registered::Module { .. })) {
            self.register_for_other_hosts(route);
        }
    }

    fn take(&mut self, registered: Registered) {
        let word = registered.word();
        self.registered = Some(registered);
        self.refusal = None;
        self.show(word);
    }

    fn tokens(&self) -> Result<[u64; 2], DeadbeatError> {
        let none = || io::Error::new(io::ErrorKind::Unsupported, "the kernel has no random numbers");
        self.tokens.ok_or_else(|| DeadbeatError::Kernel { doing: "draw a token", error: none() })
    }

    fn register_with_programs(&self) -> Result<Registered, DeadbeatError> {
        let programs = Programs::open()?;
        let [dying, dead] = self.tokens()?;
        let tokens = programs.register(dying, dead)?;
        self.write_tokens([tokens.dying, tokens.dead]);
        Ok(Registered::Ebpf { programs, tokens, listener: None })
    }

    fn register_with_module(&self) -> Result<Registered, DeadbeatError> {
        let device = Deadbeat::open()?;
        let udp = UdpGroup {
            group: notice_listener::group(self.cluster).to_ipv6_mapped(),
            port: notice_listener::PORT,
            interface: Some(notice_listener::INTERFACE.to_owned()),
            hops: 1,
        };
        device.configure(&Destinations { udp: Some(udp), verbs: None })?;
        let tokens = self.tokens()?;
        // Watchers have to know the tokens before the kernel may send them.
        self.write_tokens(tokens);
        let [dying, dead] = self.notices(tokens);
        let registration = device.register(self.hold()?.as_fd(), &dying, &dead)?;
        Ok(Registered::Module { _registration: registration, device })
    }

    fn hold(&self) -> Result<Held, DeadbeatError> {
        self.me.hold().map_err(|error| DeadbeatError::Kernel { doing: "hold this process", error })
    }

    fn notices(&self, tokens: [u64; 2]) -> [[u8; NOTICE_BYTES]; 2] {
        let [dying, dead] = tokens;
        let of = |stage, token| Notice { cluster: self.cluster, who: self.who, stage, token }.encode();
        [of(Stage::Dying, dying), of(Stage::Dead, dead)]
    }

    /// Has the module notify other hosts as well, once the destination is known.
    fn register_for_other_hosts(&mut self, route: impl Fn(&[u8]) -> Option<(VerbsGroup, Vec<u8>)>) {
        let Some(notices) = self.tokens.map(|tokens| self.notices(tokens)) else { return };
        let [Some((group, dying)), Some((_, dead))] = notices.map(|notice| route(&notice)) else { return };
        if self.remote.as_ref().is_some_and(|remote| remote.group == group) {
            return;
        }
        let register = || {
            let device = Deadbeat::open()?;
            device.configure(&Destinations { udp: None, verbs: Some(group.clone()) })?;
            let registration = device.register(self.hold()?.as_fd(), &dying, &dead)?;
            Ok((registration, device))
        };
        let registered = register();
        self.remote = Some(RemoteRegistration { group, registered });
    }

    /// Starts to listen, also again after a failure, or ends it where nothing is urgent.
    fn listen(&mut self) -> io::Result<()> {
        let Some(receiver) = &mut self.receiver else { return Ok(()) };
        let is_alive = |listener: &Option<_>| listener.as_ref().is_some_and(NoticeListener::is_alive);
        let (inbox, waker) = (Arc::clone(&receiver.inbox), receiver.waker.clone());
        match &mut self.registered {
            Some(Registered::Module { .. }) if !is_alive(&receiver.listener) => {
                receiver.listener = Some(NoticeListener::start(self.cluster, inbox, waker)?);
            }
            // Every death of the host would wake the thread, so only who needs it has one.
            Some(Registered::Ebpf { listener, .. }) if !inbox.has_urgent() => *listener = None,
            Some(Registered::Ebpf { programs, listener, .. }) if !is_alive(listener) => {
                // Programs without it leave sleeping processes to the words.
                let Some(wakes) = programs.wakes() else { return Ok(()) };
                let (wakes, deaths) = (Arc::clone(wakes), Arc::clone(programs.deaths()));
                *listener = Some(NoticeListener::start_with_programs(wakes, deaths, inbox, waker)?);
            }
            _ => {}
        }
        Ok(())
    }

    /// Removes the registration. Nothing is sent from here on.
    pub(crate) fn unregister(&mut self) {
        if !self.region.is_here() {
            // A copy in a forked child: registrations and listener belong to its parent.
            core::mem::forget((self.registered.take(), self.remote.take(), self.receiver.take()));
            return;
        }
        if self.registered.is_none() {
            return;
        }
        self.show(Detection::FutexPidfd.word(0));
        self.registered = None;
        self.remote = None;
        self.write_tokens([0; 2]);
    }

    fn write_tokens(&self, tokens: [u64; 2]) {
        for (stage, token) in [Stage::Dying, Stage::Dead].into_iter().zip(tokens) {
            self.region.token(self.who.seat, stage).store(token, Ordering::Release);
        }
    }

    fn show(&self, word: u64) {
        self.region.seat_word(self.who.seat, offset_of!(Seat, detection)).store(word, Ordering::Release);
    }
}

impl Drop for KernelNotifier {
    fn drop(&mut self) {
        self.unregister();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Endpoint;
    use crate::contract::{Evidence, Fabric};
    use crate::endpoint::{Owner, Wait};
    use crate::host::test::{Root, made, name};
    use crate::host::{Cluster, clock, multicast};
    use core::time::Duration;
    use std::net::{Ipv4Addr, UdpSocket};
    use std::sync::mpsc;
    use std::thread::JoinHandle;

    fn endpoint(cluster: &Cluster, who: &str) -> Endpoint {
        let owner = Owner { kind: 1, name: name(who), region: None, groups: 2 };
        Endpoint::open(cluster, owner, Wait::Block).expect("opened")
    }

    /// Sends datagrams as any user of this host can.
    fn sender() -> UdpSocket {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("bound");
        multicast::send_by(&socket, notice_listener::INTERFACE).expect("set");
        socket
    }

    /// Polls the watches until notices were counted; returns the counts and the events.
    fn received(watcher: &mut Endpoint) -> ((u64, u64), Vec<Evidence>) {
        for _ in 0..10_000 {
            watcher.watches.check(watcher.transport.regions(), clock::now());
            let counts = watcher.watches.take_counts();
            if counts != (0, 0) {
                let evidence = std::iter::from_fn(|| watcher.watches.next()).map(|(_, evidence)| evidence);
                return (counts, evidence.collect());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("no notice was counted");
    }

    /// A process that receives notices, and one that it watches, on a thread that lives as long as
    /// this.
    struct Watched {
        watcher: Endpoint,
        who: Address,
        /// Of the watched process.
        region: Region,
        nonce: u64,
        _listener: NoticeListener,
        release: Option<mpsc::Sender<()>>,
        victim: Option<JoinHandle<()>>,
        _root: Root,
    }

    impl Watched {
        fn new() -> Self {
            let (root, cluster) = made();
            let mut watcher = endpoint(&cluster, "watcher");
            let (ready, opened) = mpsc::channel();
            let (release, released) = mpsc::channel::<()>();
            let theirs = cluster.clone();
            let victim = std::thread::spawn(move || {
                let mut endpoint = endpoint(&theirs, "victim");
                // On a host with the module it would draw tokens of its own.
                endpoint.kernel_notifier.unregister();
                ready.send(endpoint.address()).expect("awaited");
                let _ = released.recv();
            });
            let who = opened.recv().expect("opened");
            let nonce = cluster.nonce();
            let listener = NoticeListener::start(nonce, watcher.watches.inbox(), watcher.waker());
            watcher.watch(who);
            let region = Region::open(&cluster, who.region).expect("mapped");
            let (release, victim) = (Some(release), Some(victim));
            let _listener = listener.expect("listening");
            Self { watcher, who, region, nonce, _listener, release, victim, _root: root }
        }

        fn group(&self) -> (Ipv4Addr, u16) {
            (notice_listener::group(self.nonce), notice_listener::PORT)
        }
    }

    impl Drop for Watched {
        fn drop(&mut self) {
            drop(self.release.take());
            let ended = self.victim.take().map(JoinHandle::join);
            assert!(std::thread::panicking() || matches!(ended, Some(Ok(()))));
        }
    }

    #[test]
    fn a_notice_is_believed_iff_it_has_the_token_of_its_seat() {
        let mut watched = Watched::new();
        let (nonce, who, group) = (watched.nonce, watched.who, watched.group());
        let (seat, watcher) = (&watched.region, &mut watched.watcher);
        seat.token(0, Stage::Dying).store(5, Ordering::Release);
        seat.token(0, Stage::Dead).store(6, Ordering::Release);

        let socket = sender();
        let send = |bytes: &[u8]| assert_eq!(socket.send_to(bytes, group).expect("sent"), bytes.len());
        let notice = |stage, token| Notice { cluster: nonce, who, stage, token };
        // The token of dying does not forge a death, nor does another process's token.
        for token in [5, 7] {
            send(&notice(Stage::Dead, token).encode());
            assert_eq!(received(watcher), ((0, 1), vec![]));
        }
        send(&Notice { cluster: nonce ^ 1, ..notice(Stage::Dead, 6) }.encode());
        assert_eq!(received(watcher), ((0, 1), vec![]));
        send(b"hello");
        assert_eq!(received(watcher), ((0, 1), vec![]));

        send(&notice(Stage::Dying, 5).encode());
        assert_eq!(received(watcher), ((1, 0), vec![Evidence::Suspicion]));
        let bell = seat_bell(watcher);
        send(&notice(Stage::Dead, 6).encode());
        assert_eq!(received(watcher), ((1, 0), vec![Evidence::Proof]));
        let rung = (0..10_000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            seat_bell(watcher) != bell
        });
        assert!(rung, "the loop was not woken");
    }

    fn seat_bell(endpoint: &Endpoint) -> u32 {
        endpoint.region.doorbell().load(Ordering::SeqCst)
    }

    #[test]
    fn a_successor_does_not_die_of_its_predecessors_notice() {
        let mut watched = Watched::new();
        let (nonce, who, group) = (watched.nonce, watched.who, watched.group());
        let (seat, watcher) = (&watched.region, &mut watched.watcher);
        seat.token(0, Stage::Dead).store(6, Ordering::Release);
        let before = Address { generation: who.generation.wrapping_sub(1).max(1) ^ 2, ..who };
        let late = Notice { cluster: nonce, who: before, stage: Stage::Dead, token: 6 };
        let socket = sender();
        socket.send_to(&late.encode(), group).expect("sent");
        // Datagrams of one sender arrive in order: when the second is counted, the first has been
        // handled.
        socket.send_to(b"hello", group).expect("sent");
        assert_eq!(received(watcher), ((0, 1), vec![]));
    }
}

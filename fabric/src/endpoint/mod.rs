//! An endpoint: one process's region, seats, watches and loop, and its [`Fabric`]. Its
//! [`Transport`] carries operations and datagrams to peers; this module is independent of the
//! transport. One type for all transports: what runs over an endpoint is compiled once.
#![allow(unsafe_code)]

mod reconnect;
mod run;
pub(crate) mod transport;

pub use reconnect::Reconnect;
pub use run::Wait;
pub use transport::{Done, Received, RemoteDeaths, Transport};

use crate::atomic::AtomicU64;
use crate::contract::{Fabric, Group, Remote, SeatStatus, Token};
use crate::host::NameClaim;
use crate::host::cluster::Cluster;
use crate::host::death::{self, Registration};
use crate::host::error::HostError;
use crate::host::kernel_notifier::{self, KernelNotifier};
use crate::host::numbers::FIRST_FREE;
use crate::host::process::Process;
use crate::host::region::{Region, Waker};
use crate::host::sched::{self, Slice};
use crate::host::seats::Seats;
use crate::host::table::{Claim, Role};
use crate::host::watch::SeatWatches;
use crate::host::{clock, futex, reader};
use crate::layout::{DATAGRAM_BYTES_MAX, Layout};
use crate::memory;
use crate::metrics::{self, COUNTER_WORDS, CounterSlot, FabricCounter, HISTOGRAM_WORDS, HistogramSlot};
use crate::page::{self, Page};
use crate::recorder::{self, EventCode, Record};
use crate::rights::{Change, Permission, Writers};
use crate::types::{Address, Incarnation, Instant, Name, Nanos, RegionOwner, ViewId};
use core::any::Any;
use core::mem::{ManuallyDrop, offset_of};
use core::ops::Range;
use core::sync::atomic::{Ordering, fence};
use obol_deaths::Detection;
use obol_deaths::deadbeat::DeadbeatError;
use run::Pace;

/// The owner of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The member kind, opaque to the fabric.
    pub kind: u32,
    /// Its name, for observers and for programs looking for their agent.
    pub name: Name,
    /// The region's number: 1 to 7 for coordinators, whose memory survives them; `None` for any
    /// number from 8 on.
    pub region: Option<u32>,
    /// Multicast groups, see [`Group::bit`].
    pub groups: u32,
}

/// The number of programs that get a short slice before all are woken: two calls for each delay the
/// wake-up, and more of them wait for cores anyway.
const SHORT_SLICES_MAX: usize = 8;

/// A process's access to a cluster. Belongs to the thread that opened it; the end of that thread
/// counts as its death.
pub struct Endpoint {
    address: Address,
    me: Process,
    cluster: Cluster,
    layout: Layout,
    pub(crate) region: Region,
    pub(crate) transport: ManuallyDrop<Box<dyn Transport>>,
    pub(crate) watches: SeatWatches,
    seats: Seats,
    /// The datagram that is being handled.
    datagram: Vec<u8>,
    pace: Pace,
    /// Whether it sleeps on the members' bell too. Coordinators do not: they have to act before
    /// members hear of it.
    with_members: bool,
    page: Page,
    /// Whether the programs in the seats have to be notified.
    changed: bool,
    /// Since when the programs in the seats have short slices.
    short_since: Option<Instant>,
    /// The last request for a confirmation that was passed to the machine.
    confirm_since: Instant,
    /// Has the kernel report the death of this process.
    pub(crate) kernel_notifier: KernelNotifier,
    // Dropped almost last: it marks the death words, after which peers consider this process dead.
    registration: Option<Registration>,
    // Given up after the region.
    claim: Option<NameClaim>,
}

/// A region claimed and prepared by the calling thread, before peers may use it.
pub struct Taken<'a> {
    claim: Claim<'a>,
    /// Its memory, mapped.
    pub region: Region,
    /// Its number and generation, by which peers know the sender of a datagram.
    pub sender: RegionOwner,
    registration: Registration,
    me: Process,
    /// The tokens of its death notices, for peers that cannot read them after its death.
    pub tokens: Option<[u64; 2]>,
}

impl<'a> Taken<'a> {
    /// Claims a region of the cluster for the calling thread.
    pub fn take(cluster: &'a Cluster, owner: &Owner) -> Result<Self, HostError> {
        cluster.require_here()?;
        futex::probe().map_err(|error| HostError::Kernel { doing: "wait on several futexes", error })?;
        let me = Process::current()
            .map_err(|error| HostError::Kernel { doing: "learn this process's start time", error })?;
        let claim = cluster.table.claim(owner.region, me)?;
        let role = Role { kind: owner.kind, groups: owner.groups, name: owner.name };
        claim.describe(&role);
        let prepared = Region::prepare(cluster, &claim, &role, me)
            .and_then(|region| death::register(&region, 0).map(|registration| (region, registration)));
        match prepared {
            Ok((region, registration)) => {
                let sender = RegionOwner { region: claim.region, generation: claim.generation };
                Ok(Self { claim, region, sender, registration, me, tokens: kernel_notifier::draw() })
            }
            Err(error) => {
                claim.give_back();
                Err(error)
            }
        }
    }

    /// Releases it after a failure.
    pub fn give_back(self) {
        drop(self.registration);
        self.claim.give_back();
    }

    /// Peers may use the region as soon as this returns.
    pub fn go_live(
        self,
        cluster: &Cluster,
        address: Address,
        transport: impl Transport,
        wait: Wait,
    ) -> Endpoint {
        let mut watches = SeatWatches::new(self.sender);
        let receiver = (watches.inbox(), Waker(self.region.clone()));
        let kernel_notifier = KernelNotifier::new(
            &self.region,
            address,
            cluster.nonce(),
            self.me,
            self.tokens,
            Some(receiver),
            clock::now(),
        );
        watches.set_deaths(kernel_notifier.deaths());
        let with_members = self.claim.region >= FIRST_FREE;
        self.claim.go_live();
        Endpoint {
            address,
            me: self.me,
            cluster: cluster.clone(),
            layout: *cluster.layout(),
            transport: ManuallyDrop::new(Box::new(transport)),
            watches,
            kernel_notifier,
            seats: Seats::new(self.region.clone(), address),
            datagram: Vec::with_capacity(DATAGRAM_BYTES_MAX),
            pace: Pace::new(wait),
            with_members,
            page: Page::default(),
            changed: false,
            short_since: None,
            confirm_since: Instant::ZERO,
            region: self.region,
            registration: Some(self.registration),
            claim: None,
        }
    }
}

impl Endpoint {
    /// Holds the claim of its name for as long as the region.
    #[must_use]
    pub fn with_claim(mut self, claim: NameClaim) -> Self {
        self.claim = Some(claim);
        self
    }

    /// The own region.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The cluster, as seen from this host.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The mechanism that reports this process's death first.
    pub fn detection(&self) -> Detection {
        self.kernel_notifier.detection()
    }

    /// Why the kernel module, though it is loaded, does not report this process's death.
    pub fn kernel_refusal(&self) -> Option<&DeadbeatError> {
        self.kernel_notifier.refusal().filter(|refusal| !matches!(refusal, DeadbeatError::Absent { .. }))
    }

    /// A handle that ends a wait of the loop from another thread.
    pub fn waker(&self) -> Waker {
        Waker(self.region.clone())
    }

    /// Makes the loop turn, and the heartbeat advance, at least this often. 10 ms by default.
    pub fn beat_every(&mut self, span: Nanos) {
        self.pace.beat_every = span;
    }

    /// Submits all posts and datagrams. The loop calls this after each event.
    #[inline]
    pub fn flush(&mut self) {
        if core::mem::take(&mut self.changed) {
            self.announce();
        }
        self.send_posted();
    }

    /// What carries its operations, to ask for its state, if it is of this type.
    pub fn transport<W: Transport>(&self) -> Option<&W> {
        let transport: &dyn Any = &**self.transport;
        transport.downcast_ref()
    }

    fn watch_as(&mut self, whom: Address, lazy: bool) {
        if self.transport.is_local(whom) {
            self.watches.watch(whom, lazy, self.transport.regions(), clock::now());
        } else {
            self.transport.watch(whom);
        }
    }

    /// Sends what was posted. Programs in the seats are notified by [`Endpoint::flush`] at the end of a
    /// turn: once for a view and the lease on it, because one that is woken for the view alone may
    /// sleep again before there is a lease, and wait behind a process that dies.
    fn send_posted(&mut self) {
        self.transport.flush();
        let lost = self.transport.lost();
        if lost != 0 {
            self.count(FabricCounter::DatagramsLost, lost);
        }
    }

    /// Notifies the programs in the seats of a changed page or view.
    fn announce(&mut self) {
        // One may be woken on the core of a process that dies, whose memory the kernel releases for
        // as long as it has a slice. Only now is it known that this program is not the one.
        if self.short_since.replace(clock::now()).is_none() {
            self.set_slices(Slice::Short);
        }
        self.region.announce();
    }

    /// Sets the slices of the threads that represent the programs in the seats.
    fn set_slices(&self, slice: Slice) {
        for seat in 1..self.layout.limits().seats as u16 {
            set_slice(&self.region, seat, slice);
        }
    }
}

/// Sets the slice of the thread that represents the program in a seat.
fn set_slice(region: &Region, seat: u16, slice: Slice) {
    let thread = region.death_word(seat, 0).load(Ordering::Relaxed) & futex::TID_MASK;
    if thread != 0 {
        // It may have ended; and without a short slice it only runs later.
        let _ = sched::set_slice(Some(thread), slice);
    }
}

impl Fabric for Endpoint {
    fn address(&self) -> Address {
        self.address
    }

    fn read(&mut self, from: Remote, len: u32, token: Token) {
        self.transport.read(from, len, token);
    }

    fn write(&mut self, to: Remote, bytes: &[u8], token: Token) {
        self.transport.write(to, bytes, token);
    }

    #[inline]
    fn write_unsignaled(&mut self, to: Remote, bytes: &[u8], token: Token) {
        self.transport.write_unsignaled(to, bytes, token);
    }

    #[inline]
    fn own(&self, offset: u32, len: usize) -> Option<&[AtomicU64]> {
        memory::span(&self.region, offset, len)
    }

    fn cas(&mut self, at: Remote, expected: u64, desired: u64, token: Token) {
        self.transport.cas(at, expected, desired, token);
    }

    fn permit(&mut self, whom: Writers, part: Range<u32>, permission: Permission, token: Token) {
        self.transport.permit(Change { whom, part, permission }, token);
    }

    fn send(&mut self, to: Address, bytes: &[u8]) {
        // A program in a seat receives nothing: its owner does.
        let to = if to.seat == 0 { to } else { to.owner() };
        if !self.transport.send(to, bytes) {
            self.count(FabricCounter::DatagramsLost, 1);
        }
    }

    fn multicast(&mut self, group: Group, bytes: &[u8]) {
        let lost = self.transport.multicast(group.bit(), bytes);
        if lost != 0 {
            self.count(FabricCounter::DatagramsLost, lost);
        }
    }

    fn watch(&mut self, whom: Address) {
        self.watch_as(whom, false);
    }

    fn watch_lazily(&mut self, whom: Address) {
        self.watch_as(whom, true);
    }

    fn unwatch(&mut self, whom: Address) {
        self.watches.unwatch(whom);
        self.transport.unwatch(whom);
    }

    fn publish_page(&mut self, page: &Page) {
        page::publish(self.region.page(), page);
        // Dekker with `page::want`: its program reads the page after that, and this one the request
        // after the page.
        fence(Ordering::SeqCst);
        let wanted = page::wanted(self.region.page());
        let answered = self.page.confirmed < wanted && wanted <= page.confirmed;
        let changed = (page.view, page.start) != (self.page.view, self.page.start) || answered;
        self.page = *page;
        self.changed |= changed;
    }

    #[inline]
    fn is_active(&self, view: ViewId) -> bool {
        page::active(self.region.page(), view, clock::now)
    }

    fn publish_view(&mut self, id: ViewId, bytes: &[u8]) {
        let fits = reader::publish_view(&self.region, &self.layout, id, bytes);
        debug_assert!(fits, "view {id} of {} bytes does not fit", bytes.len());
        self.changed = true;
    }

    fn publish_cleared(&mut self, base: ViewId) {
        reader::publish_cleared(&self.region, &self.layout, base);
    }

    fn wake_programs(&mut self, programs: impl Iterator<Item = Address>) {
        let here = |program: Address| Address { host: 0, port: 0, ..program };
        // Those with a core of their own have seat 0, and the slice that the core asked for.
        let seated = programs.filter(|program| program.seat != 0).map(here);
        let mut slices = 0;
        for program in seated {
            // As in `announce`: only now is it known that this one is not the one that dies. Its agent
            // takes the slice back.
            if let Ok((region, _)) = self.transport.regions().reach(program) {
                set_slice(region, program.seat, Slice::Short);
                slices += 1;
                if slices == SHORT_SLICES_MAX {
                    break;
                }
            }
        }
        self.cluster.table.wake_programs();
    }

    fn publish_incarnation(&mut self, incarnation: Incarnation) {
        let header = offset_of!(crate::layout::Header, incarnation);
        let seat = offset_of!(crate::layout::Seat, incarnation);
        self.region.word(header).store(incarnation.0, Ordering::Release);
        self.region.seat_word(0, seat).store(incarnation.0, Ordering::Release);
    }

    fn publish_unreachable(&mut self, coordinators: u64) {
        let at = self.layout.unreachable() as usize;
        self.region.word(at).store(coordinators, Ordering::Release);
    }

    fn publish_seat(&mut self, seat: u16, status: SeatStatus) {
        self.seats.publish(seat, status);
    }

    fn record(&mut self, record: Record<impl Into<EventCode>>) {
        let words = self.region.part(self.layout.recorder(0), self.layout.recorder_bytes());
        recorder::write(words, clock::now(), record);
    }

    fn count(&mut self, counter: impl Into<CounterSlot>, by: u64) {
        let words = self.region.part(self.layout.counters(0), COUNTER_WORDS * 8);
        if let Some(word) = words.get(usize::from(counter.into().number())) {
            metrics::add(word, by);
        }
    }

    fn observe(&mut self, histogram: impl Into<HistogramSlot>, value: Nanos) {
        let words = self.region.part(self.layout.histogram(histogram.into()), HISTOGRAM_WORDS * 8);
        metrics::observe(words, value);
    }

    fn observe_since(&mut self, histogram: impl Into<HistogramSlot>, begin: Instant) {
        self.observe(histogram, clock::now().since(begin));
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if !self.region.is_here() {
            // A copy in a forked child. The transport is its parent's, including threads and
            // connections.
            core::mem::forget(self.registration.take());
            return;
        }
        // The lease is no longer renewed, so it must not be used: neither by this process, nor by
        // an attached program.
        self.publish_page(&Page::default());
        self.flush();
        // The words and tokens may be a successor's as soon as this one is closed.
        self.kernel_notifier.unregister();
        // Dead before closed: a successor registers its own words.
        self.registration = None;
        self.cluster.table.close(self.address.region, self.me);
        // SAFETY: nothing uses it after this, and it is dropped nowhere else.
        unsafe { ManuallyDrop::drop(&mut self.transport) };
    }
}

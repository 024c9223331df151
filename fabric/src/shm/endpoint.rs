//! An endpoint: one process's region, links and watches, and its [`Fabric`]. One-sided operations are executed by the
//! call that posts them; only their events wait for the loop in [`crate::shm::run`].

use crate::contract::{Completion, DATAGRAM_BYTES_MAX, Fabric, Group, LinkError, Remote, SeatStatus, Token};
use crate::layout::Layout;
use crate::metrics::{self, COUNTER_WORDS, Counter, HISTOGRAM_WORDS, Histogram};
use crate::page::{self, Page};
use crate::recorder::{self, Record};
use crate::shm::cluster::Cluster;
use crate::shm::death::{self, Registration};
use crate::shm::error::ShmError;
use crate::shm::lanes::Sender;
use crate::shm::link::Links;
use crate::shm::process::Process;
use crate::shm::region::Region;
use crate::shm::run::{Pace, Wait};
use crate::shm::seats::Seats;
use crate::shm::table::Role;
use crate::shm::watch::Watches;
use crate::shm::{clock, futex, reader};
use crate::types::{Address, Incarnation, Name, Nanos, ViewId};
use core::mem::offset_of;
use core::sync::atomic::Ordering;
use std::collections::VecDeque;

/// Who opens an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The member kind, opaque to the fabric.
    pub kind: u32,
    /// Its name, for observers and for programs that look for their agent.
    pub name: Name,
    /// The region's number: 1 to 7 for coordinators, whose memory survives them; `None` for any number from 8 on.
    pub region: Option<u32>,
    /// Multicast groups, see [`Group::bit`].
    pub groups: u32,
}

/// The result of a posted operation, until it is delivered.
pub(crate) enum Done {
    /// A READ of at most a word, and its length.
    Word([u8; 8], usize),
    Bytes(Vec<u8>),
    Written,
    Swapped(u64),
    Failed(LinkError),
}

impl Done {
    pub(crate) fn result(&self) -> Result<Completion<'_>, LinkError> {
        Ok(match self {
            Self::Word(raw, len) => Completion::Read(raw.get(..*len).unwrap_or(raw)),
            Self::Bytes(bytes) => Completion::Read(bytes),
            Self::Written => Completion::Written,
            Self::Swapped(found) => Completion::Swapped(*found),
            Self::Failed(error) => return Err(*error),
        })
    }
}

/// A process's access to a cluster in shared memory. Belongs to the thread that opened it, whose end is its death.
pub struct Endpoint {
    pub(crate) address: Address,
    me: Process,
    cluster: Cluster,
    pub(crate) layout: Layout,
    pub(crate) region: Region,
    pub(crate) links: Links,
    pub(crate) watches: Watches,
    pub(crate) seats: Seats,
    pub(crate) done: VecDeque<(Token, Done)>,
    /// Buffers of delivered READs.
    pub(crate) spare: Vec<Vec<u8>>,
    /// Regions whose links are broken: see [`Endpoint::post`].
    pub(crate) broken: Vec<u32>,
    /// The datagram that is being handled.
    pub(crate) datagram: Vec<u8>,
    pub(crate) pace: Pace,
    page: Page,
    // Dropped last but for nothing: it marks the death words, after which peers take this process for dead.
    registration: Option<Registration>,
}

/// Ends an endpoint's wait from another thread.
#[derive(Clone, Debug)]
pub struct Waker(Region);

impl Waker {
    /// Makes the loop turn once, now.
    pub fn wake(&self) {
        self.0.ring();
    }
}

/// READ buffers that are kept for reuse.
const SPARE_MAX: usize = 64;

impl Endpoint {
    /// Takes a region of the cluster for the calling thread. Peers may use it as soon as this returns.
    pub fn open(cluster: &Cluster, owner: Owner, wait: Wait) -> Result<Self, ShmError> {
        futex::probe().map_err(|error| ShmError::Kernel { doing: "wait on several futexes", error })?;
        let me = Process::current()
            .map_err(|error| ShmError::Kernel { doing: "learn this process's start time", error })?;
        let claim = cluster.table.claim(owner.region, me)?;
        let role = Role { kind: owner.kind, groups: owner.groups, name: owner.name };
        claim.describe(&role);
        let prepared = Region::prepare(cluster, &claim, &role, me)
            .and_then(|region| death::register(&region, 0).map(|registration| (region, registration)));
        let (region, registration) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                claim.give_back();
                return Err(error);
            }
        };
        let sender = Sender { region: claim.region, generation: claim.generation };
        let address = Address { generation: sender.generation, ..Address::region(sender.region) };
        claim.go_live();
        Ok(Self {
            address,
            me,
            cluster: cluster.clone(),
            layout: *cluster.layout(),
            links: Links::new(cluster.clone(), sender),
            watches: Watches::new(sender),
            seats: Seats::new(region.clone(), sender.region),
            done: VecDeque::with_capacity(64),
            spare: Vec::new(),
            broken: Vec::new(),
            datagram: Vec::with_capacity(DATAGRAM_BYTES_MAX),
            pace: Pace::new(wait),
            page: Page::default(),
            region,
            registration: Some(registration),
        })
    }

    /// The own region.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The cluster.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// A handle that ends a wait of this endpoint's loop from another thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker(self.region.clone())
    }

    /// Makes the loop turn, and the heartbeat advance, at least so often. 10 ms if it is not called.
    pub fn beat_every(&mut self, span: Nanos) {
        self.pace.beat_every = span;
    }

    /// Rings the doorbells of all peers that were sent something. The loop does this after each event.
    #[inline]
    pub fn flush(&mut self) {
        self.links.ring();
    }

    /// Carries out an operation at once, unless its link is broken, and queues its completion.
    ///
    /// A link breaks when an operation finds its target dead, and works again when all queued completions are taken:
    /// a WRITE that failed is never followed by a CAS that succeeds because the target came back in between.
    fn post(&mut self, at: Address, token: Token, act: impl FnOnce(&mut Self) -> Result<Done, LinkError>) {
        let broken = self.broken.contains(&at.region);
        let done = if broken { Err(LinkError::PeerDead) } else { act(self) };
        if matches!(done, Err(LinkError::PeerDead)) && !broken {
            self.broken.push(at.region);
        }
        self.done.push_back((token, done.unwrap_or_else(Done::Failed)));
    }

    /// Keeps a delivered READ's buffer for the next one.
    pub(crate) fn recycle(&mut self, done: Done) {
        if let Done::Bytes(bytes) = done
            && self.spare.len() < SPARE_MAX
        {
            self.spare.push(bytes);
        }
    }

    fn read_bytes(&mut self, from: Remote, len: usize) -> Result<Done, LinkError> {
        // Checked first, so that a wild length allocates nothing.
        if len > self.layout.bytes() {
            return Err(LinkError::OutOfBounds);
        }
        if len <= 8 {
            let mut raw = [0; 8];
            self.links.read(from, &mut raw[..len])?;
            return Ok(Done::Word(raw, len));
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.resize(len, 0);
        match self.links.read(from, &mut bytes) {
            Ok(()) => Ok(Done::Bytes(bytes)),
            Err(error) => {
                self.recycle(Done::Bytes(bytes));
                Err(error)
            }
        }
    }
}

impl Fabric for Endpoint {
    fn address(&self) -> Address {
        self.address
    }

    fn read(&mut self, from: Remote, len: u32, token: Token) {
        self.post(from.at, token, |this| match len {
            8 => this.links.read_word(from).map(|word| Done::Word(word.to_le_bytes(), 8)),
            len => this.read_bytes(from, len as usize),
        });
    }

    fn write(&mut self, to: Remote, bytes: &[u8], token: Token) {
        self.post(to.at, token, |this| this.links.write(to, bytes).map(|()| Done::Written));
    }

    fn cas(&mut self, at: Remote, expected: u64, desired: u64, token: Token) {
        self.post(at.at, token, |this| this.links.cas(at, expected, desired).map(Done::Swapped));
    }

    fn send(&mut self, to: Address, bytes: &[u8]) {
        // A program in a seat has no lanes: its owner's are meant.
        let to = if to.seat == 0 { to } else { to.owner() };
        if !self.links.send(to, bytes) {
            self.count(Counter::DatagramsLost, 1);
        }
    }

    fn multicast(&mut self, group: Group, bytes: &[u8]) {
        let lost = self.links.multicast(group.bit(), bytes);
        if lost != 0 {
            self.count(Counter::DatagramsLost, lost);
        }
    }

    fn watch(&mut self, whom: Address) {
        self.watches.watch(whom, false, &mut self.links, clock::now());
    }

    fn watch_lazily(&mut self, whom: Address) {
        self.watches.watch(whom, true, &mut self.links, clock::now());
    }

    fn unwatch(&mut self, whom: Address) {
        self.watches.unwatch(whom);
    }

    fn publish_page(&mut self, page: &Page) {
        page::publish(self.region.page(), page);
        let changed = (page.view, page.start) != (self.page.view, self.page.start);
        self.page = *page;
        if changed {
            self.region.announce();
        }
    }

    fn publish_view(&mut self, id: ViewId, bytes: &[u8]) {
        let fits = reader::publish_view(&self.region, &self.layout, id, bytes);
        debug_assert!(fits, "view {id} of {} bytes does not fit", bytes.len());
        self.region.announce();
    }

    fn publish_cleared(&mut self, base: ViewId) {
        reader::publish_cleared(&self.region, &self.layout, base);
    }

    fn publish_incarnation(&mut self, incarnation: Incarnation) {
        let header = offset_of!(crate::layout::Header, incarnation);
        let seat = offset_of!(crate::layout::Seat, incarnation);
        self.region.word(header).store(incarnation.0, Ordering::Release);
        self.region.seat_word(0, seat).store(incarnation.0, Ordering::Release);
    }

    fn publish_seat(&mut self, seat: u16, status: SeatStatus) {
        self.seats.publish(seat, status);
    }

    fn record(&mut self, record: Record) {
        let words = self.region.part(self.layout.recorder(0), self.layout.recorder_bytes());
        recorder::write(words, clock::now(), record);
    }

    fn count(&mut self, counter: Counter, by: u64) {
        let words = self.region.part(self.layout.counters(0), COUNTER_WORDS * 8);
        if let Some(word) = words.get(counter as usize) {
            metrics::add(word, by);
        }
    }

    fn observe(&mut self, histogram: Histogram, value: Nanos) {
        let words = self.region.part(self.layout.histogram(histogram), HISTOGRAM_WORDS * 8);
        metrics::observe(words, value);
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // Nobody renews the lease any more, so nobody shall use it: not this process, and no attached program.
        self.publish_page(&Page::default());
        self.flush();
        // Dead before closed: a successor registers its own words.
        self.registration = None;
        self.cluster.table.close(self.address.region, self.me);
    }
}

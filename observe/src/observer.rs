//! Reads a cluster by one-sided READs: processes, views, leases. No process takes part, so frozen
//! and dying ones are read like any other.

mod elsewhere;
mod missing;
mod moment;
mod past;
mod views;

use crate::absence::Known;
use crate::clocks::Clocks;
use crate::histograms::{self, Histograms, Pairs};
use crate::load::Load;
use crate::missed::{MissedReader, Missing};
use crate::observed_event::{ObservedEvent, UnreadEvents};
use crate::owner::{Owner, Time};
use crate::reason::Reason;
use crate::remote_reader::{self, RemoteReader};
use crate::snapshot::{Health, Process, Snapshot};
use crate::store::Store;
use crate::{Absence, Deciders, judge, pulse, renewals, timeline};
use obol_deaths::Detection;
use obol_fabric::host::{
    Buckets, Cluster, Lives, Observed, Reader, RegionFile, RegionInfo, RegionSnapshot, SeatInfo,
    SnapshotParts, clock,
};
use obol_fabric::layout::{Seat, ViewHead};
use obol_fabric::metrics::{COUNTER_WORDS, HISTOGRAM_WORDS};
use obol_fabric::version::Version;
use obol_fabric::{Incarnation, Instant, Name, Nanos, ViewId, page};
use obol_fabric_ip::PulseReport;
use obol_membership::consensus::Head;
use obol_membership::metrics::{Counter, Histogram};
use obol_membership::recorder::EventKind;
use obol_membership::view::coordinator_name;
use obol_membership::{ActiveMutant, Kind, View};
use obol_node::{Deployment, Network, Site, SiteError, ended, fate, unsaved};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Per seat: generation of the occupant, and the number of its next unread event.
type Cursors = BTreeMap<u16, (u32, u64)>;

struct Watched {
    /// The owner's name and kind.
    name: Name,
    kind: Option<Kind>,
    generation: u32,
    region: Observed,
    /// Its file, in a low-memory observer.
    source: Option<RegionFile>,
    cursors: Cursors,
    /// The last counts of the owner's histograms, in the order of [`Histogram::ALL`]; `None` before
    /// the first poll.
    counted: Option<Vec<Pairs>>,
    /// Whether the flight recorder of the dead owner ends with its leave; `None` if not read yet.
    left: Option<bool>,
}

impl Watched {
    /// Whether its owner still has the region. `infos` are sorted by number.
    fn is_current(&self, number: u32, infos: &[RegionInfo]) -> bool {
        let found = infos.binary_search_by_key(&number, |info| info.number);
        found.is_ok_and(|at| infos[at].generation == self.generation)
    }

    /// Appends the unread events.
    fn events(&mut self, reader: Reader<'_>, seats: u32, kind: Kind, to: &mut Vec<ObservedEvent>) {
        let owner = (self.name, kind);
        unread(reader, seats, owner, &mut self.cursors, &mut |seen| to.push(seen));
    }

    /// What the owner counted in its histograms since the previous poll; `None` at the first.
    fn spans(&mut self, region: u32, reader: Reader<'_>, load: &mut Load) -> Option<Histograms> {
        Histogram::ALL.iter().for_each(|_| load.read(HISTOGRAM_WORDS * 8));
        let is_first = self.counted.is_none();
        let counts = histograms::advance(reader, self.counted.get_or_insert_default());
        let Self { name: process, generation, .. } = *self;
        (!is_first).then_some(Histograms { process, region, generation, counts })
    }
}

/// What is new since the previous poll.
struct News {
    events: Vec<ObservedEvent>,
    /// `None` if the caller does not need them.
    spans: Option<Vec<Histograms>>,
}

/// The regions of other hosts.
struct Remotes {
    reader: RemoteReader,
    clocks: Clocks,
    /// By region, with the generation of its owner.
    cursors: BTreeMap<u32, (u32, Cursors)>,
    /// The last counts of histograms, by region, with the generation of its owner.
    counted: BTreeMap<u32, (u32, Vec<Pairs>)>,
}

/// Reads a cluster repeatedly.
pub struct Observer {
    cluster: Cluster,
    deployment: Deployment,
    watched: BTreeMap<u32, Watched>,
    /// The newest decoded views: a view has the same content in every region.
    decoded: BTreeMap<ViewId, Arc<View>>,
    load: Load,
    /// Whether histograms were read before.
    looked: bool,
    /// Which histogram buckets a low-memory observer reads.
    buckets: Buckets,
    /// How a low-memory observer reads regions.
    buffer: Option<RegionSnapshot>,
    lives: Lives,
    renewed: renewals::Lives,
    /// What is new of processes whose memory has another owner.
    past: News,
    /// The heartbeat of each process at the last poll.
    beats: BTreeMap<(u32, u16), (obol_fabric::host::Process, u64)>,
    /// `None` without a network, or before a process of another host was found.
    remotes: Option<Remotes>,
    /// How often they are read.
    remote_interval: Duration,
    /// Whether they are left out.
    of_this_host: bool,
    /// Whether the memory of their replicas is read as well.
    reads_replicas: bool,
    /// Why other hosts could not be read at the last attempt.
    trouble: Option<String>,
    /// Why those of other hosts that were not seen by the last look may run all the same.
    doubt: Option<String>,
    /// The hosts that did not answer the last look.
    silent: BTreeSet<u8>,
    /// The newest view, and when it was seen first.
    newest_since: (ViewId, Instant),
    /// Members that failed and are expected back.
    missed: MissedReader,
    /// What the last snapshot was judged by of the pulses of other hosts.
    pulses: Option<PulseReport>,
    /// The reasons of the last snapshot.
    judged: Vec<Reason>,
    /// Those that did not run in the last snapshot and are expected back, without coordinators.
    awaited: Vec<Name>,
    /// The newest view in regions of other hosts, where this one has no region with a view.
    learned: Option<Arc<View>>,
    /// Members whose events the last call of [`Observer::events`] could not read, and why.
    unread: Vec<UnreadEvents>,
}

/// Files that a low-memory observer keeps open: with their processes well below the usual limit of
/// descriptors.
const SOURCES_MAX: usize = 560;

/// Decoded views to keep for other regions.
const DECODED_MAX: usize = 8;

impl Observer {
    /// Opens a cluster.
    pub fn open(root: &Path, name: Name) -> Result<Self, SiteError> {
        let Site { cluster, deployment, .. } = Site::open(root, name)?;
        Ok(Self {
            missed: MissedReader::new(cluster.dir()),
            cluster,
            deployment,
            watched: BTreeMap::new(),
            decoded: BTreeMap::new(),
            load: Load::default(),
            looked: false,
            buckets: Buckets::Usual,
            buffer: None,
            lives: Lives::default(),
            renewed: renewals::Lives::default(),
            past: News { events: Vec::new(), spans: Some(Vec::new()) },
            beats: BTreeMap::new(),
            remotes: None,
            remote_interval: remote_reader::POLL_INTERVAL,
            of_this_host: false,
            reads_replicas: false,
            trouble: None,
            doubt: None,
            silent: BTreeSet::new(),
            newest_since: (ViewId(0), Instant::ZERO),
            pulses: None,
            judged: Vec::new(),
            awaited: Vec::new(),
            learned: None,
            unread: Vec::new(),
        })
    }

    /// Uses as little memory as possible: [`Observer::poll`] reads regions through their files.
    #[must_use]
    pub fn low_memory(self) -> Self {
        let buffer = RegionSnapshot::new(self.cluster.layout());
        Self { buffer: Some(buffer), ..self }
    }

    /// Reads the processes of this host only, so that no other host is waited for. Its snapshots
    /// cannot judge the cluster's health.
    #[must_use]
    pub fn of_this_host(self) -> Self {
        Self { of_this_host: true, ..self }
    }

    /// Reads every bucket at each poll, so that a caller that polls only a few times misses no rare
    /// sample. A low-memory observer otherwise reads all of them every eighth time.
    pub const fn read_all_buckets(&mut self) {
        self.buckets = Buckets::All;
    }

    /// Reads the regions of other hosts at this interval instead of twenty times a second: for a
    /// caller that polls as rarely. To be called before the first poll.
    pub const fn read_elsewhere_every(&mut self, interval: Duration) {
        self.remote_interval = interval;
    }

    /// Reads the memory of the replicas of other hosts as well, some 100 KB of each with the limits of
    /// the profiles: for a caller that shows them ([`crate::replicas::Replicas`]).
    #[must_use]
    pub fn read_replicas(self) -> Self {
        Self { reads_replicas: true, ..self }
    }

    /// Counts everything in the histograms that the first poll finds as new, so that the sums over
    /// all polls are what the processes have counted since they started.
    pub const fn count_from_the_start(&mut self) {
        self.looked = true;
    }

    pub const fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    pub const fn deployment(&self) -> &Deployment {
        &self.deployment
    }

    /// Maps new regions, and unmaps those that have a new owner.
    fn refresh(&mut self) -> Vec<RegionInfo> {
        let infos = self.cluster.regions_seen(&mut self.lives);
        self.read_the_ended(&infos);
        self.watched.retain(|number, watched| watched.is_current(*number, &infos));
        for info in &infos {
            if self.watched.contains_key(&info.number) {
                continue;
            }
            // A region that is being created is read at the next poll.
            if let Ok(region) = Observed::open(&self.cluster, info.number) {
                // Everything that a later process has counted is new.
                let counted = self.looked.then(Vec::new);
                let cursors = BTreeMap::new();
                let (name, kind, generation) = (info.name, Kind::from_number(info.kind), info.generation);
                // Descriptors are few: the other regions are mapped and released.
                let low_memory = self.buffer.is_some() && self.watched.len() < SOURCES_MAX;
                let source = low_memory.then(|| RegionFile::open(&self.cluster, info.number).ok()).flatten();
                if self.buffer.is_some() {
                    region.release();
                }
                let watched =
                    Watched { name, kind, generation, region, source, cursors, counted, left: None };
                self.watched.insert(info.number, watched);
            }
        }
        infos
    }

    /// What has been read so far.
    pub const fn load(&self) -> Load {
        self.load
    }

    /// Counts a READ of `bytes` bytes that was done for it elsewhere.
    pub(crate) const fn count_read(&mut self, bytes: usize) {
        self.load.read(bytes);
    }

    /// The newest view in a region.
    fn view(&mut self, reader: Reader<'_>) -> Option<Arc<View>> {
        self.load.read(size_of::<ViewHead>());
        if let Some(known) = reader.view_id().and_then(|id| self.decoded.get(&id)) {
            return Some(Arc::clone(known));
        }
        let mut bytes = Vec::new();
        let read = reader.view_counted(&mut bytes, &mut self.load.torn);
        self.load.read(bytes.len());
        let view = Arc::new(read.and_then(|_| View::from_frame(&bytes))?);
        self.decoded.insert(view.id, Arc::clone(&view));
        while self.decoded.len() > DECODED_MAX {
            self.decoded.pop_first();
        }
        Some(view)
    }

    /// The newest view in the regions of this host.
    fn newest_here(&mut self) -> Option<Arc<View>> {
        let regions: Vec<Observed> = self.watched.values().map(|watched| watched.region.clone()).collect();
        regions.iter().filter_map(|region| self.view(region.reader())).max_by_key(|view| view.rank())
    }

    /// Whether a process of this host is stopped. If its heartbeat has advanced since the last
    /// poll, it is not, and the kernel need not be queried.
    fn is_frozen(&mut self, seat: (u32, u16), process: obol_fabric::host::Process, beat: u64) -> bool {
        let before = self.beats.insert(seat, (process, beat));
        let beats = before.is_some_and(|(known, last)| known == process && last != beat);
        !beats && process.is_stopped()
    }

    /// Whether the dead owner of a region left on request. Its flight recorder no longer changes,
    /// so it is read once.
    fn has_left(&mut self, reader: Reader<'_>, owner: Owner) -> bool {
        let watched = self.watched.get_mut(&owner.region).filter(|_| owner.time.is_here());
        let left = watched.as_ref().and_then(|watched| watched.left).unwrap_or_else(|| {
            self.load.read(self.cluster.layout().recorder_bytes());
            let Some(events) = reader.events(0, 0) else { return false };
            let standing = |kind: &EventKind| {
                matches!(kind, EventKind::Started | EventKind::Joined | EventKind::Left | EventKind::Excluded)
            };
            let left =
                events.into_iter().map(|event| event.record.kind).rfind(standing) == Some(EventKind::Left);
            if let Some(watched) = watched {
                watched.left = Some(left);
            }
            left
        });
        left || ended::is_noted(self.cluster.dir(), owner.name.as_str())
    }

    /// The owner of a region, and the programs in its seats.
    fn occupants(&mut self, reader: Reader<'_>, owner: Owner, out: &mut Vec<Process>) {
        let seats = self.cluster.layout().limits().seats;
        let view = self.view(reader);
        let stamped = if owner.kind == Kind::Coordinator {
            None
        } else {
            self.load.read(page::WORDS * 8);
            reader.page_counted(&mut self.load.torn)
        };
        let lease = stamped.map(|page| (owner.time.page(page), reader.fence()));
        let elsewhere = owner.time.elsewhere(stamped);
        self.load.read(size_of::<Seat>() * seats as usize);
        let seat = reader.seat(0);
        // Its process may live on without it: the core of an embedded program has ended, or the program
        // has called `exec`. Its end is marked, as that of a thread, and it does not come back.
        let owner = Owner { alive: owner.alive && seat.is_none_or(|seat| !seat.dead), ..owner };
        let beat = seat.map_or(0, |seat| seat.heartbeat);
        let is_here = owner.time.is_here();
        let mut head = Head::default();
        if owner.kind == Kind::Coordinator {
            let ring: Vec<u64> = reader.slots().collect();
            self.load.read(ring.len() * 8);
            let near = view.as_ref().map_or(ViewId::GENESIS, |view| view.id);
            head = Head::of(&ring, near, self.cluster.layout().limits().proposers);
        }
        self.load.read(COUNTER_WORDS * 8);
        let left = !owner.alive && self.has_left(reader, owner);
        out.push(Process {
            name: owner.name,
            kind: owner.kind,
            host: owner.host,
            process: owner.process,
            region: owner.region,
            seat: 0,
            alive: owner.alive,
            frozen: owner.alive && is_here && self.is_frozen((owner.region, 0), owner.process, beat),
            left,
            incarnation: owner.incarnation,
            view: view.clone(),
            lease,
            detection: seat.map_or(Detection::default(), |seat| seat.detection),
            version: seat.map_or(Version::default(), |seat| seat.version),
            held_until: seat
                .and_then(|seat| seat.held_until)
                .filter(|_| is_here && owner.incarnation == Incarnation::NONE),
            heartbeat: beat,
            head,
            counters: counters(reader, 0),
            elsewhere,
        });
        for seat in occupied(&reader, seats) {
            // A program that gives up its seat while its agent runs has left the cluster. If the
            // agent is dead, its program gives up the seat but lives on until it attaches again.
            let seated = !seat.dead || is_here && !owner.alive;
            let alive = seated && (!is_here || !self.lives.is_dead(seat.process));
            let at = (owner.region, seat.seat);
            self.load.read(COUNTER_WORDS * 8);
            out.push(Process {
                name: seat.name,
                kind: Kind::App,
                host: owner.host,
                process: seat.process,
                region: owner.region,
                seat: seat.seat,
                alive,
                frozen: alive && is_here && self.is_frozen(at, seat.process, seat.heartbeat),
                // One whose agent has left did not, if it runs on: it waits for an agent.
                left: seat.left,
                incarnation: seat.incarnation,
                view: view.clone(),
                lease,
                detection: seat.detection,
                version: seat.version,
                held_until: seat.held_until.filter(|_| is_here),
                heartbeat: seat.heartbeat,
                head: Head::default(),
                counters: counters(reader, seat.seat),
                elsewhere,
            });
        }
    }

    /// Reads all processes once.
    pub fn snapshot(&mut self) -> Snapshot {
        let infos = self.refresh();
        self.snapshot_of(&infos, None)
    }

    /// Reads all processes once, with the events since the last call and, if `spans` is set, the
    /// histogram counts since the previous poll.
    pub fn poll(&mut self, spans: bool) -> (Snapshot, Vec<ObservedEvent>, Vec<Histograms>) {
        let infos = self.refresh();
        self.looked |= spans;
        let mut news = News { events: Vec::new(), spans: spans.then(Vec::new) };
        self.take_past(&mut news);
        let snapshot = self.snapshot_of(&infos, Some(&mut news));
        self.events_elsewhere(self.cluster.layout().limits().seats, &mut news.events);
        news.events.sort_by_key(|seen| seen.event.at);
        (snapshot, news.events, news.spans.unwrap_or_default())
    }

    fn snapshot_of(&mut self, infos: &[RegionInfo], mut news: Option<&mut News>) -> Snapshot {
        let seats = self.cluster.layout().limits().seats;
        // Remote processes first: they may take time, and local data should be fresh when assessed.
        let mut remote = self.remote();
        let mut processes = Vec::new();
        let began = clock::now();
        for info in infos {
            let Some(kind) = Kind::from_number(info.kind) else { continue };
            let Some(region) = self.watched.get(&info.number).map(|watched| watched.region.clone()) else {
                continue;
            };
            let owner = Owner {
                name: info.name,
                kind,
                host: self.deployment.own_host(),
                process: info.process,
                region: info.number,
                alive: info.alive,
                incarnation: Incarnation::NONE,
                time: Time::Here,
            };
            let Some(news) = &mut news else {
                let owner = Owner { incarnation: region.reader().incarnation(), ..owner };
                self.occupants(region.reader(), owner, &mut processes);
                continue;
            };
            let decides = kind == Kind::Coordinator;
            let not_left = self.watched.get(&info.number).is_some_and(|watched| watched.left.is_none());
            let wanted = SnapshotParts {
                page: !decides,
                // Coordinators are few, and their measurements are rare and vary.
                histograms: news.spans.is_some().then_some(if decides { Buckets::All } else { self.buckets }),
                slots: decides,
                recorder: !info.alive && not_left,
            };
            let mut buffer = self.buffer.take();
            let copied = buffer.as_mut().and_then(|buffer| self.copy_region(buffer, info.number, wanted));
            let read = copied.is_some();
            let reader = copied.unwrap_or_else(|| region.reader());
            self.occupants(reader, Owner { incarnation: reader.incarnation(), ..owner }, &mut processes);
            if let Some(watched) = self.watched.get_mut(&info.number) {
                watched.events(reader, seats, kind, &mut news.events);
                if let Some(spans) = &mut news.spans {
                    spans.extend(watched.spans(info.number, reader, &mut self.load));
                }
            }
            if buffer.is_some() && !read {
                region.release();
            }
            self.buffer = buffer;
        }
        // Release processes that are gone.
        let known: HashSet<_> = processes.iter().map(|process| process.process).collect();
        self.lives.keep(|process| known.contains(&process));
        self.beats.retain(|(region, _), _| self.watched.contains_key(region));
        let view =
            processes.iter().chain(&remote).filter_map(|p| p.view.clone()).max_by_key(|view| view.rank());
        self.note_newest(view.as_ref());
        processes.iter().chain(&remote).for_each(|process| self.renewed.note(process));
        let deciders = self.deciders(view.as_deref());
        for all in [&mut processes, &mut remote] {
            past::forget_predecessors(all);
            // A coordinator that was removed from the quorum is not missed.
            all.retain(|p| p.alive || p.kind != Kind::Coordinator || deciders.includes(p));
            all.sort_by_key(|p| (p.kind, p.name));
        }
        let missed = self.missed(&processes, &remote, view.as_deref());
        self.add_missing(&mut processes, &remote, view.as_deref(), &missed);
        let at = self.leases_as_of_now(began, &mut processes);
        let (health, reasons) = (Health::Unreachable, Vec::new());
        let mut snapshot = Snapshot { at, view, processes, remote, health, reasons };
        // Once, so that the reasons and what is shown beside them do not differ.
        let is_pulsed = self.deployment.profile.pulse.enabled;
        self.pulses = is_pulsed.then(|| pulse::state(self.cluster.dir())).flatten();
        self.judge(&mut snapshot, missed);
        snapshot
    }

    /// Reads a region through its file; `None` on failure.
    fn copy_region<'g>(
        &mut self,
        buffer: &'g mut RegionSnapshot,
        region: u32,
        wanted: SnapshotParts,
    ) -> Option<Reader<'g>> {
        let source = self.watched.get_mut(&region).and_then(|watched| watched.source.as_mut())?;
        let decoded = &self.decoded;
        buffer.take(source, wanted, |id| decoded.contains_key(&id), &mut self.load.torn).ok()
    }

    /// The coordinators that count for the majority now, which may differ from the
    /// original ones.
    pub fn deciders(&self, view: Option<&View>) -> Deciders {
        Deciders::expected(&self.deployment, view)
    }

    /// A region of this host.
    pub(crate) fn region(&self, number: u32) -> Option<&Observed> {
        self.watched.get(&number).map(|watched| &watched.region)
    }

    /// The names of all other processes that should run: without those that left on request.
    pub fn others(&self) -> impl Iterator<Item = String> + '_ {
        let left = |name: &str| ended::is_noted(self.cluster.dir(), name);
        self.deployment_without_coordinators().filter(move |name| {
            // A program leaves with its agent.
            !left(name) && !self.deployment.agent_of(name).is_some_and(|agent| left(&agent))
        })
    }

    /// The same, without those that left on other hosts, where notes of this host do not say so.
    fn expected(
        &self,
        here: &[Process],
        elsewhere: &[Process],
        view: Option<&View>,
    ) -> impl Iterator<Item = String> {
        self.others().filter(move |name| self.absence(name, here, elsewhere, view) != Some(Absence::Left))
    }

    /// Why a process is not seen alive; `None` if it can only have ended.
    fn absence(
        &self,
        name: &str,
        here: &[Process],
        elsewhere: &[Process],
        view: Option<&View>,
    ) -> Option<Absence> {
        let has_others = self.deployment.network.as_ref().is_some_and(|network| network.hosts.len() > 1);
        let agent = self.deployment.agent_of(name);
        let is_prepared = self.deployment.is_prepared();
        if !has_others && !is_prepared {
            return None;
        }
        let own = Some(self.deployment.own_host());
        let known = Known {
            here,
            elsewhere,
            view,
            leaver: &|name| self.missed.leaver(name),
            is_of_this_host: &|name| Name::new(name).is_ok_and(|name| self.deployment.home_of(name) == own),
            notes_leaves: !is_prepared,
        };
        let absence = Absence::with_agent(name, agent.as_deref(), &known);
        // If no host answers, this one may be cut off.
        let may_be_silent = absence == Absence::Unseen && self.doubt.is_none();
        let silent = may_be_silent.then(|| self.silent_host(name, view)).flatten();
        Some(silent.map_or(absence, Absence::Silent))
    }

    /// The host of a member, if it does not answer.
    fn silent_host(&self, name: &str, view: Option<&View>) -> Option<u8> {
        let named = view.iter().flat_map(|view| &view.members).filter(|m| m.name.as_str() == name);
        let mut hosts = named.filter_map(|m| self.deployment.host_of(m.address.region));
        hosts.find(|host| self.silent.contains(host))
    }

    fn deployment_without_coordinators(&self) -> impl Iterator<Item = String> + use<> {
        self.deployment.names().into_iter().skip(usize::from(self.deployment.coordinators))
    }

    /// Coordinators that count for the majority, do not run, and have lost their memory on this
    /// host.
    fn forgotten(&self, snapshot: &Snapshot) -> Vec<String> {
        let lives = |name: &str| snapshot.all_processes().any(|p| p.alive && p.name.as_str() == name);
        let mut down = self.deciders(snapshot.view.as_deref()).names().to_vec();
        down.retain(|name| !lives(name));
        if down.is_empty() || self.deployment.network.is_some() {
            // On several hosts most of them have their memory elsewhere.
            return Vec::new();
        }
        let lost = self.cluster.regions().into_iter().filter(|info| {
            down.iter().any(|name| info.name.as_str() == name)
                && !self.cluster.region_path(info.number).exists()
        });
        lost.map(|info| info.name.to_string()).collect()
    }

    /// Coordinators of this host that cannot save views, and why.
    fn unsaved(&self) -> Vec<(Name, String)> {
        let dir = self.cluster.dir();
        let limit = u16::try_from(self.deployment.profile.limits.proposers).unwrap_or(u16::MAX);
        let each = |number| Some((coordinator_name(number), unsaved::reason(dir, number)?));
        (1..=limit).filter_map(each).collect()
    }

    /// Addresses of this host that none of its interfaces has any more.
    fn lost_addresses(&self, here: &[Process]) -> Vec<IpAddr> {
        let mut lost = self.deployment.network.as_ref().map_or_else(Vec::new, Network::lost_addresses);
        let network_of = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
        // An exporter in a container may have another network than the processes that it reads.
        if !lost.is_empty()
            && let Some(process) = here.iter().find(|p| p.alive && !p.is_missing())
            && let Some(theirs) = network_of(&process.process.pid.to_string())
            && network_of("self").is_some_and(|own| own != theirs)
        {
            lost.clear();
        }
        lost
    }

    /// What the gateway of this host had reported of pulses when the last snapshot was taken. `None`
    /// if it sends none, or has ended.
    pub const fn pulses(&self) -> Option<&PulseReport> {
        self.pulses.as_ref()
    }

    /// Sets the health of a snapshot.
    fn judge(&mut self, snapshot: &mut Snapshot, missed: Vec<Missing>) {
        let Snapshot { processes, remote, view, .. } = &*snapshot;
        let kind = |name: String| {
            let kind = Name::new(&name).map_or(Kind::Agent, |name| self.deployment.kind(name));
            (name, kind)
        };
        let others: Vec<(String, Kind)> =
            self.expected(processes, remote, view.as_deref()).map(kind).collect();
        let deciders = self.deciders(view.as_deref());
        let lives = |name: &str, kind| snapshot.all_processes().any(|p| p.alive && p.stands_for(name, kind));
        let coordinators = deciders.names().iter().map(|name| (name, Kind::Coordinator));
        let all = others.iter().map(|(name, kind)| (name, *kind)).chain(coordinators);
        let missing: Vec<&String> =
            all.filter(|(name, kind)| !lives(name, *kind)).map(|(name, _)| name).collect();
        let absent = missing.iter().filter_map(|name| {
            Some(((*name).clone(), self.absence(name, processes, remote, view.as_deref())?))
        });
        let down = others.iter().filter(|(name, kind)| !lives(name, *kind));
        let down = down.filter_map(|(name, _)| Name::new(name).ok());
        let awaited: Vec<Name> = down.chain(missed.iter().map(|one| one.name)).collect();
        let gone: Vec<String> = missed.iter().map(|one| one.name.to_string()).collect();
        let fates = missing
            .iter()
            .copied()
            .chain(&gone)
            .filter_map(|name| Some((name.clone(), self.fate(name, processes)?)));
        let expected = judge::Expected {
            absent: absent.collect(),
            fates: fates.collect(),
            deciders: deciders.clone(),
            others: others.clone(),
            missed,
            store: Store::read(self, snapshot),
            trouble: self.trouble.clone().or_else(|| self.doubt.clone()),
            forgotten: self.forgotten(snapshot),
            unsaved: self.unsaved(),
            gateway: judge::Gateway::of(&self.deployment, &self.cluster),
            has_devices: self.deployment.has_devices(),
            lost_addresses: self.lost_addresses(processes),
            pulses: self.pulses().map(pulse::complaints).unwrap_or_default(),
            newest_since: self.newest_since.1,
        };
        let (health, reasons) = judge::judge(snapshot, &expected);
        snapshot.health = health;
        snapshot.reasons = reasons.iter().map(|reason| reason.text.clone()).collect();
        (self.judged, self.awaited) = (reasons, awaited);
    }

    /// Those that did not run in the last snapshot and are expected back, without coordinators: what its
    /// reasons say is down or failed.
    pub fn awaited(&self) -> &[Name] {
        &self.awaited
    }

    /// The reasons of the last snapshot, with what they are about.
    pub fn judged(&self) -> &[Reason] {
        &self.judged
    }

    /// When the last process of this name ended on this host, if its supervisor noted it: in
    /// nanoseconds since 1970.
    pub(crate) fn ended_at(&self, name: &str, here: &[Process]) -> Option<u64> {
        self.fate(name, here)?;
        fate::noted_at(self.cluster.dir(), name)
    }

    /// How the last process of this name ended on this host, if its supervisor noted it: of these
    /// rows, the last one is that process, unless its memory has another owner by now.
    fn fate(&self, name: &str, here: &[Process]) -> Option<String> {
        let fate = fate::of(self.cluster.dir(), name)?;
        let mut rows = here.iter().filter(|p| p.name.as_str() == name && !p.is_missing()).peekable();
        let is_its = rows.peek().is_none() || rows.any(|p| p.process.pid == fate.pid);
        is_its.then_some(fate.how)
    }

    /// The events since the last call, by time.
    pub fn events(&mut self) -> Vec<ObservedEvent> {
        let mut events = self.read_here();
        let seats = self.cluster.layout().limits().seats;
        self.events_elsewhere(seats, &mut events);
        timeline::merge(events, ActiveMutant::NONE)
    }

    /// The events of the processes of this host alone, since the last call, by time.
    pub fn events_here(&mut self) -> Vec<ObservedEvent> {
        timeline::merge(self.read_here(), ActiveMutant::NONE)
    }

    fn read_here(&mut self) -> Vec<ObservedEvent> {
        self.refresh();
        let seats = self.cluster.layout().limits().seats;
        let mut events = std::mem::take(&mut self.past.events);
        for watched in self.watched.values_mut() {
            let Some(kind) = watched.kind else { continue };
            let region = watched.region.clone();
            watched.events(region.reader(), seats, kind, &mut events);
        }
        events
    }

    /// Members of other hosts whose events the last call of [`Observer::events`] could not read.
    pub fn unread(&self) -> &[UnreadEvents] {
        &self.unread
    }
}

/// Passes on the unread events of a region's seats.
fn unread(
    reader: Reader<'_>,
    seats: u32,
    owner: (Name, Kind),
    cursors: &mut Cursors,
    give: &mut dyn FnMut(ObservedEvent),
) {
    let of_owner = reader.seat(0).map(|seat| (0, seat.generation, owner.0, owner.1));
    let programs = occupied(&reader, seats).map(|s| (s.seat, s.generation, s.name, Kind::App));
    for (seat, generation, process, kind) in of_owner.into_iter().chain(programs) {
        let cursor = cursors.entry(seat).or_insert((generation, 0));
        if cursor.0 != generation {
            *cursor = (generation, 0);
        }
        for event in reader.events(seat, cursor.1).unwrap_or_default() {
            cursor.1 = event.number + 1;
            give(ObservedEvent { process, kind, event, clock_error: Nanos::ZERO });
        }
    }
}

/// The counters of a seat, in the order of [`Counter::ALL`].
fn counters(reader: Reader<'_>, seat: u16) -> Vec<u64> {
    let mut counters = reader.counters(seat);
    counters.truncate(Counter::ALL.len());
    counters
}

fn occupied<'a>(
    reader: &obol_fabric::host::Reader<'a>,
    seats: u32,
) -> impl Iterator<Item = SeatInfo> + use<'a> {
    let reader = *reader;
    (1..seats as u16).filter_map(move |seat| reader.seat(seat))
}

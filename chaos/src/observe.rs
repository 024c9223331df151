//! A cluster as one-sided READs show it: who is there, in which view, under which lease. No process of the cluster is
//! asked, so a frozen or dying one is seen as well as any other.

use crate::spans::{Counts, Spans};
use obol_fabric::layout::{Seat, ViewHead};
use obol_fabric::metrics::{self, COUNTER_WORDS, Counter, Histogram};
use obol_fabric::notice::Detection;
use obol_fabric::recorder::Stamped;
use obol_fabric::shm::{Cluster, Lives, Observed, RegionInfo, SeatInfo, clock};
use obol_fabric::{Incarnation, Instant, Name, Nanos, Page, ViewId, page};
use obol_membership::view::{Member, coordinator_name};
use obol_membership::{Kind, View};
use obol_profiles::{Deployment, Site, SiteError};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

/// One process: the owner of a region, or a program in a seat of an agent's.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its name.
    pub name: Name,
    /// What it is.
    pub kind: Kind,
    /// Its pid and start time.
    pub process: obol_fabric::shm::Process,
    /// Its region.
    pub region: u32,
    /// Its seat in that region.
    pub seat: u16,
    /// Whether it runs or is stopped; a dead one may still be listed until its place is taken.
    pub alive: bool,
    /// Whether it is stopped (SIGSTOP).
    pub frozen: bool,
    /// Its incarnation, [`Incarnation::NONE`] if it is not a member.
    pub incarnation: Incarnation,
    /// The newest view that it knows; for a program in a seat, that its agent knows.
    pub view: Option<Arc<View>>,
    /// The lease page that it reads, and its fence.
    pub lease: Option<(Page, ViewId)>,
    /// Who tells of its death first.
    pub detection: Detection,
    /// How far its heartbeat is.
    pub heartbeat: u64,
    /// Its counters, in the order of [`Counter::ALL`].
    pub counters: Vec<u64>,
}

impl Process {
    /// Whether the newest view that it knows is active for it now.
    #[must_use]
    pub fn is_active(&self, now: Instant) -> bool {
        let member = self.view.as_ref().is_some_and(|view| view.member(self.incarnation).is_some());
        let active =
            |view: ViewId| self.lease.as_ref().is_some_and(|(page, fence)| page.is_active(view, *fence, now));
        self.alive && member && self.view.as_ref().is_some_and(|view| active(view.id))
    }

    /// How long its lease still lasts.
    #[must_use]
    pub fn margin(&self, now: Instant) -> Option<Nanos> {
        self.lease.as_ref().map(|(page, _)| page.end.since(now))
    }

    /// One of its counters.
    #[must_use]
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters.get(counter as usize).copied().unwrap_or(0)
    }
}

/// How a cluster is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// Everybody who should be there is, and every app is active in the newest view.
    Healthy,
    /// Something is missing; the reasons say what.
    Degraded,
    /// No process of it lives.
    Unreachable,
}

impl Health {
    /// The word that operators see.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Unreachable => "unreachable",
        }
    }
}

/// A cluster at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// When it was read.
    pub at: Instant,
    /// The newest view that any process knows.
    pub view: Option<Arc<View>>,
    /// Every process that is there, coordinators first.
    pub processes: Vec<Process>,
    /// How it is.
    pub health: Health,
    /// Why it is not healthy.
    pub reasons: Vec<String>,
}

impl Snapshot {
    /// The live coordinator with the lowest number that the newest view names.
    #[must_use]
    pub fn leader(&self) -> Option<&Process> {
        let view = self.view.as_ref()?;
        let of = |m: &Member| {
            self.processes.iter().find(|p| p.incarnation == m.incarnation && p.alive && !p.frozen)
        };
        view.leader(|m| of(m).is_some()).and_then(of)
    }

    /// Who tells first of the death of any process that lives: what the least of them has. `None` if none lives.
    #[must_use]
    pub fn detection(&self) -> Option<Detection> {
        self.processes.iter().filter(|p| p.alive).map(|p| p.detection).min()
    }

    /// The live process with this name.
    #[must_use]
    pub fn process(&self, name: &str) -> Option<&Process> {
        self.processes.iter().find(|p| p.alive && p.name.as_str() == name)
    }
}

/// An event of a process's flight recorder.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Whose.
    pub process: Name,
    /// What it is.
    pub kind: Kind,
    /// The event.
    pub event: Stamped,
}

struct Watched {
    /// The owner's name.
    name: Name,
    generation: u32,
    region: Observed,
    /// Per seat: generation of the occupant, and the number of its next unread event.
    cursors: BTreeMap<u16, (u32, u64)>,
    /// The owner's histograms at the last look at them, in the order of [`Histogram::ALL`]; none before the first.
    counted: Option<Vec<Vec<u64>>>,
}

/// What an observer has read: the load that observing puts on the fabric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// READs of a part of a region.
    pub reads: u64,
    /// What they fetched.
    pub bytes: u64,
    /// How many had to be repeated because a writer was at work.
    pub torn: u64,
}

impl Load {
    fn read(&mut self, bytes: usize) {
        self.reads += 1;
        self.bytes += bytes as u64;
    }
}

/// Reads a cluster again and again.
pub struct Observer {
    cluster: Cluster,
    deployment: Deployment,
    watched: BTreeMap<u32, Watched>,
    /// The newest decoded views: what is decided is the same in every region.
    decoded: BTreeMap<ViewId, Arc<View>>,
    load: Load,
    /// Whether histograms were looked at.
    looked: bool,
    lives: Lives,
    /// How far each process's heartbeat was at the last look.
    beats: BTreeMap<(u32, u16), (obol_fabric::shm::Process, u64)>,
}

/// Decoded views that are kept for regions that know them, too.
const DECODED_MAX: usize = 8;

impl Observer {
    /// Finds a cluster.
    pub fn open(root: &Path, name: Name) -> Result<Self, SiteError> {
        let Site { cluster, deployment, .. } = Site::open(root, name)?;
        Ok(Self {
            cluster,
            deployment,
            watched: BTreeMap::new(),
            decoded: BTreeMap::new(),
            load: Load::default(),
            looked: false,
            lives: Lives::default(),
            beats: BTreeMap::new(),
        })
    }

    /// The cluster.
    #[must_use]
    pub const fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// What it is made of.
    #[must_use]
    pub const fn deployment(&self) -> &Deployment {
        &self.deployment
    }

    /// Maps regions that have come, and lets go of those whose place was taken.
    fn refresh(&mut self) -> Vec<RegionInfo> {
        let mut infos = self.cluster.regions_seen(&mut self.lives);
        self.watched.retain(|number, watched| {
            infos.iter().any(|info| info.number == *number && info.generation == watched.generation)
        });
        for info in &infos {
            if self.watched.contains_key(&info.number) {
                continue;
            }
            // A region that is just being made can not be read yet; the next look will.
            if let Ok(region) = Observed::open(&self.cluster, info.number) {
                // Everything that a process which came later has counted was counted since the last look.
                let counted = self.looked.then(Vec::new);
                let cursors = BTreeMap::new();
                let (name, generation) = (info.name, info.generation);
                let watched = Watched { name, generation, region, cursors, counted };
                self.watched.insert(info.number, watched);
            }
        }
        for info in &mut infos {
            if let Some(watched) = self.watched.get(&info.number) {
                info.incarnation = Incarnation(watched.region.reader().header().incarnation);
            }
        }
        infos
    }

    /// What has been read until now.
    #[must_use]
    pub const fn load(&self) -> Load {
        self.load
    }

    /// The newest view that a region's owner knows.
    fn view(&mut self, number: u32) -> Option<Arc<View>> {
        let reader = self.watched.get(&number)?.region.reader();
        self.load.read(size_of::<ViewHead>());
        if let Some(known) = reader.view_id().and_then(|id| self.decoded.get(&id)) {
            return Some(Arc::clone(known));
        }
        let mut bytes = Vec::new();
        let read = reader.view_counted(&mut bytes, &mut self.load.torn);
        self.load.read(bytes.len());
        let view = Arc::new(read.and_then(|_| View::unseal(&bytes))?);
        self.decoded.insert(view.id, Arc::clone(&view));
        while self.decoded.len() > DECODED_MAX {
            self.decoded.pop_first();
        }
        Some(view)
    }

    /// Whether the heartbeat of a process has moved since the last look: then it is not stopped, and the kernel need not be
    /// asked.
    fn beats(&mut self, seat: (u32, u16), process: obol_fabric::shm::Process, beat: u64) -> bool {
        let before = self.beats.insert(seat, (process, beat));
        before.is_some_and(|(known, last)| known == process && last != beat)
    }

    /// Reads everything once.
    pub fn snapshot(&mut self) -> Snapshot {
        let infos = self.refresh();
        let seats = self.cluster.layout().limits().seats;
        let mut processes = Vec::new();
        for info in &infos {
            let Some(kind) = Kind::from_number(info.kind) else { continue };
            let view = self.view(info.number);
            // A clone shares the mapping.
            let Some(region) = self.watched.get(&info.number).map(|watched| watched.region.clone()) else {
                continue;
            };
            let reader = region.reader();
            let lease = if kind == Kind::Coordinator {
                None
            } else {
                self.load.read(page::WORDS * 8);
                reader.page_counted(&mut self.load.torn).map(|page| (page, reader.fence()))
            };
            self.load.read(size_of::<Seat>() * seats as usize);
            let owner = reader.seat(0);
            let beat = owner.map_or(0, |seat| seat.heartbeat);
            self.load.read(COUNTER_WORDS * 8);
            processes.push(Process {
                name: info.name,
                kind,
                process: info.process,
                region: info.number,
                seat: 0,
                alive: info.alive,
                frozen: info.alive
                    && !self.beats((info.number, 0), info.process, beat)
                    && is_stopped(info.process.pid),
                incarnation: info.incarnation,
                view: view.clone(),
                lease,
                detection: owner.map_or(Detection::default(), |seat| seat.detection),
                heartbeat: beat,
                counters: reader.counters(0),
            });
            for seat in occupied(&reader, seats) {
                let alive = !seat.dead && !self.lives.is_dead(seat.process);
                self.load.read(COUNTER_WORDS * 8);
                processes.push(Process {
                    name: seat.name,
                    kind: Kind::App,
                    process: seat.process,
                    region: info.number,
                    seat: seat.seat,
                    alive,
                    frozen: alive
                        && !self.beats((info.number, seat.seat), seat.process, seat.heartbeat)
                        && is_stopped(seat.process.pid),
                    incarnation: seat.incarnation,
                    view: view.clone(),
                    lease,
                    detection: seat.detection,
                    heartbeat: seat.heartbeat,
                    counters: reader.counters(seat.seat),
                });
            }
        }
        // Who is not there any more need not be held.
        let known: HashSet<_> = processes.iter().map(|process| process.process).collect();
        self.lives.keep(|process| known.contains(&process));
        self.beats.retain(|(region, _), _| self.watched.contains_key(region));
        forget_predecessors(&mut processes);
        processes.sort_by_key(|p| (p.kind, p.name));
        let view = processes.iter().filter_map(|p| p.view.clone()).max_by_key(|view| view.id);
        let mut snapshot =
            Snapshot { at: clock::now(), view, processes, health: Health::Unreachable, reasons: Vec::new() };
        self.judge(&mut snapshot);
        snapshot
    }

    /// What keeps a cluster from being healthy.
    fn judge(&self, snapshot: &mut Snapshot) {
        let mut reasons = Vec::new();
        let live = |name: &str| snapshot.process(name);
        // Who decides may have changed since the cluster was made.
        let numbers: Vec<u16> = match &snapshot.view {
            Some(view) => view.acceptors.iter().map(|a| a.proposer).collect(),
            None => (1..=self.deployment.coordinators).collect(),
        };
        let coordinators = numbers.len();
        let names = numbers.into_iter().map(|n| coordinator_name(n).to_string());
        let down: Vec<String> = names.filter(|name| live(name).is_none()).collect();
        let running = coordinators - down.len();
        if running < coordinators / 2 + 1 {
            reasons.push(format!(
                "coordinator majority lost: {running} of {coordinators} run, no view can be decided and all leases end; start {}",
                down.join(", ")
            ));
        } else if !down.is_empty() {
            reasons.push(format!("{} down", down.join(", ")));
        }
        let caches = (1..=self.deployment.caches).map(|n| format!("cache-{n}"));
        let apps = (1..=self.deployment.apps).flat_map(|n| [format!("node-{n}"), format!("app-{n}")]);
        let down: Vec<String> = caches.chain(apps).filter(|name| live(name).is_none()).collect();
        if !down.is_empty() {
            reasons.push(format!("{} down", down.join(", ")));
        }
        let newest = snapshot.view.as_ref().map(|view| view.id);
        for process in snapshot.processes.iter().filter(|p| p.alive) {
            let name = process.name;
            let at = process.view.as_ref().map(|view| view.id);
            if process.frozen {
                reasons.push(format!("{name} is frozen (stopped)"));
            } else if process.incarnation == Incarnation::NONE {
                reasons.push(format!("{name} is not a member"));
            } else if at != newest {
                let shown = |view: Option<ViewId>| view.map_or("none".to_owned(), |view| view.to_string());
                reasons.push(format!("{name} knows view {}, the newest is {}", shown(at), shown(newest)));
            } else if process.kind != Kind::Coordinator && !process.is_active(snapshot.at) {
                reasons.push(format!("{name} has no active lease"));
            }
        }
        snapshot.health = match (snapshot.processes.iter().any(|p| p.alive), reasons.is_empty()) {
            (false, _) => Health::Unreachable,
            (true, true) => Health::Healthy,
            (true, false) => Health::Degraded,
        };
        snapshot.reasons = reasons;
    }

    /// The events that came since the last call, in the order of their times.
    pub fn events(&mut self) -> Vec<Seen> {
        let infos = self.refresh();
        let seats = self.cluster.layout().limits().seats;
        let mut events = Vec::new();
        for info in infos {
            let Some(watched) = self.watched.get_mut(&info.number) else { continue };
            let Some(kind) = Kind::from_number(info.kind) else { continue };
            let reader = watched.region.reader();
            let owner = reader.seat(0).map(|seat| (0, seat.generation, info.name, kind));
            let programs = occupied(&reader, seats).map(|s| (s.seat, s.generation, s.name, Kind::App));
            for (seat, generation, process, kind) in owner.into_iter().chain(programs) {
                let cursor = watched.cursors.entry(seat).or_insert((generation, 0));
                if cursor.0 != generation {
                    *cursor = (generation, 0);
                }
                for event in reader.events(seat, cursor.1) {
                    cursor.1 = event.number + 1;
                    events.push(Seen { process, kind, event });
                }
            }
        }
        events.sort_by_key(|seen| seen.event.at);
        events
    }

    /// What the owners of the regions counted in their histograms since the last call, or from the first call on.
    pub fn spans(&mut self) -> Vec<Spans> {
        self.looked = true;
        let mut all = Vec::new();
        for watched in self.watched.values_mut() {
            let reader = watched.region.reader();
            let now: Vec<Vec<u64>> = Histogram::ALL.iter().map(|which| reader.histogram(*which)).collect();
            now.iter().for_each(|words| self.load.read(words.len() * 8));
            if let Some(before) = watched.counted.replace(now.clone()) {
                let before = |at: usize| before.get(at).map_or(&[][..], Vec::as_slice);
                let counts =
                    now.iter().enumerate().map(|(at, words)| Counts::grown(before(at), words)).collect();
                all.push(Spans { process: watched.name, counts });
            }
        }
        all
    }

    /// A histogram of a region's owner, by the owner's name: the count of each bucket.
    #[must_use]
    pub fn histogram(&self, name: &str, which: Histogram) -> Option<Vec<u64>> {
        let info = self.cluster.regions().into_iter().find(|info| info.name.as_str() == name)?;
        Some(self.watched.get(&info.number)?.region.reader().histogram(which))
    }
}

/// The value below which a fraction `q` of a histogram's samples lie, as the floor of its bucket.
#[must_use]
pub fn quantile(buckets: &[u64], q: f64) -> Option<Nanos> {
    let total: u64 = buckets.iter().sum();
    let wanted = (total as f64 * q).ceil() as u64;
    let mut seen = 0;
    for (at, n) in buckets.iter().enumerate() {
        seen += n;
        if seen >= wanted && total > 0 {
            return Some(Nanos(metrics::bucket_floor(at)));
        }
    }
    None
}

fn occupied<'a>(
    reader: &obol_fabric::shm::Reader<'a>,
    seats: u32,
) -> impl Iterator<Item = SeatInfo> + use<'a> {
    let reader = *reader;
    (1..seats as u16).filter_map(move |seat| reader.seat(seat))
}

/// A restarted program takes any free seat, and its agent a new region; what the dead one held stays listed until it is
/// taken. Of one name the live process counts, or the one that died last.
fn forget_predecessors(processes: &mut Vec<Process>) {
    let rank = |p: &Process| (p.alive, p.process.started, p.process.pid);
    let mut newest = BTreeMap::new();
    for process in processes.iter() {
        let best = newest.entry((process.kind, process.name)).or_insert_with(|| rank(process));
        *best = rank(process).max(*best);
    }
    processes.retain(|p| p.alive || newest.get(&(p.kind, p.name)) == Some(&rank(p)));
}

/// Whether the kernel has stopped a process (SIGSTOP, or a tracer).
fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('T' | 't'))
}

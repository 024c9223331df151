//! Polls a cluster, and derives what the processes do not count themselves.

use crate::failovers::{Counted, Tally};
use obol_fabric::host::clock;
use obol_fabric::{Instant, Name, Nanos};
use obol_membership::Kind;
use obol_membership::metrics::Histogram;
use obol_membership::recorder::EventKind;
use obol_observe::histograms::{Counts, Histograms};
use obol_observe::metrics::text::Distribution;
use obol_observe::{Gateway, Health, Load, ObservedEvent, Observer, Process, Snapshot, Source};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Whose processes are exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those of this host: each host has an exporter.
    Host,
    /// Those of all hosts.
    Cluster,
}

/// The window of the least margin.
const WINDOW: Nanos = Nanos::from_secs(60);
/// How often the host's certificate is read.
const CERTIFICATE_EVERY: Nanos = Nanos::from_secs(30);

/// The distributions of one process, in the order of [`Histogram::ALL`].
pub(crate) type Durations = [Distribution; Histogram::ALL.len()];

/// One process of a poll.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) process: Process,
    pub(crate) is_here: bool,
    /// The least margin of its lease in the last minute.
    pub(crate) least: Option<Nanos>,
    /// The age of the last consistent read.
    pub(crate) age: Nanos,
    /// What it has counted since it started, if it owns a region.
    pub(crate) durations: Option<Arc<Durations>>,
}

/// What a poll has read.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    /// Without processes: [`Reading::rows`] has them.
    pub(crate) snapshot: Snapshot,
    pub(crate) leader: Option<Name>,
    pub(crate) deciders_running: usize,
    /// One for each name.
    pub(crate) rows: Vec<Row>,
    pub(crate) gateway: Option<Gateway>,
}

/// What the exporter counts of itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Own {
    pub(crate) polls: u64,
    pub(crate) polls_failed: u64,
    pub(crate) load: Load,
}

/// The result of a poll.
#[derive(Clone, Debug)]
pub struct Polled {
    pub(crate) cluster: Name,
    /// When it ended, in nanoseconds since 1970.
    pub(crate) unix: u64,
    /// When it ended, on this host's clock.
    pub(crate) at: Instant,
    pub(crate) took: Nanos,
    /// Or why the cluster cannot be read.
    pub(crate) reading: Result<Reading, String>,
    pub(crate) failovers: Counted,
    pub(crate) own: Own,
}

impl Polled {
    /// Why the cluster could not be read, if it could not.
    pub fn failure(&self) -> Option<&str> {
        self.reading.as_ref().err().map(String::as_str)
    }

    /// Why it is not known whether any program may act, if so.
    pub(crate) fn unknown(&self) -> Option<String> {
        let snapshot = &self.reading.as_ref().ok()?.snapshot;
        (snapshot.health == Health::Unknown).then(|| snapshot.reasons.join("; "))
    }

    /// READs of all polls so far, and bytes.
    pub const fn load(&self) -> Load {
        self.own.load
    }
}

/// What is kept from poll to poll of one process.
struct Kept {
    process: obol_fabric::host::Process,
    read: Instant,
    /// Ascending in both: the least margin from each moment on.
    margins: VecDeque<(Instant, Nanos)>,
}

impl Kept {
    const fn new(process: obol_fabric::host::Process, at: Instant) -> Self {
        Self { process, read: at, margins: VecDeque::new() }
    }

    fn margin(&mut self, at: Instant, margin: Nanos) {
        while self.margins.back().is_some_and(|(_, known)| *known >= margin) {
            self.margins.pop_back();
        }
        self.margins.push_back((at, margin));
    }

    fn least(&mut self, now: Instant) -> Option<Nanos> {
        while self.margins.front().is_some_and(|(at, _)| now.since(*at) > WINDOW) {
            self.margins.pop_front();
        }
        self.margins.front().map(|(_, margin)| *margin)
    }
}

/// Polls a cluster.
pub struct Collector {
    source: Source,
    scope: Scope,
    every: Duration,
    kept: HashMap<Name, Kept>,
    /// By region, with the generation of its owner.
    durations: BTreeMap<u32, (u32, Arc<Durations>)>,
    gateway: Option<(Instant, Option<Gateway>)>,
    /// What the open observer had read at the last poll.
    load: Load,
    tally: Tally,
    own: Own,
}

fn set_up(observer: Observer) -> Observer {
    let mut observer = observer.low_memory();
    observer.read_all_buckets();
    observer.count_from_the_start();
    observer
}

impl Collector {
    /// For a cluster, which may come and go, that is polled at this interval.
    pub fn new(root: PathBuf, cluster: Name, scope: Scope, every: Duration) -> Self {
        Self {
            source: Source::new(root, cluster, set_up),
            scope,
            every,
            kept: HashMap::new(),
            durations: BTreeMap::new(),
            gateway: None,
            load: Load::default(),
            tally: Tally::default(),
            own: Own::default(),
        }
    }

    /// Reads the cluster once.
    pub fn poll(&mut self) -> Polled {
        let began = clock::now();
        let reading = self.read();
        self.own.polls += 1;
        self.own.polls_failed += u64::from(reading.is_err());
        let at = clock::now();
        Polled {
            cluster: self.source.cluster(),
            unix: unix_now(),
            at,
            took: at.since(began),
            reading,
            failovers: self.tally.counted().clone(),
            own: self.own,
        }
    }

    fn read(&mut self) -> Result<Reading, String> {
        let (scope, cluster) = (self.scope, self.source.cluster());
        let (observer, is_new) = self.source.observer()?;
        if is_new {
            observer.read_elsewhere_every(self.every);
            self.kept.clear();
            self.durations.clear();
            self.gateway = None;
            self.load = Load::default();
            self.tally.renew();
        }
        let (snapshot, events, mut spans) = observer.poll(true);
        if scope == Scope::Cluster {
            spans.extend(observer.spans_elsewhere());
        }
        self.own.load += observer.load() - self.load;
        self.load = observer.load();
        if snapshot.health == Health::Unreachable && snapshot.processes.is_empty() {
            return Err(format!("no process of cluster {cluster} has come up yet"));
        }
        let gateway = gateway(&mut self.gateway, observer, snapshot.at);
        let leader = snapshot.leader_name();
        let deciders = observer.deciders(snapshot.view.as_deref());
        let answers = |p: &&Process| p.alive && deciders.includes(p);
        let deciders_running = snapshot.all_processes().filter(answers).count();
        let own_host = observer.deployment().own_host();
        self.keep(&snapshot);
        self.pass(&spans, &events, snapshot.at, is_new);
        let unix = unix_now().saturating_sub(clock::now().since(snapshot.at).0);
        self.tally.take(snapshot.view.as_deref(), events, snapshot.at, unix);
        let (rows, snapshot) = self.rows(snapshot, own_host);
        Ok(Reading { snapshot, leader, deciders_running, rows, gateway })
    }

    /// Notes which processes are there, and which of them could be read.
    fn keep(&mut self, snapshot: &Snapshot) {
        for process in snapshot.all_processes() {
            let kept =
                self.kept.entry(process.name).or_insert_with(|| Kept::new(process.process, snapshot.at));
            if kept.process != process.process {
                // A program may be listed with its predecessor, which has died.
                if !process.alive {
                    continue;
                }
                *kept = Kept::new(process.process, snapshot.at);
            }
            if process.lease.is_some() || process.kind == Kind::Coordinator {
                kept.read = snapshot.at;
            }
        }
        if self.kept.len() > snapshot.all_processes().count() {
            let there: HashSet<Name> = snapshot.all_processes().map(|p| p.name).collect();
            self.kept.retain(|name, _| there.contains(name));
        }
    }

    /// Passes on what was counted and recorded since the last poll.
    fn pass(&mut self, spans: &[Histograms], events: &[ObservedEvent], at: Instant, is_first: bool) {
        for part in spans {
            let fresh = || (part.generation, Arc::default());
            let (generation, durations) = self.durations.entry(part.region).or_insert_with(fresh);
            if *generation != part.generation {
                (*generation, *durations) = fresh();
            }
            for (all, new) in Arc::make_mut(durations).iter_mut().zip(&part.counts) {
                all.add_counts(new);
            }
            // The first poll has everything since the processes started, at any time.
            let least = part.of(Histogram::Margin).and_then(Counts::least).filter(|_| !is_first);
            if let (Some(least), Some(kept)) = (least, self.kept.get_mut(&part.process)) {
                kept.margin(at, least);
            }
        }
        // A lease that ends without a renewal leaves nothing in the histogram.
        let lapses = events.iter().filter(|seen| seen.event.record.kind == EventKind::LeaseLost);
        for lapse in lapses.filter(|lapse| at.since(lapse.event.at) <= WINDOW) {
            if let Some(kept) = self.kept.get_mut(&lapse.process) {
                kept.margin(at, Nanos::ZERO);
            }
        }
    }

    /// The processes in scope, one of each name: of several entries, the newest that lives.
    fn rows(&mut self, mut snapshot: Snapshot, own_host: u8) -> (Vec<Row>, Snapshot) {
        let all = std::mem::take(&mut snapshot.processes);
        let all = all.into_iter().chain(std::mem::take(&mut snapshot.remote));
        let scope = self.scope;
        let mut best: BTreeMap<(Kind, Name), (Process, bool)> = BTreeMap::new();
        // Those of other hosts that are missing have a row, too.
        let all =
            all.map(|p| (p.host == own_host, p)).filter(|(is_here, _)| *is_here || scope == Scope::Cluster);
        for (is_here, process) in all {
            let rank = |p: &Process| (p.alive, p.incarnation, p.region, p.seat);
            match best.entry((process.kind, process.name)) {
                Entry::Vacant(free) => drop(free.insert((process, is_here))),
                Entry::Occupied(mut known) => {
                    if rank(&known.get().0) < rank(&process) {
                        known.insert((process, is_here));
                    }
                }
            }
        }
        let rows: Vec<Row> = best
            .into_values()
            .map(|(process, is_here)| {
                let kept = self.kept.get_mut(&process.name);
                let durations = self.durations.get(&process.region).filter(|_| process.seat == 0);
                Row {
                    is_here,
                    age: kept.as_ref().map_or(Nanos::ZERO, |kept| snapshot.at.since(kept.read)),
                    least: kept.and_then(|kept| kept.least(snapshot.at)),
                    durations: durations.map(|(_, durations)| Arc::clone(durations)),
                    process,
                }
            })
            .collect();
        let known: HashSet<u32> = rows.iter().map(|row| row.process.region).collect();
        self.durations.retain(|region, _| known.contains(region));
        (rows, snapshot)
    }
}

fn gateway(
    kept: &mut Option<(Instant, Option<Gateway>)>,
    observer: &Observer,
    now: Instant,
) -> Option<Gateway> {
    match kept {
        Some((read, Some(gateway))) if now.since(*read) < CERTIFICATE_EVERY => gateway.count(observer),
        Some((_, None)) => {}
        _ => *kept = Some((now, Gateway::read(observer))),
    }
    kept.as_ref().and_then(|(_, gateway)| gateway.clone())
}

/// Nanoseconds since 1970, UTC.
pub(crate) fn unix_now() -> u64 {
    Nanos::from_std(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()).0
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_fabric::Incarnation;
    use obol_membership::metrics::Counter;

    fn collector() -> Collector {
        let cluster = Name::new("a").expect("a name");
        Collector::new(PathBuf::from("/nowhere"), cluster, Scope::Host, Duration::from_secs(1))
    }

    fn process(name: &str, incarnation: u64, alive: bool, pid: u32) -> Process {
        let mut process = Process::missing(Name::new(name).expect("a name"), Kind::App);
        process.process = obol_fabric::host::Process { pid, started: 1 };
        (process.incarnation, process.alive) = (Incarnation(incarnation), alive);
        process
    }

    fn snapshot(at: u64, mut processes: Vec<Process>, mut remote: Vec<Process>) -> Snapshot {
        processes.iter_mut().for_each(|process| process.host = 1);
        remote.iter_mut().for_each(|process| process.host = 2);
        let (health, reasons) = (Health::Healthy, Vec::new());
        Snapshot { at: Instant(at), view: None, processes, remote, health, reasons }
    }

    #[test]
    fn a_name_that_is_listed_twice_is_exported_once_as_the_one_that_lives() {
        let mut collector = collector();
        let mut lives = process("app-1", 7, true, 2);
        lives.counters[Counter::Served as usize] = 5;
        for order in [false, true] {
            let mut both = vec![process("app-1", 9, false, 1), lives.clone()];
            if order {
                both.reverse();
            }
            let (rows, _) = collector.rows(snapshot(1, both, vec![process("app-2", 1, true, 3)]), 1);
            let [row] = &rows[..] else { panic!("{rows:?}") };
            assert_eq!((row.process.process.pid, row.process.counter(Counter::Served)), (2, 5));
        }
        collector.scope = Scope::Cluster;
        let (rows, _) = collector.rows(snapshot(1, vec![lives], vec![process("app-2", 1, true, 3)]), 1);
        assert_eq!(rows.iter().map(|row| row.is_here).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn the_least_margin_is_that_of_the_last_minute_and_of_this_life() {
        let mut kept = Kept::new(obol_fabric::host::Process::default(), Instant(0));
        let second = |n: u64| Instant(n * 1_000_000_000);
        assert_eq!(kept.least(second(0)), None);
        for (at, margin) in [(1, 9), (2, 3), (3, 8), (4, 5)] {
            kept.margin(second(at), Nanos::from_millis(margin));
        }
        let least = |kept: &mut Kept, at| kept.least(second(at)).map(|margin| margin.0 / 1_000_000);
        assert_eq!(
            [least(&mut kept, 4), least(&mut kept, 62), least(&mut kept, 63)],
            [Some(3), Some(3), Some(5)]
        );
        assert_eq!(least(&mut kept, 65), None);

        let mut collector = collector();
        let of = |pid, alive| snapshot(5, vec![process("app-1", 1, alive, pid)], Vec::new());
        collector.keep(&of(1, true));
        collector.kept.values_mut().for_each(|kept| kept.margin(Instant(5), Nanos(1)));
        let least = |collector: &mut Collector, of: Snapshot| {
            collector.keep(&of);
            collector.rows(of, 1).0[0].least
        };
        assert_eq!(least(&mut collector, of(1, true)), Some(Nanos(1)));
        // A predecessor that is still listed is not another life.
        assert_eq!(least(&mut collector, of(2, false)), Some(Nanos(1)));
        assert_eq!(least(&mut collector, of(3, true)), None);
    }
}

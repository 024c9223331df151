//! The takeover: a successor READs the memory of a majority of the voters, and adopts what may have
//! been committed.
//!
//! Rings are READ before heads. A writer announces in a head which entries it gives up before it
//! overwrites the first of them, so an entry that is missing in a ring although it was committed
//! is below the `low` of the head that is READ afterwards.

use crate::area::{Area, HEADS_BYTES, PLACES};
use crate::config::Config;
use crate::entry::{Entry, Expected, Kind};
use crate::follow::{Head, Header, Replicated};
use crate::log::{Index, Point, Record, Term};
use crate::mutants::{ActiveMutant, Mutant};
use crate::preset::Guard;
use crate::service::Service;
use crate::tokens::{Part, token};
use obol_fabric::{Address, Fabric, Instant, LinkError, Nanos, Remote};

/// Pause after a READ that failed.
const RETRY_AFTER: Nanos = Nanos::from_micros(200);

/// The memory of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Memory {
    pub(crate) at: Address,
    pub(crate) rings: Vec<u8>,
    /// The heads of its rings, those that are whole.
    pub(crate) heads: Vec<Head>,
    pub(crate) header: Option<Header>,
}

impl Memory {
    /// From the bytes of its rings, and of its header with the heads.
    pub(crate) fn new(at: Address, rings: Vec<u8>, heads: &[u8]) -> Self {
        let head = |place| Head::decode(heads.get(Area::head_in_heads(place)..)?);
        Self { at, rings, heads: (0..PLACES).filter_map(head).collect(), header: Header::decode(heads) }
    }

    /// The newest entry up to which this memory may lack committed ones.
    fn low(&self, log: u64) -> Index {
        let of_log = self.heads.iter().filter(|head| head.log == log);
        of_log.map(|head| head.low).max().unwrap_or_default()
    }
}

/// What a successor continues from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Adopted {
    /// What follows its state.
    pub(crate) records: Vec<Record>,
    /// Entries up to this one were given up by an earlier leader.
    pub(crate) low: Index,
    pub(crate) config: Config,
    pub(crate) config_index: Index,
    pub(crate) memories: Vec<Memory>,
}

/// What a log continues from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct From {
    pub(crate) log: u64,
    pub(crate) after: Point,
    pub(crate) floor: Term,
    pub(crate) mutant: ActiveMutant,
}

/// All that may have been committed after a prefix, given the memories of a majority: for each index
/// the entry of the highest term. What has a lower term than the leader whose blank entry precedes
/// it is left out: that leader had adopted all that could be committed before it.
pub(crate) fn adopt(area: Area, from: From, memories: &[&Memory]) -> Vec<Record> {
    let From { log, mut after, mut floor, mutant } = from;
    let mut records = Vec::new();
    loop {
        let at = area.begin(after.at);
        let expected = Expected { log, index: after.index.next(), at, mutant };
        let mut best: Option<Entry<'_>> = None;
        for memory in memories {
            for place in 0..PLACES {
                let ring = memory.rings.get(area.ring_in_rings(place)).unwrap_or_default();
                let Some(bytes) = ring.get(area.in_ring(at)..) else { continue };
                let entry = Entry::decode(bytes, &expected).filter(|entry| entry.term >= floor);
                let is_better = |entry: &Entry<'_>| match &best {
                    None => true,
                    Some(best) if mutant.has(Mutant::LowestTerm) => entry.term < best.term,
                    Some(best) => entry.term > best.term,
                };
                best = entry.filter(is_better).or(best);
            }
        }
        let Some(entry) = best else { return records };
        if entry.kind == Kind::Blank {
            floor = floor.max(Term(entry.number));
        }
        let record = Record::of(&entry);
        after = record.end();
        records.push(record);
    }
}

/// The configuration in force at the end of a log: its newest one, committed or not.
pub(crate) fn config_of(records: &[Record], before: &Config) -> (Config, Index) {
    let newest = records.iter().rev().find_map(|record| {
        let config = (record.kind == Kind::Config).then(|| Config::decode(&record.payload)).flatten();
        config.map(|(config, _)| (config, record.index))
    });
    newest.unwrap_or_else(|| (before.clone(), Index(0)))
}

/// The READs of a replica's memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Reading {
    at: Address,
    rings: Option<Vec<u8>>,
    memory: Option<Memory>,
    outstanding: bool,
    retry_at: Instant,
}

/// A takeover in progress.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Takeover {
    pub(crate) term: Term,
    own: Address,
    readings: Vec<Reading>,
    /// Whose memories are needed, as far as is known.
    wanted: Vec<Address>,
    /// There is something to compute from.
    is_news: bool,
}

/// Where a takeover stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Progress {
    /// It waits for the guard, or for a majority of those that the guard has seized.
    Waits,
    /// Others have given up what this replica lacks: it needs a snapshot up to this entry at least.
    Behind(Index),
    /// It has all that may have been committed.
    Done(Box<Adopted>),
}

impl Takeover {
    /// As the leader of a term; the old leaders are to be excluded.
    pub(crate) fn begin<G: Guard, F: Fabric>(term: Term, guard: &mut G, fabric: &mut F) -> Self {
        guard.seize(term, fabric);
        Self { term, own: fabric.address(), readings: Vec::new(), wanted: Vec::new(), is_news: true }
    }

    /// The state or the view has changed.
    pub(crate) const fn touch(&mut self) {
        self.is_news = true;
    }

    /// Grows while it gets on.
    pub(crate) fn progress(&self) -> u64 {
        self.readings.iter().map(|one| 1 + u64::from(one.memory.is_some())).sum()
    }

    /// Continues. `replicas` are those of the view.
    pub(crate) fn poll<S: Service, G: Guard, F: Fabric>(
        &mut self,
        now: Instant,
        area: Area,
        of: &Replicated<S>,
        replicas: &[Address],
        guard: &G,
        fabric: &mut F,
    ) -> Progress {
        if core::mem::take(&mut self.is_news)
            && let Some(progress) = self.compute(area, of, replicas)
        {
            return progress;
        }
        let is_early = of.state.mutant.has(Mutant::TakeoverBeforeActive);
        for at in self.wanted.clone() {
            let is_begun = self.readings.iter().any(|one| one.at == at);
            if is_begun || is_early || guard.seized(at, fabric) {
                self.read(now, at, area, fabric);
            }
        }
        Progress::Waits
    }

    /// Whether what was READ is enough; otherwise, what is to be READ.
    fn compute<S: Service>(
        &mut self,
        area: Area,
        of: &Replicated<S>,
        replicas: &[Address],
    ) -> Option<Progress> {
        let mutant = of.state.mutant;
        let memories: Vec<&Memory> = self.readings.iter().filter_map(|one| one.memory.as_ref()).collect();
        let low = memories.iter().map(|memory| memory.low(of.state.log)).max().unwrap_or_default();
        let (log, after, floor) = (of.state.log, of.state.applied, of.state.floor);
        let records = adopt(area, From { log, after, floor, mutant }, &memories);
        let (config, config_index) = config_of(&records, &of.state.config);
        let counts = |at: &Address| !mutant.has(Mutant::ViewsAsQuorum) || replicas.contains(at);
        let mut wanted: Vec<Address> =
            config.voters.iter().map(|voter| voter.address).filter(counts).collect();
        let has = |at: &Address| memories.iter().any(|memory| memory.at == *at);
        let read = wanted.iter().filter(|at| has(at)).count();
        let needed = if mutant.has(Mutant::WaitsForAll) { wanted.len() } else { wanted.len() / 2 + 1 };
        let is_enough = read >= needed || mutant.has(Mutant::NoDrain);
        if has(&self.own) && is_enough {
            if of.state.applied.index < low {
                return Some(Progress::Behind(low));
            }
            let memories = self.readings.iter().filter_map(|one| one.memory.clone()).collect();
            let adopted = Adopted { records, low, config, config_index, memories };
            return Some(Progress::Done(Box::new(adopted)));
        }
        wanted.insert(0, self.own);
        if mutant.has(Mutant::NoDrain) {
            wanted.truncate(1);
        }
        self.wanted = wanted;
        None
    }

    /// READs the memory of a replica, unless that was done or is under way.
    fn read<F: Fabric>(&mut self, now: Instant, at: Address, area: Area, fabric: &mut F) {
        let known = self.readings.iter().position(|one| one.at == at);
        let n = known.unwrap_or_else(|| {
            let (rings, memory, outstanding, retry_at) = (None, None, false, Instant::ZERO);
            self.readings.push(Reading { at, rings, memory, outstanding, retry_at });
            self.readings.len() - 1
        });
        let Some(reading) = self.readings.get_mut(n) else { return };
        if reading.memory.is_none() && !reading.outstanding && now >= reading.retry_at {
            reading.outstanding = true;
            let part = |which| token(Part::Adopt, (self.term.0 as u32) << 8 | (n as u32) << 1 | which);
            fabric.read(Remote { at, offset: area.rings() }, area.rings_bytes(), part(0));
            fabric.read(Remote { at, offset: area.header() }, HEADS_BYTES, part(1));
        }
    }

    /// A READ completed: the rings, or the heads, which come after them.
    pub(crate) fn on_read(&mut self, now: Instant, argument: u32, result: Result<&[u8], LinkError>) {
        if argument >> 8 != (self.term.0 as u32 & 0xff_ffff) {
            return;
        }
        let Some(reading) = self.readings.get_mut((argument >> 1 & 0x7f) as usize) else { return };
        if argument & 1 == 0 {
            reading.rings = result.ok().map(<[u8]>::to_vec);
            return;
        }
        reading.outstanding = false;
        match (reading.rings.take(), result) {
            (Some(rings), Ok(heads)) => {
                reading.memory = Some(Memory::new(reading.at, rings, heads));
                self.is_news = true;
            }
            _ => reading.retry_at = now + RETRY_AFTER,
        }
    }
}

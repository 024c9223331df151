//! The takeover: a successor READs the memory of a majority of the voters, and adopts what may have
//! been committed.
//!
//! Heads are READ first: they say which rings can have what the successor lacks. Then these rings are
//! READ, and then the heads again. A writer announces in a head which entries it gives up before it
//! overwrites the first of them, so an entry that is missing in a ring although it was committed
//! is below the `low` of the head that is READ afterwards.

use crate::area::{Area, HEADS_BYTES, PLACES};
use crate::config::Config;
use crate::entry::{Entry, Expected, Kind};
use crate::follow::{HEAD_BYTES, Head, Header};
use crate::log::Record;
use crate::mutants::{ActiveMutant, Mutant};
use crate::position::{Index, Offset, Point, Term};
use crate::preset::Guard;
use crate::replicated::Replicated;
use crate::service::Service;
use crate::tokens::{Part, token};
use core::ops::Range;
use obol_fabric::{Address, Fabric, Instant, LinkError, Nanos, Remote, Token};
use strum::FromRepr;

/// Pause after a READ that failed.
const RETRY_AFTER: Nanos = Nanos::from_micros(200);

/// The memory of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Memory {
    pub(crate) at: Address,
    /// The rings that were READ, of these places.
    rings: Vec<u8>,
    places: Range<u8>,
    /// The heads of its rings, those that are whole.
    pub(crate) heads: Vec<Head>,
    pub(crate) header: Option<Header>,
}

impl Memory {
    /// From the bytes of the rings of these places, and of its header with the heads.
    pub(crate) fn new(at: Address, rings: Vec<u8>, places: Range<u8>, heads: &[u8]) -> Self {
        let head = |place| Head::decode(heads.get(Area::head_in_heads(place)..)?);
        let found = (0..PLACES).filter_map(head).collect();
        Self { at, rings, places, heads: found, header: Header::decode(heads) }
    }

    /// A ring; empty if it was not READ.
    pub(crate) fn ring(&self, area: Area, place: u8) -> &[u8] {
        let nth = place.checked_sub(self.places.start).filter(|_| self.places.contains(&place));
        nth.and_then(|nth| self.rings.get(area.ring_in_rings(nth))).unwrap_or_default()
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

impl Adopted {
    /// What a leader has appended or adopted, whether or not it is committed; nobody else has anything.
    pub(crate) fn of_leader<S: Service>(replicated: &Replicated<S>, config: Config, own: Address) -> Self {
        let after = replicated.state.applied.index;
        let records = replicated.log.after(after).cloned().collect();
        let applied = replicated.state.applied;
        let header = Some(Header { log: replicated.state.log, applied, ..Header::default() });
        // What its ring has is of the log before, and is written over.
        let own = Memory { at: own, rings: Vec::new(), places: 0..0, heads: Vec::new(), header };
        Self { records, low: after, config, config_index: Index(0), memories: vec![own] }
    }
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
            for place in memory.places.clone() {
                let Some(bytes) = memory.ring(area, place).get(area.in_ring(at)..) else { continue };
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

/// The places, from the first to the last one, whose rings can have what a successor lacks; given the
/// heads of a replica, and the own place.
///
/// A ring whose head is of a term below `floor` is left out. All of its entries are of that term or
/// lower ones, since a leader writes its head before the first entry, on the same link. The leader
/// of the term `floor` has adopted what of them could be committed, and its blank entry is applied
/// here: so what this replica lacks is in rings of that term or later ones. The own ring is needed
/// because the leader looks what is there before it writes into it. A head that was just being
/// written, so that it is torn, counts as needed; a ring that never had one is empty.
fn places(heads: &[u8], by: &Reader) -> Range<u8> {
    let Reader { log, floor, place: own, mutant, .. } = *by;
    let is_late = |term: Term| term > floor || term == floor && !mutant.has(Mutant::FloorUnread);
    let is_needed = |place: &u8| {
        let Some(bytes) = heads.get(Area::head_in_heads(*place)..) else { return true };
        match Head::decode(bytes) {
            Some(head) => head.log == log && (is_late(head.term) || own.is_none_or(|own| own == *place)),
            None => bytes.iter().take(HEAD_BYTES).any(|byte| *byte != 0),
        }
    };
    let first = (0..PLACES).find(is_needed).unwrap_or_default();
    let end = (0..PLACES).rfind(is_needed).map_or(first, |last| last + 1);
    first..end
}

/// The configuration in force at the end of a log: its newest one, committed or not.
pub(crate) fn config_of<'a>(
    records: impl DoubleEndedIterator<Item = &'a Record>,
    before: &Config,
) -> (Config, Index) {
    let newest = records.rev().find_map(|record| {
        let config = (record.kind == Kind::Config).then(|| Config::decode(&record.payload)).flatten();
        config.map(|(config, _)| (config, record.index))
    });
    newest.unwrap_or_else(|| (before.clone(), Index(0)))
}

/// The READs of a replica's memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Reading {
    at: Address,
    /// The rings that are READ, or were.
    places: Range<u8>,
    rings: Option<Vec<u8>>,
    memory: Option<Memory>,
    outstanding: bool,
    retry_at: Instant,
}

/// One of the READs of a replica's memory, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromRepr)]
#[repr(u8)]
enum Step {
    HeadsBefore = 0,
    Rings = 1,
    HeadsAfter = 2,
}

/// What the READs of a takeover depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reader {
    pub(crate) area: Area,
    pub(crate) log: u64,
    /// As of the state: see [`places`].
    pub(crate) floor: Term,
    /// The ring that the successor writes into, once it has one.
    pub(crate) place: Option<u8>,
    pub(crate) mutant: ActiveMutant,
}

/// A takeover in progress.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Takeover {
    pub(crate) term: Term,
    own: Address,
    readings: Vec<Reading>,
    /// The configuration in force, as far as is known.
    config: Option<Config>,
    /// Whose memories are needed, as far as is known.
    wanted: Vec<Address>,
    /// Its own memory is enough, on an operator's word.
    alone: bool,
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
        Self {
            term,
            own: fabric.address(),
            readings: Vec::new(),
            config: None,
            wanted: Vec::new(),
            alone: false,
            is_news: true,
        }
    }

    /// The state or the view has changed.
    pub(crate) const fn touch(&mut self) {
        self.is_news = true;
    }

    /// Whether it continues from its own memory.
    pub(crate) const fn set_alone(&mut self, is_alone: bool) {
        self.alone = is_alone;
        self.is_news |= is_alone;
    }

    /// The configuration in force, as far as is known.
    pub(crate) const fn config(&self) -> Option<&Config> {
        self.config.as_ref()
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
        replicated: &Replicated<S>,
        replicas: &[Address],
        guard: &G,
        fabric: &mut F,
    ) -> Progress {
        if core::mem::take(&mut self.is_news)
            && let Some(progress) = self.compute(area, replicated, replicas)
        {
            return progress;
        }
        let is_early = replicated.state.mutant.has(Mutant::TakeoverBeforeActive);
        for at in self.wanted.clone() {
            let is_begun = self.readings.iter().any(|one| one.at == at);
            if is_begun || is_early || guard.seized(at, fabric) {
                self.begin_reading(now, at, area, fabric);
            }
        }
        Progress::Waits
    }

    /// Whether what was READ is enough; otherwise, what is to be READ.
    fn compute<S: Service>(
        &mut self,
        area: Area,
        replicated: &Replicated<S>,
        replicas: &[Address],
    ) -> Option<Progress> {
        let mutant = replicated.state.mutant;
        let memories: Vec<&Memory> = self.readings.iter().filter_map(|one| one.memory.as_ref()).collect();
        let low = memories.iter().map(|memory| memory.low(replicated.state.log)).max().unwrap_or_default();
        let (log, after, floor) = (replicated.state.log, replicated.state.applied, replicated.state.floor);
        let records = adopt(area, From { log, after, floor, mutant }, &memories);
        let (config, config_index) = config_of(records.iter(), &replicated.state.config);
        let counts = |at: &Address| !mutant.has(Mutant::ViewsAsQuorum) || replicas.contains(at);
        let mut wanted: Vec<Address> =
            config.voters.iter().map(|voter| voter.address).filter(counts).collect();
        let has = |at: &Address| memories.iter().any(|memory| memory.at == *at);
        let read = wanted.iter().filter(|at| has(at)).count();
        let needed = if mutant.has(Mutant::WaitsForAll) { wanted.len() } else { wanted.len() / 2 + 1 };
        let is_enough = read >= needed || self.alone || mutant.has(Mutant::NoDrain);
        if has(&self.own) && is_enough {
            if replicated.state.applied.index < low && !self.alone {
                return Some(Progress::Behind(low));
            }
            // Alone, it goes on with the entries that its own memory has.
            let low = low.min(replicated.state.applied.index);
            let follows =
                |(record, at): (&Record, u64)| record.index.0 == replicated.state.applied.index.0 + at;
            assert!(records.iter().zip(1..).all(follows), "what is adopted follows what is applied");
            let memories = self.readings.iter().filter_map(|one| one.memory.clone()).collect();
            let adopted = Adopted { records, low, config, config_index, memories };
            return Some(Progress::Done(Box::new(adopted)));
        }
        wanted.insert(0, self.own);
        if mutant.has(Mutant::NoDrain) {
            wanted.truncate(1);
        }
        (self.wanted, self.config) = (wanted, Some(config));
        None
    }

    /// READs the memory of a replica, unless that was done or is under way.
    fn begin_reading<F: Fabric>(&mut self, now: Instant, at: Address, area: Area, fabric: &mut F) {
        let known = self.readings.iter().position(|one| one.at == at);
        let n = known.unwrap_or_else(|| {
            let (places, rings, memory, outstanding, retry_at) = (0..0, None, None, false, Instant::ZERO);
            self.readings.push(Reading { at, places, rings, memory, outstanding, retry_at });
            self.readings.len() - 1
        });
        let token = self.token(n, Step::HeadsBefore);
        let Some(reading) = self.readings.get_mut(n) else { return };
        if reading.memory.is_none() && !reading.outstanding && now >= reading.retry_at {
            reading.outstanding = true;
            fabric.read(Remote { at, offset: area.header() }, HEADS_BYTES, token);
        }
    }

    fn token(&self, reading: usize, step: Step) -> Token {
        token(Part::Adopt, (self.term.0 as u32) << 8 | (reading as u32) << 2 | step as u32)
    }

    /// A READ completed. What follows is posted: the rings that are needed, and the heads after them.
    pub(crate) fn on_read<F: Fabric>(
        &mut self,
        now: Instant,
        argument: u32,
        result: Result<&[u8], LinkError>,
        by: &Reader,
        fabric: &mut F,
    ) {
        let Some(step) = Step::from_repr((argument & 3) as u8) else { return };
        if argument >> 8 != (self.term.0 as u32 & 0xff_ffff) {
            return;
        }
        let n = (argument >> 2 & 0x3f) as usize;
        let tokens = [self.token(n, Step::Rings), self.token(n, Step::HeadsAfter)];
        let Some(reading) = self.readings.get_mut(n) else { return };
        let (area, at) = (by.area, reading.at);
        match (step, result) {
            (Step::HeadsBefore, Ok(heads)) => {
                reading.places = places(heads, by);
                let bytes = reading.places.len() as u32 * area.ring_bytes();
                if bytes > 0 {
                    let from = Remote { at, offset: area.entry(reading.places.start, Offset(0)) };
                    fabric.read(from, bytes, tokens[0]);
                } else {
                    reading.rings = Some(Vec::new());
                }
                fabric.read(Remote { at, offset: area.header() }, HEADS_BYTES, tokens[1]);
            }
            (Step::Rings, result) => reading.rings = result.ok().map(<[u8]>::to_vec),
            (Step::HeadsAfter, Ok(heads)) if reading.rings.is_some() => {
                reading.outstanding = false;
                let rings = reading.rings.take().unwrap_or_default();
                reading.memory = Some(Memory::new(at, rings, reading.places.clone(), heads));
                self.is_news = true;
            }
            (Step::HeadsBefore | Step::HeadsAfter, _) => {
                reading.rings = None;
                (reading.outstanding, reading.retry_at) = (false, now + RETRY_AFTER);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Log;
    use crate::state::State;
    use crate::store::KeyValue;

    const LOG: u64 = 7;

    /// Header and heads with heads of these terms, at places from 0 on; 0 for none.
    fn heads(terms: &[u64]) -> Vec<u8> {
        let mut all = vec![0; HEADS_BYTES as usize];
        for (place, term) in terms.iter().enumerate().filter(|(_, term)| **term != 0) {
            let mut bytes = Vec::new();
            Head { log: LOG, term: Term(*term), ..Head::default() }.encode(&mut bytes);
            all[Area::head_in_heads(place as u8)..][..bytes.len()].copy_from_slice(&bytes);
        }
        all
    }

    fn area() -> Area {
        let limits =
            obol_fabric::Limits { slots: 8, proposers: 7, value_bytes: 4096, ..obol_fabric::Limits::LEAST };
        Area::of(&obol_fabric::Layout::new(limits).expect("in bounds")).expect("there is room")
    }

    fn read(heads: &[u8], log: u64, floor: u64, place: Option<u8>) -> Range<u8> {
        let (area, floor, mutant) = (area(), Term(floor), ActiveMutant::default());
        places(heads, &Reader { area, log, floor, place, mutant })
    }

    #[test]
    fn rings_of_leaders_before_the_newest_blank_entry_are_not_read() {
        let heads = heads(&[2, 5, 9, 3]);
        assert_eq!(read(&heads, LOG, 5, Some(7)), 1..3);
        assert_eq!(read(&heads, LOG, 6, Some(7)), 2..3);
        assert_eq!(read(&heads, LOG, 10, Some(7)), 0..0, "all are older");
        assert_eq!(read(&heads, LOG, 0, Some(7)), 0..4);
        assert_eq!(read(&heads, LOG + 1, 0, Some(7)), 0..0, "another log");
    }

    #[test]
    fn the_own_ring_is_read_and_a_head_that_is_not_whole_hides_none() {
        let mut heads = heads(&[2, 5, 9]);
        assert_eq!(read(&heads, LOG, 9, Some(0)), 0..3);
        assert_eq!(read(&heads, LOG, 9, None), 0..3, "the own place is not known yet");
        heads[Area::head_in_heads(1) + 8] ^= 1;
        assert_eq!(read(&heads, LOG, 9, Some(7)), 1..3, "torn");
        assert_eq!(read(&heads[..100], LOG, 0, Some(7)), 0..PLACES, "cut off");
    }

    #[test]
    fn alone_a_survivor_continues_though_a_leader_has_given_up_what_it_lacks() {
        let own = Address { region: 3, generation: 1, ..Address::default() };
        let mut state = State::new(KeyValue::default(), 0);
        (state.log, state.config) = (LOG, Config::first(3, own));
        let replicated = Replicated { state, log: Log::default(), gap: false, lags: false };
        let mut all = vec![0; HEADS_BYTES as usize];
        let mut bytes = Vec::new();
        Head { log: LOG, term: Term(2), low: Index(1), ..Head::default() }.encode(&mut bytes);
        all[Area::head_in_heads(0)..][..bytes.len()].copy_from_slice(&bytes);
        let memory = Some(Memory::new(own, Vec::new(), 0..0, &all));
        let (rings, outstanding, retry_at) = (None, false, Instant::ZERO);
        let readings = vec![Reading { at: own, places: 0..0, rings, memory, outstanding, retry_at }];
        let (wanted, alone, is_news) = (Vec::new(), false, true);
        let config = None;
        let mut takeover = Takeover { term: Term(3), own, readings, config, wanted, alone, is_news };
        let progress = takeover.compute(area(), &replicated, &[own]);
        assert_eq!(progress, Some(Progress::Behind(Index(1))), "others may have it");
        takeover.set_alone(true);
        let Some(Progress::Done(adopted)) = takeover.compute(area(), &replicated, &[own]) else {
            panic!("it waits")
        };
        assert_eq!((adopted.low, adopted.records), (Index(0), Vec::new()));
    }

    #[test]
    fn a_ring_that_was_not_read_is_empty() {
        let area = area();
        let len = area.ring_bytes() as usize;
        let rings = [vec![1; len], vec![2; len]].concat();
        let memory = Memory::new(Address::default(), rings, 3..5, &[]);
        let first = |place| memory.ring(area, place).first().copied();
        assert_eq!([2, 3, 4, 5].map(first), [None, Some(1), Some(2), None]);
    }
}

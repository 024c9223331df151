//! Checks what clients have observed with stateright's tester. Linearizability is local: each key
//! is checked by itself.

use obol_smr::{Done, KeyValue, LoadError, Service};
use stateright::semantics::register::{Register, RegisterOp, RegisterRet};
use stateright::semantics::{ConsistencyTester, LinearizabilityTester};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A key's value as the checker knows it; 0 stands for none.
pub(crate) type Value = u64;
type Tester = LinearizabilityTester<u32, Register<Value>>;

/// What a client does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Get(u64),
    Put(u64, Value),
}

impl Act {
    const fn key(self) -> u64 {
        match self {
            Self::Get(key) | Self::Put(key, _) => key,
        }
    }
}

/// A value as bytes: lengths vary, so that torn values are detected.
pub(crate) fn bytes(value: Value) -> Box<[u8]> {
    let len = 8 * (1 + value as usize % 40);
    value.to_le_bytes().into_iter().cycle().take(len).collect()
}

fn value(found: &[u8]) -> Result<Value, String> {
    let value = found.first_chunk().map(|word| u64::from_le_bytes(*word)).ok_or("a value without a word")?;
    if found == &bytes(value)[..] {
        Ok(value)
    } else {
        Err(format!("a value that no client wrote: {found:?}"))
    }
}

/// The history of a run.
#[derive(Default)]
pub(crate) struct History {
    keys: BTreeMap<u64, Tester>,
    pub(crate) operations: usize,
}

impl History {
    fn tester(&mut self, key: u64) -> &mut Tester {
        self.keys.entry(key).or_insert_with(|| LinearizabilityTester::new(Register(0)))
    }

    pub(crate) fn begins(&mut self, client: u32, act: Act) -> Result<(), String> {
        let asked = match act {
            Act::Get(_) => RegisterOp::Read,
            Act::Put(_, value) => RegisterOp::Write(value),
        };
        self.tester(act.key()).on_invoke(client, asked).map(drop)
    }

    pub(crate) fn ends(&mut self, client: u32, act: Act, done: &Done) -> Result<(), String> {
        self.operations += 1;
        let outcome = KeyValue::outcome(&done.reply).map_err(|_| format!("{act:?} was invalid"))?;
        let found = match (act, outcome) {
            (Act::Get(_), Some(found)) => RegisterRet::ReadOk(value(found)?),
            (Act::Get(_), None) => RegisterRet::ReadOk(0),
            (Act::Put(..), _) => RegisterRet::WriteOk,
        };
        self.tester(act.key()).on_return(client, found).map(drop)
    }

    pub(crate) fn judge(&self) -> Result<(), String> {
        match self.keys.iter().find(|(_, tester)| !tester.is_consistent()) {
            None => Ok(()),
            Some((key, _)) => Err(format!("invariant 7: the history of key {key} is not linearizable")),
        }
    }
}

/// By how much time that passes in the log may differ from true time, in ns, without a change of leaders
/// and for each one: stamps count whole ms, and a successor goes on from the newest one.
const TIME_ERROR_MAX: i64 = 2_000_000;
const TIME_ERROR_EACH: i64 = 1_000_000;

/// When values were put, in true time: each after the first and before the second one, in ns.
#[derive(Default)]
pub(crate) struct Puts(BTreeMap<Value, (u64, u64)>);

impl Puts {
    pub(crate) fn begins(&mut self, value: Value, now: u64) {
        self.0.insert(value, (now, u64::MAX));
    }

    pub(crate) fn ends(&mut self, value: Value, now: u64) {
        self.0.entry(value).and_modify(|(_, end)| *end = now);
    }

    /// Between any two of them as much time has passed in the log as in truth.
    pub(crate) fn judge(&self, service: &Watched, failovers: u64) -> Result<(), String> {
        let most = TIME_ERROR_MAX + TIME_ERROR_EACH * failovers as i64;
        let stamped = |(value, time): (&Value, &u64)| {
            let (begin, end) = self.0.get(value).copied().filter(|(_, end)| *end != u64::MAX)?;
            let origin = |of: u64| of as i64 - 1_000_000 * *time as i64;
            Some((origin(begin), origin(end), *value))
        };
        let all: Vec<(i64, i64, Value)> = service.seen.iter().filter_map(stamped).collect();
        let late = all.iter().max_by_key(|(begin, ..)| *begin);
        let early = all.iter().min_by_key(|(_, end, _)| *end);
        match late.zip(early) {
            Some((late, early)) if late.0 - early.1 > most => Err(format!(
                "invariant 13: between the PUTs of {} and {} the log's time is off by {} ms",
                early.2,
                late.2,
                (late.0 - early.1) / 1_000_000
            )),
            _ => Ok(()),
        }
    }
}

/// Bytes of the time before each command and query.
const TIME_BYTES: usize = 8;
/// The time that clients write there: far ahead of any clock.
const FOREIGN: u64 = u64::MAX / 2;

/// A command or query with a time that is the client's.
pub(crate) fn stamped_by_client(command: &[u8]) -> Box<[u8]> {
    [&FOREIGN.to_le_bytes(), command].concat().into()
}

fn time_of(command: &[u8]) -> Option<(u64, &[u8])> {
    let (time, rest) = command.split_first_chunk::<TIME_BYTES>()?;
    Some((u64::from_le_bytes(*time), rest))
}

/// Bytes between what a replica has seen and its store, in a saved state: so that this has several chunks,
/// and changes while it is saved.
const PADDING: usize = 24 * 1024;

const DAY_MS: u64 = 86_400_000;
/// How long the wall clock of a host goes right before it may be set or stopped, in ns of true time.
const WALL_PERIOD: u64 = 20_000_000;

thread_local! {
    /// True time, for those that read a wall clock: they do so without asking the simulator.
    static TRUE_NOW: Cell<u64> = const { Cell::new(0) };
}

pub(crate) fn true_time_is(now: u64) {
    TRUE_NOW.set(now);
}

/// The wall clock of a host: a day slow or fast, set by up to a day forward or back, or stopped. Only a planted
/// bug reads it: whatever wall clocks show, time of the log goes on by monotonic ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WallClock(pub(crate) u32);

impl WallClock {
    fn ms(self) -> u64 {
        let now = TRUE_NOW.get();
        let drawn = |of: (u32, u64)| {
            let mut hasher = DefaultHasher::new();
            of.hash(&mut hasher);
            hasher.finish()
        };
        let day = |random: u64| random % (2 * DAY_MS);
        let (period, shown) = (now / WALL_PERIOD, now / 1_000_000);
        // As long after 1970 as needed for a clock that is a day slow.
        let shown = 2 * DAY_MS + day(drawn((self.0, u64::MAX))) + shown;
        match drawn((self.0, period)) % 4 {
            0 => shown - DAY_MS + day(drawn((self.0, period + u64::MAX / 2))),
            1 => shown - now % WALL_PERIOD / 1_000_000,
            _ => shown,
        }
    }
}

/// The store, which notices a command that takes effect twice, because each PUT has a value of its own,
/// and a time that is lower than one before it, or a client's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Watched {
    store: KeyValue,
    /// The values that were put, and when by the time of the log.
    seen: BTreeMap<Value, u64>,
    pub(crate) twice: Option<Value>,
    /// The newest time of a command.
    now: u64,
    /// A time that no leader should have given, after which one.
    pub(crate) wrong_time: Option<(u64, u64)>,
    /// What precedes the store in a save that has written nothing yet.
    saved: Option<Vec<u8>>,
    /// It is to be loaded, and has nothing yet.
    is_blank: bool,
    /// It is a bug: commands of Redis happen when this clock says.
    wall: Option<WallClock>,
}

impl Watched {
    fn save_own(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.now.to_le_bytes());
        to.extend_from_slice(&(self.seen.len() as u64).to_le_bytes());
        for value in self.seen.iter().flat_map(|(value, time)| [value, time]) {
            to.extend_from_slice(&value.to_le_bytes());
        }
        to.resize(to.len() + PADDING, 0);
    }

    /// A service that reads the wall clock of its host.
    pub(crate) fn with_wall_clock(mut self, clock: WallClock) -> Self {
        self.wall = Some(clock);
        self
    }

    /// A command or query at the time of the wall clock, if this service reads it.
    fn by_wall_clock(&self, command: &[u8]) -> Option<Vec<u8>> {
        let mut command = command.to_vec();
        KeyValue::stamp(&mut command, self.wall?.ms());
        Some(command)
    }

    /// What replicas that have applied the same have in common.
    pub(crate) fn state(&self) -> u64 {
        if self.wall.is_some() {
            // By that they would differ at once: clients have to see it.
            return 0;
        }
        let mut hasher = DefaultHasher::new();
        (&self.store, &self.seen, self.now).hash(&mut hasher);
        hasher.finish()
    }
}

impl Service for Watched {
    const KIND: u8 = 255;

    fn apply(&mut self, command: &[u8], reply: &mut Vec<u8>) {
        let Some((time, command)) = time_of(command) else { return };
        if time < self.now || time == FOREIGN {
            self.wrong_time = Some((time, self.now));
        }
        self.now = self.now.max(time);
        self.store.apply(self.by_wall_clock(command).as_deref().unwrap_or(command), reply);
        if KeyValue::stamped(command).is_some() {
            return;
        }
        // After the operation and a key of one byte.
        let value =
            command.get(3..11).and_then(|word| word.first_chunk()).map(|word| u64::from_le_bytes(*word));
        if let Some(value) = value.filter(|value| self.seen.insert(*value, time).is_some()) {
            self.twice = Some(value);
        }
    }

    fn stamp(command: &mut [u8], at_ms: u64) {
        if let Some((time, command)) = command.split_first_chunk_mut::<TIME_BYTES>() {
            *time = at_ms.to_le_bytes();
            KeyValue::stamp(command, at_ms);
        }
    }

    fn stamped(command: &[u8]) -> Option<u64> {
        time_of(command).map(|(time, _)| time)
    }

    fn time(&self) -> u64 {
        self.now
    }

    fn seed(&mut self, random: u64) {
        self.store.seed(random);
    }

    fn read(&self, query: &[u8], reply: &mut Vec<u8>) {
        if let Some((_, query)) = time_of(query) {
            self.store.read(self.by_wall_clock(query).as_deref().unwrap_or(query), reply);
        }
    }

    fn save(&self, to: &mut Vec<u8>) {
        self.save_own(to);
        self.store.save(to);
    }

    fn begin_save(&mut self) -> Option<u64> {
        let mut own = Vec::new();
        self.save_own(&mut own);
        let follows = self.store.begin_save()?;
        let whole = own.len() as u64 + follows;
        self.saved = Some(own);
        Some(whole)
    }

    fn save_part(&mut self, to: &mut Vec<u8>) -> Option<bool> {
        if let Some(own) = self.saved.take() {
            to.extend_from_slice(&own);
            return Some(false);
        }
        self.store.save_part(to)
    }

    fn end_save(&mut self) {
        self.saved = None;
        self.store.end_save();
    }

    fn begin_load(&self) -> Self {
        Self { store: self.store.begin_load(), is_blank: true, wall: self.wall, ..Self::default() }
    }

    fn load_part(&mut self, from: &mut Vec<u8>) -> Result<(), LoadError> {
        if self.is_blank {
            let number = |n: usize| from.get(8 * n..8 * n + 8)?.try_into().ok().map(u64::from_le_bytes);
            let Some((now, count)) = number(0).zip(number(1)) else { return Ok(()) };
            let end = 16 * (1 + count as usize) + PADDING;
            let pair = |n: usize| number(2 * n).zip(number(2 * n + 1));
            let Some(seen) = (1..=count as usize).map(pair).collect() else { return Ok(()) };
            if from.len() < end {
                return Ok(());
            }
            (self.now, self.seen, self.is_blank) = (now, seen, false);
            from.drain(..end);
        }
        self.store.load_part(from)
    }

    fn end_load(&mut self, rest: &[u8]) -> Result<(), LoadError> {
        if self.is_blank { Err(LoadError) } else { self.store.end_load(rest) }
    }

    fn work(&mut self) -> bool {
        self.store.work()
    }

    fn discard(&mut self, other: Self) {
        self.store.discard(other.store);
    }

    #[cfg(feature = "mutants")]
    fn plant(&mut self, mutant: obol_smr::Mutant) {
        self.store.plant(mutant);
    }

    fn load(&mut self, from: &[u8]) -> Result<(), LoadError> {
        let number = |at: usize| {
            let word = from.get(at..at + 8).and_then(|word| word.first_chunk());
            word.map(|word| u64::from_le_bytes(*word)).ok_or(LoadError)
        };
        self.now = number(0)?;
        let count = number(8)? as usize;
        let pair = |n: usize| Ok((number(16 * n)?, number(16 * n + 8)?));
        self.seen = (1..=count).map(pair).collect::<Result<_, _>>()?;
        self.store.load(from.get(16 * (1 + count) + PADDING..).ok_or(LoadError)?)
    }
}

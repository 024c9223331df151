//! The replicated state: what the log up to an index yields, the same on every replica.

use crate::config::Config;
use crate::entry::Kind;
use crate::identity;
use crate::limits::PAYLOAD_BYTES_MAX;
use crate::log::Record;
use crate::mutants::{ActiveMutant, Mutant};
use crate::position::{Index, Offset, Point, Term};
use crate::service::{LoadError, Service};
use crate::session::{Seen, Sessions};
use obol_fabric::sealed::word;

/// Words of a snapshot before its configuration.
const SNAPSHOT_WORDS: usize = 6;
/// Bytes of a snapshot's head at most, which has the configuration and the sessions with their replies.
const HEAD_BYTES_MAX: u64 = 8 << 20;

/// What an entry yielded for the client that sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing to answer.
    None,
    /// A reply, which the sessions have.
    Reply,
    /// There was no session.
    NoSession,
}

/// The state after a prefix of the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State<S> {
    /// The log's identity; 0 for none.
    pub(crate) log: u64,
    pub(crate) applied: Point,
    /// The term of the newest [`Kind::Blank`]. An entry of a lower term after it is none of the
    /// log: the leader of this term adopted all that could be committed before it.
    pub(crate) floor: Term,
    /// Of all that was applied. Equal for equal prefixes.
    pub(crate) digest: u64,
    /// The newest configuration.
    pub(crate) config: Config,
    pub(crate) sessions: Sessions,
    pub(crate) service: S,
    /// The [`crate::Guard`] of its replicas.
    guard: u8,
    pub(crate) mutant: ActiveMutant,
}

impl<S: Service> State<S> {
    /// Before any entry, and of no log.
    pub(crate) fn new(service: S, guard: u8) -> Self {
        Self {
            log: 0,
            applied: Point::default(),
            floor: Term(0),
            digest: 0,
            config: Config::default(),
            sessions: Sessions::default(),
            service,
            guard,
            mutant: ActiveMutant::NONE,
        }
    }

    /// The identity of a new log: that number but for its two lowest bytes, which name its service and the
    /// guard of its replicas. See [`crate::identity`].
    pub(crate) fn identity(&self, number: u64) -> u64 {
        let [_, _, rest @ ..] = number.to_le_bytes();
        let [a, b, c, d, e, f] = rest;
        u64::from_le_bytes([S::KIND, self.guard, a, b, c, d, e, f])
    }

    /// Whether this state can be of a log.
    pub(crate) fn fits(&self, log: u64) -> bool {
        log == self.identity(log) && (self.log == 0 || self.log == log)
    }

    /// Whether it has to ignore a log: its own one has replaced that.
    pub(crate) fn has_replaced(&self, log: u64) -> bool {
        identity::is_newer(self.log, log)
    }

    /// Applies the committed entry that follows.
    pub(crate) fn apply(&mut self, record: &Record) -> Effect {
        assert_eq!(record.index, self.applied.index.next(), "entries are applied in order, each once");
        self.applied = record.end();
        self.digest = mix(self.digest, record);
        match record.kind {
            Kind::Blank => {
                // The entry holds the term of its first leader, also when a later one writes it again.
                self.floor = self.floor.max(Term(record.number));
                Effect::None
            }
            Kind::Read => Effect::None,
            Kind::Config => {
                if let Some((config, _)) = Config::decode(&record.payload) {
                    // Its leader may not have applied yet how many there should be.
                    self.config = Config { target: self.config.target, ..config };
                }
                Effect::None
            }
            Kind::Open => {
                if self.sessions.open(record.client, record.index.0) {
                    // It has drawn its own number.
                    self.service.seed(record.client);
                    self.sessions.record(record.client, record.number, record.index.0, &[]);
                }
                Effect::Reply
            }
            Kind::Command | Kind::Resize => match self.sessions.seen(record.client, record.number) {
                Seen::NoSession => Effect::NoSession,
                Seen::Done(_) if !self.mutant.has(Mutant::SessionsForgotten) => Effect::Reply,
                Seen::Old => Effect::None,
                Seen::New | Seen::Done(_) => {
                    let mut reply = Vec::new();
                    if record.kind == Kind::Resize {
                        self.config.resize(&record.payload);
                    } else {
                        self.service.apply(&record.payload, &mut reply);
                    }
                    reply.truncate(PAYLOAD_BYTES_MAX);
                    self.sessions.record(record.client, record.number, record.index.0, &reply);
                    Effect::Reply
                }
            },
        }
    }

    /// All of a snapshot that precedes the service's state.
    fn head(&self) -> Vec<u8> {
        let mut rest = Vec::new();
        self.config.encode(&mut rest);
        self.sessions.encode(&mut rest);
        let mut head = Vec::with_capacity(8 * SNAPSHOT_WORDS + rest.len());
        let (applied, len) = (self.applied, rest.len() as u64);
        for word in [self.log, applied.index.0, applied.at.0, self.floor.0, self.digest, len] {
            head.extend_from_slice(&word.to_le_bytes());
        }
        head.extend_from_slice(&rest);
        head
    }

    /// The state of a head, with an instance of the service to load the rest into, and how many bytes the
    /// head has. `None` while it is not whole.
    fn of_head(&self, bytes: &[u8]) -> Result<Option<(Self, usize)>, NotLoaded> {
        let mut words = [0; SNAPSHOT_WORDS];
        for (n, to) in words.iter_mut().enumerate() {
            let Some(word) = word(bytes, n) else { return Ok(None) };
            *to = word;
        }
        let [log, index, at, floor, digest, len] = words;
        let applied = Point { index: Index(index), at: Offset(at) };
        if !self.fits(log) || applied.index <= self.applied.index || len > HEAD_BYTES_MAX {
            return Err(NotLoaded::OfNoUse);
        }
        let end = 8 * SNAPSHOT_WORDS + len as usize;
        let Some(rest) = bytes.get(8 * SNAPSHOT_WORDS..end) else { return Ok(None) };
        let decoded = Config::decode(rest).and_then(|(config, rest)| {
            let (sessions, rest) = Sessions::decode(rest)?;
            rest.is_empty().then_some((config, sessions))
        });
        let (config, sessions) = decoded.ok_or(NotLoaded::OfNoUse)?;
        let Self { guard, mutant, .. } = *self;
        let (floor, service) = (Term(floor), self.service.begin_load());
        Ok(Some((Self { log, applied, floor, digest, config, sessions, service, guard, mutant }, end)))
    }

    /// Replaces the state by one that was loaded.
    fn replace(&mut self, next: Self) {
        let before = core::mem::replace(self, next);
        self.service.discard(before.service);
    }
}

/// A snapshot of a state, made in parts while that state goes on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Saved {
    /// Its length; about, until it is whole.
    whole: u64,
    /// What was made, from this byte on: what precedes it is not needed any more.
    from: u64,
    bytes: Vec<u8>,
    is_whole: bool,
}

impl Saved {
    pub(crate) fn begin<S: Service>(state: &mut State<S>) -> Self {
        let mut bytes = state.head();
        let follows = state.service.begin_save();
        let whole = (bytes.len() as u64).saturating_add(follows.unwrap_or(0));
        if follows.is_none() {
            state.service.save(&mut bytes);
        }
        let mut saved = Self { whole, from: 0, bytes, is_whole: false };
        if follows.is_none() {
            saved.end();
        }
        saved
    }

    /// Its length; about, until all of it was made.
    pub(crate) const fn whole(&self) -> u64 {
        self.whole
    }

    fn end(&mut self) {
        (self.is_whole, self.whole) = (true, self.from + self.bytes.len() as u64);
    }

    /// Its bytes from one on, `len` of them unless it ends before. What precedes them is not asked for
    /// again. `None` if it was, or if the state was replaced meanwhile.
    pub(crate) fn part<S: Service>(
        &mut self,
        from: u64,
        len: usize,
        of: &mut State<S>,
    ) -> Option<SavedPart<'_>> {
        let mut at = usize::try_from(from.checked_sub(self.from)?).ok()?;
        // One more: the part before the end is not the last one.
        while !self.is_whole && self.bytes.len() <= at + len {
            let needless = at.min(self.bytes.len());
            self.bytes.drain(..needless);
            (self.from, at) = (self.from + needless as u64, at - needless);
            if of.service.save_part(&mut self.bytes)? {
                self.end();
            }
        }
        let bytes = self.bytes.get(at..)?;
        let bytes = &bytes[..bytes.len().min(len)];
        let is_last = self.is_whole && at + bytes.len() == self.bytes.len();
        Some(SavedPart { bytes, is_last, whole: self.whole })
    }
}

/// Some bytes of a snapshot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SavedPart<'a> {
    pub(crate) bytes: &'a [u8],
    /// It ends with them.
    pub(crate) is_last: bool,
    /// Its length; about, until the last part.
    pub(crate) whole: u64,
}

/// A state that is loaded in parts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Loading<S> {
    /// What was not loaded yet.
    bytes: Vec<u8>,
    /// Once its head is there.
    next: Option<State<S>>,
}

impl<S: Service> Loading<S> {
    pub(crate) const fn new() -> Self {
        Self { bytes: Vec::new(), next: None }
    }

    /// Takes the next bytes of a snapshot that is to replace a state, and with the last ones replaces it.
    /// Changes nothing in case of an error. Returns whether it was replaced.
    pub(crate) fn take(&mut self, bytes: &[u8], is_last: bool, to: &mut State<S>) -> Result<bool, NotLoaded> {
        self.bytes.extend_from_slice(bytes);
        if self.next.is_none()
            && let Some((next, end)) = to.of_head(&self.bytes)?
        {
            self.bytes.drain(..end);
            self.next = Some(next);
        }
        if let Some(next) = &mut self.next {
            next.service.load_part(&mut self.bytes).map_err(|LoadError| NotLoaded::Refused)?;
        }
        if !is_last {
            return Ok(false);
        }
        let mut next = self.next.take().ok_or(NotLoaded::OfNoUse)?;
        // Before the end: a service that has one state for all of its copies replaces it with that.
        let is_newer = next.applied.index > to.applied.index;
        // All of the bytes were saved by a service of this kind: their checksums say so.
        let is_loaded = is_newer && next.service.end_load(&self.bytes).is_ok();
        if !is_loaded {
            to.service.discard(next.service);
            return Err(if is_newer { NotLoaded::Refused } else { NotLoaded::OfNoUse });
        }
        to.replace(next);
        Ok(true)
    }

    /// Gives up what was loaded.
    pub(crate) fn discard(self, to: &mut State<S>) {
        if let Some(next) = self.next {
            to.service.discard(next.service);
        }
    }
}

/// Why a snapshot was not loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotLoaded {
    /// It is not a whole one of this log, or not newer than what is there.
    OfNoUse,
    /// The service refuses its state.
    Refused,
}

/// Adds an entry to a digest of all before it.
pub(crate) fn mix(before: u64, record: &Record) -> u64 {
    let mut hasher = crc32fast::Hasher::new_with_initial(before as u32);
    let words = [record.index.0, record.kind as u64, record.client, record.number];
    hasher.update(words.map(u64::to_le_bytes).as_flattened());
    hasher.update(&record.payload);
    before.rotate_left(23).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::KeyValue;
    use core::cell::Cell;
    use core::hash::{Hash, Hasher};
    use std::rc::Rc;

    /// Refuses a state that begins with 0.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
    struct Choosy(Vec<u8>);

    impl Service for Choosy {
        const KIND: u8 = 9;

        fn apply(&mut self, _: &[u8], _: &mut Vec<u8>) {}
        fn read(&self, _: &[u8], _: &mut Vec<u8>) {}

        fn save(&self, to: &mut Vec<u8>) {
            to.extend_from_slice(&self.0);
        }

        fn load(&mut self, from: &[u8]) -> Result<(), LoadError> {
            self.0 = from.to_vec();
            if from.first() == Some(&0) { Err(LoadError) } else { Ok(()) }
        }
    }

    /// All copies have one state, as those of a service in C.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    struct Foreign(Rc<Cell<u8>>);

    impl Hash for Foreign {
        fn hash<H: Hasher>(&self, _: &mut H) {}
    }

    impl Service for Foreign {
        const KIND: u8 = 10;

        fn apply(&mut self, _: &[u8], _: &mut Vec<u8>) {}
        fn read(&self, _: &[u8], _: &mut Vec<u8>) {}

        fn save(&self, to: &mut Vec<u8>) {
            to.push(self.0.get());
        }

        fn load(&mut self, from: &[u8]) -> Result<(), LoadError> {
            self.0.set(*from.first().ok_or(LoadError)?);
            Ok(())
        }
    }

    #[test]
    fn a_state_that_went_on_while_an_older_one_was_loaded_stays_as_it_is() {
        let mut from = State::new(Foreign::default(), 0);
        (from.log, from.applied.index) = (from.identity(0x77_0000), Index(5));
        from.service.0.set(5);
        let mut to = State::new(Foreign::default(), 0);
        let (mut saved, mut loading) = (Saved::begin(&mut from), Loading::new());
        let part = saved.part(0, 1 << 20, &mut from).expect("all of it");
        assert_eq!(loading.take(part.bytes, false, &mut to), Ok(false));
        to.applied.index = Index(7);
        to.service.0.set(7);
        assert_eq!(loading.take(&[], true, &mut to), Err(NotLoaded::OfNoUse));
        assert_eq!(to.service.0.get(), 7);
    }

    /// Copies a state in parts of some bytes.
    fn copy<S: Service>(from: &mut State<S>, to: &mut State<S>, len: usize) -> Result<bool, NotLoaded> {
        let (mut saved, mut loading, mut at) = (Saved::begin(from), Loading::new(), 0);
        loop {
            let part = saved.part(at, len, from).expect("in order");
            at += part.bytes.len() as u64;
            assert!(part.bytes.len() == len || part.is_last && part.whole == at);
            let is_loaded = loading.take(part.bytes, part.is_last, to);
            if is_loaded != Ok(false) {
                return is_loaded;
            }
            assert!(!part.is_last);
        }
    }

    #[test]
    fn a_state_that_the_service_refuses_is_not_one_of_no_use() {
        let mut other = State::new(Choosy(vec![0, 1]), 0);
        (other.log, other.applied.index) = (other.identity(0x77_0000), Index(5));
        let mut own = State::new(Choosy::default(), 0);
        let before = own.clone();
        assert_eq!((copy(&mut other, &mut own, 20), &own), (Err(NotLoaded::Refused), &before));
        other.service.0[0] = 1;
        let mut foreign = other.clone();
        foreign.log ^= 1;
        assert_eq!((copy(&mut foreign, &mut own, 20), &own), (Err(NotLoaded::OfNoUse), &before));
        assert_eq!((copy(&mut other, &mut own, 20), &own), (Ok(true), &other));
        assert_eq!(copy(&mut other, &mut own, 20), Err(NotLoaded::OfNoUse), "not newer");
    }

    #[test]
    fn a_state_is_copied_as_it_was_when_the_copy_began() {
        let set = |state: &mut State<KeyValue>, n: u64| {
            let key = (n * 7919 % 5000).to_string();
            let payload = KeyValue::put(key.as_bytes(), &[n as u8; 100]).expect("short");
            state.service.apply(&payload, &mut Vec::new());
            state.applied.index = state.applied.index.next();
        };
        let mut from = State::new(KeyValue::default(), 0);
        from.log = from.identity(0x77_0000);
        (0..5000).for_each(|n| set(&mut from, n));
        let (before, mut to) = (from.clone(), State::new(KeyValue::default(), 0));
        let (mut saved, mut loading, mut at) = (Saved::begin(&mut from), Loading::new(), 0);
        for n in 0.. {
            set(&mut from, 10_000 + n);
            let part = saved.part(at, 4096, &mut from).expect("in order");
            at += part.bytes.len() as u64;
            if loading.take(part.bytes, part.is_last, &mut to) == Ok(true) {
                assert_eq!(part.whole, at);
                break;
            }
            assert!(n < 1000 && !part.is_last);
        }
        assert_eq!(to, before);
        assert_ne!(to, from);
    }

    #[test]
    fn a_state_that_was_replaced_ends_its_snapshot() {
        let mut from = State::new(KeyValue::default(), 0);
        from.log = from.identity(0x77_0000);
        let mut saved = Saved::begin(&mut from);
        let next = from.clone();
        from.replace(State { service: from.service.begin_load(), ..next });
        assert!(saved.part(0, 1 << 20, &mut from).is_none());
    }

    #[test]
    fn bytes_that_are_no_snapshot_are_of_no_use() {
        let mut to = State::new(KeyValue::default(), 0);
        let before = to.clone();
        for bytes in [vec![], vec![0; 40], vec![0xff; 4000]] {
            assert_eq!(Loading::new().take(&bytes, true, &mut to), Err(NotLoaded::OfNoUse));
            assert_eq!(to, before);
        }
    }
}

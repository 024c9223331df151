//! The replicated state: what the log up to an index yields, the same on every replica.

use crate::PAYLOAD_BYTES_MAX;
use crate::config::Config;
use crate::entry::Kind;
use crate::log::{Index, Offset, Point, Record, Term};
use crate::mutants::{ActiveMutant, Mutant};
use crate::sealed::word;
use crate::service::{LoadError, Service};
use crate::session::{Seen, Sessions};

/// Words of a snapshot before its configuration.
const SNAPSHOT_WORDS: usize = 6;

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

    /// The identity of a new log: random but for its two lowest bytes, which say of which service it
    /// is, and which guard its replicas have.
    pub(crate) fn identity(&self, random: u64) -> u64 {
        let [_, _, rest @ ..] = random.to_le_bytes();
        let [a, b, c, d, e, f] = rest;
        u64::from_le_bytes([S::KIND, self.guard, a, b, c, d, e, f])
    }

    /// Whether this state can be of a log.
    pub(crate) fn fits(&self, log: u64) -> bool {
        log == self.identity(log) && (self.log == 0 || self.log == log)
    }

    /// Applies the committed entry that follows.
    pub(crate) fn apply(&mut self, record: &Record) -> Effect {
        debug_assert_eq!(record.index, self.applied.index.next(), "in order");
        self.applied = record.end();
        self.digest = mix(self.digest, record);
        match record.kind {
            Kind::Blank => {
                // The same whoever writes it again: the term of its first leader.
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

    /// The whole state as a snapshot, with a checksum.
    pub(crate) fn save(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let words = [self.log, self.applied.index.0, self.applied.at.0, self.floor.0, self.digest, 0];
        for word in words {
            out.extend_from_slice(&word.to_le_bytes());
        }
        self.config.encode(&mut out);
        self.sessions.encode(&mut out);
        self.service.save(&mut out);
        let sum = crc32fast::hash(&out);
        out[8 * (SNAPSHOT_WORDS - 1)..8 * SNAPSHOT_WORDS].copy_from_slice(&u64::from(sum).to_le_bytes());
        out
    }

    /// Replaces the state by that of a snapshot, or changes nothing.
    pub(crate) fn load(&mut self, bytes: &[u8]) -> Result<(), NotLoaded> {
        let (next, state) = self.decode(bytes).ok_or(NotLoaded::OfNoUse)?;
        let mut service = self.service.clone();
        // All of the bytes were saved by a service of this kind: their checksum says so.
        service.load(state).map_err(|LoadError| NotLoaded::Refused)?;
        *self = Self { service, ..next };
        Ok(())
    }

    /// The snapshot with the present service, and the bytes of its own one.
    fn decode<'a>(&self, bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let mut words = [0; SNAPSHOT_WORDS];
        for (n, to) in words.iter_mut().enumerate() {
            *to = word(bytes, n)?;
        }
        let [log, index, at, floor, digest, sum] = words;
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&bytes[..8 * (SNAPSHOT_WORDS - 1)]);
        hasher.update(&[0; 8]);
        hasher.update(&bytes[8 * SNAPSHOT_WORDS..]);
        if u64::from(hasher.finalize()) != sum || !self.fits(log) {
            return None;
        }
        let applied = Point { index: Index(index), at: Offset(at) };
        let (config, rest) = Config::decode(bytes.get(8 * SNAPSHOT_WORDS..)?)?;
        let (sessions, rest) = Sessions::decode(rest)?;
        if applied.index <= self.applied.index {
            return None;
        }
        let Self { guard, mutant, .. } = *self;
        let (floor, service) = (Term(floor), self.service.clone());
        Some((Self { log, applied, floor, digest, config, sessions, service, guard, mutant }, rest))
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

    #[test]
    fn a_state_that_the_service_refuses_is_not_one_of_no_use() {
        let mut other = State::new(Choosy(vec![0, 1]), 0);
        (other.log, other.applied.index) = (other.identity(0x77_0000), Index(5));
        let mut own = State::new(Choosy::default(), 0);
        let before = own.clone();
        assert_eq!((own.load(&other.save()), &own), (Err(NotLoaded::Refused), &before));
        let mut torn = other.save();
        torn[9] ^= 1;
        assert_eq!((own.load(&torn), &own), (Err(NotLoaded::OfNoUse), &before));
        other.service.0[0] = 1;
        assert_eq!((own.load(&other.save()), &own), (Ok(()), &other));
        assert_eq!(own.load(&other.save()), Err(NotLoaded::OfNoUse), "not newer");
    }
}

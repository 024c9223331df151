//! The checker of histories: every key has one writer, whose values rise. So an answer can be judged at
//! once: it must not be older than what was known of the key before the read was begun, nor newer than
//! what its writer has begun. For registers with one writer that is linearizability, and it takes no
//! memory however long it runs.

use crate::latencies;
use hdrhistogram::Histogram;
use obol_fabric::host::clock;
use obol_fabric::{Incarnation, Instant, Nanos};
use obol_rng::Rng;
use obol_term::output::Failure;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Keys that each client writes.
const KEYS_EACH: usize = 16;
/// Wrong answers that are kept in words; the others are counted.
pub(crate) const WRONG_EXAMPLES: usize = 10;
/// One operation in this many is a write.
const WRITE_EVERY: u64 = 5;

/// What all clients know of a key.
#[derive(Debug, Default)]
pub struct Known {
    /// The newest value that its writer has begun to write.
    begun: AtomicU64,
    /// The newest value that was answered, to its writer or to a reader.
    shown: AtomicU64,
}

impl Known {
    /// The newest value that was answered, to its writer or to a reader.
    pub(crate) fn shown(&self) -> u64 {
        self.shown.load(Ordering::SeqCst)
    }
}

/// When clients had answers: the gaps between them are what a fault costs them.
#[derive(Debug)]
pub struct Answers {
    all: AtomicU64,
    /// Gaps that ended after this moment count; 0 for none.
    since: AtomicU64,
    longest: AtomicU64,
    /// The last answer of each client; 0 before the first.
    last: Vec<AtomicU64>,
}

impl Answers {
    fn of(clients: u32) -> Self {
        let last = (0..clients).map(|_| AtomicU64::new(0)).collect();
        Self { all: AtomicU64::new(0), since: AtomicU64::new(0), longest: AtomicU64::new(0), last }
    }

    fn note(&self, client: usize, now: Instant) {
        self.all.fetch_add(1, Ordering::Relaxed);
        let before = self.last[client].swap(now.0, Ordering::SeqCst);
        let since = self.since.load(Ordering::SeqCst);
        if since != 0 && before != 0 && now.0 > since {
            self.longest.fetch_max(now.0.saturating_sub(before), Ordering::SeqCst);
        }
    }

    /// Watches the gaps that end after this moment.
    pub fn watch(&self, from: Instant) {
        self.since.store(from.0, Ordering::SeqCst);
        self.longest.store(0, Ordering::SeqCst);
    }

    /// The longest that a client was without an answer since then.
    pub fn longest(&self) -> Nanos {
        Nanos(self.longest.load(Ordering::SeqCst))
    }

    /// Whether each client had an answer.
    pub fn all(&self) -> bool {
        self.all_after(Instant(0))
    }

    /// Whether each client had an answer after this moment.
    pub fn all_after(&self, at: Instant) -> bool {
        self.last.iter().all(|last| last.load(Ordering::SeqCst) > at.0)
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.all.load(Ordering::Relaxed)
    }
}

/// An operation that waits for its answer, on a key by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    /// To write a value.
    Put { key: usize, value: u64 },
    /// To read, with what was shown of the key before.
    Get { key: usize, shown: u64 },
}

/// What a client has seen.
#[derive(Debug)]
pub struct Tally {
    pub(crate) gets: u64,
    pub(crate) puts: u64,
    /// Wrong answers.
    pub wrong: u64,
    /// Some of them, in words.
    pub wrong_examples: Vec<String>,
    /// From the last answer of one leader to the first one of the next, in nanoseconds.
    pub(crate) failovers: Vec<u64>,
    /// Of reads and of writes, in nanoseconds.
    pub(crate) latencies: [Histogram<u64>; 2],
}

/// What distinguishes the stores that are checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// The longest value.
    pub(crate) value_bytes_max: usize,
    /// How a read and a write are called, with an article.
    pub(crate) names: [&'static str; 2],
    /// How the threads of clients are called.
    pub(crate) thread: &'static str,
}

impl Kind {
    /// A value as bytes: lengths vary, so that torn values are detected.
    pub(crate) fn bytes(self, value: u64) -> Box<[u8]> {
        let len = 8 * (1 + value as usize % (self.value_bytes_max / 8));
        value.to_le_bytes().into_iter().cycle().take(len).collect()
    }

    /// The value of these bytes; `None` if it was never written.
    pub(crate) fn value(self, found: &[u8]) -> Option<u64> {
        let value = found.first_chunk().map(|word| u64::from_le_bytes(*word))?;
        (found == &self.bytes(value)[..]).then_some(value)
    }
}

/// What came back.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// What a read has found: 0 for no value, `None` for one that was never written.
    Found(Option<u64>),
    /// A write was executed, or why not.
    Written(Result<(), String>),
}

/// An answer to an operation.
pub(crate) struct Answer {
    /// The operation's number.
    pub(crate) number: u64,
    /// The part of the store that it belongs to.
    pub(crate) shard: u32,
    pub(crate) leader: Option<Incarnation>,
}

/// Draws the operations of one client, and judges the answers.
pub(crate) struct Checker<'a> {
    kind: Kind,
    keys: &'a [Known],
    own: Range<usize>,
    rng: Rng,
    place: usize,
    answers: &'a Answers,
    asked: BTreeMap<u64, (Pending, Instant)>,
    /// The newest answer of each shard, and whose it was.
    last: BTreeMap<u32, (Instant, Incarnation)>,
    tally: Tally,
}

impl<'a> Checker<'a> {
    fn new(kind: Kind, place: u32, keys: &'a [Known], answers: &'a Answers) -> Result<Self, Failure> {
        let first = place as usize * KEYS_EACH;
        Ok(Self {
            kind,
            keys,
            own: first..first + KEYS_EACH,
            rng: Rng::new(obol_agent::seed()),
            place: place as usize,
            answers,
            asked: BTreeMap::new(),
            last: BTreeMap::new(),
            tally: Tally {
                gets: 0,
                puts: 0,
                wrong: 0,
                wrong_examples: Vec::new(),
                failovers: Vec::new(),
                latencies: [latencies()?, latencies()?],
            },
        })
    }

    /// The next operation.
    pub(crate) fn next(&mut self) -> Pending {
        if self.rng.below(WRITE_EVERY) == 0 {
            // Only this thread writes it, and numbers its values in the order in which it begins
            // them.
            let key = self.own.start + self.rng.below(self.own.len() as u64) as usize;
            let value = self.keys[key].begun.fetch_add(1, Ordering::SeqCst) + 1;
            return Pending::Put { key, value };
        }
        let key = self.rng.below(self.keys.len() as u64) as usize;
        Pending::Get { key, shown: self.keys[key].shown() }
    }

    /// An operation was begun, under this number.
    pub(crate) fn begun(&mut self, number: u64, asked: Pending, now: Instant) {
        self.asked.insert(number, (asked, now));
    }

    /// Judges an answer; `outcome` reads it for the operation to which it belongs.
    pub(crate) fn judge(&mut self, answer: &Answer, outcome: impl FnOnce(Pending) -> Outcome) {
        let Some((asked, begun_at)) = self.asked.remove(&answer.number) else { return };
        let now = clock::now();
        self.answers.note(self.place, now);
        if let Some(leader) = answer.leader {
            let before = self.last.insert(answer.shard, (now, leader));
            if let Some((last, _)) = before.filter(|(_, whose)| *whose != leader) {
                self.tally.failovers.push(now.since(last).0);
            }
        }
        let which = usize::from(matches!(asked, Pending::Put { .. }));
        self.tally.latencies[which].saturating_record(now.since(begun_at).0);
        if let Some(wrong) = self.wrong(asked, outcome(asked)) {
            self.tally.wrong += 1;
            if self.tally.wrong_examples.len() < WRONG_EXAMPLES {
                self.tally.wrong_examples.push(wrong);
            }
        }
    }

    /// Counts an answer; says what is wrong with it, if anything is.
    fn wrong(&mut self, asked: Pending, outcome: Outcome) -> Option<String> {
        let [get, put] = self.kind.names;
        match asked {
            Pending::Put { key, value } => {
                self.tally.puts += 1;
                self.keys[key].shown.fetch_max(value, Ordering::SeqCst);
                match outcome {
                    Outcome::Written(Err(why)) => Some(format!("{put} of key {key} {why}")),
                    _ => None,
                }
            }
            Pending::Get { key, shown } => {
                self.tally.gets += 1;
                let found = if let Outcome::Found(found) = outcome { found } else { None };
                let begun = self.keys[key].begun.load(Ordering::SeqCst);
                match found {
                    None => Some(format!("{get} of key {key} found a value that was never written")),
                    Some(found) if found < shown || found > begun => Some(format!(
                        "{get} of key {key} found {found}, but {shown} was shown before it and {begun} is the newest"
                    )),
                    Some(found) => {
                        self.keys[key].shown.fetch_max(found, Ordering::SeqCst);
                        None
                    }
                }
            }
        }
    }
}

type Worker = JoinHandle<Result<Tally, Failure>>;

/// Clients that write and read until they are stopped, each on a thread of its own.
pub struct Clients {
    workers: Vec<Worker>,
    /// What they know of the keys.
    pub keys: Arc<Vec<Known>>,
    /// When they had answers.
    pub answers: Arc<Answers>,
    stop: Arc<AtomicBool>,
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Clients {
    /// Starts this number of them. `run` lets a checker use a client, by its place, until it is stopped.
    pub(crate) fn start<F>(kind: Kind, count: u32, run: F) -> Result<Self, Failure>
    where
        F: Fn(u32, &mut Checker<'_>, &AtomicBool) -> Result<(), Failure> + Clone + Send + 'static,
    {
        let keys = (0..count as usize * KEYS_EACH).map(|_| Known::default()).collect();
        let (keys, answers) = (Arc::new(keys), Arc::new(Answers::of(count)));
        let mut clients = Self { workers: Vec::new(), keys, answers, stop: Arc::new(AtomicBool::new(false)) };
        for place in 0..count {
            let (keys, answers) = (Arc::clone(&clients.keys), Arc::clone(&clients.answers));
            let (stop, run) = (Arc::clone(&clients.stop), run.clone());
            let work = move || {
                let mut checker = Checker::new(kind, place, &keys, &answers)?;
                run(place, &mut checker, &stop)?;
                Ok(checker.tally)
            };
            let thread = std::thread::Builder::new().name(kind.thread.to_owned());
            clients.workers.push(thread.spawn(work).map_err(Failure::failed)?);
        }
        Ok(clients)
    }

    /// Whether one has ended: [`Clients::end`] says why.
    pub fn has_ended(&self) -> bool {
        self.workers.iter().any(Worker::is_finished)
    }

    /// Stops them.
    pub fn end(mut self) -> Result<Vec<Tally>, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let panicked = || Failure::Failed("a client's thread panicked".to_owned());
        let workers = std::mem::take(&mut self.workers);
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(|_| Err(panicked()))).collect()
    }
}

/// All latencies of these kinds together.
pub(crate) fn merged<'t>(latencies: impl Iterator<Item = &'t Histogram<u64>>) -> Option<Histogram<u64>> {
    let mut all: Option<Histogram<u64>> = None;
    for one in latencies {
        match &mut all {
            // All have the same bounds, so none is refused.
            Some(all) => drop(all.add(one)),
            None => all = Some(one.clone()),
        }
    }
    all
}

/// Nanoseconds as microseconds.
pub(crate) fn us(nanos: u64) -> f64 {
    Nanos(nanos).as_micros_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = Kind { value_bytes_max: 64, names: ["a read", "a write"], thread: "test" };

    /// What is wrong with an answer to a read, of a key whose writer has begun 5 and had an answer to 3.
    fn read(shown: u64, found: Option<u64>) -> Option<String> {
        let keys: Vec<Known> = (0..KEYS_EACH).map(|_| Known::default()).collect();
        keys[0].begun.store(5, Ordering::SeqCst);
        keys[0].shown.store(3, Ordering::SeqCst);
        let answers = Answers::of(1);
        let mut checker = Checker::new(KIND, 0, &keys, &answers).expect("bounds");
        checker.begun(7, Pending::Get { key: 0, shown }, clock::now());
        let answer = Answer { number: 7, shard: 0, leader: None };
        checker.judge(&answer, |_| Outcome::Found(found));
        assert_eq!((checker.tally.gets, answers.count()), (1, 1));
        checker.tally.wrong_examples.pop()
    }

    #[test]
    fn a_read_must_lie_between_what_was_shown_before_and_what_was_begun() {
        for right in 3..=5 {
            assert_eq!(read(3, Some(right)), None);
        }
        for (found, why) in
            [(Some(2), "found 2, but 3 was shown"), (Some(6), "5 is the newest"), (None, "never written")]
        {
            let wrong = read(3, found).expect("wrong");
            assert!(wrong.starts_with("a read of key 0 ") && wrong.contains(why), "{wrong}");
        }
    }

    #[test]
    fn what_one_client_was_shown_binds_the_reads_of_others_that_begin_later() {
        let keys: Vec<Known> = (0..2 * KEYS_EACH).map(|_| Known::default()).collect();
        keys[0].begun.store(2, Ordering::SeqCst);
        let answers = Answers::of(2);
        let mut writer = Checker::new(KIND, 0, &keys, &answers).expect("bounds");
        writer.begun(1, Pending::Put { key: 0, value: 2 }, clock::now());
        writer.judge(&Answer { number: 1, shard: 0, leader: None }, |_| Outcome::Written(Ok(())));
        let mut reader = Checker::new(KIND, 1, &keys, &answers).expect("bounds");
        reader.begun(1, Pending::Get { key: 0, shown: keys[0].shown() }, clock::now());
        assert!(!answers.all(), "the reader had none");
        reader.judge(&Answer { number: 1, shard: 0, leader: None }, |_| Outcome::Found(Some(1)));
        assert_eq!((writer.tally.wrong, reader.tally.wrong), (0, 1));
        assert!(answers.all());
    }

    #[test]
    fn torn_and_foreign_values_were_never_written() {
        for value in [0, 1, 7, 8, u64::MAX] {
            let bytes = KIND.bytes(value);
            assert_eq!(KIND.value(&bytes), Some(value));
            assert_eq!(KIND.value(&bytes[..bytes.len() - 1]), None);
        }
        let mut torn = KIND.bytes(1);
        torn[8] ^= 1;
        assert_eq!((KIND.value(&torn), KIND.value(&[])), (None, None));
    }

    #[test]
    fn another_leader_in_the_same_shard_is_a_failover() {
        let keys: Vec<Known> = (0..KEYS_EACH).map(|_| Known::default()).collect();
        let answers = Answers::of(1);
        let mut checker = Checker::new(KIND, 0, &keys, &answers).expect("bounds");
        for (number, (shard, leader)) in (0..).zip([(0, 1), (1, 2), (0, 1), (0, 2), (1, 2)]) {
            checker.begun(number, Pending::Get { key: 0, shown: 0 }, clock::now());
            let answer = Answer { number, shard, leader: Some(Incarnation(leader)) };
            checker.judge(&answer, |_| Outcome::Found(Some(0)));
        }
        assert_eq!((checker.tally.failovers.len(), checker.tally.wrong), (1, 0));
    }
}

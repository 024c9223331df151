//! Clients whose answers are checked: every key has one writer, whose values rise. So an answer can be
//! judged at once: it must not be older than what was known of the key before the read was begun,
//! nor newer than what its writer has begun. For registers with one writer that is linearizability,
//! and it takes no memory however long it runs.

use super::replicas::PATIENCE;
use hdrhistogram::Histogram;
use obol_fabric::host::clock;
use obol_fabric::{Drive, Incarnation, Instant, Name, Nanos};
use obol_node::Site;
use obol_replica::{ClientMember, Work};
use obol_rng::Rng;
use obol_smr::{Client, Done, KeyValue, Operation, VALUE_BYTES_MAX};
use obol_term::output::Failure;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Keys that each client writes.
const KEYS_EACH: u64 = 16;
/// Wrong answers that are kept in words; the others are counted.
const WRONG_EXAMPLES: usize = 10;

/// What all clients know of a key.
#[derive(Default)]
pub(crate) struct Known {
    /// The newest value that its writer has begun to write.
    begun: AtomicU64,
    /// The newest value that was answered, to its writer or to a reader.
    shown: AtomicU64,
}

/// When clients had answers: the gaps between them are what a fault costs them.
pub(crate) struct Answers {
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
    pub(crate) fn watch(&self, from: Instant) {
        self.since.store(from.0, Ordering::SeqCst);
        self.longest.store(0, Ordering::SeqCst);
    }

    /// The longest that a client was without an answer since then.
    pub(crate) fn longest(&self) -> Nanos {
        Nanos(self.longest.load(Ordering::SeqCst))
    }

    /// Whether each client had an answer after this moment.
    pub(crate) fn all_after(&self, at: Instant) -> bool {
        self.last.iter().all(|last| last.load(Ordering::SeqCst) > at.0)
    }

    /// How many there were.
    pub(crate) fn count(&self) -> u64 {
        self.all.load(Ordering::Relaxed)
    }
}

enum Asked {
    Put {
        key: u64,
        value: u64,
    },
    /// With what was shown of the key before.
    Get {
        key: u64,
        shown: u64,
    },
}

/// What a client has seen.
pub(crate) struct Tally {
    pub(super) gets: u64,
    pub(super) puts: u64,
    pub(crate) wrong: u64,
    pub(crate) wrong_examples: Vec<String>,
    /// From the last answer of one leader to the first one of the next, in nanoseconds.
    pub(super) failovers: Vec<u64>,
    pub(super) times: Histogram<u64>,
}

struct Checker<'a> {
    keys: &'a [Known],
    first_key: u64,
    rng: Rng,
    place: usize,
    answers: &'a Answers,
    asked: BTreeMap<u64, (Asked, Instant)>,
    last: Option<(Instant, Incarnation)>,
    tally: Tally,
}

/// A value as bytes: lengths vary, so that torn values are detected.
fn bytes(value: u64) -> Box<[u8]> {
    let len = 8 * (1 + value as usize % (VALUE_BYTES_MAX / 8));
    value.to_le_bytes().into_iter().cycle().take(len).collect()
}

/// The value of these bytes; `None` if it was never written.
fn value(found: &[u8]) -> Option<u64> {
    let value = found.first_chunk().map(|word| u64::from_le_bytes(*word))?;
    (found == &bytes(value)[..]).then_some(value)
}

impl Checker<'_> {
    fn judge(&mut self, done: &Done, leader: Option<Incarnation>) {
        let Some((asked, begun_at)) = self.asked.remove(&done.number) else { return };
        let now = clock::now();
        self.answers.note(self.place, now);
        if let Some(leader) = leader {
            let before = self.last.replace((now, leader));
            if let Some((last, _)) = before.filter(|(_, whose)| *whose != leader) {
                self.tally.failovers.push(now.since(last).0);
            }
        }
        self.tally.times.saturating_record(now.since(begun_at).0);
        let outcome = KeyValue::outcome(&done.reply);
        let wrong = match asked {
            Asked::Put { key, value } => {
                self.tally.puts += 1;
                self.keys[key as usize].shown.fetch_max(value, Ordering::SeqCst);
                outcome.is_err().then(|| format!("a write of key {key} was invalid"))
            }
            Asked::Get { key, shown } => {
                self.tally.gets += 1;
                let found = outcome.ok().and_then(|found| found.map_or(Some(0), value));
                let begun = self.keys[key as usize].begun.load(Ordering::SeqCst);
                match found {
                    None => Some(format!("a read of key {key} found a value that was never written")),
                    Some(found) if found < shown || found > begun => Some(format!(
                        "a read of key {key} found {found}, but {shown} was shown before it and {begun} is the newest"
                    )),
                    Some(found) => {
                        self.keys[key as usize].shown.fetch_max(found, Ordering::SeqCst);
                        None
                    }
                }
            }
        };
        if let Some(wrong) = wrong {
            self.tally.wrong += 1;
            if self.tally.wrong_examples.len() < WRONG_EXAMPLES {
                self.tally.wrong_examples.push(wrong);
            }
        }
    }

    fn next(&mut self) -> Option<(Operation, Asked)> {
        if self.rng.below(5) == 0 {
            // Only this thread writes it, and numbers its values in the order in which it begins
            // them.
            let key = self.first_key + self.rng.below(KEYS_EACH);
            let value = self.keys[key as usize].begun.fetch_add(1, Ordering::SeqCst) + 1;
            let put = KeyValue::put(&key.to_le_bytes(), &bytes(value)).ok()?;
            return Some((Operation::Propose(put), Asked::Put { key, value }));
        }
        let key = self.rng.below(self.keys.len() as u64);
        let shown = self.keys[key as usize].shown.load(Ordering::SeqCst);
        Some((Operation::Query(KeyValue::get(&key.to_le_bytes()).ok()?), Asked::Get { key, shown }))
    }
}

impl Work for Checker<'_> {
    fn turn<D: Drive>(&mut self, client: &mut Client, endpoint: &mut D) -> bool {
        while let Some(done) = client.take() {
            self.judge(&done, client.leader());
        }
        while client.is_open() && !client.is_busy() {
            let Some((operation, asked)) = self.next() else { break };
            let now = clock::now();
            match client.begin(now, operation, endpoint) {
                Ok(number) => drop(self.asked.insert(number, (asked, now))),
                Err(_) => break,
            }
        }
        false
    }
}

/// Reads every key once more, when all writers have ended.
struct Sweep<'a> {
    keys: &'a [Known],
    next: usize,
    asked: bool,
    lost: u64,
    examples: Vec<String>,
    until: std::time::Instant,
}

impl Work for Sweep<'_> {
    fn turn<D: Drive>(&mut self, client: &mut Client, endpoint: &mut D) -> bool {
        while let Some(done) = client.take() {
            let found = KeyValue::outcome(&done.reply).ok().and_then(|found| found.map_or(Some(0), value));
            let shown = self.keys[self.next].shown.load(Ordering::SeqCst);
            if found.is_none_or(|found| found < shown) {
                self.lost += 1;
                if self.examples.len() < WRONG_EXAMPLES {
                    let found = found.map_or("what was never written".to_owned(), |found| found.to_string());
                    self.examples.push(format!("key {} has {found}, but {shown} was answered", self.next));
                }
            }
            (self.asked, self.next) = (false, self.next + 1);
        }
        if self.next == self.keys.len() || std::time::Instant::now() > self.until {
            return true;
        }
        if !self.asked && client.is_open() {
            // The key is short enough.
            let Ok(query) = KeyValue::get(&(self.next as u64).to_le_bytes()) else { return true };
            self.asked = client.begin(clock::now(), Operation::Query(query), endpoint).is_ok();
        }
        false
    }
}

/// How many keys do not have what was answered of them, and some of them in words. All their writers
/// have ended.
pub(crate) fn lost(site: &Site, keys: &[Known]) -> Result<(u64, Vec<String>), Failure> {
    let name = Name::new("smrc-check-last").map_err(Failure::failed)?;
    let mut client = ClientMember::join(site, name, super::POLL_INTERVAL).map_err(super::failure)?;
    let until = std::time::Instant::now() + PATIENCE;
    let mut sweep = Sweep { keys, next: 0, asked: false, lost: 0, examples: Vec::new(), until };
    client.run(&mut sweep, &AtomicBool::new(false)).map_err(Failure::failed)?;
    if sweep.next < keys.len() {
        return Err(Failure::Failed(format!("no answer to a read at the end within {PATIENCE:?}")));
    }
    Ok((sweep.lost, sweep.examples))
}

type Worker = JoinHandle<Result<Tally, Failure>>;

/// Clients that write and read until they are stopped, each on a thread of its own.
pub(crate) struct Clients {
    workers: Vec<Worker>,
    pub(crate) keys: Arc<Vec<Known>>,
    pub(crate) answers: Arc<Answers>,
    stop: Arc<AtomicBool>,
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Clients {
    /// Starts this number of them.
    pub(crate) fn start(site: &Arc<Site>, count: u32) -> Result<Self, Failure> {
        let keys = (0..u64::from(count) * KEYS_EACH).map(|_| Known::default()).collect();
        let (keys, answers) = (Arc::new(keys), Arc::new(Answers::of(count)));
        let mut clients = Self { workers: Vec::new(), keys, answers, stop: Arc::new(AtomicBool::new(false)) };
        for place in 0..count {
            let worker = clients.work(site, place)?;
            clients.workers.push(worker);
        }
        Ok(clients)
    }

    fn work(&self, site: &Arc<Site>, place: u32) -> Result<Worker, Failure> {
        let (site, keys, stop) = (Arc::clone(site), Arc::clone(&self.keys), Arc::clone(&self.stop));
        let answers = Arc::clone(&self.answers);
        let name = Name::new(&format!("smrc-check-{place}")).map_err(Failure::failed)?;
        let run = move || {
            let mut client = ClientMember::join(&site, name, super::POLL_INTERVAL).map_err(super::failure)?;
            let times = Histogram::new_with_bounds(1, 100_000_000_000, 3).map_err(Failure::failed)?;
            let (failovers, wrong_examples) = (Vec::new(), Vec::new());
            let mut checker = Checker {
                keys: &keys,
                first_key: u64::from(place) * KEYS_EACH,
                rng: Rng::new(obol_agent::seed()),
                place: place as usize,
                answers: &answers,
                asked: BTreeMap::new(),
                last: None,
                tally: Tally { gets: 0, puts: 0, wrong: 0, wrong_examples, failovers, times },
            };
            client.run(&mut checker, &stop).map_err(Failure::failed)?;
            Ok(checker.tally)
        };
        let thread = std::thread::Builder::new().name("obol-smr-client".to_owned());
        thread.spawn(run).map_err(Failure::failed)
    }

    /// Whether one has ended: [`Clients::end`] says why.
    pub(crate) fn has_ended(&self) -> bool {
        self.workers.iter().any(Worker::is_finished)
    }

    /// Stops them.
    pub(crate) fn end(mut self) -> Result<Vec<Tally>, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let panicked = || Failure::Failed("a client's thread panicked".to_owned());
        let workers = std::mem::take(&mut self.workers);
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(|_| Err(panicked()))).collect()
    }
}

//! Clients of a store whose answers are checked, and a last look at all keys.

use crate::history::{Answer, Checker, Clients, Kind, Known, Outcome, Pending, WRONG_EXAMPLES};
use crate::process::SERVE_TIMEOUT;
use obol_fabric::host::clock;
use obol_fabric::{Endpoint, Name};
use obol_node::Site;
use obol_replica::{ClientMember, Work};
use obol_server::POLL_INTERVAL;
use obol_server::smr::failure;
use obol_smr::{Client, Done, EncodeError, KeyValue, Operation, VALUE_BYTES_MAX};
use obol_term::output::Failure;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The store, as clients are to find it.
const KIND: Kind =
    Kind { value_bytes_max: VALUE_BYTES_MAX, names: ["a read", "a write"], thread: "obol-smr-client" };

fn operation(asked: Pending) -> Result<Operation, EncodeError> {
    let name = |key: usize| (key as u64).to_le_bytes();
    Ok(match asked {
        Pending::Put { key, value } => Operation::Propose(KeyValue::put(&name(key), &KIND.bytes(value))?),
        Pending::Get { key, .. } => Operation::Query(KeyValue::get(&name(key))?),
    })
}

/// What a reply to a read contains: 0 for no value, `None` for one that was never written.
fn found(done: &Done) -> Option<u64> {
    KeyValue::outcome(&done.reply).ok().and_then(|found| found.map_or(Some(0), |found| KIND.value(found)))
}

fn outcome(asked: Pending, done: &Done) -> Outcome {
    match asked {
        Pending::Put { .. } => {
            Outcome::Written(KeyValue::outcome(&done.reply).map(drop).map_err(|_| "was invalid".to_owned()))
        }
        Pending::Get { .. } => Outcome::Found(found(done)),
    }
}

impl Work for Checker<'_> {
    fn turn(&mut self, client: &mut Client, endpoint: &mut Endpoint) -> bool {
        while let Some(done) = client.take() {
            let answer = Answer { number: done.number, shard: 0, leader: client.leader() };
            self.judge(&answer, |asked| outcome(asked, &done));
        }
        while client.is_open() && !client.is_busy() {
            let (asked, now) = (self.next(), clock::now());
            // Keys and values are short enough.
            let Ok(operation) = operation(asked) else { break };
            match client.begin(now, operation, endpoint) {
                Ok(number) => self.begun(number, asked, now),
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
    fn turn(&mut self, client: &mut Client, endpoint: &mut Endpoint) -> bool {
        while let Some(done) = client.take() {
            let found = found(&done);
            let shown = self.keys[self.next].shown();
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
pub fn lost(site: &Site, keys: &[Known]) -> Result<(u64, Vec<String>), Failure> {
    let name = Name::new("smrc-check-last").map_err(Failure::failed)?;
    let mut client = ClientMember::join(site, name, POLL_INTERVAL).map_err(failure)?;
    let until = std::time::Instant::now() + SERVE_TIMEOUT;
    let mut sweep = Sweep { keys, next: 0, asked: false, lost: 0, examples: Vec::new(), until };
    client.run(&mut sweep, &AtomicBool::new(false)).map_err(Failure::failed)?;
    if sweep.next < keys.len() {
        return Err(Failure::Failed(format!("no answer to a read at the end within {SERVE_TIMEOUT:?}")));
    }
    Ok((sweep.lost, sweep.examples))
}

/// Starts this number of clients.
pub fn start(site: &Arc<Site>, count: u32) -> Result<Clients, Failure> {
    let site = Arc::clone(site);
    Clients::start(KIND, count, move |place, checker, stop| {
        let name = Name::new(&format!("smrc-check-{place}")).map_err(Failure::failed)?;
        let mut client = ClientMember::join(&site, name, POLL_INTERVAL).map_err(failure)?;
        client.run(checker, stop).map_err(Failure::failed)
    })
}

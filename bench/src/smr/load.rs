//! The load of a client: one kind of operation, a number of them at a time.

use hdrhistogram::Histogram;
use obol_fabric::host::clock;
use obol_fabric::{Endpoint, Instant, Name, Nanos};
use obol_node::Site;
use obol_replica::{ClientMember, Work};
use obol_server::smr::failure;
use obol_smr::{Batch, Client, EncodeError, KeyValue, Operation, Order, PAYLOAD_BYTES_MAX, Side, WINDOW};
use obol_term::output::Failure;
use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The value of every write.
const VALUE: &[u8; 32] = b"0123456789abcdef0123456789abcdef";
const KEY: &[u8] = b"key";

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// One write at a time.
    Put,
    /// One read at a time.
    Get,
    /// As many writes at a time as a client may have outstanding.
    Puts,
    /// As many reads.
    Gets,
    /// As many of the longest commands.
    Bytes,
    /// One write at a time, with pauses that keep the ring less than half full.
    Bursts,
    /// One order at a time: one that sells, then one that buys what it sells.
    Order,
}

/// What is measured of keys and values.
pub(super) const KEYS: [Kind; 4] = [Kind::Put, Kind::Get, Kind::Puts, Kind::Gets];
/// What is measured of replicas only.
pub(super) const RING: [Kind; 1] = [Kind::Bursts];

/// Writes of a burst: of some hundred bytes each, so that they take less than half of a ring.
const BURST: u64 = 40;
/// Pause between two bursts, in which all replicas apply what they have.
const PAUSE: Duration = Duration::from_millis(3);

/// The price of every order.
const PRICE: u64 = 100;

impl Kind {
    /// The operation of this number.
    fn operation(self, number: u64, longest: &[u8]) -> Result<Operation, EncodeError> {
        Ok(match self {
            Self::Put | Self::Puts | Self::Bursts => Operation::Propose(KeyValue::put(KEY, VALUE)?),
            Self::Bytes => Operation::Propose(longest.into()),
            Self::Get | Self::Gets => Operation::Query(KeyValue::get(KEY)?),
            Self::Order => {
                let side = if number.is_multiple_of(2) { Side::Sell } else { Side::Buy };
                Operation::Propose(Order::Limit { side, price: PRICE, quantity: 1 }.encode())
            }
        })
    }

    const fn window(self) -> usize {
        match self {
            Self::Put | Self::Get | Self::Bursts | Self::Order => 1,
            Self::Puts | Self::Gets | Self::Bytes => WINDOW as usize - 1,
        }
    }
}

/// A command of [`PAYLOAD_BYTES_MAX`] bytes.
fn longest() -> Box<[u8]> {
    let mut batch = Batch::default();
    // Each argument has a length of two bytes.
    let value = vec![b'x'; batch.room() - (1 + 3 * 2 + b"SET".len() + KEY.len())];
    let fits = batch.push(&[&b"SET"[..], KEY, &value]);
    debug_assert!(fits && batch.room() == 0, "of {PAYLOAD_BYTES_MAX} bytes");
    batch.bytes()
}

/// One measurement.
pub(super) struct Measured {
    pub(super) kind: Kind,
    pub(super) per_s: f64,
    /// How long each took, in ns.
    pub(super) times: Histogram<u64>,
}

impl Measured {
    pub(super) fn p50_us(&self) -> f64 {
        Nanos(self.times.value_at_quantile(0.5)).as_micros_f64()
    }
}

/// Operations, a number of them at a time, until a time.
pub(super) struct Load {
    kind: Kind,
    pub(super) until: std::time::Instant,
    number: u64,
    begun: VecDeque<Instant>,
    pub(super) times: Histogram<u64>,
    /// The command of [`Kind::Bytes`], made once.
    longest: Box<[u8]>,
}

impl Load {
    pub(super) fn of(kind: Kind, until: std::time::Instant) -> Result<Self, Failure> {
        let times = Histogram::new_with_bounds(1, 100_000_000_000, 3).map_err(Failure::failed)?;
        Ok(Self { kind, until, number: 0, begun: VecDeque::new(), times, longest: longest() })
    }
}

impl Work for Load {
    fn turn(&mut self, client: &mut Client, endpoint: &mut Endpoint) -> bool {
        while client.take().is_some() {
            // Answers come in order.
            if let Some(begun) = self.begun.pop_front() {
                self.times.saturating_record(clock::now().since(begun).0);
            }
        }
        if self.kind == Kind::Bursts && self.begun.is_empty() && self.number % BURST == BURST - 1 {
            std::thread::sleep(PAUSE);
        }
        let is_over = std::time::Instant::now() >= self.until;
        while !is_over && client.is_open() && self.begun.len() < self.kind.window() {
            let now = clock::now();
            // A short key and value.
            let Ok(operation) = self.kind.operation(self.number, &self.longest) else { return true };
            self.number += 1;
            if client.begin(now, operation, endpoint).is_err() {
                break;
            }
            self.begun.push_back(now);
        }
        is_over && self.begun.is_empty()
    }
}

/// Measures these kinds, one after the other.
pub(super) fn measure(
    site: &Site,
    poll_interval: Nanos,
    time: Duration,
    kinds: &[Kind],
) -> Result<Vec<Measured>, Failure> {
    let name = Name::new("smrc-bench").map_err(Failure::failed)?;
    let mut client = ClientMember::join(site, name, poll_interval).map_err(failure)?;
    let mut all = Vec::new();
    for &kind in kinds {
        let begun = std::time::Instant::now();
        let mut load = Load::of(kind, begun + time)?;
        client.run(&mut load, &AtomicBool::new(false)).map_err(Failure::failed)?;
        if load.times.is_empty() {
            return Err(Failure::Failed(format!("no answer within {time:?}; measure for longer: --for")));
        }
        let per_s = load.times.len() as f64 / begun.elapsed().as_secs_f64();
        all.push(Measured { kind, per_s, times: load.times });
    }
    Ok(all)
}

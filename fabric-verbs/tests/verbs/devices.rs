//! A device, memory, and two connected queue pairs on it.

use obol_checks::skipped;
use obol_fabric::{Layout, Limits};
use obol_fabric_verbs::arena::{Arena, HugePages};
use obol_fabric_verbs::device::DeviceSelector;
use obol_fabric_verbs::nic::Nic;
use obol_fabric_verbs::pair::{End, Kind, QueuePair, Retry, Size};
use obol_fabric_verbs::queue::{CompletionQueue, Status, WorkCompletion};
use obol_fabric_verbs::registration::{Memory, Registration, Rights};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bounds hangs only: an emulated device on a busy host is slow.
pub(crate) const HANG: Duration = Duration::from_secs(60);

/// Long enough for an emulated device, and finite.
pub(crate) const RETRY: Retry = Retry { count: 6, timeout: 16 };

/// READs and CASes under way in each direction.
pub(crate) const READS: u8 = 4;

pub(crate) const SIZE: Size = Size { sends: 32, receives: 32, inline_bytes: 64 };

pub(crate) const LIMITS: Limits = Limits { seats: 2, slots: 8, proposers: 3, ..Limits::LEAST };

pub(crate) fn layout() -> Layout {
    Layout::new(LIMITS).expect("the limits are in bounds")
}

/// The device of this host; `None`, with a message, if there is none and none is required.
pub(crate) fn nic() -> Option<Nic> {
    match Nic::open(&DeviceSelector::default(), 0) {
        Ok(nic) => Some(nic),
        Err(error) => {
            let required = std::env::var_os("OBOL_VERBS").is_some_and(|value| value == "require");
            assert!(!required, "a device is required: {error}");
            skipped("rdma-here", error);
            None
        }
    }
}

pub(crate) fn arena(bytes: usize) -> Arc<dyn Memory> {
    Arena::new(bytes, HugePages::Plain, None).expect("memory")
}

/// Two queue pairs of one device, connected with each other.
pub(crate) struct Duo {
    /// Posts.
    pub(crate) initiator: QueuePair,
    /// Is posted to.
    pub(crate) responder: QueuePair,
    pub(crate) done: Arc<CompletionQueue>,
}

impl Duo {
    /// `rights` are those on `answers`.
    pub(crate) fn new(nic: &Nic, rights: Rights) -> Self {
        let done = CompletionQueue::new(nic.context(), 64, None).expect("a queue");
        let pair = || QueuePair::new(nic.domain(), Kind::Reliable, &done, &done, SIZE).expect("a queue pair");
        let (initiator, responder) = (pair(), pair());
        let port = nic.choice().port;
        initiator.init(port, Rights::NONE).expect("INIT");
        responder.init(port, rights).expect("INIT");
        let end = |pair: &QueuePair| End {
            path: nic.loopback(),
            number: pair.number(),
            first_packet: pair.number() & 0xff_ffff,
            mtu: 3,
        };
        initiator.connect(end(&initiator).first_packet, &end(&responder), READS, RETRY).expect("RTS");
        responder.connect(end(&responder).first_packet, &end(&initiator), READS, RETRY).expect("RTS");
        Self { initiator, responder, done }
    }

    pub(crate) fn next(&self) -> WorkCompletion {
        next(&self.done)
    }

    /// Checks that the next completion is of this operation, with this status.
    #[track_caller]
    pub(crate) fn expect(&self, id: u64, status: Status) {
        let done = self.next();
        assert_eq!((done.id(), done.status()), (id, status), "{}", done.status().name());
    }
}

/// The next completion of a queue.
pub(crate) fn next(queue: &CompletionQueue) -> WorkCompletion {
    let until = Instant::now() + HANG;
    loop {
        let mut one = [WorkCompletion::default()];
        if queue.poll(&mut one).expect("it can be polled") == 1 {
            return one[0];
        }
        assert!(Instant::now() < until, "no completion came");
        std::thread::yield_now();
    }
}

/// All of some memory, registered.
pub(crate) fn register(nic: &Nic, memory: &Arc<dyn Memory>, rights: Rights) -> Registration {
    let bytes = memory.words().len() * 8;
    Registration::new(nic.domain(), Arc::clone(memory), 0..bytes, rights).expect("registered")
}

//! READs regions of other hosts over RDMA in a thread of its own, because an unreachable host would
//! block the caller.

use obol_fabric::host::clock;
use obol_fabric::remote::RegionCopy;
use obol_fabric::{Address, Instant, LinkError};
use obol_node::endpoint::RegionReader;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Usual pause between two rounds of READs.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Shortest pause after a round in which a host did not answer: each attempt takes up to the READ
/// timeout.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// Regions that were not requested for this long, or for three pauses if that is longer, are not
/// READ any more.
const IDLE_AFTER: Duration = Duration::from_secs(2);
/// Longest wait for the first READ of newly requested regions.
const FIRST_READ_TIMEOUT: Duration = Duration::from_secs(10);

/// The result of a READ of a region.
#[derive(Debug)]
pub(crate) struct RemoteCopy {
    /// The region's address.
    pub(crate) whom: Address,
    /// When the READ began.
    asked_at: Instant,
    /// The region, or why it cannot be READ.
    pub(crate) copy: Result<RegionCopy, LinkError>,
}

impl RemoteCopy {
    /// Whether there is no answer. Its process may run all the same.
    pub(crate) const fn is_silent(&self) -> bool {
        matches!(self.copy, Err(LinkError::PeerDead))
    }
}

#[derive(Default)]
struct State {
    wanted: Vec<Address>,
    wanted_at: Instant,
    /// Copies must be of this moment or later.
    fresh_from: Instant,
    copies: BTreeMap<u32, Arc<RemoteCopy>>,
    stop: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl State {
    fn has_all(&self) -> bool {
        let is_fresh = |found: &RemoteCopy| found.asked_at >= self.fresh_from;
        let has = |whom: &Address| {
            self.copies.get(&whom.region).is_some_and(|found| found.whom == *whom && is_fresh(found))
        };
        self.wanted.iter().all(has)
    }
}

/// Reads regions of other hosts.
pub(crate) struct RemoteReader {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl RemoteReader {
    pub(crate) fn start(reader: RegionReader, interval: Duration) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("obol-look".to_owned())
            .spawn(move || read(reader, interval, &of_thread))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// The last copies of these regions, by number. Waits for the first READ of newly requested
    /// ones.
    pub(crate) fn copies(&self, wanted: &[Address]) -> BTreeMap<u32, Arc<RemoteCopy>> {
        let mut state = self.shared.state.lock();
        state.wanted_at = clock::now();
        if state.wanted != wanted {
            wanted.clone_into(&mut state.wanted);
            let State { wanted, copies, .. } = &mut *state;
            copies.retain(|_, found| wanted.contains(&found.whom));
            self.shared.changed.notify_all();
        }
        self.shared.changed.wait_while_for(&mut state, |state| !state.has_all(), FIRST_READ_TIMEOUT);
        state.copies.clone()
    }

    /// Makes the next call of [`RemoteReader::copies`] wait until every region was READ after this
    /// moment.
    pub(crate) fn refresh(&self) {
        self.shared.state.lock().fresh_from = clock::now();
        self.shared.changed.notify_all();
    }

    /// READs nothing until copies are wanted again.
    pub(crate) fn rest(&self) {
        self.shared.state.lock().wanted_at = Instant::ZERO;
    }
}

impl Drop for RemoteReader {
    fn drop(&mut self) {
        self.shared.state.lock().stop = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic has been printed already.
            let _ = thread.join();
        }
    }
}

/// The thread: READs the requested regions repeatedly.
fn read(mut reader: RegionReader, interval: Duration, shared: &Shared) {
    let idle_after = IDLE_AFTER.max(interval * 3);
    let mut state = shared.state.lock();
    while !state.stop {
        let is_idle = clock::now().since(state.wanted_at).to_std() >= idle_after;
        let round = if is_idle && state.has_all() { Vec::new() } else { state.wanted.clone() };
        drop(state);
        let mut all_answer = true;
        for whom in round {
            let asked_at = clock::now();
            let copy = reader.read(whom);
            all_answer &= copy.is_ok();
            let mut state = shared.state.lock();
            if state.wanted.contains(&whom) {
                state.copies.insert(whom.region, Arc::new(RemoteCopy { whom, asked_at, copy }));
                shared.changed.notify_all();
            }
            if state.stop {
                return;
            }
        }
        state = shared.state.lock();
        let pause = if all_answer { interval } else { interval.max(RETRY_INTERVAL) };
        shared.changed.wait_while_for(&mut state, |state| !state.stop && state.has_all(), pause);
    }
}

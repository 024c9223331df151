//! READs regions of other hosts in threads of their own, because an unreachable host would block the
//! caller. By gateways, each host has its own thread and connections, so one that is slow or silent delays
//! no copy of another host's regions. A device that is open has memory locked, so that one serves all hosts.

use obol_fabric::host::clock;
use obol_fabric::remote::RegionCopy;
use obol_fabric::{Address, Instant, LinkError};
use obol_node::endpoint::RegionReader;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{self, Duration};

/// Usual pause between two rounds of READs.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Shortest pause after a round in which a host did not answer: each attempt takes up to the READ
/// timeout.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// Longest wait of a caller for the first READ of newly requested regions, for all hosts together. A
/// host that was waited for in vain is not waited for again until it has answered.
const FIRST_READ_TIMEOUT: Duration = Duration::from_secs(3);
/// Regions that were not requested for this long, or for three pauses if that is longer, are not
/// READ any more. While a caller waits for one host, the others are READ on.
const IDLE_AFTER: Duration = FIRST_READ_TIMEOUT.saturating_add(Duration::from_secs(1));
/// A READ that fails only after this time has waited for an answer; an end of the process, and a
/// gateway that is not there, are reported at once.
const UNANSWERED_AFTER: Duration = Duration::from_millis(250);

/// A part of the values that is READ with its region each time has at most this many bytes.
const SMALL_PART: usize = 256;

/// What is READ of another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The region's address.
    pub(crate) whom: Address,
    /// A part of the space of its values; mostly empty.
    pub(crate) values: Range<u32>,
}

/// The result of a READ of a region.
#[derive(Debug)]
pub(crate) struct RemoteCopy {
    /// The region's address.
    pub(crate) whom: Address,
    /// When the READ began.
    asked_at: Instant,
    /// The region, or why it cannot be READ.
    pub(crate) copy: Result<RegionCopy, LinkError>,
    /// The part of its values that was wanted. A large one is READ again only after
    /// [`RemoteReader::refresh`].
    pub(crate) values: Arc<[u8]>,
}

impl RemoteCopy {
    /// Whether there is no answer. Its process may run all the same.
    pub(crate) const fn is_silent(&self) -> bool {
        matches!(self.copy, Err(LinkError::PeerDead))
    }

    /// Whether it has what is wanted, or a reason why not.
    fn is_of(&self, wanted: &Wanted) -> bool {
        self.whom == wanted.whom && (self.copy.is_err() || self.values.len() == wanted.values.len())
    }
}

/// Reads a region once.
pub(crate) trait ReadRegion: Send + 'static {
    /// Blocks until the region's host has answered, or is given up.
    fn read(&mut self, at: Address) -> Result<RegionCopy, LinkError>;

    /// Reads a part of the space of its values, after that.
    fn read_values(&mut self, at: Address, part: Range<u32>) -> Result<Vec<u8>, LinkError>;

    /// Whether the regions of a host answer together or not at all, and each host needs a reader. Otherwise
    /// one reads all hosts.
    fn reads_by_host(&self) -> bool;
}

impl ReadRegion for RegionReader {
    fn read(&mut self, at: Address) -> Result<RegionCopy, LinkError> {
        Self::read(self, at)
    }

    fn read_values(&mut self, at: Address, part: Range<u32>) -> Result<Vec<u8>, LinkError> {
        Self::read_values(self, at, part)
    }

    fn reads_by_host(&self) -> bool {
        Self::reads_by_host(self)
    }
}

/// Reads what is wanted of a region, once. `known` are its values, if they need not be READ.
fn read_one(
    reader: &mut impl ReadRegion,
    Wanted { whom, values }: &Wanted,
    known: Option<Arc<[u8]>>,
) -> Result<(RegionCopy, Arc<[u8]>), LinkError> {
    let copy = reader.read(*whom)?;
    let values = match known {
        Some(known) => known,
        None if values.is_empty() => Arc::default(),
        None => reader.read_values(*whom, values.clone())?.into(),
    };
    Ok((copy, values))
}

#[derive(Default)]
struct State {
    wanted: Vec<Wanted>,
    wanted_at: Instant,
    /// Copies must be of this moment or later.
    fresh_from: Instant,
    copies: BTreeMap<u32, Arc<RemoteCopy>>,
    /// Whether callers do not wait for it, because it has not answered.
    given_up: bool,
    /// Whether the thread is in a READ.
    reads: bool,
    stop: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl State {
    /// The last copy of a region, if it is not too old.
    fn fresh(&self, wanted: &Wanted) -> Option<&RemoteCopy> {
        let found = self.copies.get(&wanted.whom.region)?;
        (found.is_of(wanted) && found.asked_at >= self.fresh_from).then_some(found)
    }

    fn has_all(&self) -> bool {
        self.wanted.iter().all(|wanted| self.fresh(wanted).is_some())
    }

    /// Takes the result of a READ.
    fn take(&mut self, wanted: &Wanted, found: RemoteCopy) {
        if self.wanted.contains(wanted) {
            self.copies.insert(wanted.whom.region, Arc::new(found));
        }
    }
}

/// Reads regions of other hosts.
pub(crate) struct RemoteReader {
    interval: Duration,
    /// By host. One that serves all hosts is that of the host it was opened for.
    threads: BTreeMap<u8, HostReader>,
    /// Hosts that have no thread, why, and since when.
    failed: BTreeMap<u8, (String, time::Instant)>,
}

impl RemoteReader {
    pub(crate) const fn new(interval: Duration) -> Self {
        Self { interval, threads: BTreeMap::new(), failed: BTreeMap::new() }
    }

    /// The last copies of these regions, by number. The regions of each host are READ by a reader that
    /// `open` makes, independently of all others unless it serves all hosts. Waits for the first READ of
    /// newly requested regions, except of hosts that do not answer. See [`RemoteReader::failure`] for hosts
    /// without a reader.
    pub(crate) fn copies<R: ReadRegion>(
        &mut self,
        wanted: &BTreeMap<u8, Vec<Wanted>>,
        mut open: impl FnMut() -> Result<R, String>,
    ) -> BTreeMap<u32, Arc<RemoteCopy>> {
        self.failed.retain(|host, _| wanted.contains_key(host));
        let mut by_thread: BTreeMap<u8, Vec<Wanted>> = BTreeMap::new();
        for (host, regions) in wanted {
            if let Some(thread) = self.thread_of(*host, &mut open) {
                by_thread.entry(thread).or_default().extend_from_slice(regions);
            }
        }
        // All hosts are asked before any is waited for.
        for (number, host) in &self.threads {
            host.want(by_thread.get(number).map_or(&[], Vec::as_slice));
        }
        let until = time::Instant::now() + FIRST_READ_TIMEOUT;
        for host in self.threads.values() {
            host.wait(until);
        }
        // Taken at the end, so that a host that was waited for makes no copy of another one old.
        self.threads.values().flat_map(HostReader::copies).collect()
    }

    /// The thread that READs a host, started if there is none. After a failure it is not tried again at once.
    fn thread_of<R: ReadRegion>(
        &mut self,
        host: u8,
        open: &mut impl FnMut() -> Result<R, String>,
    ) -> Option<u8> {
        let for_all = || self.threads.iter().find(|(_, thread)| !thread.by_host).map(|(number, _)| *number);
        let known = if self.threads.contains_key(&host) { Some(host) } else { for_all() };
        if known.is_some() {
            self.failed.remove(&host);
            return known;
        }
        if self.failed.get(&host).is_some_and(|(_, since)| since.elapsed() < RETRY_INTERVAL) {
            return None;
        }
        let started = open()
            .and_then(|reader| HostReader::start(reader, self.interval).map_err(|error| error.to_string()));
        match started {
            Ok(thread) => {
                self.failed.remove(&host);
                self.threads.insert(host, thread);
                Some(host)
            }
            Err(error) => {
                self.failed.insert(host, (error, time::Instant::now()));
                None
            }
        }
    }

    /// Why a host could not be READ at the last call of [`RemoteReader::copies`].
    pub(crate) fn failure(&self, host: u8) -> Option<&str> {
        self.failed.get(&host).map(|(error, _)| error.as_str())
    }

    /// Why hosts could not be READ at that call: that of the first one.
    pub(crate) fn trouble(&self) -> Option<&str> {
        self.failed.values().next().map(|(error, _)| error.as_str())
    }

    /// The last copy of a region, if it is wanted.
    pub(crate) fn copy(&self, region: u32) -> Option<Arc<RemoteCopy>> {
        self.threads.values().find_map(|host| host.shared.state.lock().copies.get(&region).cloned())
    }

    /// Makes the next call of [`RemoteReader::copies`] wait until every region was READ after this
    /// moment, except of hosts that do not answer.
    pub(crate) fn refresh(&self) {
        for host in self.threads.values() {
            host.shared.state.lock().fresh_from = clock::now();
            host.shared.changed.notify_all();
        }
    }

    /// READs nothing until copies are wanted again.
    pub(crate) fn rest(&self) {
        for host in self.threads.values() {
            host.shared.state.lock().wanted_at = Instant::ZERO;
        }
    }
}

/// The regions of one host, or of all, and the thread that READs them.
struct HostReader {
    /// Whether it READs one host.
    by_host: bool,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl HostReader {
    fn start(reader: impl ReadRegion, interval: Duration) -> std::io::Result<Self> {
        let by_host = reader.reads_by_host();
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("obol-look".to_owned())
            .spawn(move || read(reader, interval, &of_thread))?;
        Ok(Self { by_host, shared, thread: Some(thread) })
    }

    /// Requests these regions, and no others.
    fn want(&self, wanted: &[Wanted]) {
        let mut state = self.shared.state.lock();
        state.wanted_at = clock::now();
        if state.wanted != wanted {
            wanted.clone_into(&mut state.wanted);
            let State { wanted, copies, .. } = &mut *state;
            copies.retain(|_, found| wanted.iter().any(|wanted| found.is_of(wanted)));
        }
        self.shared.changed.notify_all();
    }

    /// Waits until then for those regions that were not READ yet.
    fn wait(&self, until: time::Instant) {
        let mut state = self.shared.state.lock();
        let waits = |state: &mut State| !state.has_all() && !state.given_up;
        if self.shared.changed.wait_while_until(&mut state, waits, until).timed_out() {
            state.given_up = true;
        }
    }

    /// The last copies.
    fn copies(&self) -> BTreeMap<u32, Arc<RemoteCopy>> {
        self.shared.state.lock().copies.clone()
    }
}

impl Drop for HostReader {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.stop = true;
        let reads = state.reads;
        drop(state);
        self.shared.changed.notify_all();
        // A thread that waits for an answer ends with its READ: a command does not wait for that.
        if let Some(thread) = self.thread.take().filter(|_| !reads) {
            // A panic has been printed already.
            let _ = thread.join();
        }
    }
}

/// The thread: READs the requested regions repeatedly.
fn read(mut reader: impl ReadRegion, interval: Duration, shared: &Shared) {
    let by_host = reader.reads_by_host();
    let idle_after = IDLE_AFTER.max(interval * 3);
    let mut state = shared.state.lock();
    while !state.stop {
        let is_idle = clock::now().since(state.wanted_at).to_std() >= idle_after;
        let round = if is_idle && state.has_all() { Vec::new() } else { state.wanted.clone() };
        let (mut all_answer, mut unanswered) = (true, None);
        for wanted in round {
            let asked_at = clock::now();
            let read = match unanswered {
                // The gateway serves all regions of its host.
                Some(error) if by_host => Err(error),
                _ => {
                    let is_kept =
                        |found: &&RemoteCopy| found.copy.is_ok() && wanted.values.len() > SMALL_PART;
                    let known = state.fresh(&wanted).filter(is_kept);
                    let known = known.map(|found| Arc::clone(&found.values));
                    state.reads = true;
                    drop(state);
                    let read = read_one(&mut reader, &wanted, known);
                    state = shared.state.lock();
                    state.reads = false;
                    read
                }
            };
            all_answer &= read.is_ok();
            match &read {
                Ok(_) => state.given_up = false,
                Err(LinkError::PeerDead) if clock::now().since(asked_at).to_std() >= UNANSWERED_AFTER => {
                    unanswered = Some(LinkError::PeerDead);
                    state.given_up |= by_host;
                }
                Err(_) => (),
            }
            let (copy, values) = match read {
                Ok((copy, values)) => (Ok(copy), values),
                Err(error) => (Err(error), Arc::default()),
            };
            state.take(&wanted, RemoteCopy { whom: wanted.whom, asked_at, copy, values });
            shared.changed.notify_all();
            if state.stop {
                return;
            }
        }
        let pause = if all_answer { interval } else { interval.max(RETRY_INTERVAL) };
        shared.changed.wait_while_for(&mut state, |state| !state.stop && state.has_all(), pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// A host: region 2 does not answer before the test lets it, all others are not there.
    struct Host {
        /// Whether its regions answer together or not at all.
        by_host: bool,
        release: Option<Receiver<()>>,
        /// The regions that are READ, and when.
        asked: Sender<(u32, Instant)>,
    }

    impl ReadRegion for Host {
        fn read(&mut self, at: Address) -> Result<RegionCopy, LinkError> {
            // The test may have ended.
            let _ = self.asked.send((at.region, clock::now()));
            if let Some(release) = self.release.as_ref().filter(|_| at.region == 2) {
                let _ = release.recv();
                return Err(LinkError::PeerDead);
            }
            Err(LinkError::PeerReplaced)
        }

        fn read_values(&mut self, _at: Address, _part: Range<u32>) -> Result<Vec<u8>, LinkError> {
            Err(LinkError::PeerReplaced)
        }

        fn reads_by_host(&self) -> bool {
            self.by_host
        }
    }

    const fn wanted(region: u32) -> Wanted {
        Wanted { whom: Address::region(region), values: 0..0 }
    }

    /// A reader of hosts 1 to 3, each with the region of its number. Region 2 answers on release.
    struct Fixture {
        reader: RemoteReader,
        wanted: BTreeMap<u8, Vec<Wanted>>,
        hosts: Vec<Host>,
        release: Sender<()>,
        asked: Receiver<(u32, Instant)>,
    }

    impl Fixture {
        fn new() -> Self {
            let ((release, released), (asking, asked)) = (channel(), channel());
            let host = |release| Host { by_host: true, release, asked: asking.clone() };
            Self::with([None, Some(released), None].map(host).into(), release, asked)
        }

        /// One with a device, which can be opened once.
        fn by_device() -> Self {
            let ((release, released), (asking, asked)) = (channel(), channel());
            Self::with(vec![Host { by_host: false, release: Some(released), asked: asking }], release, asked)
        }

        fn with(hosts: Vec<Host>, release: Sender<()>, asked: Receiver<(u32, Instant)>) -> Self {
            let wanted = (1..=3).map(|host| (host, vec![wanted(host.into())])).collect();
            let reader = RemoteReader::new(Duration::from_millis(1));
            Self { reader, wanted, hosts, release, asked }
        }

        fn copies(&mut self) -> BTreeMap<u32, Arc<RemoteCopy>> {
            let hosts = &mut self.hosts;
            let open = || hosts.pop().ok_or_else(|| "no more hosts".to_owned());
            self.reader.copies(&self.wanted, open)
        }
    }

    #[test]
    fn a_host_that_does_not_answer_delays_no_copy_of_another_host() {
        let mut fixture = Fixture::new();
        let copies = fixture.copies();
        assert!(copies.contains_key(&3), "host 3 was read beside the silent host 2: {copies:?}");
        assert!(!copies.contains_key(&2), "host 2 has not answered: {copies:?}");
        // Host 3 is read again and again, while host 2 was asked once and is still being waited for.
        fixture.reader.refresh();
        let again = fixture.copies();
        assert!(again[&3].asked_at > copies[&3].asked_at);
        assert_eq!(fixture.asked.try_iter().filter(|(region, _)| *region == 2).count(), 1);
    }

    #[test]
    fn while_a_host_is_waited_for_the_others_are_read_on() {
        let mut fixture = Fixture::new();
        let copies = fixture.copies();
        let asked: Vec<(u32, Instant)> = fixture.asked.try_iter().collect();
        // They are asked before and after host 2.
        for region in [1, 3] {
            let first = asked.iter().find(|(of, _)| *of == region).expect("it was read").1;
            assert!(copies[&region].asked_at > first, "the first copy is 3 s old: {region} {copies:?}");
        }
    }

    #[test]
    fn a_host_that_was_waited_for_in_vain_is_not_waited_for_again() {
        let mut fixture = Fixture::new();
        fixture.copies();
        let given_up = |fixture: &Fixture| fixture.reader.threads[&2].shared.state.lock().given_up;
        assert!(given_up(&fixture));
        assert!(!fixture.reader.threads[&3].shared.state.lock().given_up);
        // New regions of it do not change that.
        fixture.wanted.insert(2, vec![wanted(2), wanted(4)]);
        fixture.copies();
        assert!(given_up(&fixture));
    }

    #[test]
    fn the_other_regions_of_a_silent_gateway_are_not_tried_one_by_one() {
        let mut fixture = Fixture::new();
        fixture.wanted.insert(2, vec![wanted(2), wanted(4)]);
        fixture.copies();
        fixture.release.send(()).expect("the thread waits");
        let state = &fixture.reader.threads[&2].shared;
        let mut locked = state.state.lock();
        state.changed.wait_while(&mut locked, |state| state.copies.len() < 2);
        assert!(locked.copies.values().all(|found| found.is_silent()));
        drop(locked);
        assert!(fixture.asked.try_iter().all(|(region, _)| region != 4));
    }

    #[test]
    fn by_a_device_the_other_regions_are_read_beside_one_that_does_not_answer() {
        let mut fixture = Fixture::by_device();
        fixture.wanted.insert(2, vec![wanted(2), wanted(4)]);
        fixture.copies();
        assert_eq!(fixture.reader.threads.len(), 1, "one serves all hosts");
        assert_eq!(fixture.reader.trouble(), None);
        fixture.release.send(()).expect("the thread waits");
        let state = &fixture.reader.threads[&1].shared;
        let mut locked = state.state.lock();
        state.changed.wait_while(&mut locked, |state| state.copies.len() < 4);
        assert!(locked.copies[&2].is_silent() && !locked.copies[&4].is_silent());
        drop(locked);
        let asked: BTreeSet<u32> = fixture.asked.try_iter().map(|(region, _)| region).collect();
        assert_eq!(asked, BTreeSet::from([1, 2, 3, 4]));
    }

    #[test]
    fn a_reader_that_cannot_be_opened_leaves_the_other_hosts_readable_and_is_opened_later() {
        let mut fixture = Fixture::new();
        let mut hosts = [fixture.hosts.pop(), None, fixture.hosts.remove(0).into()].into_iter();
        let open = || hosts.next().flatten().ok_or_else(|| "no memory".to_owned());
        let copies = fixture.reader.copies(&fixture.wanted, open);
        assert_eq!(copies.keys().collect::<Vec<_>>(), [&1, &3]);
        let failed = [1, 2, 3].map(|host| fixture.reader.failure(host));
        assert_eq!(failed, [None, Some("no memory"), None]);
        assert_eq!(fixture.reader.trouble(), Some("no memory"));
        // The pause after the failure is over.
        let since = time::Instant::now().checked_sub(RETRY_INTERVAL).expect("the clock is past it");
        fixture.reader.failed.get_mut(&2).expect("failed").1 = since;
        fixture.release.send(()).expect("not closed");
        let copies = fixture.copies();
        assert!(copies.contains_key(&2), "{copies:?}");
        assert_eq!(fixture.reader.trouble(), None);
    }
}

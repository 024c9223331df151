//! Snapshots: any replica that has the state serves it to one that lacks a part of the log, in
//! chunks that the other READs. The leader need not take part.
//!
//! Both sides work in small steps between their other turns, however large the state is: the provider
//! makes what is asked for ([`Saved`]), and the other side loads what it gets ([`Loading`]).

use crate::REPLICAS_MAX;
use crate::area::Area;
use crate::mutants::{ActiveMutant, Mutant};
use crate::position::Index;
use crate::replicated::Replicated;
use crate::service::Service;
use crate::state::{Loading, NotLoaded, Saved};
use crate::tokens::WAKEUP;
use crate::tokens::{Part, token};
use core::sync::atomic::AtomicU64;
use obol_fabric::sealed;
use obol_fabric::{Address, Fabric, Incarnation, Instant, LinkError, Nanos, Remote, memory};
use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

const ASK_WORDS: usize = 6;
const CHUNK_WORDS: usize = 6;
/// The number of a chunk that says that the provider has begun, and has none yet.
const NO_CHUNK: u64 = u64::MAX;
/// Set in a chunk's length if it is the last one.
const LAST: u64 = 1 << 32;
/// A provider that has begun is left when it makes no chunk for this many times the patience.
const STALLED: u64 = 100;
/// A provider gives up a snapshot that nobody asks for, again or further, for this many times the
/// patience.
const FORGOTTEN: u64 = 10;

/// A snapshot that a replica makes for another one, as its memory says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// The replica that loads it.
    pub to: Incarnation,
    /// Bytes that were made available.
    pub sent: u64,
    /// Bytes of all; about, until the last chunk.
    pub whole: u64,
}

impl Transfer {
    /// From a chunk's head; `None` if there is none.
    pub(crate) fn of(area: &Area, chunk: &[u8]) -> Option<Self> {
        let head = Head::decode(chunk)?;
        let chunks = if head.chunk == NO_CHUNK { 0 } else { head.chunk };
        let sent = chunks.saturating_mul(area.chunk_bytes() as u64).saturating_add(head.len);
        Some(Self { to: head.who, sent, whole: head.whole })
    }
}

/// What precedes a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    who: Incarnation,
    id: u64,
    chunk: u64,
    whole: u64,
    /// The checksum of the snapshot up to the end of this chunk.
    sum: u32,
    len: u64,
    is_last: bool,
}

impl Head {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let Self { who, id, chunk, whole, sum, len, is_last } = *self;
        let len = len | if is_last { LAST } else { 0 };
        sealed::seal([who.0, id, chunk, whole, u64::from(sum), len], &mut bytes);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let [who, id, chunk, whole, sum, len] = sealed::unseal::<CHUNK_WORDS>(bytes)?;
        let (len, is_last) = (len & (LAST - 1), len & LAST != 0);
        Some(Self { who: Incarnation(who), id, chunk, whole, sum: sum as u32, len, is_last })
    }
}

/// The checksum of some bytes that follow others.
fn sum_after(before: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(before);
    hasher.update(bytes);
    hasher.finalize()
}

/// A replica's request for a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ask {
    who: Incarnation,
    /// Of whom.
    to: Incarnation,
    /// The number of the snapshot, drawn by the asker. A new one makes a new snapshot.
    id: u64,
    chunk: u64,
    /// The snapshot has to contain the log up to this entry.
    least: Index,
    /// Counts the requests. It lies in the provider's memory until another one comes, so what does not
    /// change may not be wanted any more.
    beat: u64,
}

/// A snapshot that a replica serves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Serving {
    who: Incarnation,
    id: u64,
    /// `None` until the other side was shown that it begins: a service may take long to be saved.
    saved: Option<Saved>,
    /// The chunk that is published, with the checksum of all before the next one.
    chunk: Option<u64>,
    sum: u32,
    is_last: bool,
    /// When it was asked for last.
    at: Instant,
}

/// The side that has the state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Provider {
    serving: Option<Serving>,
    /// The newest snapshot of each replica that was served, or given up.
    done: BTreeMap<Incarnation, u64>,
    /// The newest request of each replica.
    beats: BTreeMap<Incarnation, u64>,
}

impl Provider {
    /// Whether a replica may ask for the next chunk soon.
    pub(crate) fn is_serving(&self, now: Instant, patience: Nanos) -> bool {
        self.serving.as_ref().is_some_and(|serving| now < serving.at + patience)
    }

    /// Handles requests in own memory. `patience`: how long a replica waits for a provider.
    #[expect(clippy::too_many_arguments, reason = "who serves what to whom")]
    pub(crate) fn poll<S: Service, F: Fabric>(
        &mut self,
        now: Instant,
        own: Incarnation,
        replicas: &[(Incarnation, Address)],
        area: Area,
        patience: Nanos,
        replicated: &mut Replicated<S>,
        fabric: &F,
    ) {
        let asks = replicas.iter().enumerate().take(REPLICAS_MAX).filter_map(|(replica, (who, _))| {
            let words = fabric.own(area.ask(replica), 8 * (ASK_WORDS + 1));
            let [from, to, id, chunk, least, beat] = sealed::unseal_own::<ASK_WORDS>(words)?;
            let (to, least) = (Incarnation(to), Index(least));
            let ask = Ask { who: Incarnation(from), to, id, chunk, least, beat };
            (ask.who == *who && ask.to == own && ask.who != own).then_some(ask)
        });
        let asks: Vec<Ask> = asks.collect();
        // What was asked for since the last look, by whom it had been before: see `Ask::beat`.
        let beats = core::mem::take(&mut self.beats);
        self.beats = asks.iter().map(|ask| (ask.who, ask.beat)).collect();
        let is_live = |ask: &Ask| beats.get(&ask.who).is_some_and(|beat| *beat != ask.beat);
        // First the one that is served: it may have asked while this replica had no turn.
        let mut goes_on = !replicated.gap;
        if let Some(serving) = &mut self.serving
            && let Some(ask) = asks.iter().find(|ask| (ask.who, ask.id) == (serving.who, serving.id))
        {
            if is_live(ask) {
                serving.at = now;
            }
            goes_on = goes_on && serving.go_on(ask.chunk, area, replicated, fabric);
        }
        let is_member = |who: Incarnation| replicas.iter().any(|(replica, _)| *replica == who);
        let is_left = |serving: &mut Serving| {
            !goes_on || !is_member(serving.who) || now >= serving.at + patience.saturating_mul(FORGOTTEN)
        };
        if let Some(left) = self.serving.take_if(is_left) {
            self.end(&left, area, replicated, fabric);
        }
        for ask in asks.into_iter().filter(is_live) {
            self.begin(now, &ask, area, patience, replicated, fabric);
        }
    }

    /// Begins a snapshot for another replica, unless it serves one, or lacks what is asked for.
    fn begin<S: Service, F: Fabric>(
        &mut self,
        now: Instant,
        ask: &Ask,
        area: Area,
        patience: Nanos,
        replicated: &mut Replicated<S>,
        fabric: &F,
    ) {
        let is_over = self.done.get(&ask.who).is_some_and(|done| ask.id <= *done);
        let is_busy = self.serving.as_ref().is_some_and(|serving| {
            let is_over = serving.is_last && now >= serving.at + patience;
            // A new number says that the one before is not wanted any more.
            if serving.who == ask.who { ask.id <= serving.id } else { !is_over }
        });
        let is_whole = replicated.state.log != 0 && !replicated.gap;
        if is_over || is_busy || !is_whole || replicated.state.applied.index < ask.least.max(Index(1)) {
            return;
        }
        if let Some(before) = self.serving.take() {
            self.end(&before, area, replicated, fabric);
        }
        let (who, id) = (ask.who, ask.id);
        self.serving = Some(Serving { who, id, saved: None, chunk: None, sum: 0, is_last: false, at: now });
        let (chunk, whole, sum, len) = (NO_CHUNK, 0, 0, 0);
        publish(&Head { who, id, chunk, whole, sum, len, is_last: false }, &[], area, fabric);
    }

    /// Gives up a snapshot, and what was kept for it.
    fn end<S: Service, F: Fabric>(
        &mut self,
        serving: &Serving,
        area: Area,
        replicated: &mut Replicated<S>,
        fabric: &F,
    ) {
        self.done.insert(serving.who, serving.id);
        replicated.state.service.end_save();
        // Observers show how large the newest one was.
        let whole = serving.saved.as_ref().map_or(0, Saved::whole);
        let (who, id, chunk) = (Incarnation::NONE, 0, NO_CHUNK);
        publish(&Head { who, id, chunk, whole, sum: 0, len: 0, is_last: false }, &[], area, fabric);
    }
}

impl Serving {
    /// Makes the chunk that is asked for: the next one, or the first. Returns whether the snapshot can go
    /// on.
    fn go_on<S: Service, F: Fabric>(
        &mut self,
        chunk: u64,
        area: Area,
        replicated: &mut Replicated<S>,
        fabric: &F,
    ) -> bool {
        let mutant = replicated.state.mutant;
        let next = self.chunk.map_or(0, |chunk| chunk + 1);
        if chunk < next {
            return true;
        }
        if chunk > next && !is_mixed(mutant) {
            // It continues another snapshot than this one.
            return false;
        }
        let saved = self.saved.get_or_insert_with(|| Saved::begin(&mut replicated.state));
        let from = chunk.saturating_mul(area.chunk_bytes() as u64);
        let Some(part) = saved.part(from, area.chunk_bytes(), &mut replicated.state) else { return false };
        let (sum, is_last) = (sum_after(self.sum, part.bytes), part.is_last);
        let (who, id, whole, len) = (self.who, self.id, part.whole, part.bytes.len() as u64);
        publish(&Head { who, id, chunk, whole, sum, len, is_last }, part.bytes, area, fabric);
        (self.chunk, self.sum, self.is_last) = (Some(chunk), sum, is_last);
        true
    }
}

/// Puts a chunk into own memory: its head goes last, and once more to where observers look.
fn publish<F: Fabric>(head: &Head, bytes: &[u8], area: Area, fabric: &F) {
    let Some(words) = fabric.own(area.chunk(), Area::CHUNK_DATA as usize + area.chunk_bytes()) else {
        return;
    };
    put(&words[Area::CHUNK_DATA as usize / 8..], bytes);
    let head = head.encode();
    put(words, &head);
    if area.chunk_head() != area.chunk()
        && let Some(words) = fabric.own(area.chunk_head(), head.len())
    {
        put(words, &head);
    }
}

fn put(words: &[AtomicU64], bytes: &[u8]) {
    core::sync::atomic::fence(core::sync::atomic::Ordering::Release);
    memory::copy_in(words, bytes);
}

/// The side that needs the state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Loader<S> {
    /// This replica in the view: one that was excluded is another one to its provider.
    own: Incarnation,
    /// Counts the snapshots that were asked for.
    id: u64,
    /// Providers that were asked since the last whole snapshot.
    tries: u64,
    /// Of whom.
    from: Option<(Incarnation, Address)>,
    least: Index,
    loading: Loading<S>,
    /// Chunks that were loaded, with their bytes and checksum.
    chunks: u64,
    bytes: u64,
    sum: u32,
    /// The newest chunk that was asked for, and in which snapshot.
    asked: (u64, u64),
    /// Counts the requests.
    beat: u64,
    outstanding: bool,
    /// Since when its memory has not shown this snapshot.
    unheard: Option<Instant>,
    /// When the last chunk came.
    progress_at: Instant,
    again_at: Instant,
}

impl<S: Service> Default for Loader<S> {
    fn default() -> Self {
        Self {
            own: Incarnation::NONE,
            id: 0,
            tries: 0,
            from: None,
            least: Index(0),
            loading: Loading::new(),
            chunks: 0,
            bytes: 0,
            sum: 0,
            asked: (0, 0),
            beat: 0,
            outstanding: false,
            unheard: None,
            progress_at: Instant::ZERO,
            again_at: Instant::ZERO,
        }
    }
}

/// How long a loader waits.
#[derive(Clone, Copy)]
pub(crate) struct Pauses {
    /// Between two chunks.
    pub(crate) pause: Nanos,
    /// For a replica to begin, before another one is asked.
    pub(crate) patience: Nanos,
}

impl<S: Service> Loader<S> {
    /// Asks for the next chunk.
    #[expect(clippy::too_many_arguments, reason = "who asks whom for what")]
    pub(crate) fn poll<F: Fabric>(
        &mut self,
        now: Instant,
        own: (Incarnation, usize),
        replicas: &[(Incarnation, Address)],
        leader: Option<Incarnation>,
        least: Index,
        area: Area,
        pauses: Pauses,
        replicated: &mut Replicated<S>,
        fabric: &mut F,
    ) {
        let Pauses { pause, patience } = pauses;
        let is_there = self.from.is_some_and(|from| replicas.contains(&from));
        let is_unheard = self.unheard.is_some_and(|since| now >= since + patience);
        let is_stalled = now >= self.progress_at + patience.saturating_mul(STALLED);
        let is_other = self.own != own.0;
        if is_other || !is_there || least > self.least || is_unheard || is_stalled {
            self.begin(now, own.0, replicas, leader, replicated);
            (self.own, self.least) = (own.0, least);
        }
        let Some((to, at)) = self.from.filter(|_| !self.outstanding && now >= self.again_at) else { return };
        self.outstanding = true;
        self.again_at = now + pause;
        let mut ask = Vec::new();
        self.beat += 1;
        sealed::seal([own.0.0, to.0, self.id, self.chunks, least.0, self.beat], &mut ask);
        fabric.write_unsignaled(Remote { at, offset: area.ask(own.1) }, &ask, token(Part::Send, 0));
        if core::mem::replace(&mut self.asked, (self.id, self.chunks)) != (self.id, self.chunks) {
            fabric.send(at.owner(), WAKEUP);
        }
        let from = Remote { at, offset: area.chunk() };
        fabric.read(from, Area::CHUNK_DATA + area.chunk_bytes() as u32, token(Part::Chunk, self.id as u32));
    }

    /// Begins a snapshot of the next provider: the youngest first, and the leader last, since it has other
    /// work.
    fn begin(
        &mut self,
        now: Instant,
        own: Incarnation,
        replicas: &[(Incarnation, Address)],
        leader: Option<Incarnation>,
        replicated: &mut Replicated<S>,
    ) {
        let others = replicas.iter().rev().copied().filter(|(who, _)| *who != own);
        let (mut all, last): (Vec<(Incarnation, Address)>, Vec<_>) =
            others.partition(|(who, _)| Some(*who) != leader);
        all.extend(last);
        self.from = all.get((self.tries % (all.len() as u64).max(1)) as usize).copied();
        self.tries += 1;
        self.id += 1;
        (self.unheard, self.progress_at, self.again_at) = (Some(now), now, now);
        if replicated.state.mutant.has(Mutant::SnapshotsMixed) && self.chunks > 0 {
            return;
        }
        self.give_up(replicated);
    }

    /// Drops what was loaded.
    fn give_up(&mut self, replicated: &mut Replicated<S>) {
        (self.chunks, self.bytes, self.sum) = (0, 0, 0);
        core::mem::replace(&mut self.loading, Loading::new()).discard(&mut replicated.state);
    }

    /// No snapshot is needed.
    pub(crate) fn stop(&mut self, replicated: &mut Replicated<S>) {
        if self.from.take().is_some() {
            self.tries = 0;
            self.give_up(replicated);
        }
    }

    /// Grows while it gets on.
    pub(crate) const fn progress(&self) -> u64 {
        self.bytes
    }

    /// A chunk, or something else, was READ. Returns whether the state was loaded with it. `may_load`: this
    /// replica does not lead.
    pub(crate) fn on_read(
        &mut self,
        now: Instant,
        own: Incarnation,
        id: u32,
        result: Result<&[u8], LinkError>,
        replicated: &mut Replicated<S>,
        may_load: bool,
    ) -> Result<bool, NotLoaded> {
        self.outstanding = false;
        let head = result.ok().and_then(|bytes| Some((Head::decode(bytes)?, bytes)));
        let own_head = head.filter(|(head, _)| (head.who, head.id) == (own, self.id) && id == self.id as u32);
        let Some((head, bytes)) = own_head else {
            self.unheard.get_or_insert(now);
            return Ok(false);
        };
        let mutant = replicated.state.mutant;
        self.unheard = None;
        if !may_load || head.chunk != self.chunks && !is_mixed(mutant) {
            return Ok(false);
        }
        let data = bytes.get(Area::CHUNK_DATA as usize..).and_then(|data| data.get(..head.len as usize));
        let sum = data.map(|data| sum_after(self.sum, data));
        // Otherwise the head is of another chunk than the data, which is just being written.
        let Some(data) = data.filter(|_| sum == Some(head.sum) || is_mixed(mutant)) else { return Ok(false) };
        (self.progress_at, self.again_at) = (now, now);
        (self.chunks, self.bytes) = (self.chunks + 1, self.bytes + head.len);
        self.sum = sum.unwrap_or_default();
        let is_loaded = self.loading.take(data, head.is_last, &mut replicated.state);
        if is_loaded != Ok(false) {
            (self.from, self.tries) = (None, 0);
            self.give_up(replicated);
        }
        if is_loaded == Ok(true) {
            replicated.on_loaded();
        }
        is_loaded
    }
}

/// Whether the bug is planted by which a snapshot is continued with another one.
fn is_mixed(mutant: ActiveMutant) -> bool {
    mutant.has(Mutant::SnapshotsMixed)
}

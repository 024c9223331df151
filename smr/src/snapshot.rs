//! Snapshots: any replica that has the state serves it to one that lacks a part of the log, in
//! chunks that the other READs. The leader need not take part.

use crate::REPLICAS_MAX;
use crate::area::{Area, CHUNK_BYTES};
use crate::clients::WAKEUP;
use crate::follow::Replicated;
use crate::log::Index;
use crate::sealed;
use crate::service::Service;
use crate::tokens::{Part, token};
use core::sync::atomic::AtomicU64;
use obol_fabric::{Address, Fabric, Incarnation, Instant, LinkError, Nanos, Remote, memory};
use std::collections::BTreeMap;

const ASK_WORDS: usize = 5;
const CHUNK_WORDS: usize = 5;

/// The length of the snapshot whose chunk this is; 0 if there is none.
pub(crate) fn served_bytes(chunk: &[u8]) -> u64 {
    sealed::unseal::<CHUNK_WORDS>(chunk).map_or(0, |[_, _, _, whole, _]| whole)
}

/// The longest snapshot.
const SNAPSHOT_BYTES_MAX: u64 = 1 << 32;

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
}

/// A snapshot that a replica serves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Serving {
    who: Incarnation,
    id: u64,
    bytes: Vec<u8>,
    chunk: u64,
    /// When a chunk was asked for last.
    at: Instant,
}

/// The side that has the state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Provider {
    serving: Option<Serving>,
    /// The newest snapshot of each replica that was served, or given up.
    done: BTreeMap<Incarnation, u64>,
}

impl Provider {
    /// Whether a replica may ask for the next chunk soon.
    pub(crate) fn is_serving(&self, now: Instant, patience: Nanos) -> bool {
        self.serving.as_ref().is_some_and(|serving| now < serving.at + patience)
    }

    /// Handles requests in own memory. `patience`: a replica that asks for nothing for so long has
    /// given up.
    #[expect(clippy::too_many_arguments, reason = "who serves what to whom")]
    pub(crate) fn poll<S: Service, F: Fabric>(
        &mut self,
        now: Instant,
        own: Incarnation,
        replicas: &[(Incarnation, Address)],
        area: Area,
        patience: Nanos,
        of: &Replicated<S>,
        fabric: &F,
    ) {
        for (replica, (who, _)) in replicas.iter().enumerate().take(REPLICAS_MAX) {
            let words = fabric.own(area.ask(replica), 8 * (ASK_WORDS + 1));
            let Some([from, to, id, chunk, least]) = sealed::unseal_own::<ASK_WORDS>(words) else { continue };
            let ask = Ask { who: Incarnation(from), to: Incarnation(to), id, chunk, least: Index(least) };
            if ask.who == *who && ask.to == own && ask.who != own {
                self.on_ask(now, &ask, area, patience, of, fabric);
            }
        }
    }

    fn on_ask<S: Service, F: Fabric>(
        &mut self,
        now: Instant,
        ask: &Ask,
        area: Area,
        patience: Nanos,
        of: &Replicated<S>,
        fabric: &F,
    ) {
        if let Some(serving) = &mut self.serving
            && (serving.who, serving.id) == (ask.who, ask.id)
        {
            if ask.chunk != serving.chunk {
                (serving.chunk, serving.at) = (ask.chunk, now);
                serving.publish(area, fabric);
            }
            return;
        }
        let is_over = self.done.get(&ask.who).is_some_and(|done| ask.id <= *done);
        let is_busy = self
            .serving
            .as_ref()
            .is_some_and(|serving| serving.who != ask.who && now < serving.at + patience);
        let has = of.state.log != 0 && !of.gap && of.state.applied.index >= ask.least.max(Index(1));
        if is_over || is_busy || !has {
            return;
        }
        let (who, id, chunk) = (ask.who, ask.id, ask.chunk);
        if let Some(before) = self.serving.take() {
            self.done.insert(before.who, before.id);
        }
        let serving = Serving { who, id, bytes: of.state.save(), chunk, at: now };
        serving.publish(area, fabric);
        self.serving = Some(serving);
    }
}

impl Serving {
    /// Puts the chunk into own memory: its head goes last.
    fn publish<F: Fabric>(&self, area: Area, fabric: &F) {
        let Some(words) = fabric.own(area.chunk(), Area::CHUNK_WHOLE as usize) else { return };
        let begin = usize::try_from(self.chunk).unwrap_or(usize::MAX).saturating_mul(CHUNK_BYTES);
        let chunk = self.bytes.get(begin.min(self.bytes.len())..).unwrap_or_default();
        let chunk = &chunk[..chunk.len().min(CHUNK_BYTES)];
        put(&words[Area::CHUNK_DATA as usize / 8..], chunk);
        let sum = u64::from(crc32fast::hash(chunk));
        let mut head = Vec::new();
        sealed::seal([self.who.0, self.id, self.chunk, self.bytes.len() as u64, sum], &mut head);
        put(words, &head);
    }
}

fn put(words: &[AtomicU64], bytes: &[u8]) {
    core::sync::atomic::fence(core::sync::atomic::Ordering::Release);
    memory::copy_in(words, bytes);
}

/// The side that needs the state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Loader {
    /// Counts the snapshots that were asked for.
    id: u64,
    /// Of whom.
    from: Option<(Incarnation, Address)>,
    least: Index,
    bytes: Vec<u8>,
    /// The newest chunk that was asked for, and in which snapshot.
    asked: (u64, u64),
    outstanding: bool,
    /// When the last chunk came.
    progress_at: Instant,
    again_at: Instant,
}

impl Loader {
    /// Asks for the next chunk. `patience`: another replica is asked after so long without one.
    #[expect(clippy::too_many_arguments, reason = "who asks whom for what")]
    pub(crate) fn poll<F: Fabric>(
        &mut self,
        now: Instant,
        own: (Incarnation, usize),
        replicas: &[(Incarnation, Address)],
        least: Index,
        area: Area,
        (pause, patience): (Nanos, Nanos),
        fabric: &mut F,
    ) {
        let is_there = self.from.is_some_and(|from| replicas.contains(&from));
        if !is_there || least > self.least || now >= self.progress_at + patience {
            // The youngest first: the leader has other work.
            let others = replicas.iter().rev().filter(|(who, _)| *who != own.0);
            let count = others.clone().count() as u64;
            self.id += 1;
            self.from = others.clone().nth((self.id % count.max(1)) as usize).copied();
            self.least = least;
            self.bytes.clear();
            self.progress_at = now;
        }
        let Some((to, at)) = self.from.filter(|_| !self.outstanding && now >= self.again_at) else { return };
        self.outstanding = true;
        self.again_at = now + pause;
        let chunk = (self.bytes.len() / CHUNK_BYTES) as u64;
        let mut ask = Vec::new();
        sealed::seal([own.0.0, to.0, self.id, chunk, least.0], &mut ask);
        fabric.write_unsignaled(Remote { at, offset: area.ask(own.1) }, &ask, token(Part::Send, 0));
        if core::mem::replace(&mut self.asked, (self.id, chunk)) != (self.id, chunk) {
            fabric.send(at.owner(), WAKEUP);
        }
        let from = Remote { at, offset: area.chunk() };
        fabric.read(from, Area::CHUNK_WHOLE, token(Part::Chunk, self.id as u32));
    }

    /// Grows while it gets on.
    pub(crate) const fn progress(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// A chunk, or something else, was READ. Returns the whole snapshot with its last chunk.
    pub(crate) fn on_read(
        &mut self,
        now: Instant,
        own: Incarnation,
        id: u32,
        result: Result<&[u8], LinkError>,
    ) -> Option<Vec<u8>> {
        self.outstanding = false;
        let bytes = result.ok().filter(|_| id == self.id as u32)?;
        let [who, id, chunk, whole, sum] = sealed::unseal::<CHUNK_WORDS>(bytes)?;
        let is_next = (who, id, chunk) == (own.0, self.id, (self.bytes.len() / CHUNK_BYTES) as u64);
        let left = whole.checked_sub(self.bytes.len() as u64).filter(|_| is_next)?;
        let len = left.min(CHUNK_BYTES as u64) as usize;
        let data = bytes.get(Area::CHUNK_DATA as usize..)?.get(..len)?;
        if u64::from(crc32fast::hash(data)) != sum || whole > SNAPSHOT_BYTES_MAX {
            return None;
        }
        self.bytes.extend_from_slice(data);
        (self.progress_at, self.again_at) = (now, now);
        (self.bytes.len() as u64 == whole).then(|| {
            self.from = None;
            core::mem::take(&mut self.bytes)
        })
    }
}

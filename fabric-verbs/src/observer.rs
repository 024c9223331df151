//! READs regions of a cluster's processes from any connected host, as [`obol_fabric::host::Observed`]
//! does on their own. The processes are not involved, so a frozen one remains readable. Only
//! connecting requires the process to run.

use super::arena::HugePages;
use super::buffers::{Block, Buffers};
use super::config::Config;
use super::connector::{Command, Connector, ConnectorEvent, Start};
use super::device::DeviceSelector;
use super::endpoint::OpenError;
use super::exposed::{Keys, Plane};
use super::handshake::Identity;
use super::link::{error_of, error_of_cause};
use super::nic::Nic;
use super::pair::{QueuePair, Size};
use super::queue::{CompletionChannel, CompletionQueue, Status, WorkCompletion};
use super::threads::Threads;
use core::ops::Range;
use obol_fabric::contract::LinkError;
use obol_fabric::host::{HostError, Wake, clock};
use obol_fabric::layout::Layout;
use obol_fabric::page;
use obol_fabric::remote::{ClockRelation, RegionCopy, TORN_READS_MAX, Taken};
use obol_fabric::types::{Address, Nanos};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant as Time};

/// READs of one observation: the copy, and the lease page again.
const READS: u32 = 2;
/// Those of an observation, and of an abandoned one before.
const COMPLETIONS: u32 = 4 * READS;
/// The maximum age of a connection, because connecting measures the clocks: with a relative drift
/// of 500 ppm they are 10 ms apart by then.
const RELATE_EVERY: Nanos = Nanos::from_secs(10);
/// The tolerance beyond the bound of detection before a device counts as silent.
const GRACE: Duration = Duration::from_secs(5);

/// Reads regions of other processes, of any host.
pub struct Observer {
    config: Config,
    layout: Layout,
    /// From the start of a region: the part for observers.
    bytes: u32,
    buffers: Buffers,
    copy: Block,
    page: Block,
    channel: Arc<CompletionChannel>,
    completions: Arc<CompletionQueue>,
    quiet: Wake,
    peers: BTreeMap<u32, Peer>,
    attempts: u64,
    posts: u64,
    commands: Sender<Command>,
    events: Receiver<ConnectorEvent>,
    threads: Threads,
}

struct Peer {
    attempt: u64,
    pair: QueuePair,
    keys: Keys,
    /// The generation of the owner.
    generation: u32,
    clock: ClockRelation,
}

impl Observer {
    /// Opens a device for reading the regions of a cluster. In the configuration, `listen` is the
    /// own address; no process listens there.
    pub fn open(config: &Config, nonce: u64, layout: &Layout) -> Result<Self, OpenError> {
        config.check()?;
        let selector = DeviceSelector { address: Some(config.listen.ip()), ..config.device.clone() };
        let nic = Arc::new(Nic::open(&selector, config.traffic_class)?);
        let channel = CompletionChannel::new(nic.context())?;
        let completions = CompletionQueue::new(nic.context(), COMPLETIONS, Some(&channel))?;
        let bytes = layout.values().start;
        let mut buffers = Buffers::new(nic.domain(), READS, bytes as usize, (HugePages::Plain, None))?;
        let room = || OpenError::Config { field: "observer", fault: "no room for a copy".to_owned() };
        let (copy, page) = (buffers.take().ok_or_else(room)?, buffers.take().ok_or_else(room)?);
        let (commands, command_rx) = mpsc::channel();
        let (tx, events) = mpsc::channel();
        let kernel = |error| HostError::Kernel { doing: "start a thread", error };
        let wake = Arc::new(Wake::new().map_err(kernel)?);
        let connector = Connector::new(Start {
            nic: &nic,
            config,
            cluster: Identity::new(nonce, layout),
            sends: &completions,
            size: Size { sends: READS, receives: 1, inline_bytes: 0 },
            commands: command_rx,
            events: tx,
            has_events: Arc::new(AtomicBool::new(false)),
            bell: None,
            wake: Arc::clone(&wake),
        })?;
        Ok(Self {
            config: config.clone(),
            layout: *layout,
            bytes,
            buffers,
            copy,
            page,
            channel,
            completions,
            quiet: Wake::new().map_err(kernel)?,
            peers: BTreeMap::new(),
            attempts: 0,
            posts: 0,
            commands,
            events,
            threads: Threads::start(connector, &wake).map_err(kernel)?,
        })
    }

    /// Reads a region once, and connects first if necessary. Blocks until its owner's device has
    /// answered, or has not within the bound of detection.
    pub fn read(&mut self, at: Address) -> Result<RegionCopy, LinkError> {
        let stale = |peer: &Peer| clock::now().since(peer.clock.measured_at()) >= RELATE_EVERY;
        if self.peers.get(&at.region).is_some_and(stale) {
            self.forget(at.region);
        }
        let owner = self.peers.get(&at.region).map(|peer| peer.generation);
        if owner.is_some_and(|owner| at.seat == 0 && at.generation != 0 && at.generation != owner) {
            self.forget(at.region);
        }
        if !self.peers.contains_key(&at.region) {
            self.connect(at)?;
        }
        let copied = self.read_region(at.region);
        if copied.is_err() {
            self.forget(at.region);
        }
        copied
    }

    /// Reads a part of the space of a region's values once, in ascending order, after
    /// [`Observer::read`] of the same owner. Blocks as that does.
    pub fn read_values(&mut self, at: Address, part: Range<u32>) -> Result<Vec<u8>, LinkError> {
        let read = self.read_parts(at.region, part);
        if read.is_err() {
            self.forget(at.region);
        }
        read
    }

    fn read_parts(&mut self, region: u32, part: Range<u32>) -> Result<Vec<u8>, LinkError> {
        let mut all = vec![0; part.len()];
        for (offset, to) in part.step_by(self.bytes as usize).zip(all.chunks_mut(self.bytes as usize)) {
            let peer = self.peers.get(&region).ok_or(LinkError::PeerDead)?;
            let bytes = to.len() as u32;
            let from = peer.keys.read(&self.layout, offset, bytes).ok_or(LinkError::Denied)?;
            self.posts += 1;
            let posted = peer.pair.read(self.posts, self.buffers.local(self.copy, bytes), from, true);
            posted.map_err(|_| LinkError::PeerDead)?;
            self.settle(1)?;
            self.buffers.copy(self.copy, 0, to);
        }
        Ok(all)
    }

    fn connect(&mut self, at: Address) -> Result<(), LinkError> {
        let to = self.config.place(at).ok_or(LinkError::PeerReplaced)?;
        self.attempts += 1;
        let attempt = self.attempts;
        let generation = if at.seat == 0 { at.generation } else { 0 };
        let (region, plane) = (at.region, Plane::Common);
        let command = Command::Connect { attempt, to, region, generation, plane };
        self.commands.send(command).map_err(|_| LinkError::PeerDead)?;
        self.threads.wake();
        loop {
            // The connector has its own timeout. Its events about other peers are handled at their
            // next READ.
            match self.events.recv().map_err(|_| LinkError::PeerDead)? {
                ConnectorEvent::Up { attempt: one, region, pair, welcome, clock, .. } if one == attempt => {
                    let (keys, generation) = (welcome.keys, welcome.generation);
                    self.peers.insert(region, Peer { attempt, pair, keys, generation, clock });
                    return Ok(());
                }
                ConnectorEvent::Down { attempt: one, cause, .. } if one == attempt => {
                    return Err(error_of_cause(&cause));
                }
                _ => {}
            }
        }
    }

    fn forget(&mut self, region: u32) {
        if let Some(Peer { attempt, pair, .. }) = self.peers.remove(&region) {
            // If the connector has ended, its end has released everything.
            let _ = self.commands.send(Command::Bury { attempt, pair });
            self.threads.wake();
            // Until the queue pair is gone, the device may write to the blocks of the next
            // observation.
            while let Ok(event) = self.events.recv() {
                if matches!(event, ConnectorEvent::Released { attempt: one } if one == attempt) {
                    return;
                }
            }
        }
    }

    fn read_region(&mut self, region: u32) -> Result<RegionCopy, LinkError> {
        let page_bytes = (page::WORDS * 8) as u32;
        let page_at = self.layout.page();
        let mut tries = 0;
        loop {
            tries += 1;
            let peer = self.peers.get(&region).ok_or(LinkError::PeerDead)?;
            let (generation, clock, read_at) = (peer.generation, peer.clock, clock::now());
            for (offset, bytes, block) in [(0, self.bytes, self.copy), (page_at, page_bytes, self.page)] {
                let from = peer.keys.read(&self.layout, offset, bytes).ok_or(LinkError::Denied)?;
                self.posts += 1;
                let posted = peer.pair.read(self.posts, self.buffers.local(block, bytes), from, true);
                posted.map_err(|_| LinkError::PeerDead)?;
            }
            self.settle(READS)?;
            let mut raw = vec![0; self.bytes as usize];
            self.buffers.copy(self.copy, 0, &mut raw);
            let mut again = vec![0; page_bytes as usize];
            self.buffers.copy(self.page, 0, &mut again);
            let whole = RegionCopy::is_whole(&raw, &again, &self.layout);
            if whole || tries == TORN_READS_MAX {
                return Ok(RegionCopy::new(&raw, whole, self.layout, Taken { generation, clock, read_at }));
            }
        }
    }

    /// Waits for the last `count` READs.
    fn settle(&self, count: u32) -> Result<(), LinkError> {
        let until = Time::now() + self.config.detection.to_std() + GRACE;
        let mut left = count;
        loop {
            // Armed before polling, so that no completion is missed.
            self.completions.arm().map_err(|_| LinkError::PeerDead)?;
            let mut done = [WorkCompletion::default(); READS as usize];
            let n = self.completions.poll(&mut done).map_err(|_| LinkError::PeerDead)?;
            for completion in &done[..n] {
                // Of an earlier READ: flushed when its queue pair ended.
                if completion.id() + u64::from(count) <= self.posts {
                    continue;
                }
                if completion.status() != Status::SUCCESS {
                    return Err(error_of(completion.status()));
                }
                left -= 1;
            }
            if left == 0 {
                return Ok(());
            }
            let span = until.saturating_duration_since(Time::now());
            if span.is_zero() {
                return Err(LinkError::PeerDead);
            }
            if n == 0 {
                self.quiet.wait(&*self.channel, Some(span));
                while self.channel.take_event().unwrap_or(false) {}
            }
        }
    }
}

//! What a client sees of a failover: from its last success at a primary that is killed to its first
//! at the next one, beside the failover of the membership for the very same kill.

use super::servers::{POLL_EVERY, Servers};
use crate::failovers::{Failovers, Gap, Victims, measure};
use obol_fabric::host::clock;
use obol_fabric::{Endpoint, Fabric, Incarnation, Instant, Name, ViewId};
use obol_kv::{Client, Operation, Status};
use obol_membership::recorder::{EventKind, Record};
use obol_node::{Site, endpoint};
use obol_observe::Observer;
use obol_observe::stats::Summary;
use obol_server::POLL_INTERVAL;
use obol_server::kv::{Session, Work, area, client, join};
use obol_term::output::Failure;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

/// Servers: one that dies, one that takes over, and one that becomes the backup.
const SERVERS: usize = 3;
/// Keys that the client writes and reads.
const KEYS: u64 = 16;
/// So that every shard has some of them.
const _: () = assert!(KEYS >= 2 * obol_kv::SHARDS_MAX as u64);
/// A client with one operation at a time.
struct Asking<'a> {
    tx: &'a Sender<Gap>,
    asked: bool,
    begun: u64,
    /// The newest success, and by shard whose it was.
    last: Option<Instant>,
    whose: BTreeMap<u32, Incarnation>,
    /// By shard: who is asked, and the view that said so.
    named: BTreeMap<u32, (Incarnation, ViewId)>,
}

impl Work for Asking<'_> {
    fn turn(&mut self, client: &mut Client, endpoint: &mut Endpoint) -> bool {
        for shard in 0..client.shards() {
            let Some(primary) = client.primary(shard) else { continue };
            let named = self.named.entry(shard).or_insert((primary, client.view()));
            if named.0 != primary {
                *named = (primary, client.view());
            }
        }
        while let Some(done) = client.take() {
            self.asked = false;
            let primary = client.primary(done.shard).filter(|_| done.status != Status::Full);
            let Some(primary) = primary else { continue };
            let view = self.named.get(&done.shard).map_or(client.view(), |(_, view)| *view);
            let now = clock::now();
            let before = self.whose.insert(done.shard, primary);
            let last = self.last.replace(now).unwrap_or(now);
            if before.is_none() {
                let _ = self.tx.send(Gap { last: now, first: now, view });
            } else if before != Some(primary) {
                endpoint.record(Record::new(EventKind::Service, client.view().0, 0));
                // The receiver may have seen enough.
                let _ = self.tx.send(Gap { last, first: now, view });
            }
        }
        if !self.asked {
            self.begun += 1;
            let key = self.begun / 2 % KEYS;
            let is_put = self.begun.is_multiple_of(2);
            let operation = if is_put {
                Operation::Put(key, self.begun.to_le_bytes().into())
            } else {
                Operation::Get(key)
            };
            self.asked = client.begin(clock::now(), operation, endpoint).is_ok();
        }
        false
    }
}

/// What the failovers took.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The kind of the drill.
    pub drill: &'static str,
    /// Failovers that the client saw.
    pub count: u64,
    /// From the kill to the last survivor's `active`.
    pub failover_us: Summary,
    /// From a client's last success to its first at the new primary.
    pub client_us: Summary,
    /// How many times as long the client waited, by percentile.
    pub ratio_p50: Option<f64>,
    /// The 99th percentile of the same.
    pub ratio_p99: Option<f64>,
}

impl Victims for Servers<'_> {
    fn redundant(&mut self) -> Result<usize, Failure> {
        Servers::redundant(self)
    }

    fn kill(&mut self, place: usize) -> Result<(), Failure> {
        self.running[place].end();
        Ok(())
    }

    /// It is started again once it is reaped.
    fn restore(&mut self, place: usize) -> Result<(), Failure> {
        self.running[place].reap()
    }
}

impl Report {
    fn of(failovers: &Failovers) -> Self {
        let (failover_us, client_us) = (failovers.members.summary(), failovers.client.summary());
        let ratio = |of: f64, to: f64| of / to.max(0.001);
        Self {
            drill: "app",
            count: failovers.client.len(),
            ratio_p50: client_us.p50.zip(failover_us.p50).map(|(of, to)| ratio(of, to)),
            ratio_p99: client_us.p99.zip(failover_us.p99).map(|(of, to)| ratio(of, to)),
            failover_us,
            client_us,
        }
    }
}

/// Kills primaries and measures the outage of a client.
pub fn run(root: &Path, cluster: Name, count: u32, pause: Duration, shards: u32) -> Result<Report, Failure> {
    let site = Arc::new(Site::open(root, cluster).map_err(Failure::refused)?);
    area(&site)?;
    let mut observer = Observer::open(root, cluster).map_err(Failure::refused)?;
    let mut servers = Servers::start(root, cluster, SERVERS, shards, POLL_EVERY)?;
    servers.redundant()?;
    let stop = Arc::new(AtomicBool::new(false));
    let (tx, gaps) = mpsc::channel();
    let stopped = Arc::clone(&stop);
    let run = move || -> Result<(), Failure> {
        let name = Name::new("kv_drill").map_err(Failure::failed)?;
        let (mut endpoint, mut node) = join(&site, name, client(&site, POLL_INTERVAL)?)?;
        let mut asking = Asking {
            tx: &tx,
            asked: false,
            begun: 0,
            last: None,
            whose: BTreeMap::new(),
            named: BTreeMap::new(),
        };
        let used = Session { node: &mut node, work: &mut asking, stop: &stopped }.in_full(&mut endpoint);
        endpoint::serve(&mut endpoint, &mut node, &AtomicBool::new(true));
        used
    };
    let client = std::thread::Builder::new().name("obol-kv-client".to_owned()).spawn(run);
    let client = client.map_err(Failure::failed)?;
    let failovers = measure(&mut servers, &mut observer, &gaps, count, pause, true);
    stop.store(true, Ordering::Relaxed);
    client.join().map_err(|_| Failure::Failed("the client panicked".to_owned()))??;
    failovers.map(|failovers| Report::of(&failovers))
}

//! What a client sees of a failover: from its last success at a primary that is killed to its first
//! at the next one, beside the failover of the membership for the very same kill.

use super::servers::{POLL_EVERY, Servers};
use obol_fabric::host::clock;
use obol_fabric::{Drive, Incarnation, Instant, Name, ViewId};
use obol_kv::{Client, Operation, Status};
use obol_membership::recorder::{EventKind, Record};
use obol_node::Site;
use obol_observe::Observer;
use obol_observe::stats::{Distribution, Summary};
use obol_server::POLL_INTERVAL;
use obol_server::kv::{Session, Work, area, client, join};
use obol_term::output::Failure;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

/// Servers: one that dies, one that takes over, and one that becomes the backup.
const SERVERS: usize = 3;
/// Keys that the client writes and reads.
const KEYS: u64 = 16;
/// So that every shard has some of them.
const _: () = assert!(KEYS >= 2 * obol_kv::SHARDS_MAX as u64);
/// A client without an answer after this time hangs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// What a client saw.
struct Gap {
    /// Its last success at the old primary, and its first at the new one.
    last: Instant,
    first: Instant,
    /// The view that named the new one.
    view: ViewId,
}

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
    fn turn<D: Drive>(&mut self, client: &mut Client, endpoint: &mut D) -> bool {
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

/// When each process first reported that a view was active.
#[derive(Debug, Default)]
pub struct Actives(BTreeMap<(ViewId, Name), Instant>);

impl Actives {
    /// Handles the messages since the last call.
    pub fn hear(&mut self, observer: &mut Observer) {
        for seen in observer.events().iter().filter(|seen| seen.event.record.kind == EventKind::Active) {
            self.0.entry((ViewId(seen.event.record.a), seen.process)).or_insert(seen.event.at);
        }
    }

    /// Whether any process has reported this view or a later one.
    pub fn any(&self, view: ViewId) -> bool {
        self.0.range((view, Name::default())..).next().is_some()
    }

    /// When the last process did, of this view or the next that came to be active: two deaths may
    /// be two views at once. Reports of it and of earlier ones are dropped.
    pub fn take_last(&mut self, view: ViewId) -> Option<Instant> {
        let (first, _) = *self.0.range((view, Name::default())..).next()?.0;
        let later = self.0.split_off(&(ViewId(first.0.saturating_add(1)), Name::default()));
        let until = std::mem::replace(&mut self.0, later);
        until.range((first, Name::default())..).map(|(_, at)| *at).max()
    }
}

fn measure(
    servers: &mut Servers<'_>,
    observer: &mut Observer,
    gaps: &Receiver<Gap>,
    count: u32,
    pause: Duration,
) -> Result<Report, Failure> {
    let (mut failover, mut client) = (Distribution::new(), Distribution::new());
    let next = || {
        let gap = gaps.recv_timeout(ANSWER_TIMEOUT);
        gap.map_err(|_| Failure::Failed(format!("the client had no answer within {ANSWER_TIMEOUT:?}")))
    };
    // It reports its first success, too.
    next()?;
    let (mut actives, mut last) = (Actives::default(), None::<(Instant, ViewId)>);
    for n in 0..=count {
        let primary = servers.redundant()?;
        std::thread::sleep(pause);
        // By now all members have reported the failover before.
        actives.hear(observer);
        if let Some((killed, view)) = last.take()
            && let Some(active) = actives.take_last(view)
        {
            failover.add(active.since(killed));
        }
        if n == count {
            break;
        }
        // What came before is not news.
        while gaps.try_recv().is_ok() {}
        let killed = clock::now();
        servers.running[primary].end();
        // Another one may have reported late.
        let gap = loop {
            let gap = next()?;
            if gap.first > killed {
                break gap;
            }
        };
        // Its death is reported before it is over.
        servers.running[primary].reap()?;
        client.add(gap.first.since(gap.last));
        last = Some((killed, gap.view));
    }
    let (failover_us, client_us) = (failover.summary(), client.summary());
    let ratio = |of: f64, to: f64| of / to.max(0.001);
    Ok(Report {
        drill: "app",
        count: client.len(),
        ratio_p50: client_us.p50.zip(failover_us.p50).map(|(of, to)| ratio(of, to)),
        ratio_p99: client_us.p99.zip(failover_us.p99).map(|(of, to)| ratio(of, to)),
        failover_us,
        client_us,
    })
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
        endpoint.serve(&mut node, &AtomicBool::new(true));
        used
    };
    let client = std::thread::Builder::new().name("obol-kv-client".to_owned()).spawn(run);
    let client = client.map_err(Failure::failed)?;
    let report = measure(&mut servers, &mut observer, &gaps, count, pause);
    stop.store(true, Ordering::Relaxed);
    client.join().map_err(|_| Failure::Failed("the client panicked".to_owned()))??;
    report
}

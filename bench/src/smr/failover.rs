//! The outage of a client when the leader dies, beside that of the membership for the same deaths.

use obol_fabric::host::clock;
use obol_fabric::{Endpoint, Incarnation, Instant, Name, Nanos, ViewId};
use obol_node::Site;
use obol_observe::Observer;
use obol_observe::stats::Distribution;
use obol_replica::{ClientMember, Work};
use obol_server::smr::failure;
use obol_smr::{Client, KeyValue, Operation, Preset};
use obol_term::output::Failure;
use obol_workload::failovers::{self, Failovers, Gap};
use obol_workload::smr::replicas::Replicas;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

const KEY: &[u8] = b"key";
/// Between two kills, so that all members have reported the view before.
const PAUSE: Duration = Duration::from_millis(50);

/// A client with one write at a time.
struct Asking<'a> {
    tx: &'a Sender<Gap>,
    asked: bool,
    begun: u64,
    last: Option<(Instant, Incarnation)>,
    /// Who leads, and the view that said so first.
    named: Option<(Incarnation, ViewId)>,
}

impl Asking<'_> {
    /// The receiver may have seen enough, so that it is gone.
    fn report(&self, last: Instant, first: Instant, view: ViewId) {
        let _ = self.tx.send(Gap { last, first, view });
    }
}

impl Work for Asking<'_> {
    fn turn(&mut self, client: &mut Client, endpoint: &mut Endpoint) -> bool {
        if let Some(leader) = client.leader()
            && self.named.is_none_or(|(named, _)| named != leader)
        {
            self.named = Some((leader, client.view()));
        }
        if client.take().is_some() {
            self.asked = false;
            if let Some((leader, view)) = self.named {
                let now = clock::now();
                match self.last.replace((now, leader)) {
                    None => self.report(now, now, view),
                    Some((last, whose)) if whose != leader => self.report(last, now, view),
                    Some(_) => {}
                }
            }
        }
        if !self.asked && client.is_open() {
            self.begun += 1;
            let Ok(put) = KeyValue::put(KEY, &self.begun.to_le_bytes()) else { return true };
            self.asked = client.begin(clock::now(), Operation::Propose(put), endpoint).is_ok();
        }
        false
    }
}

/// The medians of both outages, in microseconds.
pub(super) struct Outages {
    pub(super) client: f64,
    pub(super) members: f64,
}

impl Outages {
    fn of(failovers: &Failovers) -> Result<Self, Failure> {
        let p50 = |of: &Distribution, whose: &str| {
            let few = || Failure::Failed(format!("too few failovers of {whose} for a median: {}", of.len()));
            of.summary().p50.ok_or_else(few)
        };
        Ok(Self {
            client: p50(&failovers.client, "the client")?,
            members: p50(&failovers.members, "the members")?,
        })
    }
}

/// Measures failovers of replicas that are started for it, with this preset.
pub(super) fn measure(
    root: &Path,
    site: &Arc<Site>,
    replicas: u32,
    count: u32,
    engine: Preset,
) -> Result<Outages, Failure> {
    let mut observer = Observer::open(root, site.cluster.name()).map_err(Failure::refused)?;
    let (voters, preset) = (replicas.to_string(), engine.to_string());
    let (of_first, of_all) = (["--voters", voters.as_str()], ["--preset", preset.as_str()]);
    let mut replicas = Replicas::start(root, site, replicas, "20us", &of_first, &of_all)?;
    replicas.redundant()?;
    let stop = AtomicBool::new(false);
    let (tx, gaps) = mpsc::channel();
    std::thread::scope(|scope| {
        let client = || -> Result<(), Failure> {
            let name = Name::new("smrc-bench").map_err(Failure::failed)?;
            let mut client = ClientMember::join(site, name, Nanos::from_micros(20)).map_err(failure)?;
            let mut asking = Asking { tx: &tx, asked: false, begun: 0, last: None, named: None };
            client.run(&mut asking, &stop).map_err(Failure::failed)
        };
        let client =
            std::thread::Builder::new().name("obol-smr-client".to_owned()).spawn_scoped(scope, client);
        let client = client.map_err(Failure::failed)?;
        let failovers =
            failovers::measure(&mut replicas, &mut observer, &gaps, count, PAUSE, engine.is_led_by_views());
        stop.store(true, Ordering::Relaxed);
        client.join().map_err(|_| Failure::Failed("the client panicked".to_owned()))??;
        Outages::of(&failovers?)
    })
}

//! Bytes that are proposed in the process of the leader, as in Mu's measurement of throughput (7.4):
//! what is measured is the replication, and not the way of requests to the leader.

use super::load::{Kind, Load, Measured};
use obol_fabric::{Endpoint, Name, Nanos};
use obol_node::Site;
use obol_replica::{LogState, Observer, Settings, Work};
use obol_server::smr::{Options, ServiceKind, serve};
use obol_smr::{Client, Preset, ReplicaState};
use obol_term::output::Failure;
use obol_workload::process::{POLL_INTERVAL, SERVE_TIMEOUT};
use obol_workload::smr::replicas::{self, Replicas};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A leader that proposes, once all replicas have everything.
struct Proposer<'a> {
    load: Load,
    replicas: usize,
    time: Duration,
    begun: Option<Instant>,
    took: Duration,
    /// Receives it when it leads.
    leads: Option<mpsc::Sender<()>>,
    stop: &'a AtomicBool,
}

impl Observer for Proposer<'_> {
    fn needs_client(&self) -> bool {
        true
    }

    fn changed(&mut self, state: ReplicaState, _: LogState) {
        let ReplicaState::Leading { ready: true, redundancy } = state else { return };
        if let Some(leads) = self.leads.take() {
            // The thread that waits for it may have given up.
            let _ = leads.send(());
        }
        if self.begun.is_none() && redundancy == self.replicas {
            let now = Instant::now();
            self.load.until = now + self.time;
            self.begun = Some(now);
        }
    }

    fn work(&mut self, client: &mut Client, endpoint: &mut Endpoint) {
        let Some(begun) = self.begun else { return };
        if self.load.turn(client, endpoint) && !self.stop.swap(true, Ordering::Relaxed) {
            self.took = begun.elapsed();
        }
        client.look_soon();
    }
}

/// The replicas that commands are proposed to.
#[derive(Clone, Copy)]
pub(super) struct Group<'a> {
    pub(super) count: u32,
    /// As their option `--poll-every` has it.
    pub(super) poll_every: &'a str,
    pub(super) preset: Preset,
}

/// Measures the longest commands, proposed beside the first replica of a group.
pub(super) fn measure(
    root: &Path,
    site: &Arc<Site>,
    group: Group<'_>,
    poll_interval: Nanos,
    time: Duration,
) -> Result<Measured, Failure> {
    let Group { count, poll_every, preset } = group;
    let name = Name::new(&replicas::name(0)).map_err(Failure::failed)?;
    let settings = Settings {
        name,
        voters: count,
        unreplicated: false,
        force_empty: true,
        temporary: true,
        poll_every: poll_interval,
    };
    let (service, resp, memory_max, json) = (ServiceKind::Keys, None, None, false);
    let options = Options { service, preset, settings, resp, memory_max, json };
    let stop = AtomicBool::new(false);
    let (tx, leads) = mpsc::channel();
    let mut proposer = Proposer {
        load: Load::of(Kind::Bytes, Instant::now() + SERVE_TIMEOUT)?,
        replicas: count as usize,
        time,
        begun: None,
        took: Duration::ZERO,
        leads: Some(tx),
        stop: &stop,
    };
    std::thread::scope(|scope| {
        let serve = || serve(site, &options, &stop, &mut proposer);
        let leader =
            std::thread::Builder::new().name("obol-smr-leader".to_owned()).spawn_scoped(scope, serve);
        let leader = leader.map_err(Failure::failed)?;
        let others = leads.recv_timeout(SERVE_TIMEOUT).map_err(|_| {
            Failure::Failed(format!("the replica of this process does not lead within {SERVE_TIMEOUT:?}"))
        });
        let preset = preset.to_string();
        let of_all = ["--preset", preset.as_str()];
        let others = others.and_then(|()| Replicas::behind(root, site, count, poll_every, &of_all));
        let end = Instant::now() + SERVE_TIMEOUT + time;
        while others.is_ok() && !stop.load(Ordering::Relaxed) && Instant::now() < end {
            std::thread::sleep(POLL_INTERVAL);
        }
        stop.store(true, Ordering::Relaxed);
        let served = leader.join().map_err(|_| Failure::Failed("the leader panicked".to_owned()))?;
        drop(others?);
        served
    })?;
    let Proposer { load, took, .. } = proposer;
    if load.times.is_empty() || took.is_zero() {
        return Err(Failure::Failed(format!("no answer within {time:?}; measure for longer: --for")));
    }
    Ok(Measured { kind: Kind::Bytes, per_s: load.times.len() as f64 / took.as_secs_f64(), times: load.times })
}

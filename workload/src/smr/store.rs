//! A store of replicas and clients that a command starts, and faults of one replica at a time.

use super::replicas::{self, Replicas};
use crate::history::Clients;
use crate::process::SERVE_TIMEOUT;
use nix::sys::signal::Signal;
use obol_chaos::drills::studies::engines::{Fault, Victim};
use obol_fabric::host::{Cluster, Impairment};
use obol_node::Site;
use obol_observe::Observer;
use obol_term::output::Failure;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Interval of looks at the cluster.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// A store is settled that has the same leader and everything at all replicas for this time.
const SETTLED: Duration = Duration::from_millis(100);
/// An island of its own, so that a replica reaches no one else.
const ISLAND: u8 = 1;

/// What has to be undone to end a fault.
pub enum Lasting {
    /// It is to be started again.
    Killed,
    /// It is to be continued.
    Frozen,
    /// Its links are to be mended.
    Cut {
        /// Where it runs.
        cluster: Cluster,
        region: u32,
        /// The region's generation; a successor's links are not impaired.
        generation: u32,
    },
}

/// The replicas of a store with its clients.
pub struct Store<'a> {
    /// The cluster.
    pub site: &'a Site,
    pub replicas: Replicas<'a>,
    /// How many of them there are.
    pub count: usize,
    /// Clients whose answers are checked.
    pub clients: Clients,
    /// Reads the cluster.
    pub observer: Observer,
    /// Set when the operator ends the command.
    pub stop: &'a AtomicBool,
}

impl Store<'_> {
    /// Which replica is hit while this one leads.
    pub const fn victim(&self, leader: usize, which: Victim) -> usize {
        match which {
            Victim::Leader => leader,
            Victim::Follower => (leader + 1) % self.count,
        }
    }

    /// Begins a fault.
    pub fn inject(&mut self, victim: usize, fault: Fault) -> Result<Lasting, Failure> {
        match fault {
            Fault::Kill => self.replicas.end(victim).map(|()| Lasting::Killed),
            Fault::Freeze => self.replicas.signal(victim, Signal::SIGSTOP).map(|()| Lasting::Frozen),
            Fault::Cut => {
                let name = replicas::name(victim);
                let cluster = self.site.cluster.clone();
                let snapshot = self.observer.snapshot();
                let process = snapshot.processes.iter().find(|p| p.alive && p.name.as_str() == name);
                let info = process.and_then(|process| cluster.region_info(process.region));
                let info = info.ok_or_else(|| Failure::Failed(format!("{name} has no links")))?;
                let (region, generation) = (info.number, info.generation);
                let cut = Impairment { island: ISLAND, ..Impairment::default() };
                if !cluster.impair(region, generation, cut) {
                    return Err(Failure::Failed(format!("{name} has ended by itself")));
                }
                Ok(Lasting::Cut { cluster, region, generation })
            }
        }
    }

    /// Ends a fault.
    pub fn lift(&mut self, victim: usize, lasting: Lasting) -> Result<(), Failure> {
        match lasting {
            Lasting::Killed => self.replicas.restart(victim),
            Lasting::Frozen => self.replicas.signal(victim, Signal::SIGCONT),
            Lasting::Cut { cluster, region, generation } => {
                // A successor's links are not impaired.
                cluster.impair(region, generation, Impairment::default());
                Ok(())
            }
        }
    }

    /// Waits until all replicas are members, vote and have everything, and the same one leads for a
    /// while. `None` if the operator stopped it.
    pub fn settled(&mut self) -> Result<Option<usize>, Failure> {
        let mut since: Option<(usize, Instant)> = None;
        let settled = self.until("the store is not redundant", |store| {
            let leader = store.replicas.redundant_leader().filter(|_| store.all_are_members());
            since = match (leader, since) {
                (Some(leader), Some((before, from))) if leader == before => Some((leader, from)),
                (leader, _) => leader.map(|leader| (leader, Instant::now())),
            };
            since.is_some_and(|(_, from)| from.elapsed() >= SETTLED)
        });
        Ok(if settled? { since.map(|(leader, _)| leader) } else { None })
    }

    fn all_are_members(&mut self) -> bool {
        let snapshot = self.observer.snapshot();
        (0..self.count).all(|place| {
            let name = replicas::name(place);
            let mut named = snapshot.processes.iter().filter(|process| process.name.as_str() == name);
            named.any(|process| process.alive && !process.frozen && snapshot.is_member(process))
        })
    }

    /// Waits for something; `false` if the operator stopped it.
    pub fn until(&mut self, missing: &str, mut is: impl FnMut(&mut Self) -> bool) -> Result<bool, Failure> {
        let end = Instant::now() + SERVE_TIMEOUT;
        while !is(self) {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            if self.clients.has_ended() {
                return Err(Failure::Failed("a client has ended by itself".to_owned()));
            }
            if Instant::now() > end {
                let stand = self.replicas.stand();
                return Err(Failure::Failed(format!("{missing} within {SERVE_TIMEOUT:?}: {stand}")));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(!self.stop.load(Ordering::Relaxed))
    }
}

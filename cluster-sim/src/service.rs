//! What tests of a service share whose machines are members of a cluster: a timing and a network under
//! which leases, failures and stalls follow each other within microseconds, and a run in which clients
//! work while faults come.

use crate::{Cluster, ClusterMachine};
use obol_fabric::{Limits, Nanos};
use obol_fabric_sim::{Delay, Network};
use obol_membership::Timing;
use obol_rng::Rng;
use std::ops::{Range, RangeInclusive};

/// Coordinators 1 to 3, at the first nodes.
pub const COORDINATORS: u32 = 3;
pub const LEASE: Nanos = Nanos::from_micros(120);
/// How often servers and clients poll.
pub const POLL_EVERY: Nanos = Nanos::from_micros(4);
/// How long clients work while there are faults.
pub const FAULTS_LAST: u64 = 3_000_000;
/// No fault comes this long after clients have begun, and before the end of faults.
const CALM: u64 = 200_000;
/// A process that was frozen or cut off may still be removed this long after its recovery.
pub const AFTERMATH: u64 = 600_000;
/// A client's operations; a checker's run time grows fast with a history's length.
pub const OPERATIONS_MAX: u32 = 60;
/// The longest pause of a client between two operations.
pub const THINK: u64 = 100_000;
/// A client repeats a request without an answer after this time, and then up to 32 times as late.
pub const AGAIN_EVERY: Nanos = Nanos::from_micros(300);
pub const AGAIN_EVERY_MAX: Nanos = Nanos(32 * AGAIN_EVERY.0);
/// The faults of [`ServiceRun::inject_into`]: death, freeze, cut off from the coordinators in both
/// directions or in one, death after a cut.
pub const FAULTS: u64 = 5;
/// Those that are over when the victim may still be removed.
pub const LINGERING: RangeInclusive<u64> = 1..=3;
/// Time between two looks whether the service is as expected.
const LOOK: u64 = 20_000;

/// Small regions; a service sets the size of values.
pub const LIMITS: Limits = Limits {
    slots: 8,
    proposers: COORDINATORS,
    lanes: 16,
    lane_slots: 64,
    datagram_bytes: 4096,
    ..Limits::LEAST
};

pub fn timing(fencing: bool) -> Timing {
    Timing {
        lease: LEASE,
        lease_max: LEASE,
        lease_calm: Nanos::from_secs(1),
        renew_every: Nanos::from_micros(30),
        renew_timeout: Nanos::from_micros(60),
        cache_lease: LEASE,
        cache_timeout: Nanos::from_micros(40),
        fan_out_from: u32::MAX,
        drift_ppm: 100,
        fencing,
        heartbeat_every: Nanos::from_micros(20),
        heartbeat_period: Nanos::from_micros(200),
        heartbeat_confirm: 2,
        link_every: Nanos::from_micros(250),
        link_timeout: Nanos::from_millis(1),
        notice_every: Nanos::from_micros(50),
        join_every: Nanos::from_micros(200),
        join_burst: 1,
        standby: Nanos::from_millis(2),
        poll_every: Nanos::from_micros(50),
        backoff_max: Nanos::from_micros(10),
        resync_after: Nanos::from_millis(20),
        ..Timing::default()
    }
}

pub fn network() -> Network {
    Network {
        one_way: Delay::new(800, 600),
        tear: Delay::new(10, 300),
        loss_permille: 10,
        duplicate_permille: 10,
        // Long enough for a frozen process's lease to be fenced, short enough for it to resume what
        // it had begun.
        stall_permille: 10,
        stall: Delay::new(5_000, 20_000),
        link_timeout: Delay::new(100_000, 50_000),
        record: false,
        count: false,
        ..Network::default()
    }
}

/// A run of a service: clients work while faults come. An error describes the violation.
pub trait ServiceRun {
    type Machine: ClusterMachine;

    fn cluster(&mut self) -> &mut Cluster<Self::Machine>;

    /// Draws what the driver does, independently of the network.
    fn rng(&mut self) -> &mut Rng;

    /// The nodes whose clients work.
    fn clients(&self) -> Range<u32>;

    /// Whether a client waits for an answer.
    fn waits(&self, client: u32) -> bool;

    /// What a node runs in its next life.
    fn machine(&mut self, node: u32) -> Self::Machine;

    /// Executes one event, and checks what must hold. False if no event is left.
    fn step(&mut self) -> Result<bool, String>;

    /// Takes a client's answer, and begins its next operation.
    fn work(&mut self, client: u32) -> Result<(), String>;

    fn now(&mut self) -> u64 {
        self.cluster().now()
    }

    /// Runs until a time. Clients begin nothing.
    fn run_until(&mut self, end: u64) -> Result<(), String> {
        while self.now() < end && self.step()? {}
        Ok(())
    }

    /// Lets clients work until a time.
    fn work_until(&mut self, end: u64) -> Result<(), String> {
        while self.now() < end {
            for client in self.clients() {
                self.work(client)?;
            }
            if !self.step()? {
                break;
            }
        }
        Ok(())
    }

    /// Lets clients work for a while, drawn.
    fn pause(&mut self, longest: u64) -> Result<(), String> {
        let end = self.now() + longest / 4 + self.rng().below(longest);
        self.work_until(end)
    }

    /// Lets clients work until something is so; `None` if that takes longer.
    fn work_until_found<T>(
        &mut self,
        within: u64,
        find: impl Fn(&Self) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let deadline = self.now() + within;
        loop {
            if let Some(found) = find(self) {
                return Ok(Some(found));
            }
            if self.now() > deadline {
                return Ok(None);
            }
            let soon = self.now() + LOOK;
            self.work_until(soon)?;
        }
    }

    /// Runs until all clients have their answers, which includes the longest retry interval: the
    /// client that has none.
    fn unanswered(&mut self) -> Result<Option<u32>, String> {
        let end = self.now() + 2 * AGAIN_EVERY_MAX.0;
        while let Some(client) = self.clients().find(|client| self.waits(*client)) {
            let now = self.now();
            if now >= end {
                return Ok(Some(client));
            }
            self.work_until(now + AGAIN_EVERY.0)?;
        }
        Ok(None)
    }

    /// The times of this many faults from now on.
    fn fault_times(&mut self, count: u32) -> Vec<u64> {
        let begun = self.now() + CALM;
        let mut times: Vec<u64> =
            (0..count).map(|_| begun + self.rng().below(FAULTS_LAST - 2 * CALM)).collect();
        times.sort_unstable();
        times
    }

    /// Cuts nodes off from the coordinators, and mostly a client with them, which then knows no newer
    /// view.
    fn cut_off(&mut self, victims: &Range<u32>, clients: &Range<u32>, both_ways: bool) {
        let client = clients.start + self.rng().below(u64::from(clients.end - clients.start)) as u32;
        let with_client = self.rng().permille(700);
        let cluster = self.cluster();
        for coordinator in 0..COORDINATORS {
            for node in victims.clone().chain(with_client.then_some(client)) {
                cluster.partition(coordinator, node);
                if both_ways {
                    cluster.partition(node, coordinator);
                }
            }
        }
    }

    /// Injects one of [`FAULTS`] into servers.
    fn inject_into(
        &mut self,
        fault: u64,
        victims: Range<u32>,
        servers: Range<u32>,
        clients: Range<u32>,
    ) -> Result<(), String> {
        match fault {
            0 => victims.for_each(|victim| self.cluster().kill(victim)),
            1 => {
                victims.clone().for_each(|victim| self.cluster().freeze(victim));
                // It resumes what it had begun, before or after the others notice.
                self.pause(900_000)?;
                victims.for_each(|victim| self.cluster().thaw(victim));
            }
            2 => {
                self.cut_off(&victims, &clients, true);
                self.pause(900_000)?;
            }
            // It receives nothing but can send: the view without it is decided while its lease
            // runs.
            3 => {
                self.cut_off(&victims, &clients, false);
                victims.for_each(|victim| self.cluster().suspect(victim, 0));
                self.pause(600_000)?;
            }
            // What is not replicated dies with it. A longer cut would be a fault of its own.
            _ => {
                for victim in victims.clone() {
                    for server in servers.clone().filter(|server| !victims.contains(server)) {
                        self.cluster().cut_link(victim, server);
                    }
                }
                self.pause(70_000)?;
                victims.for_each(|victim| self.cluster().kill(victim));
            }
        }
        Ok(())
    }

    /// Starts a node's next life, without the memory of the one before.
    fn restart(&mut self, node: u32) {
        let machine = self.machine(node);
        self.cluster().restart(node, machine, false);
    }

    /// Restores all links, resumes what is frozen, and restarts what has died. Coordinators have no
    /// such faults.
    fn end_faults(&mut self) {
        self.cluster().heal_all();
        for node in COORDINATORS..self.cluster().len() {
            self.cluster().thaw(node);
            if self.cluster().is_dead(node) {
                self.restart(node);
            }
        }
    }
}

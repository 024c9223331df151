//! The coordinator daemon: a [`Coordinator`] machine driven over shared memory.
//!
//! Its region is the acceptor's memory and outlives the process, so a restarted coordinator goes on where its
//! predecessor stopped. Everything else it knows it learns again.

mod operator;

pub use operator::Operator;

use obol_fabric::shm::{Endpoint, Owner, ShmError, clock};
use obol_fabric::{Drive, Group, Instant, Name, Nanos};
use obol_membership::{Coordinator, Kind};
use obol_profiles::{Deployment, Site};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

/// Why a coordinator does not run.
#[derive(Debug)]
pub enum CoordinatorError {
    /// The cluster has no coordinator of this number.
    NoSuchNumber {
        /// The number that was asked for.
        number: u16,
        /// The largest that works: `limits.proposers`.
        limit: u32,
    },
    /// Its memory can not be had.
    Fabric(ShmError),
}

impl fmt::Display for CoordinatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchNumber { number, limit } => {
                write!(f, "there is no coordinator {number}: the cluster's limits.proposers is {limit}")
            }
            Self::Fabric(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CoordinatorError {}

impl From<ShmError> for CoordinatorError {
    fn from(error: ShmError) -> Self {
        Self::Fabric(error)
    }
}

/// A coordinator that wants to leave waits so long for the view without it; then it just ends, and counts as failed.
const LEAVE_TIMEOUT: Nanos = Nanos::from_secs(1);

/// Runs coordinator `number` (from 1) on this thread until `stop` is set; then it leaves. `seed` must differ between
/// lives. `begun` is called once, when peers can use the endpoint.
pub fn run(
    site: &Site,
    number: u16,
    seed: u64,
    stop: &AtomicBool,
    begun: impl FnOnce(&Endpoint),
) -> Result<(), CoordinatorError> {
    let limit = site.deployment.profile.limits.proposers;
    if number == 0 || u32::from(number) > limit {
        return Err(CoordinatorError::NoSuchNumber { number, limit });
    }
    let (name, address): (Name, _) = Deployment::coordinator(number);
    let owner = Owner {
        kind: Kind::Coordinator as u32,
        name,
        region: Some(address.region),
        groups: Group::Coordinators.bit() | Group::Everyone.bit(),
    };
    let profile = &site.deployment.profile;
    let mut endpoint = Endpoint::open(&site.cluster, owner, profile.wait)?;
    endpoint.beat_every(profile.timing.heartbeat_every);
    begun(&endpoint);
    let mut machine = Coordinator::new(site.config, number, site.newest(), seed);
    let done = AtomicBool::new(false);
    let mut end = Instant::NEVER;
    endpoint.run(&mut machine, &done, |machine, endpoint| {
        if !stop.load(Ordering::Relaxed) {
            return;
        }
        if end == Instant::NEVER {
            end = clock::now() + LEAVE_TIMEOUT;
            machine.leave(clock::now(), endpoint);
        }
        done.store(machine.has_left() || end <= clock::now(), Ordering::Relaxed);
    });
    Ok(())
}

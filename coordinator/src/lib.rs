//! The coordinator daemon: a [`Coordinator`](obol_membership::Coordinator) machine driven over its
//! cluster's fabric.
//!
//! Its region is the acceptor's memory and outlives the process, so a restarted coordinator
//! continues where its predecessor stopped. It learns everything else again.

mod operator;
mod saver;

pub use operator::Operator;
pub use saver::{Saver, save};

use obol_fabric::Endpoint;
use obol_membership::view::coordinator_name;
use obol_node::Site;
use obol_node::endpoint::{self, EndpointError};
use obol_node::service::ServiceManager;
use std::sync::atomic::AtomicBool;

/// Why a coordinator does not run.
#[derive(Debug, thiserror::Error)]
pub enum CoordinatorError {
    /// The cluster has no coordinator with this number.
    #[error("there is no coordinator {number}: the cluster's limits.proposers is {limit}")]
    NoSuchNumber {
        /// The requested number.
        number: u16,
        /// The maximum: `limits.proposers`.
        limit: u32,
    },
    /// It could not open its place in the cluster.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
}

/// Runs coordinator `number` (from 1) on this thread until `stop` is set; then it leaves. If a
/// recovery has retired it, it ends with that as the error. `seed` must differ between lives.
/// `begun` is called once, when peers can use the endpoint; `manager` learns of it after the first
/// turn.
pub fn run(
    site: &Site,
    number: u16,
    seed: u64,
    stop: &AtomicBool,
    manager: &mut ServiceManager,
    begun: impl FnOnce(&Endpoint),
) -> Result<(), CoordinatorError> {
    let limit = site.deployment.profile.limits.proposers;
    if number == 0 || u32::from(number) > limit {
        return Err(CoordinatorError::NoSuchNumber { number, limit });
    }
    let mut endpoint = site.coordinator(number)?;
    begun(&endpoint);
    let mut machine = site.start(seed)?.coordinator(number);
    endpoint::serve_under(manager, &mut endpoint, &mut machine, stop);
    if machine.is_retired() {
        return Err(EndpointError::Retired { number, view: machine.view().id }.into());
    }
    Ok(EndpointError::refused(coordinator_name(number), &machine)?)
}

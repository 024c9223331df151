//! The targets are cut off from the others.

use super::fault::{Effect, Simulated};
use super::host_network::{self, Impact};
use super::links::LinkFault;
use super::order::{Direction, Links};

/// The fault.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Partition;

impl LinkFault for Partition {
    const NAME: &'static str = "partition";
    const EFFECT: Effect = Effect::Unreachable;

    fn between_hosts(&self) -> Option<Impact> {
        Some(Impact::Lost(host_network::ALL))
    }

    fn links(&self, island: u8) -> Option<Links> {
        Some(Links { island, ..Links::default() })
    }

    fn simulated(&self, direction: Direction) -> Option<Simulated> {
        Some(Simulated::Partition(direction))
    }
}

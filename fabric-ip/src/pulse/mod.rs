//! Pulse: the failure detector between hosts, after FiDe (Rovelli et al., ATC 2025), for ordinary
//! networks. Each host sends one frame per period to each other one, on one to
//! [`PATHS_MAX`] paths, for all of its processes.
//!
//! [`Sender`], [`Numbers`] and [`Receiver`] are machines: they take frames and the clock, and return
//! frames and [`Finding`]s. [`Turn`] is the order in which a host uses them. Sockets, keys and threads
//! are elsewhere (`gateway`), and nothing here depends on them, so that simulations run the same
//! code.
//!
//! A pulse only *suspects*. That a host is silent is never a proof of death: its processes may run
//! on, and are fenced, or their leases waited out, before others act.

mod frame;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;
mod turn;

pub use frame::{Death, Frame, FrameKind, PLAIN_BYTES_MAX, PLAIN_BYTES_MIN};
pub use receiver::{Bug, Finding, PathState, Receiver};
pub use sender::{Numbers, Sender};
pub use turn::{Presence, Turn};

use obol_fabric::types::Nanos;

/// The most paths between two hosts.
pub const PATHS_MAX: usize = 4;
/// The most deaths in one frame; further ones follow in the next.
pub const DEATHS_MAX: usize = 16;
/// The number of pulses that repeat a death after its notice, so that a lost notice is not missed.
pub const DEATH_REPEATS: u32 = 8;
/// A path is lost when others have delivered this many newer pulses since it last delivered any: one
/// lost packet raises no alarm, and the alarm comes within three periods.
pub const PATH_BEHIND: u64 = 3;
/// A lost path is back after this many pulses without a gap.
pub const PATH_BACK_AFTER: u32 = 8;
/// The shortest period: what a thread of an ordinary kernel can keep.
pub const PERIOD_MIN: Nanos = Nanos::from_micros(50);
/// The longest period.
pub const PERIOD_MAX: Nanos = Nanos::from_secs(1);
/// The shortest timeout in periods, so that one lost pulse causes no suspicion: the pulse after it
/// arrives two periods after the one before it.
pub const TIMEOUT_PERIODS_MIN: u64 = 3;

/// The longest time between two turns of a host, if the period is longer.
pub const TURN_EVERY: Nanos = Nanos::from_millis(10);
/// A host that has missed more turns than this was away itself.
pub const TURNS_MISSED_MAX: u64 = 3;

/// How pulses are sent and judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    /// Between two pulses.
    pub period: Nanos,
    /// A host from which no new pulse has arrived for this long, by any path, is suspected.
    pub timeout: Nanos,
}

impl Timing {
    /// A host that had no turn for longer was away itself.
    pub fn away(&self) -> Nanos {
        self.period.min(TURN_EVERY).saturating_mul(TURNS_MISSED_MAX + 1)
    }
}

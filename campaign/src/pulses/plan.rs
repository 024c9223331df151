//! How the hosts of a cluster exchange pulses, as drawn from a seed.

use obol_fabric::Nanos;
use obol_fabric_ip::pulse::{TIMEOUT_PERIODS_MIN, Timing};
use obol_fabric_sim::Delay;
use obol_rng::Rng;

/// Clusters (per mille) whose hosts exchange pulses.
const SHARE_PERMILLE: u32 = 120;
/// Clusters with a single path, per mille of those with pulses.
const ONE_PATH_PERMILLE: u32 = 150;
/// Bits of pulses' numbers beyond which some hosts' numbers go.
const NUMBER_BITS: [u32; 2] = [16, 32];
/// The first pulse comes at most this many pulses before such a wrap.
const BEFORE_WRAP: u64 = 150;

/// How hosts exchange pulses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PulsePlan {
    pub hosts: u32,
    /// Paths between two hosts.
    pub paths: usize,
    pub timing: Timing,
    /// The one-way delay of a frame.
    pub one_way: Delay,
    /// Frames that are lost on a path, in a thousand, while faults last.
    pub loss_permille: u32,
    /// Frames that each host has sent before the run.
    pub sent: u64,
}

impl PulsePlan {
    /// Most clusters exchange none.
    pub(crate) fn draw(seed: u64, lease: u64) -> Option<Self> {
        let mut rng = Rng::new(seed ^ 0x9015_e500_0000_0000);
        if !rng.permille(SHARE_PERMILLE) {
            return None;
        }
        let hosts = 2 + rng.below(3) as u32;
        let paths = if rng.permille(ONE_PATH_PERMILLE) { 1 } else { 2 + rng.below(2) as usize };
        let period = lease / 4 + rng.below(lease / 2);
        let timeout = period * (TIMEOUT_PERIODS_MIN + rng.below(4));
        let loss_permille = if rng.coin() { 0 } else { rng.below(150) as u32 };
        let bits = NUMBER_BITS[rng.below(NUMBER_BITS.len() as u64) as usize];
        let before = (1u64 << bits) - rng.below(BEFORE_WRAP);
        Some(Self {
            hosts,
            paths,
            timing: Timing { period: Nanos(period), timeout: Nanos(timeout) },
            // Jitter has a tail of some twenty times its size, which stays below a period.
            one_way: Delay::new(period / 40 + rng.below(period / 4), period / 40),
            loss_permille,
            sent: if rng.coin() { 0 } else { before },
        })
    }

    /// The host of a node.
    pub const fn host_of(&self, node: u32) -> u32 {
        node % self.hosts
    }

    /// The longest one-way time of a frame that nothing delays.
    pub(crate) const fn way_max(&self) -> u64 {
        self.one_way.min.0 + TAIL * self.one_way.jitter.0
    }
}

/// Multiples of its jitter by which a delay exceeds its minimum, at most ([`Delay::jitter`]).
const TAIL: u64 = 21;

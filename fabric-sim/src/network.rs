//! The parameters of a simulated cluster: durations and rates of faults, in true time.

use obol_fabric::types::Nanos;
use obol_rng::Rng;

/// A distribution of delays with a floor and a tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Delay {
    /// The minimum delay.
    pub min: Nanos,
    /// Half of the draws add less than this; each further multiple of it is half as likely (a
    /// discrete exponential tail without floating point, which differs between platforms).
    pub jitter: Nanos,
}

impl Delay {
    /// A delay in nanoseconds.
    pub const fn new(min: u64, jitter: u64) -> Self {
        Self { min: Nanos(min), jitter: Nanos(jitter) }
    }

    /// A delay that is always the same.
    pub const fn fixed(nanos: u64) -> Self {
        Self::new(nanos, 0)
    }

    /// One draw, in nanoseconds.
    #[inline]
    pub const fn draw(&self, rng: &mut Rng) -> u64 {
        let jitter = self.jitter.0;
        if jitter == 0 {
            return self.min.0;
        }
        let bits = rng.next_u64();
        // The low bits select the multiple, the high ones the position within it.
        let multiple = (bits | 1 << 20).trailing_zeros() as u64;
        let within = (((bits >> 32) as u128 * jitter as u128) >> 32) as u64;
        self.min.0.saturating_add(jitter.saturating_mul(multiple)).saturating_add(within)
    }
}

/// The model of everything but the machines. The default is a quiet RDMA fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    /// One way of an operation, a completion or a datagram.
    pub one_way: Delay,
    /// One way of a multicast datagram, to each receiver.
    pub multicast: Delay,
    /// One way of an operation on the own region.
    pub loopback: Delay,
    /// Added for each KiB that is carried.
    pub per_kib: Nanos,
    /// Between the two halves of a READ or WRITE of more than 8 bytes.
    pub tear: Delay,
    /// Datagrams lost, for each receiver, in a thousand.
    pub loss_permille: u32,
    /// Multicast datagrams lost on top of that, for each receiver, in a thousand: a broken
    /// multicast tree.
    pub multicast_loss_permille: u32,
    /// Datagrams that arrive twice, for each receiver, in a thousand.
    pub duplicate_permille: u32,
    /// From a death to its suspicion at a watcher.
    pub notice: Delay,
    /// From a suspicion to the proof.
    pub proof: Delay,
    /// Suspicions that never arrive, for each watcher, in a thousand.
    pub notice_loss_permille: u32,
    /// Proofs that never arrive, for each watcher, in a thousand.
    pub proof_loss_permille: u32,
    /// The timeout of an operation whose target is dead or does not answer.
    pub link_timeout: Delay,
    /// The time to handle one event. Posts leave at its end.
    pub step: Delay,
    /// The time of an idle node to wake up for an event or a timer.
    pub wake_up: Delay,
    /// Steps delayed between reading the clock and posting (a preemption), per thousand.
    pub stall_permille: u32,
    /// The delay of such a step.
    pub stall: Delay,
    /// From the post of a change of permissions until it is in force.
    pub permit: Delay,
    /// Between a program in a seat and the owner of the region, each way.
    pub seat: Delay,
    /// The retry interval of a program's unanswered request.
    pub ask_every: Delay,
    /// When an excluded program asks to rejoin; `None` if it does not.
    pub rejoin: Option<Delay>,
    /// The maximum interval between increments of a running process's heartbeat; zero for only at
    /// its steps.
    pub heartbeat_every: Nanos,
    /// Whether the memory of a dead process answers operations on the seats of its programs that live,
    /// as over shared memory and over gateways.
    pub pages_outlive: bool,
    /// Whether flight recorders are written.
    pub record: bool,
    /// Whether counters and histograms are written.
    pub count: bool,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            one_way: Delay::new(800, 60),
            multicast: Delay::new(900, 80),
            loopback: Delay::new(100, 20),
            per_kib: Nanos(80),
            tear: Delay::new(10, 50),
            loss_permille: 0,
            multicast_loss_permille: 0,
            duplicate_permille: 0,
            notice: Delay::new(8_000, 1_500),
            proof: Delay::new(5_000, 3_000),
            notice_loss_permille: 0,
            proof_loss_permille: 0,
            link_timeout: Delay::new(100_000, 50_000),
            step: Delay::new(120, 40),
            wake_up: Delay::new(150, 100),
            stall_permille: 0,
            stall: Delay::new(5_000, 20_000),
            // Mu (OSDI 2020), 7.3: two changes take 244 us on average, and 294 at p99.
            permit: Delay::new(118_000, 4_000),
            seat: Delay::new(200, 200),
            ask_every: Delay::new(500_000, 100_000),
            rejoin: Some(Delay::new(50_000, 50_000)),
            heartbeat_every: Nanos(10_000),
            pages_outlive: false,
            record: true,
            count: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_draws_stay_within_one_jitter_and_some_go_far() {
        let (delay, mut rng) = (Delay::new(100, 10), Rng::new(3));
        let draws: Vec<u64> = (0..10_000).map(|_| delay.draw(&mut rng)).collect();
        assert!(draws.iter().all(|&d| d >= 100));
        let near = draws.iter().filter(|&&d| d < 110).count();
        assert!((4_700..5_300).contains(&near), "{near}");
        assert!(draws.iter().any(|&d| d > 170));
        assert_eq!(Delay::fixed(5).draw(&mut rng), 5);
    }
}

/// Counts of the fabric's adverse behaviour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdverseEvents {
    /// Datagrams lost on the way to one receiver.
    pub lost: u64,
    /// Datagrams that arrived twice.
    pub doubled: u64,
    /// Receivers that a multicast missed.
    pub multicasts_lost: u64,
    /// Lost suspicions of a death.
    pub notices_lost: u64,
    /// Lost proofs of a death.
    pub proofs_lost: u64,
    /// Turns of a machine that took much longer than usual.
    pub stalls: u64,
    /// Links broken by a timeout.
    pub timeouts: u64,
    /// Operations whose two halves were executed at different times.
    pub torn: u64,
}

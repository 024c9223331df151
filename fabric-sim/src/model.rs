//! A calibrated fabric: the durations of posting, transport, execution and detection on a given
//! testbed, as measured distributions. LogGP with the parameters of DARE (HPDC 2015, section 2.3):
//! overhead `o` of the processor for each post, latency `L`, gap per byte `G`; in addition, the
//! throughput of a NIC.
//!
//! A world without a model draws from its [`Network`](super::Network) alone, which is adverse
//! rather than realistic. The two are independent: see
//! [`World::calibrate`](super::World::calibrate).

use super::link::Verb;
use obol_fabric::types::Nanos;
use obol_rng::Rng;

/// The unit of quantiles is a billionth.
pub const BILLION: u32 = 1_000_000_000;

/// A distribution of durations by its inverse: points `(quantile in billionths, duration)` from 0
/// to [`BILLION`], linear in between. No floating point, which differs between platforms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantiles(Vec<(u32, Nanos)>);

/// Why points do not make a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantilesError {
    /// The quantiles must span 0 to 1.
    #[error("the first quantile must be 0 and the last one 1")]
    Ends,
    /// Quantiles must increase from point to point, and durations must not decrease: this point
    /// violates that.
    #[error("point {} must have a higher quantile than the one before, and no shorter duration", .0 + 1)]
    Order(usize),
}

impl Default for Quantiles {
    fn default() -> Self {
        Self::fixed(Nanos::ZERO)
    }
}

impl Quantiles {
    /// The distribution through these points.
    pub fn new(points: Vec<(u32, Nanos)>) -> Result<Self, QuantilesError> {
        let ends = points.first().is_some_and(|p| p.0 == 0) && points.last().is_some_and(|p| p.0 == BILLION);
        if !ends {
            return Err(QuantilesError::Ends);
        }
        match points.windows(2).position(|pair| pair[0].0 >= pair[1].0 || pair[0].1 > pair[1].1) {
            Some(at) => Err(QuantilesError::Order(at + 1)),
            None => Ok(Self(points)),
        }
    }

    /// A constant.
    pub fn fixed(span: Nanos) -> Self {
        Self(vec![(0, span), (BILLION, span)])
    }

    pub fn points(&self) -> &[(u32, Nanos)] {
        &self.0
    }

    /// The duration at a quantile in billionths, at most [`BILLION`].
    pub fn at(&self, billionths: u32) -> Nanos {
        let after = self.0.partition_point(|point| point.0 < billionths);
        let (Some(low), Some(high)) = (self.0.get(after.saturating_sub(1)), self.0.get(after)) else {
            return self.0.last().map_or(Nanos::ZERO, |point| point.1);
        };
        if high.0 <= low.0 {
            return high.1;
        }
        let (part, whole) = (u128::from(billionths - low.0), u128::from(high.0 - low.0));
        Nanos(low.1.0 + (u128::from(high.1.0 - low.1.0) * part / whole) as u64)
    }

    pub fn median(&self) -> Nanos {
        self.at(BILLION / 2)
    }

    /// The mean; that of each linear piece is its middle.
    pub fn mean(&self) -> Nanos {
        let pieces = self.0.windows(2).map(|pair| {
            u128::from(pair[1].0 - pair[0].0) * (u128::from(pair[0].1.0) + u128::from(pair[1].1.0))
        });
        Nanos((pieces.sum::<u128>() / (2 * u128::from(BILLION))) as u64)
    }

    /// A mixture at `permille` of the way from this distribution to `other`, quantile by quantile.
    pub fn towards(&self, other: &Self, permille: u32) -> Self {
        let share = u128::from(permille.min(1000));
        let mut places: Vec<u32> = self.0.iter().chain(&other.0).map(|point| point.0).collect();
        places.sort_unstable();
        places.dedup();
        let between = |at: u32| {
            let (a, b) = (u128::from(self.at(at).0), u128::from(other.at(at).0));
            Nanos(((a * (1000 - share) + b * share) / 1000) as u64)
        };
        Self(places.into_iter().map(|at| (at, between(at))).collect())
    }

    /// One draw in nanoseconds.
    #[inline]
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        match self.0.as_slice() {
            [(_, only), (_, last)] if only == last => only.0,
            _ => self.at(rng.below(u64::from(BILLION)) as u32).0,
        }
    }
}

/// The durations of a verb.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// `o`: how long the poster's processor is busy.
    pub overhead: Nanos,
    /// `L`: from the post to the completion of a one-sided operation, both ways; of a datagram, one
    /// way.
    pub latency: Quantiles,
    /// `G`: added for each KiB within the first [`Model::mtu_bytes`].
    pub per_kib: Nanos,
}

/// All durations of a testbed, in true time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    pub read: Cost,
    /// WRITE of more than [`Model::inline_bytes`].
    pub write: Cost,
    /// WRITE with inline bytes.
    pub write_inline: Cost,
    pub cas: Cost,
    /// A datagram of more than [`Model::inline_bytes`].
    pub datagram: Cost,
    /// A datagram with inline bytes.
    pub datagram_inline: Cost,
    /// Added to a datagram's latency when it goes to a group.
    pub multicast: Quantiles,
    /// The maximum inline payload.
    pub inline_bytes: u32,
    /// Bytes of a packet.
    pub mtu_bytes: u32,
    /// `op`: the processor time for taking a completion.
    pub poll: Nanos,
    /// A NIC's time for one message, out or in.
    pub gap: Nanos,
    /// A link's time for one KiB.
    pub link_per_kib: Nanos,
    /// The delay added by other traffic in each direction.
    pub queueing: Quantiles,
    /// A machine's time for an event.
    pub step: Quantiles,
    /// The polling interval of a core.
    pub interval: Quantiles,
    /// From a kill to its notice at the watchers. One draw for all of them: it is one datagram of
    /// one kernel.
    pub notice: Quantiles,
    /// From a notice to the proof that no user code runs any more.
    pub proof: Quantiles,
}

impl Model {
    /// The durations of an operation with this many bytes.
    pub(super) fn cost(&self, verb: Verb, bytes: u32) -> &Cost {
        match verb {
            Verb::Read => &self.read,
            Verb::Write if bytes > self.inline_bytes => &self.write,
            Verb::Write => &self.write_inline,
            Verb::Cas => &self.cas,
        }
    }

    /// The durations of a datagram with this many bytes.
    pub(super) const fn cost_of_datagram(&self, bytes: u32) -> &Cost {
        if bytes > self.inline_bytes { &self.datagram } else { &self.datagram_inline }
    }

    /// The latency of further bytes: `(s - 1) G` up to a packet, then the link's rate.
    pub(super) fn carry(&self, cost: &Cost, bytes: u32) -> u64 {
        let (first, rest) = (bytes.min(self.mtu_bytes), bytes.saturating_sub(self.mtu_bytes));
        (u64::from(first.saturating_sub(1)) * cost.per_kib.0 + u64::from(rest) * self.link_per_kib.0) >> 10
    }

    /// How long a message occupies a NIC's port.
    pub(super) fn occupation(&self, bytes: u32) -> u64 {
        self.gap.0.max((u64::from(bytes) * self.link_per_kib.0) >> 10)
    }

    /// The next poll of a polling core: a random point in the current interval.
    pub(super) fn pick_up(&self, rng: &mut Rng) -> u64 {
        let interval = self.interval.draw(rng);
        rng.below(interval + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(points: &[(u32, u64)]) -> Vec<(u32, Nanos)> {
        points.iter().map(|&(at, n)| (at, Nanos(n))).collect()
    }

    #[test]
    fn draws_follow_the_quantiles() {
        let spread =
            Quantiles::new(points(&[(0, 100), (500_000_000, 200), (BILLION, 1_000)])).expect("rising");
        assert_eq!((spread.median(), spread.mean()), (Nanos(200), Nanos(375)));
        assert_eq!(
            (spread.at(250_000_000), spread.at(0), spread.at(BILLION)),
            (Nanos(150), Nanos(100), Nanos(1_000))
        );
        let mut rng = Rng::new(5);
        let draws: Vec<u64> = (0..10_000).map(|_| spread.draw(&mut rng)).collect();
        let below = |limit: u64| draws.iter().filter(|&&d| d < limit).count();
        assert!((4_800..5_200).contains(&below(200)), "{}", below(200));
        assert!((7_300..7_700).contains(&below(600)), "{}", below(600));
        assert!(draws.iter().all(|d| (100..=1_000).contains(d)));
    }

    #[test]
    fn points_that_are_no_distribution_are_refused() {
        assert_eq!(Quantiles::new(Vec::new()), Err(QuantilesError::Ends));
        assert_eq!(Quantiles::new(points(&[(0, 1), (7, 2)])), Err(QuantilesError::Ends));
        let falls = points(&[(0, 5), (9, 4), (BILLION, 6)]);
        assert_eq!(Quantiles::new(falls), Err(QuantilesError::Order(1)));
        let stays = points(&[(0, 5), (9, 6), (9, 7), (BILLION, 8)]);
        assert_eq!(Quantiles::new(stays), Err(QuantilesError::Order(2)));
    }

    #[test]
    fn a_mixture_lies_in_between() {
        let low = Quantiles::fixed(Nanos(100));
        let high = Quantiles::new(points(&[(0, 100), (BILLION, 300)])).expect("rising");
        assert_eq!(low.towards(&high, 0).median(), Nanos(100));
        assert_eq!(low.towards(&high, 500).median(), Nanos(150));
        assert_eq!(low.towards(&high, 1000), high);
    }
}

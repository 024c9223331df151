//! How a process takes part in a cluster over RDMA.

use super::arena::HugePages;
use super::device::Wish;
use super::pair::Retry;
use crate::types::Nanos;
use std::net::{IpAddr, SocketAddr};

/// How a process takes part in a cluster over RDMA. All of it but `listen`, `raises_fences` and
/// `keeps_mailbox` is the same for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where coordinator `n` listens, at index `n - 1`.
    pub coordinators: Vec<SocketAddr>,
    /// Where this process listens: an address of the device; port 0 takes any free one. For a
    /// coordinator, its entry above.
    pub listen: SocketAddr,
    /// The multicast addresses of the groups of coordinators and of everyone.
    pub groups: [IpAddr; 2],
    /// The device; what is left out is found by the address of `listen`.
    pub device: Wish,
    /// The byte that routers and switches sort by (DSCP in its high six bits).
    pub traffic_class: u8,
    /// Pages of the memory for what is under way.
    pub pages: HugePages,
    /// A death shows as a failed operation within so long, at the latest. See [`retry_within`].
    pub detection: Nanos,
    /// This process raises fences though it is no coordinator: a lease cache does.
    pub raises_fences: bool,
    /// Members may WRITE the value areas of this process's region. Not for a coordinator: views are
    /// decided in its.
    pub keeps_mailbox: bool,
}

/// One try of the smallest timeout: 4.096 us, doubled by each step of `timeout`.
const TRY: Nanos = Nanos(4_096);
/// Devices take a count of 7 for infinity.
const COUNT_MAX: u8 = 6;
/// So many tries, where the bound allows, that a few lost packets are no death.
const COUNT_MIN: u8 = 3;
/// The specification's five bits.
const TIMEOUT_MAX: u8 = 31;

/// How often and how long a device shall try, so that all tries together end within `detection`:
/// the count and timeout with the longest total, and of those the most tries. Never for ever. A
/// bound below 8.2 us, the least that can be said, is taken for that.
#[must_use]
pub fn retry_within(detection: Nanos) -> Retry {
    let longest = |count: u8| -> Option<(u64, Retry)> {
        let tries = u64::from(count) + 1;
        let timeout = (detection.0 / (tries * TRY.0)).checked_ilog2()?.min(u32::from(TIMEOUT_MAX)) as u8;
        (timeout > 0).then_some((tries << timeout, Retry { count, timeout }))
    };
    let many = (COUNT_MIN..=COUNT_MAX).filter_map(longest).max_by_key(|(total, retry)| (*total, retry.count));
    let few = || (0..COUNT_MIN).rev().find_map(longest);
    many.or_else(few).map_or(Retry { count: 0, timeout: 1 }, |(_, retry)| retry)
}

/// How long all tries together last.
#[must_use]
pub const fn detection_of(retry: Retry) -> Nanos {
    Nanos((retry.count as u64 + 1) * (TRY.0 << retry.timeout))
}

/// So often within a device's timeout it is looked whether something ends on a link: a lost packet
/// is found then by a probe.
const LOOKS: u64 = 8;
/// Processes do not look more often: it is for devices whose timeout is long.
const LOOK_EVERY_MIN: Nanos = Nanos::from_millis(1);

/// How often links are looked at on which operations are under way; `None` if the device's own
/// timeout is as good.
#[must_use]
pub(crate) fn look_within(retry: Retry) -> Option<Nanos> {
    let every = Nanos((TRY.0 << retry.timeout) / LOOKS);
    (every >= LOOK_EVERY_MIN).then_some(every)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_tries_end_within_the_bound_and_use_at_least_half_of_it() {
        for shift in 14..40 {
            for detection in [1u64 << shift, (1 << shift) + 1, (1 << shift) * 3 / 2, (2 << shift) - 1] {
                let retry = retry_within(Nanos(detection));
                assert!((1..=31).contains(&retry.timeout) && retry.count <= 6, "{retry:?}");
                let total = detection_of(retry).0;
                assert!(total <= detection && total * 2 > detection, "{detection}: {retry:?} {total}");
            }
        }
    }

    #[test]
    fn links_are_looked_at_where_the_device_would_let_milliseconds_pass() {
        let every = |detection| look_within(retry_within(Nanos::from_millis(detection)));
        assert_eq!(every(500), Some(Nanos((4_096 << 14) / 8)));
        assert_eq!(every(8), None);
    }

    #[test]
    fn a_bound_that_allows_it_leaves_room_for_lost_packets() {
        assert!(retry_within(Nanos::from_millis(1)).count >= 3);
        assert_eq!(retry_within(Nanos::ZERO), Retry { count: 0, timeout: 1 }, "never 0, which is for ever");
        assert_eq!(retry_within(Nanos::MAX), Retry { count: 6, timeout: 31 });
    }
}

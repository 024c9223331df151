//! A process's configuration in a cluster over RDMA.

use super::arena::HugePages;
use super::device::DeviceSelector;
use super::pair::Retry;
use core::ops::Range;
use obol_fabric::types::Nanos;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// By which the hosts of a cluster know each other, see [`obol_identity`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostKeys {
    /// The directory of this host's keys.
    pub directory: PathBuf,
    /// The host of coordinator `n`, at index `n - 1`.
    pub coordinators: Vec<u8>,
    /// The addresses of the hosts, that of `n` at index `n - 1`.
    pub hosts: Vec<IpAddr>,
}

/// A process's configuration in a cluster over RDMA. Except for `listen`, `raises_fences`,
/// `keeps_mailbox` and `log` it is the same for all processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The address of coordinator `n`, at index `n - 1`.
    pub coordinators: Vec<SocketAddr>,
    /// The address at which this process listens, on the device; port 0 selects any free one. For a
    /// coordinator, its entry above.
    pub listen: SocketAddr,
    /// The multicast addresses of the groups of coordinators and of everyone.
    pub groups: [IpAddr; 2],
    /// The device; omitted parts are selected by the address of `listen`.
    pub device: DeviceSelector,
    /// The byte by which routers and switches prioritise (DSCP in its high six bits).
    pub traffic_class: u8,
    /// The page size of the memory for pending operations.
    pub pages: HugePages,
    /// The maximum time after which a death shows as a failed operation. See [`retry_within`].
    pub detection: Nanos,
    /// Whether this process raises fences although it is not a coordinator, as a lease cache does.
    pub raises_fences: bool,
    /// Whether members may WRITE the value areas of this process's region. Not for a coordinator,
    /// where these areas hold views.
    pub keeps_mailbox: bool,
    /// The part of the value areas, in bytes of the region, for which [`obol_fabric::Fabric::permit`] changes
    /// who may WRITE there; `None` if it changes nothing. WRITEs into it use a connection of their own.
    pub log: Option<Range<u32>>,
    /// The keys by which connections are authenticated. `None` trusts the network: anyone who can send
    /// packets there and knows the cluster's nonce can connect, with any role.
    pub keys: Option<HostKeys>,
}

/// One try with the smallest timeout: 4.096 us, doubled by each increment of `timeout`.
const TRY: Nanos = Nanos(4_096);
/// Devices interpret a count of 7 as infinity.
const COUNT_MAX: u8 = 6;
/// The desired number of tries, so that a few lost packets do not count as a death.
const COUNT_MIN: u8 = 3;
/// The specification's five bits.
const TIMEOUT_MAX: u8 = 31;

/// The retry count and timeout with which all tries together end within `detection`: those with the
/// longest total, and among these the most tries. Never infinite. The smallest possible bound is
/// 8.2 us.
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

/// The time after which a device sends a packet again that was not acknowledged.
pub const fn timeout_of(retry: Retry) -> Nanos {
    Nanos(TRY.0 << retry.timeout)
}

/// The duration of all tries together.
pub const fn detection_of(retry: Retry) -> Nanos {
    Nanos((retry.count as u64 + 1) * timeout_of(retry).0)
}

/// How many times within a device's timeout a link is checked for completions: a probe then detects
/// a lost packet.
const CHECKS_PER_TIMEOUT: u64 = 8;
/// The shortest interval of these checks, which are meant for devices with long timeouts.
const CHECK_INTERVAL_MIN: Nanos = Nanos::from_millis(1);

/// The interval of checks of links with pending operations; `None` if the device's own timeout is
/// as good.
pub(crate) fn check_interval(retry: Retry) -> Option<Nanos> {
    let every = Nanos(timeout_of(retry).0 / CHECKS_PER_TIMEOUT);
    (every >= CHECK_INTERVAL_MIN).then_some(every)
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
    fn links_are_checked_where_the_device_is_slower_than_milliseconds() {
        let every = |detection| check_interval(retry_within(Nanos::from_millis(detection)));
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

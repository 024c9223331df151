//! DARE, 2.3 and 3.3.3: its modified LogGP model of RDMA, and the bounds that follow.

/// Bytes of a KiB.
const KIB: f64 = 1024.0;

/// The parameters of one kind of transfer, in microseconds; `per_kib` is the gap G of a KiB.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    pub(super) overhead: f64,
    pub(super) latency: f64,
    pub(super) per_kib: f64,
}

/// `op`: the overhead of a poll for a completion (Table 1).
pub(super) const POLL: f64 = 0.07;
/// Table 1, RDMA/rd.
pub(super) const READ: Cost = Cost { overhead: 0.29, latency: 1.38, per_kib: 0.75 };
/// Table 1, RDMA/wr.
pub(super) const WRITE: Cost = Cost { overhead: 0.26, latency: 1.61, per_kib: 0.76 };
/// Table 1, RDMA/wr inline.
pub(super) const WRITE_INLINE: Cost = Cost { overhead: 0.36, latency: 0.93, per_kib: 2.21 };
/// Table 1, UD.
pub(super) const UD: Cost = Cost { overhead: 0.62, latency: 0.85, per_kib: 0.77 };
/// Table 1, UD inline.
pub(super) const UD_INLINE: Cost = Cost { overhead: 0.47, latency: 0.54, per_kib: 1.92 };
/// `Gm` of a WRITE: a KiB after the first packet.
pub(super) const WRITE_PER_KIB_AFTER_MTU: f64 = 0.25;
/// The bytes of a packet (Figure 1).
pub(super) const MTU_BYTES: u32 = 4096;
/// The longest transfer that is sent inline, in the program that measured Table 1. The paper names
/// no limit.
pub(super) const INLINE_MAX_BYTES: u32 = 512;

const fn is_inline(bytes: u32) -> bool {
    bytes <= INLINE_MAX_BYTES
}

const fn write_cost(bytes: u32) -> Cost {
    if is_inline(bytes) { WRITE_INLINE } else { WRITE }
}

pub(super) const fn ud_cost(bytes: u32) -> Cost {
    if is_inline(bytes) { UD_INLINE } else { UD }
}

/// What further bytes add to a datagram or a WRITE: equations 1 and 2.
pub(super) fn carry(cost: Cost, bytes: u32) -> f64 {
    let first = f64::from(bytes.min(MTU_BYTES).saturating_sub(1));
    let rest = f64::from(bytes.saturating_sub(MTU_BYTES));
    (first * cost.per_kib + rest * WRITE_PER_KIB_AFTER_MTU) / KIB
}

/// The servers of a group, with DARE's `q` and `f`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) servers: u32,
}

impl Group {
    /// `q`: a majority.
    pub(super) const fn quorum(self) -> u32 {
        self.servers / 2 + 1
    }

    /// `f`: how many may fail.
    pub(super) const fn faulty(self) -> u32 {
        (self.servers - 1) / 2
    }
}

/// Both datagrams of a request: a short one, and one with the data (3.3.3).
pub(super) fn datagrams(bytes: u32) -> f64 {
    let long = ud_cost(bytes);
    let short = 2.0 * UD_INLINE.overhead + UD_INLINE.latency;
    short + 2.0 * long.overhead + long.latency + carry(long, bytes)
}

/// The leader READs the terms of a majority (3.3.3, t RDMA/rd).
pub(super) fn terms(group: Group) -> f64 {
    let others = f64::from(group.quorum() - 1);
    let rest = f64::from(group.faulty()) * READ.overhead;
    others * READ.overhead + rest.max(READ.latency) + others * POLL
}

/// The leader updates the logs of `others` servers, and of `more` further ones while it waits (3.3.3,
/// t RDMA/wr, where these are `q - 1` and `f`).
pub(super) fn log_update(bytes: u32, others: u32, more: u32) -> f64 {
    let (short, long) = (WRITE_INLINE, write_cost(bytes));
    let (others, more) = (f64::from(others), f64::from(more));
    let pointers = 2.0 * others * short.overhead + short.latency + 2.0 * others * POLL;
    let rest = more * long.overhead;
    pointers + others * long.overhead + rest.max(long.latency + carry(long, bytes))
}

/// One WRITE, posted and completed, in microseconds: equation 1.
pub(in crate::papers) fn one_write(bytes: u32) -> f64 {
    let cost = write_cost(bytes);
    cost.overhead + cost.latency + carry(cost, bytes) + POLL
}

/// The least latency of a read request.
pub(super) fn read_request(group: Group, bytes: u32) -> f64 {
    datagrams(bytes) + terms(group)
}

/// The least latency of a write request.
pub(super) fn write_request(group: Group, bytes: u32) -> f64 {
    datagrams(bytes) + log_update(bytes, group.quorum() - 1, group.faulty())
}

/// The same if all servers take part in each step, as 6 says it happens.
pub(super) fn write_request_by_all(group: Group, bytes: u32) -> f64 {
    datagrams(bytes) + log_update(bytes, group.servers - 1, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_profiles::Testbed;

    /// To the digits with which they are given.
    #[test]
    fn the_bounds_at_64_bytes_are_as_they_are_given() {
        let shown = |us: f64| format!("{us:.1}");
        for (servers, read, write) in [(5, "5.2", "7.5"), (3, "4.8", "6.3")] {
            let group = Group { servers };
            assert_eq!(shown(read_request(group, 64)), read, "{servers} servers");
            assert_eq!(shown(write_request(group, 64)), write, "{servers} servers");
        }
    }

    #[test]
    fn quorums_are_those_of_the_paper() {
        // q = ceil((P + 1) / 2), f = floor((P - 1) / 2).
        let of = |servers| (Group { servers }.quorum(), Group { servers }.faulty());
        assert_eq!([3, 4, 5, 6, 7].map(of), [(2, 1), (3, 1), (3, 2), (4, 2), (4, 3)]);
    }

    /// The simulated testbed cites the same table.
    #[test]
    fn the_testbed_infiniband_has_the_same_costs() {
        let model = Testbed::builtin("infiniband").expect("it is in order").model;
        let of = |cost: &obol_fabric_sim::Cost| Cost {
            overhead: cost.overhead.as_micros_f64(),
            latency: cost.latency.median().as_micros_f64(),
            per_kib: cost.per_kib.as_micros_f64(),
        };
        for (modelled, published) in [
            (&model.read, READ),
            (&model.write, WRITE),
            (&model.write_inline, WRITE_INLINE),
            (&model.datagram, UD),
            (&model.datagram_inline, UD_INLINE),
        ] {
            assert_eq!(of(modelled), published);
        }
    }

    #[test]
    fn bytes_beyond_a_packet_are_cheaper() {
        let at = |bytes| carry(WRITE, bytes);
        let (before, after) = (at(4096) - at(3072), at(5120) - at(4096));
        assert!((before - WRITE.per_kib).abs() < 1e-9 && (after - WRITE_PER_KIB_AFTER_MTU).abs() < 1e-9);
    }
}

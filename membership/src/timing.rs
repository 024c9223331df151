//! The constants of the protocol. A profile gives them; nothing in this crate hard-codes a
//! duration.

use obol_fabric::Nanos;

/// The bounds of a lease duration; values from peers and files are checked against them.
pub const LEASE_MIN: Nanos = Nanos::from_micros(1);
/// See [`LEASE_MIN`].
pub const LEASE_MAX: Nanos = Nanos::from_secs(60);

/// Durations and counts of the machines. All processes of a cluster use the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Timing {
    /// How long a lease lasts from the post of its READs. (uKharon 6.2, delta.)
    pub lease: Nanos,
    /// The limit up to which leases grow while renewals are late; if it is at most `lease`, they
    /// never grow. (uKharon 6.3.)
    pub lease_max: Nanos,
    /// Two late renewals within this time are reported; without any for as long, leases become
    /// shorter again.
    pub lease_calm: Nanos,
    /// Pause between a renewal and the next.
    pub renew_every: Nanos,
    /// The timeout of a renewal without a majority of answers; it is then posted again.
    pub renew_timeout: Nanos,
    /// How long a lease cache's own lease lasts. (uKharon 6.3, Delta.)
    pub cache_lease: Nanos,
    /// The timeout of a cache; the acceptors are polled instead.
    pub cache_timeout: Nanos,
    /// The number of living holders from which on the leader delegates their fences to the caches.
    pub fan_out_from: u32,
    /// The assumed drift of any clock, in parts per million.
    pub drift_ppm: u32,
    /// Whether leases are fenced. Otherwise every failover waits for leases to expire, as in the
    /// paper.
    pub fencing: bool,
    /// The longest pause between two increments of a process's heartbeat.
    pub heartbeat_every: Nanos,
    /// Pause between two READs of a successor's heartbeat, from the completion of the first.
    pub heartbeat_period: Nanos,
    /// Consecutive READs with the same value that make a suspicion; at least 2.
    pub heartbeat_confirm: u32,
    /// Whether links are watched, and members that do not reach all others are excluded.
    pub link_watch: bool,
    /// The period of the multicast heartbeat of every process with a core, by which links are
    /// watched.
    pub link_every: Nanos,
    /// The silence after which a member is read; if that fails, too, the link to it is down. A
    /// leader that learns of such a link waits for as long again for other reports before it
    /// decides who stays.
    pub link_timeout: Nanos,
    /// The delay before a coordinator that does not lead announces a death: the leader usually
    /// knows by itself.
    pub notice_after: Nanos,
    /// The period at which a notice is repeated until a view excludes the accused.
    pub notice_every: Nanos,
    /// The period at which an unanswered join or leave is repeated.
    pub join_every: Nanos,
    /// Members of one name that may fail within `join_window` before joins of that name are held
    /// back.
    pub join_burst: u32,
    /// See `join_burst`.
    pub join_window: Nanos,
    /// The first hold on joins of a name that failed too often; each further failure doubles it.
    /// Zero disables holds.
    pub join_hold: Nanos,
    /// The longest hold.
    pub join_hold_max: Nanos,
    /// The minimum interval before a view that only admits members, so that joins share views.
    pub join_pause: Nanos,
    /// The time after which a restarted coordinator that no leader admits leads by itself.
    pub standby: Nanos,
    /// The period at which coordinators poll for missed views.
    pub poll_every: Nanos,
    /// The first limit of the random pause of contending leaders; it grows if that does not help.
    pub backoff_max: Nanos,
    /// The longest time for which a leader holds an announcement back so that its CLEAR fits in the
    /// same datagram. Zero disables that.
    pub announce_hold: Nanos,
    /// The time without news from a majority after which a process fetches the newest view before
    /// it trusts a slot.
    pub resync_after: Nanos,
    /// Whether the leader replaces missing deciders automatically, as long as there are spares.
    pub replace: bool,
    /// The time without membership after which a decider is replaced.
    pub replace_after: Nanos,
    /// The minimum time since the last change of the deciders.
    pub replace_pause: Nanos,
}

impl Timing {
    /// Consecutive READs with the same value that make a suspicion while leases last `lease`. Where
    /// late renewals have lengthened leases, the same scheduler or network delays affect
    /// heartbeats. A lease set by an operator beyond `lease_max` counts as `lease_max`.
    pub fn confirm_at(&self, lease: Nanos) -> u32 {
        let times = lease.min(self.lease_max).0.div_ceil(self.lease.0.max(1)).max(1);
        u32::try_from(times).unwrap_or(u32::MAX).saturating_mul(self.heartbeat_confirm)
    }
}

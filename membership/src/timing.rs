//! The constants of the protocol. A profile gives them; nothing in this crate hard-codes a
//! duration.

use obol_fabric::Nanos;

/// Leases are at least so long, and at most: what is told by others, or by a file, is held against
/// it.
pub const LEASE_MIN: Nanos = Nanos::from_micros(1);
/// See [`LEASE_MIN`].
pub const LEASE_MAX: Nanos = Nanos::from_secs(60);

/// Durations and counts that the machines follow. All processes of a cluster use the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Timing {
    /// How long a lease lasts from the post of its READs. (uKharon 6.2, delta.)
    pub lease: Nanos,
    /// Leases become longer, up to this, while renewals come too late; not longer than `lease`:
    /// they never do. (uKharon 6.3.)
    pub lease_max: Nanos,
    /// Two late renewals within this time are a complaint; without any for so long, leases become
    /// shorter again.
    pub lease_calm: Nanos,
    /// Pause between a renewal and the next.
    pub renew_every: Nanos,
    /// A renewal without a majority of answers for so long has failed and is posted again.
    pub renew_timeout: Nanos,
    /// How long a lease cache's own lease lasts. (uKharon 6.3, Delta.)
    pub cache_lease: Nanos,
    /// A cache that does not answer for so long is passed over, and the acceptors are asked.
    pub cache_timeout: Nanos,
    /// From so many living holders on, the leader lets the caches raise their fences.
    pub fan_out_from: u32,
    /// How far any clock's rate may be off, in parts per million.
    pub drift_ppm: u32,
    /// Whether leases are fenced. Without it every failover waits for leases to run out, as in the
    /// paper.
    pub fencing: bool,
    /// Every process advances its heartbeat at least so often.
    pub heartbeat_every: Nanos,
    /// Pause between two READs of a successor's heartbeat, from the completion of the first.
    pub heartbeat_period: Nanos,
    /// So many READs in a row that find the same value make a suspicion; at least 2.
    pub heartbeat_confirm: u32,
    /// Whether links are watched, and whoever can not talk to all is excluded.
    pub link_watch: bool,
    /// Every process with a core multicasts a heartbeat so often, by which links are watched.
    pub link_every: Nanos,
    /// A member that is silent for so long is read, and if that fails, too, the link to it is down.
    /// A leader that learns of such a link waits as long again for what others have to tell, before
    /// it decides who stays.
    pub link_timeout: Nanos,
    /// A coordinator that does not lead tells of a death only after so long: the leader mostly
    /// knows by itself.
    pub notice_after: Nanos,
    /// A notice is repeated so often until a view excludes the accused.
    pub notice_every: Nanos,
    /// A join or leave without an answer is repeated so often.
    pub join_every: Nanos,
    /// So many members of one name may fail within `join_window` before joins of that name are held
    /// back.
    pub join_burst: u32,
    /// See `join_burst`.
    pub join_window: Nanos,
    /// Joins of a name that failed too often wait so long at first, and twice as long after each
    /// further failure; never with zero.
    pub join_hold: Nanos,
    /// Joins are held back for so long at most.
    pub join_hold_max: Nanos,
    /// A view that only admits members comes so long after the one before that did, at least, so
    /// that joins share views.
    pub join_pause: Nanos,
    /// A restarted coordinator that no leader admits for so long leads by itself.
    pub standby: Nanos,
    /// Coordinators look so often for decided views that they missed.
    pub poll_every: Nanos,
    /// Contending leaders pause at random, up to this at first, and longer if that does not help.
    pub backoff_max: Nanos,
    /// A leader holds a view's announcement back for so long at most, that its CLEAR may go in the
    /// same datagram; not with zero.
    pub announce_hold: Nanos,
    /// After so long without news from a majority, a process first fetches the newest view before
    /// it trusts a slot.
    pub resync_after: Nanos,
    /// Whether the leader replaces coordinators that decide and are missing, where there are
    /// spares.
    pub replace: bool,
    /// A coordinator that decides is replaced when it has been no member for so long.
    pub replace_after: Nanos,
    /// And only so long after the last change of those who decide.
    pub replace_pause: Nanos,
}

impl Timing {
    /// READs in a row that find the same value before a heartbeat is suspected, while leases are
    /// `lease` long: where late renewals have lengthened them, the same scheduler or network delays
    /// heartbeats as well. Leases that an operator made longer than `lease_max` count as that.
    #[must_use]
    pub fn confirm_at(&self, lease: Nanos) -> u32 {
        let times = lease.min(self.lease_max).0.div_ceil(self.lease.0.max(1)).max(1);
        u32::try_from(times).unwrap_or(u32::MAX).saturating_mul(self.heartbeat_confirm)
    }
}

//! The counters and histograms of the protocol, and their names. They include the fabric's own, at
//! the fabric's slots, so that readers have one table.

use obol_fabric::metrics::{CounterSlot, FabricCounter, HistogramSlot};
use obol_fabric::slots;
use serde::{Deserialize, Serialize};

slots! {
    /// A monotonic counter of one process.
    Counter: CounterSlot {
        /// As [`FabricCounter::Loops`].
        Loops(FabricCounter::Loops as u16) = FabricCounter::Loops.name(),
        /// Renewals that completed before the lease that they extend had ended.
        RenewalsOnTime = "renewals_on_time",
        /// Renewals that completed after it had ended: `active` was false in between.
        RenewalsLate = "renewals_late",
        /// Renewals that found no majority.
        RenewalsFailed = "renewals_failed",
        /// Views installed in sequence.
        ViewsInstalled = "views_installed",
        /// Views reached by a snapshot.
        ViewJumps = "view_jumps",
        /// Views found by reading slots, because the multicast was lost.
        ViewsFetched = "views_fetched",
        /// Slots that this process decided.
        Decisions = "decisions",
        /// Proposals that were aborted: a wrong prediction, or another proposer.
        Aborts = "aborts",
        /// Values adopted from other proposers.
        Adoptions = "adoptions",
        /// Times that this process became leader.
        Takeovers = "takeovers",
        /// Holders whose fence this process raised.
        FencesRaised = "fences_raised",
        /// Holders that were cleared by a proof of death.
        ClearedByProof = "cleared_by_proof",
        /// Holders that were cleared by waiting out their lease.
        ClearedByWait = "cleared_by_wait",
        /// CLEARs that this process sent.
        ClearsSent = "clears_sent",
        /// CLEARs that took effect on the page of this process before the wait had elapsed.
        ClearsUsed = "clears_used",
        /// Death notices sent.
        NoticesSent = "notices_sent",
        /// Death notices received.
        NoticesReceived = "notices_received",
        /// Suspicions by heartbeat that this process raised.
        HeartbeatSuspicions = "heartbeat_suspicions",
        /// Suspicions of processes that proved to be alive.
        FalseSuspicions = "false_suspicions",
        /// Members admitted by this process's decisions.
        Joins = "joins",
        /// Members that left gracefully by this process's decisions.
        Leaves = "leaves",
        /// Members removed as failed by this process's decisions.
        Failures = "failures",
        /// Acceptors added or removed by this process's decisions.
        AcceptorChanges = "acceptor_changes",
        /// Measurements that proved a clock to be beyond the profile's drift bound.
        DriftAlarms = "drift_alarms",
        /// Times that this process found itself excluded.
        Exclusions = "exclusions",
        /// As [`FabricCounter::DatagramsReceived`].
        DatagramsReceived(FabricCounter::DatagramsReceived as u16) = FabricCounter::DatagramsReceived.name(),
        /// As [`FabricCounter::DatagramsLost`].
        DatagramsLost(FabricCounter::DatagramsLost as u16) = FabricCounter::DatagramsLost.name(),
        /// As [`FabricCounter::DatagramsRefused`].
        DatagramsRefused(FabricCounter::DatagramsRefused as u16) = FabricCounter::DatagramsRefused.name(),
        /// Operations that failed on a link.
        LinkErrors = "link_errors",
        /// Requests that this application served under an active view.
        Served = "served",
        /// Times that this application found its view not active.
        Inactive = "inactive",
        /// Renewals for which a lease cache vouched; they count as on time or late, too.
        RenewalsCached = "renewals_cached",
        /// Times that a lease cache was skipped: it died, refused, or did not answer in time.
        CachesPassed = "caches_passed",
        /// Times that this cache vouched for a view.
        Vouches = "vouches",
        /// Times that this cache refused to vouch.
        VouchesRefused = "vouches_refused",
        /// Suspicions of an application that broke its promise of progress.
        ProgressSuspicions = "progress_suspicions",
        /// Holders whose fence a cache raised for this leader.
        FencesFannedOut = "fences_fanned_out",
        /// As [`FabricCounter::KernelNotices`].
        KernelNotices(FabricCounter::KernelNotices as u16) = FabricCounter::KernelNotices.name(),
        /// As [`FabricCounter::KernelNoticesRefused`].
        KernelNoticesRefused(FabricCounter::KernelNoticesRefused as u16) = FabricCounter::KernelNoticesRefused.name(),
        /// Links to members that this process found to be down.
        LinksLost = "links_lost",
        /// Times that a program requested a confirmation because its lease had expired.
        ConfirmsAsked = "confirms_asked",
        /// Holds on joins of a name that this leader began or extended because a member of that
        /// name failed, left or was suspected again.
        JoinHolds = "joins_held_back",
        /// Missing coordinators removed from the deciders by this process's decisions, without an
        /// operator.
        Replacements = "replacements",
        /// As [`FabricCounter::MapFailures`].
        MapFailures(FabricCounter::MapFailures as u16) = FabricCounter::MapFailures.name(),
        /// As [`FabricCounter::Strangers`].
        Strangers(FabricCounter::Strangers as u16) = FabricCounter::Strangers.name(),
        /// As [`FabricCounter::ConnectionsRefused`].
        ConnectionsRefused(FabricCounter::ConnectionsRefused as u16) = FabricCounter::ConnectionsRefused.name(),
        /// As [`FabricCounter::Unintroduced`].
        Unintroduced(FabricCounter::Unintroduced as u16) = FabricCounter::Unintroduced.name(),
        /// As [`FabricCounter::DatagramsUnknown`].
        DatagramsUnknown(FabricCounter::DatagramsUnknown as u16) = FabricCounter::DatagramsUnknown.name(),
    }
}

slots! {
    /// A distribution of durations of one process.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    Histogram: HistogramSlot {
        /// From posting a renewal's READs to its majority.
        Renewal = "renewal",
        /// From proposing on a prepared slot to the decision.
        Decide = "decide",
        /// From a decision to CLEAR.
        Clear = "clear",
        /// The margin: what was left of the lease when a renewal completed; nothing at a late one.
        Margin = "margin",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_s_place_in_the_table_is_its_slot_and_none_of_the_fabric_s_is_missing() {
        for (slot, counter) in (0..).zip(Counter::ALL) {
            assert_eq!(CounterSlot::from(*counter), CounterSlot::new(slot));
        }
        for own in FabricCounter::ALL {
            let counter = Counter::try_from(CounterSlot::from(*own));
            assert_eq!(counter.map(Counter::name), Ok(own.name()));
        }
    }
}

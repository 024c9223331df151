//! Names of the counters and histograms that a region exposes, and how they lie in it. Counters
//! only grow and have one writer each; a reader tells a restart by the region's incarnation.

use crate::atomic::{AtomicU64, Ordering};
use crate::memory;
use crate::types::Nanos;

macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum $name { $($(#[$variant_doc])* $variant,)+ }

        impl $name {
            /// All of them, in the order of their place in a region.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name that scripts see.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}
pub(crate) use named;

named! {
    /// A monotonic counter of one process.
    Counter {
        /// Turns of the process's event loop.
        Loops = "loops",
        /// Renewals that completed before the lease that they extend had ended.
        RenewalsOnTime = "renewals_on_time",
        /// Renewals that completed after it had ended: `active` was false in between.
        RenewalsLate = "renewals_late",
        /// Renewals that found no majority.
        RenewalsFailed = "renewals_failed",
        /// Views installed in sequence.
        ViewsInstalled = "views_installed",
        /// Views that were reached by an explicit snapshot jump.
        ViewJumps = "view_jumps",
        /// Views that were found by reading slots, because the multicast was lost.
        ViewsFetched = "views_fetched",
        /// Slots that this process decided.
        Decisions = "decisions",
        /// Proposals that were aborted: a wrong prediction, or another proposer.
        Aborts = "aborts",
        /// Values of other proposers that were adopted.
        Adoptions = "adoptions",
        /// Times that this process began to lead.
        Takeovers = "takeovers",
        /// Holders whose fence this process raised.
        FencesRaised = "fences_raised",
        /// Holders that were cleared by a proof of death.
        ClearedByProof = "cleared_by_proof",
        /// Holders that were cleared by waiting out their lease.
        ClearedByWait = "cleared_by_wait",
        /// CLEARs that this process sent.
        ClearsSent = "clears_sent",
        /// CLEARs that took effect on the own page before the wait had run.
        ClearsUsed = "clears_used",
        /// Death notices sent.
        NoticesSent = "notices_sent",
        /// Death notices received.
        NoticesReceived = "notices_received",
        /// Suspicions by heartbeat that this process raised.
        HeartbeatSuspicions = "heartbeat_suspicions",
        /// Suspicions of a process that then proved to be alive.
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
        /// Datagrams received.
        DatagramsReceived = "datagrams_received",
        /// Datagrams that this process could not deliver because the receiver's lane was full.
        DatagramsLost = "datagrams_lost",
        /// Datagrams that were refused because they made no sense.
        DatagramsRefused = "datagrams_refused",
        /// Operations that failed on a link.
        LinkErrors = "link_errors",
        /// Requests that this application served under an active view.
        Served = "served",
        /// Times that this application found its view not active.
        Inactive = "inactive",
        /// Renewals for which a lease cache vouched; they count as on time or late, too.
        RenewalsCached = "renewals_cached",
        /// Times that a lease cache was passed over: it died, refused, or did not answer in time.
        CachesPassed = "caches_passed",
        /// Times that this cache vouched for a view.
        Vouches = "vouches",
        /// Times that this cache could not vouch.
        VouchesRefused = "vouches_refused",
        /// Suspicions of an application that broke its promise of progress.
        ProgressSuspicions = "progress_suspicions",
        /// Holders whose fence a cache raised for this leader.
        FencesFannedOut = "fences_fanned_out",
        /// Notices of the kernel itself that a watched process is dying or dead.
        KernelNotices = "kernel_notices",
        /// Datagrams to the group of death notices that were not believed: forged, or of another
        /// cluster.
        KernelNoticesRefused = "kernel_notices_refused",
        /// Links to members that this process found to be down.
        LinksLost = "links_lost",
        /// Times that a program had the acceptors asked because its lease had run out.
        ConfirmsAsked = "confirms_asked",
        /// Times that joins of a name were held back by this leader, or for longer, because a
        /// member of that name failed again.
        JoinsHeldBack = "joins_held_back",
        /// Missing coordinators that decide no more, by this process's decisions and without an
        /// operator.
        Replacements = "replacements",
        /// Times that this process could not map a peer's region: it is out of descriptors or
        /// memory.
        MapFailures = "map_failures",
    }
}

named! {
    /// A distribution of durations of one process.
    Histogram {
        /// From posting a renewal's READs to its majority.
        Renewal = "renewal",
        /// From proposing on a prepared slot to the decision.
        Decide = "decide",
        /// From a decision to CLEAR.
        Clear = "clear",
        /// What was left of the lease when a renewal completed.
        Margin = "margin",
    }
}

/// Words that the counters take in a region; more than there are counters, so that new ones keep
/// the layout.
pub const COUNTER_WORDS: usize = 64;
const _: () = assert!(Counter::ALL.len() <= COUNTER_WORDS);

/// Sub-buckets of an octave: values are kept within 1/16.
const SUB_BITS: u32 = 4;
/// Buckets of one histogram: all of `u64` nanoseconds.
pub const HISTOGRAM_WORDS: usize = (64 - SUB_BITS as usize + 1) << SUB_BITS;

/// The bucket of a value.
#[must_use]
pub const fn bucket(value: u64) -> usize {
    if value < 1 << SUB_BITS {
        return value as usize;
    }
    let octave = 63 - value.leading_zeros();
    let sub = (value >> (octave - SUB_BITS)) & ((1 << SUB_BITS) - 1);
    (((octave - SUB_BITS + 1) as usize) << SUB_BITS) + sub as usize
}

/// The smallest value of a bucket.
#[must_use]
pub const fn bucket_floor(bucket: usize) -> u64 {
    if bucket < 1 << SUB_BITS {
        return bucket as u64;
    }
    let octave = (bucket >> SUB_BITS) as u32 + SUB_BITS - 1;
    let sub = (bucket & ((1 << SUB_BITS) - 1)) as u64;
    ((1 << SUB_BITS) + sub) << (octave - SUB_BITS)
}

/// Adds to a word that only this process writes: no locked instruction is needed.
pub fn add(word: &AtomicU64, by: u64) {
    word.store(word.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

/// Adds a sample to the histogram whose first word is `words[0]`.
pub fn observe(words: &[AtomicU64], value: Nanos) {
    if let Some(word) = words.get(bucket(value.0)) {
        add(word, 1);
    }
}

/// Reads counters, or the buckets of a histogram.
#[must_use]
pub fn snapshot(words: &[AtomicU64]) -> Vec<u64> {
    words.iter().map(memory::relaxed).collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket() {
        let mut values: Vec<u64> = (0..2000).collect();
        values.extend((0..64).flat_map(|b| [1u64 << b, (1 << b) + 1, (1u64 << b).wrapping_sub(1)]));
        values.push(u64::MAX);
        for v in values {
            let b = bucket(v);
            assert!(b < HISTOGRAM_WORDS);
            assert!(bucket_floor(b) <= v, "{v} in {b}");
            if b + 1 < HISTOGRAM_WORDS {
                assert!(v < bucket_floor(b + 1), "{v} in {b}");
            }
        }
    }
}

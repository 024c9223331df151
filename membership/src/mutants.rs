//! Planted bugs: each breaks one rule of the protocol, and the simulation campaign and the model
//! checker must catch every one. The feature `mutants` is never on in a shipped build; without it a
//! [`ActiveMutant`] is an empty type, [`ActiveMutant::has`] is `false` at compile time, and no trace
//! of a bug is left.

#[cfg(not(feature = "mutants"))]
use core::marker::PhantomData;

macro_rules! mutants {
    ($($row:literal { $($(#[$doc:meta])* $variant:ident = $name:literal,)+ })+) => {
        /// A plantable bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Mutant { $($($(#[$doc])* $variant,)+)+ }

        #[cfg(feature = "mutants")]
        impl Mutant {
            /// All of them.
            pub const ALL: &'static [Self] = &[$($(Self::$variant,)+)+];

            /// The name of the bug.
            pub const fn name(self) -> &'static str {
                match self { $($(Self::$variant => $name,)+)+ }
            }

            /// The row of the table of invariants that it breaks, as reported by the oracle.
            pub const fn row(self) -> u8 {
                match self { $($(Self::$variant => $row,)+)+ }
            }
        }
    };
}

// Grouped by the row under which the oracle reports the effect; where the bug itself concerns
// another row, its comment says so.
mutants! {
    1 {
        /// A prepared proposer ignores values that acceptors have accepted.
        SkipAdoption = "skip-adoption",
        /// Half of the acceptors pass for a majority.
        HalfIsMajority = "half-is-majority",
        /// A CAS that found another value counts as a success.
        FailedCasIsAck = "failed-cas-is-ack",
        /// After adopting, the proposer announces its own value.
        AnnounceOwnValue = "announce-own-value",
        /// A reader of whole rings counts the acceptors that it knows, not the current deciders.
        RingsByKnownAcceptors = "rings-by-known-acceptors",
        /// A value that is not whole counts as none, though its place may be of a later slot by now.
        TornValueOfLaterLap = "torn-value-of-later-lap",
        /// The slot after a change of acceptors is decided by the previous acceptors.
        /// Of row 16: who counts as an acceptor decides whether one value is chosen.
        StaleAcceptors = "stale-acceptors",
    }
    2 {
        /// The slot is swapped before the value is written.
        CasBeforeWrite = "cas-before-write",
        /// All slots share one value area per proposer.
        ReuseValueArea = "reuse-value-area",
        /// A value is written where the acceptor's word may still name one of an earlier lap.
        WriteOverEarlierLap = "write-over-earlier-lap",
        /// A proposal number may equal the highest promised one, which may be from an earlier
        /// attempt of the same proposer.
        ReuseNumber = "reuse-number",
        /// A newcomer is admitted although the view has no room for it.
        /// Of row 14: a value that does not fit its area is accepted in part.
        IgnoreFull = "ignore-full",
    }
    3 {
        /// A late multicast of an older view is installed.
        AcceptLateView = "accept-late-view",
    }
    4 {
        /// After a missed multicast the next view is installed without reporting the gap.
        SkipSilently = "skip-silently",
    }
    5 {
        /// A new view starts at once.
        DropWait = "drop-wait",
        /// The wait is a twentieth too short.
        ShortWait = "short-wait",
        /// The wait of a holder is not lengthened for clocks that drift.
        UndriftedWait = "undrifted-wait",
        /// The wait covers the old and the new view only.
        WaitOverNeighbours = "wait-over-neighbours",
        /// The wait is the new view's lease.
        WaitOfNewView = "wait-of-new-view",
        /// A compatible view starts at once, though its holder never held its predecessor.
        InheritUnheld = "inherit-unheld",
        /// The wait runs from before the decision was learned.
        WaitFromProposal = "wait-from-proposal",
        /// Every view inherits its predecessor's start.
        AllCompatible = "all-compatible",
        /// Views with the same number of apps and agents are compatible, also if these are others.
        CompatibleByCount = "compatible-by-count",
        /// Views with the same apps are compatible, whatever has become of the agents.
        CompatibleByApps = "compatible-by-apps",
        /// The wait ignores that caches vouch as long as their own leases last.
        WaitWithoutCaches = "wait-without-caches",
        /// An embedded app waits as if there were no caches.
        /// Of row 9, which is row 5 over members with and without a cache.
        UncachedShortWait = "uncached-short-wait",
        /// Every announcement of a view says that it is cleared.
        /// Of row 10 in what it forges; no CLEAR is sent, so pages overlap.
        AnnounceAsCleared = "announce-as-cleared",
        /// A CLEAR is applied to whatever view is held.
        /// Of row 10 in what it breaks; the CLEAR is right, so pages overlap.
        ClearAnyView = "clear-any-view",
    }
    6 {
        /// A lease ends one duration after its start.
        EndFromStart = "end-from-start",
        /// A lease is dated from the completion of its READs.
        DateFromCompletion = "date-from-completion",
        /// A lease that goes over to the next view is dated from when that view was learned.
        CarryFromLearning = "carry-from-learning",
        /// A lease is not shortened for clocks that drift.
        UndriftedEnd = "undrifted-end",
        /// A cache's answer counts for the pending request, whichever it answers.
        /// Of row 8: the lease is dated from a request later than the answer.
        DropNonce = "drop-nonce",
    }
    7 {
        /// A renewal succeeds with one acceptor.
        MinorityRenewal = "minority-renewal",
        /// A lease with late renewals doubles beyond its limit.
        StretchPastMax = "stretch-past-max",
        /// A coordinator keeps adapting a lease that an operator has set meanwhile.
        AdaptOperatorsLease = "adapt-operators-lease",
        /// A cache's answer dates a lease that goes over to the next view.
        CacheDatesCarry = "cache-dates-carry",
        /// A lease without late renewals is halved below the profile's.
        ShrinkPastLeast = "shrink-past-least",
        /// Slots of two laps are compared by plain numbers, which wrap.
        /// Of row 14: a word of an earlier lap, or of a later one, reads as an empty slot.
        WrapIndex = "wrap-index",
    }
    8 {
        /// A cache answers although its own lease has run out.
        AnswerExpired = "answer-expired",
    }
    10 {
        /// CLEAR when a majority of holders is clear.
        ClearOnMajority = "clear-on-majority",
        /// Any suspicion counts as a proof of death.
        SuspicionIsProof = "suspicion-is-proof",
        /// The holder's death clears its page although an attached program can still read it.
        ForgetReaders = "forget-readers",
        /// Only holders of the last view are cleared.
        ForgetOlderHolders = "forget-older-holders",
        /// A new leader considers everything cleared.
        TrustTakeover = "trust-takeover",
        /// The leader's timer runs from when it proposed.
        TimerFromProposal = "timer-from-proposal",
        /// The leader's timer runs from when it began to lead.
        TimerFromTakeover = "timer-from-takeover",
        /// The wait of a leader is not lengthened for clocks that drift.
        UndriftedClear = "undrifted-clear",
        /// A coordinator considers the view it starts from to have been decided long ago.
        StartLongAgo = "start-long-ago",
        /// A renewal puts the fence back.
        RenewalLowersFence = "renewal-lowers-fence",
        /// The fence is raised by a WRITE whose completion is not awaited.
        FenceByWrite = "fence-by-write",
        /// A fence CAS that found a lower value counts as a success.
        FailedFenceIsAck = "failed-fence-is-ack",
        /// `active` does not look at the fence.
        IgnoreFence = "ignore-fence",
        /// A holder that rejoins clears its fence while READs are outstanding.
        ReinitialisePage = "reinitialise-page",
        /// A cache reports fences as raised before they are.
        FanOutUnseen = "fan-out-unseen",
        /// A cache's report about fences counts for whatever is being cleared.
        FanOutAnyRound = "fan-out-any-round",
        /// Where there are caches, only their fences are raised, as if no other holder could renew.
        FenceOnlyCaches = "fence-only-caches",
        /// A holder raises its own fence to the views that it learns of, by a plain store.
        FenceByHolder = "fence-by-holder",
        /// A member to whom a link is down counts as dead.
        LostLinkIsProof = "lost-link-is-proof",
    }
    11 {
        /// No process polls for views whose announcement was lost.
        NoPoll = "no-poll",
    }
    12 {
        /// A repeated join is a new join.
        ForgetJoins = "forget-joins",
        /// Departed members are remembered for half of the time in which a join is valid.
        ForgetDeparted = "forget-departed",
        /// An incarnation is assigned twice.
        ReuseIncarnation = "reuse-incarnation",
    }
    13 {
        /// A proposer whose numbers are exhausted starts over with small ones.
        WrapProposal = "wrap-proposal",
    }
    15 {
        /// Contending leaders pause for equal times.
        EqualBackoff = "equal-backoff",
    }
    16 {
        /// A newcomer decides before it is a member.
        AddUnseen = "add-unseen",
    }
    17 {
        /// A member whose cache does not answer keeps asking it.
        NoFallback = "no-fallback",
    }
    18 {
        /// A program does not check that its view is still active before its work takes effect.
        SkipSecondCheck = "skip-second-check",
        /// A confirmation is dated from the completion of its READs.
        ConfirmFromCompletion = "confirm-from-completion",
        /// A program reads the fence before the page.
        FenceBeforePage = "fence-before-page",
        /// A program uses the next view although leases on older ones may be left.
        UseBeforeClear = "use-before-clear",
        /// A program uses a view that does not name it.
        UseUnnamed = "use-unnamed",
        /// A program uses the view after the next one by the page.
        UseOverGap = "use-over-gap",
        /// A program uses the view before the one that the page is on.
        UseViewBefore = "use-view-before",
        /// A program uses the next view until the page's lease ends, which a cache may have renewed.
        UsePageEnd = "use-page-end",
        /// A program uses a recovered view, or one after it, by a lease from before the recovery.
        UseRecovered = "use-recovered",
        /// A program uses what a coordinator shows that a recovery has given up.
        UseGivenUp = "use-given-up",
    }
    19 {
        /// A stream continues after views that it could not read, without reporting the gap.
        DropForSlow = "drop-for-slow",
    }
    20 {
        /// Events of the flight recorders are merged process by process, not by time.
        MergeUnsorted = "merge-unsorted",
    }
    21 {
        /// The slots of an acceptor that was away for long are compared by the last 16 bits of
        /// their numbers.
        NarrowIndex = "narrow-index",
        /// An aborted proposal is not retried.
        NoRetry = "no-retry",
        /// The leader ignores reports of late renewals.
        DeafToStrain = "deaf-to-strain",
        /// Holders are fenced up to the view after the one that is proposed.
        FenceUndecided = "fence-undecided",
        /// A link that works in one direction counts as up.
        OneWayIsUp = "one-way-is-up",
        /// Which coordinators a member cannot reach is not read from its memory, so a report needs the
        /// link that it is about.
        ReportByTheLinkAlone = "report-by-the-link-alone",
        /// The clique that is kept may be one without the leader.
        CliqueWithoutLeader = "clique-without-leader",
        /// A coordinator that reaches a majority does not lead while those before it, which reach none, are
        /// not suspected.
        NobodyStandsIn = "nobody-stands-in",
        /// A coordinator believes for ever what it was told once without a proof.
        BelieveForEver = "believe-for-ever",
        /// A member asks for a slot to be settled, however often, and looks nowhere else for its value.
        SettleForEver = "settle-for-ever",
        /// A coordinator that could decide nothing judges at once, when it can again, by what it was told
        /// before.
        JudgeOutdated = "judge-outdated",
        /// An excluded process asks to be admitted although some of its links are still broken.
        RejoinUnproved = "rejoin-unproved",
        /// Newcomers are admitted whether or not the leader can read their memory.
        AdmitUnread = "admit-unread",
        /// They are admitted whether or not who had them excluded can.
        AdmitUnasked = "admit-unasked",
    }
    22 {
        /// Joins of a name are not on hold, however often its members fail.
        HoldNoJoins = "hold-no-joins",
        /// The same, however often they leave.
        HoldNoLeavers = "hold-no-leavers",
        /// The same, however often they are suspected.
        HoldNoSuspects = "hold-no-suspects",
        /// A first suspicion puts joins of its name on hold.
        HoldAtOnce = "hold-at-once",
        /// A hold doubles without a bound.
        HoldUnbounded = "hold-unbounded",
    }
    23 {
        /// A missing coordinator is replaced at once.
        ReplaceInHaste = "replace-in-haste",
        /// Replacements follow each other without a pause.
        ReplaceUnpaced = "replace-unpaced",
        /// The missing coordinator's seat is removed before a spare has one.
        RemoveFirst = "remove-first",
        /// A replacement does not depend on how many of the others live.
        ReplaceBelowMajority = "replace-below-majority",
        /// A spare is added to the deciders, and the missing coordinator stays.
        KeepVacant = "keep-vacant",
    }
    24 {
        /// Only pulses by the first path count as signs of life.
        PulseByOnePath = "pulse-by-one-path",
        /// A pulse that comes late, after newer ones, counts as a sign of life.
        LatePulseCounts = "late-pulse-counts",
        /// The numbers of pulses are compared by their last 16 bits.
        NarrowPulseNumbers = "narrow-pulse-numbers",
        /// The numbers of a gateway's earlier life are remembered.
        PulseOfEarlierLife = "pulse-of-earlier-life",
        /// A silence has to be seen twice, a timeout apart.
        SilenceByPolling = "silence-by-polling",
        /// A path of pulses that does not deliver is not compared with the others.
        PathAlone = "path-alone",
        /// A gateway that was stopped judges before it takes the pulses that have arrived meanwhile.
        JudgedFirst = "judged-first",
        /// Time in which a gateway was stopped counts as silence of the others.
        AbsenceCounts = "absence-counts",
    }
    25 {
        /// A newcomer is admitted although a member has its name.
        AdmitNamesakes = "admit-namesakes",
    }
}

/// The bug planted in a machine, if any. `M` is the crate's list of bugs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ActiveMutant<M = Mutant> {
    #[cfg(feature = "mutants")]
    mutant: Option<M>,
    #[cfg(not(feature = "mutants"))]
    none: PhantomData<M>,
}

impl<M: Copy + PartialEq> ActiveMutant<M> {
    /// No bug.
    pub const NONE: Self = Self {
        #[cfg(feature = "mutants")]
        mutant: None,
        #[cfg(not(feature = "mutants"))]
        none: PhantomData,
    };

    /// This bug.
    #[cfg(feature = "mutants")]
    pub const fn new(mutant: M) -> Self {
        Self { mutant: Some(mutant) }
    }

    /// Whether this bug is planted.
    #[cfg(feature = "mutants")]
    #[inline]
    pub fn has(self, mutant: M) -> bool {
        self.mutant == Some(mutant)
    }

    /// Whether this bug is planted: never.
    #[cfg(not(feature = "mutants"))]
    #[inline(always)]
    pub const fn has(self, _mutant: M) -> bool {
        false
    }
}

impl<M: Copy + PartialEq> Default for ActiveMutant<M> {
    fn default() -> Self {
        Self::NONE
    }
}

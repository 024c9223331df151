//! Reachability marks: paths that a campaign must have taken, or it has proved less than it says.

use obol_observe::words;

words! {
    /// A path worth reaching.
    #[repr(u8)]
    Mark {
        /// Another proposer's value was adopted.
        Adoption = "adoption",
        /// An attempt was aborted: a wrong prediction.
        AbortMispredicted = "abort_mispredicted",
        /// An attempt was aborted: another proposer.
        AbortContended = "abort_contended",
        /// An attempt was aborted: no majority of acceptors answered.
        AbortNoMajority = "abort_no_majority",
        /// An attempt was aborted: the slot's place in the ring was recycled.
        AbortBehind = "abort_behind",
        /// A process jumped over views.
        Jump = "jump",
        /// A process found a view by reading slots.
        Fetch = "fetch",
        /// A reader asked for a slot to be settled.
        Nudge = "nudge",
        /// A view was decided only to settle a slot.
        Settled = "settled",
        /// A view was announced by its number because it did not fit into a datagram.
        AnnouncedByNumber = "announced_by_number",
        /// A view was too large for a datagram, and what differs from its predecessor was
        /// announced.
        AnnouncedByStep = "announced_by_step",
        /// A holder was cleared by its fence.
        ClearByFence = "clear_by_fence",
        /// A holder was cleared by a proof of death.
        ClearByProof = "clear_by_proof",
        /// A holder was cleared by waiting.
        ClearByWait = "clear_by_wait",
        /// A leader that did not know the holders waited for all of them.
        ClearByBlindWait = "clear_by_blind_wait",
        /// A CLEAR started a page before its wait had run.
        ClearUsed = "clear_used",
        /// A CLEAR for an older base reached a member that was further.
        LateClear = "late_clear",
        /// A CLEAR overtook its view.
        EarlyClear = "early_clear",
        /// A view came with its CLEAR in one datagram.
        ClearedView = "cleared_view",
        /// A new leader took over.
        Takeover = "takeover",
        /// Two coordinators led at once.
        TwoLeaders = "two_leaders",
        /// A restarted coordinator led before anybody had admitted it.
        StandbyLeads = "standby_leads",
        /// A frozen member found itself excluded when it woke, and came back.
        RejoinAfterFreeze = "rejoin_after_freeze",
        /// A member was removed although it lived.
        FalseRemoval = "false_removal",
        /// A newcomer at an occupied seat replaced the old occupant.
        ReplacedSeat = "replaced_seat",
        /// Programs went with their agent.
        HostRemoved = "host_removed",
        /// A member left gracefully.
        Left = "left",
        /// A coordinator left gracefully.
        CoordinatorLeft = "coordinator_left",
        /// A program was removed because it broke its promise of progress.
        Hung = "hung",
        /// The lease became longer.
        LeaseLonger = "lease_longer",
        /// The lease became shorter.
        LeaseShorter = "lease_shorter",
        /// A join was refused as too old.
        RefusedStale = "refused_stale",
        /// A join was refused because its agent is gone.
        RefusedNoHost = "refused_no_host",
        /// A join was refused because the view has no room for it.
        RefusedFull = "refused_full",
        /// A join was held back because its name failed too often.
        HeldBack = "held_back",
        /// A program crashed as soon as it was a member, again and again, and others hardly
        /// noticed.
        CrashLoop = "crash_loop",
        /// A join was refused for another reason.
        RefusedOther = "refused_departed",
        /// The bits by which slots tell laps apart wrapped.
        InstanceWrapped = "instance_wrapped",
        /// An acceptor came back after more views than the ring remembers, and decided again.
        AwayForLaps = "away_for_laps",
        /// The same after more than 2^15 views.
        AwayFor15Bits = "away_for_15_bits",
        /// The same after more than 2^16 views.
        AwayFor16Bits = "away_for_16_bits",
        /// A majority of coordinators was dead at once.
        MajorityLost = "majority_lost",
        /// The page of a dead agent was active for a program that lived.
        OrphanActive = "orphan_active",
        /// A page was active while its holder was frozen.
        FrozenActive = "frozen_active",
        /// Work took effect in the view that it was begun in.
        WorkDone = "work_done",
        /// Work was given up because its view was not active any more.
        WorkAbandoned = "work_abandoned",
        /// A view was confirmed while its lease ran.
        Confirmed = "confirmed",
        /// A view was confirmed although its lease had run out.
        ConfirmedWithoutLease = "confirmed_without_lease",
        /// Members could act in the end though no lease lasted as long as a renewal took.
        FarNetwork = "far_network",
        /// A renewal completed after its lease had ended.
        RenewalLate = "renewal_late",
        /// A lease cache vouched for a view.
        Vouched = "vouched",
        /// A lease cache could not vouch.
        VouchRefused = "vouch_refused",
        /// A member passed a lease cache over.
        CachePassed = "cache_passed",
        /// A lease cache raised fences for a leader.
        FannedOut = "fanned_out",
        /// A cluster became well again with all multicasts lost.
        NoMulticast = "no_multicast",
        /// A cluster became well again in a minimal majority of coordinators.
        BareMajority = "bare_majority",
        /// A program that is no member was given a view.
        Streamed = "streamed",
        /// A program that is no member was told of views that it can not have any more.
        StreamGap = "stream_gap",
        /// A coordinator came to those that decide.
        AcceptorAdded = "acceptor_added",
        /// A coordinator decides no more.
        AcceptorRemoved = "acceptor_removed",
        /// A cluster became well again with other acceptors than it began with.
        AcceptorsChanged = "acceptors_changed",
        /// A spare coordinator came to those who decide, and no operator had asked for it.
        SpareCame = "spare_came",
        /// A missing coordinator decides no more, and no operator had asked for it.
        Replaced = "replaced",
        /// One coordinator after the other failed for good, and nobody had to do anything.
        Succession = "succession",
        /// A partition that lasted left a clique, and somebody who lives outside of it.
        Clique = "clique",
        /// The same, with a link that was cut in one direction only.
        CliqueOneWay = "clique_one_way",
        /// The time line of a failover was whole, and its phases were judged.
        TimelineWhole = "timeline_whole",
        /// The time line of a failover had a hole, and told no phases.
        TimelineHole = "timeline_hole",
        /// Somebody could not find out who decides, and asked.
        AskedWhoDecides = "asked_who_decides",
        /// Somebody was told who decides.
        ToldWhoDecides = "told_who_decides",
        /// A member complained about short leases.
        Strained = "strained",
        /// The newest view was looked for in whole rings.
        RingsRead = "rings_read",
        /// A leader waited for acceptors before its next attempt.
        Stranded = "stranded",
        /// A leader was outbid so often that its pauses grew.
        PausesGrew = "pauses_grew",
        /// A slot was decided though an acceptor had used up its proposal numbers.
        NumbersUsedUp = "numbers_used_up",
        /// Caches did not raise fences in time, and the leader did.
        FanOutOverdue = "fan_out_overdue",
        /// A cache could not raise a fence, and said so.
        FanOutRefused = "fan_out_refused",
        /// A renewal found no majority.
        RenewalFailed = "renewal_failed",
        /// A suspicion was wrong, and taken back.
        Retracted = "retracted",
        /// A clock was proved to be beyond the drift bound.
        DriftAlarm = "drift_alarm",
        /// A view became active only because delays that outgrow leases made them longer.
        SlowNetwork = "slow_network",
        /// A coordinator was killed.
        KilledCoordinator = "killed_coordinator",
        /// A leader was killed.
        KilledLeader = "killed_leader",
        /// An agent was killed.
        KilledAgent = "killed_agent",
        /// An embedded app was killed.
        KilledApp = "killed_app",
        /// A lease cache was killed.
        KilledCache = "killed_cache",
        /// A program in a seat was killed.
        KilledProgram = "killed_program",
        /// A process started from a later view than the first, which a coordinator's region showed.
        StartedLater = "started_later",
        /// A process was started again.
        Restarted = "restarted",
        /// A coordinator was frozen.
        FrozenCoordinator = "frozen_coordinator",
        /// A member was frozen.
        FrozenMember = "frozen_member",
        /// A lease cache was frozen.
        FrozenCache = "frozen_cache",
        /// A program in a seat was frozen.
        FrozenProgram = "frozen_program",
        /// A program in a seat made no progress any more.
        HungProgram = "hung_program",
        /// A program took a seat.
        Attached = "attached",
        /// A program asked to leave.
        AskedToLeave = "asked_to_leave",
        /// Joins arrived once more long after they had been decided.
        JoinsRepeated = "joins_repeated",
        /// A living process was said to be dead.
        Suspected = "suspected",
        /// A link was cut.
        LinkCut = "link_cut",
        /// A link was cut in one direction only.
        LinkCutOneWay = "link_cut_one_way",
        /// A datagram got lost.
        DatagramLost = "datagram_lost",
        /// A datagram arrived twice.
        DatagramDoubled = "datagram_doubled",
        /// A multicast missed a receiver.
        MulticastLost = "multicast_lost",
        /// First news of a death got lost.
        NoticeLost = "notice_lost",
        /// A proof of death got lost.
        ProofLost = "proof_lost",
        /// A machine took far longer than usual.
        Stalled = "stalled",
        /// A link broke because nobody answered in time.
        LinkTimedOut = "link_timed_out",
        /// A long operation was executed in two halves.
        Torn = "torn",
        /// Clocks beyond the drift bound let two incompatible views overlap, and nothing else
        /// broke.
        OverlapPastBound = "overlap_past_bound",
    }
}

/// A set of marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks(u128);

const _: () = assert!(Mark::ALL.len() <= 128);

impl Marks {
    /// None.
    pub const NONE: Self = Self(0);

    /// Adds one.
    pub const fn hit(&mut self, mark: Mark) {
        self.0 |= 1 << mark as u8;
    }

    /// Adds all of another set.
    pub const fn merge(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Whether one is in it.
    #[must_use]
    pub const fn has(self, mark: Mark) -> bool {
        self.0 & 1 << mark as u8 != 0
    }
}

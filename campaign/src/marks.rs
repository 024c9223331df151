//! Reachability marks: code paths that a campaign must have taken to prove what it claims.

use obol_observe::named_enum;

named_enum! {
    /// A path to reach.
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
        /// A process discovered a view by reading slots.
        Fetch = "fetch",
        /// A reader requested that a slot be settled.
        Nudge = "nudge",
        /// A view was decided only to settle a slot.
        Settled = "settled",
        /// A view was announced by its number because it did not fit into a datagram.
        AnnouncedByNumber = "announced_by_number",
        /// A view was too large for a datagram, so its difference from its predecessor was
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
        /// A CLEAR for an older base reached a member that was ahead of it.
        LateClear = "late_clear",
        /// A CLEAR overtook its view.
        EarlyClear = "early_clear",
        /// A view came with its CLEAR in one datagram.
        ClearedView = "cleared_view",
        /// A new leader took over.
        Takeover = "takeover",
        /// Two coordinators led at once.
        TwoLeaders = "two_leaders",
        /// A restarted coordinator led before it was admitted.
        StandbyLeads = "standby_leads",
        /// A frozen member found itself excluded when it resumed, and rejoined.
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
        /// A program was removed because it broke its progress promise.
        Hung = "hung",
        /// The lease became longer.
        LeaseLonger = "lease_longer",
        /// The lease became shorter.
        LeaseShorter = "lease_shorter",
        /// A join was rejected as too old.
        RefusedStale = "refused_stale",
        /// A join was rejected because its agent is gone.
        RefusedNoHost = "refused_no_host",
        /// A join was rejected because the view has no room for it.
        RefusedFull = "refused_full",
        /// A join was rejected because a member has its name.
        RefusedName = "refused_name",
        /// A join was put on hold because its name failed, left or was suspected too often.
        OnHold = "held_back",
        /// A program crashed repeatedly as soon as it was a member, with little effect on others.
        CrashLoop = "crash_loop",
        /// A program left repeatedly as soon as it was a member, until its name was put on hold.
        LeaveLoop = "leave_loop",
        /// A process was suspected repeatedly, until its name was put on hold, and was admitted each
        /// time.
        Flapped = "flapped",
        /// A join was rejected for another reason.
        RefusedOther = "refused_departed",
        /// The bits by which slots distinguish laps wrapped.
        InstanceWrapped = "instance_wrapped",
        /// An acceptor returned after more views than the ring holds, and accepted again.
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
        /// Work took effect in the view in which it was begun.
        WorkDone = "work_done",
        /// Work was abandoned because its view was no longer active.
        WorkAbandoned = "work_abandoned",
        /// A program used a view that its agent had no lease on yet.
        UsedBeforeAgent = "used_before_agent",
        /// A program used the view of its agent's page, whose CLEAR the agent did not know yet.
        UsedBeforeClear = "used_before_clear",
        /// A view was confirmed while its lease ran.
        Confirmed = "confirmed",
        /// A view was confirmed although its lease had run out.
        ConfirmedWithoutLease = "confirmed_without_lease",
        /// Members could act at the end although no lease lasted as long as a renewal took.
        FarNetwork = "far_network",
        /// A renewal completed after its lease had ended.
        RenewalLate = "renewal_late",
        /// A lease cache vouched for a view.
        Vouched = "vouched",
        /// A lease cache could not vouch.
        VouchRefused = "vouch_refused",
        /// A member skipped a lease cache.
        CachePassed = "cache_passed",
        /// A lease cache raised fences for a leader.
        FannedOut = "fanned_out",
        /// The page of a dead agent was fenced through a program that mapped it.
        DeadFenced = "dead_fenced",
        /// A cluster recovered with all multicasts lost.
        NoMulticast = "no_multicast",
        /// A cluster recovered with a minimal majority of coordinators.
        BareMajority = "bare_majority",
        /// A program that is not a member received a view.
        Streamed = "streamed",
        /// A program that is not a member was notified of views that it cannot get any more.
        StreamGap = "stream_gap",
        /// A coordinator became an acceptor.
        AcceptorAdded = "acceptor_added",
        /// A coordinator stopped being an acceptor.
        AcceptorRemoved = "acceptor_removed",
        /// A cluster recovered with other acceptors than at its start.
        AcceptorsChanged = "acceptors_changed",
        /// A spare coordinator became an acceptor without a request of an operator.
        SpareCame = "spare_came",
        /// A missing coordinator stopped being an acceptor without a request of an operator.
        Replaced = "replaced",
        /// One coordinator after the other failed for good, and was replaced automatically.
        RepeatedLoss = "succession",
        /// A permanent partition left a clique, and a live process outside of it.
        Clique = "clique",
        /// The same, with a link that was cut in one direction only.
        CliqueOneWay = "clique_one_way",
        /// The same, with a node that the others do not reach, though it reaches them.
        CliqueClosed = "clique_closed",
        /// The same, with a node that cannot connect to the others, though they reach it.
        CliqueRefused = "clique_refused",
        /// The same, with a coordinator without which nothing is decided, so that those go to which it
        /// cannot connect.
        CliqueNeeded = "clique_needed",
        /// The network failed as a whole for some link timeouts, healed, and nobody was removed for it.
        Blackout = "blackout",
        /// No two coordinators reached each other in both directions, each reached a majority, and a
        /// death was decided.
        Ring = "ring",
        /// A coordinator that reached a majority led in place of those before it, which did not, and a death
        /// was decided.
        StoodIn = "stood_in",
        /// The next leader alone had been told of a suspicion that nobody repeated, the leader died, and the
        /// suspected member stayed.
        ToldOnce = "told_once",
        /// The time line of a failover was complete, and its phases were checked.
        TimelineWhole = "timeline_whole",
        /// The time line of a failover was incomplete, and gave no phases.
        TimelineHole = "timeline_hole",
        /// A process could not determine the acceptors, and requested them.
        AskedWhoDecides = "asked_who_decides",
        /// A process was sent the acceptors.
        DecidersSent = "deciders_sent",
        /// A member reported late renewals.
        LateRenewals = "late_renewals",
        /// The newest view was searched in whole rings.
        RingsRead = "rings_read",
        /// A leader without a majority waited before its next attempt.
        LostQuorum = "lost_quorum",
        /// A leader was outbid so often that its backoff grew.
        PausesGrew = "pauses_grew",
        /// A slot was decided although an acceptor had used up its proposal numbers.
        NumbersUsedUp = "numbers_used_up",
        /// Caches did not raise fences in time, so the leader did.
        FanOutOverdue = "fan_out_overdue",
        /// A cache could not raise a fence, and reported it.
        FanOutRefused = "fan_out_refused",
        /// A renewal found no majority.
        RenewalFailed = "renewal_failed",
        /// A suspicion was wrong, and was retracted.
        Retracted = "retracted",
        /// A clock was proved to exceed the drift bound.
        DriftAlarm = "drift_alarm",
        /// A view became active only because leases were extended for slow links.
        SlowNetwork = "slow_network",
        KilledCoordinator = "killed_coordinator",
        KilledLeader = "killed_leader",
        KilledAgent = "killed_agent",
        /// An embedded app was killed.
        KilledApp = "killed_app",
        /// A lease cache was killed.
        KilledCache = "killed_cache",
        /// A program in a seat was killed.
        KilledProgram = "killed_program",
        /// A process started from a later view than the first, found in a coordinator's region.
        StartedLater = "started_later",
        /// A process was restarted.
        Restarted = "restarted",
        FrozenCoordinator = "frozen_coordinator",
        FrozenMember = "frozen_member",
        /// A lease cache was frozen.
        FrozenCache = "frozen_cache",
        /// A program in a seat was frozen.
        FrozenProgram = "frozen_program",
        /// A program in a seat made no progress any more.
        HungProgram = "hung_program",
        /// A program took a seat.
        Attached = "attached",
        /// A program requested to leave.
        AskedToLeave = "asked_to_leave",
        /// Joins arrived again long after they had been decided.
        JoinsRepeated = "joins_repeated",
        /// The announcement of a view arrived after another one had been decided.
        LateView = "late_view",
        /// The last lease cache went in a view that is not compatible with the one before.
        LastCacheGone = "last_cache_gone",
        /// A live process was reported dead.
        Suspected = "suspected",
        LinkCut = "link_cut",
        /// A link was cut in one direction only.
        LinkCutOneWay = "link_cut_one_way",
        /// A datagram got lost.
        DatagramLost = "datagram_lost",
        /// A datagram arrived twice.
        DatagramDoubled = "datagram_doubled",
        /// A multicast missed a receiver.
        MulticastLost = "multicast_lost",
        /// The first notice of a death got lost.
        NoticeLost = "notice_lost",
        /// A proof of death got lost.
        ProofLost = "proof_lost",
        /// A machine stalled.
        Stalled = "stalled",
        /// A link broke by timeout.
        LinkTimedOut = "link_timed_out",
        /// A long operation was torn in two halves.
        Torn = "torn",
        /// A host was stopped.
        HostPaused = "host_paused",
        /// The gateway of a host was started again.
        GatewayRestarted = "gateway_restarted",
        /// A stopped host was suspected for its missing pulses.
        HostSilent = "host_silent",
        /// A host was suspected for its missing pulses, although it ran.
        SilentAlive = "silent_alive",
        /// A path of pulses was found lost.
        PathLost = "path_lost",
        /// The same, while the other direction delivered.
        PathLostOneWay = "path_lost_one_way",
        /// A lost path delivered again.
        PathBack = "path_back",
        /// A pulse arrived more than a timeout late, after newer ones.
        LatePulse = "late_pulse",
        /// The notice of a death overtook the pulse before it.
        NoticeHeld = "notice_held",
        /// Pulses reported a death.
        DeathByPulse = "death_by_pulse",
        /// The numbers of pulses went beyond 16 or 32 bits.
        PulseNumbersWrapped = "pulse_numbers_wrapped",
        /// Clocks beyond the drift bound let two incompatible views overlap, without any other
        /// violation.
        OverlapPastBound = "overlap_past_bound",
    }
}

/// Marks in a word of a set.
const WORD_BITS: usize = 64;
const WORDS: usize = Mark::ALL.len().div_ceil(WORD_BITS);

/// A set of marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks([u64; WORDS]);

impl Marks {
    /// None.
    pub const NONE: Self = Self([0; WORDS]);

    /// Adds one.
    pub const fn hit(&mut self, mark: Mark) {
        self.0[mark as usize / WORD_BITS] |= 1 << (mark as usize % WORD_BITS);
    }

    /// Adds all of another set.
    pub fn merge(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own |= other);
    }

    /// Whether it contains one.
    pub const fn has(self, mark: Mark) -> bool {
        self.0[mark as usize / WORD_BITS] & 1 << (mark as usize % WORD_BITS) != 0
    }
}

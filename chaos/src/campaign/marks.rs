//! Reachability marks: paths that a campaign must have taken, or it has proved less than it says.

macro_rules! marks {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)+) => {
        /// A path worth reaching.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Mark { $($(#[$doc])* $variant,)+ }

        impl Mark {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name that operators see.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }
    };
}

marks! {
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
    /// A join was refused for another reason.
    RefusedOther = "refused_departed",
    /// The 16 bits by which slots tell laps apart wrapped.
    InstanceWrapped = "instance_wrapped",
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
    /// A partition that lasted left a clique, and somebody who lives outside of it.
    Clique = "clique",
    /// The same, with a link that was cut in one direction only.
    CliqueOneWay = "clique_one_way",
    /// Clocks beyond the drift bound let two incompatible views overlap, and nothing else broke.
    OverlapPastBound = "overlap_past_bound",
}

/// A set of marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks(u64);

const _: () = assert!(Mark::ALL.len() <= 64);

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

    /// The names of those that are not in it.
    #[must_use]
    pub fn missing(self) -> Vec<&'static str> {
        Mark::ALL.iter().filter(|m| !self.has(**m)).map(|m| m.name()).collect()
    }
}

//! Mutants, each without a step that the protocol needs. The oracle of `smr/tests/clusters` has to
//! catch all, by the invariant of `docs/design/smr.md` that is given with each.

/// A bug that can be planted with the feature `mutants`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mutant {
    /// A leader commits and answers without checking that its view is still active. (2, 7)
    AnswerWithoutLook,
    /// A successor reads the logs before its view is active. (2)
    TakeoverBeforeActive,
    /// A successor continues from its own log, without those of a majority. (2, 11)
    NoDrain,
    /// A successor does not read the ring of the leader whose blank entry it has applied last. (2)
    FloorUnread,
    /// All leaders write into one ring. (1)
    SharedRing,
    /// A majority is one of the voters in the view, not of all in the configuration. (2)
    ViewsAsQuorum,
    /// A request that is in the log twice takes effect twice. (6)
    SessionsForgotten,
    /// A reader takes an entry of an earlier lap for the one that it expects. (3)
    StaleLap,
    /// A replica becomes a voter before it is whole. (8)
    JoinerCountsEarly,
    /// Places are reused when they are committed, although replicas may not have applied them. (5)
    RecycleByMajority,
    /// A follower applies entries as they arrive. (3)
    ApplyUncommitted,
    /// A successor takes the entry of the lowest term for an index, not of the highest. (1; by the
    /// model)
    LowestTerm,
    /// A leader that writes an entry again into the same place writes all of it. (2; by the model)
    RewriteInPlace,
    /// A leader gives commands the time of its own clock, whatever times the log has. (13)
    StampsOfOneClock,
    /// A successor goes on from the newest stamp as if no time had passed since. (13)
    TimeStandsStill,
    /// A replica that joins learns of no time but that of the commands. (13)
    ConfigsWithoutTime,
    /// Commands keep the time that their clients wrote. (13)
    StampsOfClients,
    /// An owner lets the next leader write and still lets the one before. (1, 2)
    GrantWithoutRevoke,
    /// An owner answers a request before the change of permissions is in force. (1, 2)
    AnswerBeforePermit,
    /// A leader counts a WRITE that was refused. (1, 2)
    RefusalCounts,
    /// A successor waits for the permission of all voters. (12)
    WaitsForAll,
    /// A leader answers before its view was active, while the one before still answers reads. (7)
    AnswerBeforeActive,
    /// A replica's counter goes on while its replication plane is stuck. (12)
    FateUnshared,
    /// A replica wants to lead that a majority of the voters takes for failed. (12)
    LeadsUnreached,
    /// A leader that no view confirms answers queries without an entry. (7)
    ReadsUnreplicated,
    /// A leader commits entries of earlier terms by counting replicas. (1, 2; by a
    /// schedule)
    CommitOldTerm,
    /// A server votes for several candidates in one term. (9; by the model)
    VoteTwice,
    /// A server votes while the leader before can still write to its log. (1, 2)
    VoteWithOpenLog,
    /// A server votes for a candidate that lacks entries of its own log. (2, 11)
    VoteWithoutLogCheck,
    /// A leader sets the tail of a log before the entries are there. (1, 2)
    TailBeforeEntries,
    /// A leader answers queries without reading the terms of a majority. (7)
    ReadWithoutTerms,
    /// A leader answers queries before its first own entry is committed, from what it had applied
    /// until then. (7)
    ReadBeforeBlank,
    /// A leader cuts a log off after the commit index that is known there, which may be behind. (2;
    /// by a schedule)
    AdjustToCommit,
    /// A leader gives up entries that its peers have, whether or not they know them to be
    /// committed, and have applied them. (5)
    HeadUncommitted,
    /// A leader takes what another replica has applied for what its neighbour has. (5)
    PruneWrongIndex,
    /// A configuration follows one that is not committed, whose majority it does not need. (8)
    OneMajorityInTransition,
    /// A save in parts sees what was applied after it had begun. (14)
    SaveLate,
    /// A replica continues a snapshot with that of another provider. (14)
    SnapshotsMixed,
    /// A replica continues alone on an operator's word although a majority of the voters is there. (2)
    ContinuesBesideOthers,
    /// A leader that continues alone gives up what it has not applied. (2)
    ContinuesFromApplied,
    /// A replica whose log was replaced by a newer one goes on with it. (2)
    OlderLogStays,
    /// A leader leaves when it has appended the configuration without itself, committed or not. (12)
    LeavesAtOnce,
}

/// The planted bug, if any; never one without the feature.
pub(crate) type ActiveMutant = obol_membership::ActiveMutant<Mutant>;

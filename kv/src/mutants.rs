//! Mutants, each without a step that the algorithm needs. The checker of histories has to catch
//! all.

/// A bug that can be planted with the feature `mutants`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutant {
    /// The primary answers without checking that its view is still active.
    NoSecondCheck,
    /// A backup serves as soon as it learns of the view that makes it the primary.
    ServeEarly,
    /// A backup takes over without the rest of its log.
    LogNotDrained,
    /// A backup applies records that an earlier life of its process left in the log.
    LogsAlike,
    /// The primary answers before its backups have the PUT.
    AnswerFirst,
    /// A GET returns a value that the backup may not have yet.
    ShowSpeculative,
    /// The primary answers when only one of its backups has the PUT.
    OneCopyIsEnough,
    /// A server without the complete state serves what it has.
    ServeWithHoles,
    /// A server that was excluded serves its old state although others have served since.
    StaleCopy,
    /// A backup that takes over does not resend what another backup may not have received from the
    /// old primary.
    TailForgotten,
}

/// The planted bug, if any; never one without the feature.
pub(crate) type ActiveMutant = obol_membership::ActiveMutant<Mutant>;

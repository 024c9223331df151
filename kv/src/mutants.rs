//! ActiveMutant bugs, each a step that the algorithm can not do without. The checker of histories has to
//! catch every one.

/// A bug that can be planted with the feature `mutants`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutant {
    /// The primary answers without a look whether its view still is active.
    NoSecondCheck,
    /// A backup serves as soon as it learns of the view that makes it the primary.
    ServeEarly,
    /// A backup serves without what is left in its log.
    LogNotDrained,
    /// A backup takes what an earlier life of its process has left in the log for its own.
    LogsAlike,
    /// The primary answers before the backup has what is answered for.
    AnswerFirst,
    /// A GET shows a value that the backup may not have yet.
    ShowSpeculative,
    /// The primary answers when one of its backups has what is answered for, whatever the other
    /// has.
    OneCopyIsEnough,
    /// A server that has not got the state, or not all of it, serves what it has.
    ServeWithHoles,
    /// A server that was excluded serves what it had, whoever has served since.
    StaleCopy,
    /// A backup that takes over does not send on what another backup may not have got from the old
    /// primary.
    TailForgotten,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::NoSecondCheck,
        Self::ServeEarly,
        Self::LogNotDrained,
        Self::LogsAlike,
        Self::AnswerFirst,
        Self::ShowSpeculative,
        Self::OneCopyIsEnough,
        Self::ServeWithHoles,
        Self::StaleCopy,
        Self::TailForgotten,
    ];
}

/// The bug that is planted, if any. Without the feature there never is one.
pub(crate) type ActiveMutant = obol_membership::ActiveMutant<Mutant>;

//! What a replica keeps of what is replicated.

use crate::log::Log;
use crate::position::{Index, Point};
use crate::service::Service;
use crate::state::State;

/// What is replicated, with the part of the log that is in memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Replicated<S> {
    pub(crate) state: State<S>,
    /// Without a gap it contains what follows `state.applied`.
    pub(crate) log: Log,
    /// The log begins after what is applied: a snapshot is missing.
    pub(crate) gap: bool,
    /// It has loaded a snapshot, and has not applied what it took meanwhile and knows to be committed. That
    /// may be more than a ring, so it is not in this replica's memory for others, and as with a gap the ring
    /// is free at once: the leader goes on.
    pub(crate) lags: bool,
}

impl<S: Service> Replicated<S> {
    /// Drops all that is not applied.
    pub(crate) fn drop_tail(&mut self) {
        self.lags = false;
        if core::mem::take(&mut self.gap) {
            self.log.restart(self.state.applied);
        } else {
            self.log.truncate(self.state.applied.index);
        }
        self.assert_whole();
        assert_eq!(self.log.end().index, self.state.applied.index, "nothing follows the state");
    }

    /// Drops what may not be in the log of the next leader, which sends what follows `begin`, given what is
    /// committed. What goes beyond its state is needed only if that leader does not send it again.
    pub(crate) fn drop_uncommitted(&mut self, commit: Index, begin: Index) {
        if self.is_behind() && begin > self.state.applied.index {
            self.log.truncate(commit.max(self.state.applied.index));
        } else {
            self.drop_tail();
        }
    }

    /// Without a gap the log has what follows the state.
    pub(crate) fn assert_whole(&self) {
        let (base, applied, end) = (self.log.base().index, self.state.applied.index, self.log.end().index);
        assert!(self.gap || base <= applied && applied <= end, "{base} <= {applied} <= {end}");
    }

    /// A snapshot was loaded.
    pub(crate) fn on_loaded(&mut self) {
        let applied = self.state.applied;
        if applied.index > self.log.end().index {
            self.log.restart(applied);
        }
        self.gap = self.log.base().index > applied.index;
        self.lags = !self.gap && self.log.end().index > applied.index;
        self.assert_whole();
    }

    /// Whether the log that follows its state is not in its memory, or not all of it.
    pub(crate) const fn is_behind(&self) -> bool {
        self.gap || self.lags
    }

    /// Up to where others may overwrite rings here.
    pub(crate) fn freed(&self) -> Point {
        if self.is_behind() { self.log.end() } else { self.state.applied }
    }
}

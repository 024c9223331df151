//! A replica without a log: it begins one if it may, or waits for a replica that has one.

use super::{Replica, Role};
use crate::REPLICAS_MAX;
use crate::config::Config;
use crate::follow::Report;
use crate::preset::{Detector, Guard, Others};
use crate::service::Service;
use obol_fabric::{Address, Fabric, Incarnation};

impl<S: Service, D: Detector, G: Guard> Replica<S, D, G> {
    /// The same, which may begin a log when it is the oldest replica: the first one of a new store.
    /// `number` is for the log's identity, of [`crate::identity`]; `voters` is how many there should be.
    #[must_use]
    pub fn founding(mut self, number: u64, voters: u32) -> Self {
        self.may_bootstrap = Some((self.replicated.state.identity(number), voters));
        self
    }

    /// It has no log, and views do not say who leads: it begins one if it may and no other one has or
    /// begins one. If none can, the oldest one says so.
    pub(super) fn bootstrap_or_wait<F: Fabric>(&mut self, own: Incarnation, fabric: &F) {
        let has_nothing = self.detector.others((own, self.may_bootstrap.is_some())) == Others::HaveNothing;
        if has_nothing && let Some((id, voters)) = self.may_bootstrap.take() {
            self.role = Role::Following;
            self.found(id, voters, fabric);
        } else if has_nothing && self.at == 0 {
            self.role = Role::Waiting;
        } else if self.role == Role::Waiting {
            self.role = Role::Following;
        }
    }

    /// Waits for a replica that has a log or may begin one, and gives way to it. If there is none,
    /// leaving would help nobody, and change views for ever.
    pub(super) fn poll_waiting<F: Fabric>(&mut self, fabric: &F) -> bool {
        // Without views it need not give way: see `bootstrap_or_wait`.
        let Some(own) = self.own.filter(|_| D::OF_VIEWS) else { return false };
        let has_log = |(at, (who, _)): (usize, &(Incarnation, Address))| {
            let report = Report::own(self.area, at, own, fabric);
            report.is_some_and(|report| report.who == *who && (report.log != 0 || report.may_bootstrap))
        };
        if self.replicas.iter().enumerate().take(REPLICAS_MAX).any(has_log) {
            self.role = Role::Yields;
        }
        false
    }

    /// Begins a log. Its takeover finds nothing but the header.
    pub(super) fn found<F: Fabric>(&mut self, id: u64, voters: u32, fabric: &F) {
        self.replicated.state.log = id;
        self.replicated.state.config = Config::first(voters, fabric.address());
        self.publish(fabric);
    }
}

//! What a process requires of its machine besides events.

use crate::{Coordinator, Member, View};
use obol_fabric::{Fabric, Instant, Machine, Release};
use std::sync::Arc;

/// A process's part in the cluster, which it can leave.
pub trait Role: Machine {
    /// The newest view that it knows.
    fn view(&self) -> &Arc<View>;
    /// Requests a graceful leave.
    fn leave<F: Fabric>(&mut self, now: Instant, fabric: &mut F);
    /// Whether it does its part: peers can use it, and it can use the cluster.
    fn is_ready(&self) -> bool;
    /// Whether the cluster has removed it at its request.
    fn has_left(&self) -> bool;
    /// The release that the cluster speaks, if it does not admit this process for it, so that the
    /// process has to end.
    fn refused_by(&self) -> Option<Release>;
    /// Whether a recovery has retired it, so that its process has to end.
    fn is_retired(&self) -> bool {
        false
    }
}

impl Role for Member {
    fn view(&self) -> &Arc<View> {
        Self::view(self)
    }

    fn leave<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        Self::leave(self, now, fabric);
    }

    fn is_ready(&self) -> bool {
        self.incarnation().is_some()
    }

    fn has_left(&self) -> bool {
        Self::has_left(self)
    }

    fn refused_by(&self) -> Option<Release> {
        Self::refused_by(self)
    }
}

impl Role for Coordinator {
    fn view(&self) -> &Arc<View> {
        Self::view(self)
    }

    fn leave<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        Self::leave(self, now, fabric);
    }

    /// Its memory is the acceptor, which peers use from the first turn on. It must not wait for a
    /// majority: hosts are started one after another.
    fn is_ready(&self) -> bool {
        true
    }

    fn has_left(&self) -> bool {
        Self::has_left(self)
    }

    fn refused_by(&self) -> Option<Release> {
        Self::refused_by(self)
    }

    fn is_retired(&self) -> bool {
        Self::is_retired(self)
    }
}

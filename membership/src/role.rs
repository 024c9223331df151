//! What a process needs of its machine beyond being driven.

use crate::{Coordinator, Member};
use obol_fabric::{Fabric, Instant, Machine};

/// A machine that is a process's part in the cluster: it can leave.
pub trait Role: Machine {
    /// Asks to leave gracefully.
    fn leave<F: Fabric>(&mut self, now: Instant, fabric: &mut F);
    /// Whether the cluster has let it go.
    fn has_left(&self) -> bool;
    /// Whether the cluster has gone on without it for good, so that its process has to end.
    fn is_retired(&self) -> bool {
        false
    }
}

impl Role for Member {
    fn leave<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        Self::leave(self, now, fabric);
    }

    fn has_left(&self) -> bool {
        Self::has_left(self)
    }
}

impl Role for Coordinator {
    fn leave<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        Self::leave(self, now, fabric);
    }

    fn has_left(&self) -> bool {
        Self::has_left(self)
    }

    fn is_retired(&self) -> bool {
        Self::is_retired(self)
    }
}

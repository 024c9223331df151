//! How a replica gives way to a newer log: see [`crate::relatives`].

use super::Replica;
use crate::identity;
use crate::mutants::Mutant;
use crate::preset::{Detector, Guard};
use crate::service::Service;
use crate::takeover::Memory;
use obol_fabric::{Fabric, Instant, LinkError};

impl<S: Service, D: Detector, G: Guard> Replica<S, D, G> {
    /// Looks for a newer log at the replicas of its view, and at voters that its view does not have: their
    /// memory is read as well while they are frozen. Returns whether it has given way, and takes part no more.
    pub(super) fn gives_way<F: Fabric>(&mut self, now: Instant, fabric: &mut F) -> bool {
        if self.follow.misfit {
            return true;
        }
        self.note_turn(now);
        if self.replicated.state.log != 0 && !self.replicated.state.mutant.has(Mutant::OlderLogStays) {
            let voters = self.replicated.state.config.voters.iter().map(|voter| voter.address);
            let in_view = self.replicas.iter().map(|(_, at)| *at);
            self.relatives.poll(now, self.pace.patience, in_view.chain(voters), self.area, fabric);
        }
        false
    }

    /// Whether it comes back, from a pause or into the view, and has to read the others' headers before it does
    /// anything else: another log may have replaced its own one meanwhile.
    pub(super) fn is_to_wait<F: Fabric>(&mut self, now: Instant, fabric: &F) -> bool {
        let (patience, view) = (self.pace.patience, self.view);
        self.replicated.state.log != 0 && self.relatives.is_to_wait(now, patience, || fabric.is_active(view))
    }

    /// Notes that it has a turn, and whether it comes back.
    fn note_turn(&mut self, now: Instant) {
        let last = core::mem::replace(&mut self.turn_at, now);
        let was_paused = last != Instant::ZERO && now.since(last) >= self.pace.patience;
        if core::mem::take(&mut self.is_back) || was_paused {
            self.relatives.on_return(now);
        }
    }

    /// The header of another replica was READ.
    pub(super) fn on_relative<F: Fabric>(
        &mut self,
        id: u32,
        result: Result<&[u8], LinkError>,
        fabric: &mut F,
    ) {
        self.poll_at = Instant::ZERO;
        if self.relatives.on_read(id, result, self.replicated.state.log) {
            self.give_way(fabric);
        }
    }

    /// Whether a memory that it has READ to take over has a newer log.
    pub(super) fn is_replaced_in(&self, memories: &[Memory]) -> bool {
        let is_newer = |memory: &Memory| {
            memory.header.is_some_and(|header| identity::is_newer(header.log, self.replicated.state.log))
        };
        !self.replicated.state.mutant.has(Mutant::OlderLogStays) && memories.iter().any(is_newer)
    }

    /// It leads, votes and grants no more, and its process ends.
    pub(super) fn give_way<F: Fabric>(&mut self, fabric: &mut F) {
        self.follow.misfit = true;
        self.step_down(fabric);
        self.publish(fabric);
        self.poll_at = Instant::ZERO;
    }
}

//! Newcomers are admitted once the leader has read their memory.
//!
//! A newcomer proves by its requests, and after an exclusion by READs of all members, that it reaches
//! the others. That they reach it does not follow: over IP each host's gateway is needed in one
//! direction only. A process that cannot be read would be excluded as soon as it is a member, request
//! admission again, and so on.

use super::Coordinator;
use crate::mutants::Mutant;
use crate::tokens::{self, Part};
use obol_fabric::{Completion, Fabric, Instant, LinkError, Remote};

impl Coordinator {
    /// Acts after an event. Newcomers that the present leader has not read are read before that,
    /// and those of one that has just begun to lead after it.
    pub(super) fn advance<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        self.read_newcomers(fabric);
        self.drive(now, fabric);
        self.read_newcomers(fabric);
    }

    fn read_newcomers<F: Fabric>(&mut self, fabric: &mut F) {
        self.requests.is_reached(fabric.address());
        if !self.is_leading() {
            return;
        }
        let layout = self.peer.config.layout;
        if self.peer.config.mutant.has(Mutant::AdmitUnread) {
            self.requests.reach_all();
        }
        for (at, number) in self.requests.unread() {
            let heartbeat = Remote { at, offset: layout.heartbeat(at.seat) };
            fabric.read(heartbeat, 8, tokens::pack(Part::Newcomer, 0, number));
        }
    }

    /// A newcomer was read, or could not be. That this process cannot map the memory implies nothing
    /// about the newcomer.
    pub(super) fn newcomer_read<F: Fabric>(
        &mut self,
        number: u32,
        result: Result<Completion<'_>, LinkError>,
        fabric: &mut F,
    ) {
        let reached = matches!(result, Ok(_) | Err(LinkError::Unmapped));
        if let Some((to, refusal)) = self.requests.read(number, reached)
            && self.is_leading()
        {
            fabric.send(to, &refusal.encode());
        }
    }
}

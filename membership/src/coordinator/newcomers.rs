//! Newcomers are admitted once the leader has read their memory, and who had them excluded as well.
//!
//! A newcomer proves by its requests, and after an exclusion by READs of all members, that it reaches
//! the others. That they reach it does not follow: over IP each host's gateway is needed in one
//! direction only. A process that cannot be read would be excluded as soon as it is a member, request
//! admission again, and so on.

use super::Coordinator;
use crate::mutants::Mutant;
use crate::reach;
use crate::tokens::Part;
use crate::view::Newcomer;
use crate::wire::Message;
use obol_fabric::{Address, Completion, Fabric, Instant, LinkError};

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
        if !self.is_leading() || !self.requests.has_unreached() {
            return;
        }
        if self.peer.config.mutant.has(Mutant::AdmitUnread) {
            self.requests.reach_all();
        }
        for (at, number) in self.requests.unread() {
            reach::read(at, Part::Newcomer, number, &self.peer.config, fabric);
        }
        let mut requests = std::mem::take(&mut self.requests);
        for (by, at) in requests.read_by_others(|newcomer| self.asks(newcomer)) {
            fabric.send(by, &Message::Reach(at).encode());
        }
        self.requests = requests;
    }

    /// Who has to read a newcomer, too: the member that had it excluded because of its links. Where
    /// nothing can be decided without the newcomer, that member may have to go in its place.
    fn asks(&self, newcomer: &Newcomer) -> Option<Address> {
        let accuser = self.accusers.of(newcomer.address)?;
        let spare = Some(accuser) == self.incarnation()
            || self.suspects.contains_key(&accuser)
            || self.needs(newcomer.proposer);
        self.view().member(accuser).filter(|_| !spare).map(|member| member.address)
    }

    /// A newcomer was read, or could not be.
    pub(super) fn newcomer_read<F: Fabric>(
        &mut self,
        number: u32,
        result: &Result<Completion<'_>, LinkError>,
        fabric: &mut F,
    ) {
        let refused = self.requests.read(number, reach::is_reached(result));
        self.refuse_newcomer(refused, fabric);
    }

    /// Another member has read a newcomer, or could not.
    pub(super) fn newcomer_read_by_other<F: Fabric>(&mut self, at: Address, reached: bool, fabric: &mut F) {
        let refused = self.requests.read_by_other(at, reached);
        self.refuse_newcomer(refused, fabric);
    }

    fn refuse_newcomer<F: Fabric>(&self, refused: Option<(Address, Message<'_>)>, fabric: &mut F) {
        if let Some((to, refusal)) = refused.filter(|_| self.is_leading()) {
            fabric.send(to, &refusal.encode());
        }
    }
}

//! Who is who: the names of incarnations, also of members that are gone, and what a view changed in
//! words.

use obol_agent::Item;
use obol_fabric::{Incarnation, Name, ViewId};
use obol_membership::recorder::Kind as Event;
use obol_membership::view::{Acceptor, coordinator_name};
use obol_membership::{Change, Reason, View};
use obol_node::Site;
use obol_observe::{ObservedEvent, Observer};

fn decider(acceptor: &Acceptor) -> Name {
    coordinator_name(acceptor.proposer)
}

/// Members whose names are kept.
const NAMES_MAX: usize = 1024;

/// Names by incarnation.
#[derive(Default)]
pub(crate) struct Names(Vec<(Incarnation, Name)>);

impl Names {
    /// The names in everything that a cluster keeps: its first view, the views that coordinators
    /// still have, and what the processes have noted of themselves. A view that is kept no more may
    /// have been the only one with a name, so numbers remain.
    pub(crate) fn of(site: &Site, recorders: &mut Observer, events: &[ObservedEvent]) -> Self {
        let mut names = Self::default();
        names.know_all(&site.genesis);
        let mut views = obol_agent::Observer::open(site, Some(ViewId::GENESIS));
        // Those that are decided meanwhile need not be waited for.
        for item in (0..=site.deployment.profile.limits.slots).map_while(|_| views.poll().ok().flatten()) {
            if let Item::View(view) = item {
                names.know_all(&view);
            }
        }
        names.know_joined(events);
        for process in &recorders.snapshot().processes {
            if process.incarnation != Incarnation::NONE {
                names.know(process.incarnation, process.name);
            }
        }
        names
    }

    /// Takes the names of those who noted that they joined: some come and go between two views that
    /// are seen.
    pub(crate) fn know_joined(&mut self, events: &[ObservedEvent]) {
        for seen in events.iter().filter(|seen| seen.event.record.kind == Event::Joined) {
            self.know(Incarnation(seen.event.record.a), seen.process);
        }
    }

    pub(crate) fn know(&mut self, who: Incarnation, name: Name) {
        if !self.0.iter().any(|(known, _)| *known == who) {
            if self.0.len() == NAMES_MAX {
                self.0.remove(0);
            }
            self.0.push((who, name));
        }
    }

    /// Takes the names of a view's members, and of those who went lately.
    pub(crate) fn know_all(&mut self, view: &View) {
        for member in &view.members {
            self.know(member.incarnation, member.name);
        }
        for gone in &view.departed {
            self.know(gone.incarnation, gone.name);
        }
    }

    pub(crate) fn get(&self, who: Incarnation) -> Option<Name> {
        self.0.iter().find(|(known, _)| *known == who).map(|(_, name)| *name)
    }

    /// A member as people see it.
    pub(crate) fn shown(&self, who: Incarnation) -> String {
        self.get(who).map_or(format!("incarnation {who}"), |name| format!("{name} ({who})"))
    }

    /// What changed, as text.
    pub(crate) fn causes(&self, view: &View) -> Vec<String> {
        let phrase = |change: &Change| match *change {
            Change::Joined(who) => format!("{} joined", self.shown(who)),
            Change::Left(who) => format!("{} left", self.shown(who)),
            Change::Failed { accused, accuser, reason } if accused == accuser => {
                format!("{} failed: {}", self.shown(accused), reason.name())
            }
            // A link failed, not a process: of the two, the other one stayed.
            Change::Failed { accused, accuser, reason: Reason::Timeout } => {
                let reason = Reason::Timeout.name();
                format!("{} failed: {reason}, no link to {}", self.shown(accused), self.shown(accuser))
            }
            Change::Failed { accused, accuser, reason } => {
                format!(
                    "{} failed: {}, reported by {}",
                    self.shown(accused),
                    reason.name(),
                    self.shown(accuser)
                )
            }
            Change::Lease => format!("lease of {}", view.lease),
            Change::AcceptorAdded(acceptor) => format!("{} decides from now on", decider(&acceptor)),
            Change::AcceptorRemoved(acceptor) => format!("{} decides no more", decider(&acceptor)),
            Change::Settled => "slot settled".to_owned(),
            Change::Recovered(from) => format!("recovered by an operator from view {from}"),
        };
        view.changes.iter().map(phrase).collect()
    }
}

//! Who is who: the names of incarnations, also of members that are gone, and what a view changed in
//! words.

use crate::names_file::NamesFile;
use crate::{ObservedEvent, Observer, event_text};
use obol_fabric::{Incarnation, Name, Nanos, ViewId};
use obol_membership::recorder::EventKind;
use obol_membership::view::{Acceptor, coordinator_name};
use obol_membership::{Change, Reason, View};
use obol_node::Site;
use std::collections::BTreeMap;

/// This host's name.
pub fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

fn decider(acceptor: &Acceptor) -> Name {
    coordinator_name(acceptor.proposer)
}

/// Members whose names are kept.
const NAMES_MAX: usize = 1024;

/// Names by incarnation.
#[derive(Clone, Debug, Default)]
pub struct Names(Vec<(Incarnation, Name)>);

impl Names {
    /// Takes the names of those who noted that they joined: some come and go between two views that
    /// are seen.
    pub fn know_joined(&mut self, events: &[ObservedEvent]) {
        for seen in events.iter().filter(|seen| seen.event.record.kind == EventKind::Joined) {
            self.know(Incarnation(seen.event.record.a), seen.process);
        }
    }

    /// Takes a name.
    pub fn know(&mut self, who: Incarnation, name: Name) {
        if !self.0.iter().any(|(known, _)| *known == who) {
            if self.0.len() == NAMES_MAX {
                self.0.remove(0);
            }
            self.0.push((who, name));
        }
    }

    /// Takes the names of a view's members, and of those who went lately.
    pub fn know_all(&mut self, view: &View) {
        for member in &view.members {
            self.know(member.incarnation, member.name);
        }
        for gone in &view.departed {
            self.know(gone.incarnation, gone.name);
        }
    }

    /// The name of an incarnation, if it is known.
    pub fn get(&self, who: Incarnation) -> Option<Name> {
        self.0.iter().find(|(known, _)| *known == who).map(|(_, name)| *name)
    }

    /// A member as people see it.
    pub fn shown(&self, who: Incarnation) -> String {
        self.get(who).map_or(format!("incarnation {who}"), |name| format!("{name} ({who})"))
    }

    /// What a view changed, as text.
    pub fn causes(&self, view: &View) -> Vec<String> {
        view.changes.iter().map(|change| phrase(change, view.lease, |who| self.shown(who))).collect()
    }

    /// Who departed by earlier views that a view remembers, as text: what is known of those views
    /// where they cannot be read themselves.
    pub fn departures(view: &View) -> BTreeMap<ViewId, Vec<String>> {
        let mut by_view = BTreeMap::<ViewId, Vec<String>>::new();
        for gone in &view.departed {
            let how = if gone.left { "left" } else { "failed" };
            by_view.entry(gone.at).or_default().push(format!("{} ({}) {how}", gone.name, gone.incarnation));
        }
        by_view
    }
}

/// A change as text, of a view with these leases. `shown` gives a member as people see it.
pub fn phrase(change: &Change, lease: Nanos, shown: impl Fn(Incarnation) -> String) -> String {
    match *change {
        Change::Joined(who) => format!("{} joined", shown(who)),
        Change::Left(who) => format!("{} left", shown(who)),
        // The detector's name would read as if its host had failed.
        Change::Failed { accused, reason: Reason::Host, .. } => {
            format!("{} failed with its agent", shown(accused))
        }
        Change::Failed { accused, accuser, reason } if accused == accuser => {
            format!("{} failed: {}", shown(accused), reason.name())
        }
        // A link failed, not a process: of the two, the other one stayed.
        Change::Failed { accused, accuser, reason: Reason::Timeout } => {
            let reason = Reason::Timeout.name();
            format!("{} failed: {reason}, no link to {}", shown(accused), shown(accuser))
        }
        Change::Failed { accused, accuser, reason } => {
            format!("{} failed: {}, reported by {}", shown(accused), reason.name(), shown(accuser))
        }
        Change::Lease => format!("lease of {lease}"),
        Change::AcceptorAdded(acceptor) => format!("{} decides from now on", decider(&acceptor)),
        Change::AcceptorRemoved(acceptor) => format!("{} decides no more", decider(&acceptor)),
        Change::Settled => "slot settled".to_owned(),
        Change::Recovered(from) => format!("recovered by an operator from view {from}"),
    }
}

/// The names of incarnations, and what the views that are kept have changed, in words.
pub struct Known {
    pub names: Names,
    /// What each view changed.
    pub causes: BTreeMap<ViewId, String>,
}

/// The names in everything that a cluster keeps: its first view, the views that coordinators still
/// have, what the processes have noted of themselves, and the file of all members that it has had.
pub fn known(site: &Site, recorders: &mut Observer, events: &[ObservedEvent]) -> Known {
    let mut names = Names::default();
    let mut file = NamesFile::new(site.cluster.dir());
    // What cannot be read of it is shown by number.
    let _ = file.refresh();
    let mentioned = events.iter().flat_map(|seen| {
        let record = &seen.event.record;
        let (who, by) = event_text::members(record.kind, record.a, record.b);
        [who, by].into_iter().flatten()
    });
    for who in mentioned {
        if let Some(name) = file.get(who) {
            names.know(who, name);
        }
    }
    names.know_all(&site.genesis);
    let kept = recorders.kept_views(site);
    kept.iter().for_each(|view| names.know_all(view));
    names.know_joined(events);
    for process in recorders.snapshot().all_processes() {
        if process.incarnation != Incarnation::NONE {
            names.know(process.incarnation, process.name);
        }
    }
    // Of a view that is not kept, who departed by it.
    let departures = kept.last().map(|newest| Names::departures(newest)).unwrap_or_default();
    let of_kept = kept.iter().map(|view| (view.id, names.causes(view)));
    let causes = departures.into_iter().chain(of_kept).map(|(id, causes)| (id, causes.join("; "))).collect();
    Known { names, causes }
}

//! What a cluster keeps of its views: who is who, and what each view changed.

use obol_agent::Item;
use obol_fabric::{Incarnation, ViewId};
use obol_node::Site;
pub(crate) use obol_observe::names::Names;
use obol_observe::{ObservedEvent, Observer};
use std::collections::BTreeMap;

/// The names of incarnations, and what the views that are kept have changed, in words.
pub(crate) struct Known {
    pub(crate) names: Names,
    pub(crate) causes: BTreeMap<ViewId, String>,
}

/// The names in everything that a cluster keeps: its first view, the views that coordinators still
/// have, and what the processes have noted of themselves. A view that is kept no more may have been
/// the only one with a name, so numbers remain.
pub(crate) fn known(site: &Site, recorders: &mut Observer, events: &[ObservedEvent]) -> Known {
    let mut names = Names::default();
    names.know_all(&site.genesis);
    let mut views = obol_agent::Observer::open(site, Some(ViewId::GENESIS));
    let mut kept = Vec::new();
    // Those that are decided meanwhile need not be waited for.
    for item in (0..=site.deployment.profile.limits.slots).map_while(|_| views.poll().ok().flatten()) {
        if let Item::View(view) = item {
            names.know_all(&view);
            kept.push(view);
        }
    }
    names.know_joined(events);
    for process in &recorders.snapshot().processes {
        if process.incarnation != Incarnation::NONE {
            names.know(process.incarnation, process.name);
        }
    }
    let causes = kept.iter().map(|view| (view.id, names.causes(view).join("; "))).collect();
    Known { names, causes }
}

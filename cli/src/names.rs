//! What a cluster keeps of its views: who is who, and what each view changed. And the names of
//! clients that run for one operation.

use obol_fabric::host::{HostError, NameClaim};
use obol_fabric::{Incarnation, Name, ViewId};
use obol_node::Site;
pub(crate) use obol_observe::names::Names;
use obol_observe::names_file::NamesFile;
use obol_observe::{ObservedEvent, Observer, event_text};
use obol_term::output::Failure;
use std::collections::BTreeMap;

/// The name of a client that runs for one operation. Several may run at once: while another process
/// has the name that is usual, on this host or another one, this one has its process id behind that.
pub(crate) fn of_client(
    site: &Site,
    wanted: Option<Name>,
    usual: &str,
) -> Result<(Name, NameClaim), Failure> {
    let claim = |name| NameClaim::reserve(&site.cluster, name).map(|claim| (name, claim));
    let claimed = match wanted {
        Some(wanted) => claim(wanted),
        None => {
            let name = Name::new(usual).map_err(Failure::refused)?;
            let own = || Name::new(&format!("{usual}-{}", std::process::id())).map_err(Failure::refused);
            if is_member_elsewhere(site, name)? {
                claim(own()?)
            } else {
                match claim(name) {
                    Err(HostError::NameTaken { .. }) => claim(own()?),
                    claimed => claimed,
                }
            }
        }
    };
    claimed.map_err(Failure::refused)
}

/// Whether a process of another host is a member of this name, as far as this host knows.
fn is_member_elsewhere(site: &Site, name: Name) -> Result<bool, Failure> {
    let Some(network) = &site.deployment.network else { return Ok(false) };
    let view = site.newest().map_err(Failure::refused)?;
    Ok(view.members.iter().any(|member| member.name == name && !network.is_here(member.address)))
}

/// The names of incarnations, and what the views that are kept have changed, in words.
pub(crate) struct Known {
    pub(crate) names: Names,
    pub(crate) causes: BTreeMap<ViewId, String>,
}

/// The names in everything that a cluster keeps: its first view, the views that coordinators still
/// have, what the processes have noted of themselves, and the file of all members that it has had.
pub(crate) fn known(site: &Site, recorders: &mut Observer, events: &[ObservedEvent]) -> Known {
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

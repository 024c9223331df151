//! The views that the coordinators keep, of this host and of others.

use super::Observer;
use crate::remote_reader::RemoteCopy;
use obol_fabric::host::Observed;
use obol_fabric::{Address, Remote, ViewId};
use obol_membership::stream::{Item, Regions, Stream};
use obol_membership::view::Member;
use obol_membership::{Kind, View};
use obol_node::Site;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The coordinators' regions as far as they can be read: those of this host whole, those of others
/// without values. So views that a coordinator of this host has accepted are found, and the others
/// confirm that they are decided.
struct Kept {
    here: BTreeMap<u32, Observed>,
    elsewhere: BTreeMap<u32, Arc<RemoteCopy>>,
}

impl Regions for Kept {
    fn coordinators(&mut self) -> Vec<Address> {
        self.here.keys().chain(self.elsewhere.keys()).map(|number| Address::region(*number)).collect()
    }

    fn read(&mut self, from: Remote, len: u32) -> Option<Vec<u8>> {
        if let Some(region) = self.here.get(&from.at.region) {
            return region.reader().bytes(from.offset, len as usize);
        }
        let copy = self.elsewhere.get(&from.at.region)?.copy.as_ref().ok()?;
        copy.reader().bytes(from.offset, len as usize)
    }
}

impl Observer {
    /// The views that coordinators keep, oldest first: as many as a ring has slots at most. On hosts
    /// without a coordinator, the newest one only. `site` is that of this cluster.
    pub fn kept_views(&mut self, site: &Site) -> Vec<Arc<View>> {
        let here = self.refresh().into_iter().filter(|info| info.kind == Kind::Coordinator as u32);
        let here: BTreeMap<u32, Observed> = here
            .filter_map(|info| Some((info.number, self.watched.get(&info.number)?.region.clone())))
            .collect();
        let newest = self.newest_known();
        let owners = self.owners_elsewhere(newest.as_ref());
        let copies = self.remote_copies(&owners);
        let is_coordinator = |member: &&Member| member.kind == Kind::Coordinator;
        let numbers = owners.iter().filter(is_coordinator).map(|member| member.address.region);
        let elsewhere = numbers.filter_map(|number| {
            let found = copies.get(&number).filter(|found| found.copy.is_ok())?;
            Some((number, Arc::clone(found)))
        });
        let mut kept = Kept { here, elsewhere: elsewhere.collect() };
        let mut stream = Stream::new(Some(ViewId::GENESIS), Arc::clone(&site.genesis), &site.config);
        // A gap may lie before each view; those that are decided meanwhile need not be waited for.
        let most = 2 * (site.deployment.profile.limits.slots as usize + 1);
        let items = std::iter::from_fn(|| stream.next(&mut kept)).take(most);
        let views = items.filter_map(|item| match item {
            Item::View(view) => Some(view),
            Item::Gap { .. } => None,
        });
        let mut views: Vec<Arc<View>> = views.collect();
        // Where no coordinator's region can be read.
        if let Some(newest) = newest.filter(|newest| views.last().is_none_or(|last| last.id < newest.id)) {
            views.push(newest);
        }
        views
    }
}

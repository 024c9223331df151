//! Processes of this host that have a log in their memory, whether or not they take part.

use crate::ReplicaError;
use obol_fabric::Name;
use obol_fabric::host::Observed;
use obol_node::Site;
use obol_node::endpoint::EndpointError;
use obol_smr::{Area, Brief, REPLICA_PREFIX};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Reads of a header that its owner is writing.
const TRIES: u32 = 16;

/// A process that has a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder {
    pub(crate) name: Name,
    pub(crate) pid: u32,
    pub(crate) log: u64,
    /// It is stopped.
    frozen: bool,
    /// The newest view that this host knows has it.
    is_member: bool,
}

impl Holder {
    /// Those that live, by name.
    pub(crate) fn of(site: &Site, area: &Area) -> Result<Vec<Self>, ReplicaError> {
        let view = site.known().map_err(EndpointError::from)?;
        let regions = site.cluster.regions();
        let replicas =
            regions.iter().filter(|info| info.alive && info.name.as_str().starts_with(REPLICA_PREFIX));
        let holder = |info: &obol_fabric::host::RegionInfo| {
            // It may end just now, and then has nothing.
            let region = Observed::open(&site.cluster, info.number).ok()?;
            let mut memory = Vec::new();
            let mut read =
                || region.reader().values(area.brief(), &mut memory).then(|| Brief::of(&memory)).flatten();
            let brief = (0..TRIES).find_map(|_| read()).filter(|brief| brief.log != 0)?;
            let is_member = view.as_ref().is_some_and(|view| view.member(info.incarnation).is_some());
            let (pid, frozen) = (info.process.pid, info.process.is_stopped());
            Some(Self { name: info.name, pid, log: brief.log, frozen, is_member })
        };
        let mut all: Vec<Self> = replicas.filter_map(holder).collect();
        all.sort_by_key(|one| one.name);
        Ok(all)
    }

    /// Whether a replica that starts now finds it in its view: then that takes its log, and begins none.
    const fn takes_part(&self) -> bool {
        self.is_member && !self.frozen
    }

    /// Refuses to begin an empty store while processes have one that take no part at present.
    pub(crate) fn refuse_beside(all: &[Self], name: Name) -> Result<(), ReplicaError> {
        let away: Vec<&Self> = all.iter().filter(|one| !one.takes_part()).collect();
        if away.is_empty() {
            return Ok(());
        }
        let what = |one: &&Self| {
            let what = if one.frozen { "frozen" } else { "no member" };
            format!("{} (pid {}, {what})", one.name, one.pid)
        };
        let holders = away.iter().map(what).collect::<Vec<_>>().join(", ");
        let pids = away.iter().map(|one| one.pid.to_string()).collect::<Vec<_>>().join(" ");
        Err(ReplicaError::Held { name, holders, pids })
    }
}

/// Seconds since 1970, as the clock of this host shows them.
#[expect(
    clippy::disallowed_methods,
    reason = "they only order logs that operators have begun, and each log that is known there counts, too"
)]
pub(crate) fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(name: &str, frozen: bool, is_member: bool) -> Holder {
        Holder { name: Name::new(name).expect("a name"), pid: 7, log: 1, frozen, is_member }
    }

    #[test]
    fn an_empty_store_is_not_begun_beside_one_that_is_frozen_or_excluded() {
        let name = Name::new("smr-4").expect("a name");
        let refused = |all: &[Holder]| Holder::refuse_beside(all, name).err().map(|error| error.to_string());
        assert_eq!(refused(&[]), None);
        assert_eq!(refused(&[holder("smr-1", false, true)]), None, "it takes that store");
        for one in [holder("smr-2", true, true), holder("smr-2", true, false)] {
            let why = refused(&[holder("smr-1", false, true), one]).expect("refused");
            assert!(why.contains("smr-2 (pid 7, frozen)") && why.contains("`kill -CONT 7`"), "{why}");
            assert!(!why.contains("smr-1"), "{why}");
        }
        let why = refused(&[holder("smr-3", false, false)]).expect("refused");
        assert!(why.contains("smr-3 (pid 7, no member)"), "{why}");
    }
}

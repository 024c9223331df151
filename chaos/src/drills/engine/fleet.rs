//! All hosts of a running cluster as one: snapshots and events of each are read from this host, by
//! the gateways or devices of the others.

use super::subject::{Subject, program};
use crate::drills::victims::select::{Supervisor, merged};
use obol_fabric::host::clock;
use obol_fabric::{Instant, Name, Nanos};
use obol_node::{Deployment, SiteError, hosts_here};
use obol_observe::{ObservedEvent, Observer, Process, Snapshot};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A cluster as drills see it.
pub struct Fleet {
    observer: Observer,
    root: PathBuf,
    /// The hosts that are this machine, and the names of the cluster there.
    here: BTreeMap<u8, Name>,
}

impl Fleet {
    pub fn open(root: &Path, cluster: Name) -> Result<Self, SiteError> {
        let observer = Observer::open(root, cluster)?;
        Ok(Self { observer, root: root.to_owned(), here: hosts_here(root, cluster) })
    }

    /// The cluster now, and what restarts its processes.
    pub fn look(&mut self) -> (Snapshot, Supervisor) {
        (Subject::snapshot(self), self.supervisor())
    }

    /// Whether all hosts of the cluster are this machine.
    pub fn is_here(&self) -> bool {
        let hosts = self.observer.deployment().network.as_ref().map_or(0, |network| network.hosts.len());
        self.here.len() >= hosts
    }

    /// What restarts its processes.
    pub(super) fn supervisor(&self) -> Supervisor {
        Supervisor::of(self.observer.cluster(), self.observer.deployment())
    }

    /// Whether the cluster has several hosts.
    pub fn has_several_hosts(&self) -> bool {
        self.observer.deployment().network.as_ref().is_some_and(|network| network.hosts.len() > 1)
    }

    /// What reads it.
    pub(super) fn observer(&mut self) -> &mut Observer {
        &mut self.observer
    }

    /// The directory of the cluster on the host that this process belongs to.
    pub fn dir(&self) -> &Path {
        self.observer.cluster().dir()
    }

    /// The number of that host.
    pub(super) fn own(&self) -> u8 {
        self.observer.deployment().own_host()
    }

    /// The directories of the cluster on this machine, by the number of the host.
    pub fn dirs(&self) -> impl Iterator<Item = (u8, PathBuf)> + '_ {
        self.here.iter().map(|(host, name)| (*host, self.root.join(name.as_str())))
    }

    /// The hosts that are this machine, and the names of the cluster there.
    pub(super) fn names_here(&self) -> impl Iterator<Item = (u8, Name)> + '_ {
        self.here.iter().map(|(host, name)| (*host, *name))
    }

    /// The name of the cluster on a host, if that is this machine.
    pub(super) fn name_here(&self, host: u8) -> Option<Name> {
        self.here.get(&host).copied()
    }

    /// A time of another host on the clock of this one, and by how much it may be off.
    pub(super) fn time_of(&self, host: u8, at: Instant) -> Option<(Instant, Nanos)> {
        self.observer.time_of(host, at)
    }
}

impl Subject for Fleet {
    fn deployment(&self) -> &Deployment {
        self.observer.deployment()
    }

    fn snapshot(&mut self) -> Snapshot {
        merged(self.observer.snapshot())
    }

    fn events(&mut self) -> Vec<ObservedEvent> {
        self.observer.events()
    }

    fn refresh(&mut self) {
        self.observer.refresh_elsewhere();
    }

    fn now(&self) -> Instant {
        clock::now()
    }

    fn sleep(&mut self, time: Nanos) {
        Subject::sleep(&mut self.observer, time);
    }

    fn others(&self) -> Vec<String> {
        self.observer.others().collect()
    }

    fn has_ended(&self, process: &Process) -> bool {
        // Elsewhere its supervisor waits for its end.
        !self.here.contains_key(&process.host) || Subject::has_ended(&self.observer, process)
    }

    fn program(&self, process: &Process) -> Option<PathBuf> {
        // Elsewhere its pid means nothing here.
        self.here.contains_key(&process.host).then(|| program(process)).flatten()
    }
}

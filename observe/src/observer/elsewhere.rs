//! The part of an observer that reads the other hosts.

use super::{Cursors, ObservedEvent, Observer, Remotes, UnreadEvents, unread};
use crate::absence::why_silent;
use crate::clocks::Clocks;
use crate::histograms::{self, Histograms};
use crate::owner::{Owner, Time};
use crate::remote_reader::{RemoteCopy, RemoteReader, Wanted};
use crate::snapshot::Process;
use obol_fabric::host::clock;
use obol_fabric::remote::ClockRelation;
use obol_fabric::{Address, Instant, Nanos};
use obol_membership::View;
use obol_membership::view::Member;
use obol_smr::{Area, REPLICA_PREFIX};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl Observer {
    /// The owners of regions on other hosts, by the newest known view, or by the original
    /// deployment.
    pub(super) fn owners_elsewhere(&self, view: Option<&Arc<View>>) -> Vec<Member> {
        let Some(network) = &self.deployment.network else { return Vec::new() };
        let genesis;
        let view = match view {
            Some(view) => view.as_ref(),
            None => {
                genesis = self.deployment.genesis();
                &genesis
            }
        };
        view.members.iter().filter(|m| m.address.seat == 0 && !network.is_here(m.address)).copied().collect()
    }

    /// The newest view in the regions of this host. A host that has none learns it from the original
    /// coordinators, and then from all that the last one names.
    pub(super) fn newest_known(&mut self) -> Option<Arc<View>> {
        let here = self.newest_here();
        if here.is_some() || self.deployment.network.is_none() {
            return here;
        }
        let learned = self.learned.clone();
        let owners = self.owners_elsewhere(learned.as_ref());
        let copies = self.remote_copies(&owners);
        let regions = copies.values().filter_map(|found| found.copy.as_ref().ok());
        let read =
            regions.filter_map(|copy| self.view(copy.reader())).chain(learned).max_by_key(|view| view.rank());
        self.learned.clone_from(&read);
        read
    }

    /// The last copies of regions of other hosts.
    pub(super) fn remote_copies(&mut self, owners: &[Member]) -> BTreeMap<u32, Arc<RemoteCopy>> {
        if owners.is_empty() || self.of_this_host {
            self.trouble = None;
            return BTreeMap::new();
        }
        let area = Area::of(self.cluster.layout());
        let part = |area: Area| if self.reads_replicas { area.shared() } else { area.brief() };
        let mut wanted: BTreeMap<u8, Vec<Wanted>> = BTreeMap::new();
        for member in owners {
            let host = self.deployment.host_of(member.address.region);
            let is_replica = member.name.as_str().starts_with(REPLICA_PREFIX);
            let values = area.filter(|_| is_replica).map_or(0..0, part);
            let of_host = wanted.entry(host.unwrap_or_default()).or_default();
            of_host.push(Wanted { whom: member.address, values });
        }
        let remotes = self.remotes.get_or_insert_with(|| Remotes {
            reader: RemoteReader::new(self.remote_interval),
            clocks: Clocks::default(),
            cursors: BTreeMap::new(),
            counted: BTreeMap::new(),
        });
        let open = || {
            let reader = self.deployment.reader(&self.cluster).map_err(|error| error.to_string())?;
            reader.ok_or_else(|| "this cluster has no network".to_owned())
        };
        let copies = remotes.reader.copies(&wanted, open);
        self.trouble = remotes.reader.trouble().map(str::to_owned);
        copies
    }

    /// The last copy of a region of another host; `None` if there is none. It has the memory of a
    /// replica if that was asked for: see [`Observer::read_replicas`].
    pub(crate) fn replica_elsewhere(&self, region: u32) -> Option<Arc<RemoteCopy>> {
        let copy = self.remotes.as_ref()?.reader.copy(region)?;
        copy.copy.is_ok().then_some(copy)
    }

    /// The hosts of these owners that do not answer, so that none of their regions can be read.
    fn silent_hosts(&self, owners: &[Member], is_silent: impl Fn(&Member) -> bool) -> BTreeSet<u8> {
        let hosts = |silent: bool| {
            let of = owners.iter().filter(|member| is_silent(member) == silent);
            of.filter_map(|member| self.deployment.host_of(member.address.region)).collect::<BTreeSet<u8>>()
        };
        &hosts(true) - &hosts(false)
    }

    /// Notes when the newest view was seen first. Copies of other hosts that are older may lack it.
    pub(super) fn note_newest(&mut self, view: Option<&Arc<View>>) {
        if let Some(id) = view.map(|view| view.id)
            && self.newest_since.0 < id
        {
            self.newest_since = (id, clock::now());
        }
    }

    /// The most certain relation of the clock of a region's host, after another measurement.
    pub(super) fn clock_of(&mut self, at: Address, measured: ClockRelation) -> ClockRelation {
        let host = self.deployment.host_of(at.region);
        let drift = self.deployment.profile.timing.drift_ppm;
        let Some(remotes) = &mut self.remotes else { return measured };
        host.map_or(measured, |host| remotes.clocks.best(host, measured, clock::now(), drift))
    }

    /// A time of another host on this host's clock, and by how much it may be off; `None` if the host
    /// has not been read. Times of this host are what they are.
    pub fn time_of(&self, host: u8, at: Instant) -> Option<(Instant, Nanos)> {
        if host == self.deployment.own_host() {
            return Some((at, Nanos::ZERO));
        }
        let relation = self.remotes.as_ref()?.clocks.of(host)?;
        let here = relation.to_local(at);
        Some((here, relation.error(here, self.deployment.profile.timing.drift_ppm)))
    }

    /// Makes the next snapshot, and the next events, show other hosts as they were after this call.
    pub fn refresh_elsewhere(&self) {
        if let Some(remotes) = &self.remotes {
            remotes.reader.refresh();
        }
    }

    /// READs other hosts again, and waits for those that answer.
    pub(crate) fn read_elsewhere_again(&mut self) {
        self.refresh_elsewhere();
        let newest = self.newest_known();
        let owners = self.owners_elsewhere(newest.as_ref());
        // They are kept: see `Observer::replica_elsewhere`.
        drop(self.remote_copies(&owners));
    }

    /// READs nothing of other hosts until the next snapshot or events.
    pub fn rest(&self) {
        if let Some(remotes) = &self.remotes {
            remotes.reader.rest();
        }
    }

    /// The processes of other hosts, as far as their regions can be read.
    pub(super) fn remote(&mut self) -> Vec<Process> {
        let newest = if self.deployment.network.is_none() { return Vec::new() } else { self.newest_known() };
        self.note_newest(newest.as_ref());
        let owners = self.owners_elsewhere(newest.as_ref());
        let copies = self.remote_copies(&owners);
        let is_silent = |m: &Member| copies.get(&m.address.region).is_none_or(|found| found.is_silent());
        let network = self.deployment.network.as_ref();
        self.doubt = network.and_then(|network| why_silent(network, owners.iter().map(is_silent)));
        self.silent = self.silent_hosts(&owners, is_silent);
        let drift = self.deployment.profile.timing.drift_ppm;
        let mut processes = Vec::new();
        for member in owners {
            let Some(found) = copies.get(&member.address.region) else { continue };
            let Ok(copy) = &found.copy else { continue };
            let reader = copy.reader();
            let Some(seat) = reader.seat(0) else { continue };
            let clock = self.clock_of(member.address, copy.clock());
            let owner = Owner {
                name: member.name,
                kind: member.kind,
                host: self.deployment.host_of(member.address.region).unwrap_or_default(),
                process: seat.process,
                region: member.address.region,
                alive: !seat.dead,
                incarnation: seat.incarnation,
                time: Time::Remotes {
                    clock,
                    clock_error: clock.error(copy.read_at(), drift),
                    read: copy.read_at(),
                    now: clock::now(),
                },
            };
            self.occupants(reader, owner, &mut processes);
        }
        processes
    }

    /// What the owners of regions on other hosts have counted in their histograms since the last
    /// call; at the first call since they started.
    pub fn spans_elsewhere(&mut self) -> Vec<Histograms> {
        let newest = self.newest_known();
        let owners = self.owners_elsewhere(newest.as_ref());
        let copies = self.remote_copies(&owners);
        let Some(remotes) = &mut self.remotes else { return Vec::new() };
        let mut spans = Vec::new();
        for member in owners {
            let region = member.address.region;
            let Some(Ok(copy)) = copies.get(&region).map(|found| &found.copy) else { continue };
            let generation = copy.generation();
            let known = remotes.counted.entry(region).or_insert_with(|| (generation, Vec::new()));
            if known.0 != generation {
                *known = (generation, Vec::new());
            }
            let counts = histograms::advance(copy.reader(), &mut known.1);
            spans.push(Histograms { process: member.name, region, generation, counts });
        }
        spans
    }

    pub(super) fn events_elsewhere(&mut self, seats: u32, events: &mut Vec<ObservedEvent>) {
        self.unread.clear();
        if self.deployment.network.is_none() {
            return;
        }
        let newest = self.newest_known();
        let owners = self.owners_elsewhere(newest.as_ref());
        let copies = self.remote_copies(&owners);
        let Some(remotes) = &mut self.remotes else {
            let trouble = "this host has no RDMA device";
            let unread = |member: &Member| {
                let host = self.deployment.host_of(member.address.region);
                UnreadEvents { member: member.name, host, why: trouble.to_owned() }
            };
            self.unread = owners.iter().map(unread).collect();
            return;
        };
        let drift = self.deployment.profile.timing.drift_ppm;
        for member in owners {
            let region = member.address.region;
            let host = self.deployment.host_of(region);
            let unread_for = |why| UnreadEvents { member: member.name, host, why };
            let copy = match copies.get(&region).map(|found| &found.copy) {
                Some(Ok(copy)) => copy,
                Some(Err(error)) => {
                    self.unread.push(unread_for(error.to_string()));
                    continue;
                }
                None => {
                    let failure = host.and_then(|host| remotes.reader.failure(host));
                    self.unread.push(unread_for(failure.unwrap_or("no answer yet").to_owned()));
                    continue;
                }
            };
            let (generation, cursors) =
                remotes.cursors.entry(region).or_insert_with(|| (copy.generation(), Cursors::new()));
            if *generation != copy.generation() {
                (*generation, *cursors) = (copy.generation(), Cursors::new());
            }
            let clock = remotes.clocks.best(host.unwrap_or_default(), copy.clock(), clock::now(), drift);
            unread(copy.reader(), seats, (member.name, member.kind), cursors, &mut |mut seen| {
                seen.event.at = clock.to_local(seen.event.at);
                seen.clock_error = clock.error(seen.event.at, drift);
                events.push(seen);
            });
        }
    }
}

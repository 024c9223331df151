//! The failover of an app on another host than the leader's, over IP.

use super::cluster::start_over;
use super::kill::Kill;
use obol_chaos::drills::healthy;
use obol_fabric::{Name, Nanos};
use obol_observe::Observer;
use obol_observe::stats::Distribution;
use obol_observe::timeline::Phases;
use obol_profiles::Profile;
use obol_supervise::control::{self, Request};
use obol_supervise::hosts::HostNames;
use obol_supervise::running::{Running, Shape};
use obol_term::output::Failure;
use std::path::Path;
use std::thread;

const HOSTS: u8 = 3;
/// The victims: the apps of the hosts without the first leader.
const VICTIMS: [&str; 2] = ["app-2", "app-3"];
/// A cluster of several hosts, each observed by itself: all have the clock of this one.
struct Hosts {
    running: Running,
    observers: Vec<Observer>,
}

/// Starts a cluster of this many hosts, each with an app. Returns the names that it has on them.
pub(super) fn start_hosts(
    root: &Path,
    name: &'static str,
    profile: &Profile,
    hosts: u8,
) -> Result<(Running, HostNames), Failure> {
    let shape = Shape { hosts: Some(hosts), ..Shape::new(name, profile, u16::from(hosts)) };
    let running = Running::start(root, &shape)?;
    let names = HostNames::new(running.reaper.cluster, shape.hosts)?;
    Ok((running, names))
}

impl Hosts {
    fn start(root: &Path, profile: &Profile) -> Result<Self, Failure> {
        let (running, names) = start_hosts(root, "ip", profile, HOSTS)?;
        let open = |name: &Name| Observer::open(root, *name).map_err(Failure::failed);
        let observers = names.all().iter().map(open).collect::<Result<_, _>>()?;
        Ok(Self { running, observers })
    }

    /// The phases from the kill of an app until the last survivor is active in a view without it;
    /// `None` if its time line is incomplete.
    fn fail(&mut self, victim: &str) -> Result<Option<Phases>, Failure> {
        healthy(&mut self.running.observer()?).map_err(Failure::failed)?;
        let victim = Name::new(victim).map_err(Failure::failed)?;
        let processes: Vec<_> = self.observers.iter_mut().flat_map(|one| one.snapshot().processes).collect();
        Kill::of(victim, processes)?.run(&mut self.observers)
    }
}

/// A number of failovers, as a whole.
pub fn run(root: &Path, profile: &Profile, count: u32) -> Result<Distribution, Failure> {
    measure(root, profile, count, |phases| phases.total())
}

/// The times until the leader on another host had the notice, of a number of failovers.
pub(super) fn notices(root: &Path, profile: &Profile, count: u32) -> Result<Distribution, Failure> {
    measure(root, profile, count, |phases| phases.notice)
}

fn measure(
    root: &Path,
    profile: &Profile,
    count: u32,
    of: impl Fn(Phases) -> Nanos,
) -> Result<Distribution, Failure> {
    let mut hosts = Hosts::start(root, profile)?;
    start_over(&hosts.running)?;
    // As often as a name may fail without its joins being put on hold.
    let gap = Nanos(profile.timing.join_window.0 / u64::from(profile.timing.join_burst.max(1)));
    let mut times = Distribution::new();
    for victim in VICTIMS.iter().cycle().take(count as usize) {
        hosts.fail(victim)?.map(&of).into_iter().for_each(|time| times.add(time));
        let dir = hosts.running.site()?.cluster.dir().to_owned();
        control::request(&dir, &Request::Start { name: (*victim).to_owned() }).map_err(Failure::failed)?;
        thread::sleep(gap.to_std());
    }
    if times.is_empty() {
        return Err(Failure::Failed("no failover over IP has a complete time line".to_owned()));
    }
    Ok(times)
}

//! The failover of an app on another host than the leader's, over IP.

use super::failover::start_over;
use crate::commands::up::hosts::HostNames;
use crate::running::{Running, START_TIMEOUT, Shape};
use obol_chaos::control::{self, Request};
use obol_chaos::drills::healthy;
use obol_console::output::Failure;
use obol_fabric::host::clock;
use obol_fabric::{Name, Nanos};
use obol_observe::Observer;
use obol_observe::stats::Distribution;
use obol_observe::timeline::{History, Phases};
use obol_profiles::Profile;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const HOSTS: u8 = 3;
/// The victims: the apps of the hosts without the first leader.
const VICTIMS: [&str; 2] = ["app-2", "app-3"];
/// After a kill the cluster is not read for this time: nearly every failover is over by then.
const REST: Duration = Duration::from_millis(20);
/// Between two reads after that.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// A failover that is not over by then has failed.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A cluster of several hosts, each observed by itself: all have the clock of this one.
struct Hosts {
    running: Running,
    observers: Vec<Observer>,
}

impl Hosts {
    fn start(root: &Path, profile: &Profile) -> Result<Self, Failure> {
        let shape = Shape {
            name: "ip",
            profile,
            apps: 3,
            caches: 0,
            hosts: Some(HOSTS),
            patience: START_TIMEOUT,
            logs: false,
        };
        let running = Running::start(root, &shape)?;
        let names = HostNames::new(running.reaper.cluster, shape.hosts)?;
        let open = |name: &Name| Observer::open(root, *name).map_err(Failure::failed);
        let observers = names.all().iter().map(open).collect::<Result<_, _>>()?;
        Ok(Self { running, observers })
    }

    /// From the kill of an app until the last survivor is active in a view without it.
    fn fail(&mut self, victim: &str) -> Result<Nanos, Failure> {
        healthy(&mut self.running.observer()?).map_err(Failure::failed)?;
        let processes: Vec<_> =
            self.observers.iter_mut().flat_map(|one| one.snapshot().processes).filter(|p| p.alive).collect();
        let hit = processes.iter().find(|p| p.name.as_str() == victim);
        let hit = hit.ok_or_else(|| Failure::Failed(format!("{victim} does not run")))?;
        let survivors: Vec<Name> =
            processes.iter().filter(|p| p.kind.acts() && p.name != hit.name).map(|p| p.name).collect();
        let held = hit.process.hold().map_err(Failure::failed)?;
        self.observers.iter_mut().for_each(|one| drop(one.events()));
        let killed_at = clock::now();
        held.kill().map_err(Failure::failed)?;
        thread::sleep(REST);
        let (mut history, end) = (History::default(), Instant::now() + TIMEOUT);
        loop {
            self.observers.iter_mut().for_each(|one| history.take(&one.events()));
            let view = self.observers.first_mut().and_then(|one| one.snapshot().view);
            self.observers.iter_mut().for_each(|one| history.take(&one.events()));
            let departed = view.and_then(|view| {
                view.departed.iter().find(|gone| gone.incarnation == hit.incarnation).copied()
            });
            let phases = departed
                .and_then(|gone| Phases::of(&history, gone.at, &[hit.incarnation], killed_at, &survivors));
            if let Some(phases) = phases {
                return Ok(phases.total());
            }
            if Instant::now() > end {
                return Err(Failure::Failed(format!("the failover from {victim} did not end")));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// So many failovers.
pub(super) fn run(root: &Path, profile: &Profile, count: u32) -> Result<Distribution, Failure> {
    let mut hosts = Hosts::start(root, profile)?;
    start_over(&hosts.running)?;
    // As often as a name may fail without its joins being put on hold.
    let gap = Nanos(profile.timing.join_window.0 / u64::from(profile.timing.join_burst.max(1)));
    let mut times = Distribution::new();
    for victim in VICTIMS.iter().cycle().take(count as usize) {
        times.add(hosts.fail(victim)?);
        let dir = hosts.running.site()?.cluster.dir().to_owned();
        control::request(&dir, &Request::Start { name: (*victim).to_owned() }).map_err(Failure::failed)?;
        thread::sleep(gap.to_std());
    }
    Ok(times)
}

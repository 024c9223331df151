//! Who decides in a cluster, changed while it runs. Each step is a decided view, so a command that is interrupted or repeated leaves the cluster in one of the states between two
//! steps, and all of them are sound.

mod fate;
pub mod recover;

use crate::control::{self, ControlError, Request};
use crate::{alone, ending, processes};
use fate::{Evidence, Fate};
use obol_coordinator::Operator;
use obol_fabric::{Address, LinkError, Name};
use obol_fabric_ip as ip;
use obol_membership::view::coordinator_name;
use obol_membership::{Kind, View};
use obol_node::{FileLock, Site, hosts_here};
use obol_observe::{Observer, Process, Snapshot};
use obol_term::output::Failure;
use serde::Serialize;
use std::fmt::Arguments;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A step that the cluster has not made after this long is given up.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);

/// Its lock is held by a command that changes the coordinators.
const LOCK: &str = "coordinators.lock";

/// Says what a change is doing, as it goes.
pub type Say<'a> = &'a dyn Fn(Arguments<'_>) -> Result<(), Failure>;

/// Which coordinators come and go. One that is to come without a number has the lowest that is free.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wish {
    /// The one that is added.
    pub add: Option<Option<u16>>,
    /// The number of the one that is removed.
    pub remove: Option<u16>,
}

/// What was done, as scripts read it.
#[derive(Debug, Serialize)]
pub struct Changed {
    added: Option<u16>,
    removed: Option<u16>,
    acceptors: Vec<u16>,
    view: u64,
    /// Whether the removed one still runs, as a spare, because it could not be stopped from here; null
    /// if that is not known.
    runs: Option<bool>,
    /// What is left to do, if the removed one is not known to have ended.
    #[serde(skip)]
    pub left: Option<Failure>,
}

struct Change<'a> {
    root: PathBuf,
    cluster: Name,
    site: Site,
    observer: Observer,
    operator: Operator,
    say: Say<'a>,
}

/// Adds a coordinator, removes one, or both. Everything that can be refused is refused before anything is
/// done.
pub fn change(root: &Path, cluster: Name, wish: Wish, say: Say<'_>) -> Result<Changed, Failure> {
    let observer = Observer::open(root, cluster).map_err(Failure::refused)?;
    let site = Site::open(root, cluster).map_err(Failure::refused)?;
    let _one = lock(site.cluster.dir())?;
    let operator = Operator::open(&site).map_err(Failure::refused)?;
    let mut change = Change { root: root.to_owned(), cluster, site, observer, operator, say };
    let (snapshot, view) = change.look()?;
    let removed = wish.remove;
    if let Some(number) = removed {
        removable(&view, number)?;
    }
    let added = wish.add.map(|number| change.choose(&view, number)).transpose()?;
    let mut after: Vec<u16> = numbers(&view);
    after.extend(added);
    after.retain(|n| Some(*n) != removed);
    majority(&snapshot, &numbers(&view), None)?;
    majority(&snapshot, &after, added)?;
    if let Some(number) = added {
        change.add(number)?;
    }
    let (runs, left) = match removed {
        Some(number) => change.remove(number)?,
        None => (Some(false), None),
    };
    let (_, view) = change.look()?;
    Ok(Changed { added, removed, acceptors: numbers(&view), view: view.id.0, runs, left })
}

/// Keeps other changes of the coordinators from this host until it is dropped. Of two recoveries, the
/// second would give up what the first has begun; of two removals, each would count on the coordinator
/// that the other removes.
fn lock(dir: &Path) -> Result<FileLock, Failure> {
    let busy = "another `obol coordinator` changes the coordinators from this host; wait for its end";
    alone::lock(dir, LOCK, busy)
}

fn numbers(view: &View) -> Vec<u16> {
    view.acceptors.iter().map(|a| a.proposer).collect()
}

fn shown(numbers: &[u16]) -> String {
    numbers.iter().map(|n| coordinator_name(*n).to_string()).collect::<Vec<_>>().join(", ")
}

fn removable(view: &View, number: u16) -> Result<(), Failure> {
    if view.acceptor(number).is_none() {
        return Err(Failure::Refused(format!(
            "coordinator {number} decides nothing now; those who do: {}",
            shown(&numbers(view))
        )));
    }
    Ok(())
}

/// Whether a coordinator runs and is a member.
fn lives(snapshot: &Snapshot, number: u16) -> bool {
    let name = coordinator_name(number);
    snapshot.all_processes().any(|p| p.name == name && p.alive && !p.frozen && p.kind == Kind::Coordinator)
}

/// Which of these coordinators run, if no majority does, and which do not; `coming` will.
fn minority(snapshot: &Snapshot, numbers: &[u16], coming: Option<u16>) -> Option<(String, String)> {
    let (running, down): (Vec<u16>, Vec<u16>) =
        numbers.iter().partition(|n| Some(**n) == coming || lives(snapshot, **n));
    let some =
        || if running.is_empty() { "none does".to_owned() } else { format!("only {}", shown(&running)) };
    (running.len() <= numbers.len() / 2).then(|| (some(), shown(&down)))
}

/// Refuses a set of coordinators of which no majority runs; `coming` will.
fn majority(snapshot: &Snapshot, numbers: &[u16], coming: Option<u16>) -> Result<(), Failure> {
    let Some((running, down)) = minority(snapshot, numbers, coming) else { return Ok(()) };
    Err(Failure::Refused(match numbers {
        [] => "the last coordinator cannot be removed; `obol down` ends the cluster".to_owned(),
        _ => format!(
            "of {} no majority would run ({running}), and nothing could be decided any more; start {down} first",
            shown(numbers)
        ),
    }))
}

/// What there is to say if no majority of the coordinators that decide runs any more.
pub fn lost_majority(snapshot: &Snapshot) -> Option<String> {
    let numbers = numbers(snapshot.view.as_ref()?);
    let (running, down) = minority(snapshot, &numbers, None)?;
    Some(format!(
        "of {} no majority runs any more ({running}): nothing can be decided, and all leases end; start {down}",
        shown(&numbers)
    ))
}

/// Starts a coordinator by the supervisor; its pid.
fn start(site: &Site, supervisor: &Path, number: u16) -> Result<u32, Failure> {
    let name = coordinator_name(number);
    let request = Request::Start { name: name.to_string() };
    let pid = control::request(supervisor, &request).map_err(|error| match error {
        ControlError::NoSupervisor(_) => {
            let host = site.deployment.network.as_ref().and_then(|network| network.host_of(number));
            let place = host.map_or("where it belongs".to_owned(), |host| format!("on host {host}"));
            Failure::Refused(format!(
                "{name} does not run, and no `obol up` could start it; start its unit, or `obol coordinator run --number \
                 {number}`, {place}, and repeat this"
            ))
        }
        error => Failure::refused(error),
    })?;
    Ok(pid.unwrap_or(0))
}

/// Whether the owner of a region of another host lives, by its memory.
fn read_life(gateways: &mut ip::Observer, region: u32) -> Result<bool, LinkError> {
    let copy = gateways.read(Address::region(region))?;
    Ok(copy.reader().seat(0).is_some_and(|owner| !owner.dead))
}

impl Change<'_> {
    /// The cluster now, and its newest view.
    fn look(&mut self) -> Result<(Snapshot, Arc<View>), Failure> {
        let snapshot = self.observer.snapshot();
        let view = snapshot.view.clone();
        let none = || Failure::Refused("no process of the cluster knows a view yet".to_owned());
        Ok((snapshot, view.ok_or_else(none)?))
    }

    /// The number of a coordinator that is to be added.
    fn choose(&self, view: &View, number: Option<u16>) -> Result<u16, Failure> {
        let limit = self.site.deployment.profile.limits.proposers as u16;
        let refused = |why: String| Err(Failure::Refused(why));
        let is_lost = |number: u16| self.site.cluster.has_lost_memory(u32::from(number));
        match number {
            Some(number) if number == 0 || number > limit => refused(format!(
                "there is no coordinator {number}: the profile's limits.proposers is {limit}, so numbers go from 1 to {limit}"
            )),
            Some(number) if view.acceptor(number).is_some() => {
                refused(format!("coordinator {number} decides already: {}", shown(&numbers(view))))
            }
            Some(number) if view.retired.contains(number) => refused(format!(
                "coordinator {number} was given up in a recovery, and never decides again; take another number"
            )),
            Some(number) if is_lost(number) => refused(format!(
                "coordinator {number} has lost its memory, and its number is not used again; take another number"
            )),
            Some(number) => Ok(number),
            None => match (1..=limit)
                .find(|n| view.acceptor(*n).is_none() && !view.retired.contains(*n) && !is_lost(*n))
            {
                Some(number) => Ok(number),
                None => refused(format!(
                    "all {limit} coordinators that the profile's limits.proposers allows decide already, were given up in \
                     a recovery, or have lost their memory; remove one first"
                )),
            },
        }
    }

    fn add(&mut self, number: u16) -> Result<(), Failure> {
        let name = coordinator_name(number);
        let (snapshot, _) = self.look()?;
        if !lives(&snapshot, number) {
            let pid = start(&self.site, &control::supervised(&self.site.cluster), number)?;
            (self.say)(format_args!("started {name} (pid {pid})"))?;
        }
        self.wish(number, true)
    }

    /// Removes a coordinator and stops it where it runs. Returns whether it still runs, if that is
    /// known, and what is left to do if it is not known to have ended.
    fn remove(&mut self, number: u16) -> Result<(Option<bool>, Option<Failure>), Failure> {
        self.wish(number, false)?;
        let name = coordinator_name(number);
        // On this host, or one that is this one.
        let (_, there) = processes::locate(&self.root, self.cluster, name.as_str())?;
        if let Some(process) = there.process(name.as_str()) {
            if process.frozen {
                // It cannot react. Once it resumes it decides nothing, and is a spare.
                return Ok((
                    Some(true),
                    Some(Failure::Failed(format!(
                        "{name} decides no more, but is frozen and was left so: once it resumes it is a spare, and may be \
                         taken again in place of one that fails. `obol kill {name}` ends it"
                    ))),
                ));
            }
            if process.alive {
                self.stop(process)?;
            }
            return Ok((Some(false), None));
        }
        let Some(host) = self.elsewhere(number) else { return Ok((Some(false), None)) };
        let fate = Fate::of(self.evidence(number)?);
        Ok((fate.runs(), fate.failure(name, &format!("host {host}"))))
    }

    /// The address of a coordinator's host, if that is not this one.
    fn elsewhere(&self, number: u16) -> Option<IpAddr> {
        let network = self.site.deployment.network.as_ref()?;
        let is_alone = || hosts_here(&self.root, self.cluster).len() == 1;
        network.host_of(number).filter(|host| *host != network.address && is_alone())
    }

    /// What can be known of a coordinator of another host.
    fn evidence(&mut self, number: u16) -> Result<Evidence, Failure> {
        let name = coordinator_name(number);
        let region = u32::from(number);
        let deployment = &self.site.deployment;
        // By its gateway: to a device, a process that is dead and one that cannot be reached look alike.
        let asked = deployment.host_of(region).zip(deployment.gateways(&self.site.cluster));
        let (memory, host_answers) = match asked {
            Some((host, mut gateways)) => {
                let before = gateways.answers(host);
                let memory = read_life(&mut gateways, region);
                (Some(memory), before && gateways.answers(host))
            }
            None => (None, false),
        };
        self.observer.refresh_elsewhere();
        let (after, view) = self.look()?;
        let last = view.departed.iter().filter(|d| d.name == name).max_by_key(|d| d.incarnation);
        Ok(Evidence {
            is_live_member: after.remote.iter().any(|p| p.name == name && p.alive),
            memory,
            host_answers,
            left: last.is_some_and(|departed| departed.left),
        })
    }

    fn stop(&self, process: &Process) -> Result<(), Failure> {
        ending::stop(process.name.as_str(), process.process)?;
        (self.say)(format_args!("stopped {} (pid {})", process.name, process.process.pid))
    }

    /// Repeats a wish until a view shows it.
    fn wish(&mut self, number: u16, decides: bool) -> Result<(), Failure> {
        let end = Instant::now() + STEP_TIMEOUT;
        let pause = self.site.deployment.profile.timing.join_every.to_std();
        loop {
            let (_, view) = self.look()?;
            if view.acceptor(number).is_some() == decides {
                let (who, how) = (coordinator_name(number), if decides { "from now on" } else { "no more" });
                let all = shown(&numbers(&view));
                return (self.say)(format_args!(
                    "view {}: {who} decides {how}; those who do: {all}",
                    view.id
                ));
            }
            if Instant::now() > end {
                return Err(Failure::Failed(format!(
                    "the cluster did not {} coordinator {number} within {} s: {}; see `obol status`",
                    if decides { "add" } else { "remove" },
                    STEP_TIMEOUT.as_secs(),
                    if decides {
                        "it did not become a member"
                    } else {
                        "no majority would be left, or no leader heard"
                    },
                )));
            }
            self.operator.set_acceptor(number, decides, &view);
            self.operator.wait(pause);
        }
    }
}

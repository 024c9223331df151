//! `obol coordinator recover`: an operator goes on from a view that survived the memory of a majority of acceptors.
//!
//! Nobody decides that view, so this is only right while nobody can decide anything any more. Its id, and its
//! incarnations, lie beyond any that can have been decided after the view that was found.

use super::{shown, start};
use crate::kill;
use crate::output::{self, Failure};
use crate::watch::save;
use obol_chaos::control::{self, Request};
use obol_chaos::observe::{Observer, Process, Snapshot};
use obol_fabric::shm::Observed;
use obol_fabric::{Name, ViewId};
use obol_membership::view::{Acceptor, coordinator_name};
use obol_membership::{Kind, View};
use obol_profiles::{Deployment, RECOVERED_FILE, Site};
use serde::Serialize;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A cluster that does not go on after this long has not been recovered.
const RECOVER_TIMEOUT: Duration = Duration::from_secs(30);
/// New coordinators of a recovery that failed have so long to end.
const UNDO_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two looks whether it does.
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[derive(Serialize)]
struct DoneJson {
    from: u64,
    recovered: u64,
    view: u64,
    acceptors: Vec<u16>,
    members: usize,
}

/// Whether a coordinator's memory is there: where its process lives or can be started again, its slots are.
fn is_there(site: &Site, number: u16) -> bool {
    let region = Observed::open(&site.cluster, u32::from(number));
    region.is_ok_and(|region| region.reader().view().is_some())
}

/// The view to go on from.
fn source(from: &str, snapshot: &Snapshot) -> Result<View, Failure> {
    let known = snapshot.view.as_deref();
    if from == "agents" {
        return known.cloned().ok_or_else(|| {
            Failure::Refused(
                "no process of the cluster knows a view; give --from a file that `obol watch --save` wrote"
                    .to_owned(),
            )
        });
    }
    let bytes = std::fs::read(from).map_err(|error| Failure::Refused(format!("{from}: {error}")))?;
    let view = View::unseal(&bytes).ok_or_else(|| {
        Failure::Refused(format!("{from} holds no view; `obol watch --save` writes such files"))
    })?;
    match known {
        Some(known) if known.id > view.id => Err(Failure::Refused(format!(
            "{from} holds view {}, but living processes know view {}; use --from agents",
            view.id, known.id
        ))),
        _ => Ok(view),
    }
}

/// What is known of the memory of those who decide.
struct Memory {
    /// It is there: their process lives on some host, or can be started again on this one.
    there: Vec<u16>,
    /// They belong to other hosts and do not answer; whether their memory is there is known on their own hosts only.
    unknown: Vec<u16>,
}

impl Memory {
    fn of(site: &Site, view: &View, snapshot: &Snapshot) -> Self {
        let network = site.deployment.network.as_ref();
        let (mut there, mut unknown) = (Vec::new(), Vec::new());
        for acceptor in &view.acceptors {
            let number = acceptor.proposer;
            let name = coordinator_name(number);
            let answers = |p: &Process| p.alive && p.kind == Kind::Coordinator && p.name == name;
            if network.is_none_or(|network| network.is_here(acceptor.address)) {
                there.extend(is_there(site, number).then_some(number));
            } else if snapshot.distant.iter().any(answers) {
                there.push(number);
            } else {
                unknown.push(number);
            }
        }
        Self { there, unknown }
    }
}

/// Refuses while a majority of those who decide can be read or started, and while that is not known.
fn disaster(site: &Site, view: &View, snapshot: &Snapshot) -> Result<(), Failure> {
    let Memory { there, unknown } = Memory::of(site, view, snapshot);
    if there.len() >= view.majority() {
        return Err(Failure::Refused(format!(
            "the memory of a majority of the coordinators is there ({}), so nothing is lost; `obol start` those that are down, \
             or start their units on their hosts",
            shown(&there)
        )));
    }
    if there.len() + unknown.len() >= view.majority() {
        return Err(Failure::Refused(format!(
            "{} belong to other hosts and do not answer, and whether their memory is lost is known only there: start their \
             units. One whose host was booted says in its log that its memory is gone. If that is so of a majority, write a \
             new id into the cluster's file on all hosts (`obol host example` prints one): a new cluster starts",
            shown(&unknown)
        )));
    }
    Ok(())
}

/// Numbers for the new coordinators: as many as there were if there is room. A number whose memory was lost is never used
/// again, because empty slots look like undisturbed leases to whoever still holds an old view. In a cluster with a network
/// a number needs an address.
fn choose(site: &Site, view: &View) -> Result<Vec<u16>, Failure> {
    let limit = site.deployment.profile.limits.proposers as u16;
    let network = site.deployment.network.as_ref();
    let has_address = |n: &u16| network.is_none_or(|network| network.coordinators.len() >= usize::from(*n));
    let fresh = |n: &u16| site.cluster.region_info(u32::from(*n)).is_none() || is_there(site, *n);
    let free = (1..=limit).filter(|n| view.acceptor(*n).is_none()).filter(has_address).filter(fresh);
    let chosen: Vec<u16> = free.take(view.acceptors.len()).collect();
    if chosen.is_empty() {
        let why = match network {
            Some(network) => format!(
                "the cluster's network has addresses for coordinators 1 to {}, and all were used",
                network.coordinators.len()
            ),
            None => format!("the profile's limits.proposers is {limit}, and all were used"),
        };
        return Err(Failure::Refused(format!(
            "no number is left for new coordinators: {why}; start a new cluster"
        )));
    }
    Ok(chosen)
}

/// What was done for a recovery that has not succeeded yet; undone when this is dropped before it has.
struct Attempt<'a> {
    site: &'a Site,
    observer: &'a mut Observer,
    /// What the file of the recovered view held before.
    before: Option<Vec<u8>>,
    /// The view from which the new coordinators start.
    recovered: ViewId,
    started: Vec<(u16, u32)>,
    done: bool,
}

impl<'a> Attempt<'a> {
    fn begin(site: &'a Site, observer: &'a mut Observer, view: &View) -> Result<Self, Failure> {
        let at = site.cluster.dir().join(RECOVERED_FILE);
        let before = match fs::read(&at) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(Failure::Refused(format!("{}: {error}", at.display()))),
        };
        let attempt = Self { site, observer, before, recovered: view.id, started: Vec::new(), done: false };
        save(&at, &view.seal())?;
        Ok(attempt)
    }

    fn start(&mut self, number: u16) -> Result<u32, Failure> {
        let pid = start(self.site, number)?;
        self.started.push((number, pid));
        Ok(pid)
    }

    /// The first view that the new coordinators decide by themselves.
    fn decided(&mut self) -> Option<Arc<View>> {
        let recovered = self.recovered;
        self.observer.snapshot().view.filter(|newest| newest.id > recovered)
    }

    /// Waits until they have decided one.
    fn wait(&mut self) -> Result<Arc<View>, Failure> {
        let end = Instant::now() + RECOVER_TIMEOUT;
        loop {
            if let Some(newest) = self.decided() {
                self.done = true;
                return Ok(newest);
            }
            if let Some(&(number, _)) = self.started.iter().find(|(_, pid)| !kill::is_running(*pid)) {
                return Err(Failure::Failed(kill::why(
                    self.site.cluster.dir(),
                    coordinator_name(number).as_str(),
                )));
            }
            if Instant::now() > end {
                return Err(Failure::Failed(format!(
                    "the new coordinators decided nothing within {} s; `obol status` tells more",
                    RECOVER_TIMEOUT.as_secs()
                )));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn undo(&mut self) -> Result<(), String> {
        let end = Instant::now() + UNDO_TIMEOUT;
        let started = self.started.clone();
        let lives = || started.iter().find(|(_, pid)| kill::is_running(*pid));
        // One that has just begun has no place in the cluster yet, by which it could be told from another process.
        while let Some(&(number, pid)) = lives() {
            let snapshot = self.observer.snapshot();
            for process in snapshot.processes.iter().filter(|p| p.alive) {
                if started.iter().any(|(_, pid)| *pid == process.process.pid) {
                    kill::at_once(process).map_err(|failure| failure.to_string())?;
                }
            }
            if Instant::now() > end {
                let name = coordinator_name(number);
                return Err(format!("{name} (pid {pid}) runs on, and the recovered view stays for it"));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        // What they decided until they died stands: then the view from which they began must stay as well.
        if self.decided().is_some() {
            return Err(
                "the new coordinators have decided a view meanwhile; start them with `obol start`".to_owned()
            );
        }
        let at = self.site.cluster.dir().join(RECOVERED_FILE);
        let restored = match &self.before {
            Some(bytes) => obol_coordinator::save(&at, bytes),
            None => fs::remove_file(&at),
        };
        restored.map_err(|error| format!("{}: {error}", at.display()))
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        if let Err(why) = self.undo() {
            // Nobody is left to tell if this fails, too.
            let _ = output::remark(format_args!("obol: the recovery could not be undone: {why}"));
        }
    }
}

/// Refuses where nobody could start the new coordinators.
fn supervised(site: &Site) -> Result<(), Failure> {
    control::ask(site.cluster.dir(), &Request::Hello).map(drop).map_err(Failure::refused)
}

pub(super) fn run(root: &Path, cluster: Name, from: &str, json: bool) -> Result<ExitCode, Failure> {
    let site = Site::open(root, cluster).map_err(Failure::refused)?;
    let mut observer = Observer::open(root, cluster).map_err(Failure::refused)?;
    let snapshot = observer.snapshot();
    let found = source(from, &snapshot)?;
    disaster(&site, &found, &snapshot)?;
    let numbers = choose(&site, &found)?;
    supervised(&site)?;
    let address = |number: u16| Deployment::coordinator(number).1.owner();
    let acceptors = numbers.iter().map(|&n| Acceptor { proposer: n, address: address(n) });
    let view = found.recovered(acceptors.collect(), site.config.timing.lease_max);
    if !json {
        output::line(format_args!(
            "recovering from view {}: its {} members stay, coordinators are {}; whatever was decided after it is lost",
            found.id,
            view.members.len(),
            shown(&numbers)
        ))?;
    }
    let mut attempt = Attempt::begin(&site, &mut observer, &view)?;
    for &number in &numbers {
        let pid = attempt.start(number)?;
        if !json {
            output::line(format_args!("started {} (pid {pid})", coordinator_name(number)))?;
        }
    }
    let newest = attempt.wait()?;
    drop(attempt);
    let (from, members) = (found.id.0, newest.members.len());
    if json {
        output::json(&DoneJson {
            from,
            recovered: view.id.0,
            view: newest.id.0,
            acceptors: numbers,
            members,
        })?;
    } else {
        output::line(format_args!("the cluster goes on in view {}", newest.id))?;
    }
    Ok(ExitCode::SUCCESS)
}

//! `obol coordinator recover`: an operator continues from a view that survived the memory of a
//! majority of acceptors.
//!
//! No coordinator decides that view, so this is safe only while none can decide anything any more.
//! Its id, and its incarnations, lie beyond any that can have been decided after the view that was
//! found.

use super::{Say, lock, shown, start};
use crate::control::{self, ControlError, Request};
use crate::{ending, processes, signals};
use obol_config::file::{self, Pipes};
use obol_fabric::{Name, Nanos, ViewId};
use obol_membership::timing::LEASE_MAX;
use obol_membership::view::{Acceptor, coordinator_name};
use obol_membership::{Kind, View};
use obol_node::{Deployment, RECOVERED_FILE, Site, VIEW_BYTES_MAX, saved_view};
use obol_observe::inspection::{self, RecoveryInputs, is_there};
use obol_observe::{Observer, Process, Snapshot};
use obol_term::output::{self, Failure};
use serde::Serialize;
use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// From what a cluster is recovered.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the view comes from: `agents`, the newest that any process knows, or a file.
    pub from: String,
    /// Files with what other hosts still have.
    pub report: Vec<PathBuf>,
    /// Hosts that are given up.
    pub lost: Vec<IpAddr>,
    /// Leases of this duration are waited for, if that is longer than the longest of the profile.
    pub longest_lease: Option<Nanos>,
}

/// A cluster that does not continue after this long has not been recovered.
const RECOVER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long an operator has to start a coordinator by hand.
const BY_HAND_TIMEOUT: Duration = Duration::from_secs(600);
/// How long new coordinators of a failed recovery have to end.
const UNDO_TIMEOUT: Duration = Duration::from_secs(5);
/// Poll interval for each of these waits.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// What was done, as scripts read it.
#[derive(Debug, Serialize)]
pub struct Recovered {
    from: u64,
    recovered: u64,
    /// The first view that the new coordinators have decided.
    pub view: u64,
    acceptors: Vec<u16>,
    retired: Vec<u16>,
    members: usize,
    /// Whether an `obol up` has started the new coordinators, and not the operator.
    #[serde(skip)]
    pub supervised: bool,
}

/// The view to continue from. `known` is the newest that any process knows.
fn source(from: &str, site: &Site, known: Option<View>) -> Result<View, Failure> {
    if from == "agents" {
        return known.ok_or_else(|| {
            Failure::Refused(
                "no process of the cluster knows a view; give --from a file of `obol coordinator run --save` or of \
                 `obol watch --save`"
                    .to_owned(),
            )
        });
    }
    let bytes = file::read(Path::new(from), Pipes::Refused, VIEW_BYTES_MAX, "view")
        .map_err(|error| Failure::Refused(format!("{from}: {error}")))?;
    let frame = saved_view::decode(site.cluster.nonce(), &bytes)
        .map_err(|error| Failure::Refused(format!("{from} {error}")))?;
    let view = View::from_frame_for(&site.config.layout, frame).ok_or_else(|| {
        Failure::Refused(format!("{from} holds a view that does not fit this cluster's limits"))
    })?;
    match known {
        Some(known) if known.rank() > view.rank() => Err(Failure::Refused(format!(
            "{from} holds view {}, but processes know view {}; use --from agents",
            view.id, known.id
        ))),
        _ => Ok(view),
    }
}

/// Refuses while a majority of those who decide can be read or started, and while that is not
/// known.
fn disaster(site: &Site, view: &View, snapshot: &Snapshot, asked: &RecoveryInputs) -> Result<(), Failure> {
    let network = site.deployment.network.as_ref();
    let (mut there, mut unknown) = (Vec::new(), Vec::new());
    for acceptor in &view.acceptors {
        let number = acceptor.proposer;
        let name = coordinator_name(number);
        let answers = |p: &Process| p.alive && p.kind == Kind::Coordinator && p.name == name;
        if network.is_none_or(|network| network.is_here(acceptor.address)) {
            there.extend(is_there(site, number).then_some(number));
        } else if asked.there.contains(number) || snapshot.remote.iter().any(answers) {
            there.push(number);
        } else if !asked.lost.contains(number) {
            unknown.push(number);
        }
    }
    if there.len() >= view.majority() {
        return Err(Failure::Refused(format!(
            "the memory of a majority of the coordinators is there ({}), so nothing is lost; `obol start` those that are down, \
             or start their units on their hosts",
            shown(&there)
        )));
    }
    if !asked.silent.is_empty() {
        let hosts: Vec<String> = asked.silent.iter().map(ToString::to_string).collect();
        return Err(Failure::Refused(format!(
            "what hosts {} still have is not known. On each of them: `obol coordinator inspect --json`, and give this command \
             the file with --report; or, if a host is off for good or was rebooted, --lost HOST",
            hosts.join(", ")
        )));
    }
    if there.len() + unknown.len() >= view.majority() {
        return Err(Failure::Refused(format!(
            "whether the memory of {} is lost is not known: their hosts have neither the memory nor a note that they have \
             voted there. If it is gone for good, give --lost HOST as well",
            shown(&unknown)
        )));
    }
    Ok(())
}

/// Refuses to give up a host that answers: what runs there would continue beside the recovered
/// cluster.
fn given_up(lost: &[std::net::IpAddr], view: &View, snapshot: &Snapshot, site: &Site) -> Result<(), Failure> {
    let Some(network) = &site.deployment.network else { return Ok(()) };
    for process in snapshot.remote.iter().filter(|p| p.alive) {
        let member = view.member(process.incarnation);
        let host =
            lost.iter().find(|host| member.is_some_and(|m| network.address_of(m.address) == Some(**host)));
        if let Some(host) = host {
            return Err(Failure::Refused(format!("--lost {host}: {} answers from there", process.name)));
        }
    }
    Ok(())
}

/// Numbers for the new coordinators: as many as there were if a process can start them, otherwise
/// one, and if there is room. A number whose memory was lost is never used again, because empty
/// slots look like undisturbed leases to a process that still holds an old view. A new coordinator
/// begins on this host, because the recovered view is here.
fn choose(site: &Site, view: &View, supervised: bool) -> Result<Vec<u16>, Failure> {
    let limit = site.deployment.profile.limits.proposers as u16;
    let network = site.deployment.network.as_ref();
    let belongs_here = |n: &u16| network.is_none_or(|network| network.host_of(*n) == Some(network.address));
    let forgets = |n: &u16| network.is_some_and(|network| network.memory_lost.contains(n));
    // One that runs is a spare of the old set.
    let fresh = |n: &u16| {
        site.cluster.region_info(u32::from(*n)).is_none_or(|info| !info.alive && is_there(site, *n))
    };
    let unused = |n: &u16| view.acceptor(*n).is_none() && !view.retired.contains(*n) && !forgets(n);
    let free = (1..=limit).filter(belongs_here).filter(unused).filter(fresh);
    let chosen: Vec<u16> = free.take(if supervised { view.acceptors.len() } else { 1 }).collect();
    if chosen.is_empty() {
        let here = if network.is_some() { " of this host" } else { "" };
        return Err(Failure::Refused(format!(
            "no number{here} is left for new coordinators: the profile's limits.proposers is {limit}, and all were used or \
             belong to spares that run; stop a spare, recover on another host, or start a new cluster"
        )));
    }
    Ok(chosen)
}

/// What was done for a recovery that has not succeeded yet; undone when this is dropped before it
/// has.
struct Attempt<'a> {
    site: &'a Site,
    observer: &'a mut Observer,
    /// An operator who does not wait any more.
    stop: &'a AtomicBool,
    /// What the file of the recovered view held before.
    before: Option<Vec<u8>>,
    /// The view from which the new coordinators start.
    recovered: ViewId,
    numbers: &'a [u16],
    /// Those that were started, and their pids; none if that is left to the operator.
    started: Vec<(u16, u32)>,
    done: bool,
}

impl<'a> Attempt<'a> {
    fn begin(
        site: &'a Site,
        observer: &'a mut Observer,
        stop: &'a AtomicBool,
        numbers: &'a [u16],
        view: &View,
    ) -> Result<Self, Failure> {
        let at = site.cluster.dir().join(RECOVERED_FILE);
        let before = match fs::read(&at) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(Failure::refused_at(&at)(error)),
        };
        let (recovered, started) = (view.id, Vec::new());
        let attempt = Self { site, observer, stop, before, recovered, numbers, started, done: false };
        obol_coordinator::save(&at, &view.to_frame())
            .map_err(|error| Failure::Failed(format!("could not save to {}: {error}", at.display())))?;
        Ok(attempt)
    }

    fn start(&mut self, number: u16) -> Result<u32, Failure> {
        let pid = start(self.site, self.site.cluster.dir(), number)?;
        self.started.push((number, pid));
        Ok(pid)
    }

    /// The first view that the new coordinators decide by themselves.
    fn decided(&self) -> Result<Option<View>, Failure> {
        Ok(inspection::known(self.site)?.filter(|newest| newest.id > self.recovered))
    }

    /// Waits until they have decided one.
    fn wait(&mut self) -> Result<View, Failure> {
        let timeout = if self.started.is_empty() { BY_HAND_TIMEOUT } else { RECOVER_TIMEOUT };
        let end = Instant::now() + timeout;
        loop {
            if let Some(newest) = self.decided()? {
                self.done = true;
                return Ok(newest);
            }
            if let Some(&(number, _)) = self.started.iter().find(|(_, pid)| !processes::is_running(*pid)) {
                return Err(Failure::Failed(processes::why(
                    self.site.cluster.dir(),
                    coordinator_name(number).as_str(),
                )));
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(Failure::Failed("interrupted".to_owned()));
            }
            if Instant::now() > end {
                return Err(Failure::Failed(format!(
                    "the new coordinators decided nothing within {} s; see `obol status`",
                    timeout.as_secs()
                )));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn undo(&mut self) -> Result<(), String> {
        let end = Instant::now() + UNDO_TIMEOUT;
        let started = self.started.clone();
        let lives = || started.iter().find(|(_, pid)| processes::is_running(*pid));
        // One that has just begun has no place in the cluster yet, that distinguishes it from
        // another process.
        while let Some(&(number, pid)) = lives() {
            let snapshot = self.observer.snapshot();
            for process in snapshot.processes.iter().filter(|p| p.alive) {
                if started.iter().any(|(_, pid)| *pid == process.process.pid) {
                    ending::kill(process.name.as_str(), process.process)
                        .map_err(|failure| failure.to_string())?;
                }
            }
            if Instant::now() > end {
                let name = coordinator_name(number);
                return Err(format!("{name} (pid {pid}) runs on, and the recovered view stays for it"));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        let runs = |n: &&u16| self.site.cluster.region_info(u32::from(**n)).is_some_and(|info| info.alive);
        if let Some(number) = self.numbers.iter().find(runs) {
            let name = coordinator_name(*number);
            return Err(format!(
                "{name} runs, and the recovered view stays for it; stop its unit, or let it continue"
            ));
        }
        // What they decided until they died stands: then the view from which they began must stay
        // as well.
        if self.decided().map_err(|failure| failure.to_string())?.is_some() {
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
            // There is no one left to report to if this fails, too.
            let _ = output::remark(format_args!("obol: the recovery could not be undone: {why}"));
        }
    }
}

/// Whether an `obol up` can start the new coordinators. On a host of several the operator can.
fn supervised(site: &Site) -> Result<bool, Failure> {
    let by_hand = site.deployment.network.as_ref().is_some_and(|network| !network.hosts.is_empty());
    match control::request(site.cluster.dir(), &Request::Hello) {
        Ok(_) => Ok(true),
        Err(ControlError::NoSupervisor(_)) if by_hand => Ok(false),
        Err(error) => Err(Failure::refused(error)),
    }
}

/// Continues a cluster with new coordinators.
pub fn recover(root: &Path, cluster: Name, options: &Options, say: Say<'_>) -> Result<Recovered, Failure> {
    let stop = signals::ending()?;
    let site = Site::open(root, cluster).map_err(Failure::refused)?;
    let _one = lock(site.cluster.dir())?;
    let mut observer = Observer::open(root, cluster).map_err(Failure::refused)?;
    let snapshot = observer.snapshot();
    let mut asked = RecoveryInputs::of(&site, &options.report, &options.lost)?;
    let seen = snapshot.view.as_deref().cloned();
    let known = [inspection::known(&site)?, seen, asked.newest.take()];
    let known = known.into_iter().flatten().max_by_key(|view| view.rank());
    let found = source(&options.from, &site, known)?;
    given_up(&options.lost, &found, &snapshot, &site)?;
    disaster(&site, &found, &snapshot, &asked)?;
    let supervised = supervised(&site)?;
    let numbers = choose(&site, &found, supervised)?;
    let longest = options.longest_lease.unwrap_or_default().max(site.config.timing.lease_max);
    if longest > LEASE_MAX {
        return Err(Failure::Refused(format!(
            "--longest-lease {longest}: no lease is longer than {LEASE_MAX}"
        )));
    }
    let address = |number: u16| Deployment::coordinator(number).1.owner();
    let acceptors = numbers.iter().map(|&n| Acceptor { proposer: n, address: address(n) });
    let view = found.recovered(acceptors.collect(), longest);
    let retired: Vec<u16> = view.retired.iter().collect();
    say(format_args!(
        "recovering from view {}: its {} members stay, coordinators are {}; whatever was decided after it is lost, and {} \
         never decide again",
        found.id,
        view.members.len(),
        shown(&numbers),
        shown(&retired)
    ))?;
    let mut attempt = Attempt::begin(&site, &mut observer, &stop, &numbers, &view)?;
    for &number in &numbers {
        let name = coordinator_name(number);
        if supervised {
            let pid = attempt.start(number)?;
            say(format_args!("started {name} (pid {pid})"))?;
        } else {
            say(format_args!(
                "start {name} on this host now: `systemctl start obol-coordinator@{number}`; waiting for it"
            ))?;
        }
    }
    let newest = attempt.wait()?;
    drop(attempt);
    let (from, recovered, members) = (found.id.0, view.id.0, newest.members.len());
    Ok(Recovered { from, recovered, view: newest.id.0, acceptors: numbers, retired, members, supervised })
}

//! The daemons of a cluster, and what they share: find the cluster, set up the process, say how it ended.

pub mod coordinator;
pub mod demo_app;
pub mod gateway;

use crate::{logging, signals};
use obol_agent::Attached;
use obol_fabric::host::sched::{self, Slice};
use obol_fabric::host::{NameClaim, Presence, clock, program};
use obol_fabric::{Endpoint, Name, Nanos};
use obol_logs::Settings;
use obol_membership::Kind;
use obol_node::endpoint::LEAVE_TIMEOUT;
use obol_node::service::ServiceManager;
use obol_node::{Site, ended as end_note};
use obol_profiles::Scheduling;
use obol_term::output::{self, Failure};
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// How long a demo app waits to be admitted before it gives up.
pub(crate) const START_TIMEOUT: Nanos = Nanos::from_secs(20);

/// Whom a daemon runs as.
#[derive(Clone, Copy)]
pub(crate) struct Daemon {
    /// What it is in the view; `None` for one that is not a member.
    pub(crate) kind: Option<Kind>,
    pub(crate) name: Name,
    /// The agent in whose region it has its seat.
    pub(crate) agent: Option<Name>,
}

/// Finds the cluster and sets up the process: it dies with its supervisor, and stops at SIGTERM and
/// SIGINT.
/// Its log begins here, before the process has real-time scheduling. A name that belongs to a process of
/// another kind, or that a live process has, is refused before anything is written under it; one that is
/// not a member may have any that is free.
pub(crate) fn enter(
    root: &Path,
    cluster: Name,
    log: &Settings,
    daemon: Daemon,
) -> Result<(Site, Arc<AtomicBool>, NameClaim), Failure> {
    let Daemon { kind, name: process, agent } = daemon;
    sched::die_with_parent().map_err(Failure::failed)?;
    let stop = signals::ending()?;
    let site = Site::open(root, cluster).map_err(Failure::refused)?;
    if let Some(kind) = kind {
        site.deployment.check_name(kind, process).map_err(Failure::refused)?;
        of_this_host(&site, process)?;
    }
    let name = NameClaim::reserve(&site.cluster, process).map_err(Failure::refused)?;
    logging::start(log, root, &site, process, agent);
    // Command line and files are read, and nothing has run of what a failover needs.
    program::release();
    program::keep_freed();
    Ok((site, stop, name))
}

/// Refuses a name that the file of hosts gives to another host, whose process may live.
fn of_this_host(site: &Site, process: Name) -> Result<(), Failure> {
    let own = site.deployment.own_host();
    match site.deployment.home_of(process).filter(|home| *home != own) {
        Some(home) => Err(Failure::Refused(format!(
            "{process} is of host {home}, and this is host {own}: start it there, or choose another name"
        ))),
        None => Ok(()),
    }
}

/// The service manager that started this process. A daemon works without one.
pub(crate) fn service_manager() -> ServiceManager {
    ServiceManager::from_environment().unwrap_or_else(|error| {
        // Whether anybody reads this does not matter to it.
        let _ = output::remark(format_args!(
            "obol: the service manager cannot be reached ({error}; NOTIFY_SOCKET in the environment)"
        ));
        ServiceManager::none()
    })
}

/// Schedules a process with a core as the profile asks for, where it is allowed; the process works
/// without.
pub(crate) fn schedule(site: &Site, reports: bool) {
    let Scheduling::Fifo { priority } = site.deployment.profile.scheduling else {
        // An older kernel only schedules it like any other.
        let _ = sched::set_slice(None, Slice::Short);
        return;
    };
    let Err(error) = sched::run_fifo(priority) else { return };
    let text = format!(
        "no real-time scheduling ({error}); leases may be renewed late, and healthy processes removed while the machine \
         is busy. Grant CAP_SYS_NICE or use the profile laptop"
    );
    if reports {
        logging::warn(text);
    } else {
        tracing::warn!(target: "process", "{text}");
    }
}

/// Says why the kernel module or the eBPF programs are there and yet do not report deaths. The
/// others of this host are refused alike.
pub(crate) fn report_kernel_refusal(endpoint: &Endpoint) {
    if let Some(refusal) = endpoint.kernel_refusal() {
        logging::warn(format_args!(
            "deaths are detected by {}, not by the kernel: {refusal}",
            endpoint.detection().name()
        ));
    }
}

/// A daemon's end. Several share one standard error, so each says who it is.
pub(crate) fn ended<E: Display>(name: impl Display, result: Result<(), E>) -> Result<ExitCode, Failure> {
    result.map(|()| ExitCode::SUCCESS).map_err(|error| Failure::Failed(format!("{name}: {error}")))
}

/// Runs a process that others would miss if it failed, and notes it if it ends as it was asked to.
pub(crate) fn expected<E: Display>(
    site: &Site,
    name: Name,
    run: impl FnOnce() -> Result<(), E>,
) -> Result<ExitCode, Failure> {
    let noted = |result: io::Result<()>| {
        // Nothing but what `obol status` says of it depends on this.
        result.or_else(|error| {
            output::remark(format_args!(
                "obol: {name}: cannot note how it ended in {}: {error}",
                site.cluster.dir().display()
            ))
        })
    };
    noted(end_note::forget(site.cluster.dir(), name))?;
    let code = ended(name, run())?;
    noted(end_note::note(site.cluster.dir(), name))?;
    Ok(code)
}

/// Schedules this thread, whose heartbeats represent a program, as the agent that watches it.
/// Otherwise it would beat too late beside busy neighbours, and be taken for frozen.
pub(crate) fn set_watched_thread_priority(site: &Site) {
    if let Some(priority) = site.deployment.profile.scheduling.priority() {
        // Without the right to it the program works all the same; `obol status` shows who has none.
        let _ = sched::run_fifo_alone(priority);
    }
}

/// Leaves the cluster, still beating.
pub(crate) fn leave(app: &Attached, presence: &mut Presence, beat_every: Nanos) {
    let end = clock::now() + LEAVE_TIMEOUT;
    while app.leave(beat_every) == Ok(false) && clock::now() < end {
        presence.beat();
    }
}

/// Runs an agent or a lease cache, until it is asked to end.
pub fn member(
    root: &Path,
    cluster: Name,
    log: &Settings,
    kind: Kind,
    name: Name,
) -> Result<ExitCode, Failure> {
    let (site, stop, _name) = enter(root, cluster, log, Daemon { kind: Some(kind), name, agent: None })?;
    schedule(&site, false);
    let mut manager = service_manager();
    expected(&site, name, || obol_agent::run(&site, kind, name, obol_agent::seed(), &stop, &mut manager))
}

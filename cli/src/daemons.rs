//! The daemons' thin mains: find the cluster, set up the process, run until told to stop.

use crate::signals;
use obol_agent::{AttachError, Attached, OwnView};
use obol_console::output::{self, Failure};
use obol_coordinator::Saver;
use obol_fabric::host::{HostError, Presence, clock, program, sched};
use obol_fabric::{Name, Nanos, ViewId};
use obol_membership::Kind;
use obol_membership::metrics::Counter;
use obol_membership::recorder::{Kind as Event, Record};
use obol_node::endpoint::{Endpoint, LEAVE_TIMEOUT};
use obol_node::{Site, ended as end_note, unsaved};
use obol_profiles::Scheduling;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How long a demo app looks for its agent, and waits to be admitted, before it gives up.
pub(crate) const START_TIMEOUT: Nanos = Nanos::from_secs(20);
/// Between two requests that a demo app serves when nothing changes.
const SERVE_EVERY: Nanos = Nanos::from_millis(50);

/// Finds the cluster and sets up the process: it dies with its supervisor, and stops at SIGTERM and
/// SIGINT.
fn enter(root: &Path, cluster: Name) -> Result<(Site, Arc<AtomicBool>), Failure> {
    sched::die_with_parent().map_err(Failure::failed)?;
    let stop = signals::flag(&[SIGTERM, SIGINT])?;
    let site = Site::open(root, cluster).map_err(Failure::refused)?;
    // Command line and files are read, and nothing has run of what a failover needs.
    program::release();
    Ok((site, stop))
}

/// Schedules a process with a core as the profile asks for, where it is allowed; the process works
/// without.
fn schedule(site: &Site, tells: bool) -> Result<(), Failure> {
    let Scheduling::Fifo { priority } = site.deployment.profile.scheduling else { return Ok(()) };
    match sched::run_fifo(priority) {
        Err(error) if tells => Ok(output::remark(format_args!(
            "obol: no real-time scheduling ({error}); leases may be renewed late, and healthy \
             processes removed while the machine is busy. Grant CAP_SYS_NICE or use the profile laptop"
        ))?),
        _ => Ok(()),
    }
}

/// Says why the kernel module or the eBPF programs are there and yet do not report deaths. The others
/// of this host are refused alike.
fn tell_refusal(endpoint: &Endpoint) {
    if let Some(refusal) = endpoint.kernel_refusal() {
        // The process works without it; whether anybody reads this does not matter to it.
        let _ = output::remark(format_args!(
            "obol: deaths are detected by {}, not by the kernel: {refusal}",
            endpoint.detection().name()
        ));
    }
}

/// A daemon's end. Several share one standard error, so each says who it is.
fn ended<E: Display>(name: impl Display, result: Result<(), E>) -> Result<ExitCode, Failure> {
    result.map(|()| ExitCode::SUCCESS).map_err(|error| Failure::Failed(format!("{name}: {error}")))
}

/// Runs a process that others would miss if it failed, and notes it if it ends as it was asked to.
fn expected<E: Display>(
    site: &Site,
    name: Name,
    run: impl FnOnce() -> Result<(), E>,
) -> Result<ExitCode, Failure> {
    let noted = |result: io::Result<()>| {
        // Nothing but what `obol status` says of it depends on this.
        result.or_else(|error| {
            output::remark(format_args!(
                "obol: {name}: can not note how it ended in {}: {error}",
                site.cluster.dir().display()
            ))
        })
    };
    noted(end_note::forget(site.cluster.dir(), name))?;
    let code = ended(name, run())?;
    noted(end_note::note(site.cluster.dir(), name))?;
    Ok(code)
}

pub(crate) fn coordinator(
    root: &Path,
    cluster: Name,
    number: u16,
    save: Option<&Path>,
) -> Result<ExitCode, Failure> {
    let (site, stop) = enter(root, cluster)?;
    // Before this thread is scheduled in real time: the saver must not be.
    let _saver = match save {
        Some(path) => {
            let dir = site.cluster.dir().to_owned();
            // What an earlier one could not do says nothing of this one. If it stays, the next save
            // takes it away.
            let _ = unsaved::forget(&dir, number);
            let told = move |path: &Path, error: Option<&io::Error>| {
                let Some(error) = error else {
                    let _ = unsaved::forget(&dir, number);
                    return;
                };
                let why = format!("{}: {error}", path.display());
                // A coordinator decides without it; whether anybody reads this does not matter to
                // it.
                let _ = unsaved::note(&dir, number, &why);
                let _ = output::remark(format_args!("obol: coord-{number} can not save views to {why}"));
            };
            let saver = Saver::start(site.cluster.clone(), number, path.to_owned(), told);
            Some(saver.map_err(Failure::failed)?)
        }
        None => None,
    };
    // All are refused alike: the first tells for all.
    schedule(&site, number == 1)?;
    let result = obol_coordinator::run(&site, number, obol_agent::seed(), &stop, |endpoint| {
        if number == 1 {
            tell_refusal(endpoint);
        }
    });
    ended(format_args!("coord-{number}"), result)
}

pub(crate) fn agent(root: &Path, cluster: Name, name: Name) -> Result<ExitCode, Failure> {
    let (site, stop) = enter(root, cluster)?;
    schedule(&site, false)?;
    expected(&site, name, || obol_agent::run(&site, Kind::Agent, name, obol_agent::seed(), &stop))
}

pub(crate) fn lease_cache(root: &Path, cluster: Name, name: Name) -> Result<ExitCode, Failure> {
    let (site, stop) = enter(root, cluster)?;
    schedule(&site, false)?;
    expected(&site, name, || obol_agent::run(&site, Kind::LeaseCache, name, obol_agent::seed(), &stop))
}

/// A drill's load on this host: ends with its fault agent, or by itself.
pub(crate) fn load(threads: u32, mebibytes: u32, nanoseconds: u64) -> Result<ExitCode, Failure> {
    sched::die_with_parent().map_err(Failure::failed)?;
    obol_chaos::drills::load::run(threads, mebibytes, Nanos(nanoseconds));
    Ok(ExitCode::SUCCESS)
}

/// This thread stands for a program, so it is scheduled as the agent is that watches it: beside
/// busy neighbours it would beat too late otherwise, and be taken for frozen.
pub(crate) fn stands_for_program(site: &Site) {
    if let Some(priority) = site.deployment.profile.scheduling.priority() {
        // Without the right to it the program works all the same; `obol status` shows who has none.
        let _ = sched::run_fifo_alone(priority);
    }
}

/// Takes a seat, as soon as the agent is there.
pub(crate) fn attach(
    site: &Site,
    node: Name,
    name: Name,
    stop: &AtomicBool,
) -> Result<(Attached, Presence), AttachError> {
    stands_for_program(site);
    let end = clock::now() + START_TIMEOUT;
    loop {
        match Attached::open_present(site, node, name) {
            Err(AttachError::Fabric(HostError::NoSuchAgent { .. }))
                if clock::now() < end && !stop.load(Ordering::Relaxed) =>
            {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            other => return other,
        }
    }
}

/// The demo application: it serves small requests under the guard of its view, and notes the first
/// success in each.
pub(crate) fn app(root: &Path, cluster: Name, name: Name, node: Name) -> Result<ExitCode, Failure> {
    let (site, stop) = enter(root, cluster)?;
    expected(&site, name, || serve_at(&site, name, node, &stop))
}

/// Attaches to the agent, and to its successor when it dies, until told to stop.
fn serve_at(site: &Site, name: Name, node: Name, stop: &AtomicBool) -> Result<(), AttachError> {
    let beat_every = site.deployment.profile.timing.heartbeat_every;
    while !stop.load(Ordering::Relaxed) {
        let (app, mut presence) = attach(site, node, name, stop)?;
        match serve(&app, &mut presence, beat_every, stop) {
            Ok(()) if stop.load(Ordering::Relaxed) => leave(&app, &mut presence, beat_every),
            Ok(()) | Err(AttachError::Lost(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Leaves the cluster, still beating.
pub(crate) fn leave(app: &Attached, presence: &mut Presence, beat_every: Nanos) {
    let end = clock::now() + LEAVE_TIMEOUT;
    while app.leave(beat_every) == Ok(false) && clock::now() < end {
        presence.beat();
    }
}

/// Joins, and serves until told to stop or until the agent dies.
fn serve(
    app: &Attached,
    presence: &mut Presence,
    beat_every: Nanos,
    stop: &AtomicBool,
) -> Result<(), AttachError> {
    let is_wanted = || !stop.load(Ordering::Relaxed);
    app.join_present(presence, START_TIMEOUT, is_wanted)?;
    let mut served_in = None;
    let mut changes = app.changes();
    let mut view = app.view();
    let serve_every = SERVE_EVERY.min(beat_every);
    while is_wanted() && app.agent_lives() {
        presence.beat();
        let now = clock::now();
        let mut wait = serve_every;
        if let Some(current) = view.as_ref().filter(|view| view.is_mine()) {
            let noted = serve_one(app, current, &mut served_in);
            // The lease may lie ahead; nobody rings when it begins.
            if let (false, Some(lease)) = (noted, app.lease())
                && now < lease.start
                && lease.view == current.id
            {
                wait = wait.min(lease.start.since(now));
            }
        } else if app.is_excluded() {
            app.join_present(presence, START_TIMEOUT, is_wanted)?;
            view = app.view();
            continue;
        }
        let seen = app.wait_changed(changes, wait);
        if seen != changes || view.is_none() {
            changes = seen;
            view = app.view();
        }
    }
    Ok(())
}

/// One request. The first one that the view lets through is the app's first success in it.
fn serve_one(app: &Attached, view: &OwnView, served_in: &mut Option<ViewId>) -> bool {
    let seat = app.seat();
    let first = *served_in != Some(view.id);
    if first && app.active(view) {
        seat.record(Record::new(Event::Active, view.id.0, 0));
    }
    let served = app.guard(view, |_| seat.progress()).is_some();
    if served {
        seat.count(Counter::Served, 1);
        if first {
            *served_in = Some(view.id);
            seat.record(Record::new(Event::Service, view.id.0, 0));
        }
    } else {
        seat.count(Counter::Inactive, 1);
    }
    served
}

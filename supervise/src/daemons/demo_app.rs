//! The demo application. It serves small requests under the guard of its view, and
//! notes the first success in each.

use super::{Daemon, START_TIMEOUT, enter, expected, leave, set_watched_thread_priority};
use obol_agent::{AttachError, Attached, OwnView};
use obol_fabric::host::{HostError, Presence, clock};
use obol_fabric::{Name, Nanos, ViewId};
use obol_logs::Settings;
use obol_membership::Kind;
use obol_membership::metrics::Counter;
use obol_membership::recorder::{EventKind, Record};
use obol_node::Site;
use obol_term::output::Failure;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Between two requests that a demo app serves when nothing changes.
const SERVE_EVERY: Nanos = Nanos::from_millis(50);

/// Poll interval while the agent is away: it may come back at once, or not for hours.
const ATTACH_EVERY_MIN: Duration = Duration::from_millis(5);
const ATTACH_EVERY_MAX: Duration = Duration::from_millis(100);

/// Runs the demo application `name` at the agent `node`, until it is asked to end.
pub fn run(root: &Path, cluster: Name, log: &Settings, name: Name, node: Name) -> Result<ExitCode, Failure> {
    let daemon = Daemon { kind: Some(Kind::App), name, agent: Some(node) };
    let (site, stop, _name) = enter(root, cluster, log, daemon)?;
    expected(&site, name, || serve_at(&site, name, node, &stop))
}

/// Takes a seat, as soon as the agent is there. Until stopped it waits: the agent decides when.
fn attach(
    site: &Site,
    node: Name,
    name: Name,
    stop: &AtomicBool,
) -> Result<(Attached, Presence), AttachError> {
    set_watched_thread_priority(site);
    let mut pause = ATTACH_EVERY_MIN;
    loop {
        match Attached::open_present(site, node, name) {
            Err(AttachError::Fabric(HostError::NoSuchAgent { .. })) if !stop.load(Ordering::Relaxed) => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(ATTACH_EVERY_MAX);
            }
            other => return other,
        }
    }
}

/// Attaches to the agent, and to its successor when it dies, until stopped.
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

/// Joins, and serves until stopped or until the agent dies.
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
            // The lease may start later, without a wakeup.
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
        seat.record(Record::new(EventKind::Active, view.id.0, 0));
    }
    let served = app.guard(view, |_| seat.progress()).is_some();
    if served {
        seat.count(Counter::Served, 1);
        if first {
            *served_in = Some(view.id);
            seat.record(Record::new(EventKind::Service, view.id.0, 0));
        }
    } else {
        seat.count(Counter::Inactive, 1);
    }
    served
}

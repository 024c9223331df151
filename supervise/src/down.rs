//! The end of a whole cluster, whatever has become of its supervisor.

use crate::control::{self, ControlError, Request};
use crate::directory::Directory;
use crate::hosts::further_hosts;
use crate::{logging, saved};
use obol_fabric::Name;
use obol_fabric::host::{Cluster, HostError, RegionInfo};
use obol_membership::Kind;
use obol_node::Site;
use obol_term::output::{self, Failure};
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long it waits for a supervisor, and for killed processes, to be gone.
const DOWN_TIMEOUT: Duration = Duration::from_secs(10);
/// After this time it reports what it waits for.
const REPORT_AFTER: Duration = Duration::from_secs(1);
/// Poll interval while processes end.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// What [`end`] did on one host, as scripts read it.
#[derive(Debug, Serialize)]
pub struct Down {
    pub cluster: Name,
    /// Its directory, if others than obol made it, so that it stays.
    pub kept: Option<String>,
}

/// Ends the cluster by its supervisor if there is one, and by killing its processes if there is
/// none; then removes what is left. What was done on each of its hosts that are this machine is reported.
pub fn end(
    root: &Path,
    cluster: Name,
    mut report: impl FnMut(&Down) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if let Ok(site) = Site::open(root, cluster)
        && site.deployment.is_prepared()
    {
        return Err(Failure::Refused(prepared(&root.join(cluster.as_str()), cluster)));
    }
    // All are opened first: one supervisor removes the directories of all, and knows only the processes
    // that it has started.
    let further: Vec<_> =
        further_hosts(root, cluster).into_iter().map(|name| (name, Cluster::open(root, name))).collect();
    report(&end_cluster(root, cluster, Cluster::open(root, cluster), false)?)?;
    for (name, opened) in further {
        report(&end_cluster(root, name, opened, true)?)?;
    }
    logging::retire();
    Ok(())
}

/// Why `down` does not end a host that `obol host prepare` has set up.
fn prepared(dir: &Path, cluster: Name) -> String {
    format!(
        "cluster {cluster} has several hosts, and `obol host prepare` has set this one up: {} holds the votes of its \
         coordinators, which cannot vote again without it. To take this host out of the cluster, replace its \
         coordinators (`obol coordinator replace --help`), stop its processes with their supervisor, and remove the \
         directory with `obol host clean FILE`, where FILE is the file of hosts",
        dir.display()
    )
}

/// Ends a cluster on one host. One that `was_there` when the command began may be gone by now: its
/// supervisor ends it on all hosts.
fn end_cluster(
    root: &Path,
    cluster: Name,
    opened: Result<Cluster, HostError>,
    was_there: bool,
) -> Result<Down, Failure> {
    let opened = match opened {
        Ok(opened) => Some(opened),
        // Whatever is wrong with the table, its supervisor can still be asked and its files
        // removed.
        Err(error @ (HostError::Version { .. } | HostError::Corrupt { .. })) => {
            output::remark(format_args!("obol: {error}; removing its files"))?;
            None
        }
        // A directory without a table is what is left of an `up` or `down` that was killed.
        Err(HostError::NotFound { .. }) if was_there || root.join(cluster.as_str()).exists() => None,
        Err(error) => return Err(Failure::refused(error)),
    };
    let mut kept = None;
    // If it is gone by now, another command has ended the cluster.
    if let Ok(directory) = Directory::open(root, cluster) {
        ask_to_end(&directory)?;
        if let Some(opened) = &opened {
            kill_all(opened)?;
        }
        directory.remove().map_err(|error| match error {
            HostError::Unsafe { .. } => Failure::refused(error),
            error => Failure::failed(error),
        })?;
        if directory.is_there() {
            let path = directory.path().display().to_string();
            output::remark(format_args!("obol: {path} was not made by obol and stays"))?;
            kept = Some(path);
        }
    } else if let Some(opened) = &opened {
        kill_all(opened)?;
    }
    saved::end(root, cluster)
        .map_err(|error| Failure::Failed(format!("cannot remove saved views: {error}")))?;
    Ok(Down { cluster, kept })
}

/// Asks the supervisor to end the cluster, and waits until it has.
fn ask_to_end(directory: &Directory) -> Result<(), Failure> {
    let end = Instant::now() + DOWN_TIMEOUT;
    let mut slow = Slow::new();
    loop {
        match ask_to_stop(directory, &mut slow) {
            Ok(_) => break,
            // An `up` that has just begun does not listen yet, and one that ends does not listen
            // any more.
            Err(ControlError::NoSupervisor(_)) if directory.is_held() && Instant::now() < end => {
                slow.report(|| {
                    "an `obol up` that holds the cluster's directory and does not listen".to_owned()
                })?;
                std::thread::sleep(POLL_INTERVAL);
            }
            Err(ControlError::NoSupervisor(_)) => return Ok(()),
            Err(error) => {
                output::remark(format_args!("obol: {error}; killing its processes"))?;
                return Ok(());
            }
        }
    }
    // A directory that others made stays, and has other files for a moment after its table is gone.
    while Instant::now() < end && (directory.holds_cluster() || directory.is_held()) {
        slow.report(|| format!("the `obol up` to remove {}", directory.path().display()))?;
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// The supervisor answers when all processes have ended. Reports what it waits for.
fn ask_to_stop(directory: &Directory, slow: &mut Slow) -> Result<Option<u32>, ControlError> {
    let path = directory.path();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| control::request_within(&path, &Request::Stop, DOWN_TIMEOUT));
        let asked = Instant::now();
        while !asking.is_finished() {
            // One that does not listen refuses at once.
            if asked.elapsed() >= REPORT_AFTER {
                // It waits whether or not this is read.
                let _ = slow.report(|| "the `obol up` to end the cluster's processes".to_owned());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        // A panic has been reported already.
        asking.join().unwrap_or_else(|_| Err(ControlError::NoSupervisor(path.join(control::SOCKET))))
    })
}

/// Says once, when it takes long, what is waited for.
struct Slow {
    began: Instant,
    reported: bool,
}

impl Slow {
    fn new() -> Self {
        Self { began: Instant::now(), reported: false }
    }

    fn report(&mut self, what: impl FnOnce() -> String) -> Result<(), Failure> {
        if !self.reported && self.began.elapsed() >= REPORT_AFTER {
            self.reported = true;
            output::remark(format_args!(
                "obol: waiting for {}, {} s at most",
                what(),
                DOWN_TIMEOUT.as_secs()
            ))?;
        }
        Ok(())
    }
}

/// Kills every process of a cluster and waits until all have ended.
fn kill_all(cluster: &Cluster) -> Result<(), Failure> {
    let end = Instant::now() + DOWN_TIMEOUT;
    let mut slow = Slow::new();
    loop {
        let mut live = Vec::new();
        // A drill that runs beside the cluster is not of it.
        let own = |info: &RegionInfo| Kind::from_number(info.kind).is_some() || info.is_gateway();
        for info in cluster.regions().into_iter().filter(own) {
            let mut processes = vec![(info.name, info.process)];
            if let Ok(region) = obol_fabric::host::Observed::open(cluster, info.number) {
                let seats = 1..cluster.layout().limits().seats as u16;
                let seats = seats.filter_map(|seat| region.reader().seat(seat));
                processes.extend(seats.map(|seat| (seat.name, seat.process)));
            }
            for (name, process) in processes {
                // Who is gone already needs no killing.
                let Ok(held) = process.hold() else { continue };
                let killed = held.kill();
                if !held.has_ended() {
                    let why = killed.err().map_or(String::new(), |error| format!(": {error}"));
                    live.push(format!("{name} (pid {}{why})", process.pid));
                }
            }
        }
        if live.is_empty() {
            return Ok(());
        }
        live.dedup();
        if Instant::now() >= end {
            return Err(Failure::Failed(format!(
                "killed {} s ago, these have not ended: {}. The kernel holds them: in a frozen control group, or in a \
                 device or file system that does not answer. The cluster's directory stays; run `obol down` again when they have ended",
                DOWN_TIMEOUT.as_secs(),
                live.join(", ")
            )));
        }
        slow.report(|| live.join(", "))?;
        std::thread::sleep(POLL_INTERVAL);
    }
}

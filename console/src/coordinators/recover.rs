//! `obol coordinator recover`: an operator goes on from a view that survived the memory of a majority of acceptors.
//!
//! Nobody decides that view, so this is only right while nobody can decide anything any more. Its id, and its
//! incarnations, lie beyond any that can have been decided after the view that was found.

use super::{shown, start};
use crate::output::{self, Failure};
use crate::watch::save;
use obol_chaos::observe::{Observer, Snapshot};
use obol_fabric::Name;
use obol_fabric::shm::Observed;
use obol_membership::View;
use obol_membership::view::{Acceptor, coordinator_name};
use obol_profiles::{Deployment, RECOVERED_FILE, Site};
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// A cluster that does not go on after this long has not been recovered.
const RECOVER_TIMEOUT: Duration = Duration::from_secs(30);
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

/// Refuses while a majority of those who decide can be read or started.
fn disaster(site: &Site, view: &View) -> Result<(), Failure> {
    let numbers = view.acceptors.iter().map(|a| a.proposer);
    let there: Vec<u16> = numbers.filter(|n| is_there(site, *n)).collect();
    if there.len() < view.majority() {
        return Ok(());
    }
    Err(Failure::Refused(format!(
        "the memory of a majority of the coordinators is there ({}), so nothing is lost; `obol start` those that are down",
        shown(&there)
    )))
}

/// Numbers for the new coordinators: as many as there were if there is room. A number whose memory was lost is never used
/// again, because empty slots look like undisturbed leases to whoever still holds an old view.
fn choose(site: &Site, view: &View) -> Result<Vec<u16>, Failure> {
    let limit = site.deployment.profile.limits.proposers as u16;
    let fresh = |n: &u16| site.cluster.region_info(u32::from(*n)).is_none() || is_there(site, *n);
    let free = (1..=limit).filter(|n| view.acceptor(*n).is_none()).filter(fresh);
    let chosen: Vec<u16> = free.take(view.acceptors.len()).collect();
    if chosen.is_empty() {
        return Err(Failure::Refused(format!(
            "no number is left for new coordinators: the profile's limits.proposers is {limit}, and all were used; start a new cluster"
        )));
    }
    Ok(chosen)
}

pub(super) fn run(root: &Path, cluster: Name, from: &str, json: bool) -> Result<ExitCode, Failure> {
    let site = Site::open(root, cluster).map_err(Failure::refused)?;
    let mut observer = Observer::open(root, cluster).map_err(Failure::refused)?;
    let found = source(from, &observer.snapshot())?;
    disaster(&site, &found)?;
    let numbers = choose(&site, &found)?;
    let address = |number: u16| Deployment::coordinator(number).1.owner();
    let acceptors = numbers.iter().map(|&n| Acceptor { proposer: n, address: address(n) });
    let view = found.recovered(acceptors.collect(), site.config.timing.lease_max);
    save(&site.cluster.dir().join(RECOVERED_FILE), &view.seal())?;
    if !json {
        output::line(format_args!(
            "recovering from view {}: its {} members stay, coordinators are {}; whatever was decided after it is lost",
            found.id,
            view.members.len(),
            shown(&numbers)
        ))?;
    }
    for &number in &numbers {
        let pid = start(&site, number)?;
        if !json {
            output::line(format_args!("started {} (pid {pid})", coordinator_name(number)))?;
        }
    }
    let end = Instant::now() + RECOVER_TIMEOUT;
    let newest = loop {
        let snapshot = observer.snapshot();
        // The first view that the new coordinators decide by themselves.
        let newest = snapshot.view.filter(|newest| newest.id > view.id);
        if let Some(newest) = newest {
            break newest;
        }
        if Instant::now() > end {
            return Err(Failure::Failed(format!(
                "the new coordinators decided nothing within {} s; `obol status` tells more",
                RECOVER_TIMEOUT.as_secs()
            )));
        }
        std::thread::sleep(LOOK_EVERY);
    };
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

//! `obol smr status`: how far each replica of this host is, read from its memory.

use super::failure;
use clap::Args;
use obol_console::output::{self, Failure};
use obol_fabric::host::Observed;
use obol_fabric::{Incarnation, Name};
use obol_node::Site;
use obol_observe::{Observer, Process};
use obol_smr::{Activity, Preset, REPLICA_PREFIX, Standing};
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;

/// Reads of a header that its owner is writing.
const TRIES: u32 = 16;

/// How the state is shown.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Print one JSON object for scripts
    #[arg(long)]
    json: bool,
}

/// A replica's log in JSON.
#[derive(Serialize)]
struct LogJson {
    /// In hexadecimal: JSON numbers are not that precise.
    id: String,
    term: u64,
    /// The term whose leader may write here; 0 if the preset does not restrict that.
    granted: u64,
    accepted: u64,
    committed: u64,
    applied: u64,
    /// Entries of the leader's that it has not applied.
    lag: u64,
    pruned: u64,
    needs_snapshot: bool,
    snapshot_bytes: u64,
    ring_used_bytes: u64,
    ring_bytes: u32,
    sessions: u64,
}

#[derive(Serialize)]
struct ReplicaJson {
    name: String,
    member: bool,
    /// It leads, and serves.
    leads: bool,
    /// `follows`, `takes-over`, `leads` or `waits`. Absent if it is of another host.
    activity: Option<&'static str>,
    frozen: bool,
    /// Of another host, whose memory is read there.
    elsewhere: bool,
    /// Absent if it has no log, or if it is of another host.
    log: Option<LogJson>,
}

#[derive(Serialize)]
struct StatusJson {
    cluster: String,
    view: Option<u64>,
    leader: Option<String>,
    term: Option<u64>,
    /// How the replicas exclude an earlier leader.
    preset: Option<String>,
    replicas: Vec<ReplicaJson>,
}

/// A replica, and what its memory says.
struct Found {
    name: Name,
    incarnation: Incarnation,
    is_member: bool,
    frozen: bool,
    elsewhere: bool,
    /// `None` if its memory is of another host.
    activity: Option<Activity>,
    standing: Option<Standing>,
}

impl Found {
    /// Whether it is to lead and, as far as its memory can be read here, serves.
    fn leads(&self, leader: Option<Incarnation>) -> bool {
        let is_to_lead = self.is_member && Some(self.incarnation) == leader;
        is_to_lead && self.activity.is_none_or(|activity| activity == Activity::Leads)
    }
}

/// The newest view, all replicas, and who is to lead.
type Look = (Option<u64>, Vec<Found>, Option<Incarnation>);

/// Copies the memory of a replica of this host.
fn memory(site: &Site, region: u32) -> Result<(Activity, Option<Standing>), Failure> {
    let area = obol_replica::area(site).map_err(failure)?;
    // It ended in between.
    let Ok(observed) = Observed::open(&site.cluster, region) else { return Ok((Activity::Follows, None)) };
    let mut memory = Vec::new();
    let mut read = || {
        let is_held = observed.reader().values(area.shared(), &mut memory);
        is_held
            .then(|| Activity::of(&memory))
            .flatten()
            .map(|activity| (activity, Standing::of(&area, &memory)))
    };
    Ok((0..TRIES).find_map(|_| read()).unwrap_or_default())
}

fn find(site: &Site, observer: &mut Observer) -> Result<Look, Failure> {
    let snapshot = observer.snapshot();
    let view = snapshot.view.as_ref();
    let leader = view.and_then(|view| obol_smr::replicas(view).next()).map(|leader| leader.incarnation);
    let is_replica = |process: &&Process| process.alive && process.name.as_str().starts_with(REPLICA_PREFIX);
    let found = snapshot.all_processes().filter(is_replica).map(|process| {
        let elsewhere = process.elsewhere.is_some();
        let (activity, standing) = match elsewhere {
            true => (None, None),
            false => memory(site, process.region).map(|(activity, standing)| (Some(activity), standing))?,
        };
        Ok(Found {
            name: process.name,
            incarnation: process.incarnation,
            is_member: snapshot.is_member(process),
            frozen: process.frozen,
            elsewhere,
            activity,
            standing,
        })
    });
    let mut found: Vec<Found> = found.collect::<Result<_, Failure>>()?;
    found.sort_by_key(|one| (one.name, one.incarnation));
    // Without views, whoever leads says so itself.
    let leads = |one: &&Found| {
        let is_of_mu = one.standing.and_then(|standing| standing.preset()) == Some(Preset::Mu);
        one.is_member && is_of_mu && one.activity == Some(Activity::Leads)
    };
    let by_itself = found.iter().filter(leads).max_by_key(|one| one.standing.map(|it| it.granted));
    let leader = by_itself.map(|one| one.incarnation).or(leader);
    Ok((view.map(|view| view.id.0), found, leader))
}

fn json(
    site: &Site,
    view: Option<u64>,
    found: &[Found],
    leader: Option<Incarnation>,
) -> Result<StatusJson, Failure> {
    let ring_bytes = obol_replica::area(site).map_err(failure)?.ring_bytes();
    let leads = |one: &Found| one.leads(leader);
    // The leader has the whole log; without one, whoever has most of it.
    let of_leader = found.iter().find(|one| leads(one)).and_then(|one| one.standing);
    let newest = of_leader.or_else(|| {
        let all = found.iter().filter_map(|one| one.standing);
        all.max_by_key(|standing| (standing.term, standing.accepted))
    });
    let end = newest.map_or(0, |standing| standing.accepted.0);
    let log = |standing: Standing| LogJson {
        id: format!("{:016x}", standing.log),
        term: standing.term.0,
        granted: standing.granted.0,
        accepted: standing.accepted.0,
        committed: standing.committed.0,
        applied: standing.applied.0,
        lag: end.saturating_sub(standing.applied.0),
        pruned: standing.pruned.0,
        needs_snapshot: standing.needs_snapshot,
        snapshot_bytes: standing.snapshot_bytes,
        ring_used_bytes: standing.ring_used,
        ring_bytes,
        sessions: standing.sessions,
    };
    let replica = |one: &Found| ReplicaJson {
        name: one.name.to_string(),
        member: one.is_member,
        leads: leads(one),
        activity: one.activity.map(<&str>::from),
        frozen: one.frozen,
        elsewhere: one.elsewhere,
        log: one.standing.map(log),
    };
    Ok(StatusJson {
        cluster: site.cluster.name().to_string(),
        view,
        leader: found.iter().find(|one| leads(one)).map(|one| one.name.to_string()),
        term: newest.map(|standing| standing.term.0),
        preset: newest.and_then(|standing| standing.preset()).map(|preset| preset.to_string()),
        replicas: found.iter().map(replica).collect(),
    })
}

/// What is remarkable about a replica.
fn note(replica: &ReplicaJson) -> &'static str {
    match &replica.log {
        None if replica.elsewhere => "on another host: `obol smr status` there",
        _ if replica.frozen => "frozen",
        _ if !replica.member => "no member",
        None if replica.activity == Some(Activity::Waits.into()) => "waits for a replica that has the log",
        None => "no log",
        Some(_) if replica.activity == Some(Activity::TakesOver.into()) => "takes over",
        Some(log) if log.needs_snapshot => "loads a snapshot",
        Some(_) if replica.leads => "leads",
        Some(_) => "follows",
    }
}

/// Why no replica serves, and what to do.
fn remedy(found: &[Found]) -> &'static str {
    let does = |what| found.iter().any(|one| one.is_member && one.activity == Some(what));
    if does(Activity::Waits) {
        "none that runs has the log. Start those again that are frozen or cut off; if the log is lost, end all replicas and \
         start the first one with --force-empty: the store is empty then"
    } else if does(Activity::TakesOver) {
        "one takes over, which needs a majority of the voters of its log. If it lasts, bring those back that are frozen or cut \
         off; if they are lost, end all replicas and start the first one with --force-empty: the store is empty then"
    } else {
        "none is a member that is to lead; see `obol status`"
    }
}

fn print(status: &StatusJson) -> Result<(), Failure> {
    let shown = |number: Option<u64>| number.map_or_else(|| "--".to_owned(), |number| number.to_string());
    output::line(format_args!(
        "{}: view {}, term {}, leader {}, preset {}",
        status.cluster,
        shown(status.view),
        shown(status.term),
        status.leader.as_deref().unwrap_or("--"),
        status.preset.as_deref().unwrap_or("--"),
    ))?;
    let wide = status.replicas.iter().map(|replica| replica.name.len()).max().unwrap_or(0).max(4);
    output::line(format_args!(
        "{:wide$} {:>9} {:>9} {:>9} {:>6} {:>9} {:>12} {:>8} {:>7}  STATE",
        "NAME", "ACCEPTED", "COMMITTED", "APPLIED", "LAG", "PRUNED", "RING", "SESSIONS", "GRANTED"
    ))?;
    for replica in &status.replicas {
        let figures = match &replica.log {
            None => ["--"; 8].map(str::to_owned),
            Some(log) => [
                log.accepted.to_string(),
                log.committed.to_string(),
                log.applied.to_string(),
                log.lag.to_string(),
                log.pruned.to_string(),
                format!("{}/{}", log.ring_used_bytes, log.ring_bytes),
                log.sessions.to_string(),
                if log.granted == 0 { "--".to_owned() } else { log.granted.to_string() },
            ],
        };
        let [accepted, committed, applied, lag, pruned, ring, sessions, granted] = figures;
        output::line(format_args!(
            "{:wide$} {accepted:>9} {committed:>9} {applied:>9} {lag:>6} {pruned:>9} {ring:>12} {sessions:>8} {granted:>7}  {}",
            replica.name,
            note(replica)
        ))?;
    }
    Ok(())
}

pub(super) fn run(root: &Path, site: &Site, options: &Options) -> Result<ExitCode, Failure> {
    let mut observer = Observer::open(root, site.cluster.name()).map_err(Failure::refused)?;
    let (view, found, leader) = find(site, &mut observer)?;
    let status = json(site, view, &found, leader)?;
    if options.json {
        output::json(&status)?;
    } else if status.replicas.is_empty() {
        output::line(format_args!(
            "{}: no replica runs; start the first one with `obol smr server --name {REPLICA_PREFIX}1`",
            status.cluster
        ))?;
    } else {
        print(&status)?;
    }
    let is_led = found.iter().any(|one| one.leads(leader));
    if !is_led && !found.is_empty() {
        output::remark(format_args!("{}: no replica serves: {}", site.cluster.name(), remedy(&found)))
            .map_err(Failure::failed)?;
    }
    Ok(if is_led { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

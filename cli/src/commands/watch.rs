//! `obol watch`: the views of a cluster as a stream, for people and scripts.

use clap::Args;
use obol_agent::{Item, Observer};
use obol_fabric::host::Cluster;
use obol_fabric::{Incarnation, Name, Nanos, ViewId};
use obol_logs::when::When;
use obol_membership::view::coordinator_name;
use obol_membership::{Change, View};
use obol_node::{Site, saved_view};
use obol_observe::Observer as Recorders;
use obol_observe::calendar::{iso, unix_now};
use obol_observe::names::{self, Names};
use obol_observe::view_times::ViewTimes;
use obol_term::output::{self, Failure};
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Follow the views: who joined, left or failed, in order; views that cannot be read are reported as a gap
#[derive(Debug, Args)]
#[command(
    after_help = "Reads the memory of this host's coordinators only. They keep the last views (limits.slots of the profile, less one); older ones, \
    and those that a coordinator of this host has caught up past, are reported as a gap.\n\
    \nThe time of a view is when the first process noted in its flight recorder that it was decided or received, in UTC. It is \
    missing where no flight recorder has the view any more.\n\
    \nTo continue after an earlier run, give --from one more than its last view. --since takes 02:10, 2026-11-25 02:10:30, \
    2026-11-25T02:10:30Z (in UTC), or how long ago: 90s, 10m, 2h, 1d.\n\
    \nExit codes: 0 success, 2 no such cluster, it has ended, or with --once no view is known yet."
)]
pub(crate) struct Watch {
    /// Begin with this view instead of the newest
    #[arg(long, value_name = "VIEW")]
    pub(crate) from: Option<u64>,
    /// Begin with the first view from this time on; without one, with the next that is decided
    #[arg(long, value_name = "TIME", conflicts_with = "from")]
    pub(crate) since: Option<When>,
    /// End after this many views and gaps
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// End once the newest view is printed
    #[arg(long)]
    pub(crate) once: bool,
    /// Keep the newest view in this file, for `obol coordinator recover` after a disaster
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
    /// Print one JSON object per view or gap
    #[arg(long)]
    pub(crate) json: bool,
}

/// Interval of checks whether the cluster still exists, while nothing changes.
const POLL_INTERVAL: Nanos = Nanos::from_millis(500);

#[derive(Serialize)]
struct MemberJson<'a> {
    name: &'a str,
    kind: &'static str,
    incarnation: u64,
}

#[derive(Serialize)]
struct ChangeJson {
    change: &'static str,
    name: Option<String>,
    incarnation: Option<u64>,
    accuser: Option<u64>,
    accuser_name: Option<String>,
    #[serde(rename = "level")]
    reason: Option<&'static str>,
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Line<'a> {
    View {
        view: u64,
        /// None if no flight recorder has it.
        time: Option<String>,
        base: u64,
        lease_us: f64,
        changes: Vec<ChangeJson>,
        causes: Vec<String>,
        members: Vec<MemberJson<'a>>,
    },
    Gap {
        first: u64,
        last: u64,
    },
}

fn change(change: &Change, names: &Names) -> ChangeJson {
    let name = |who| names.get(who).map(|name| name.to_string());
    let of = |change, who: Incarnation| ChangeJson {
        change,
        name: name(who),
        incarnation: Some(who.0),
        accuser: None,
        accuser_name: None,
        reason: None,
    };
    let none = |change| ChangeJson { name: None, incarnation: None, ..of(change, Incarnation::NONE) };
    let decider =
        |change, number| ChangeJson { name: Some(coordinator_name(number).to_string()), ..none(change) };
    match *change {
        Change::Joined(who) => of("joined", who),
        Change::Left(who) => of("left", who),
        Change::Failed { accused, accuser, reason } => ChangeJson {
            accuser: Some(accuser.0),
            accuser_name: name(accuser),
            reason: Some(reason.name()),
            ..of("failed", accused)
        },
        Change::AcceptorAdded(acceptor) => decider("acceptor-added", acceptor.proposer),
        Change::AcceptorRemoved(acceptor) => decider("acceptor-removed", acceptor.proposer),
        Change::Lease => none("lease"),
        Change::Settled => none("settled"),
        Change::Recovered(_) => none("recovered"),
    }
}

fn show(item: &Item, names: &mut Names, times: &mut ViewTimes, json: bool) -> Result<(), Failure> {
    let view: &View = match item {
        Item::Gap { first, last } if json => {
            return Ok(output::json(&Line::Gap { first: first.0, last: last.0 })?);
        }
        Item::Gap { first, last } => {
            return Ok(output::line(format_args!(
                "{:<27} gap         views {first} to {last} were decided, but cannot be read: coordinators keep the \
                 newest few, and only those of this host are read",
                "-"
            ))?);
        }
        Item::View(view) => view,
    };
    names.know_all(view);
    let time = times.of(view.id).map(iso);
    if json {
        let members = view.members.iter().map(|m| MemberJson {
            name: m.name.as_str(),
            kind: m.kind.name(),
            incarnation: m.incarnation.0,
        });
        return Ok(output::json(&Line::View {
            time,
            view: view.id.0,
            base: view.base.0,
            lease_us: view.lease.as_micros_f64(),
            changes: view.changes.iter().map(|c| change(c, names)).collect(),
            causes: names.causes(view),
            members: members.collect(),
        })?);
    }
    let mut causes = names.causes(view).join("; ");
    if causes.is_empty() {
        // The first view of a cluster.
        "the coordinators began".clone_into(&mut causes);
    }
    let (time, shown) = (time.as_deref().unwrap_or("-"), format!("view {}", view.id));
    Ok(output::line(format_args!("{time:<27} {shown:<11} {} members  {causes}", view.members.len()))?)
}

/// Replaces a file, so that whatever happens the old or the new one is there whole.
pub(crate) fn save(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    obol_coordinator::save(path, bytes)
        .map_err(|error: io::Error| Failure::Failed(format!("could not save to {}: {error}", path.display())))
}

/// Whether the cluster that was opened still is, and no other one of its name.
fn exists(root: &Path, cluster: Name, nonce: u64) -> bool {
    Cluster::open(root, cluster).is_ok_and(|found| found.nonce() == nonce)
}

pub(crate) fn run(root: &Path, cluster: Name, options: &Watch) -> Result<ExitCode, Failure> {
    let site = Site::open(root, cluster).map_err(Failure::refused)?;
    let mut observer = Observer::open(&site, options.from.map(ViewId));
    let newest = observer.newest().map(|view| view.id);
    if let (Some(from), Some(newest)) = (options.from, newest)
        && from > newest.next().0
    {
        return Err(Failure::Refused(format!(
            "view {from} lies ahead: the newest of cluster {cluster} is {newest}. Was it another cluster of this name?"
        )));
    }
    if options.once && newest.is_none() {
        return Err(Failure::Refused(format!(
            "no coordinator of cluster {cluster} on this host knows a view yet; without --once, this waits for one"
        )));
    }
    // The first printed view may lack a member already.
    let mut recorders = Recorders::open(root, cluster).map_err(Failure::refused)?;
    let events = recorders.events();
    let mut names = names::known(&site, &mut recorders, &events).names;
    let mut times = ViewTimes::new(recorders, &events, newest.unwrap_or(ViewId(0)));
    if let (Some(since), Some(_)) = (options.since, newest) {
        observer = Observer::open(&site, Some(times.first_since(since.before(unix_now()))));
    }
    let mut shown = 0;
    while options.count.is_none_or(|count| shown < count) {
        let item = if options.once { observer.poll() } else { observer.next(POLL_INTERVAL) };
        let item = item.map_err(Failure::failed)?;
        if let Some(item) = item {
            show(&item, &mut names, &mut times, options.json)?;
            if let (Some(path), Item::View(view)) = (&options.save, &item) {
                save(path, &saved_view::encode(site.cluster.nonce(), view.id, &view.to_frame()))?;
            }
            shown += 1;
        } else if options.once {
            break;
        } else {
            output::check_read()?;
            if exists(root, cluster, site.cluster.nonce()) {
                continue;
            }
            return Err(Failure::Refused(format!(
                "cluster {cluster} has ended; the last printed view was {}",
                observer.position().map_or("none".to_owned(), |next| (next.0.saturating_sub(1)).to_string())
            )));
        }
    }
    Ok(ExitCode::SUCCESS)
}

//! `obol smr status`: how far each replica is, read from its memory.

use clap::Args;
use obol_node::Site;
use obol_observe::Observer;
use obol_observe::replicas::Replicas;
use obol_replica::{MarkOwner, ReplicaError};
use obol_server::smr::failure;
use obol_smr::REPLICA_PREFIX;
use obol_term::output::{self, Failure};
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;

/// How the state is shown.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Print one JSON object for scripts
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct StatusJson {
    cluster: String,
    view: Option<u64>,
    #[serde(flatten)]
    of: Replicas,
}

fn print(status: &StatusJson) -> Result<(), Failure> {
    let shown = |number: Option<u64>| number.map_or_else(|| "--".to_owned(), |number| number.to_string());
    output::line(format_args!(
        "{}: view {}, term {}, leader {}, preset {}, redundancy {}",
        status.cluster,
        shown(status.view),
        shown(status.of.term),
        status.of.leader.as_ref().map_or("--", |name| name.as_str()),
        status.of.preset.as_deref().unwrap_or("--"),
        shown(status.of.redundancy),
    ))?;
    let wide = status.of.replicas.iter().map(|replica| replica.name.as_str().len()).max().unwrap_or(0).max(4);
    output::line(format_args!(
        "{:wide$} {:>9} {:>9} {:>9} {:>6} {:>7} {:>9} {:>12} {:>8} {:>7}  STATE",
        "NAME", "ACCEPTED", "COMMITTED", "APPLIED", "LAG", "LAG B", "PRUNED", "RING", "SESSIONS", "GRANTED"
    ))?;
    for replica in &status.of.replicas {
        let figures = match &replica.log {
            None => ["--"; 9].map(str::to_owned),
            Some(log) => [
                log.accepted.to_string(),
                log.committed.to_string(),
                log.applied.to_string(),
                log.lag.to_string(),
                log.lag_bytes.to_string(),
                log.pruned.to_string(),
                format!("{}/{}", log.ring_used_bytes, log.ring_bytes),
                log.sessions.to_string(),
                if log.granted == 0 { "--".to_owned() } else { log.granted.to_string() },
            ],
        };
        let [accepted, committed, applied, lag, bytes, pruned, ring, sessions, granted] = figures;
        output::line(format_args!(
            "{:wide$} {accepted:>9} {committed:>9} {applied:>9} {lag:>6} {bytes:>7} {pruned:>9} {ring:>12} {sessions:>8} {granted:>7}  {}",
            replica.name,
            replica.note()
        ))?;
    }
    Ok(())
}

/// That no replica runs, and what to do. `left` are those that have had the store and did not leave.
fn none_runs(left: &[String]) -> String {
    let start = format!("`obol smr server --name {REPLICA_PREFIX}1");
    if left.is_empty() {
        return format!("no replica runs; start the first one with {start}`");
    }
    let left = left.join(", ");
    format!(
        "no replica runs; the store died with the last of {left}; begin an empty one with {start} \
         --force-empty`, or, if it was that of a program of yours, with obol_replica_open_empty (C) or Settings::force_empty (Rust)"
    )
}

pub(super) fn run(root: &Path, site: &Site, options: &Options) -> Result<ExitCode, Failure> {
    let observer = Observer::open(root, site.cluster.name()).map_err(Failure::refused)?;
    let mut observer = observer.read_replicas();
    let snapshot = observer.snapshot();
    let of = Replicas::read(&mut observer, &snapshot).ok_or_else(|| failure(ReplicaError::NoRoom))?;
    let view = snapshot.view.as_ref().map(|view| view.id.0);
    let status = StatusJson { cluster: site.cluster.name().to_string(), view, of };
    if options.json {
        output::json(&status)?;
    } else if status.of.replicas.is_empty() {
        let left = MarkOwner::User.left(site).map_err(failure)?;
        output::line(format_args!("{}: {}", status.cluster, none_runs(&left)))?;
    } else {
        print(&status)?;
    }
    if let Some(remedy) = status.of.remedy() {
        output::remark(format_args!("{}: no replica serves: {remedy}", status.cluster))
            .map_err(Failure::failed)?;
    }
    Ok(if status.of.leader.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_died_is_begun_anew_by_another_command_than_the_first_one() {
        let first = "no replica runs; start the first one with `obol smr server --name smr-1`";
        assert_eq!(none_runs(&[]), first);
        let died = none_runs(&["smr-2".to_owned(), "smr-3".to_owned()]);
        assert!(
            died.contains("died with the last of smr-2, smr-3")
                && died.contains("--name smr-1 --force-empty`"),
            "{died}"
        );
    }
}

//! `obol mark`: an annotation for every console and recording of a cluster.

use clap::Args;
use obol_fabric::Name;
use obol_fabric::host::clock;
use obol_node::Site;
use obol_observe::annotations::{Forwarded, Mark as Annotation};
use obol_term::output::{self, Failure};
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;

/// Add an annotation to consoles and recordings; statistics before and after it are compared
#[derive(Debug, Args)]
#[command(
    after_help = "Consoles count joins, graceful leaves and failures since the newest annotation, and compare latencies on its two sides.\n\
    \nExample: obol mark \"deploy 1.4\""
)]
pub(crate) struct Mark {
    /// The annotation, on one line
    text: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct MarkedJson<'a> {
    cluster: Name,
    text: &'a str,
    /// Why some host does not have it; none if all have.
    missed: Option<String>,
}

/// Adds an annotation, on all hosts.
pub(crate) fn run(root: &Path, cluster: Name, args: &Mark) -> Result<ExitCode, Failure> {
    let site = Site::open(root, cluster).map_err(Failure::refused)?;
    let mark = Annotation::note(clock::now(), &args.text).map_err(Failure::refused)?;
    mark.write(site.cluster.dir()).map_err(Failure::failed)?;
    let missed = match mark.forward(&site) {
        Forwarded::All => None,
        Forwarded::Not(why) => Some(why),
    };
    output::json_or(args.json, &MarkedJson { cluster, text: &args.text, missed }, |marked| {
        output::line(format_args!("noted on cluster {cluster}: {}", marked.text))?;
        marked.missed.iter().try_for_each(|why| {
            output::remark(format_args!("obol: the annotation is on this host, and not on all others: {why}"))
        })
    })?;
    Ok(ExitCode::SUCCESS)
}

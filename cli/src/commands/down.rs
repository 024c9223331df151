//! `obol down`.

use clap::Args;
use obol_fabric::Name;
use obol_supervise::down::{self, Down as Ended};
use obol_term::output::{self, Failure};
use std::path::Path;
use std::process::ExitCode;

/// End a cluster, and clean up after a crashed `up`
#[derive(Debug, Args)]
#[command(
    after_help = "All processes with memory in the cluster are killed: also a program with a core of its own, and a server of \
        the cache, that a user has started. A program attached to an agent continues, and is notified that its agent died; it is killed only if no `obol up` answers.\n\
        \nA host that `obol host prepare` has set up is refused: its directory holds votes that the other hosts count on. `obol host clean` \
        removes it."
)]
pub(crate) struct Down {
    /// Print one JSON object for each cluster that is ended
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(root: &Path, cluster: Name, args: &Down) -> Result<ExitCode, Failure> {
    down::end(root, cluster, |ended| {
        let say = |Ended { cluster, .. }: &Ended| output::line(format_args!("cluster {cluster} is down"));
        Ok(output::json_or(args.json, ended, say)?)
    })?;
    Ok(ExitCode::SUCCESS)
}

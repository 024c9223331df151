//! `obol report`: a report on a recording or a cluster.

use obol_fabric::Name;
use obol_node::ClusterLocation;
use obol_term::output::Failure;
use std::path::Path;
use std::process::ExitCode;

pub(crate) use obol_report::options::Report;

pub(crate) fn run(root: &Path, cluster: Name, args: &Report) -> Result<ExitCode, Failure> {
    obol_report::run(&ClusterLocation { root: root.to_owned(), cluster }, args)
}

//! `obol app`: the demo application.

use crate::logging::LogOptions;
use clap::Args;
use obol_fabric::Name;
use obol_supervise::daemons::demo_app;
use obol_term::output::Failure;
use std::path::Path;
use std::process::ExitCode;

/// A demo application attached to an agent (started by `up`)
#[derive(Debug, Args)]
pub(crate) struct DemoApp {
    /// The app's name
    #[arg(long)]
    pub(crate) name: obol_fabric::Name,
    /// The agent that it attaches to
    #[arg(long)]
    pub(crate) node: obol_fabric::Name,
    #[command(flatten)]
    pub(crate) log: LogOptions,
}

pub(crate) fn run(root: &Path, cluster: Name, args: &DemoApp) -> Result<ExitCode, Failure> {
    demo_app::run(root, cluster, &args.log.settings(), args.name, args.node)
}

//! The process that measures the floor of a failover.

use clap::Args;
use obol_chaos::floor::Measured;
use obol_fabric::Name;
use obol_fabric::host::sched::Slice;
use obol_term::output::{self, Failure};
use std::path::Path;
use std::process::ExitCode;

/// The bare processes that a failover is compared with (started by `bench`)
#[derive(Debug, Args)]
pub struct Floor {
    /// Failovers
    #[arg(long)]
    count: u32,
    /// Short slices for the survivors
    #[arg(long)]
    short_slices: bool,
}

/// The process that measures.
pub fn measure(_: &Path, _: Name, args: &Floor) -> Result<ExitCode, Failure> {
    let slice = if args.short_slices { Slice::Short } else { Slice::Default };
    output::json(&Measured::measure(args.count, slice)?)?;
    Ok(ExitCode::SUCCESS)
}

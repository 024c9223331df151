//! `obol kv load`: a light load, the demo of `obol up --kv`.

use clap::Args;
use obol_config::duration;
use obol_fabric::Name;
use obol_fabric::host::sched;
use obol_node::Site;
use obol_supervise::signals;
use obol_term::output::{self, Failure};
use obol_workload::kv::load::{self, Done};
use std::process::ExitCode;
use std::time::Duration;

/// How gentle.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Name of this client in the cluster
    #[arg(long, default_value = "kvc-load")]
    name: Name,
    /// Interval between batches of four operations
    #[arg(long, value_name = "TIME", value_parser = duration::argument, default_value = "10ms")]
    every: Duration,
    /// Interval of progress reports
    #[arg(long, alias = "tell-every", value_name = "TIME", value_parser = duration::argument, default_value = "1s")]
    report_every: Duration,
    /// Print JSON lines
    #[arg(long)]
    json: bool,
    /// End with the process that started it
    #[arg(long, hide = true)]
    tied: bool,
}

fn report(done: &Done, json: bool) {
    let Done { gets, puts, longest_us } = done;
    // It continues whether or not this is read.
    let _ = if json {
        output::json(done)
    } else {
        output::line(format_args!("{gets} GETs, {puts} PUTs, none took longer than {longest_us:.0} us"))
    };
}

pub(super) fn run(site: &Site, options: &Options) -> Result<ExitCode, Failure> {
    if options.tied {
        sched::die_with_parent().map_err(Failure::failed)?;
    }
    let stop = signals::ending()?;
    let &Options { name, every, report_every, json, .. } = options;
    load::run(site, &load::Options { name, every, report_every }, &stop, |done| report(done, json))?;
    Ok(ExitCode::SUCCESS)
}

//! `obol drill run table2`: the paper's table with clusters of real processes that this command
//! starts for itself.

use super::options::DrillRun;
use super::running::{go, keep_in};
use crate::logging::LogOptions;
use obol_chaos::drillfile::Drill;
use obol_chaos::drills::Journal;
use obol_chaos::drills::engine::attended::How;
use obol_chaos::drills::studies::table2;
use obol_chaos::drills::studies::table2_run::{self, Drills};
use obol_observe::plot::{all_written, write_file};
use obol_profiles::Profile;
use obol_supervise::running::Running;
use obol_supervise::signals;
use obol_term::output::{self, Failure};
use std::io;
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn run(root: &Path, options: &DrillRun) -> Result<ExitCode, Failure> {
    let fenced = Profile::load(&options.profile).map_err(Failure::refused)?;
    let wanted = table2::cells().map_err(Failure::failed)?;
    let count = options.count.unwrap_or(table2::COUNT);
    if let Some(out) = &options.out {
        std::fs::create_dir(out).map_err(Failure::refused_at(out))?;
    }
    // A drill handles these signals, too, but not between two drills.
    let stop = signals::ending()?;
    let mut drills = Run { out: options.out.as_deref() };
    let table = table2_run::run(root, &fenced, &wanted, count, options.no_fence, &stop, &mut drills)?;
    let said = output::json_or(options.file.json, &table, |table| output::text(&table.markdown()));
    if let Some(out) = &options.out {
        let json = serde_json::to_string_pretty(&table).map_err(io::Error::from);
        let written = all_written([
            write_file(out, "table2.md", table.markdown()),
            json.and_then(|json| write_file(out, "table2.json", json)),
        ]);
        output::kept("report", out, written);
    }
    Ok(output::verdict(table.verdict().code(), said))
}

/// How the drills of the table run.
struct Run<'a> {
    out: Option<&'a Path>,
}

impl Drills for Run<'_> {
    fn run(&mut self, cluster: &Running, drill: &Drill, how: How) -> Result<Journal, Failure> {
        go(&cluster.reaper.root, cluster.reaper.cluster, drill, &LogOptions::default(), how)
    }

    fn keep(&mut self, drill: &Drill, journal: &Journal) {
        if let Some(out) = self.out {
            keep_in(&out.join(&drill.id), drill, journal);
        }
    }
}

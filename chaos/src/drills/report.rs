//! The output files of a run: for scripts, trace viewers, monitoring, and readers.

mod annotations;
mod figures;
mod histogram;
mod junit;
mod metrics;
mod postmortem;
mod trace;

pub use annotations::{annotated_faults, annotated_refusal, annotations};
pub use junit::{junit, junit_refused};

use super::engine::journal::Journal;
use crate::drillfile::{Drill, ReportFiles};
use obol_observe::plot::{all_written, write_file};
use std::io;
use std::path::Path;

/// Writes the named files into a directory. An error names each that could not be written.
pub fn write(files: &ReportFiles, journal: &Journal, drill: &Drill, dir: &Path) -> io::Result<()> {
    let put = |name: &Option<String>, content: &dyn Fn() -> io::Result<Vec<u8>>| match name {
        Some(name) => write_file(dir, name, content()?),
        None => Ok(()),
    };
    let postmortem = postmortem::document(journal, drill);
    all_written([
        put(&files.journal, &|| Ok(serde_json::to_vec_pretty(journal)?)),
        put(&files.trace, &|| Ok(serde_json::to_vec(&trace::events(journal))?)),
        put(&files.metrics, &|| Ok(metrics::text(journal).into_bytes())),
        put(&files.junit, &|| Ok(junit(journal).into_bytes())),
        put(&files.histogram, &|| histogram::log(journal)),
        files.markdown.as_ref().map_or(Ok(()), |name| postmortem.write_markdown(dir, name)),
        put(&files.html, &|| Ok(postmortem.html().into_bytes())),
    ])
}

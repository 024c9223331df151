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

use super::journal::Journal;
use crate::drillfile::{Drill, ReportFiles};
use std::path::Path;
use std::{fs, io};

/// Writes the named files into a directory.
pub fn write(files: &ReportFiles, journal: &Journal, drill: &Drill, dir: &Path) -> io::Result<()> {
    let put = |name: &Option<String>, text: &dyn Fn() -> io::Result<String>| match name {
        Some(name) => fs::write(dir.join(name), text()?),
        None => Ok(()),
    };
    put(&files.journal, &|| Ok(serde_json::to_string_pretty(journal)?))?;
    put(&files.trace, &|| Ok(serde_json::to_string(&trace::events(journal))?))?;
    put(&files.metrics, &|| Ok(metrics::text(journal)))?;
    put(&files.junit, &|| Ok(junit(journal)))?;
    if let Some(name) = &files.histogram {
        fs::write(dir.join(name), histogram::log(journal)?)?;
    }
    let postmortem = postmortem::document(journal, drill);
    if let Some(name) = &files.markdown {
        postmortem.write_markdown(dir, name)?;
    }
    put(&files.html, &|| Ok(postmortem.html()))
}

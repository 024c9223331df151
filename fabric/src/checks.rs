//! For tests of this workspace: a check that can not be made where it runs says so, and is counted.

use std::fmt::Display;
use std::fs::File;
use std::io::Write as _;

/// Names the file that skipped checks are written to, a line each. `.ci/run` sets it, prints what
/// is in there, and refuses what `.ci/skips` does not list with a reason.
pub const SKIPS: &str = "OBOL_SKIPS";

/// Notes that a check of this name is not made here.
///
/// # Panics
/// If the file can not be written: a check that nobody counts must not be skipped.
pub fn skipped(check: &str, why: impl Display) {
    eprintln!("skipped: {check}: {why}");
    let Some(path) = std::env::var_os(SKIPS) else { return };
    let why = why.to_string().replace('\n', " ");
    let noted = File::options().create(true).append(true).open(&path);
    // One write, so that lines of several processes do not mix.
    let noted = noted.and_then(|mut file| file.write_all(format!("{check}: {why}\n").as_bytes()));
    noted.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

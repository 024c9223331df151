//! For tests: a check that cannot run here is reported and counted as skipped.

use std::fmt::Display;
use std::fs::File;
use std::io::Write as _;

/// Names the file to which skipped checks are written, one per line. `.ci/run` sets it, prints its
/// contents, and rejects checks that `.ci/skips` does not list with a reason.
pub const SKIPS: &str = "OBOL_SKIPS";

/// Records that the check of this name is skipped here.
///
/// # Panics
/// If the file cannot be written: skipped checks must be counted.
pub fn skipped(check: &str, why: impl Display) {
    eprintln!("skipped: {check}: {why}");
    let Some(path) = std::env::var_os(SKIPS) else { return };
    let why = why.to_string().replace('\n', " ");
    let noted = File::options().create(true).append(true).open(&path);
    // One write, so that lines of several processes do not mix.
    let noted = noted.and_then(|mut file| file.write_all(format!("{check}: {why}\n").as_bytes()));
    noted.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

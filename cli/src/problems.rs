//! Files that are refused, for scripts.

use obol_config::{FileError, PlacedProblem};
use obol_term::output::{self, Failure};
use serde::Serialize;
use std::path::Path;

#[derive(Serialize)]
struct RefusedJson<'a> {
    file: String,
    problems: &'a [PlacedProblem],
}

/// The refusal of a file; with `json` its problems are printed as well. A file that cannot be read at all
/// has none: the refusal says why.
pub(crate) fn refused(json: bool, file: &Path, error: FileError) -> Failure {
    let problems = error.problems();
    if json && !problems.is_empty() {
        let found = RefusedJson { file: file.display().to_string(), problems };
        if let Err(error) = output::json(&found) {
            return error.into();
        }
    }
    Failure::refused(error)
}

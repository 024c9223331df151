//! `obol shadow`: watches the failovers of another system beside those of obol.

use obol_bench::failovers_over_ip;
use obol_fabric::Name;
use obol_profiles::Profile;
use obol_term::output::Failure;
use std::path::Path;
use std::process::ExitCode;

pub(crate) use obol_shadow::Shadow;

pub(crate) fn run(root: &Path, _: Name, options: &Shadow) -> Result<ExitCode, Failure> {
    obol_shadow::run(options, |count| {
        let profile = Profile::load("lan").map_err(Failure::failed)?;
        failovers_over_ip(root, &profile, count)
    })
}

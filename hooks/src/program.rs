//! Programs that hooks run.

use nix::unistd::{AccessFlags, access};
use std::path::Path;

/// Why a program cannot be run here, if so; a name without `/` is looked for in PATH.
pub fn missing_program(program: &str) -> Option<String> {
    let runs = |path: &Path| path.is_file() && access(path, AccessFlags::X_OK).is_ok();
    if !program.contains('/') {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&folders).any(|folder| runs(&folder.join(program)));
        return (!found).then(|| {
            format!("there is no program {program}: it is not in PATH, or may not be run by this user")
        });
    }
    let path = Path::new(program);
    match path.metadata() {
        Err(error) => Some(format!("there is no program {program}: {error}")),
        Ok(found) if found.is_dir() => Some(format!("{program} is a folder, and no program")),
        Ok(_) => (!runs(path)).then(|| format!("{program} may not be run by this user: chmod +x {program}")),
    }
}

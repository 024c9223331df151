//! Commands that lock the cluster of a host, so that one of a kind works on it at a time.

use obol_node::FileLock;
use obol_term::output::Failure;
use std::fs::File;
use std::path::Path;

/// Locks this file in the cluster's directory until the lock is dropped; `busy` is the refusal while
/// another process has it.
pub(crate) fn lock(dir: &Path, name: &str, busy: &str) -> Result<FileLock, Failure> {
    let path = dir.join(name);
    let file = File::options().create(true).append(true).open(&path).map_err(Failure::failed_at(&path))?;
    let lock = FileLock::try_new(file).map_err(Failure::failed_at(&path))?;
    lock.ok_or_else(|| Failure::Refused(busy.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_command_is_refused_until_the_first_has_ended() {
        let dir = tempfile::tempdir().expect("made");
        let first = lock(dir.path(), "a.lock", "busy").expect("it is free");
        let second = lock(dir.path(), "a.lock", "busy");
        assert!(matches!(second, Err(Failure::Refused(why)) if why == "busy"));
        drop(first);
        assert!(lock(dir.path(), "a.lock", "busy").is_ok());
        assert!(matches!(lock(&dir.path().join("none"), "a.lock", "busy"), Err(Failure::Failed(_))));
    }
}

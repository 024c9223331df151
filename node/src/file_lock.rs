//! Locks between processes of one host.

use derive_more::Deref;
use std::fs::{File, TryLockError};
use std::io;

/// An open file with an exclusive lock (`flock`), which is released when this is dropped or its
/// process ends.
///
/// Closing the file alone releases it later where another thread starts a program at that moment:
/// the new process has a copy of the descriptor until its `exec`.
#[derive(Debug, Deref)]
pub struct FileLock(File);

impl FileLock {
    /// Locks the file, or gives `None` if another open file has the lock.
    pub fn try_new(file: File) -> io::Result<Option<Self>> {
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Waits until no other open file has the lock, and locks the file.
    pub fn wait(file: File) -> io::Result<Self> {
        file.lock()?;
        Ok(Self(file))
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // If this fails, the lock is released when the last copy of the descriptor is closed.
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_released_while_another_process_has_a_copy_of_its_descriptor() {
        let folder = tempfile::tempdir().expect("made");
        let open = || {
            let path = folder.path().join("lock");
            File::options().create(true).append(true).open(path).expect("opened")
        };
        let lock = FileLock::try_new(open()).expect("possible").expect("free");
        assert!(FileLock::try_new(open()).expect("possible").is_none());
        let copy = lock.try_clone().expect("copied");
        drop(lock);
        let again = FileLock::try_new(open()).expect("possible").expect("free");
        drop((copy, again));
        drop(FileLock::wait(open()).expect("possible"));
    }
}

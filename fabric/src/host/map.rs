//! Files of the cluster's directory as mapped words. A file's whole length is reserved before it is
//! mapped and checked whenever it is mapped, so that no access runs past its end. A forked child
//! finds its own empty memory in place of its parent's mappings: see [`crate::host::fork`].
#![allow(unsafe_code)]

use crate::host::error::HostError;
use crate::host::fork::{self, OwnerProcess};
use crate::host::kernel::soft_limit;
use core::num::NonZeroUsize;
use core::ops::{Deref, Range};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use nix::errno::Errno;
use nix::fcntl::{OFlag, posix_fallocate};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, munmap};
use nix::sys::resource::Resource;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The smallest page size of 64-bit machines; where pages are larger the kernel refuses, which only
/// costs page faults.
const PAGE_BYTES: usize = 4096;

/// Whether a mapping may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    ReadOnly,
    ReadWrite,
}

/// A mapped file.
#[derive(Debug)]
pub(crate) struct Mapping {
    words: NonNull<AtomicU64>,
    len: usize,
    /// The process that mapped it; a child does not have the mapping.
    home: OwnerProcess,
    /// A child's replacement, created on its first access.
    empty: AtomicPtr<AtomicU64>,
}

// SAFETY: the words are atomics, valid from any thread until the mapping is dropped.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Deref for Mapping {
    type Target = [AtomicU64];
    fn deref(&self) -> &[AtomicU64] {
        let words = if self.home.is_here() { self.words.as_ptr() } else { self.elsewhere() };
        // SAFETY: `words` are `len` mapped words until `self` is dropped; other processes access
        // them, but only as atomics do. Stores to a read-only mapping are kept out by `Observed`,
        // which gives no access to the words.
        unsafe { core::slice::from_raw_parts(words, self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let empty = *self.empty.get_mut();
        for words in [Some(self.words), NonNull::new(empty)].into_iter().flatten() {
            // A child does not have its parent's mapping, and may have mapped something else there.
            if words.as_ptr() != empty && !self.home.is_here() {
                continue;
            }
            // SAFETY: `words` and `len` are what `mmap` gave, and no reference outlives `self`.
            let gone = unsafe { munmap(words.cast(), self.len * 8) };
            debug_assert!(gone.is_ok(), "{gone:?}");
        }
    }
}

/// Creates a file of `bytes` zeros, with all space reserved.
pub(crate) fn create(path: &Path, bytes: usize) -> Result<Mapping, HostError> {
    // Beyond this limit the kernel would send a signal that ends the program.
    if soft_limit(Resource::RLIMIT_FSIZE).is_some_and(|limit| limit < bytes as u64) {
        return Err(HostError::FileSize { path: path.into(), bytes });
    }
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(path)
        .map_err(HostError::io("create", path))?;
    let reserved = loop {
        match posix_fallocate(&file, 0, bytes as i64) {
            Ok(()) => break Ok(()),
            Err(Errno::EINTR) => {}
            Err(Errno::ENOSPC | Errno::EDQUOT) => break Err(HostError::NoSpace { path: path.into(), bytes }),
            Err(error) => break Err(HostError::io("reserve space for", path)(error.into())),
        }
    };
    let mapped = reserved.and_then(|()| map(&file, path, Some(bytes), Access::ReadWrite));
    if mapped.is_err() {
        // A file that could not be filled serves no process.
        let _ = std::fs::remove_file(path);
    }
    mapped
}

/// Maps an existing file and, if `bytes` is given, checks that it has at least this length.
pub(crate) fn open(path: &Path, bytes: Option<usize>, access: Access) -> Result<Mapping, HostError> {
    let file = OpenOptions::new()
        .read(true)
        .write(access == Access::ReadWrite)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(path)
        .map_err(HostError::io("open", path))?;
    map(&file, path, bytes, access)
}

fn map(file: &File, path: &Path, bytes: Option<usize>, access: Access) -> Result<Mapping, HostError> {
    let meta = file.metadata().map_err(HostError::io("inspect", path))?;
    let len = usize::try_from(meta.len()).unwrap_or(0);
    if !meta.is_file() || len < 64 || len % 8 != 0 || bytes.is_some_and(|b| len < b) {
        return Err(HostError::Corrupt {
            path: path.into(),
            fault: "does not have the length of its layout",
        });
    }
    let home = OwnerProcess::here()
        .map_err(|error| HostError::Kernel { doing: "mark memory that children do not get", error })?;
    let protection = match access {
        Access::ReadOnly => ProtFlags::PROT_READ,
        Access::ReadWrite => ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
    };
    // SAFETY: a new mapping of an open file at an address that the kernel chooses.
    let map = |bytes| unsafe { mmap(None, bytes, protection, MapFlags::MAP_SHARED, file, 0) };
    let mapped = NonZeroUsize::new(len).ok_or(Errno::EINVAL).and_then(map);
    let words = mapped.map_err(|error| HostError::io("map", path)(error.into()))?;
    let mapping = Mapping { words: words.cast(), len: len / 8, home, empty: AtomicPtr::default() };
    mapping.advise(0..len, MmapAdvise::MADV_DONTFORK);
    Ok(mapping)
}

impl Mapping {
    /// Whether this process created the mapping, and is not a forked child of that process.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.home.is_here()
    }

    /// The memory that a child finds: private words that describe an empty state.
    #[cold]
    fn elsewhere(&self) -> *mut AtomicU64 {
        let found = self.empty.load(Ordering::Acquire);
        if !found.is_null() {
            return found;
        }
        let Ok(made) = fork::empty(self.len * 8) else {
            // The child has no address space left. It cannot continue, and must not use its parent's.
            std::process::abort();
        };
        let first = self.empty.compare_exchange(found, made.as_ptr(), Ordering::AcqRel, Ordering::Acquire);
        first.err().map_or(made.as_ptr(), |other| {
            // SAFETY: another thread was first, so nothing refers to this one.
            let gone = unsafe { munmap(made.cast(), self.len * 8) };
            debug_assert!(gone.is_ok(), "{gone:?}");
            other
        })
    }

    /// Releases the memory through which the file was read; the next access maps it again. The
    /// contents stay.
    pub(crate) fn release(&self) {
        self.advise(0..self.len * 8, MmapAdvise::MADV_DONTNEED);
    }

    /// Populates the page tables of these bytes now, to avoid page faults during a failover.
    /// Kernels before 5.14 cannot, and fault later.
    pub(crate) fn prefault(&self, bytes: Range<usize>) {
        self.advise(bytes, MmapAdvise::MADV_POPULATE_WRITE);
    }

    /// Advises the kernel about these bytes. A refusal costs only time or memory, and
    /// `MADV_DONTFORK` is never refused for a file's memory.
    fn advise(&self, bytes: Range<usize>, advice: MmapAdvise) {
        if !self.is_here() {
            return;
        }
        let end = bytes.end.min(self.len * 8);
        let begin = bytes.start.min(end) / PAGE_BYTES * PAGE_BYTES;
        // SAFETY: the range lies within the mapping and begins with a page. The mapping is of a
        // shared file, so its words are the same when they are faulted in again.
        let _ = unsafe { madvise(self.words.cast::<u8>().add(begin).cast(), end - begin, advice) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::test::Root;

    /// The size of the file system that holds `/dev/shm`; 0 if it is unlimited.
    fn room() -> u64 {
        let stat = nix::sys::statvfs::statvfs("/dev/shm").expect("it is there");
        stat.blocks() * stat.fragment_size()
    }

    #[test]
    fn a_file_that_does_not_fit_is_an_error_and_leaves_nothing() {
        let room = room();
        if !(1..1 << 46).contains(&room) {
            return;
        }
        let root = Root::new();
        std::fs::create_dir(&*root).expect("made");
        let path = root.join("region-9");
        let bytes = room as usize + (1 << 20);
        let refused = create(&path, bytes).map(drop).expect_err("larger than all of /dev/shm");
        assert!(matches!(refused, HostError::NoSpace { bytes: b, .. } if b == bytes), "{refused}");
        assert!(!path.exists());
        assert!(refused.to_string().contains("free space there or lower the cluster's limits"));
    }

    #[test]
    fn a_file_that_is_there_is_not_made_again_and_a_link_is_not_followed() {
        let root = Root::new();
        std::fs::create_dir(&*root).expect("made");
        let (path, link) = (root.join("a"), root.join("b"));
        create(&path, 4096).expect("made");
        assert!(matches!(create(&path, 4096), Err(HostError::Io { doing: "create", .. })));
        std::os::unix::fs::symlink(&path, &link).expect("linked");
        assert!(matches!(open(&link, None, Access::ReadWrite), Err(HostError::Io { doing: "open", .. })));
        assert!(matches!(open(&path, Some(8192), Access::ReadOnly), Err(HostError::Corrupt { .. })));
    }
}

//! Memory for a device: with large pages if the host has them, on the device's NUMA node, never
//! copied on a fork.
#![allow(unsafe_code)]

use super::error::VerbsError;
use super::registration::{Memory, locked_memory_limit};
use core::num::NonZeroUsize;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use derive_more::Display;
use nix::errno::Errno;
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};
use std::sync::Arc;

/// The requested page size. Each falls back to the next smaller one available.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HugePages {
    /// Huge pages of the reserved pool (`vm.nr_hugepages`), else transparent ones.
    #[default]
    Explicit,
    /// Transparent huge pages, if the kernel grants them on advice.
    Transparent,
    /// Ordinary pages.
    Plain,
}

/// The actual page size. A device translates fewer entries for larger pages.
#[derive(Clone, Copy, Debug, Display, PartialEq, Eq, Hash)]
pub enum Pages {
    /// Huge pages of the reserved pool.
    #[display("huge pages")]
    Explicit,
    /// Transparent huge pages, at least in part; the kernel may split them again.
    #[display("transparent huge pages")]
    Transparent,
    /// Ordinary pages.
    #[display("ordinary pages")]
    Plain,
}

/// Bytes of a huge page. With another size, ordinary pages are used.
const HUGE: usize = 2 << 20;

/// Zeroed, private memory of this process.
#[derive(Debug)]
pub struct Arena {
    words: NonNull<AtomicU64>,
    len: usize,
    mapped: (NonNull<u8>, usize),
    pages: Pages,
}

// SAFETY: the words are atomics, valid from any thread until the arena is dropped.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

// SAFETY: the mapping is writable and stays as it is until the arena is dropped.
unsafe impl Memory for Arena {
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: `words` are `len` mapped words as long as `self` lives, and are accessed as
        // atomics only.
        unsafe { core::slice::from_raw_parts(self.words.as_ptr(), self.len) }
    }
}

impl Arena {
    /// Allocates at least `bytes`, on this NUMA node if possible, all present at once.
    pub fn new(bytes: usize, requested: HugePages, node: Option<u32>) -> Result<Arc<Self>, VerbsError> {
        let bytes = bytes.max(8).next_multiple_of(8);
        let explicit = (requested == HugePages::Explicit)
            .then(|| map(bytes.next_multiple_of(HUGE), MapFlags::MAP_HUGETLB | MapFlags::MAP_HUGE_2MB).ok())
            .flatten();
        let (mapped, at) = match explicit {
            Some(mapped) => (mapped, mapped.0),
            None if requested == HugePages::Plain => {
                let mapped = map(bytes, MapFlags::empty())?;
                (mapped, mapped.0)
            }
            None => {
                // One more, so that a huge page can be aligned.
                let mapped = map(bytes.next_multiple_of(HUGE) + HUGE, MapFlags::empty())?;
                let skip = mapped.0.as_ptr().align_offset(HUGE);
                // SAFETY: `skip` is less than `HUGE`, and the mapping is longer.
                (mapped, unsafe { mapped.0.add(skip) })
            }
        };
        let len = if requested == HugePages::Plain { bytes } else { bytes.next_multiple_of(HUGE) };
        let mut arena = Self { words: at.cast(), len: len / 8, mapped, pages: Pages::Plain };
        let advise = |advice| {
            // SAFETY: the range lies within the mapping, and none of the advices changes what it
            // holds.
            unsafe { madvise(at.cast(), len, advice) }
        };
        if explicit.is_none() && requested != HugePages::Plain {
            // A kernel without transparent huge pages refuses; `pages` returns the actual result.
            let _ = advise(MmapAdvise::MADV_HUGEPAGE);
        }
        if let Some(node) = node {
            prefer_node(at, len, node);
        }
        // After a fork, the device's writes must still reach this process's pages.
        advise(MmapAdvise::MADV_DONTFORK)
            .map_err(|errno| VerbsError::failed("madvise", "the memory of a device", errno as i32))?;
        if advise(MmapAdvise::MADV_POPULATE_WRITE).is_err() {
            // Kernels before 5.14: a store into each page.
            for word in arena.words().iter().step_by(512) {
                word.store(0, core::sync::atomic::Ordering::Relaxed);
            }
        }
        arena.pages = if explicit.is_some() { Pages::Explicit } else { pages_at(at.as_ptr().addr()) };
        Ok(Arc::new(arena))
    }

    /// The actual page size.
    pub const fn pages(&self) -> Pages {
        self.pages
    }

    /// Its length.
    pub const fn bytes(&self) -> usize {
        self.len * 8
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: this is what `mmap` gave, and no reference outlives `self`.
        let gone = unsafe { munmap(self.mapped.0.cast(), self.mapped.1) };
        debug_assert!(gone.is_ok(), "{gone:?}");
    }
}

fn map(bytes: usize, flags: MapFlags) -> Result<(NonNull<u8>, usize), VerbsError> {
    let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses.
    let map = |bytes| unsafe { mmap_anonymous(None, bytes, protection, MapFlags::MAP_PRIVATE | flags) };
    let start = NonZeroUsize::new(bytes).ok_or(Errno::EINVAL).and_then(map);
    start
        .map(|start| (start.cast(), bytes))
        .map_err(|errno| VerbsError::failed("mmap", format!("{bytes} bytes"), errno as i32))
}

/// The number of nodes in a mask.
const NODES_MAX: usize = 1024;

/// Requests pages of a node. If the node is full or unknown, others are used.
fn prefer_node(at: NonNull<u8>, len: usize, node: u32) {
    let mut mask = [0_u64; NODES_MAX / 64];
    let Some(word) = mask.get_mut(node as usize / 64) else { return };
    *word = 1 << (node % 64);
    // SAFETY: the range is mapped, and the kernel only reads the mask.
    unsafe {
        libc::syscall(
            libc::SYS_mbind,
            at.as_ptr(),
            len,
            libc::MPOL_PREFERRED,
            mask.as_ptr(),
            NODES_MAX as libc::c_ulong,
            0_u32,
        );
    }
}

/// The page size of the mapping at an address, according to `/proc/self/smaps`.
pub(crate) fn pages_at(address: usize) -> Pages {
    std::fs::read_to_string("/proc/self/smaps").map_or(Pages::Plain, |smaps| pages_in(&smaps, address))
}

fn pages_in(smaps: &str, address: usize) -> Pages {
    let mut inside = false;
    for line in smaps.lines() {
        let first = line.split_whitespace().next().unwrap_or("");
        if let Some((from, to)) = first.split_once('-') {
            let hex = |text| usize::from_str_radix(text, 16);
            if let (Ok(from), Ok(to)) = (hex(from), hex(to)) {
                inside = (from..to).contains(&address);
                continue;
            }
        }
        if !inside {
            continue;
        }
        let kilobytes = line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        match first {
            "KernelPageSize:" if kilobytes >= 2048 => return Pages::Explicit,
            "AnonHugePages:" | "ShmemPmdMapped:" | "FilePmdMapped:" if kilobytes > 0 => {
                return Pages::Transparent;
            }
            _ => {}
        }
    }
    Pages::Plain
}

/// The host's resources for device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostMemory {
    /// Free huge pages of the reserved pool, and all of them.
    pub huge_pages: (u64, u64),
    /// Whether the kernel grants transparent huge pages on advice.
    pub transparent: bool,
    /// The limit of bytes that this process may lock, and so register; `None` if there is none.
    pub lockable: Option<u64>,
}

/// The host's resources for device memory. Unknown ones count as absent.
pub fn host_memory() -> HostMemory {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let pages = |key| {
        let value = meminfo.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        value.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    };
    let transparent = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    HostMemory {
        huge_pages: (pages("HugePages_Free"), pages("HugePages_Total")),
        transparent: transparent.is_ok_and(|text| !text.contains("[never]")),
        lockable: locked_memory_limit(),
    }
}

/// The NUMA node of a device; `None` if the host has one node, or for a software device.
pub fn numa_node(device: &str) -> Option<u32> {
    let path = format!("/sys/class/infiniband/{device}/device/numa_node");
    // -1 means none.
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering::Relaxed;

    #[test]
    fn an_arena_is_zeroed_memory_whatever_pages_it_gets() {
        for requested in [HugePages::Explicit, HugePages::Transparent, HugePages::Plain] {
            let arena = Arena::new(10_000, requested, Some(0)).expect("memory");
            assert!(arena.bytes() >= 10_000 && arena.words().len() * 8 == arena.bytes());
            assert!(arena.words().iter().all(|word| word.load(Relaxed) == 0));
            for (at, word) in arena.words().iter().enumerate() {
                word.store(at as u64, Relaxed);
            }
            assert!(arena.words().iter().enumerate().all(|(at, word)| word.load(Relaxed) == at as u64));
            if requested == HugePages::Plain {
                assert_eq!(arena.pages(), Pages::Plain);
            }
        }
    }

    #[test]
    fn the_page_size_of_a_mapping_is_found() {
        let smaps = "7f0000000000-7f0000200000 rw-p 00000000 00:00 0 \n\
                     KernelPageSize:        4 kB\nAnonHugePages:      2048 kB\n\
                     7f0000200000-7f0000400000 rw-p 00000000 00:0f 123 /anon_hugepage (deleted)\n\
                     KernelPageSize:     2048 kB\nAnonHugePages:         0 kB\n\
                     7f0000400000-7f0000401000 rw-p 00000000 00:00 0 \n\
                     KernelPageSize:        4 kB\nAnonHugePages:         0 kB\n";
        assert_eq!(pages_in(smaps, 0x7f00_001f_ffff), Pages::Transparent);
        assert_eq!(pages_in(smaps, 0x7f00_0020_0000), Pages::Explicit);
        assert_eq!(pages_in(smaps, 0x7f00_0040_0010), Pages::Plain);
        assert_eq!(pages_in(smaps, 0x10), Pages::Plain);
    }
}

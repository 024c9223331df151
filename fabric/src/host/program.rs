//! The memory of the program itself: code and constants, which the kernel keeps mapped once they
//! and their surroundings were used, and freed allocations.
#![allow(unsafe_code)]

use core::ptr::NonNull;
use nix::sys::mman::{MmapAdvise, madvise};
use std::fs;

/// Releases memory that was only needed to start: code, constants, and freed allocations.
pub fn release() {
    release_files();
    release_memory();
}

/// Unmaps the pages of the program's files, so that only those used from now on count as this
/// process's memory: starting uses far more code than running, and tables that nothing else reads.
/// Pages used again are found in the page cache. Does nothing if unsupported.
fn release_files() {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    for (from, to) in unchanged(&maps) {
        let Some(at) = NonNull::new(from as *mut core::ffi::c_void) else { continue };
        // SAFETY: the range is a mapping of a file that cannot be written and has no page that
        // differs from the file's, so its pages are the same when they are faulted in again.
        let _ = unsafe { madvise(at, to - from, MmapAdvise::MADV_DONTNEED) };
    }
}

/// Returns freed allocations to the kernel. Does nothing if the allocator does not support that.
fn release_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer, and may be called at any time by any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(target_env = "gnu")]
const HEAP_BYTES: libc::c_int = 64 << 20;

/// Has the allocator keep freed memory for reuse, and join freed pieces one by one. Otherwise glibc now
/// and then joins all small pieces that were freed since, or returns all that is free to the kernel: a
/// single call took 100 ms after a million keys were dropped, which is longer than a lease. Does nothing
/// with another allocator.
///
/// A heap of a thread other than the first one has 64 MB. Whatever the threshold says, it is given back as
/// a whole when it is free and the one before it has more room than the padding, which took up to 20 ms.
/// The padding is address space, and no memory until it is used.
pub fn keep_freed() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer, and may be called at any time by any thread.
    unsafe {
        libc::mallopt(libc::M_MXFAST, 0);
        libc::mallopt(libc::M_TRIM_THRESHOLD, libc::c_int::MAX);
        libc::mallopt(libc::M_TOP_PAD, HEAP_BYTES);
    }
}

/// The ranges that map a file's bytes unmodified: relocated parts have pages of their own.
fn unchanged(maps: &str) -> Vec<(usize, usize)> {
    let mut mapping = None;
    let mut found = Vec::new();
    for line in maps.lines() {
        if let Some(own) = line.strip_prefix("Anonymous:") {
            found.extend(mapping.take().filter(|_| own.trim() == "0 kB"));
        } else if let Some(next) = range(line) {
            mapping = next;
        }
    }
    found
}

/// Whether a line starts a mapping, and its range if that maps a read-only file.
fn range(line: &str) -> Option<Option<(usize, usize)>> {
    let mut words = line.split_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    let [from, to] = [from, to].map(|at| usize::from_str_radix(at, 16).ok());
    let (range, rights) = ((from?, to?), words.next()?);
    let of_file = words.nth(3).is_some_and(|file| file.starts_with('/'));
    Some((of_file && ["r-xp", "r--p"].contains(&rights)).then_some(range))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_holds_is_found_and_nothing_else() {
        let maps = "55bb7e000000-55bb7e221000 r--p 00000000 fe:00 1234   /usr/bin/obol
Rss: 40 kB
Anonymous:             0 kB
55bb7eab8000-55bb7f105000 r-xp 00221000 fe:00 1234   /usr/bin/obol
Anonymous:             0 kB
55bb7f105000-55bb7f205000 r--p 00821000 fe:00 1234   /usr/bin/obol
Anonymous:           156 kB
55bb7f205000-55bb7f206000 rw-p 00921000 fe:00 1234   /usr/bin/obol
Anonymous:             0 kB
7fcd28000000-7fcd28002000 r--s 00000000 00:1b 7   /dev/shm/obol-0/default/table
Anonymous:             0 kB
7ffc28000000-7ffc28002000 r-xp 00000000 00:00 0   [vdso]
Anonymous:             0 kB
7ffc28002000-7ffc28003000 r-xp 00000000 00:00 0
Anonymous:             0 kB
";
        let expected = [(0x55bb_7e00_0000, 0x55bb_7e22_1000), (0x55bb_7eab_8000, 0x55bb_7f10_5000)];
        assert_eq!(unchanged(maps), expected);
    }

    /// Returns the megabytes that were used, and those of them that are kept when they are free.
    #[cfg(target_env = "gnu")]
    fn used_and_kept() -> (u64, u64) {
        let resident = || {
            let status = fs::read_to_string("/proc/self/status").expect("the kernel reports it");
            let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line");
            line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).expect("a number") >> 10
        };
        let before = resident();
        let pieces: Vec<Box<[u8]>> = (0..100_000).map(|_| vec![1_u8; 1000].into()).collect();
        let used = resident() - before;
        drop(pieces);
        (used, resident().saturating_sub(before))
    }

    /// What keeps memory is for the whole program, and so is what is measured: both in a process of its own,
    /// beside which no other test runs.
    const ALONE: &str = "OBOL_TEST_ALONE";

    #[test]
    fn a_program_runs_on_after_releasing_memory_and_keeps_what_is_freed_then() {
        let is_alone = std::env::var_os(ALONE).is_some();
        if !is_alone {
            let name =
                "host::program::tests::a_program_runs_on_after_releasing_memory_and_keeps_what_is_freed_then";
            let mut alone = std::process::Command::new(std::env::current_exe().expect("this program"));
            let ran = alone.args(["--exact", name]).env(ALONE, "1").output().expect("it starts");
            let said = String::from_utf8_lossy(&ran.stdout);
            assert!(ran.status.success() && said.contains("1 passed"), "{ran:?}");
            return;
        }
        let words = ["what", "was", "relocated"];
        release();
        #[cfg(target_env = "gnu")]
        {
            keep_freed();
            // On a thread of its own, as a replica is: its allocator returns more.
            let (used, kept) = std::thread::spawn(used_and_kept).join().expect("it ends");
            assert!(used > 90 && kept > 85, "{kept} of {used} MB");
        }
        let smaps = fs::read_to_string("/proc/self/smaps").expect("the kernel reports it");
        assert!(!unchanged(&smaps).is_empty());
        assert_eq!(words.join(" "), format!("{} {} {}", words[0], words[1], words[2]));
    }
}

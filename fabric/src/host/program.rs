//! The memory of the program itself: code and constants, which the kernel keeps mapped once they
//! and their surroundings were used, and freed allocations.
#![allow(unsafe_code)]

use rustix::mm::{Advice, madvise};
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
        // SAFETY: the range is a mapping of a file that cannot be written and has no page that
        // differs from the file's, so its pages are the same when they are faulted in again.
        let _ = unsafe { madvise(from as *mut core::ffi::c_void, to - from, Advice::LinuxDontNeed) };
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

    #[test]
    fn a_program_runs_on_after_releasing_memory() {
        let words = ["what", "was", "relocated"];
        release();
        let smaps = fs::read_to_string("/proc/self/smaps").expect("the kernel reports it");
        assert!(!unchanged(&smaps).is_empty());
        assert_eq!(words.join(" "), format!("{} {} {}", words[0], words[1], words[2]));
    }
}

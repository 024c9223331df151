//! The memory that the program itself takes: its code, of which the kernel keeps mapped whatever has once run, and what was
//! allocated once and is free again.
#![allow(unsafe_code)]

use std::fs;

/// Lets go of what starting took and going on does not need: code, and memory that is free again.
pub fn release() {
    release_code();
    release_memory();
}

/// Lets go of the code that is mapped, so that only what runs from now on counts as this process's memory: starting takes
/// far more code than going on. What runs next is found in the page cache. Nothing happens where that can not be done.
fn release_code() {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for (from, to) in maps.lines().filter_map(code) {
        // SAFETY: the range is a mapping of a file that can be executed and not written, so its pages are those of the
        // file, and are the same when they are faulted in again.
        unsafe { libc::madvise(from as *mut libc::c_void, to - from, libc::MADV_DONTNEED) };
    }
}

/// Gives what was allocated and is free again back to the kernel. Nothing happens where the allocator can not do that.
fn release_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer, and may be called at any time by any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The range of a line that maps code of a file.
fn code(line: &str) -> Option<(usize, usize)> {
    let mut words = line.split_whitespace();
    let (range, rights) = (words.next()?, words.next()?);
    let file = words.nth(3)?;
    let (from, to) = range.split_once('-')?;
    let [from, to] = [from, to].map(|at| usize::from_str_radix(at, 16).ok());
    (rights == "r-xp" && file.starts_with('/')).then_some((from?, to?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_found_and_nothing_else() {
        let line = "55bb7eab8000-55bb7f105000 r-xp 00221000 fe:00 1234   /usr/bin/obol";
        assert_eq!(code(line), Some((0x55bb_7eab_8000, 0x55bb_7f10_5000)));
        assert_eq!(code("55bb7eab8000-55bb7f105000 r--p 00221000 fe:00 1234   /usr/bin/obol"), None);
        assert_eq!(code("7ffc28000000-7ffc28002000 r-xp 00000000 00:00 0   [vdso]"), None);
        assert_eq!(code("7ffc28000000-7ffc28002000 r-xp 00000000 00:00 0"), None);
        release();
        // It still runs.
        assert_eq!(code("?"), None);
    }
}

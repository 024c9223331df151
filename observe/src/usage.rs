//! What processes use, as `/proc` says.

use crate::figures::total;

/// Processor time that all threads of a process have used, in nanoseconds.
pub fn used(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let tasks = tasks.into_iter().flatten().filter_map(Result::ok);
    let used = tasks
        .filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok())
        .filter_map(|stat| stat.split_whitespace().next().and_then(|n| n.parse::<u64>().ok()));
    total(used)
}

/// Resident memory of a process in KiB; 0 if it has ended.
pub fn resident(pid: u32) -> u64 {
    kib(pid, "VmRSS:")
}

/// Memory of a process that no file and no other process has, in KiB: heap and stacks; 0 if it has
/// ended.
pub fn private(pid: u32) -> u64 {
    kib(pid, "RssAnon:")
}

fn kib(pid: u32, what: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(what));
    line.and_then(|value| value.split_whitespace().next()).and_then(|n| n.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_those_of_a_process_that_runs() {
        let own = std::process::id();
        // Otherwise the compiler may leave it out, as its bytes are not used.
        let taken = std::hint::black_box(vec![1u8; 8 << 20]);
        assert!(private(own) >= 8 << 10 && resident(own) >= private(own), "{} bytes", taken.len());
        assert!(used(own) > 0);
        // A pid is at most 2^22.
        assert_eq!([private(u32::MAX), resident(u32::MAX), used(u32::MAX)], [0; 3]);
    }
}

//! Real-time scheduling: what is watched by a process that has it has it too, or a machine that
//! is busy with other things delays heartbeats that real-time watchers expect, and healthy programs
//! are removed.

use crate::support::Root;
use crate::support::share::Alone;
use obol_checks::skipped;
use std::fs;

/// The field of `/proc/PID/stat` that has the scheduling policy, counted from the one behind the
/// program's name.
const POLICY_FIELD: usize = 38;
const SCHED_FIFO: &str = "1";

/// How many threads of a process are scheduled in real time.
fn real_time_threads(pid: i64) -> usize {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the process lives");
    let is_fifo = |stat: &String| {
        let (_, fields) = stat.rsplit_once(')').expect("a name in parentheses");
        fields.split_ascii_whitespace().nth(POLICY_FIELD) == Some(SCHED_FIFO)
    };
    // A thread may end while it is looked at.
    let stats = tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    stats.filter(is_fifo).count()
}

#[test]
fn whoever_is_watched_in_real_time_is_scheduled_in_real_time() {
    let root = Root::alone(Alone::RealTime);
    let _up = root.up(&["--apps", "2", "--profile", "dedicated"]);
    let warnings = root.status().json["warnings"].clone();
    if warnings.as_array().is_none_or(|warnings| !warnings.is_empty()) {
        return skipped("real-time-scheduling", warnings);
    }
    let status = root.healthy();
    for name in ["coord-1", "coord-2", "coord-3", "node-1", "node-2", "app-1", "app-2"] {
        assert!(real_time_threads(status.pid(name)) > 0, "{name}");
    }
}

#[test]
fn without_the_profile_asking_for_it_nothing_is_scheduled_in_real_time() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let status = root.healthy();
    for name in ["coord-1", "node-1", "app-1"] {
        assert_eq!(real_time_threads(status.pid(name)), 0, "{name}");
    }
}

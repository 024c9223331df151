//! A machine that is busy with other things: nobody is removed who is healthy.

use crate::support::{Root, skip};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Neighbours that never sleep.
const HOGS: usize = 8;
/// For so long they are there.
const BUSY: Duration = Duration::from_secs(10);

struct Hog(Child);

impl Hog {
    fn start() -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
        Self(command.spawn().expect("sh runs"))
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        // It is there until then.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn real_time_scheduling_removes_no_healthy_program_beside_busy_neighbours() {
    let root = Root::new();
    let _up = root.up(&["--apps", "3", "--profile", "dedicated"]);
    let warnings = root.status().json["warnings"].clone();
    if warnings.as_array().is_none_or(|warnings| !warnings.is_empty()) {
        return skip("real_time_scheduling_removes_no_healthy_program", &warnings.to_string());
    }
    let hogs: Vec<Hog> = (0..HOGS).map(|_| Hog::start()).collect();
    // Nothing is waited for: the longer they are there, the more there is to go wrong.
    std::thread::sleep(BUSY);
    drop(hogs);
    let suspected = |event: &serde_json::Value| event["event"] == "suspect" && event["level"] == "heartbeat";
    let suspects: Vec<_> = root.events().into_iter().filter(suspected).collect();
    assert!(suspects.is_empty(), "{suspects:#?}");
}

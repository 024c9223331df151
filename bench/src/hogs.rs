//! Programs that use all processor time they get, beside what is measured.

use obol_term::output::Failure;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Threads of this process that compute until this is dropped. They compete with the measured
/// processes as those of another program of the same session do.
pub(super) struct Hogs {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Hogs {
    pub(super) fn start(count: u32) -> Result<Self, Failure> {
        let mut hogs = Self { stop: Arc::new(AtomicBool::new(false)), threads: Vec::new() };
        for _ in 0..count {
            let stop = Arc::clone(&hogs.stop);
            let compute = move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            };
            let thread = std::thread::Builder::new().name("obol-hog".to_owned()).spawn(compute);
            hogs.threads.push(thread.map_err(Failure::failed)?);
        }
        Ok(hogs)
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A hog has nothing to report.
        self.threads.drain(..).for_each(|hog| drop(hog.join()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hogs_compute_until_they_are_dropped() {
        let hogs = Hogs::start(2).expect("two threads");
        let stop = Arc::clone(&hogs.stop);
        assert!(hogs.threads.iter().all(|hog| !hog.is_finished()));
        // Waits for both.
        drop(hogs);
        assert_eq!(Arc::strong_count(&stop), 1, "a thread still runs");
    }
}

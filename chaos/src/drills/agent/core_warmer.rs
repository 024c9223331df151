//! Wakes the cores on which targets sleep right before the first fault, so that no injection has
//! to.
//!
//! A signal to a process on a sleeping core takes as long as waking that core, in a virtual machine
//! ten times as long as the next signal: the faults of one cue would be that far apart. So a thread
//! of this process on each of those cores is woken first. It spins until the faults are injected,
//! and sleeps again. Only the cue waits for it.

use obol_fabric::host::{clock, sched};
use obol_fabric::{Instant, Nanos};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, Thread};

/// Cores to wake at most: each costs the cue some 20 µs.
const CORES_MAX: usize = 8;
/// A core that does not respond in this time is busy, so it is awake.
const AWAKE_WITHIN: Nanos = Nanos::from_micros(200);
/// A woken thread occupies its core at most this long.
const SPIN_MAX: Nanos = Nanos::from_millis(1);

/// Commands to the threads; 0 is none.
const SPIN: u32 = 1;
const REST: u32 = 2;
const END: u32 = 3;

#[derive(Default)]
struct Shared {
    word: AtomicU32,
    awake: AtomicU32,
}

/// Threads on the cores of targets. They end with this value.
pub(super) struct CoreWarmer {
    shared: Arc<Shared>,
    threads: Vec<(u32, Thread)>,
}

impl CoreWarmer {
    /// Starts the threads. Without permission for core or priority, the effect shows in the skew.
    pub(super) fn on(cores: BTreeSet<u32>, priority: u32) -> Self {
        let shared = Arc::<Shared>::default();
        let start = |core: u32| {
            let shared = Arc::clone(&shared);
            let run = move || {
                if sched::pin_to_core(core).is_ok() {
                    let _ = sched::run_fifo_alone(priority);
                    shared.run();
                }
            };
            let started = thread::Builder::new().name("core-warmer".to_owned()).spawn(run);
            started.ok().map(|handle| (core, handle.thread().clone()))
        };
        let threads = cores.into_iter().take(CORES_MAX).filter_map(start).collect();
        Self { shared, threads }
    }

    /// Wakes the cores except the caller's own, and returns when they are awake.
    pub(super) fn wake(&self) {
        let here = sched::core();
        let others = || self.threads.iter().filter(|(core, _)| Some(*core) != here);
        self.shared.word.store(SPIN, Ordering::Release);
        others().for_each(|(_, thread)| thread.unpark());
        let until = clock::now() + AWAKE_WITHIN;
        while (self.shared.awake.load(Ordering::Acquire) as usize) < others().count() && clock::now() < until
        {
            std::hint::spin_loop();
        }
    }

    /// Lets the threads sleep again.
    pub(super) fn stop(&self) {
        self.shared.word.store(REST, Ordering::Release);
    }
}

impl Drop for CoreWarmer {
    fn drop(&mut self) {
        self.shared.word.store(END, Ordering::Release);
        self.threads.iter().for_each(|(_, thread)| thread.unpark());
    }
}

impl Shared {
    fn run(&self) {
        let mut spun = false;
        loop {
            match self.word.load(Ordering::Acquire) {
                END => return,
                SPIN if !spun => {
                    spun = true;
                    self.awake.fetch_add(1, Ordering::AcqRel);
                    self.spin(clock::now() + SPIN_MAX);
                }
                _ => thread::park(),
            }
        }
    }

    fn spin(&self, until: Instant) {
        while self.word.load(Ordering::Acquire) == SPIN && clock::now() < until {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_woken_thread_rests_and_ends() {
        let core_warmer = CoreWarmer::on(sched::core().into_iter().collect(), 1);
        let shared = Arc::clone(&core_warmer.shared);
        core_warmer.wake();
        core_warmer.stop();
        drop(core_warmer);
        while Arc::strong_count(&shared) > 1 {
            thread::yield_now();
        }
    }
}

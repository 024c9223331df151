//! Freezes servers of a check now and then, one at a time and independently of kills: so a stall
//! may overlap a crash.

use obol_fabric::host::{Held, Process};
use obol_rng::Rng;
use obol_term::output::Failure;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The processes of the servers that run.
pub(super) type Running = Arc<Mutex<Vec<u32>>>;

/// A thread that freezes servers until it is dropped.
pub(super) struct Freezer {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    frozen: Arc<AtomicU64>,
}

/// A frozen process, which resumes when this is dropped.
struct Frozen(Held);

impl Drop for Frozen {
    fn drop(&mut self) {
        // It may have been killed.
        let _ = self.0.thaw();
    }
}

impl Freezer {
    /// Freezes one of them at about this interval, for at most this long.
    pub(super) fn start(running: Running, every: Duration, longest: Duration) -> Result<Self, Failure> {
        let (stop, stopped) = mpsc::channel::<()>();
        let frozen = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&frozen);
        let run = move || {
            let mut rng = Rng::new(obol_agent::seed());
            let mut up_to = |longest: Duration| {
                let nanos = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
                Duration::from_nanos(rng.below(nanos.max(1)))
            };
            let goes_on = |pause| stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout);
            loop {
                if !goes_on(every / 2 + up_to(every)) {
                    return;
                }
                let running = running.lock().clone();
                let place = up_to(Duration::from_nanos(running.len() as u64)).as_nanos() as usize;
                // One that has ended meanwhile cannot be frozen.
                let held = running.get(place).and_then(|pid| Process::of(*pid).ok()?.hold().ok());
                let Some(held) = held.filter(|held| held.freeze().is_ok()) else { continue };
                let _frozen = Frozen(held);
                count.fetch_add(1, Ordering::Relaxed);
                if !goes_on(up_to(longest)) {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("obol-freezer".to_owned()).spawn(run);
        Ok(Self { stop: Some(stop), thread: Some(thread.map_err(Failure::failed)?), frozen })
    }

    /// How many it has frozen.
    pub(super) fn frozen(&self) -> u64 {
        self.frozen.load(Ordering::Relaxed)
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic has been reported already.
            let _ = thread.join();
        }
    }
}

//! Reasons to end a drill at once: the kill switch, abort conditions by probes, which are looked at on
//! threads of their own while the drill runs, and a signal.

use super::external;
use super::journal::Verdict;
use crate::drillfile::Watch;
use crate::drills::agent::halt;
use obol_fabric::Nanos;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;

/// How often a runner that waits looks at its reasons.
pub(super) const POLL_INTERVAL: Nanos = Nanos::from_millis(20);

/// What is said of a signal.
const INTERRUPTED: &str = "a signal ended the drill";

/// Watches for reasons until it is dropped.
pub(super) struct Stop {
    dir: PathBuf,
    /// The first abort condition that was met.
    aborted: Arc<Mutex<Option<String>>>,
    /// Set by a signal.
    interrupted: Arc<AtomicBool>,
    /// When they are gone, the threads end.
    _running: Vec<Sender<()>>,
}

impl Stop {
    /// Begins to watch. `dir` is the cluster's directory.
    pub(super) fn watch(dir: &Path, conditions: &[Watch], interrupted: &Arc<AtomicBool>) -> Self {
        let aborted = Arc::new(Mutex::new(None));
        let running = conditions
            .iter()
            .map(|condition| {
                let (tx, rx) = mpsc::channel();
                let (condition, aborted) = (condition.clone(), Arc::clone(&aborted));
                thread::spawn(move || {
                    let mut looks = Looks::new(&condition);
                    loop {
                        let (holds, saw) = external::look(&condition.external, condition.tolerance);
                        if let Some(why) = looks.take(holds, &saw) {
                            aborted.lock().get_or_insert(why);
                            return;
                        }
                        let ended = rx.recv_timeout(condition.every.to_std());
                        if ended != Err(RecvTimeoutError::Timeout) {
                            return;
                        }
                    }
                });
                tx
            })
            .collect();
        Self { dir: dir.to_owned(), aborted, interrupted: Arc::clone(interrupted), _running: running }
    }

    /// Why the drill has to end, if so.
    pub(super) fn reason(&self) -> Option<String> {
        let interrupted = || self.interrupted.load(Ordering::Relaxed).then(|| INTERRUPTED.to_owned());
        halt::in_force(&self.dir).or_else(|| self.aborted.lock().clone()).or_else(interrupted)
    }

    /// The verdict that the reason means.
    pub(super) fn verdict(&self) -> Verdict {
        if self.reason().is_some_and(|why| why == INTERRUPTED) {
            Verdict::Interrupted
        } else {
            Verdict::Aborted
        }
    }

    /// Waits by `sleep` for a time, or until there is a reason.
    pub(super) fn wait(&self, time: Nanos, mut sleep: impl FnMut(Nanos)) {
        let mut left = time;
        while left > Nanos::ZERO && self.reason().is_none() {
            let part = left.min(POLL_INTERVAL);
            sleep(part);
            left = left.saturating_sub(part);
        }
    }
}

/// Counts looks that do not have the required result.
struct Looks {
    wanted: u32,
    wrong: u32,
}

impl Looks {
    const fn new(condition: &Watch) -> Self {
        Self { wanted: condition.samples, wrong: 0 }
    }

    fn take(&mut self, holds: bool, saw: &str) -> Option<String> {
        self.wrong = if holds { 0 } else { self.wrong + 1 };
        let looks =
            if self.wrong == 1 { "one look".to_owned() } else { format!("{} looks in a row", self.wrong) };
        (self.wrong >= self.wanted).then(|| format!("aborted by a probe after {looks}: {saw}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drillfile::External;

    fn condition(argv: &[&str], samples: u32) -> Watch {
        let argv = argv.iter().map(|&word| word.to_owned()).collect();
        let external = External::Command { argv, timeout: Nanos::from_secs(60) };
        Watch { external, tolerance: true, every: Nanos::from_millis(1), samples }
    }

    #[test]
    fn only_looks_in_a_row_count() {
        let mut looks = Looks::new(&condition(&["true"], 2));
        assert_eq!([false, true, false].map(|holds| looks.take(holds, "x")), [None, None, None]);
        let why = looks.take(false, "x").expect("the second in a row");
        assert!(why.contains("2 looks in a row: x"), "{why}");
    }

    #[test]
    fn a_condition_that_is_met_is_a_reason_to_stop() {
        let dir = tempfile::tempdir().expect("made");
        let stop =
            Stop::watch(dir.path(), &[condition(&["true"], 1), condition(&["false"], 3)], &Arc::default());
        let why = loop {
            match stop.reason() {
                Some(why) => break why,
                None => thread::yield_now(),
            }
        };
        assert!(why.contains("3 looks in a row: false ended with exit status: 1"), "{why}");
    }

    #[test]
    fn a_signal_is_a_reason_that_ends_a_wait_and_a_halt_goes_before_it() {
        let dir = tempfile::tempdir().expect("made");
        let interrupted = Arc::<AtomicBool>::default();
        let stop = Stop::watch(dir.path(), &[], &interrupted);
        let waits = |time| {
            let mut waited = Nanos::ZERO;
            stop.wait(time, |part| {
                waited = waited.saturating_add(part);
                // The signal comes in the second part.
                interrupted.store(waited > POLL_INTERVAL, Ordering::Relaxed);
            });
            waited
        };
        assert_eq!(waits(Nanos(1)), Nanos(1));
        assert_eq!(stop.reason(), None);
        assert_eq!(waits(POLL_INTERVAL.saturating_mul(5)), POLL_INTERVAL.saturating_mul(2));
        assert_eq!((stop.reason().as_deref(), stop.verdict()), (Some(INTERRUPTED), Verdict::Interrupted));
        let halt =
            halt::Halt { reason: "the sale".to_owned(), by: crate::drills::audit::log::Who::this(), at: 0 };
        halt.write(dir.path()).expect("written");
        assert!(stop.reason().is_some_and(|why| why.contains("the sale")));
        assert_eq!(stop.verdict(), Verdict::Aborted);
    }
}

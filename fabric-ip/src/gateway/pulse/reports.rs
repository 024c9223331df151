//! Reports of the pulses, on their way from the thread of the pulses to their reader.
//!
//! That thread runs before ordinary ones, so it must never wait for one: an ordinary thread may be
//! preempted for a long time while it holds a lock. So the thread takes the lock only if it is free,
//! and otherwise comes again in its next turn. The same holds for the lock of the allocator: the
//! memory of reports is allocated and freed by that thread alone, and readers give it back.

use super::PulseReport;
use obol_fabric::host::Wake;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// Reports that wait for their reader; of a further one, the content is lost.
const WAITING_MAX: usize = 64;

/// The reports of one gateway.
#[derive(Debug)]
pub struct PulseReports {
    queue: Mutex<Queue>,
    wake: Wake,
}

#[derive(Debug)]
pub(super) struct Queue {
    waiting: VecDeque<PulseReport>,
    /// Whose memory the thread of the pulses frees.
    read: Vec<PulseReport>,
    is_closed: bool,
}

impl PulseReports {
    /// Without a report.
    pub fn new() -> io::Result<Arc<Self>> {
        let queue = Queue {
            waiting: VecDeque::with_capacity(WAITING_MAX),
            // All that wait, and the one that is being read.
            read: Vec::with_capacity(WAITING_MAX + 1),
            is_closed: false,
        };
        Ok(Arc::new(Self { queue: Mutex::new(queue), wake: Wake::new()? }))
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing panics between two changes that belong together.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for reports and has each one read, until the gateway has ended.
    pub fn each(&self, mut read: impl FnMut(&PulseReport)) {
        loop {
            let mut queue = self.lock();
            let (next, is_closed) = (queue.waiting.pop_front(), queue.is_closed);
            drop(queue);
            match next {
                Some(report) => {
                    read(&report);
                    self.lock().read.push(report);
                }
                None if is_closed => return,
                None => self.wake.wait(&self.wake, None),
            }
        }
    }

    /// The queue, if no other thread has it now.
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, Queue>> {
        match self.queue.try_lock() {
            Ok(queue) => Some(queue),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Has the reader look.
    pub(super) fn wake(&self) {
        self.wake.wake();
    }

    /// No report follows.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.wake();
    }
}

impl Queue {
    /// Appends a report, and frees those that were read. The caller is the thread of the pulses.
    pub(super) fn put(&mut self, report: PulseReport) {
        self.read.clear();
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back(report);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(at: u64) -> PulseReport {
        PulseReport { at, ..PulseReport::default() }
    }

    #[test]
    fn reports_are_read_in_order_until_the_gateway_ends_and_what_finds_no_room_is_lost() {
        let reports = PulseReports::new().expect("made");
        let mut queue = reports.try_lock().expect("free");
        (0..WAITING_MAX as u64 + 3).for_each(|at| queue.put(report(at)));
        assert!(reports.try_lock().is_none(), "it does not wait for the other one");
        drop(queue);
        let reader = Arc::clone(&reports);
        let mut seen = Vec::new();
        let all = std::thread::scope(|scope| {
            let reading = scope.spawn(|| reader.each(|report| seen.push(report.at)));
            reports.close();
            reading.join()
        });
        all.expect("no panic");
        assert_eq!(seen, (0..WAITING_MAX as u64).collect::<Vec<_>>());
        let mut queue = reports.try_lock().expect("free");
        assert_eq!(queue.read.len(), WAITING_MAX, "readers free nothing");
        queue.put(report(1));
        assert!(queue.read.is_empty() && queue.read.capacity() > WAITING_MAX);
    }
}

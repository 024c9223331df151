//! What callers and the log's thread share: the queue, the levels, and the count of dropped lines.

use crate::levels::{Levels, Severity};
use crate::line::Line;
use obol_fabric::Name;
use parking_lot::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;

/// Lines that may wait to be written; of more, none waits: they are dropped and counted.
pub const QUEUE_LINES: usize = 512;

/// Called by the log's thread each time that it looks at the flight recorder, with the time and a
/// receiver of lines: for what threads on the path of a failover leave in memory of their own.
pub type Probe = Box<dyn FnMut(u64, &mut dyn FnMut(Line)) + Send>;

pub(crate) enum Message {
    Line(Line),
    Probe(Probe),
    End,
}

pub(crate) struct Shared {
    pub(crate) process: Name,
    pub(crate) levels: RwLock<Levels>,
    pub(crate) tx: SyncSender<Message>,
    pub(crate) dropped: AtomicU64,
}

impl Shared {
    pub(crate) fn takes(&self, module: &str, severity: Severity) -> bool {
        self.levels.read().takes(module, severity)
    }

    /// Puts a line into the queue, or drops it.
    pub(crate) fn offer(&self, line: Line) {
        if self.tx.try_send(Message::Line(line)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

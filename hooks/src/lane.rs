//! What waits for one hook: the thread that delivers takes from it, and what has not been delivered
//! when the program ends is still in it.

use obol_observe::incidents::event::Event;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;

/// Events that may wait for a hook; further ones become dead letters.
pub const QUEUE_MAX: usize = 256;

#[derive(Default)]
struct Waiting {
    events: VecDeque<Event>,
    /// The one that is being delivered, and how often that has failed.
    current: Option<(Event, u32)>,
    closed: bool,
}

/// The events of a hook, in their order.
#[derive(Default)]
pub(crate) struct Lane {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl Lane {
    /// Queues an event; false if too many wait.
    pub(crate) fn offer(&self, event: &Event) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.events.len() >= QUEUE_MAX || waiting.closed {
            return false;
        }
        waiting.events.push_back(event.clone());
        self.changed.notify_one();
        true
    }

    /// Waits for the next event, which is the current one until [`Lane::finish`]; `None` when the lane
    /// is closed and nothing waits.
    pub(crate) fn next(&self) -> Option<Event> {
        let mut waiting = self.waiting.lock();
        while waiting.events.is_empty() && !waiting.closed {
            self.changed.wait(&mut waiting);
        }
        let event = waiting.events.pop_front()?;
        waiting.current = Some((event.clone(), 0));
        Some(event)
    }

    /// Another attempt for the current event has failed.
    pub(crate) fn failed(&self) {
        if let Some((_, attempts)) = &mut self.waiting.lock().current {
            *attempts += 1;
        }
    }

    /// Nothing more has to be done for the current event. Returns false if it was abandoned before.
    pub(crate) fn finish(&self) -> bool {
        self.waiting.lock().current.take().is_some()
    }

    /// No more events come.
    pub(crate) fn close(&self) {
        self.waiting.lock().closed = true;
        self.changed.notify_all();
    }

    /// Takes what is left, with the failed attempts of each: the current event, and what waits.
    pub(crate) fn abandon(&self) -> Vec<(Event, u32)> {
        let mut waiting = self.waiting.lock();
        let current = waiting.current.take();
        let rest = std::mem::take(&mut waiting.events).into_iter().map(|event| (event, 0));
        current.into_iter().chain(rest).collect()
    }
}

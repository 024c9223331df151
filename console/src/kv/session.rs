//! A client's thread: drives its member and lets work use the client in between.

use obol_fabric::Drive;
use obol_kv::{Client, Node};
use obol_profiles::endpoint::Act;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a client does.
pub(super) trait Work {
    /// Takes answers and begins operations. Tells whether that was all.
    fn turn<D: Drive>(&mut self, client: &mut Client, endpoint: &mut D) -> bool;
}

/// Lets work be done until it is, or until it is stopped.
pub(super) struct Session<'a, W> {
    pub(super) node: &'a mut Node,
    pub(super) work: &'a mut W,
    pub(super) stop: &'a AtomicBool,
}

impl<W: Work> Act for Session<'_, W> {
    type Output = ();

    fn on<D: Drive>(self, endpoint: &mut D) {
        let done = AtomicBool::new(false);
        endpoint.run(self.node, &done, |node, endpoint| {
            let is_over = node.client().is_none_or(|client| self.work.turn(client, endpoint));
            if is_over || self.stop.load(Ordering::Relaxed) {
                done.store(true, Ordering::Relaxed);
            }
        });
    }
}

//! A client's thread: drives its member and lets work use the client in between.

use crate::output::Failure;
use obol_fabric::Drive;
use obol_kv::{Client, Node, Useless};
use obol_profiles::endpoint::{Act, Endpoint};
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

impl<W: Work> Session<'_, W> {
    /// The error says that the client became of no use.
    pub(super) fn in_full(self, endpoint: &mut Endpoint) -> Result<(), Failure> {
        endpoint.each(self).map_or(Ok(()), |useless| Err(Failure::failed(useless)))
    }
}

impl<W: Work> Act for Session<'_, W> {
    type Output = Option<Useless>;

    fn on<D: Drive>(self, endpoint: &mut D) -> Option<Useless> {
        let (done, mut useless) = (AtomicBool::new(false), None);
        endpoint.run(self.node, &done, |node, endpoint| {
            let is_over = node.client().is_none_or(|client| {
                useless = client.useless();
                self.work.turn(client, endpoint) || useless.is_some()
            });
            if is_over || self.stop.load(Ordering::Relaxed) {
                done.store(true, Ordering::Relaxed);
            }
        });
        useless
    }
}

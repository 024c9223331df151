//! A client's thread: drives its member and lets work use the client in between.

use crate::output::Failure;
use obol_fabric::Drive;
use obol_kv::{Client, Node};
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
        match endpoint.each(self) {
            None => Ok(()),
            Some(shards) => Err(Failure::Failed(format!(
                "the cache has begun anew with nothing, and its keys split into {shards}; start this client again"
            ))),
        }
    }
}

impl<W: Work> Act for Session<'_, W> {
    /// Into how many shards the cache is split, if this client knew another number.
    type Output = Option<u32>;

    fn on<D: Drive>(self, endpoint: &mut D) -> Option<u32> {
        let (done, mut misfit) = (AtomicBool::new(false), None);
        endpoint.run(self.node, &done, |node, endpoint| {
            let is_over = node.client().is_none_or(|client| {
                misfit = client.misfit();
                self.work.turn(client, endpoint) || misfit.is_some()
            });
            if is_over || self.stop.load(Ordering::Relaxed) {
                done.store(true, Ordering::Relaxed);
            }
        });
        misfit
    }
}

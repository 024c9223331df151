//! A client's thread: drives its member and lets work use the client in between.

use obol_fabric::Endpoint;
use obol_kv::{Client, Node};
use obol_term::output::Failure;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a client does.
pub trait Work {
    /// Takes answers and begins operations. Returns whether that was all.
    fn turn(&mut self, client: &mut Client, endpoint: &mut Endpoint) -> bool;
}

/// Lets work be done until it is, or until it is stopped.
pub struct Session<'a> {
    /// The client and its member.
    pub node: &'a mut Node,
    /// What it does.
    pub work: &'a mut dyn Work,
    /// Ends it when set.
    pub stop: &'a AtomicBool,
}

impl Session<'_> {
    /// The error says that the client became of no use.
    pub fn in_full(self, endpoint: &mut Endpoint) -> Result<(), Failure> {
        let (done, mut error) = (AtomicBool::new(false), None);
        endpoint.run(self.node, &done, |node, endpoint| {
            let is_over = node.client().is_none_or(|client| {
                error = client.error();
                self.work.turn(client, endpoint) || error.is_some()
            });
            if is_over || self.stop.load(Ordering::Relaxed) {
                done.store(true, Ordering::Relaxed);
            }
        });
        error.map_or(Ok(()), |error| Err(Failure::failed(error)))
    }
}

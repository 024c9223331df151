//! A client's thread: drives its member and lets work use the client in between.

use obol_fabric::{Endpoint, Name};
use obol_kv::{Client, Node};
use obol_node::endpoint::EndpointError;
use obol_term::output::Failure;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a client does.
pub trait Work {
    /// Takes answers and begins operations. Returns whether that was all.
    fn turn(&mut self, client: &mut Client, endpoint: &mut Endpoint) -> bool;
}

/// Lets work be done until it is, or until it is stopped.
pub struct Session<'a> {
    /// Its name.
    pub name: Name,
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
        let (done, mut used) = (AtomicBool::new(false), Ok(()));
        endpoint.run(self.node, &done, |node, endpoint| {
            used = EndpointError::refused(self.name, node).map_err(Failure::refused);
            let is_over = node.client().is_none_or(|client| {
                if let Some(error) = client.error() {
                    used = Err(Failure::failed(error));
                }
                self.work.turn(client, endpoint)
            });
            if is_over || used.is_err() || self.stop.load(Ordering::Relaxed) {
                done.store(true, Ordering::Relaxed);
            }
        });
        used
    }
}

//! A client as a member of the cluster: its thread drives the member, and lets work use the client
//! in between.

use crate::{AGAIN_EVERY, ReplicaError, area, join};
use obol_fabric::{Endpoint, Name, Nanos};
use obol_node::{Site, endpoint};
use obol_smr::{Actor, Client, ClientError, KeyValue, Node};
use std::sync::atomic::{AtomicBool, Ordering};

/// What a client does.
pub trait Work {
    /// Takes answers and begins operations. Returns whether that was all.
    fn turn(&mut self, client: &mut Client, endpoint: &mut Endpoint) -> bool;
}

/// A client and its place in the cluster, which it leaves when it is dropped.
pub struct ClientMember {
    endpoint: Endpoint,
    /// Which service the replicas have does not matter to a client.
    node: Node<KeyValue>,
}

impl ClientMember {
    /// Joins with a client that looks for answers at this interval while it waits for some.
    pub fn join(site: &Site, name: Name, poll_every: Nanos) -> Result<Self, ReplicaError> {
        Self::with(site, name, Client::new(area(site)?, obol_agent::seed(), poll_every, AGAIN_EVERY))
    }

    /// As [`ClientMember::join`], for a client that sleeps while it waits: the leader wakes it up.
    pub fn join_to_sleep(site: &Site, name: Name, poll_every: Nanos) -> Result<Self, ReplicaError> {
        let client = Client::new(area(site)?, obol_agent::seed(), poll_every, AGAIN_EVERY);
        Self::with(site, name, client.with_wakeups())
    }

    fn with(site: &Site, name: Name, client: Client) -> Result<Self, ReplicaError> {
        let (endpoint, node) = join(site, name, Actor::Client(Box::new(client)))?;
        Ok(Self { endpoint, node })
    }

    /// Lets work be done until it is, or until it is stopped. The error says why the client can no
    /// longer be used.
    pub fn run(&mut self, work: &mut dyn Work, stop: &AtomicBool) -> Result<(), ClientError> {
        let (done, mut error) = (AtomicBool::new(false), None);
        self.endpoint.run(&mut self.node, &done, |node, endpoint| {
            let is_over = node.client().is_none_or(|client| {
                error = client.error();
                work.turn(client, endpoint) || error.is_some()
            });
            if is_over || stop.load(Ordering::Relaxed) {
                done.store(true, Ordering::Relaxed);
            }
        });
        error.map_or(Ok(()), Err)
    }
}

impl Drop for ClientMember {
    fn drop(&mut self) {
        endpoint::serve(&mut self.endpoint, &mut self.node, &AtomicBool::new(true));
    }
}

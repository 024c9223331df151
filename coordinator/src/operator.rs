//! A short-lived process that sends an operator's requests to the coordinators, without being a
//! member.

use obol_fabric::{Endpoint, Event, Fabric, Instant, Machine, Name, Nanos};
use obol_membership::View;
use obol_membership::wire::Message;
use obol_node::Site;
use obol_node::endpoint::EndpointError;
use std::time::Duration;

/// The pause between two turns of an endpoint that only sends.
const TURN_EVERY: Duration = Duration::from_millis(1);

/// Sends requests to the coordinators.
pub struct Operator {
    endpoint: Endpoint,
}

/// A machine that ignores all events.
struct Silent;

impl Machine for Silent {
    fn handle<F: Fabric>(&mut self, _: Instant, _: Event<'_>, _: &mut F) {}
}

impl Operator {
    /// Opens a region of the cluster, until it is dropped.
    pub fn open(site: &Site) -> Result<Self, EndpointError> {
        let name = Name::new(&format!("operator-{}", std::process::id())).unwrap_or_default();
        Ok(Self { endpoint: site.operator(name)? })
    }

    /// Waits for `span`. Over a network, messages are queued until their receivers can be reached.
    pub fn wait(&mut self, span: Duration) {
        let end = std::time::Instant::now() + span;
        loop {
            while self.endpoint.poll_once(&mut Silent) {}
            let left = end.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(TURN_EVERY));
        }
    }

    /// Requests that coordinator `number` becomes a decider, or ceases to be one. `newest` is the
    /// operator's newest view. The datagram may be lost, and the request expires soon: repeat it
    /// until a view shows the change.
    pub fn set_acceptor(&mut self, number: u16, decides: bool, newest: &View) {
        self.send(&Message::SetAcceptor { number, decides, as_of: newest.id }, newest);
    }

    /// Requests leases of this duration. The datagram may be lost: repeat it until a view shows the
    /// change.
    pub fn set_lease(&mut self, lease: Nanos, newest: &View) {
        self.send(&Message::SetLease(lease), newest);
    }

    fn send(&mut self, request: &Message<'_>, newest: &View) {
        let request = request.encode();
        for acceptor in &newest.acceptors {
            self.endpoint.send(acceptor.address, &request);
        }
        self.endpoint.flush();
    }
}

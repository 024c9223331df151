//! The operator's hand: a short-lived process that tells the coordinators what it wants, and is no
//! member.

use obol_fabric::{Drive, Event, Fabric, Instant, Machine, Name, Nanos};
use obol_membership::View;
use obol_membership::wire::Message;
use obol_node::Site;
use obol_node::endpoint::{Act, Endpoint, EndpointError};
use std::time::Duration;

/// Between two turns of an endpoint that only sends.
const TURN_EVERY: Duration = Duration::from_millis(1);

/// Sends wishes to the coordinators.
pub struct Operator {
    endpoint: Endpoint,
}

/// Hears everything and does nothing.
struct Silent;

impl Machine for Silent {
    fn start<F: Fabric>(&mut self, _: Instant, _: &mut F) {}

    fn handle<F: Fabric>(&mut self, _: Instant, _: Event<'_>, _: &mut F) {}

    fn tick<F: Fabric>(&mut self, _: Instant, _: &mut F) {}

    fn deadline(&self) -> Instant {
        Instant::NEVER
    }
}

struct Tell<'a> {
    wish: &'a [u8],
    newest: &'a View,
}

impl Act for Tell<'_> {
    type Output = ();

    fn on<D: Drive>(self, endpoint: &mut D) {
        for acceptor in &self.newest.acceptors {
            endpoint.send(acceptor.address, self.wish);
        }
        endpoint.flush();
    }
}

struct Turn;

impl Act for Turn {
    type Output = ();

    fn on<D: Drive>(self, endpoint: &mut D) {
        while endpoint.poll_once(&mut Silent) {}
    }
}

impl Operator {
    /// Takes a region of the cluster, until it is dropped.
    pub fn open(site: &Site) -> Result<Self, EndpointError> {
        let name = Name::new(&format!("operator-{}", std::process::id())).unwrap_or_default();
        Ok(Self { endpoint: site.operator(name)? })
    }

    /// Lets time pass. Over a network, what was sent first waits meanwhile until its receiver can
    /// be reached.
    pub fn wait(&mut self, span: Duration) {
        let end = std::time::Instant::now() + span;
        loop {
            self.endpoint.each(Turn);
            let left = end.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(TURN_EVERY));
        }
    }

    /// Asks that coordinator `number` decides from now on, or no more. `newest` is the view that
    /// the operator goes by. The datagram may be lost, and is forgotten soon: to be repeated until
    /// a view shows it.
    pub fn set_acceptor(&mut self, number: u16, decides: bool, newest: &View) {
        self.send(&Message::SetAcceptor { number, decides, as_of: newest.id }, newest);
    }

    /// Asks for leases of this duration. The datagram may be lost: to be repeated until a view
    /// shows it.
    pub fn set_lease(&mut self, lease: Nanos, newest: &View) {
        self.send(&Message::SetLease(lease), newest);
    }

    fn send(&mut self, wish: &Message<'_>, newest: &View) {
        self.endpoint.each(Tell { wish: &wish.encode(), newest });
    }
}

//! An event as an observer has read it.

use obol_fabric::{Name, Nanos};
use obol_membership::Kind;
use obol_membership::recorder::Stamped;

/// An event of a process's flight recorder.
#[derive(Clone, Debug)]
pub struct ObservedEvent {
    pub process: Name,
    pub kind: Kind,
    /// The event, with its time on this host's clock.
    pub event: Stamped,
    /// Clock error: by how much the time may be off; zero on this host.
    pub clock_error: Nanos,
}

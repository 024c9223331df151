//! An event as an observer has read it, and those that it could not read.

use obol_fabric::{Name, Nanos};
use obol_membership::Kind;
use obol_membership::recorder::Stamped;
use std::fmt;

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

/// A member of another host whose events could not be read.
#[derive(Clone, Debug)]
pub struct UnreadEvents {
    pub member: Name,
    /// Its host; none if the file of hosts does not name it.
    pub host: Option<u8>,
    pub why: String,
}

impl fmt::Display for UnreadEvents {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { member, host, why } = self;
        let host =
            host.map_or("a host that the file of hosts lacks".to_owned(), |host| format!("host {host}"));
        write!(to, "the events of {member}, on {host}, cannot be read and are missing: {why}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_could_not_be_read_is_named_with_its_host() {
        let of = |host| {
            let member = Name::new("node-2").expect("a name");
            UnreadEvents { member, host, why: "no answer yet".to_owned() }.to_string()
        };
        assert!(of(Some(2)).contains("node-2, on host 2, cannot be read"), "{}", of(Some(2)));
        assert!(of(None).contains("on a host that the file of hosts lacks"), "{}", of(None));
    }
}

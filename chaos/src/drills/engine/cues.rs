//! Sends the cue to all hosts: one datagram to the group of drills, which gateways pass on.

use super::error::RunError;
use crate::drills::agent::cue::{REGION_KIND, Token};
use obol_fabric::host::clock;
use obol_fabric::{Endpoint, Event, Fabric, Group, Instant, Machine, Name, Nanos};
use obol_fabric_ip::Ip;
use obol_node::Site;
use std::thread;

/// A gateway must answer within this many detection bounds, which is how long one attempt to connect may
/// take, and gets at least [`CONNECT_MIN`].
const CONNECT_FACTOR: u64 = 8;
const CONNECT_MIN: Nanos = Nanos::from_secs(5);
/// Poll interval while they are connected.
const POLL_INTERVAL: Nanos = Nanos::from_millis(1);
/// Interval of greetings, in case an attempt fails. Each takes time of all gateways.
const GREET_EVERY: Nanos = Nanos::from_millis(50);
/// Opens the links to all gateways ahead of the cue, so that the cue does not wait for one. Gateways
/// ignore it.
const GREETING: &[u8] = b"OBOLHELO";

/// The runner's endpoint.
pub(super) struct Cues(Endpoint);

impl Cues {
    pub(super) fn open(site: &Site) -> Result<Self, RunError> {
        Ok(Self(site.drill(REGION_KIND, Name::new("drill-runner").unwrap_or_default(), 0)?))
    }

    /// Waits until there are links to these hosts. A gateway that does not answer for `detection` is
    /// given up by its peers.
    pub(super) fn connect(&mut self, hosts: &[u8], own: u8, detection: Nanos) -> Result<(), RunError> {
        let mut greet_at = clock::now();
        let end = greet_at + detection.saturating_mul(CONNECT_FACTOR).max(CONNECT_MIN);
        loop {
            self.0.poll_once(&mut Deaf);
            let missing = hosts.iter().copied().find(|host| *host != own && !self.is_connected(*host));
            let Some(missing) = missing else { return Ok(()) };
            let now = clock::now();
            if now > end {
                return Err(RunError::NoWay(missing));
            }
            if now >= greet_at {
                self.cast(GREETING);
                greet_at = now + GREET_EVERY;
            }
            thread::sleep(POLL_INTERVAL.to_std());
        }
    }

    fn is_connected(&self, host: u8) -> bool {
        // Within one host there are no links.
        self.0
            .transport::<Ip>()
            .is_none_or(|ip| ip.link_status().iter().any(|link| link.host == host && link.connected))
    }

    /// Sends the cue of a token.
    pub(super) fn send(&mut self, token: Token) {
        self.cast(&token.cue());
    }

    fn cast(&mut self, cue: &[u8]) {
        self.0.multicast(Group::Drills, cue);
        self.0.flush();
    }
}

/// The runner expects no datagrams.
struct Deaf;

impl Machine for Deaf {
    fn handle<F: Fabric>(&mut self, _now: Instant, _event: Event<'_>, _fabric: &mut F) {}
}

//! Connects to a gateway. Connecting blocks, so a thread of its own does it.

use super::frame::{FRAME_BYTES_MAX, Hello, Refusal, Reply};
use obol_fabric::host::clock;
use obol_fabric::types::Instant;
use obol_identity::{Duty, Route, Stream, introduce};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

/// Why there is no connection to a gateway.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("the file of hosts has no host {0}")]
    NoGateway(u8),
    #[error("{0}")]
    Unknown(#[from] obol_identity::ConnectError),
    #[error("another service listens there")]
    Foreign,
    #[error("{0}")]
    Refused(Refusal),
}

/// Connects to the gateway of a host, and introduces the process.
pub(super) fn connect(
    from: Option<IpAddr>,
    to: SocketAddr,
    host: u8,
    identity: &Path,
    hello: &Hello,
    patience: Duration,
) -> Result<Stream, ConnectError> {
    let mut message = Vec::new();
    hello.encode(&mut message);
    let message_bytes_max = FRAME_BYTES_MAX;
    let who = "the gateway";
    let route = Route { from, to, who, host, nonce: hello.nonce, identity, patience, message_bytes_max };
    let (stream, answer) = introduce(&route, |claims| claims.allow(Duty::Gateway), &message)?;
    match Reply::decode(&answer) {
        Some(Reply::Welcome { .. }) => Ok(stream),
        Some(Reply::Refused(refusal)) => Err(ConnectError::Refused(refusal)),
        _ => Err(ConnectError::Foreign),
    }
}

/// A finished attempt.
pub(super) struct Attempt {
    pub(super) host: u8,
    pub(super) number: u64,
    pub(super) result: Result<Box<Stream>, ConnectError>,
    pub(super) ended: Instant,
}

impl Attempt {
    pub(super) fn new(host: u8, number: u64, result: Result<Stream, ConnectError>) -> Self {
        Self { host, number, result: result.map(Box::new), ended: clock::now() }
    }
}

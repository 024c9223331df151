//! One-sided memory over IP: every host runs a gateway, which executes the operations of other
//! hosts' processes on the regions of its host.
//!
//! A process posts to regions of its own host as over shared memory, and to those of another host
//! by one connection to that host's gateway. A gateway maps the regions itself, so a frozen process
//! is read and written like any other, a CAS is atomic with those of the host's own processes, and
//! deaths are learned from the kernel and passed on, with their proof. (The idea is that of a host
//! engine for one-sided operations: Marty et al., Snap, SOSP 2019.)
//!
//! Connections are TLS 1.3 with certificates on both sides ([`obol_identity`]). A gateway grants what
//! the certificate of the peer's host allows, not what the peer claims.
//!
//! In a cluster whose members reach each other by RDMA devices, gateways have what these do not carry:
//! drills, questions and orders to a host, annotations, pulses, and READs for hosts without a device
//! ([`Config::devices`]).
//!
//! A gateway that does not answer makes all regions of its host unreachable: to others, the host is
//! silent.

mod config;
mod connect;
pub mod floor;
mod frame;
mod gateway;
mod link;
mod observer;
mod poller;
mod probe;
pub mod pulse;
mod pulse_word;
mod transport;

pub use config::{Config, PulseConfig};
pub use gateway::{
    GatewayCounter, GatewayError, Notes, Outlets, PulseBlock, PulseDelays, PulseFrame, PulsePath,
    PulsePathState, PulsePeer, PulseReport, PulseReports, Question, counted, serve,
};
pub use observer::{AskError, Observer};
pub use transport::{Ip, LinkStatus, OpenError, open};

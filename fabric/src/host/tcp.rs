//! Timeouts of TCP connections.

use crate::types::Nanos;
use libc::c_int;
use nix::sys::socket::setsockopt;
use nix::{setsockopt_impl, sockopt_impl};
use std::net::TcpStream;

/// From linux/tcp.h; libc does not have it yet.
const TCP_RTO_MIN_US: c_int = 45;

sockopt_impl!(RtoMin, SetOnly, libc::IPPROTO_TCP, TCP_RTO_MIN_US, c_int);
sockopt_impl!(ThinLinearTimeouts, SetOnly, libc::IPPROTO_TCP, libc::TCP_THIN_LINEAR_TIMEOUTS, bool);

/// Makes the kernel repeat a lost last packet of the stream after `rto_min` at the earliest, instead of
/// 200 ms, and acknowledge sooner than that: as of Linux 6.15, for at least two ticks of its timers. Any
/// kernel repeats at equal intervals then, instead of doubled ones.
pub fn repeat_early(socket: &TcpStream, rto_min: Nanos) {
    // Both only shorten times: the connection works without them as well.
    let us = c_int::try_from(rto_min.0 / 1000).unwrap_or(c_int::MAX);
    let _ = setsockopt(socket, RtoMin, &us);
    let _ = setsockopt(socket, ThinLinearTimeouts, &true);
}

//! Addresses of this host.

use std::net::{IpAddr, UdpSocket};

/// Whether this host has an address: then it can be bound.
pub fn is_here(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

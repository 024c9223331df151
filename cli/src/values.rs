//! Values of options.

use obol_fabric::Nanos;
use std::net::{IpAddr, SocketAddr};

/// A time with its unit.
pub(crate) fn span(text: &str) -> Result<Nanos, String> {
    obol_profiles::duration::parse(text).map_err(|error| error.to_string())
}

/// An address with or without the port of the first coordinator.
pub(crate) fn listen(text: &str) -> Result<SocketAddr, String> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, obol_node::network::PORT));
    address
        .or_else(|_| text.parse())
        .map_err(|_| "an address looks like 10.1.0.1, or 10.1.0.1:7471".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_have_a_port() {
        assert_eq!(listen("10.1.0.1"), Ok(SocketAddr::from(([10, 1, 0, 1], 7471))));
        assert_eq!(listen("10.1.0.1:80"), Ok(SocketAddr::from(([10, 1, 0, 1], 80))));
        assert_eq!(listen("fd00::1").map(|at| at.port()), Ok(7471));
        assert_eq!(listen("[fd00::1]"), listen("fd00::1"));
        assert!(listen("host").is_err());
    }
}

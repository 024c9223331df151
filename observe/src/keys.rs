//! The keys of this host.

use obol_identity::{Duty, Identity};
use obol_node::Network;
use std::path::Path;
use std::time::Duration;

/// For how much longer the certificate in a directory is valid, and why a host of a network cannot use
/// the keys there for some duties, whatever the dates.
pub fn examine_keys(keys: &Path, network: &Network, duties: &[Duty]) -> (Option<Duration>, Option<String>) {
    match Identity::load(keys) {
        Ok(identity) => {
            let fault = identity.fault(network.id, network.host, network.address, duties);
            (identity.valid_for(), fault.map(|error| error.to_string()))
        }
        Err(error) => (None, Some(error.to_string())),
    }
}

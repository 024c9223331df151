//! Clients that run for one operation.

use obol_fabric::Name;
use obol_fabric::host::{HostError, NameClaim};
use obol_node::Site;
use obol_term::output::Failure;

/// The name of a client that runs for one operation. Several may run at once: while another process
/// has the name that is usual, this one has its process id behind that.
pub fn claim_name(site: &Site, wanted: Option<Name>, usual: &str) -> Result<(Name, NameClaim), Failure> {
    let claim = |name| NameClaim::reserve(&site.cluster, name).map(|claim| (name, claim));
    let claimed = match wanted {
        Some(wanted) => claim(wanted),
        None => match claim(Name::new(usual).map_err(Failure::refused)?) {
            Err(HostError::NameTaken { .. }) => {
                let own = Name::new(&format!("{usual}-{}", std::process::id()));
                claim(own.map_err(Failure::refused)?)
            }
            claimed => claimed,
        },
    };
    claimed.map_err(Failure::refused)
}

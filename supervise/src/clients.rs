//! Clients that run for one operation.

use obol_fabric::Name;
use obol_fabric::host::{HostError, NameClaim};
use obol_node::Site;
use obol_term::output::Failure;

/// The name of a client that runs for one operation. Several may run at once: while another process
/// has the name that is usual, on this host or another one, this one has its process id behind that.
pub fn claim_name(site: &Site, wanted: Option<Name>, usual: &str) -> Result<(Name, NameClaim), Failure> {
    let claim = |name| NameClaim::reserve(&site.cluster, name).map(|claim| (name, claim));
    let claimed = match wanted {
        Some(wanted) => claim(wanted),
        None => {
            let name = Name::new(usual).map_err(Failure::refused)?;
            let own = || Name::new(&format!("{usual}-{}", std::process::id())).map_err(Failure::refused);
            if is_member_elsewhere(site, name)? {
                claim(own()?)
            } else {
                match claim(name) {
                    Err(HostError::NameTaken { .. }) => claim(own()?),
                    claimed => claimed,
                }
            }
        }
    };
    claimed.map_err(Failure::refused)
}

/// Whether a process of another host is a member of this name, as far as this host knows.
fn is_member_elsewhere(site: &Site, name: Name) -> Result<bool, Failure> {
    let Some(network) = &site.deployment.network else { return Ok(false) };
    let view = site.newest().map_err(Failure::refused)?;
    Ok(view.members.iter().any(|member| member.name == name && !network.is_here(member.address)))
}

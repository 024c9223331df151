//! Which servers of this host have had the cache's state: a file of the cluster for each. A server
//! that leaves takes its own away; one that dies does not. So a first server knows whether keys
//! would be lost if it began with nothing. Servers that a check or a measurement starts for itself
//! have marks of their own: their keys may be lost with it.

use obol_fabric::Name;
use obol_kv::Shard;
use obol_node::Site;
use obol_term::output::{self, Failure};
use std::fs;
use std::path::PathBuf;

/// Who owns the mark of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkOwner {
    /// Marks of servers whose state is to be kept.
    User,
    /// Marks of servers that end with the command which started them.
    Command,
}

impl MarkOwner {
    /// The names of these files begin so.
    const fn prefix(self) -> &'static str {
        match self {
            Self::User => "kv-state.",
            Self::Command => "kv-temporary.",
        }
    }

    fn path(self, site: &Site, member: &str) -> PathBuf {
        site.cluster.dir().join(format!("{}{member}", self.prefix()))
    }

    /// The members of this host that have had a state and did not leave.
    pub fn left(self, site: &Site) -> Result<Vec<String>, Failure> {
        let mut found = Vec::new();
        for entry in fs::read_dir(site.cluster.dir()).map_err(Failure::failed)? {
            let name = entry.map_err(Failure::failed)?.file_name();
            if let Some(member) = name.to_str().and_then(|name| name.strip_prefix(self.prefix())) {
                found.push(member.to_owned());
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// This member has the state.
    pub fn set(self, site: &Site, member: Name) -> Result<(), Failure> {
        output::file(&self.path(site, member.as_str()), "")
    }

    /// It has left, and its state is not needed.
    pub fn clear(self, site: &Site, member: Name) {
        // It may never have had one.
        let _ = fs::remove_file(self.path(site, member.as_str()));
    }

    /// The last server of a shard has left on request, and its state is gone.
    pub fn clear_shard(self, site: &Site, shard: Shard) {
        self.clear_if(site, |member| Shard::of_server(member) == Some(shard));
    }

    /// All servers have ended on request, and the state is gone.
    pub fn clear_all(self, site: &Site) {
        self.clear_if(site, |_| true);
    }

    fn clear_if(self, site: &Site, is_gone: impl Fn(&str) -> bool) {
        for member in self.left(site).unwrap_or_default().iter().filter(|member| is_gone(member)) {
            // Another server may have taken it away.
            let _ = fs::remove_file(self.path(site, member));
        }
    }
}

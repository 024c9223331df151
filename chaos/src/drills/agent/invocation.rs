//! How a fault agent is called.

use obol_fabric::Name;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Where a fault agent runs.
#[derive(Clone, Copy, Debug)]
pub struct Invocation<'a> {
    pub program: &'a Path,
    /// The clusters' directory there.
    pub root: &'a Path,
    pub cluster: Name,
}

impl Invocation<'_> {
    /// The cluster's directory on this host, if that host has its clusters at the same place.
    pub(super) fn dir(&self) -> PathBuf {
        self.root.join(self.cluster.as_str())
    }

    pub(super) fn arguments(&self) -> Vec<OsString> {
        let words = ["fault-agent", "--cluster", self.cluster.as_str(), "--root"].map(OsString::from);
        words.into_iter().chain([self.root.as_os_str().to_owned()]).collect()
    }
}

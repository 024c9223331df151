//! The namespaces of the kernel that all processes of a cluster on one host share.

use derive_more::Display;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// A namespace without which what the cluster's memory says has another meaning.
#[derive(Clone, Copy, Debug, Display, PartialEq, Eq)]
pub enum Namespace {
    /// Of process ids: from another one, every process of the cluster looks dead.
    #[display("pid")]
    Pid,
    /// Of monotonic clocks: by another one, leases end earlier or later.
    #[display("time")]
    Time,
}

impl Namespace {
    pub(crate) const ALL: [Self; 2] = [Self::Pid, Self::Time];

    /// Identifies the calling process's namespace; 0 where the kernel has none of this
    /// kind.
    pub(crate) fn inode(self) -> u64 {
        // The link is followed: the inode is that of the namespace.
        fs::metadata(format!("/proc/self/ns/{self}")).map_or(0, |meta| meta.ino())
    }
}

//! The errors of creating, finding or joining a cluster: what, where, and a remedy.

use crate::host::namespace::Namespace;
use crate::layout::LimitError;
use crate::types::{Name, Nanos};
use crate::version::Advice;
use std::io;
use std::path::PathBuf;

/// Why a cluster, region or seat is not available.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The directory is unsafe: not a directory of this user alone.
    #[error("{path} {fault}; move it away or choose another directory")]
    Unsafe { path: PathBuf, fault: String },
    /// A cluster of this name runs.
    #[error("{path} holds a cluster with {alive} live processes; stop them or choose another name")]
    AlreadyExists {
        path: PathBuf,
        /// Its live processes.
        alive: usize,
    },
    /// A cluster of this name is left over: none of its processes is alive.
    #[error("{path} holds a cluster whose processes are all dead; remove it or restart its processes")]
    Stale { path: PathBuf },
    /// There is no such cluster.
    #[error("no cluster {name} in {root}; {}{}", listed(existing), if existing.is_empty() { HOW_TO_MAKE } else { "" })]
    NotFound {
        /// The requested name.
        name: Name,
        /// The directory that was searched.
        root: PathBuf,
        /// The existing clusters.
        existing: Vec<Name>,
    },
    /// The file was made by another version of this program.
    #[error(
        "{path} has layout version {found}, this program has {wanted}; use one version of it for all processes"
    )]
    Version {
        path: PathBuf,
        /// The file's layout version.
        found: u32,
        /// This program's layout version.
        wanted: u32,
    },
    /// A live process of the cluster is of a release that this one does not work with.
    #[error("{name} runs, and {advice}")]
    OtherRelease {
        /// The process.
        name: Name,
        /// Both releases, and what to do.
        advice: Advice,
    },
    /// The owner of a region is of a release that this one does not work with.
    #[error("{path}: {advice}")]
    Release {
        path: PathBuf,
        /// Both releases, and what to do.
        advice: Advice,
    },
    /// The file has another magic, length, or limits than expected.
    #[error("{path} {fault}; stop the cluster and remove it")]
    Corrupt { path: PathBuf, fault: &'static str },
    /// A coordinator's file was used and no longer exists.
    #[error(
        "coordinator {number} has had its memory in {path}, and that is gone or empty. With an empty memory it could vote \
         twice, so it does not start. While a majority of the coordinators lives, `obol coordinator replace {number}` \
         has another one decide in its place; where none does, see `obol coordinator recover --help`"
    )]
    MemoryLost {
        path: PathBuf,
        /// The coordinator.
        number: u32,
    },
    /// The limits are not valid for a layout.
    #[error("{0}")]
    Limits(#[from] LimitError),
    /// There is no space for a file.
    #[error("no room for the {bytes} bytes of {path}; free space there or lower the cluster's limits")]
    NoSpace {
        path: PathBuf,
        /// Its size in bytes.
        bytes: usize,
    },
    /// The process may not write files of this size.
    #[error(
        "{path} needs {bytes} bytes, more than this process may write to one file; raise its limit (ulimit -f)"
    )]
    FileSize {
        path: PathBuf,
        /// The bytes that it needs.
        bytes: usize,
    },
    /// All region numbers are taken by live processes.
    #[error("all {regions} regions of {path} are taken by live processes; stop one or attach to an agent")]
    TableFull {
        /// The table.
        path: PathBuf,
        regions: usize,
    },
    /// The requested region number belongs to a live process.
    #[error("region {region} belongs to the live process {pid}; stop it or choose another")]
    RegionTaken {
        region: u32,
        /// Its holder.
        pid: u32,
    },
    /// There is no such host number.
    #[error("there is no host {host}; number the cluster's hosts from 1 to {max}")]
    NoSuchHost {
        host: u8,
        /// The maximum.
        max: u8,
    },
    /// There is no such region number.
    #[error("region {region} does not exist; choose one of 1..={max}")]
    NoSuchRegion {
        region: u32,
        /// The maximum.
        max: u32,
    },
    /// No live process of this name, or with this region, is in the cluster.
    #[error("no live process {wanted} in the cluster; {}", listed(existing))]
    NoSuchAgent {
        /// The requested name or region.
        wanted: String,
        /// The names of the live processes.
        existing: Vec<Name>,
    },
    /// The name is kept for another process of the cluster.
    #[error(
        "the name {name} belongs to {whose} of this cluster, and status, events, logs and `obol kill` go by names: choose \
         another one"
    )]
    NameReserved {
        name: Name,
        /// Whose it is, as in "belongs to ...".
        whose: &'static str,
    },
    /// A live process of this host has the name.
    #[error("{name} runs already (pid {pid}), and a name belongs to one live process")]
    NameTaken { name: Name, pid: u32 },
    /// All seats of the agent are taken.
    #[error(
        "all {seats} seats of {agent} are taken; raise limits.seats in the profile of the cluster, or use another agent"
    )]
    NoSeat {
        agent: Name,
        /// The number of its seats, not counting its own.
        seats: u32,
    },
    /// A program of this name already waits at the agent until it may join: others failed, or left,
    /// repeatedly.
    #[error(
        "programs of the name {name} died or left again and again; one waits for {left} more until it may join, and no \
         other takes a seat meanwhile: find out why (`obol events`), or see coordinator.join_burst in the profile"
    )]
    OnHold {
        name: Name,
        /// How long that one still has to wait.
        left: Nanos,
    },
    /// The cluster was opened by the parent of this forked process.
    #[error("{path} was opened by the process that this one was forked from; open it again after the fork")]
    Forked { path: PathBuf },
    /// The cluster's processes are in another namespace than this one.
    #[error(
        "the cluster of {path} was made in another {namespace} namespace: from here its live processes and its leases cannot \
         be distinguished from dead ones; run this in the cluster's namespaces, for example a container with \
         the host's (--pid=host)"
    )]
    Namespace {
        /// The table.
        path: PathBuf,
        namespace: Namespace,
    },
    /// The calling thread already represents an endpoint.
    #[error("this thread already represents an endpoint; open another one on its own thread")]
    ThreadTaken,
    /// A file operation failed.
    #[error("cannot {doing} {path}: {error}")]
    Io {
        /// The operation, as in "cannot ...".
        doing: &'static str,
        /// Its object.
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    /// The kernel lacks or refuses something.
    #[error("cannot {doing}: {error}; this needs Linux 5.16 or later with /proc")]
    Kernel {
        /// The operation, as in "cannot ...".
        doing: &'static str,
        #[source]
        error: io::Error,
    },
}

impl HostError {
    pub(crate) fn io(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::Io { doing, path, error }
    }
}

const HOW_TO_MAKE: &str = ": `obol up` makes one of this host, `obol host prepare` one of several";

fn listed(names: &[Name]) -> String {
    match names {
        [] => "there are none".to_owned(),
        names => format!("there are: {}", names.iter().map(Name::as_str).collect::<Vec<_>>().join(", ")),
    }
}

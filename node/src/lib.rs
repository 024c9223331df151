//! What the processes of one host share: the cluster's directory with its parameters, the host's
//! part of a cluster of several hosts, the files that processes leave there, and their endpoints.
//!
//! A [`Site`] is a cluster's directory on this host. A [`Deployment`] lists the cluster's processes
//! and its profile; [`Hosts`] is the operators' file for several hosts. An [`obol_fabric::Endpoint`]
//! is a process's access to the fabric of the deployment.

pub mod deployment;
pub mod ended;
pub mod ending;
pub mod endpoint;
pub mod fate;
mod file_lock;
pub mod hosts;
pub mod keys;
pub mod network;
pub mod saved_view;
pub mod service;
mod site;
mod supervisor;
pub mod unsaved;
pub mod user;
pub mod voted;

pub use deployment::{Deployment, DeploymentError};
pub use file_lock::FileLock;
pub use hosts::{Hosts, HostsError};
pub use network::Network;
pub use site::{
    ClusterLocation, RECOVERED_FILE, RecoveredViewError, Site, SiteError, VIEW_BYTES_MAX, hosts_here,
};
pub use supervisor::HostSupervisor;

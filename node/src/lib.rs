//! What the processes of one host share: the cluster's directory with what it was made from, the
//! host's part of a cluster of several hosts, the files that processes leave there, and the
//! endpoint that each of them opens.
//!
//! A [`Site`] is a cluster's directory on this host. A [`Deployment`] says who belongs to the
//! cluster and by which profile; [`Hosts`] is the file that operators of several hosts write. An
//! [`endpoint::Endpoint`] is a process's access to the fabric that the deployment names.

pub mod deployment;
pub mod ended;
pub mod endpoint;
pub mod hosts;
pub mod network;
pub mod saved_view;
mod site;
pub mod unsaved;
pub mod voted;

pub use deployment::{Deployment, DeploymentError};
pub use hosts::{Hosts, HostsError};
pub use network::Network;
pub use site::{RECOVERED_FILE, Site, SiteError, VIEW_BYTES_MAX};

//! A running cluster as seen by one of its processes: its memory, its parameters, and what follows
//! from them.

use crate::{Deployment, DeploymentError};
use obol_config::file::{self, Pipes};
use obol_fabric::Name;
use obol_fabric::host::{Cluster, HostError, Observed, Origin};
use obol_fabric::layout::PROPOSERS_MAX;
use obol_membership::{Config, Start, View};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The view of an operator's recovery after a disaster, in the cluster's directory.
pub const RECOVERED_FILE: &str = "recovered-view";
/// The size limit of a view in a file: that of the largest value area.
pub const VIEW_BYTES_MAX: u64 = 1 << 20;

/// The location of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterLocation {
    /// The directory of all clusters.
    pub root: PathBuf,
    pub cluster: Name,
}

/// A cluster on this host.
pub struct Site {
    /// Its memory.
    pub cluster: Cluster,
    /// Its parameters.
    pub deployment: Deployment,
    /// The configuration of its machines.
    pub config: Config,
    /// Its first view.
    pub genesis: Arc<View>,
}

/// Why a cluster cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// Its memory is not available.
    #[error(transparent)]
    Fabric(#[from] HostError),
    /// Its directory has no valid parameters.
    #[error(transparent)]
    Deployment(#[from] DeploymentError),
}

/// The view of an operator's recovery cannot be read, and starting from an older one is not safe.
#[derive(Debug, thiserror::Error)]
#[error("{at}: the view that was recovered {why}; run `obol coordinator recover` again")]
pub struct RecoveredViewError {
    at: PathBuf,
    why: String,
}

impl Site {
    /// Finds the cluster of this name.
    pub fn open(root: &Path, name: Name) -> Result<Self, SiteError> {
        let cluster = Cluster::open(root, name)?;
        cluster.require_release()?;
        let deployment = Deployment::load(cluster.dir())?;
        Self::new(cluster, deployment)
    }

    /// Creates the directory of a new cluster.
    pub fn create(root: &Path, name: Name, deployment: Deployment) -> Result<Self, SiteError> {
        let limits = deployment.profile.limits;
        let cluster = match &deployment.network {
            None => Cluster::create(root, name, limits)?,
            Some(network) => {
                let origin = Origin { nonce: network.id, host: network.host };
                Cluster::create_on(root, name, limits, origin)?
            }
        };
        deployment.save(cluster.dir())?;
        Self::new(cluster, deployment)
    }

    /// The newest view that a coordinator has published, or the first.
    pub fn newest(&self) -> Result<Arc<View>, RecoveredViewError> {
        self.start(0).map(|start| Arc::clone(start.newest()))
    }

    /// The starting point of a process of the cluster: the newest view that a coordinator of this
    /// host has published, or the first view. The coordinators of the first view may all have been
    /// replaced since. `seed` must differ between processes and lives.
    pub fn start(&self, seed: u64) -> Result<Start, RecoveredViewError> {
        let published = (1..=PROPOSERS_MAX as u32).filter_map(|number| {
            let region = Observed::open(&self.cluster, number).ok()?;
            View::from_frame(&region.reader().view()?.1)
        });
        // The view of a recovery counts as published.
        Ok(Start::new(self.config, &self.genesis, published.chain(self.recovered()?), seed))
    }

    /// The newest view that any process of this host knows or knew, or that an operator recovered.
    /// Programs may act under the lease of a dead agent, so its region counts as well.
    pub fn known(&self) -> Result<Option<View>, RecoveredViewError> {
        let regions = self.cluster.regions();
        let views = regions.iter().filter_map(|info| {
            let region = Observed::open(&self.cluster, info.number).ok()?;
            View::from_frame(&region.reader().view()?.1)
        });
        Ok(views.chain(self.recovered()?).max_by_key(View::rank))
    }

    fn recovered(&self) -> Result<Option<View>, RecoveredViewError> {
        let at = self.cluster.dir().join(RECOVERED_FILE);
        match file::read(&at, Pipes::Refused, VIEW_BYTES_MAX, "view") {
            Ok(bytes) => match View::from_frame(&bytes) {
                None => Err(RecoveredViewError { at, why: "is damaged".to_owned() }),
                view => Ok(view),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(RecoveredViewError { at, why: format!("cannot be read ({error})") }),
        }
    }

    fn new(cluster: Cluster, deployment: Deployment) -> Result<Self, SiteError> {
        let config = deployment.config().map_err(HostError::from)?;
        let genesis = Arc::new(deployment.genesis());
        Ok(Self { cluster, deployment, config, genesis })
    }
}

/// The hosts of a cluster whose memory is in a directory of this machine, by number, and the name
/// that the cluster has there. Several hosts may be one machine (`obol up --hosts`).
pub fn hosts_here(root: &Path, cluster: Name) -> BTreeMap<u8, Name> {
    let network = |name: Name| Deployment::load(&root.join(name.as_str())).ok()?.network;
    let Some(own) = network(cluster) else { return BTreeMap::from([(1, cluster)]) };
    let entries = std::fs::read_dir(root).into_iter().flatten().filter_map(Result::ok);
    let names = entries.filter_map(|entry| Name::new(entry.file_name().to_str()?).ok());
    let others = names.filter(|name| *name != cluster).filter_map(|name| Some((network(name)?, name)));
    let mut hosts: BTreeMap<u8, Name> =
        others.filter(|(other, _)| other.id == own.id).map(|(other, name)| (other.host, name)).collect();
    hosts.insert(own.host, cluster);
    hosts
}

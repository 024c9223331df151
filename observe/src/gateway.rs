//! The gateway of this host, in a cluster of several.

use crate::keys::examine_keys;
use crate::observer::Observer;
use obol_fabric::host::{Cluster, Observed, Process};
use obol_fabric::{Name, Version};
use obol_fabric_ip::{self as ip, GatewayCounter};
use obol_identity::Duty;
use obol_node::Network;
use std::time::Duration;

/// A certificate that is valid for fewer days is a warning.
pub const CERTIFICATE_DAYS_FEW: u32 = 30;

/// A gateway that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningGateway {
    pub name: Name,
    /// Its pid and start time, which no other gateway of this host has: a successor may have another
    /// region, and there the same generation.
    pub process: Process,
    pub version: Version,
}

impl RunningGateway {
    /// That of the cluster's host.
    pub fn find(cluster: &Cluster) -> Option<Self> {
        let info = cluster.gateway()?;
        let version = Observed::open(cluster, info.number).ok()?.reader().seat(0)?.version;
        Some(Self { name: info.name, process: info.process, version })
    }
}

/// The gateway of this host.
#[derive(Clone, Debug)]
pub struct Gateway {
    /// Which one; `None` if none runs.
    pub running: Option<RunningGateway>,
    /// Its name, or that of the one that ran last.
    pub name: Option<Name>,
    /// What it has let in and refused since it was started, in the order of
    /// [`GatewayCounter::ALL`]; `None` if it does not run.
    pub counters: Option<Vec<u64>>,
    /// For how much longer the host's certificate is valid; `None` if it is not.
    pub valid_for: Option<Duration>,
    /// Why the keys in the host's directory cannot be used by this host, whatever their dates.
    pub fault: Option<String>,
}

/// The duties that each host's certificate must have: of its gateway, and over RDMA of what reads
/// there.
pub fn least_duties(network: &Network) -> Vec<Duty> {
    let gateway = network.has_gateways().then_some(Duty::Gateway);
    let observer = network.has_devices().then_some(Duty::Observer);
    gateway.into_iter().chain(observer).collect()
}

/// Whole days.
pub fn certificate_days(valid_for: Duration) -> Option<u32> {
    u32::try_from(valid_for.as_secs() / (24 * 60 * 60)).ok()
}

impl Gateway {
    /// Reads it; `None` in a cluster without gateways.
    pub fn read(observer: &Observer) -> Option<Self> {
        let network = observer.deployment().network.as_ref().filter(|network| network.has_gateways())?;
        let cluster = observer.cluster();
        let keys = network.gateway_keys(cluster.dir());
        let (valid_for, fault) = examine_keys(keys, network, &[Duty::Gateway]);
        let running = RunningGateway::find(cluster);
        let last = || {
            let all = cluster.regions().into_iter().filter(|region| region.is_gateway());
            all.max_by_key(|region| region.process.started).map(|region| region.name)
        };
        let name = running.map(|running| running.name).or_else(last);
        Some(Self { running, name, counters: ip::counted(cluster), valid_for, fault })
    }

    /// Reads the counters again. The certificate changes rarely, and reading it takes longer.
    pub fn count(&mut self, observer: &Observer) {
        self.counters = ip::counted(observer.cluster());
    }

    /// The counters with their names; none if it does not run.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let names = GatewayCounter::ALL.iter().map(|counter| counter.name());
        names.zip(self.counters.iter().flatten().copied())
    }

    /// For how many more days the certificate is valid.
    pub fn certificate_days(&self) -> Option<u32> {
        certificate_days(self.valid_for?)
    }
}

/// What an operator has to know of the keys of this host, which has these `days` or this fault.
pub fn certificate_warning(days: Option<u32>, fault: Option<&str>) -> Option<String> {
    if let Some(fault) = fault {
        return Some(format!(
            "the keys of this host cannot be used: {fault}. Connections that exist go on, and no new one is made"
        ));
    }
    let what = match days {
        None => "is not valid: no new connection is made".to_owned(),
        Some(days @ ..CERTIFICATE_DAYS_FEW) => format!("is valid for {days} more days"),
        Some(_) => return None,
    };
    Some(format!("the certificate of this host {what}; `obol host keys` makes new ones"))
}

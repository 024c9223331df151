//! The gateway of this host, in a cluster over IP.

use crate::Observer;
use obol_fabric::ip::identity::Identity;
use obol_fabric::ip::{self, GatewayCounter};
use obol_node::network::Fabric;
use std::time::Duration;

/// A certificate that is valid for fewer days is a warning.
pub const CERTIFICATE_DAYS_FEW: u32 = 30;

/// The gateway of this host.
#[derive(Clone, Debug)]
pub struct Gateway {
    /// What it has let in and refused since it was started, in the order of
    /// [`GatewayCounter::ALL`]; `None` if it does not run.
    pub counters: Option<Vec<u64>>,
    /// For how much longer the host's certificate is valid; `None` if it is not.
    pub valid_for: Option<Duration>,
}

impl Gateway {
    /// Reads it; `None` in a cluster without gateways.
    pub fn read(observer: &Observer) -> Option<Self> {
        let Fabric::Ip { keys } = &observer.deployment().network.as_ref()?.fabric else { return None };
        // Whoever cannot read the keys is informed by every process that needs them.
        let valid_for = Identity::load(keys).ok().and_then(|identity| identity.valid_for());
        Some(Self { counters: ip::counted(observer.cluster()), valid_for })
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
        let days = self.valid_for?.as_secs() / (24 * 60 * 60);
        u32::try_from(days).ok()
    }
}

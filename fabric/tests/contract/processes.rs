//! Backends whose peers are processes of this host, which are killed and stopped by signals, and
//! that want nothing but a cluster: [`backend!`] holds one of them to the contract.

use crate::suite::{Fault, Feature, ME, Post, Testbed, of_processes};
use crate::support::{Child, Probe, Root, coordinator, kill, live, root::made};
use obol_fabric::host::{Cluster, Impairment, clock};
use obol_fabric::metrics::FabricCounter;
use obol_fabric::{Address, Endpoint, Fabric, Layout, Nanos, Owner, ViewId, Wait};
use std::collections::HashMap;
use std::marker::PhantomData;

/// Such a backend.
pub(crate) trait Backend {
    const NAME: &'static str;
    const LACKS: &'static [(Feature, &'static str)];
    /// The test where the peers start.
    const CHILD: &'static str;

    fn open(cluster: &Cluster, owner: Owner, wait: Wait) -> Endpoint;
}

/// The tests of the contract for the backend in this module of the fabric, and what it lacks.
macro_rules! backend {
    ($name:ident, lacks: [$($feature:ident: $why:literal),*]) => {
        mod $name {
            use crate::processes::{Backend, Processes};
            use crate::suite::{Feature, contract, contract_tests};
            use obol_fabric::host::Cluster;
            use obol_fabric::Endpoint;
            use obol_fabric::{Owner, Wait};

            pub(crate) struct This;

            contract!(Processes<This>);

            impl Backend for This {
                const NAME: &'static str = stringify!($name);
                const LACKS: &'static [(Feature, &'static str)] =
                    &[$((Feature::$feature, $why)),*];
                const CHILD: &'static str = concat!(stringify!($name), "::child");

                fn open(cluster: &Cluster, owner: Owner, wait: Wait) -> Endpoint {
                    Endpoint::open(cluster, owner, wait).expect("opened")
                }
            }

            /// Where its processes start, if they have a role.
            #[test]
            fn child() {
                crate::support::play_over(This::open);
            }
        }
    };
}
pub(crate) use backend;

pub(crate) struct Processes<B> {
    // Children end before their directory does.
    peers: HashMap<u32, Child>,
    me: Endpoint,
    probe: Probe,
    cluster: Cluster,
    root: Root,
    backend: PhantomData<B>,
}

impl<B: Backend> Processes<B> {
    fn start_as(&mut self, who: &str, region: Option<u32>) -> (Child, Address) {
        let before =
            region.and_then(|region| self.cluster.region_info(region)).map_or(0, |info| info.generation);
        let child = Child::start_with(B::CHILD, &self.root, "scribble", who, region, &[]);
        loop {
            let at = live(&self.cluster, who);
            if region.is_none() || at.generation > before {
                return (child, at);
            }
        }
    }
}

impl<B: Backend> Testbed for Processes<B> {
    const NAME: &'static str = B::NAME;
    const LACKS: &'static [(Feature, &'static str)] = B::LACKS;
    const HANG_TIMEOUT: Nanos = Nanos::from_secs(60);

    fn new() -> Option<Self> {
        let (root, cluster) = made();
        let me = B::open(&cluster, coordinator("me", ME), Wait::Block);
        Some(Self { peers: HashMap::new(), me, probe: Probe::default(), cluster, root, backend: PhantomData })
    }

    of_processes!(cluster);

    fn start(&mut self, region: u32) -> Address {
        let (child, at) = self.start_as(&format!("peer{region}"), Some(region));
        self.peers.insert(region, child);
        at
    }

    fn start_member(&mut self) -> Address {
        let (child, at) = self.start_as("member", None);
        self.peers.insert(at.region, child);
        at
    }
}

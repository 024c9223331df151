//! Common part of the network faults. A drill file names the layer: `fabric` impairs the links of a
//! region over shared memory, `host` the network between the hosts of a cluster.

use super::Key;
use super::fault::{Armed, Arming, Effect, Fault, Planning, Scope, Simulated};
use super::host_network::{self, BURST, DELAY, Impact, LOSE};
use super::order::{Direction, Injection, Links, TargetKind};
use super::record::{Record, Undone};
use obol_config::{Problem, Problems, Section};
use obol_fabric::Nanos;
use obol_fabric::host::{Cluster, Impairment};
use serde_json::json;
use std::sync::Arc;
use std::{fmt, io};

/// The name of the orders that impair the links of a region.
const IMPAIR: &str = "impair";

/// A fault of the network.
pub(crate) trait LinkFault: fmt::Debug + Default + Send + Sync + 'static {
    const NAME: &'static str;
    const EFFECT: Effect;

    /// The impairment of a target's links; `None` if it exists between hosts only. Targets of one fault
    /// still reach each other.
    fn links(&self, island: u8) -> Option<Links>;

    /// Its equivalent in a simulated cluster.
    fn simulated(&self, _direction: Direction) -> Option<Simulated> {
        None
    }

    /// What it does to packets between hosts; `None` if it exists in the fabric only.
    fn between_hosts(&self) -> Option<Impact> {
        None
    }

    /// The name with its parameters.
    fn describe(&self) -> String {
        Self::NAME.to_owned()
    }

    /// The keys beside `layer`.
    fn own_keys() -> Vec<Key> {
        Vec::new()
    }

    /// Reads these keys.
    fn parse_own(_section: &mut Section<'_, '_>, _problems: &mut Problems) -> Self {
        Self::default()
    }
}

/// Where a fault of the network is injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layer {
    /// At the links of a region.
    Fabric,
    /// At the interfaces of a host.
    Host,
}

/// Adapter to [`Fault`].
#[derive(Debug)]
pub(crate) struct Network<T> {
    fault: T,
    layer: Layer,
    direction: Direction,
}

impl<T: LinkFault> Network<T> {
    pub(crate) const fn of(fault: T) -> Self {
        Self { fault, layer: Layer::Fabric, direction: Direction::Both }
    }

    /// The layers of this fault.
    fn layers() -> Vec<(&'static str, Layer)> {
        let fabric = T::default().links(0).map(|_| ("fabric", Layer::Fabric));
        let host = T::default().between_hosts().map(|_| ("host", Layer::Host));
        fabric.into_iter().chain(host).collect()
    }
}

impl<T: LinkFault> Fault for Network<T> {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn describe(&self) -> String {
        match self.layer {
            Layer::Fabric => self.fault.describe(),
            Layer::Host => format!("{} between hosts{}", self.fault.describe(), one_way(self.direction)),
        }
    }

    fn scope(&self) -> Scope {
        match self.layer {
            Layer::Fabric => Scope::Links,
            Layer::Host => Scope::Network,
        }
    }

    fn effect(&self) -> Effect {
        T::EFFECT
    }

    fn keys(&self) -> Vec<Key> {
        // One property of the schema is that of all kinds.
        let layer =
            Key { name: "layer", schema: json!({ "enum": ["fabric", "host"] }), doc: "where it is injected" };
        let directions: Vec<&str> = Direction::ALL.iter().map(|(name, _)| *name).collect();
        let direction = Key {
            name: "direction",
            schema: json!({ "enum": directions }),
            doc: "which packets of the targets' hosts it hits, by default both",
        };
        let one_way = T::default().between_hosts().map(|_| direction);
        T::own_keys().into_iter().chain([layer]).chain(one_way).collect()
    }

    fn parse(&self, section: &mut Section<'_, '_>, problems: &mut Problems) -> Arc<dyn Fault> {
        let layers = Self::layers();
        let layer = section.choice("layer", &layers, problems).map(|at| at.value);
        let wanted = match layers[..] {
            [(_, Layer::Fabric)] => "\"fabric\": it exists over shared memory only",
            [_] => "\"host\": it exists between the hosts of a cluster only",
            _ => "\"fabric\" over shared memory, \"host\" between the hosts of a cluster",
        };
        let layer = section.need("layer", wanted, layer);
        let direction = match T::default().between_hosts() {
            Some(_) => section.choice("direction", Direction::ALL, problems),
            None => None,
        };
        if let Some(at) =
            direction.as_ref().filter(|at| layer == Some(Layer::Fabric) && at.value != Direction::Both)
        {
            let rule = "a direction is one of packets, layer = \"host\"; with layer = \"fabric\" whole operations are impaired";
            let found = format!("direction is {:?}", at.value.name());
            problems.add(at.at, Problem::Conflict { rule, found });
        }
        let direction = direction.map_or(Direction::Both, |at| at.value);
        let fault = T::parse_own(section, problems);
        Arc::new(Self { fault, layer: layer.unwrap_or(Layer::Fabric), direction })
    }

    fn refusal(&self, planning: Planning<'_>) -> Option<&'static str> {
        if self.layer == Layer::Host {
            // There each process is on a host of its own.
            return (!planning.simulated).then(|| host_network::refusal(planning.deployment)).flatten();
        }
        if planning.deployment.has_devices() {
            return Some(
                "the links of this cluster belong to its RDMA device, which a drill cannot impair; see layer = \"host\" \
                 for a device in software, and kind = \"nic-down\"",
            );
        }
        if planning.deployment.network.is_some() {
            return Some(
                "layer = \"fabric\" is of shared memory; this cluster is over IP: see layer = \"host\"",
            );
        }
        let app = planning.targets.contains(&TargetKind::App);
        app.then_some("an app uses its agent's links; name the agent, or the node")
    }

    fn simulated(&self) -> Option<Simulated> {
        self.fault.simulated(self.direction)
    }

    fn orders(&self) -> &'static [&'static str] {
        match self.fault.links(0) {
            Some(_) => &[IMPAIR, LOSE, DELAY],
            None => &[BURST],
        }
    }

    fn order(&self, island: u8) -> Injection {
        match (self.fault.links(island), self.fault.between_hosts()) {
            (links, Some(impact)) if self.layer == Layer::Host || links.is_none() => {
                impact.order(self.direction)
            }
            (links, _) => Injection::new(IMPAIR).with("links", &links.unwrap_or_default()),
        }
    }

    fn hits_host(&self, order: &Injection) -> bool {
        host_network::is_ordered(order)
    }

    fn takes_out(&self, order: &Injection) -> bool {
        if host_network::is_ordered(order) {
            return host_network::cuts_off(order);
        }
        order.get::<Links>("links").is_ok_and(|links| links.island != 0 || links.operations_fail)
    }

    fn arm(&self, order: &Injection, arming: Arming<'_>) -> Result<Box<dyn Armed>, String> {
        if host_network::is_ordered(order) {
            return host_network::arm(order, arming.deployment, arming.record);
        }
        let links: Links = order.get("links")?;
        let whom = order.whom.as_ref().ok_or("impaired links name no process")?;
        if arming.deployment.network.is_some() || links.loss_percent > 100 {
            return Err(format!("the links of {} cannot be impaired like this", whom.name));
        }
        let process = order.process();
        let owner = arming.snapshot.processes.iter().find(|p| Some(p.process) == process && p.seat == 0);
        let info = owner.and_then(|p| arming.cluster.region_info(p.region));
        let info = info.filter(|info| Some(info.process) == process);
        let info = info.ok_or_else(|| format!("{} has no links of its own", whom.name))?;
        arming.record.impaired.push((whom.name.clone(), info.number, info.generation));
        let cluster = arming.cluster.clone();
        Ok(Box::new(ArmedLinks { cluster, region: info.number, generation: info.generation, links }))
    }

    fn recover(&self, record: &Record, cluster: &Cluster, undone: &mut Undone) {
        for (name, region, generation) in &record.impaired {
            // A successor's links are not impaired.
            if cluster.impairment(*region) != Impairment::default()
                && cluster.impair(*region, *generation, Impairment::default())
            {
                undone.done.push(format!("the links of {name} were restored"));
            }
        }
    }
}

/// What is said of a fault in one direction.
const fn one_way(direction: Direction) -> &'static str {
    match direction {
        Direction::In => ", of what reaches them",
        Direction::Out => ", of what they send",
        Direction::Both => "",
    }
}

struct ArmedLinks {
    cluster: Cluster,
    region: u32,
    generation: u32,
    links: Links,
}

impl Armed for ArmedLinks {
    fn inject(&mut self) -> io::Result<()> {
        // Another fault of the same cue may have impaired it just now.
        let there = self.cluster.impairment(self.region);
        let what = Impairment {
            island: there.island.max(self.links.island),
            loss_percent: there.loss_percent.max(self.links.loss_percent),
            multicast_lost: there.multicast_lost || self.links.multicast_lost,
            operations_fail: there.operations_fail || self.links.operations_fail,
            delay: there.delay.max(Nanos(self.links.delay)),
            ..there
        };
        let still = self.cluster.impair(self.region, self.generation, what);
        still.then_some(()).ok_or_else(|| io::Error::other("its region has another owner now"))
    }

    fn undo(&mut self) -> Result<(), String> {
        // If another process owns the region now, its links are not impaired.
        self.cluster.impair(self.region, self.generation, Impairment::default());
        Ok(())
    }
}

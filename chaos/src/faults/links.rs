//! Common part of the network faults: they impair the links of a region. A drill file names the
//! layer, because netem does not affect one-sided operations.

use super::{Armed, Arming, Effect, Fault, Key, Planning, Scope, Simulated, process};
use crate::drillfile::section::Section;
use crate::drillfile::target::TargetKind;
use crate::drills::channel::{Injection, Links};
use crate::drills::undo_record::{Record, Undone};
use obol_fabric::Nanos;
use obol_fabric::host::{Cluster, Impairment};
use obol_profiles::document::Faults;
use serde_json::json;
use std::sync::Arc;
use std::{fmt, io};

/// A fault of the network.
pub(super) trait LinkFault: fmt::Debug + Default + Send + Sync + 'static {
    const NAME: &'static str;
    const EFFECT: Effect;
    const SIMULATED: Option<Simulated> = None;

    /// The impairment of a target's links. Targets of one fault still reach each other.
    fn links(&self, island: u8) -> Links;

    /// The name with its parameters.
    fn describe(&self) -> String {
        Self::NAME.to_owned()
    }

    /// The keys beside `layer`.
    fn own_keys() -> Vec<Key> {
        Vec::new()
    }

    /// Reads these keys.
    fn parse_own(_section: &mut Section<'_, '_>, _faults: &mut Faults) -> Self {
        Self::default()
    }
}

/// Adapter to [`Fault`].
#[derive(Debug)]
pub(super) struct Network<T>(pub(super) T);

impl<T: LinkFault> Fault for Network<T> {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn describe(&self) -> String {
        self.0.describe()
    }

    fn scope(&self) -> Scope {
        Scope::Links
    }

    fn effect(&self) -> Effect {
        T::EFFECT
    }

    fn keys(&self) -> Vec<Key> {
        let layer = Key { name: "layer", schema: json!({ "enum": ["fabric"] }), doc: "where it is injected" };
        T::own_keys().into_iter().chain([layer]).collect()
    }

    fn parse(&self, section: &mut Section<'_, '_>, faults: &mut Faults) -> Arc<dyn Fault> {
        let layer = section.choice("layer", &[("fabric", ())], faults);
        section.need("layer", "\"fabric\": netem does not affect one-sided operations", layer);
        Arc::new(Self(T::parse_own(section, faults)))
    }

    fn refusal(&self, planning: Planning<'_>) -> Option<&'static str> {
        if planning.deployment.network.is_some() {
            return Some(
                "the links of this cluster belong to its RDMA device, which a drill cannot impair; netem can (tests/vm)",
            );
        }
        let app = planning.targets.contains(&TargetKind::App);
        app.then_some("an app uses its agent's links; name the agent, or the node")
    }

    fn simulated(&self) -> Option<Simulated> {
        T::SIMULATED
    }

    fn orders(&self) -> &'static [&'static str] {
        &["impair"]
    }

    fn order(&self, island: u8) -> Injection {
        Injection::new("impair").with("links", &self.0.links(island))
    }

    fn takes_out(&self, order: &Injection) -> bool {
        order.get::<Links>("links").is_ok_and(|links| links.island != 0 || links.operations_fail)
    }

    fn arm(&self, order: &Injection, arming: Arming<'_>) -> Result<Box<dyn Armed>, String> {
        let links: Links = order.get("links")?;
        let whom = order.whom.as_ref().ok_or("impaired links name no process")?;
        if arming.deployment.network.is_some() || links.loss_percent > 100 {
            return Err(format!("the links of {} cannot be impaired like this", whom.name));
        }
        let process = process(order);
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

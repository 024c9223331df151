//! A whole cluster whose fabric acts instantly. A trace shows the events in the flight recorders,
//! with the time since the start, and on request the state of each process.
//!
//! ```text
//! start 3 coordinators     a cluster; they are coord-1, coord-2, ...
//! agent NAME, cache NAME   starts a member
//! run 5 ms, run 300 us     lets time pass
//! kill NAME, freeze NAME, thaw NAME, restart NAME, leave NAME
//! show                     each process's view, and whether it leads or is active
//! ```

use super::script::{Traced, number};
use crate::instant::{Cluster, Role};
use obol_fabric::{Fabric, Instant, Nanos};
use obol_membership::mutants::ActiveMutant;
use obol_membership::recorder::{EventKind, Record};
use obol_membership::{Kind, Reason, View};

#[derive(Default)]
pub(crate) struct World {
    cluster: Option<Cluster>,
    /// By node, and how many of its records are in the trace.
    names: Vec<(String, usize)>,
}

/// A record, with its meaningful numbers.
fn shown(record: &Record) -> String {
    let Record { kind, reason, a, b } = *record;
    let reason = Reason::from_repr(reason).map_or("?", |reason| reason.name());
    match kind {
        EventKind::Started => format!("started, generation {a}"),
        EventKind::Notice => format!("accuses {a} by {reason}, as {b} says"),
        EventKind::Suspect => format!("suspects {a} by {reason}"),
        EventKind::Propose => format!("proposes view {a}"),
        EventKind::Decide if b == 1 => format!("decides view {a}, adopted"),
        EventKind::Decide => format!("decides view {a}"),
        EventKind::ViewReceived if b == 1 => format!("jumps to view {a}"),
        EventKind::ViewReceived => format!("installs view {a}"),
        EventKind::Fenced => format!("has cleared all below base {a}, {b} by a fence"),
        EventKind::Clear => format!("sends CLEAR for base {a}"),
        EventKind::Active => format!("is active on view {a}"),
        EventKind::LeaseLost => format!("has lost its lease on view {a}"),
        EventKind::Takeover => format!("leads from view {a}"),
        EventKind::Joined => format!("is member {a}"),
        EventKind::Excluded => format!("was excluded as member {a}"),
        EventKind::Left => format!("has left as member {a}"),
        EventKind::Abort => format!("has to abort its proposal for view {a}"),
        _ => format!("{} {a} {b}", kind.name()),
    }
}

/// The names of a view's members.
fn members(view: &View) -> String {
    let names: Vec<&str> = view.members.iter().map(|member| member.name.as_str()).collect();
    names.join(" ")
}

/// Adds the new records to the trace.
fn note(cluster: &Cluster, names: &mut [(String, usize)], trace: &mut Vec<String>) {
    let time = cluster.now.since(Instant(1_000)).0 / 1_000;
    for (node, (name, seen)) in cluster.nodes.iter().zip(names) {
        for record in &node.records[*seen..] {
            trace.push(format!("{time:>6} us  {name:<8} {}", shown(record)));
        }
        *seen = node.records.len();
    }
}

impl World {
    fn at(&self, name: &str) -> Result<usize, String> {
        let at = self.names.iter().position(|(known, _)| known == name);
        at.ok_or_else(|| format!("there is no process {name}"))
    }

    fn cluster(&mut self) -> Result<&mut Cluster, String> {
        self.cluster.as_mut().ok_or_else(|| "no cluster was started".to_owned())
    }

    fn show(&mut self, trace: &mut Vec<String>) -> Result<(), String> {
        let names = self.names.clone();
        let cluster = self.cluster()?;
        for (at, (name, _)) in names.iter().enumerate().filter(|(at, _)| cluster.nodes[*at].alive) {
            let view = cluster.view(at);
            let leads = if cluster.is_leading(at) { ", leads" } else { "" };
            let is_active = cluster.incarnation(at).is_some() && cluster.is_active(at, view.id);
            let active = if is_active { ", active" } else { "" };
            let (id, base) = (view.id, view.base);
            trace.push(format!("{name:<8} view {id} of base {base}: {}{leads}{active}", members(view)));
        }
        Ok(())
    }

    fn leave(&mut self, at: usize) -> Result<(), String> {
        self.cluster()?.act(at, |role, now, fabric| leave(role, now, fabric));
        Ok(())
    }
}

fn leave<F: Fabric>(role: &mut Role, now: Instant, fabric: &mut F) {
    match role {
        Role::Coordinator(coordinator) => coordinator.leave(now, fabric),
        Role::Member(member) => member.leave(now, fabric),
    }
}

impl Traced for World {
    fn command(&mut self, words: &[&str], trace: &mut Vec<String>) -> Result<(), String> {
        match *words {
            ["start", count, "coordinators"] => {
                let count = number(count)?;
                self.cluster = Some(Cluster::new(count as u32, ActiveMutant::NONE));
                self.names = (1..=count).map(|n| (format!("coord-{n}"), 0)).collect();
            }
            [kind @ ("agent" | "cache"), name] => {
                let kind = if kind == "agent" { Kind::Agent } else { Kind::LeaseCache };
                self.cluster()?.add_member(kind, name);
                self.names.push((name.to_owned(), 0));
            }
            ["run", count, unit] => {
                let span = number(count)? as u64 * if unit == "ms" { 1_000_000 } else { 1_000 };
                let names = &mut self.names;
                let cluster = self.cluster.as_mut().ok_or("no cluster was started")?;
                note(cluster, names, trace);
                cluster.run_beside(Nanos(span), |cluster| note(cluster, names, trace));
            }
            [deed @ ("kill" | "freeze" | "thaw" | "restart" | "leave"), name] => {
                let at = self.at(name)?;
                match deed {
                    "kill" => self.cluster()?.kill(at),
                    "leave" => self.leave(at)?,
                    "restart" => {
                        self.cluster()?.restart_coordinator(at);
                        self.names[at].1 = 0;
                    }
                    _ => self.cluster()?.nodes[at].frozen = deed == "freeze",
                }
            }
            ["show"] => self.show(trace)?,
            _ => return Err("no such command".to_owned()),
        }
        if let Some(cluster) = &self.cluster {
            note(cluster, &mut self.names, trace);
        }
        Ok(())
    }
}

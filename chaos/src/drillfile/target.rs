//! The possible victims of a drill.

use crate::faults::order::TargetKind;
use obol_fabric::Name;
use obol_membership::Kind;

/// Possible victims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its name in the drill.
    pub name: String,
    /// The kind of process.
    pub kind: TargetKind,
    /// The selection among them.
    pub select: Select,
    /// For a lease cache: select the one that renews this target's leases.
    pub serving: Option<String>,
}

impl Target {
    /// The kind of the processes among which it selects.
    pub fn process_kind(&self) -> Kind {
        match self.kind {
            TargetKind::App => Kind::App,
            TargetKind::Agent | TargetKind::Node => Kind::Agent,
            TargetKind::Coordinator => Kind::Coordinator,
            TargetKind::LeaseCache => Kind::LeaseCache,
        }
    }
}

/// The selection among the processes of a kind, made for each repetition from the drill's seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    One,
    /// Every one.
    All,
    /// This many.
    Fixed(u32),
    /// A percentage, rounded down, at least one.
    Percent(u32),
    /// As many as can be lost without losing the majority.
    Minority,
    /// More than half.
    Majority,
    /// The leading coordinator.
    Leader,
    /// The process of this name.
    Named(Name),
}

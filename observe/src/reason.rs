//! Why a cluster is not healthy.

use crate::absence::{Absence, shown_fates};
use obol_fabric::{Incarnation, Name, ViewId};
use std::collections::BTreeMap;

/// Why a cluster is not healthy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// In words.
    pub text: String,
    /// The same for a program.
    pub fault: Fault,
    /// The members that it is about; none if it is about the cluster.
    pub names: Vec<Name>,
}

/// What a reason is about, as far as more can be said of it ([`crate::advice`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// These processes are not there, for the same cause.
    Absent(Absence, Vec<String>),
    /// No majority of the coordinators runs: these are down, and it is lost with this many of them.
    Majority {
        /// Coordinators that are down.
        down: Vec<String>,
        /// How many of them may be down.
        spare: usize,
    },
    /// These coordinators left and still count for the majority.
    Counted(Vec<String>),
    /// These members failed, the first at this time in seconds since 1970, and did not come back.
    Missed(u64),
    /// A process is stopped.
    Frozen {
        name: Name,
        /// Its pid, on its host.
        pid: u32,
        /// The number of its host.
        host: u8,
        /// Its incarnation, as far as it knows.
        who: Incarnation,
    },
    /// A program's agent is gone.
    NoAgent(Name),
    /// A process runs and is not a member.
    NoMember(Name),
    /// A process does not know the newest view.
    Behind(Name, ViewId),
    /// A program's lease has ended.
    NoLease(Name),
    /// The gateway of this host, and its pid if it runs.
    Gateway(Option<u32>),
    /// The network between this host and another one, by what is heard of its pulses.
    Pulses,
    /// No program may act, because every lease has ended.
    Ended,
    /// The text says what to do about the other reasons.
    ToDo,
    /// The text says all.
    Other,
}

impl Fault {
    /// Its section in docs/alerts.md; `None` if it is that of the cluster's health.
    pub(crate) const fn section(&self) -> Option<&'static str> {
        match self {
            Self::Frozen { .. } => Some("ObolProcessFrozen"),
            Self::Majority { .. } | Self::Ended => Some("ObolUnavailable"),
            Self::Gateway(_) => Some("ObolGatewayDown"),
            Self::Pulses => Some("ObolPathLost"),
            _ => None,
        }
    }
}

impl Fault {
    /// The members that it names.
    fn names(&self) -> Vec<Name> {
        match self {
            Self::Absent(_, names) | Self::Majority { down: names, .. } | Self::Counted(names) => {
                names.iter().filter_map(|name| Name::new(name).ok()).collect()
            }
            Self::Frozen { name, .. }
            | Self::NoAgent(name)
            | Self::NoMember(name)
            | Self::Behind(name, _)
            | Self::NoLease(name) => vec![*name],
            Self::Missed(_) | Self::Gateway(_) | Self::Pulses | Self::Ended | Self::ToDo | Self::Other => {
                Vec::new()
            }
        }
    }
}

impl Reason {
    pub(crate) fn new(fault: Fault, text: impl Into<String>) -> Self {
        let names = fault.names();
        Self { text: text.into(), fault, names }
    }

    /// It is about these, too.
    pub(crate) fn about(mut self, names: impl IntoIterator<Item = Name>) -> Self {
        for name in names {
            if !self.names.contains(&name) {
                self.names.push(name);
            }
        }
        self
    }

    pub(crate) fn to_do(text: impl Into<String>) -> Self {
        Self::new(Fault::ToDo, text)
    }

    pub(crate) fn other(text: impl Into<String>) -> Self {
        Self::new(Fault::Other, text)
    }
}

impl Absence {
    /// A reason for each absence of these names. What is not known otherwise is down; `fates` says how
    /// some of these ended.
    pub(crate) fn reasons<'n>(
        names: impl IntoIterator<Item = &'n str>,
        absent: &BTreeMap<String, Self>,
        fates: &BTreeMap<String, String>,
    ) -> Vec<Reason> {
        let mut groups: BTreeMap<Self, Vec<&str>> = BTreeMap::new();
        for name in names {
            groups.entry(absent.get(name).copied().unwrap_or(Self::Down)).or_default().push(name);
        }
        groups
            .into_iter()
            .map(|(absence, names)| {
                let how = if absence == Self::Down { shown_fates(&names, fates) } else { String::new() };
                let text = format!("{} {}{how}", names.join(", "), absence.text(names.len()));
                Reason::new(Fault::Absent(absence, names.into_iter().map(str::to_owned).collect()), text)
            })
            .collect()
    }
}

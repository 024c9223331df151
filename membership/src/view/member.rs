//! Members: what they are, how they come and how they go.

use crate::metrics::Counter;
use obol_fabric::{Address, Incarnation, Layout, Limits, Name, Release, ViewId};
use serde::{Deserialize, Serialize};
use strum::{FromRepr, IntoStaticStr};

/// What a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
#[repr(u8)]
pub enum Kind {
    /// Proposer and acceptor.
    Coordinator = 1,
    /// Runs the core on an app node; the lease page that its attached programs read is its own.
    Agent = 2,
    /// An application: embedded (its own page) or attached to an agent.
    App = 3,
    /// Renews the leases of others on the strength of its own.
    LeaseCache = 4,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Coordinator, Self::Agent, Self::App, Self::LeaseCache];

    /// The name that operators see.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Whether members of this kind act under a lease. Coordinators have none, and a cache's lease
    /// only serves others.
    pub const fn acts(self) -> bool {
        matches!(self, Self::Agent | Self::App)
    }

    /// The kind with this number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == number)
    }
}

/// Why a member is reported as failed: the detector that suspects it, or the event that ended it
/// (protocol, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, FromRepr, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
#[repr(u8)]
pub enum Reason {
    /// The kernel reported the end of the process.
    Deadbeat = 1,
    /// Its heartbeat stood still.
    Heartbeat = 2,
    /// Its host did not answer.
    Timeout = 3,
    /// It was removed with its agent.
    Host = 4,
    /// A later process took its place.
    Replaced = 5,
    /// Its process lives, but it broke its promise of progress.
    Progress = 6,
}

impl Reason {
    /// The name that operators see.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Counts suspicions for this reason at the process that raised them.
    pub const fn suspicions(self) -> Counter {
        match self {
            Self::Progress => Counter::ProgressSuspicions,
            Self::Deadbeat | Self::Heartbeat | Self::Timeout | Self::Host | Self::Replaced => {
                Counter::HeartbeatSuspicions
            }
        }
    }
}

/// One incarnation of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// Its identity.
    pub incarnation: Incarnation,
    pub kind: Kind,
    /// What operators call it.
    pub name: Name,
    /// Where its memory is.
    pub address: Address,
    /// The agent whose lease an attached app reads; [`Incarnation::NONE`] for all others.
    pub host: Incarnation,
    /// The token of its join.
    pub token: u64,
    /// A coordinator's number, from 1; 0 for all others.
    pub proposer: u16,
    /// The release that its process is of, as far as it matters to others; see [`View::release`].
    ///
    /// [`View::release`]: super::View::release
    pub release: Release,
}

impl Member {
    /// Whether programs act under this member's own lease page. A cache's page only serves other
    /// pages.
    pub fn is_holder(&self) -> bool {
        self.kind.acts() && self.has_core()
    }

    /// What it was when it asked to join.
    pub const fn newcomer(&self) -> Newcomer {
        let Self { kind, name, address, host, token, proposer, release, .. } = *self;
        Newcomer { kind, name, address, host, token, proposer, release }
    }

    /// Whether it runs a machine of its own.
    pub fn has_core(&self) -> bool {
        self.host == Incarnation::NONE
    }
}

/// A newcomer, as admitted by a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Newcomer {
    pub kind: Kind,
    pub name: Name,
    pub address: Address,
    pub host: Incarnation,
    pub token: u64,
    pub proposer: u16,
    pub release: Release,
}

impl Newcomer {
    /// A process, other than a coordinator, that runs a machine of its own.
    pub const fn new(kind: Kind, name: Name, address: Address, token: u64) -> Self {
        Self { kind, name, address, host: Incarnation::NONE, token, proposer: 0, release: Release::THIS }
    }

    /// The member that it becomes.
    pub const fn admitted(self, incarnation: Incarnation) -> Member {
        let Self { kind, name, address, host, token, proposer, release } = self;
        Member { incarnation, kind, name, address, host, token, proposer, release }
    }

    /// Whether the other one is the same process: a retry, or a later life in the same seat.
    pub fn is_same(&self, other: &Self) -> bool {
        let seat = |address: Address| Address { generation: 0, ..address };
        self.token == other.token || seat(self.address) == seat(other.address)
    }

    /// Whether the layout has such a seat and number.
    pub fn fits(&self, layout: &Layout) -> bool {
        let Limits { seats, proposers, .. } = *layout.limits();
        u32::from(self.address.seat) < seats && u32::from(self.proposer) <= proposers
    }
}

/// A former member, remembered so that a late copy of its join does not bring it back, and so that
/// readers of the view can name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Departed {
    /// The token of its join.
    pub token: u64,
    pub incarnation: Incarnation,
    /// What operators called it.
    pub name: Name,
    pub kind: Kind,
    /// The first view without it.
    pub at: ViewId,
    /// Whether it left at its own request.
    pub left: bool,
}

impl Departed {
    /// The record of a member that is removed by view `at`.
    pub const fn of(m: &Member, at: ViewId, left: bool) -> Self {
        Self { token: m.token, incarnation: m.incarnation, name: m.name, kind: m.kind, at, left }
    }
}

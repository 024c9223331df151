//! Acts on a simulated cluster and their times: the vocabulary of fault schedules, recorded runs
//! and scripts.

use serde::{Deserialize, Serialize};

/// A fault, or a request of an operator or program. Nodes are numbered as in [`super::Scenario`],
/// seats from 1, hosts that exchange pulses and their paths from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// The process of a node ends.
    Kill(u32),
    /// It starts again.
    Start(u32),
    /// It freezes; its memory still answers.
    Freeze(u32),
    /// It resumes.
    Thaw(u32),
    /// The link from the first node to the second is cut.
    Cut(u32, u32),
    /// The link is restored.
    Heal(u32, u32),
    /// The link from the first node to the second is late by this many nanoseconds, and loses datagrams in
    /// bursts: of a thousand, how many make a good link bad and a bad one good, and how many are lost while
    /// it is good and while it is bad ([`obol_fabric_sim::Degraded`]). All zero restores it.
    Degrade(u32, u32, u64, [u32; 4]),
    /// A program takes a seat of an agent and requests to join.
    Attach(u32, u16),
    /// A program ends.
    KillProgram(u32, u16),
    FreezeProgram(u32, u16),
    /// It resumes.
    ThawProgram(u32, u16),
    /// A program makes no progress any more, although it runs.
    HangProgram(u32, u16),
    /// It makes progress again.
    UnhangProgram(u32, u16),
    /// A program requests to leave.
    LeaveProgram(u32, u16),
    /// The process of a node requests to leave.
    Leave(u32),
    /// An operator requests leases of this duration in nanoseconds from a set of coordinators (one
    /// bit each).
    SetLease(u64, u32),
    /// The watchers of this seat get a notice that its process may be dead.
    Suspect(u32, u16),
    /// A program, or the node's embedded app (seat 0), begins work of this duration in nanoseconds.
    Work(u32, u16, u64),
    /// A program, or the node's embedded app (seat 0), requests confirmation of its view.
    Confirm(u32, u16),
    /// Copies of all joins that may still be valid arrive at all coordinators.
    RepeatJoins,
    /// A copy of the announcement of the view after the one that a node knows arrives there, late, with
    /// its CLEAR if one was sent.
    LateView(u32),
    /// The current leader ends.
    KillLeader,
    /// An operator requests that a coordinator becomes an acceptor, or stops being one.
    SetAcceptor(u32, bool),
    /// The path with this number from the first host to the second loses all pulses.
    CutPath(u32, u32, u16),
    /// The path is restored.
    HealPath(u32, u32, u16),
    /// What is sent on the path from now on takes this many nanoseconds more.
    DelayPath(u32, u32, u16, u64),
    /// A host stops, with all its processes.
    PauseHost(u32),
    /// It continues.
    ResumeHost(u32),
    /// The gateway of a host ends, and another one starts.
    RestartGateway(u32),
}

impl Act {
    /// Whether it concerns this node.
    pub const fn is_at(self, node: u32) -> bool {
        match self {
            Self::Kill(n)
            | Self::Start(n)
            | Self::Freeze(n)
            | Self::Thaw(n)
            | Self::Leave(n)
            | Self::LateView(n)
            | Self::Attach(n, _)
            | Self::KillProgram(n, _)
            | Self::FreezeProgram(n, _)
            | Self::ThawProgram(n, _)
            | Self::HangProgram(n, _)
            | Self::UnhangProgram(n, _)
            | Self::LeaveProgram(n, _)
            | Self::Suspect(n, _)
            | Self::SetAcceptor(n, _)
            | Self::Confirm(n, _)
            | Self::Work(n, ..) => n == node,
            Self::Cut(from, to) | Self::Heal(from, to) | Self::Degrade(from, to, ..) => {
                from == node || to == node
            }
            Self::SetLease(..)
            | Self::KillLeader
            | Self::RepeatJoins
            | Self::CutPath(..)
            | Self::HealPath(..)
            | Self::DelayPath(..)
            | Self::PauseHost(_)
            | Self::ResumeHost(_)
            | Self::RestartGateway(_) => false,
        }
    }
}

/// The time of an act: true time, and the number of steps of the world before it at that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timed {
    /// Nanoseconds of true time.
    pub at: u64,
    /// Steps at that very time that come first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub after: u32,
    #[serde(rename = "do")]
    pub act: Act,
}

const fn is_zero(number: &u32) -> bool {
    *number == 0
}

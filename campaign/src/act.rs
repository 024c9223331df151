//! Acts on a simulated cluster and their times: the vocabulary of fault schedules, recorded runs
//! and scripts.

use super::driver::Driver;
use super::marks::Mark;
use super::oracle::Verdict;
use obol_fabric_sim::Degraded;
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

impl Driver {
    /// The mark of an act, if it has an effect now.
    fn mark_of(&self, act: Act) -> Option<Mark> {
        let coordinates = |n: u32| n < self.scenario.coordinators;
        let has = |n: u32, s: u16| self.programs(n).contains(&s);
        Some(match act {
            Act::Kill(n) | Act::Freeze(n) if self.cluster.is_dead(n) => return None,
            Act::Kill(n) if coordinates(n) => Mark::KilledCoordinator,
            Act::Kill(n) if self.scenario.is_agent(n) => Mark::KilledAgent,
            Act::Kill(n) if self.scenario.is_cache(n) => Mark::KilledCache,
            Act::Kill(_) => Mark::KilledApp,
            Act::Start(n) if self.cluster.is_dead(n) => Mark::Restarted,
            Act::Freeze(n) if coordinates(n) => Mark::FrozenCoordinator,
            Act::Freeze(n) if self.scenario.is_cache(n) => Mark::FrozenCache,
            Act::Freeze(_) => Mark::FrozenMember,
            Act::Cut(..) => Mark::LinkCut,
            Act::RepeatJoins => Mark::JoinsRepeated,
            Act::LateView(n) if self.missed_view(n).is_some() => Mark::LateView,
            Act::Attach(n, s) if !self.cluster.is_dead(n) && !has(n, s) => Mark::Attached,
            Act::KillProgram(n, s) if has(n, s) => Mark::KilledProgram,
            Act::FreezeProgram(n, s) if has(n, s) => Mark::FrozenProgram,
            Act::HangProgram(n, s) if has(n, s) => Mark::HungProgram,
            Act::LeaveProgram(n, s) if has(n, s) => Mark::AskedToLeave,
            Act::PauseHost(_) => Mark::HostPaused,
            Act::RestartGateway(_) => Mark::GatewayRestarted,
            Act::Suspect(n, s) if s == 0 && self.cluster.runs(n) || has(n, s) => Mark::Suspected,
            _ => return None,
        })
    }

    /// Executes and records it.
    pub(super) fn act(&mut self, act: Act) -> Verdict {
        let (at, after) = self.moment();
        self.record.push(Timed { at, after, act });
        if let Some(mark) = self.mark_of(act) {
            self.oracle.marks.hit(mark);
        }
        match act {
            Act::Kill(n) => self.kill(n)?,
            Act::Start(n) => self.restart(n)?,
            Act::Freeze(n) => self.freeze(n),
            Act::Thaw(n) => self.thaw(n),
            Act::Cut(a, b) => self.cut(a, b),
            Act::Heal(a, b) => self.heal(a, b),
            Act::Degrade(a, b, delay, [worsens, recovers, good, bad]) => {
                self.degrade(a, b, Degraded { delay, turns: [worsens, recovers], lost: [good, bad] });
            }
            Act::Attach(n, s) => self.attach(n, s)?,
            Act::KillProgram(n, s) => self.kill_program(n, s)?,
            Act::FreezeProgram(n, s) => self.cluster.freeze_program(n, s),
            Act::ThawProgram(n, s) => self.thaw_program(n, s),
            Act::HangProgram(n, s) => self.cluster.hang_program(n, s),
            Act::UnhangProgram(n, s) => self.cluster.unhang_program(n, s),
            Act::LeaveProgram(n, s) => self.leave_program(n, s),
            Act::Leave(n) => self.leave(n)?,
            Act::SetLease(lease, to) => self.set_lease(lease, to),
            Act::Suspect(n, s) => self.suspect(n, s),
            Act::SetAcceptor(n, decides) => self.set_acceptor(n, decides),
            Act::Work(n, s, span) => self.begin_work(n, s, span),
            Act::Confirm(n, s) => self.begin_confirm(n, s)?,
            Act::RepeatJoins => self.repeat_joins(),
            Act::LateView(n) => self.late_view(n),
            Act::CutPath(from, to, path) => self.set_path(from, to, path, true),
            Act::HealPath(from, to, path) => self.set_path(from, to, path, false),
            Act::DelayPath(from, to, path, delay) => self.delay_path(from, to, path, delay),
            Act::PauseHost(host) => self.pause_host(host),
            Act::ResumeHost(host) => self.resume_host(host)?,
            Act::RestartGateway(host) => self.restart_gateway(host)?,
            Act::KillLeader => {
                if let Some(leader) = self.leader() {
                    self.kill(leader)?;
                }
            }
        }
        Ok(())
    }
}

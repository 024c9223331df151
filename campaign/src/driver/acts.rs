//! Executes acts.

use super::Driver;
use crate::act::{Act, Timed};
use crate::marks::Mark;
use crate::oracle::Verdict;
use obol_fabric_sim::Degraded;

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
    pub(crate) fn act(&mut self, act: Act) -> Verdict {
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

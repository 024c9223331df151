//! Arms a fault agent: checks every guard, holds the targets, and writes the undo record.

use super::{ArmedCue, ArmedInjection, FaultAgent, FaultAgentError, PRIORITY};
use crate::drillfile::guards::Guards;
use crate::drills::agent::channel::Arm;
use crate::drills::agent::core_warmer::CoreWarmer;
use crate::drills::agent::cue::Token;
use crate::drills::agent::halt;
use crate::drills::agent::lock::lock;
use crate::drills::agent::undo::{self, LeftBehind};
use crate::drills::agent::warden::Warden;
use crate::drills::victims::guard;
use crate::drills::victims::select::{Chosen, merged};
use crate::faults::order::{INJECTIONS_MAX, TargetProcess};
use crate::faults::{self, Arming, Record};
use obol_fabric::Nanos;
use obol_fabric::host::{Held, Process, clock};
use obol_observe::{Process as Observed, Snapshot};
use std::collections::BTreeSet;
use std::fs;

impl FaultAgent<'_> {
    pub(super) fn arm(&mut self, arm: Arm) -> Result<(), String> {
        if self.record.is_some() {
            return Err("it is armed already, or its faults are not undone yet".to_owned());
        }
        if let Some(reason) = halt::in_force(self.observer.cluster().dir()) {
            return Err(reason);
        }
        let token = Token::from_hex(&arm.token).ok_or("the token is invalid")?;
        if arm.injections.is_empty() || arm.injections.len() > INJECTIONS_MAX {
            return Err(format!("{} faults; one cue injects 1 to {INJECTIONS_MAX}", arm.injections.len()));
        }
        self.require_warden()?;
        if arm.locks {
            self.keep_others_out()?;
        }
        let snapshot = self.observer.snapshot();
        // Reading on would take a core from what the faults cause.
        self.observer.rest();
        self.guard(&arm, &snapshot)?;
        let expires = clock::now() + Nanos(arm.expires_in);
        let mut injections = Vec::new();
        let me = Process::current().map_err(|error| error.to_string())?;
        let restarted = |whom: &&TargetProcess| arm.restart.contains(&whom.name);
        let ending = arm.injections.iter().filter_map(|injection| injection.whom.as_ref()).filter(restarted);
        self.ending = ending.map(|whom| Process { pid: whom.pid, started: whom.started }).collect();
        let mut record = Record::new((me.pid, me.started), arm.restart);
        let mut stalled = BTreeSet::new();
        for injection in arm.injections {
            let kind = faults::ordered(&injection.fault)
                .ok_or_else(|| format!("this fault agent has no fault {:?}", injection.fault))?;
            let arming = Arming {
                cluster: self.observer.cluster(),
                deployment: self.observer.deployment(),
                snapshot: &snapshot,
                program: self.program,
                allowed: &arm.allowed,
                held: injection.whom.as_ref().map(hold).transpose()?,
                stalled: &mut stalled,
                record: &mut record,
            };
            let armed = kind.arm(&injection, arming)?;
            injections.push(ArmedInjection { injection, armed });
        }
        record
            .write(self.observer.cluster().dir())
            .map_err(|error| format!("the undo record could not be written: {error}"))?;
        self.record = Some(record);
        // A single fault has no skew.
        let cores =
            || injections.iter().filter_map(|one| one.injection.whom.as_ref()).flat_map(cores).collect();
        let core_warmer = (injections.len() > 1).then(|| CoreWarmer::on(cores(), PRIORITY));
        self.state.lock().armed = Some(ArmedCue { token, expires, injections, core_warmer });
        Ok(())
    }

    /// Starts another warden if that was killed. Nothing is injected without one.
    fn require_warden(&mut self) -> Result<(), String> {
        if !self.warden.is_there() {
            let started = Warden::start(self.program, self.root, self.observer.cluster().name());
            self.warden = started.map_err(|error| FaultAgentError::Warden(error).to_string())?;
        }
        Ok(())
    }

    /// Takes the lock of this host's drills, and undoes what an earlier one left behind.
    fn keep_others_out(&mut self) -> Result<(), String> {
        if self.lock.is_some() {
            return Ok(());
        }
        let dir = self.observer.cluster().dir().to_owned();
        let lock = lock(&dir).map_err(|error| error.to_string())?;
        let undone = undo::recover(self.observer).map_err(|error| format!("{}: {error}", dir.display()))?;
        if !undone.failed.is_empty() {
            return Err(LeftBehind(undone.failed).to_string());
        }
        self.lock = Some(lock);
        Ok(())
    }

    /// Checks every guard against this process's own observations.
    fn guard(&self, arm: &Arm, snapshot: &Snapshot) -> Result<(), String> {
        let deployment = self.observer.deployment();
        let mut out = Vec::new();
        let chosen = |process: &Observed| Chosen {
            target: process.name.to_string(),
            process: process.clone(),
            supervised: false,
        };
        let mut hit = arm.injections.len() + arm.elsewhere.len();
        for injection in &arm.injections {
            let kind = faults::ordered(&injection.fault);
            if kind.is_some_and(|kind| kind.hits_host(injection)) {
                // All processes of this host.
                let all = || snapshot.processes.iter().filter(|process| process.alive);
                hit += all().count().saturating_sub(1);
                if kind.is_some_and(|kind| kind.takes_out(injection)) {
                    out.extend(all().map(chosen));
                }
                continue;
            }
            let Some(whom) = &injection.whom else { continue };
            let process = Process { pid: whom.pid, started: whom.started };
            let found =
                snapshot.processes.iter().find(|p| p.process == process && p.name.as_str() == whom.name);
            let found = found.ok_or_else(|| {
                format!("{} (pid {}) is not a process of this cluster", whom.name, whom.pid)
            })?;
            // Unknown orders are rejected when they are armed.
            if kind.is_some_and(|kind| kind.takes_out(injection)) {
                out.push(chosen(found));
            }
        }
        for other in &arm.elsewhere {
            let is = |p: &&Observed| {
                (p.name.as_str(), p.region, p.seat) == (other.name.as_str(), other.region, other.seat)
            };
            // One that is not seen from here is not left either.
            out.extend(snapshot.remote.iter().find(is).map(chosen));
        }
        let snapshot = &merged(snapshot.clone());
        let guards = Guards {
            max_targets: arm.max_targets,
            keep_acceptors: arm.keep_acceptors,
            keep_lease_caches: arm.keep_lease_caches,
            deny_hosts: arm.deny_hosts.clone(),
            ..Guards::default()
        };
        let out: Vec<&Chosen> = out.iter().collect();
        let mut answers = guard::check(&guards, snapshot, &out, hit);
        answers.push(guard::environment(&arm.environment, deployment));
        match answers.into_iter().find(|answer| !answer.allows) {
            Some(answer) => Err(format!("guard {}: {}", answer.guard, answer.says)),
            None => Ok(()),
        }
    }
}

/// The cores that a process last ran on.
fn cores(whom: &TargetProcess) -> BTreeSet<u32> {
    Process { pid: whom.pid, started: whom.started }.cores()
}

/// Holds a process by pidfd after checking that it is the intended one.
fn hold(whom: &TargetProcess) -> Result<Held, String> {
    let who = format!("{} (pid {})", whom.name, whom.pid);
    let held = Process { pid: whom.pid, started: whom.started }
        .hold()
        .map_err(|error| format!("{who} cannot be held: {error}"))?;
    // After the pidfd was opened, the pid cannot be reused.
    let program = fs::read_link(format!("/proc/{}/exe", whom.pid))
        .map_err(|error| format!("the program of {who} cannot be read: {error}"))?;
    // The runner cannot see programs of other hosts; pid and start say which process it is.
    if let Some(wanted) = whom.program.as_ref().filter(|wanted| **wanted != program) {
        return Err(format!("{who} runs {}, not {}", program.display(), wanted.display()));
    }
    Ok(held)
}

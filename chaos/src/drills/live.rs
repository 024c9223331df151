//! Drills on real processes: an observer, a fault agent, and the multicast cue.

use super::channel::{Arm, Injection, Order, Reply, Stamp, TargetProcess};
use super::cue::{REGION_KIND, Token};
use super::journal::Host;
use super::plan::program;
use super::remote::{Invocation, Remote, RemoteError};
use super::runner::{Options, RunError};
use super::select::{Chosen, Supervisor};
use super::subject::System;
use crate::control::{self, Request};
use crate::drillfile::{Drill, Step};
use crate::faults::Scope;
use obol_fabric::shm::Endpoint;
use obol_fabric::{Drive as _, Fabric as _, Group, Name, Nanos, Owner, Wait};
use obol_observe::{Observer, Process};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A cue that arrives after this time is late.
const CUE_EXPIRES: Nanos = Nanos::from_secs(2);
/// Timeout for the fault agent's report of the cue or its expiry.
const FIRED_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for the fault agent's undo.
const UNDONE_TIMEOUT: Duration = Duration::from_secs(10);

/// A cluster of processes.
pub(super) struct Live {
    observer: Observer,
    supervisor: Supervisor,
    endpoint: Endpoint,
    fault_agent: Remote,
    /// The token of the next cue.
    token: Option<Token>,
    ssh: Option<String>,
}

impl Live {
    /// Starts a fault agent.
    pub(super) fn start(
        root: &Path,
        cluster: Name,
        drill: &Drill,
        options: &Options,
        observer: Observer,
        supervisor: Supervisor,
    ) -> Result<Self, RunError> {
        let name = Name::new("drill-runner").unwrap_or_default();
        let owner = Owner { kind: REGION_KIND, name, region: None, groups: 0 };
        let endpoint = Endpoint::open(observer.cluster(), owner, Wait::Block)?;
        let invocation = Invocation { program: &options.program, root, cluster };
        let fault_agent = match &options.ssh {
            Some(ssh) => Remote::by_ssh(ssh, invocation, drill.guards.dead_man)?,
            None => Remote::start(invocation, observer.cluster().dir(), drill.guards.dead_man)?,
        };
        let ssh = options.ssh.as_ref().map(|ssh| ssh.host.clone());
        Ok(Self { observer, supervisor, endpoint, fault_agent, token: None, ssh })
    }
}

impl System for Live {
    type Subject = Observer;

    fn subject(&mut self) -> &mut Observer {
        &mut self.observer
    }

    fn supervisor(&self) -> Supervisor {
        self.supervisor
    }

    fn stamps(&self, process: &Process) -> bool {
        // A program in a seat reads its agent's page. Programs of `up` stamp it themselves; for
        // others the agent's stamp counts.
        process.seat == 0 || self.supervisor.started(process)
    }

    fn host(&self) -> Host {
        Host::this()
    }

    fn ssh(&self) -> Option<String> {
        self.ssh.clone()
    }

    fn arm(
        &mut self,
        drill: &Drill,
        step: &Step,
        chosen: &[Chosen],
        restart: Vec<String>,
    ) -> Result<(), RunError> {
        let token = Token::draw().map_err(|error| RunError::Io(PathBuf::from("/dev/urandom"), error))?;
        let guards = &drill.guards;
        self.fault_agent.arm(Arm {
            token: token.to_hex(),
            expires_in: CUE_EXPIRES.0,
            dead_man: guards.dead_man.0,
            environment: drill.environment.to_string(),
            max_targets: guards.max_targets,
            keep_acceptors: guards.keep_acceptors,
            keep_lease_caches: guards.keep_lease_caches,
            deny_hosts: guards.deny_hosts.clone(),
            allow_clock_step: guards.allow_clock_step,
            injections: injections(step, chosen)?,
            restart,
        })?;
        self.token = Some(token);
        Ok(())
    }

    fn fire(&mut self) -> Result<Option<Vec<Stamp>>, RunError> {
        // The fault agent stamps its own injections; nothing here delays the failover.
        if let Some(token) = self.token.take() {
            self.endpoint.multicast(Group::Drills, &token.cue());
            self.endpoint.flush();
        }
        match self.fault_agent.reply(FIRED_TIMEOUT, "report the cue")? {
            Reply::Fired { stamps } => Ok(Some(stamps)),
            Reply::Expired => Ok(None),
            other => Err(RemoteError::Answer(other).into()),
        }
    }

    fn undo_early(&mut self) -> Result<(), RunError> {
        Ok(self.fault_agent.order(&Order::Undo)?)
    }

    fn undone(&mut self, lasts: Nanos) -> Result<Vec<String>, RunError> {
        match self.fault_agent.reply(lasts.to_std() + UNDONE_TIMEOUT, "undo its faults")? {
            Reply::Undone { failed } => Ok(failed),
            other => Err(RemoteError::Answer(other).into()),
        }
    }

    fn start(&mut self, name: String) -> Result<(), RunError> {
        // The supervisor refuses until the kernel has reaped the old process.
        control::request(self.observer.cluster().dir(), &Request::Start { name })?;
        Ok(())
    }

    fn restored(&mut self) -> Result<(), RunError> {
        Ok(self.fault_agent.order(&Order::Undone)?)
    }
}

/// The orders of a step.
fn injections(step: &Step, chosen: &[Chosen]) -> Result<Vec<Injection>, RunError> {
    let mut injections = Vec::new();
    for (island, fault) in (1..).zip(&step.faults) {
        let order = Injection { lasts: fault.lasts.map(|span| span.0), ..fault.kind.order(island) };
        let scope = fault.kind.scope();
        if scope == Scope::Host {
            injections.push(order);
            continue;
        }
        for victim in fault.victims(chosen) {
            injections.push(Injection { whom: Some(whom(&victim.process)?), ..order.clone() });
        }
    }
    Ok(injections)
}

fn whom(process: &Process) -> Result<TargetProcess, RunError> {
    let program = program(process).ok_or(RunError::Ended(process.name))?;
    let obol_fabric::host::Process { pid, started } = process.process;
    Ok(TargetProcess { name: process.name.to_string(), pid, started, program })
}

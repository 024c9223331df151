//! Why a run could not begin or continue.

use super::journal::Probed;
use crate::drills::agent::lock::LockError;
use crate::drills::agent::remote::RemoteError;
use crate::drills::agent::undo::LeftBehind;
use crate::drills::audit::approval::ApprovalError;
use crate::drills::audit::log::AuditError;
use crate::drills::victims::guard::Answer;
use crate::drills::victims::select::SelectError;
use obol_fabric::Name;
use obol_fabric::host::HostError;
use obol_node::SiteError;
use obol_node::endpoint::EndpointError;
use obol_supervise::control::ControlError;
use std::io;
use std::path::PathBuf;

/// Why a run could not begin or continue.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The cluster cannot be observed.
    #[error(transparent)]
    Observe(#[from] SiteError),
    /// The cluster is not healthy, so further faults would show nothing.
    #[error("the cluster is not healthy, which a drill requires: {}; see `obol status`", .0.join("; "))]
    NotHealthy(Vec<String>),
    /// A target ended before it could be held.
    #[error("{0} ended before it could be held; see `obol status`")]
    Ended(Name),
    /// The supervisor did not start a replacement.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The runner has no access to the fabric.
    #[error(transparent)]
    Fabric(#[from] HostError),
    /// Another drill runs, or the lock cannot be used.
    #[error(transparent)]
    Locked(#[from] LockError),
    /// A file of the cluster's directory cannot be used.
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
    /// What an earlier drill left behind cannot be undone.
    #[error(transparent)]
    Recover(#[from] LeftBehind),
    #[error("{0}")]
    Halted(String),
    /// Another user has to approve it.
    #[error(transparent)]
    Approval(#[from] ApprovalError),
    /// What is not logged must not happen.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// A guard refuses.
    #[error("refused. {}", refusals(.0))]
    Guard(Vec<Answer>),
    /// A target selects no process.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// The steady state does not hold.
    #[error("the steady state does not hold before the drill: {}", seen(.0))]
    Steady(Vec<Probed>),
    /// The fault agent does not carry out an order.
    #[error(transparent)]
    FaultAgent(#[from] RemoteError),
    /// The runner has no endpoint in its cluster.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// A gateway does not answer, so the cue would not arrive.
    #[error("the cue cannot be sent to host {0}: its gateway does not answer; see `obol status`")]
    NoWay(u8),
    /// A single fault agent cannot do.
    #[error(
        "--ssh names one host, and this cluster has {0}; each host's fault agent is started at its address (users and \
         aliases belong into your ssh configuration, or --ssh-config)"
    )]
    SeveralHosts(usize),
    /// No host is reached by ssh.
    #[error(
        "--ssh-config and --ssh-program are for hosts that are reached by ssh, and this is the only machine"
    )]
    NoSsh,
    /// A process could not be restarted.
    #[error("{0}")]
    Restart(String),
    /// The simulator has no such faults.
    #[error("the simulator has no {}; run this drill on processes, without --sim", .0.join(", no "))]
    NotSimulated(Vec<&'static str>),
    /// There is no simulated cluster.
    #[error("no simulated cluster: {0}")]
    Simulator(String),
}

fn refusals(answers: &[Answer]) -> String {
    let says: Vec<String> = answers.iter().map(|a| format!("guard {}: {}", a.guard, a.says)).collect();
    says.join("; ")
}

fn seen(probed: &[Probed]) -> String {
    let saw: Vec<&str> = probed.iter().map(|p| p.saw.as_str()).collect();
    saw.join("; ")
}

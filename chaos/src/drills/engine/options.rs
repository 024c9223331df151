//! How a drill is run, beside what its file says.

use super::audited::Accountable;
use super::progress::Line;
use crate::drillfile::Drill;
use crate::drills::agent::ssh::{Login, Ssh};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Overrides the file's repetitions.
    pub count: Option<u32>,
    /// This program, which starts fault agents.
    pub program: PathBuf,
    /// Whether faults are undone as soon as the failover has been measured, instead of at their
    /// end.
    pub undo_early: bool,
    /// The host of the fault agent, if it is another one and the cluster has only one.
    pub ssh: Option<Ssh>,
    /// The names of the hosts that may be crashed, as the operator has typed them.
    pub crash: Vec<String>,
    /// How the fault agents of a cluster's other hosts are started.
    pub login: Login,
    /// What is checked and logged of the operator's request.
    pub accountable: Accountable,
    /// Called while a repetition runs, with its progress.
    pub on_progress: Option<fn(&Line)>,
    /// Set when the operator ends the drill: lasting faults are undone at once.
    pub interrupted: Arc<AtomicBool>,
    /// Called with the reasons while a run waits for the cluster to become healthy.
    pub on_wait: Option<fn(&Drill, &[String])>,
}

impl Options {
    /// The file's repetitions, with fault agents of this program.
    pub fn new(program: PathBuf) -> Self {
        let accountable = Accountable::default();
        Self {
            count: None,
            program,
            undo_early: false,
            ssh: None,
            crash: Vec::new(),
            login: Login::new(),
            accountable,
            on_progress: None,
            interrupted: Arc::default(),
            on_wait: None,
        }
    }
}

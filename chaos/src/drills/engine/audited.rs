//! What a run leaves in the audit log, whatever its outcome.

use super::journal::{Journal, Verdict};
use super::plan::Plan;
use crate::drillfile::Drill;
use crate::drills::audit::approval::{self, Approval, ApprovalError, Source};
use crate::drills::audit::log::{AuditError, Entry, Event, Log};
use obol_fabric::Name;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// The part of an operator's request that is checked and logged.
#[derive(Clone, Debug, Default)]
pub struct Accountable {
    /// The log; `None` on clusters that a command starts for itself.
    pub log: Option<Log>,
    /// The drill's file, if it comes from one.
    pub source: Option<Source>,
}

/// Logs one run.
pub(super) struct Audited<'a> {
    what: &'a Accountable,
    root: PathBuf,
    cluster: Name,
    drill: String,
    approval: Option<Approval>,
    has_begun: bool,
}

impl<'a> Audited<'a> {
    pub(super) fn new(what: &'a Accountable, root: &Path, cluster: Name, drill: &str) -> Self {
        let root = root.to_owned();
        Self { what, root, cluster, drill: drill.to_owned(), approval: None, has_begun: false }
    }

    /// Checks the approval, if the drill needs one.
    pub(super) fn approved(&mut self, drill: &Drill) -> Result<(), ApprovalError> {
        if drill.guards.require_approval {
            self.approval = Some(approval::check(self.what.source.as_ref(), self.cluster.as_str())?);
        }
        Ok(())
    }

    fn entry(&self, event: Event) -> Entry {
        let source = self.what.source.as_ref();
        Entry {
            drill: Some(self.drill.clone()),
            file: source.map(|source| source.name.clone()),
            sha256: source.map(|source| source.sha256.clone()),
            approved_by: self.approval.as_ref().map(|approval| approval.by.name()),
            ..Entry::new(event, &self.root, self.cluster.as_str())
        }
    }

    fn append(&self, entry: Entry) -> Result<(), AuditError> {
        self.what.log.as_ref().map_or(Ok(()), |log| log.append(entry))
    }

    /// The drill passed its guards, and is about to inject.
    pub(super) fn begins(&mut self, plan: &Plan) -> Result<(), AuditError> {
        let hits = plan.steps.iter().flat_map(|step| &step.faults).flat_map(|fault| &fault.hits);
        let victims: BTreeSet<String> = hits.map(|hit| hit.process.clone()).collect();
        self.append(Entry { victims: victims.into_iter().collect(), ..self.entry(Event::Began) })?;
        self.has_begun = true;
        Ok(())
    }

    /// It ended with these results.
    pub(super) fn ended(&self, journal: &Journal) -> Result<(), AuditError> {
        let hit = journal.trials.iter().flat_map(|trial| &trial.victims);
        let victims: BTreeSet<String> = hit.map(|victim| victim.process.clone()).collect();
        let remarks = journal.remarks.join("; ");
        self.append(Entry {
            victims: victims.into_iter().collect(),
            outcome: Some(format!("{} after {} repetitions", journal.verdict.name(), journal.count)),
            reason: (journal.verdict != Verdict::Passed && !remarks.is_empty()).then_some(remarks),
            ..self.entry(Event::Ended)
        })
    }

    /// It did not begin, or was given up without results.
    pub(super) fn failed(&self, why: &dyn Display) -> Result<(), AuditError> {
        let event = if self.has_begun { Event::Ended } else { Event::Refused };
        let outcome = self.has_begun.then(|| "given up".to_owned());
        self.append(Entry { outcome, reason: Some(why.to_string()), ..self.entry(event) })
    }
}

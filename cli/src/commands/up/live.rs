//! The live view in plain lines: who is there, how the leases do, and every view change with its
//! cause and time line.

use obol_fabric::host::clock;
use obol_fabric::{Instant, Name, Nanos, ViewId};
use obol_membership::{Change, View};
use obol_observe::names::Names;
use obol_observe::table;
use obol_observe::timeline::{History, Timeline};
use obol_observe::{Health, Observer, Renewals, Snapshot};
use obol_term::output;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// A view change is reported when all survivors are active, or after this time as far as known.
const SETTLE_TIMEOUT: Nanos = Nanos::from_secs(1);
/// Between two tables.
const TABLE_EVERY: Nanos = Nanos::from_secs(5);

/// A process's stamp of a view change in JSON: how long after the first stamp of all.
#[derive(Serialize)]
struct StampJson {
    process: String,
    after_us: f64,
}

/// A stamp of the decider, likewise.
#[derive(Serialize)]
struct StepJson {
    step: &'static str,
    after_us: f64,
}

/// A view change in JSON.
#[derive(Serialize)]
struct ViewJson {
    event: &'static str,
    view: u64,
    base: u64,
    members: usize,
    leader: Option<String>,
    causes: Vec<String>,
    decided_by: Option<String>,
    stamps: Vec<StepJson>,
    received: Vec<StampJson>,
    active: Vec<StampJson>,
}

/// The summary that `up --json` ends with.
#[derive(Serialize)]
pub(crate) struct SummaryJson {
    event: &'static str,
    after_s: f64,
    view: Option<u64>,
    view_changes: u64,
    health: Health,
    reasons: Vec<String>,
    renewals_on_time: u64,
    renewals_late: u64,
    renewals_failed: u64,
}

impl SummaryJson {
    /// The same in a sentence.
    pub(crate) fn words(&self) -> String {
        format!(
            "After {:.1}s it was {} in view {}; {} renewals on time, {} late, {} failed",
            self.after_s,
            self.health.name(),
            self.view.map_or("none".to_owned(), |view| view.to_string()),
            self.renewals_on_time,
            self.renewals_late,
            self.renewals_failed
        )
    }
}

/// What the live view knows.
pub(crate) struct Live {
    cluster: Name,
    observer: Observer,
    history: History,
    json: bool,
    quiet: bool,
    began: Instant,
    names: Names,
    shown: Option<ViewId>,
    shown_health: Option<(Health, Vec<String>)>,
    /// The newest view that is not reported yet, and when it was first seen.
    waiting: Option<(Arc<View>, Instant)>,
    changes: u64,
    tabled: Option<Snapshot>,
}

impl Live {
    /// `began` is when the command began.
    pub(crate) fn new(cluster: Name, observer: Observer, json: bool, quiet: bool, began: Instant) -> Self {
        Self {
            cluster,
            observer,
            history: History::default(),
            json,
            quiet,
            began,
            names: Names::default(),
            shown: None,
            shown_health: None,
            waiting: None,
            changes: 0,
            tabled: None,
        }
    }

    /// One look.
    pub(crate) fn snapshot(&mut self) -> Snapshot {
        self.observer.snapshot()
    }

    /// Looks, and prints what is new. How the cluster is counts once it is `up`: before, some have
    /// just not begun. Gives the newest view.
    pub(crate) fn look(&mut self, up: bool) -> io::Result<Option<Arc<View>>> {
        if !self.quiet {
            output::check_read()?;
        }
        let events = self.observer.events();
        self.names.know_joined(&events);
        self.history.take(&events);
        let snapshot = self.observer.snapshot();
        let Some(view) = snapshot.view.clone() else { return Ok(None) };
        let newest = Some(Arc::clone(&view));
        self.names.know_all(&view);
        // Views may follow each other faster than they settle; a waiting one is reported before it
        // is replaced.
        if let Some((passed, _)) = self.waiting.take_if(|(waiting, _)| waiting.id != view.id) {
            self.show(&passed, &snapshot)?;
        }
        // The first view has no cause and no time line: the cluster was made so.
        if view.id > ViewId(0) && self.shown != Some(view.id) {
            let since = self.waiting.as_ref().map_or(snapshot.at, |(_, since)| *since);
            let mut holders = view.members.iter().filter(|m| m.kind.acts());
            let settled = holders.all(|m| self.history.active_from(view.id, m.name).is_some());
            self.waiting = None;
            if settled || snapshot.at.since(since) > SETTLE_TIMEOUT {
                self.show(&view, &snapshot)?;
            } else {
                self.waiting = Some((view, since));
            }
        }
        let health = (snapshot.health, snapshot.reasons.clone());
        let due = self.tabled.as_ref().is_none_or(|t| snapshot.at.since(t.at) > TABLE_EVERY);
        if up && self.waiting.is_none() && self.shown_health.as_ref() != Some(&health) {
            self.show_health(&snapshot)?;
            self.shown_health = Some(health);
        } else if up && due && !self.json && !self.quiet && self.waiting.is_none() {
            self.show_table(&snapshot)?;
        }
        Ok(newest)
    }

    fn age(&self) -> String {
        format!("{:8.3}s", clock::now().since(self.began).0 as f64 / 1e9)
    }

    fn show_health(&self, snapshot: &Snapshot) -> io::Result<()> {
        if self.quiet {
            return Ok(());
        }
        if self.json {
            #[derive(Serialize)]
            struct HealthJson<'a> {
                event: &'static str,
                health: Health,
                reasons: &'a [String],
            }
            let (health, reasons) = (snapshot.health, snapshot.reasons.as_slice());
            return output::json(&HealthJson { event: "health", health, reasons });
        }
        output::line(format_args!("{}  {}", self.age(), snapshot.health.name()))?;
        for reason in &snapshot.reasons {
            output::line(format_args!("{:11}! {reason}", ""))?;
        }
        Ok(())
    }

    fn show_table(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        output::line(format_args!("{}  {}", self.age(), table::headline(self.cluster, snapshot)))?;
        for line in table::lines(snapshot, self.tabled.as_ref()) {
            output::line(format_args!("{:11}{line}", ""))?;
        }
        self.tabled = Some(snapshot.clone());
        Ok(())
    }

    fn show(&mut self, view: &View, snapshot: &Snapshot) -> io::Result<()> {
        let before = self.shown.replace(view.id);
        self.changes += view.id.0 - before.map_or(0, |id| id.0);
        if self.quiet {
            return Ok(());
        }
        let line = self.history.view(view.id).cloned().unwrap_or_default();
        let notice = line.decider.and_then(|decider| {
            let accused = view.changes.iter().filter_map(|change| match change {
                Change::Failed { accused, .. } => Some(*accused),
                _ => None,
            });
            accused.filter_map(|who| self.history.notice(decider, who)).map(|n| n.when).min()
        });
        let stamps = stamps(&line, notice);
        let zero = stamps.first().map_or(snapshot.at, |(_, at)| *at);
        let after_us = |at: Instant| at.since(zero).as_micros_f64();
        if self.json {
            let rows = |of: &BTreeMap<Name, Instant>| -> Vec<StampJson> {
                let row = |(name, at): (&Name, &Instant)| StampJson {
                    process: name.to_string(),
                    after_us: after_us(*at),
                };
                of.iter().map(row).collect()
            };
            return output::json(&ViewJson {
                event: "view",
                view: view.id.0,
                base: view.base.0,
                members: view.members.len(),
                leader: snapshot.leader_name().map(|name| name.to_string()),
                causes: self.names.causes(view),
                decided_by: line.decider.map(|name| name.to_string()),
                stamps: stamps.iter().map(|&(step, at)| StepJson { step, after_us: after_us(at) }).collect(),
                received: rows(&line.received),
                active: rows(&line.active),
            });
        }
        let skipped = match before {
            Some(shown) if view.id > shown.next() => format!(" (after {} more)", view.id.0 - shown.next().0),
            _ => String::new(),
        };
        output::line(format_args!(
            "{}  view {}{skipped}  {}",
            self.age(),
            view.id,
            self.names.causes(view).join("; ")
        ))?;
        let mut parts: Vec<String> =
            stamps.iter().map(|(what, at)| format!("{what} +{}", at.since(zero))).collect();
        if let Some((_, by_fence)) = line.fenced {
            parts.push(format!("({by_fence} holders by fence)"));
        }
        if !parts.is_empty() {
            let by = line.decider.map_or(String::new(), |name| format!("{name}: "));
            output::line(format_args!("{:11}{by}{}", "", parts.join("  ")))?;
        }
        let mut active: Vec<(Name, Instant)> = line.active.iter().map(|(n, at)| (*n, *at)).collect();
        active.sort_by_key(|(_, at)| *at);
        if !active.is_empty() {
            let shown: Vec<String> =
                active.iter().map(|(name, at)| format!("{name} +{}", at.since(zero))).collect();
            output::line(format_args!("{:11}active: {}", "", shown.join("  ")))?;
        }
        Ok(())
    }

    /// What happened in all.
    pub(crate) fn summary(&mut self) -> SummaryJson {
        let snapshot = self.observer.snapshot();
        // Of all lives: the processes that are left are not those that ran.
        let Renewals { on_time, late, failed } = self.observer.renewals();
        SummaryJson {
            event: "summary",
            after_s: clock::now().since(self.began).0 as f64 / 1e9,
            view: snapshot.view.as_ref().map(|view| view.id.0),
            view_changes: self.changes,
            health: snapshot.health,
            renewals_on_time: on_time,
            renewals_late: late,
            renewals_failed: failed,
            reasons: snapshot.reasons,
        }
    }
}

/// The decider's stamps in the order of time.
fn stamps(line: &Timeline, notice: Option<Instant>) -> Vec<(&'static str, Instant)> {
    let all = [
        ("notice", notice),
        ("propose", line.propose),
        ("decide", line.decide),
        ("fence", line.fenced.map(|(at, _)| at)),
        ("clear", line.clear),
    ];
    all.into_iter().filter_map(|(what, at)| Some((what, at?))).collect()
}

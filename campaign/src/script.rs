//! A recorded run: the seed that draws its cluster, and all acts of the adversary. A recorded run
//! is replayed step by step; a shrunk one is a readable scenario that can be kept and edited.

use super::act::{Act, Timed};
use super::driver::{Driver, PROGRAMS};
use super::faults::Faults;
use super::oracle::Verdict;
use super::scenario::Scenario;
use obol_membership::ActiveMutant;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Acts of a script at most, far above any drawn run.
const ACTS_MAX: usize = 100_000;
/// Longest time, span or lease in a script: an hour, far above any drawn run.
const TIME_MAX: u64 = 3_600_000_000_000;

/// A run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// Why it was kept.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Draws cluster, clocks and network.
    pub seed: u64,
    /// Fingerprint of what the seed drew when this was written, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The row of the table of invariants that it broke.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<u8>,
    /// The planted bug that it shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutant: Option<String>,
    /// Whether the fabric has no loss and delay beyond the usual.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub calm: bool,
    /// Nodes that never run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<u32>,
    /// When the faults stop, in nanoseconds of true time.
    pub faults_end: u64,
    /// The coordinators that survive the faults; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub survivors: Vec<u32>,
    /// The acts, by time.
    #[serde(default)]
    pub acts: Vec<Timed>,
}

/// An invalid script.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// Syntax error; the text names line and column.
    #[error("{}", .0.trim_end())]
    Syntax(String),
    /// It refers to something that its cluster does not have.
    #[error("{}", .0.trim_end())]
    Meaning(String),
}

impl Script {
    /// Reads a script.
    ///
    /// # Errors
    ///
    /// If it is malformed, or does not fit the cluster that its seed draws.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        let script: Self = toml::from_str(text).map_err(|error| ScriptError::Syntax(error.to_string()))?;
        script.check()?;
        Ok(script)
    }

    /// The mutant that it names.
    ///
    /// # Errors
    ///
    /// If there is none of that name, or this build has no mutants.
    pub fn plant(&self) -> Result<ActiveMutant, ScriptError> {
        self.mutant.as_deref().map_or(Ok(ActiveMutant::NONE), plant)
    }

    /// Whether the seed still draws the cluster for which the script was written.
    pub fn is_current(&self) -> bool {
        let drawn = Scenario::draw(self.seed, ActiveMutant::NONE).fingerprint();
        self.cluster.as_deref().is_none_or(|written| written == drawn)
    }

    fn check(&self) -> Result<(), ScriptError> {
        let scenario = Scenario::draw(self.seed, ActiveMutant::NONE);
        let wrong = |what: String| Err(ScriptError::Meaning(what));
        let (nodes, coordinators) = (scenario.nodes(), scenario.coordinators);
        if self.acts.len() > ACTS_MAX {
            return wrong(format!("{} acts are too many; at most {ACTS_MAX} are allowed", self.acts.len()));
        }
        if let Some(node) = self.absent.iter().find(|n| !(coordinators..nodes).contains(n)) {
            return wrong(format!("`absent`: seed {} draws no member {node}", self.seed));
        }
        if let Some(node) = self.survivors.iter().find(|n| **n >= coordinators) {
            return wrong(format!("`survivors`: seed {} draws no coordinator {node}", self.seed));
        }
        let kept = self.survivors.len() as u32;
        let deciders = scenario.deciders();
        if kept > 0 && kept <= deciders / 2 {
            return wrong(format!("`survivors`: {kept} of {deciders} coordinators are not a majority"));
        }
        for (number, pair) in self.acts.windows(2).enumerate() {
            if (pair[0].at, pair[0].after) > (pair[1].at, pair[1].after) {
                let at = pair[1].at;
                return wrong(format!(
                    "act {} at {at} ns comes after a later one; sort them by time",
                    number + 2
                ));
            }
        }
        if self.faults_end > TIME_MAX {
            return wrong(format!(
                "`faults_end`: {} ns is too long; at most {TIME_MAX} is allowed",
                self.faults_end
            ));
        }
        for (number, timed) in self.acts.iter().enumerate() {
            let span = match timed.act {
                Act::SetLease(span, _) | Act::Work(.., span) | Act::DelayPath(.., span) => span,
                _ => 0,
            };
            if timed.at.max(span) > TIME_MAX {
                return wrong(format!("act {}: its times may be at most {TIME_MAX} ns", number + 1));
            }
            let (node, other, seat) = place(timed.act, &scenario)
                .map_err(|what| ScriptError::Meaning(format!("act {}: {what}", number + 1)))?;
            if node.max(other) >= nodes || seat > PROGRAMS {
                return wrong(format!(
                    "act {} at {} ns: seed {} draws nodes 0 to {} with seats 0 to {PROGRAMS}",
                    number + 1,
                    timed.at,
                    self.seed,
                    nodes - 1
                ));
            }
        }
        Ok(())
    }
}

/// The nodes and the seat of an act; an error if they are of the wrong kind.
fn place(act: Act, scenario: &Scenario) -> Result<(u32, u32, u16), String> {
    let (nodes, coordinators) = (scenario.nodes(), scenario.coordinators);
    Ok(match act {
        Act::Kill(n) | Act::Start(n) | Act::Freeze(n) | Act::Thaw(n) | Act::Leave(n) | Act::LateView(n) => {
            (n, 0, 0)
        }
        Act::Cut(a, b) | Act::Heal(a, b) | Act::Degrade(a, b, ..) => (a, b, 0),
        Act::SetAcceptor(n, _) if n >= coordinators => {
            return Err(format!("node {n} is not a coordinator; these are 0 to {}", coordinators - 1));
        }
        Act::SetAcceptor(n, _) => (n, 0, 0),
        Act::Suspect(n, s) | Act::Work(n, s, _) | Act::Confirm(n, s) => (n, 0, s),
        Act::Attach(n, s)
        | Act::KillProgram(n, s)
        | Act::FreezeProgram(n, s)
        | Act::ThawProgram(n, s)
        | Act::HangProgram(n, s)
        | Act::UnhangProgram(n, s)
        | Act::LeaveProgram(n, s) => {
            if s == 0 || n < nodes && !scenario.is_agent(n) {
                let last = coordinators + scenario.agents - 1;
                return Err(format!(
                    "programs take seats 1 to {PROGRAMS} of agents {coordinators} to {last}, not seat {s} of node {n}"
                ));
            }
            (n, 0, s)
        }
        Act::CutPath(from, to, path) | Act::HealPath(from, to, path) | Act::DelayPath(from, to, path, _) => {
            check_path(scenario, (from, to), path)?;
            (0, 0, 0)
        }
        Act::PauseHost(host) | Act::ResumeHost(host) | Act::RestartGateway(host) => {
            check_path(scenario, (host, host), 0)?;
            (0, 0, 0)
        }
        Act::SetLease(..) | Act::KillLeader | Act::RepeatJoins => (0, 0, 0),
    })
}

/// An error if there are no such hosts with this path between them.
fn check_path(scenario: &Scenario, (from, to): (u32, u32), path: u16) -> Result<(), String> {
    let Some(plan) = scenario.pulses else {
        return Err(format!("seed {} draws no hosts that exchange pulses", scenario.seed));
    };
    if from.max(to) >= plan.hosts || usize::from(path) >= plan.paths {
        let (seed, hosts, paths) = (scenario.seed, plan.hosts - 1, plan.paths - 1);
        return Err(format!("seed {seed} draws hosts 0 to {hosts} with paths 0 to {paths}"));
    }
    Ok(())
}

/// The text of a script, one act per line.
impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = Self { acts: Vec::new(), ..self.clone() };
        let head = toml::to_string(&head).map_err(|_| fmt::Error)?;
        f.write_str(head.trim_end().trim_end_matches("acts = []"))?;
        f.write_str("acts = [\n")?;
        for timed in &self.acts {
            let line = toml::Value::try_from(timed).map_err(|_| fmt::Error)?;
            writeln!(f, "  {line},")?;
        }
        f.write_str("]\n")
    }
}

/// A mutant by its name.
///
/// # Errors
///
/// If there is none of that name, or this build has no mutants.
#[cfg(feature = "mutants")]
pub fn plant(name: &str) -> Result<ActiveMutant, ScriptError> {
    use obol_membership::Mutant;
    Mutant::ALL.iter().find(|m| m.name() == name).map(|m| ActiveMutant::new(*m)).ok_or_else(|| {
        let names: Vec<&str> = Mutant::ALL.iter().map(|m| m.name()).collect();
        ScriptError::Meaning(format!("there is no mutant `{name}`; known are: {}", names.join(" ")))
    })
}

/// A mutant by its name: this build has none.
///
/// # Errors
///
/// Always.
#[cfg(not(feature = "mutants"))]
pub fn plant(name: &str) -> Result<ActiveMutant, ScriptError> {
    Err(ScriptError::Meaning(format!(
        "this build has no mutants, so not `{name}` either; build one that has: \
        cargo build --release -p obol --features mutants"
    )))
}

/// A script during replay.
pub(super) struct ScriptReplay<'a> {
    acts: &'a [Timed],
    done: usize,
}

impl<'a> ScriptReplay<'a> {
    pub(super) const fn new(acts: &'a [Timed]) -> Self {
        Self { acts, done: 0 }
    }

    fn one(&mut self, driver: &mut Driver) -> Verdict {
        let Some(timed) = self.acts.get(self.done) else { return Ok(()) };
        self.done += 1;
        driver.act(timed.act)
    }
}

impl Faults for ScriptReplay<'_> {
    fn next(&self) -> u64 {
        self.acts.get(self.done).map_or(u64::MAX, |timed| timed.at)
    }

    fn due(&mut self, driver: &mut Driver) -> Verdict {
        // The steps for which it waits do not occur any more.
        self.one(driver)?;
        self.after_step(driver)
    }

    fn after_step(&mut self, driver: &mut Driver) -> Verdict {
        while self.acts.get(self.done).is_some_and(|timed| (timed.at, timed.after) <= driver.moment()) {
            self.one(driver)?;
        }
        Ok(())
    }
}

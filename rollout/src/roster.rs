//! Who was a member before a rollout, and who is one at its end. By default the end has to be as good
//! as the beginning: the same names are there, or programs that have taken the place of others, and
//! nothing that came since is crashing.

use super::period::Failed;
use obol_fabric::Name;
use obol_membership::Kind;
use obol_observe::Health;
use std::collections::{BTreeMap, BTreeSet};

/// Members that are named in one reason at most.
const NAMES_MAX: usize = 8;

/// A member that can act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) name: Name,
    pub(super) kind: Kind,
    /// It has joined several times since the command began, and lately again.
    pub(super) comes_and_goes: bool,
    /// It is a coordinator that decides, and no spare.
    pub(super) decides: bool,
}

/// Who was there before the command, and is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roster {
    pub(super) before: Vec<(Name, Kind)>,
    /// The coordinators of before that decided.
    pub(super) deciders: Vec<Name>,
    pub(super) now: Vec<Member>,
    pub(super) crashed: Vec<Failed>,
}

/// What names of programs of one sort have in common, such as `shop` of `shop-7d9fbc6b5-x2x9z`.
fn sort(name: &str) -> &str {
    name.split('-').next().unwrap_or(name).trim_end_matches(|c: char| c.is_ascii_digit())
}

/// The first of some names, and how many more there are.
fn shown(names: &[&str]) -> String {
    let first = names.iter().take(NAMES_MAX).copied().collect::<Vec<_>>().join(", ");
    let more = names.len().saturating_sub(NAMES_MAX);
    if more > 0 { format!("{first} and {more} more") } else { first }
}

/// Looks at a cluster at the end of a rollout. It has to be as good as before in one of them. Members
/// whose view is just changing cannot act for a moment, so what is said is what the best look has shown.
#[derive(Debug, Default)]
pub struct Looks(Option<(usize, Vec<String>)>);

impl Looks {
    /// Takes a look: how healthy the cluster is and why not, and its roster unless it may be worse than
    /// before. Returns whether it is as good as before.
    pub fn take(&mut self, health: Health, reasons: &[String], roster: Option<&Roster>) -> bool {
        let (mut bad, mut why) = roster.map(Roster::worse).unwrap_or_default();
        if health != Health::Healthy && (roster.is_some() || !health.serves()) {
            bad += reasons.len().max(1);
            why.push(format!("the cluster is {}: {}", health.name(), reasons.join("; ")));
        }
        let Self(best) = self;
        if best.as_ref().is_none_or(|(least, _)| bad <= *least) {
            *best = Some((bad, why));
        }
        bad == 0
    }

    /// Why it was worse in the best of them; nothing if it was not.
    pub fn best(self) -> Vec<String> {
        self.0.map(|(_, why)| why).unwrap_or_default()
    }
}

impl Roster {
    /// Those of before that are not there, nor another one in their place: programs may have other names
    /// than before, as pods have; daemons have the same ones.
    fn missing(&self) -> Vec<&str> {
        let is_there = |one: &(Name, Kind)| self.now.iter().any(|now| (now.name, now.kind) == *one);
        let known: BTreeSet<&str> = self.before.iter().map(|(name, _)| name.as_str()).collect();
        let programs = self.now.iter().filter(|now| now.kind == Kind::App);
        let mut newcomers: BTreeMap<&str, usize> = BTreeMap::new();
        for one in programs.filter(|now| !known.contains(now.name.as_str())) {
            *newcomers.entry(sort(one.name.as_str())).or_default() += 1;
        }
        // Any coordinator may take the place of another one.
        let coordinators = self.before.iter().filter(|(_, kind)| *kind == Kind::Coordinator).count();
        let coordinators_now = self.now.iter().filter(|now| now.kind == Kind::Coordinator).count();
        let has_all_coordinators = coordinators_now >= coordinators;
        let mut missing = Vec::new();
        for one @ (name, kind) in &self.before {
            let is_replaced = match kind {
                Kind::Coordinator => has_all_coordinators,
                Kind::App if !is_there(one) => newcomers.get_mut(sort(name.as_str())).is_some_and(|left| {
                    let some = *left > 0;
                    *left = left.saturating_sub(1);
                    some
                }),
                _ => false,
            };
            if !is_replaced && !is_there(one) {
                missing.push(name.as_str());
            }
        }
        missing.sort_unstable();
        missing
    }

    /// Why fewer coordinators decide than before, and how many fewer; `None` if as many do. One that was
    /// removed may still be a member, as a spare.
    fn fewer_deciders(&self) -> Option<(usize, String)> {
        let now: Vec<Name> = self.now.iter().filter(|now| now.decides).map(|now| now.name).collect();
        let fewer = self.deciders.len().checked_sub(now.len()).filter(|fewer| *fewer > 0)?;
        let no_more = self.deciders.iter().filter(|name| !now.contains(name));
        let mut no_more: Vec<&str> = no_more.map(Name::as_str).collect();
        no_more.sort_unstable();
        let (no_more, before, now) = (shown(&no_more), self.deciders.len(), now.len());
        let why = format!("fewer coordinators decide than before ({now}, not {before}): {no_more} no more");
        Some((fewer, why))
    }

    fn unsteady(&self) -> Vec<&str> {
        self.now.iter().filter(|now| now.comes_and_goes).map(|now| now.name.as_str()).collect()
    }

    /// Why the end is not as good as the beginning, and of how many members that is said.
    fn worse(&self) -> (usize, Vec<String>) {
        let (missing, unsteady) = (self.missing(), self.unsteady());
        let mut why = Vec::new();
        if !missing.is_empty() {
            why.push(format!("{} did not come back, or cannot act", shown(&missing)));
        }
        if !unsteady.is_empty() {
            why.push(format!("{} joined again and again, the last time just now", shown(&unsteady)));
        }
        let (fewer, reason) = self.fewer_deciders().unzip();
        why.extend(reason);
        (missing.len() + unsteady.len() + fewer.unwrap_or_default(), why)
    }

    /// Which members joined since the command began and failed; `None` if none did.
    pub fn crashes(&self) -> Option<String> {
        let mut names: BTreeMap<&str, usize> = BTreeMap::new();
        self.crashed.iter().for_each(|one| *names.entry(&one.name).or_default() += 1);
        let times = |(name, n): (&&str, &usize)| match n {
            1 => (*name).to_owned(),
            n => format!("{name} ({n} times)"),
        };
        let each: Vec<String> = names.iter().map(times).collect();
        let each: Vec<&str> = each.iter().map(String::as_str).collect();
        (!each.is_empty()).then(|| format!("{} joined since the command began, and failed", shown(&each)))
    }
}

//! What a coordinator knows of everybody's links, and what it makes of that: who has to go because
//! not all can talk to all. A link counts only if it works both ways, so one end's report is enough
//! to break it.
//!
//! uKharon, section 4.2: the leader keeps the largest clique that it belongs to itself. A link that
//! is down is a suspicion and never a proof: whoever goes may live, and hold a lease.

use super::{Accusation, Coordinator};
use crate::detectors::links;
use crate::mutants::Mutant;
use crate::view::{Kind, Level, View};
use crate::{Config, clique};
use obol_fabric::layout::PROPOSERS_MAX;
use obol_fabric::{Evidence, Fabric, Incarnation, Instant};
use std::collections::{BTreeMap, BTreeSet};

/// What one member told last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Row {
    heard: Instant,
    /// To whom its link is down, and since when that is known here.
    silent: BTreeMap<Incarnation, Instant>,
}

/// Somebody who has to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    accused: Incarnation,
    /// A member that stays and lost the link to it.
    by: Incarnation,
}

/// Reports of links that are down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Cliques(BTreeMap<Incarnation, Row>);

/// The members that are asked about: those with a core that nobody suspects yet.
fn nodes(view: &View, gone: &impl Fn(Incarnation) -> bool) -> Vec<Incarnation> {
    view.members.iter().filter(|m| m.has_core() && !gone(m.incarnation)).map(|m| m.incarnation).collect()
}

impl Cliques {
    /// Takes a report.
    pub(super) fn heard(
        &mut self,
        from: Incarnation,
        silent: impl Iterator<Item = Incarnation>,
        view: &View,
        now: Instant,
    ) {
        if view.member(from).is_none() {
            return;
        }
        let old = self.0.remove(&from).unwrap_or_default().silent;
        let silent: BTreeMap<_, _> = silent.map(|who| (who, old.get(&who).copied().unwrap_or(now))).collect();
        if !silent.is_empty() {
            self.0.insert(from, Row { heard: now, silent });
        }
    }

    /// Forgets who is not a member any more.
    pub(super) fn follow(&mut self, view: &View) {
        self.0.retain(|from, row| {
            row.silent.retain(|who, _| view.member(*who).is_some());
            view.member(*from).is_some() && !row.silent.is_empty()
        });
    }

    /// Forgets members that do not repeat their report: a single one never has consequences.
    fn expire(&mut self, config: &Config, now: Instant) {
        self.0.retain(|_, row| row.heard + config.timing.link_timeout > now);
    }

    /// Since when the link between two members is down, if it is.
    fn down_since(&self, a: Incarnation, b: Incarnation, config: &Config) -> Option<Instant> {
        let told = |a, b| self.0.get(&a).and_then(|row: &Row| row.silent.get(&b)).copied();
        let (one, other) = (told(a, b), told(b, a));
        if config.mutant.has(Mutant::OneWayIsUp) {
            return one.zip(other).map(|(one, other)| one.max(other));
        }
        match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// The links between these members that are down, by their places, and since when.
    fn links(&self, nodes: &[Incarnation], config: &Config) -> BTreeMap<(usize, usize), Instant> {
        let place = |who: &Incarnation| nodes.binary_search(who).ok();
        let told = self.0.iter().flat_map(|(from, row)| row.silent.keys().map(move |who| (from, who)));
        let pairs = told.filter_map(|(a, b)| Some((place(a)?, place(b)?)));
        let pairs: BTreeSet<_> = pairs.map(|(a, b)| (a.min(b), a.max(b))).collect();
        pairs
            .into_iter()
            .filter_map(|(a, b)| Some(((a, b), self.down_since(nodes[a], nodes[b], config)?)))
            .collect()
    }

    /// Who has to go, in the eyes of a leader. It waits until some link has been down for so long
    /// that everybody can have told what became of theirs. Nobody if it is not for this process to
    /// say.
    fn verdict(
        &self,
        view: &View,
        me: Incarnation,
        gone: impl Fn(Incarnation) -> bool,
        config: &Config,
        now: Instant,
    ) -> Vec<Cut> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let nodes = nodes(view, &gone);
        let links = self.links(&nodes, config);
        let Ok(leader) = nodes.binary_search(&me) else { return Vec::new() };
        if !links.values().any(|since| *since + config.timing.link_timeout <= now) {
            return Vec::new();
        }
        let down: Vec<(usize, usize)> = links.into_keys().collect();
        let Some(stays) = keep(view, &nodes, &down, leader, config) else { return Vec::new() };
        let lost = |node: usize| {
            let of = |(a, b): &(usize, usize)| (*a == node).then_some(*b).or((*b == node).then_some(*a));
            down.iter().filter_map(of).find(|peer| stays[*peer])
        };
        let go = (0..nodes.len()).filter(|node| !stays[*node]);
        go.map(|node| Cut { accused: nodes[node], by: nodes[lost(node).unwrap_or(leader)] }).collect()
    }

    /// Coordinators that should lead before this one and can not, in its eyes: it has lost them, or
    /// they have lost so many acceptors that they decide nothing. The one that leads has one
    /// timeout to decide who goes, and each that comes before this one another.
    fn unfit(
        &self,
        view: &View,
        me: Incarnation,
        gone: impl Fn(Incarnation) -> bool,
        config: &Config,
        now: Instant,
    ) -> Vec<Cut> {
        self.judged(view, me, gone, config)
            .into_iter()
            .filter(|(_, at)| *at <= now)
            .map(|(accused, _)| Cut { accused, by: me })
            .collect()
    }

    /// Those coordinators, and when each is judged.
    fn judged(
        &self,
        view: &View,
        me: Incarnation,
        gone: impl Fn(Incarnation) -> bool,
        config: &Config,
    ) -> Vec<(Incarnation, Instant)> {
        let Some(own) = view.member(me).filter(|_| !self.0.is_empty()) else { return Vec::new() };
        let mut before: Vec<_> = view
            .of_kind(Kind::Coordinator)
            .filter(|m| m.proposer < own.proposer && view.acceptor(m.proposer).is_some())
            .filter(|m| !gone(m.incarnation))
            .collect();
        before.sort_by_key(|m| m.proposer);
        let patience = config.timing.link_timeout.saturating_mul(1 + before.len() as u64);
        let after = |since: Instant| since + patience;
        if self.powerless_since(me, view, &gone, config).is_some() {
            // It could not decide either; when it can, what it knows now may not be so any more.
            return Vec::new();
        }
        let powerless_since = |who| self.powerless_since(who, view, |_| false, config);
        before
            .into_iter()
            .filter_map(|m| {
                let lost = self.down_since(m.incarnation, me, config).map(after);
                let alone = powerless_since(m.incarnation).map(after);
                lost.into_iter().chain(alone).min().map(|at| (m.incarnation, at))
            })
            .collect()
    }

    /// Since when a coordinator is not of any majority of those who decide that can all talk to
    /// each other. Whoever is no member, or `gone`, counts as lost to everybody.
    fn powerless_since(
        &self,
        who: Incarnation,
        view: &View,
        gone: impl Fn(Incarnation) -> bool,
        config: &Config,
    ) -> Option<Instant> {
        let deciders = deciders(view, &gone);
        let links = self.links(&deciders, config);
        let place = deciders.binary_search(&who).ok()?;
        let mut times: Vec<Instant> = links.values().copied().collect();
        times.push(Instant::ZERO);
        times.sort_unstable();
        times.into_iter().find(|time| {
            let down: Vec<_> =
                links.iter().filter(|(_, since)| *since <= time).map(|(pair, _)| *pair).collect();
            quorums(&deciders, &down, place, view.majority()).next().is_none()
        })
    }

    /// When a leader, or who waits to lead, has to look again. `suspected` are those that are
    /// `gone` and those that have been found to have to go.
    fn deadline(
        &self,
        view: &View,
        me: Incarnation,
        gone: impl Fn(Incarnation) -> bool,
        suspected: impl Fn(Incarnation) -> bool,
        leads: bool,
        config: &Config,
    ) -> Instant {
        if self.0.is_empty() {
            return Instant::NEVER;
        }
        let expiry = self.0.values().map(|row| row.heard + config.timing.link_timeout).min();
        let due = if leads {
            let ripe = |since: Instant| since + config.timing.link_timeout;
            // As for the verdict: or it would be asked for again and again where there can be none.
            let powerless = self.powerless_since(me, view, gone, config).is_some();
            let links =
                if powerless { BTreeMap::new() } else { self.links(&nodes(view, &suspected), config) };
            links.into_values().map(ripe).min()
        } else {
            let judged = self.judged(view, me, gone, config).into_iter();
            judged.filter(|(who, _)| !suspected(*who)).map(|(_, at)| at).min()
        };
        expiry.into_iter().chain(due).min().unwrap_or(Instant::NEVER)
    }
}

impl Coordinator {
    /// Who has to go because of links that are down: as a leader, all who are not of its clique;
    /// otherwise those before it that can not lead. Such a suspicion is dropped again when the
    /// links are whole before a view could exclude anybody.
    pub(super) fn judge_links<F: Fabric>(&mut self, view: &View, now: Instant, fabric: &mut F) {
        let Some(me) = self.incarnation().filter(|_| links::are_watched(&self.peer.config)) else { return };
        self.cliques.heard(me, self.peer.detectors.links.down(), view, now);
        self.cliques.expire(&self.peer.config, now);
        let gone = |who| self.is_gone(who);
        let cuts = if self.leading {
            self.cliques.verdict(view, me, gone, &self.peer.config, now)
        } else {
            self.cliques.unfit(view, me, gone, &self.peer.config, now)
        };
        let is_cut = |who: &Incarnation| cuts.iter().any(|cut| cut.accused == *who);
        self.suspects.retain(|who, by| by.level != Level::Timeout || is_cut(who));
        for Cut { accused, by } in cuts {
            let by = Accusation { accuser: by, level: Level::Timeout };
            if self.peer.config.mutant.has(Mutant::LostLinkIsProof) {
                self.accuse(accused, by, Evidence::Proof, now, fabric);
            }
            // Whoever is suspected for more than its links stays so.
            if !self.suspects.contains_key(&accused) {
                self.suspect(accused, by, fabric);
            }
        }
    }

    /// Whether this leader needs that coordinator among the members, though it has lost some of
    /// them: because of those that decide and are members it is of no majority that can all talk to
    /// each other. The newcomer's memory is then part of every decision and lease, and nobody
    /// watches the links to it; once it is a member, who can not reach it goes.
    pub(super) fn needs(&self, number: u16) -> bool {
        let Some(me) = self.incarnation().filter(|_| self.leading) else { return false };
        let view = self.view();
        let powerless = || self.cliques.powerless_since(me, view, |_| false, &self.peer.config).is_some();
        view.acceptor(number).is_some() && powerless()
    }

    /// When links have to be judged again.
    pub(super) fn links_due(&self) -> Instant {
        let Some(me) = self.incarnation() else { return Instant::NEVER };
        let gone = |who| self.is_gone(who);
        let suspected = |who| self.suspects.contains_key(&who);
        self.cliques.deadline(self.view(), me, gone, suspected, self.leading, &self.peer.config)
    }

    /// Whether somebody is suspected, and not for its links alone. Nobody else is told of links, so
    /// what is suspected for them was suspected here.
    fn is_gone(&self, who: Incarnation) -> bool {
        self.suspects.get(&who).is_some_and(|by| by.level != Level::Timeout)
    }
}

/// The coordinators among the members that decide and that nobody suspects yet.
fn deciders(view: &View, gone: &impl Fn(Incarnation) -> bool) -> Vec<Incarnation> {
    let decide = view.of_kind(Kind::Coordinator).filter(|m| view.acceptor(m.proposer).is_some());
    decide.filter(|m| !gone(m.incarnation)).map(|m| m.incarnation).collect()
}

/// Sets of so many of these nodes that one of them belongs to and that all have their links.
fn quorums<'a>(
    nodes: &'a [Incarnation],
    down: &'a [(usize, usize)],
    of: usize,
    size: usize,
) -> impl Iterator<Item = Vec<usize>> + 'a {
    let count = nodes.len().min(PROPOSERS_MAX);
    (0..1u32 << count)
        .filter(move |set| set.count_ones() as usize == size && set >> of & 1 == 1)
        .filter(|set| !down.iter().any(|(a, b)| set >> a & 1 == 1 && set >> b & 1 == 1))
        .map(move |set| (0..count).filter(|node| set >> node & 1 == 1).collect())
}

/// Which nodes stay, or nothing if the leader is of no majority of deciders that can all talk to
/// each other: then it is not for it to say. Without such a majority inside, nobody who stays could
/// hold a lease.
fn keep(
    view: &View,
    nodes: &[Incarnation],
    down: &[(usize, usize)],
    leader: usize,
    config: &Config,
) -> Option<Vec<bool>> {
    if config.mutant.has(Mutant::CliqueWithoutLeader) {
        return Some(clique::largest(nodes.len(), down, &[]));
    }
    let deciders = deciders(view, &|who| nodes.binary_search(&who).is_err());
    let place = |who: &Incarnation| nodes.binary_search(who).ok();
    let among = |node: usize| deciders.binary_search(nodes.get(node)?).ok();
    let between: Vec<(usize, usize)> =
        down.iter().filter_map(|(a, b)| Some((among(*a)?, among(*b)?))).collect();
    let quorums = quorums(&deciders, &between, among(leader)?, view.majority());
    let centers = quorums.map(|set| set.iter().filter_map(|n| place(&deciders[*n])).collect::<Vec<_>>());
    let kept = centers.map(|centers| clique::largest(nodes.len(), down, &centers));
    // The same size, then the oldest members.
    kept.max_by_key(|stays| (stays.iter().filter(|stays| **stays).count(), stays.clone()))
}

/// The members that a report's bits name.
pub(super) fn named<'a>(bits: &'a [u8], view: &'a View) -> impl Iterator<Item = Incarnation> + 'a {
    let set = |at: usize| bits.get(at / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 1);
    view.members.iter().enumerate().filter(move |(at, _)| set(*at)).map(|(_, m)| m.incarnation)
}

//! What a coordinator knows about the links of all members, and which members have to go because
//! not all can reach each other. A link counts only if it works both ways, so one end's report
//! suffices to break it.
//!
//! uKharon, section 4.2: the leader keeps the largest clique that includes itself. A broken link is
//! a suspicion and never a proof: an excluded member may be alive and hold a lease.

use super::suspicions::{Holds, Suspicion};
use super::{Accusation, Coordinator};
use crate::detectors::links::{self, Unreachable};
use crate::mutants::Mutant;
use crate::view::{Kind, Reason, View};
use crate::{Config, clique};
use obol_fabric::layout::PROPOSERS_MAX;
use obol_fabric::{Evidence, Fabric, Incarnation, Instant};
use std::collections::{BTreeMap, BTreeSet};

/// The last report of one member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Row {
    reported: Instant,
    /// The members to which its link is down, and since when this process knows.
    silent: BTreeMap<Incarnation, Instant>,
}

/// A member that has to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    accused: Incarnation,
    /// A member that stays and lost the link to it.
    by: Incarnation,
}

/// Reports of broken links, by the members that reported them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Cliques {
    /// By datagrams, and by this process.
    sent: BTreeMap<Incarnation, Row>,
    /// Read from the members' regions: of links that their datagrams would need.
    read: BTreeMap<Incarnation, Row>,
    /// Since when this process can decide; `None` while it belongs to no connected majority.
    able: Option<Instant>,
}

impl Default for Cliques {
    fn default() -> Self {
        Self { sent: BTreeMap::new(), read: BTreeMap::new(), able: Some(Instant::ZERO) }
    }
}

/// What links are judged by.
#[derive(Clone, Copy)]
struct Scope<'a> {
    view: &'a View,
    me: Incarnation,
    config: &'a Config,
    /// Whether a member is suspected already.
    gone: &'a dyn Fn(Incarnation) -> bool,
}

/// The members under consideration: those with a core that are not suspected yet.
fn nodes(view: &View, gone: &dyn Fn(Incarnation) -> bool) -> Vec<Incarnation> {
    view.members.iter().filter(|m| m.has_core() && !gone(m.incarnation)).map(|m| m.incarnation).collect()
}

impl Cliques {
    /// Takes a report.
    pub(super) fn on_report(
        &mut self,
        from: Incarnation,
        silent: impl Iterator<Item = Incarnation>,
        view: &View,
        now: Instant,
    ) {
        if view.member(from).is_none() {
            return;
        }
        let old = self.sent.remove(&from).unwrap_or_default().silent;
        let silent: BTreeMap<_, _> = silent.map(|who| (who, old.get(&who).copied().unwrap_or(now))).collect();
        if !silent.is_empty() {
            self.sent.insert(from, Row { reported: now, silent });
        }
    }

    /// Takes what members say in their regions: all that is known of it now.
    fn on_read(&mut self, found: impl Iterator<Item = Unreachable>, view: &View) {
        let old = std::mem::take(&mut self.read);
        for Unreachable { from, coordinators, read } in found {
            let known = old.get(&from).map(|row| &row.silent);
            let named = view.of_kind(Kind::Coordinator).filter(|m| {
                m.incarnation != from
                    && m.proposer.checked_sub(1).is_some_and(|at| coordinators >> at & 1 == 1)
            });
            let silent: BTreeMap<_, _> = named
                .map(|m| m.incarnation)
                .map(|who| (who, known.and_then(|known| known.get(&who)).copied().unwrap_or(read)))
                .collect();
            if view.member(from).is_some() && !silent.is_empty() {
                self.read.insert(from, Row { reported: read, silent });
            }
        }
    }

    fn rows(&self) -> impl Iterator<Item = (&Incarnation, &Row)> {
        self.sent.iter().chain(&self.read)
    }

    fn is_empty(&self) -> bool {
        self.rows().next().is_none()
    }

    /// Forgets former members.
    pub(super) fn follow(&mut self, view: &View) {
        for rows in [&mut self.sent, &mut self.read] {
            rows.retain(|from, row| {
                row.silent.retain(|who, _| view.member(*who).is_some());
                view.member(*from).is_some() && !row.silent.is_empty()
            });
        }
    }

    /// Drops reports that are not repeated: a single report never has consequences.
    fn expire(&mut self, config: &Config, now: Instant) {
        for rows in [&mut self.sent, &mut self.read] {
            rows.retain(|_, row| row.reported + config.timing.link_timeout > now);
        }
    }

    /// Since when the link between two members is down, if it is.
    fn down_since(&self, a: Incarnation, b: Incarnation, config: &Config) -> Option<Instant> {
        let row = |rows: &BTreeMap<_, Row>, a, b| rows.get(&a).and_then(|row| row.silent.get(&b)).copied();
        let reported = |a, b| [row(&self.sent, a, b), row(&self.read, a, b)].into_iter().flatten().min();
        let (one, other) = (reported(a, b), reported(b, a));
        if config.mutant.has(Mutant::OneWayIsUp) {
            return one.zip(other).map(|(one, other)| one.max(other));
        }
        match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// The broken links between these members, by index, and since when.
    fn links(&self, nodes: &[Incarnation], config: &Config) -> BTreeMap<(usize, usize), Instant> {
        let place = |who: &Incarnation| nodes.binary_search(who).ok();
        let reported = self.rows().flat_map(|(from, row)| row.silent.keys().map(move |who| (from, who)));
        let pairs = reported.filter_map(|(a, b)| Some((place(a)?, place(b)?)));
        let pairs: BTreeSet<_> = pairs.map(|(a, b)| (a.min(b), a.max(b))).collect();
        pairs
            .into_iter()
            .filter_map(|(a, b)| Some(((a, b), self.down_since(nodes[a], nodes[b], config)?)))
            .collect()
    }

    /// Notes whether this process can decide.
    fn note_ability(&mut self, scope: Scope<'_>, now: Instant) {
        let powerless = self.powerless_since(scope.me, scope).is_some();
        self.able = if powerless { None } else { self.able.or(Some(now)) };
    }

    /// From when on the time until a link is judged runs: since it is down, and this process can decide.
    /// What was reported before is outdated once the network has healed, and is corrected only when all
    /// have read each other again. `None` while nothing can be decided.
    fn counts_from(&self, since: Instant, config: &Config) -> Option<Instant> {
        let at_once = config.mutant.has(Mutant::JudgeOutdated);
        self.able.map(|able| if at_once { since } else { since.max(able) })
    }

    /// The members that have to go, as a leader sees it. It waits until a link has been down long
    /// enough for all members to have reported theirs. Empty if this process may not decide.
    fn verdict(&self, scope: Scope<'_>, now: Instant) -> Vec<Cut> {
        let Scope { view, me, config, gone } = scope;
        if self.is_empty() {
            return Vec::new();
        }
        let nodes = nodes(view, gone);
        let links = self.links(&nodes, config);
        let Ok(leader) = nodes.binary_search(&me) else { return Vec::new() };
        if !links.values().any(|since| self.verdict_due(*since, config).is_some_and(|at| at <= now)) {
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

    /// When a leader judges a link that is down since then.
    fn verdict_due(&self, since: Instant, config: &Config) -> Option<Instant> {
        self.counts_from(since, config).map(|from| from + config.timing.link_timeout)
    }

    /// Coordinators that precede this one as leaders but cannot lead: this process has lost the
    /// link to them, or they have lost too many acceptors to decide. The leader has one timeout to
    /// decide who goes, and each coordinator before this one another.
    fn unfit(&self, scope: Scope<'_>, now: Instant) -> Vec<Cut> {
        let due = self.judged(scope).into_iter().filter(|(_, at)| *at <= now);
        due.map(|(accused, _)| Cut { accused, by: scope.me }).collect()
    }

    /// Those coordinators, and when each is judged.
    fn judged(&self, scope: Scope<'_>) -> Vec<(Incarnation, Instant)> {
        let Scope { view, me, config, gone } = scope;
        let Some(own) = view.member(me).filter(|_| !self.is_empty()) else { return Vec::new() };
        let mut before: Vec<_> = view
            .of_kind(Kind::Coordinator)
            .filter(|m| m.proposer < own.proposer && view.acceptor(m.proposer).is_some())
            .filter(|m| !gone(m.incarnation))
            .collect();
        before.sort_by_key(|m| m.proposer);
        let patience = config.timing.link_timeout.saturating_mul(1 + before.len() as u64);
        let after = |since: Instant| self.counts_from(since, config).map(|from| from + patience);
        let powerless_since = |who| self.powerless_since(who, Scope { gone: &|_| false, ..scope });
        before
            .into_iter()
            .filter_map(|m| {
                let lost = self.down_since(m.incarnation, me, config).and_then(after);
                let alone = powerless_since(m.incarnation).and_then(after);
                lost.into_iter().chain(alone).min().map(|at| (m.incarnation, at))
            })
            .collect()
    }

    /// When this process may stand in for all coordinators before it. It reaches a majority of the
    /// acceptors, none of those does by what it says in its region, and no majority is connected, so
    /// that nobody can be suspected for it. They have one timeout to reach others again, and each of
    /// them one more.
    fn stands_in_at(&self, scope: Scope<'_>) -> Option<Instant> {
        let Scope { view, me, config, gone } = scope;
        let own = view.member(me).filter(|m| !self.is_empty() && view.acceptor(m.proposer).is_some())?;
        let deciders = deciders(view, gone);
        let reached = deciders.iter().filter(|who| **who == me || !self.own_down(me, **who)).count();
        let is_connected = deciders.iter().any(|who| self.powerless_since(*who, scope).is_none());
        if reached < view.majority() || is_connected || config.mutant.has(Mutant::NobodyStandsIn) {
            return None;
        }
        let before = view.of_kind(Kind::Coordinator).filter(|m| {
            m.proposer < own.proposer && view.acceptor(m.proposer).is_some() && !gone(m.incarnation)
        });
        let since =
            before.map(|m| self.reaches_none_since(m.incarnation, view)).collect::<Option<Vec<_>>>()?;
        let patience = config.timing.link_timeout.saturating_mul(1 + since.len() as u64);
        since.into_iter().max().map(|since| since + patience)
    }

    /// Whether this process has lost the link to that one.
    fn own_down(&self, me: Incarnation, who: Incarnation) -> bool {
        self.sent.get(&me).is_some_and(|row| row.silent.contains_key(&who))
    }

    /// Since when a coordinator says in its region that it reaches no majority of the acceptors. The
    /// memory of an acceptor that is not a member counts as reached: its link is not watched.
    fn reaches_none_since(&self, who: Incarnation, view: &View) -> Option<Instant> {
        let row = self.read.get(&who)?;
        let decides =
            |who: &Incarnation| view.member(*who).is_some_and(|m| view.acceptor(m.proposer).is_some());
        let mut lost: Vec<Instant> =
            row.silent.iter().filter(|(who, _)| decides(who)).map(|(_, since)| *since).collect();
        lost.sort_unstable();
        lost.get(view.acceptors.len() - view.majority()).copied()
    }

    /// Since when a coordinator belongs to no majority of deciders that all reach each other. A
    /// coordinator that is not a member, or is `gone`, counts as lost to all.
    fn powerless_since(&self, who: Incarnation, scope: Scope<'_>) -> Option<Instant> {
        let deciders = deciders(scope.view, scope.gone);
        let links = self.links(&deciders, scope.config);
        let place = deciders.binary_search(&who).ok()?;
        let mut times: Vec<Instant> = links.values().copied().collect();
        times.push(Instant::ZERO);
        times.sort_unstable();
        times.into_iter().find(|time| {
            let down: Vec<_> =
                links.iter().filter(|(_, since)| *since <= time).map(|(pair, _)| *pair).collect();
            quorums(&deciders, &down, place, scope.view.majority()).next().is_none()
        })
    }

    /// When a leader, or a coordinator waiting to lead, has to judge again. `suspected` are those
    /// that are `gone` and those already found to have to go.
    fn deadline(&self, scope: Scope<'_>, suspected: impl Fn(Incarnation) -> bool, leads: bool) -> Instant {
        let Scope { view, config, .. } = scope;
        let is_powerless = || self.powerless_since(scope.me, scope).is_some();
        if self.able.is_none() && !is_powerless() {
            // It can decide from now on, which has to be noted.
            return Instant::ZERO;
        }
        if self.is_empty() {
            return Instant::NEVER;
        }
        let expiry = self.rows().map(|(_, row)| row.reported + config.timing.link_timeout).min();
        let due = if leads {
            // As for the verdict: otherwise the timer would fire again and again without a possible
            // verdict.
            let links =
                if is_powerless() { BTreeMap::new() } else { self.links(&nodes(view, &suspected), config) };
            links.into_values().filter_map(|since| self.verdict_due(since, config)).min()
        } else {
            let judged = self.judged(scope).into_iter();
            judged.filter(|(who, _)| !suspected(*who)).map(|(_, at)| at).min()
        };
        expiry.into_iter().chain(due).min().unwrap_or(Instant::NEVER)
    }
}

impl Coordinator {
    /// Suspects members because of broken links: as leader, all outside its clique; otherwise the
    /// coordinators before it that cannot lead. The suspicion is dropped if the links recover
    /// before a view excludes the member.
    pub(super) fn judge_links<F: Fabric>(&mut self, view: &View, now: Instant, fabric: &mut F) {
        self.stands_in = false;
        let Some(me) = self.incarnation().filter(|_| links::are_watched(&self.peer.config)) else { return };
        let links = &self.peer.detectors.links;
        self.cliques.on_report(me, links.down(), view, now);
        if !self.peer.config.mutant.has(Mutant::ReportByTheLinkAlone) {
            self.cliques.on_read(links.unreachable(), view);
        }
        self.cliques.expire(&self.peer.config, now);
        let suspects = &self.suspects;
        let gone = |who| is_gone(suspects, who);
        let scope = Scope { view, me, config: &self.peer.config, gone: &gone };
        self.cliques.note_ability(scope, now);
        let stands_in = self.cliques.stands_in_at(scope).is_some_and(|at| at <= now);
        let cuts =
            if self.leading { self.cliques.verdict(scope, now) } else { self.cliques.unfit(scope, now) };
        self.stands_in = stands_in;
        let is_cut = |who: &Incarnation| cuts.iter().any(|cut| cut.accused == *who);
        self.suspects.retain(|who, known| known.by.reason != Reason::Timeout || is_cut(who));
        for Cut { accused, by } in cuts {
            let by = Accusation { accuser: by, reason: Reason::Timeout };
            if self.peer.config.mutant.has(Mutant::LostLinkIsProof) {
                self.accuse(accused, by, Evidence::Proof, now, fabric);
            }
            // A member suspected for other reasons stays suspected.
            if !self.suspects.contains_key(&accused) {
                self.suspect(accused, Suspicion { by, holds: Holds::WhileLinksAreDown }, fabric);
            }
        }
    }

    /// Whether this leader needs that coordinator as a member, though it has lost some members:
    /// without it, no majority of the deciders among the members all reach each other. Its memory
    /// is then part of every decision and lease, but its links are not watched. Once it is a
    /// member, those that cannot reach it go. A leader outside the view watches no links: it needs
    /// itself if too few deciders among the members seem to be alive.
    pub(super) fn needs(&self, number: u16) -> bool {
        let view = self.view();
        if view.acceptor(number).is_none() {
            return false;
        }
        let Some(me) = self.incarnation() else {
            let gone = |who| self.suspects.contains_key(&who);
            return number == self.me && deciders(view, &gone).len() < view.majority();
        };
        let scope = Scope { view, me, config: &self.peer.config, gone: &|_| false };
        self.leading && self.cliques.powerless_since(me, scope).is_some()
    }

    /// When links have to be judged again.
    pub(super) fn links_due(&self) -> Instant {
        let Some(me) = self.incarnation().filter(|_| links::are_watched(&self.peer.config)) else {
            return Instant::NEVER;
        };
        let gone = |who| is_gone(&self.suspects, who);
        let scope = Scope { view: self.view(), me, config: &self.peer.config, gone: &gone };
        let judged = self.cliques.deadline(scope, |who| self.suspects.contains_key(&who), self.leading);
        let stands_in = self.cliques.stands_in_at(scope).filter(|_| !self.stands_in);
        judged.min(stands_in.unwrap_or(Instant::NEVER))
    }
}

/// Whether a member is suspected for more than its links. Links are not announced, so suspicions
/// because of them are always local.
fn is_gone(suspects: &BTreeMap<Incarnation, Suspicion>, who: Incarnation) -> bool {
    suspects.get(&who).is_some_and(|known| known.by.reason != Reason::Timeout)
}

/// The deciders among the members that are not suspected yet.
fn deciders(view: &View, gone: &dyn Fn(Incarnation) -> bool) -> Vec<Incarnation> {
    let decide = view.of_kind(Kind::Coordinator).filter(|m| view.acceptor(m.proposer).is_some());
    decide.filter(|m| !gone(m.incarnation)).map(|m| m.incarnation).collect()
}

/// Sets of this many nodes that include a given one and have all links among them.
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

/// Which nodes stay; `None` if the leader belongs to no majority of deciders that all reach each
/// other: then it may not decide. Without such a majority, no remaining member could hold a lease.
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
    // On a tie, the oldest members stay.
    kept.max_by_key(|stays| (stays.iter().filter(|stays| **stays).count(), stays.clone()))
}

/// The members that a report's bits name.
pub(super) fn named<'a>(bits: &'a [u8], view: &'a View) -> impl Iterator<Item = Incarnation> + 'a {
    let set = |at: usize| bits.get(at / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 1);
    view.members.iter().enumerate().filter(move |(at, _)| set(*at)).map(|(_, m)| m.incarnation)
}

//! Incidents: what is wrong, grouped by what belongs together, each told in one sentence. Hooks, `obol
//! status`, reports and the console say this sentence.

use crate::advice::{self, Advice};
use crate::annotations::{Acknowledgement, NAMES_MAX};
use crate::calendar::{age, utc};
use crate::failovers::{self, Departures, Failover};
use crate::sampling::alerting::{self, Raised};
use crate::sampling::sample::{EventRow, Life, ProcessRow, Sample};
use obol_fabric::{Incarnation, Instant, Name, Nanos, ViewId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// An incident is over when its cause has been gone for this long.
const LINGER: Nanos = Nanos::from_secs(1);
/// One that was shorter, and had no failover, is forgotten: each view change has such moments.
const KEEP_LEAST: Nanos = Nanos::from_secs(1);
/// A failover is told on its own when its stamps are there, this long after its first notice.
const SETTLE: Nanos = Nanos::from_secs(2);
/// Failovers are told at most this often, except at the begin of an incident.
const TELL_EVERY: Nanos = Nanos::from_secs(1);
/// A failover belongs to an incident that was seen at most this long after its first notice.
const SEEN_WITHIN: Nanos = Nanos::from_secs(10);
/// Incidents that are over and kept, and acknowledgements.
const HISTORY_MAX: usize = 100;
/// Failovers of one incident that are told, the newest.
const DONE_MAX: usize = 8;
/// The newest events among which failovers are searched: at least this number, and this number of each process.
const EVENTS: (usize, usize) = (192, 8);

/// What is wrong, or was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Incident {
    /// The first name in it, or `cluster`. Consoles that began at different times may give it another.
    pub id: String,
    /// Whom it is about; empty if about the cluster.
    pub names: BTreeSet<Name>,
    pub fact: String,
    /// What else is wrong meanwhile.
    pub caused: Vec<String>,
    /// What the cluster did about it, by view.
    done: BTreeMap<ViewId, String>,
    /// The failovers before these: their number, and the view of the newest.
    before: (u64, ViewId),
    /// For how long no program could act meanwhile.
    pub outage: Nanos,
    /// What to do, unless the fact says it or it is over.
    pub remedy: Option<String>,
    /// Its section in docs/alerts.md.
    pub section: String,
    pub since: Instant,
    /// When it was seen last.
    pub last: Instant,
    pub is_over: bool,
    /// Who acknowledged it.
    pub acknowledged: Option<String>,
}

impl Incident {
    /// When it began, as time of day.
    pub fn time(&self, sample: &Sample) -> String {
        utc(sample.unix_at(self.since), "%TZ")
    }

    /// What happened meanwhile, without the fact: what was done, what it caused.
    pub fn story(&self) -> Option<String> {
        let outage =
            (self.outage > Nanos::ZERO).then(|| format!("no program could act for {}", age(self.outage)));
        let parts: Vec<String> = self.done().chain(outage).chain(self.caused.iter().cloned()).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// What the cluster did about it: the newest failovers, and the number of those before.
    pub fn done(&self) -> impl Iterator<Item = String> {
        let (before, _) = self.before;
        let more = (before > 0).then(|| format!("and {before} before"));
        self.done.values().cloned().chain(more)
    }

    fn add_done(&mut self, view: ViewId, told: String) {
        if view > self.before.1 {
            self.done.insert(view, told);
        }
        if self.done.len() > DONE_MAX
            && let Some((oldest, _)) = self.done.pop_first()
        {
            self.before = (self.before.0 + 1, oldest);
        }
    }

    /// That this operator knows of it.
    pub fn acknowledge(&self, by: String) -> Acknowledgement {
        // Ids of alerts are the same everywhere, and a member may have several.
        let is_by_names = Name::new(&self.id).is_ok() && self.names.len() <= NAMES_MAX;
        let names = if is_by_names { self.names.clone() } else { BTreeSet::new() };
        Acknowledgement { incident: self.id.clone(), by, names }
    }

    /// Whether an acknowledgement of this moment is of it.
    pub(super) fn is_known_by(&self, at: Instant, known: &Acknowledgement) -> bool {
        let is_of = if known.names.is_empty() || self.names.is_empty() {
            known.incident == self.id
        } else {
            self.names.is_subset(&known.names)
        };
        is_of && at >= self.since
    }

    /// All of it but the time.
    pub fn told(&self) -> String {
        let story = self.story().map_or(String::new(), |story| format!(": {story}"));
        let lasted = self.last.since(self.since);
        let is_told = self.is_over && lasted >= KEEP_LEAST;
        let over = if is_told { format!("; over after {}", age(lasted)) } else { String::new() };
        let remedy = self.remedy.as_deref().map_or(String::new(), |remedy| format!("; to do: {remedy}"));
        format!("{}{story}{over}{remedy}", self.fact)
    }

    /// The sentence.
    pub fn sentence(&self, sample: &Sample) -> String {
        format!("{} {}", self.time(sample), self.told())
    }

    pub fn runbook(&self) -> String {
        runbook(&self.section)
    }

    /// That of an alert.
    pub(super) fn of_alert(alert: &Raised, is_over: bool) -> Self {
        let rule = alert.rule;
        Self {
            id: format!("{} {}", rule.name, alert.who).trim_end().to_owned(),
            names: Name::new(&alert.who).into_iter().collect(),
            fact: format!("{}: {}", rule.name, alert.clause),
            remedy: (!is_over).then(|| rule.remedy.to_owned()),
            section: rule.section.to_owned(),
            since: alert.since,
            last: alert.last,
            is_over,
            ..Self::default()
        }
    }
}

/// The address of a section of the alerts' manual.
pub(crate) fn runbook(section: &str) -> String {
    format!("docs/alerts.md#{}", section.to_lowercase())
}

/// One thing that is wrong at one moment.
struct Trouble {
    fact: String,
    names: BTreeSet<Name>,
    /// These, and the agents of those that are programs.
    kin: BTreeSet<Name>,
    said: Advice,
    /// Causes first, then programs of agents, then what is said of the cluster.
    rank: u8,
}

impl Trouble {
    fn is_related(&self, other: &Self) -> bool {
        !self.kin.is_disjoint(&other.names)
            || !self.names.is_disjoint(&other.kin)
            || self.names.is_empty() && other.names.is_empty()
    }
}

/// What is wrong, in groups that belong together.
fn troubles(sample: &Sample) -> Vec<Vec<Trouble>> {
    if sample.reasons.is_empty() {
        return Vec::new();
    }
    let agents: BTreeMap<u32, Name> =
        sample.processes.iter().filter(|row| row.seat == 0).map(|row| (row.region, row.name)).collect();
    let agent = |row: &ProcessRow| agents.get(&row.region).filter(|_| row.seat != 0).copied();
    let agent_of: BTreeMap<Name, Name> =
        sample.processes.iter().filter_map(|row| Some((row.name, agent(row)?))).collect();
    let is_one = sample.health.is_known_to_serve() == Some(false);
    let mut groups: Vec<Vec<Trouble>> = Vec::new();
    let mut to_do = None;
    for (at, fact) in sample.reasons.iter().enumerate() {
        // Old recordings have no advice.
        let none =
            || Advice { remedy: advice::of_health(sample.health).map(str::to_owned), ..Advice::default() };
        let said = sample.advice.get(at).cloned().unwrap_or_else(none);
        if said.remedy.as_deref() == Some(fact.as_str()) {
            to_do = said.remedy;
            continue;
        }
        let names: BTreeSet<Name> = said.names.iter().copied().collect();
        let of_agents = names.iter().filter_map(|name| agent_of.get(name)).copied();
        let kin: BTreeSet<Name> = names.iter().copied().chain(of_agents).collect();
        let rank = if names.is_empty() { 2 } else { u8::from(kin.len() > names.len()) };
        let trouble = Trouble { fact: fact.clone(), names, kin, said, rank };
        let mut group = Vec::new();
        groups.retain_mut(|other| {
            let joins = is_one || other.iter().any(|one| one.is_related(&trouble));
            if joins {
                group.append(other);
            }
            !joins
        });
        group.push(trouble);
        groups.push(group);
    }
    for group in &mut groups {
        group.sort_by_key(|trouble| trouble.rank);
        if let Some(first) = group.first_mut() {
            first.said.remedy = to_do.clone().or(first.said.remedy.take());
        }
    }
    groups
}

/// Whether a fact about these is to be replaced by others: they are on their way back.
fn is_passing(names: &BTreeSet<Name>, sample: &Sample) -> bool {
    let runs = |row: &ProcessRow| row.life == Life::Runs && (row.seat == 0 || sample.has_agent(row));
    !names.is_empty()
        && names.iter().all(|name| sample.processes.iter().any(|row| row.name == *name && runs(row)))
}

/// What a failover was, for an incident about these.
fn told(failover: &Failover, names: &BTreeSet<Name>, known: Known<'_>) -> String {
    let all: BTreeSet<Name> = failover.dead.iter().filter_map(|dead| known.name(dead.who)).collect();
    let reported = failover.dead.iter().find(|dead| dead.reason.is_some()).and_then(|dead| {
        let detector = dead.reason?.name();
        let by = known.name(dead.accuser).filter(|_| dead.accuser != dead.who);
        Some(by.map_or(format!("detected by {detector}, "), |by| format!("reported by {by} ({detector}), ")))
    });
    let others: Vec<&str> = all.difference(names).map(Name::as_str).collect();
    let with = if others.is_empty() { String::new() } else { format!(" with {}", others.join(", ")) };
    let took = failover.total().map_or(String::new(), |total| format!(", survivors active after {total}"));
    format!("{}removed by view {}{with}{took}", reported.unwrap_or_default(), failover.view)
}

/// What the samples have told, this one included.
#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    pub(crate) events: &'a VecDeque<EventRow>,
    pub(crate) departures: &'a Departures,
    pub(crate) names: &'a BTreeMap<Incarnation, Name>,
}

impl Known<'_> {
    fn name(self, incarnation: Incarnation) -> Option<Name> {
        self.names.get(&incarnation).copied()
    }
}

/// The incidents of a cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    /// Those that are not over.
    pub(super) open: Vec<Incident>,
    /// Those that are, the newest first.
    pub(super) ended: VecDeque<Incident>,
    /// How many of these were dropped.
    pub(super) dropped: u64,
    /// The acknowledgements of open incidents, the newest last.
    pub(super) acknowledged: VecDeque<(Instant, Acknowledgement)>,
    /// Until when failovers may be completed by further events.
    unsettled: Instant,
    /// When failovers were told last.
    told: Option<Instant>,
    /// The newest views whose failovers were told.
    views: BTreeSet<ViewId>,
    /// The sample before, and whether no program could act then.
    before: Option<(Instant, bool)>,
}

impl Log {
    /// Adds a sample, whose events are known.
    pub(crate) fn take(&mut self, known: Known<'_>, sample: &Sample) {
        let is_outage = sample.health.is_known_to_serve() == Some(false);
        let (before, was_outage) =
            self.before.replace((sample.at, is_outage)).unwrap_or((sample.at, is_outage));
        for mark in &sample.marks {
            self.acknowledged.extend(mark.acknowledged.clone().map(|known| (mark.at, known)));
        }
        while self.acknowledged.len() > HISTORY_MAX {
            self.acknowledged.pop_front();
        }
        if is_outage && !was_outage {
            // Now all of them are one, which is worse than what was known.
            self.acknowledged.clear();
        }
        let open = self.open.len();
        for group in troubles(sample) {
            self.learn(group, sample);
        }
        if let Some(now) = self.open.iter_mut().find(|one| was_outage && is_outage && one.last == sample.at) {
            now.outage = now.outage.saturating_add(sample.at.since(before));
        }
        if !sample.events.is_empty() {
            self.unsettled = sample.at + SETTLE + SETTLE;
        }
        let is_due = self.told.is_none_or(|told| sample.at.since(told) >= TELL_EVERY);
        if sample.at <= self.unsettled && (is_due || self.open.len() > open) {
            self.told = Some(sample.at);
            self.tell_failovers(known, sample);
        }
        let (over, open) = std::mem::take(&mut self.open)
            .into_iter()
            .partition(|one| one.last < sample.at && sample.at.since(one.last) >= LINGER);
        self.open = open;
        over.into_iter().for_each(|one| self.end(one));
    }

    fn end(&mut self, one: Incident) {
        let acknowledged = self.who_knows(&one);
        if one.last.since(one.since) >= KEEP_LEAST || !one.done.is_empty() || one.outage > Nanos::ZERO {
            self.ended.push_front(Incident { is_over: true, remedy: None, acknowledged, ..one });
            self.dropped += self.ended.len().saturating_sub(HISTORY_MAX) as u64;
            self.ended.truncate(HISTORY_MAX);
        }
    }

    /// Who acknowledged it.
    pub(super) fn who_knows(&self, one: &Incident) -> Option<String> {
        let known = self.acknowledged.iter().rev().find(|(at, known)| one.is_known_by(*at, known));
        known.map(|(_, known)| known.by.clone())
    }

    /// Learns that this is wrong at the moment of a sample.
    fn learn(&mut self, group: Vec<Trouble>, sample: &Sample) {
        let is_one = sample.health.is_known_to_serve() == Some(false);
        let names: BTreeSet<Name> = group.iter().flat_map(|trouble| &trouble.names).copied().collect();
        let is_same = |one: &Incident| {
            is_one || !one.names.is_disjoint(&names) || one.names.is_empty() && names.is_empty()
        };
        let (same, rest) = std::mem::take(&mut self.open).into_iter().partition(is_same);
        self.open = rest;
        // Several that turn out to be one continue as the first of them.
        let mut same = Vec::into_iter(same);
        let known = same.next();
        let is_new = known.is_none();
        let mut one = known.unwrap_or_else(|| Incident { since: sample.at, ..Incident::default() });
        let had = one.names.len();
        for other in same {
            one.since = one.since.min(other.since);
            one.outage = one.outage.max(other.outage);
            one.before = (one.before.0 + other.before.0, one.before.1.max(other.before.1));
            other.done.into_iter().for_each(|(view, told)| one.add_done(view, told));
            one.names.extend(other.names);
            if other.last > one.last {
                (one.fact, one.remedy, one.section) = (other.fact, other.remedy, other.section);
                (one.last, one.caused) = (other.last, other.caused);
            } else if other.last == sample.at {
                one.caused.push(other.fact);
                one.caused.extend(other.caused);
            }
        }
        let mut facts = group.into_iter();
        let Some(Trouble { fact, names: about, said, .. }) = facts.next() else { return };
        let since = said.since.map(|unix| sample.instant_at(unix));
        // Two groups of this sample may continue one incident.
        let is_another = !is_new && one.last == sample.at;
        if !is_another {
            one.caused.clear();
        }
        if !is_another && (is_new || !is_passing(&about, sample)) {
            one.section = said.section.unwrap_or_else(|| alerting::section(sample.health).to_owned());
            (one.fact, one.remedy) = (fact, said.remedy);
        } else if fact != one.fact {
            one.remedy = if is_another { one.remedy } else { said.remedy.or(one.remedy) };
            one.caused.push(fact);
        }
        one.caused.extend(facts.map(|trouble| trouble.fact));
        if is_new {
            one.id = about.first().map_or("cluster".to_owned(), Name::to_string);
        }
        one.names.extend(names);
        if !is_new && one.names.len() > had {
            self.acknowledged.retain(|(_, known)| !known.names.is_empty() || known.incident != one.id);
        }
        one.since = since.map_or(one.since, |since| since.min(one.since));
        one.last = sample.at;
        self.open.push(one);
    }

    fn tell_failovers(&mut self, known: Known<'_>, sample: &Sample) {
        let most = EVENTS.0.max(EVENTS.1 * sample.processes.len());
        let recent = known.events.iter().skip(known.events.len().saturating_sub(most));
        for failover in failovers::all(&recent.map(EventRow::seen), known.departures) {
            let names: BTreeSet<Name> =
                failover.dead.iter().filter_map(|dead| known.name(dead.who)).collect();
            let belongs = |one: &&mut Incident| {
                !one.names.is_disjoint(&names)
                    && failover.began + SEEN_WITHIN >= one.since
                    && failover.began <= one.last
            };
            if let Some(one) = self.open.iter_mut().chain(&mut self.ended).find(belongs) {
                one.since = one.since.min(failover.began);
                one.add_done(failover.view, told(&failover, &one.names, known));
                self.views.insert(failover.view);
                continue;
            }
            if self.views.contains(&failover.view)
                || sample.at.since(failover.began) < SETTLE
                || names.is_empty()
            {
                continue;
            }
            self.views.insert(failover.view);
            let list: Vec<&str> = names.iter().map(Name::as_str).collect();
            let last = failover.last_active().map_or(failover.began, |(_, at)| at.max(failover.began));
            self.end(Incident {
                fact: format!("{} failed", list.join(", ")),
                done: BTreeMap::from([(failover.view, told(&failover, &names, known))]),
                section: "ObolFailover".to_owned(),
                since: failover.began,
                last,
                names,
                ..Incident::default()
            });
        }
        while self.views.len() > super::REPORTED_MAX {
            self.views.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Health;
    use crate::annotations::Mark;
    use crate::samples;
    use crate::sampling::data::Data;
    use obol_membership::metrics::Counter;
    use std::sync::Arc;

    const START: u64 = 3_600_000_000_000;

    /// The data after quarters of a second that were changed like this.
    fn after(quarters: u64, change: impl Fn(u64, &mut Sample)) -> Data {
        let mut data = Data::default();
        for n in 0..quarters {
            let mut sample = samples::healthy(Instant(START + n * 250_000_000));
            change(n, &mut sample);
            data.take(Arc::new(sample));
        }
        data
    }

    fn wrong(sample: &mut Sample, health: Health, reasons: &[(&str, Option<&str>)]) {
        sample.health = health;
        sample.reasons = reasons.iter().map(|(text, _)| (*text).to_owned()).collect();
        let said = |text: &str, remedy: Option<&str>| Advice {
            remedy: remedy.map(str::to_owned),
            names: members(text),
            ..Advice::default()
        };
        sample.advice = reasons.iter().map(|(text, remedy)| said(text, *remedy)).collect();
    }

    /// The members in a text of these tests, whom it is about.
    fn members(text: &str) -> Vec<Name> {
        let words = text.split([' ', ',', ':', ';']);
        let is_member = |word: &&str| ["app-", "node-", "coord-"].iter().any(|kind| word.starts_with(kind));
        words.filter(is_member).map(|word| Name::new(word).expect("a name")).collect()
    }

    fn set(sample: &mut Sample, name: &str, life: Life) {
        let rows = sample.processes.iter_mut().filter(|row| row.name.as_str() == name);
        rows.for_each(|row| row.life = life);
    }

    fn told(all: &[Incident]) -> Vec<String> {
        all.iter().map(Incident::told).collect()
    }

    #[test]
    fn what_belongs_together_is_one_incident_and_what_does_not_is_another() {
        let data = after(8, |n, sample| {
            if n >= 4 {
                *sample = samples::degraded(sample.at);
                sample.events.retain(|_| n == 4);
                let frozen = "node-3 is frozen (stopped) and was removed";
                let reasons = [
                    ("app-2 down: killed by SIGKILL", Some("`obol start app-2`")),
                    (frozen, Some("`kill -CONT 108` lets it continue")),
                    ("app-3 is not a member", None),
                ];
                wrong(sample, Health::Degraded, &reasons);
            }
        });
        let all = data.incidents();
        assert_eq!(
            told(&all),
            [
                "node-3 is frozen (stopped) and was removed: app-3 is not a member; to do: `kill -CONT 108` lets it continue",
                "app-2 down: killed by SIGKILL: reported by coord-1 (deadbeat), removed by view 7, survivors active after \
                 156us; to do: `obol start app-2`",
            ]
        );
        assert_eq!(all.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), ["node-3", "app-2"]);
        // Its first notice was before it was seen to be down.
        assert_eq!(all[1].since, Instant(START + 1_000_000_000 - 800_000));
        assert!(data.ended_incidents().is_empty());
    }

    #[test]
    fn whom_it_is_about_is_not_read_out_of_its_words() {
        let data = after(8, |n, sample| {
            if n >= 4 {
                set(sample, "node-3", Life::Frozen);
                sample.health = Health::Degraded;
                sample.reasons = [
                    "node-3 is frozen (stopped)",
                    "it ended: cannot open /var/log/node-3 of node-3",
                    "halts",
                ]
                .map(str::to_owned)
                .to_vec();
                let about = |names: &str| Advice { names: members(names), ..Advice::default() };
                sample.advice = ["node-3", "app-1", "node-2"].map(about).to_vec();
            }
        });
        let mut ids: Vec<String> = data.incidents().into_iter().map(|one| one.id).collect();
        ids.sort_unstable();
        assert_eq!(ids, ["app-1", "node-2", "node-3"]);
    }

    #[test]
    fn reasons_of_old_recordings_are_one_incident_of_the_cluster_and_lose_no_failover() {
        for (is_advised, to_do) in [(true, "`obol start app-2`"), (false, "start what is down")] {
            let data = after(24, |n, sample| {
                if n < 4 {
                    return;
                }
                let failed = samples::degraded(sample.at);
                (sample.health, sample.reasons, sample.view) = (failed.health, failed.reasons, failed.view);
                sample.events = if n == 4 { failed.events } else { Vec::new() };
                sample.advice = if is_advised { failed.advice } else { Vec::new() };
                sample.advice.iter_mut().for_each(|said| said.names.clear());
            });
            let (open, over) = (data.incidents(), told(&data.ended_incidents()));
            assert_eq!(open.len(), 1, "{open:?}");
            assert_eq!((open[0].id.as_str(), open[0].names.len()), ("cluster", 0));
            let all = format!("app-2 down: node-3 is frozen (stopped); to do: {to_do}");
            assert!(open[0].told().starts_with(&all), "{}", open[0].told());
            assert!(over.len() == 1 && over[0].starts_with("app-2 failed: reported by coord-1"), "{over:?}");
        }
    }

    #[test]
    fn a_lost_majority_is_one_incident_with_all_that_it_causes_and_says_how_long_nothing_could_act() {
        let data = after(20, |n, sample| {
            if (4..12).contains(&n) {
                set(sample, "coord-2", Life::Down);
                let lost = "coordinator majority lost: 1 of 3 run; start coord-2, coord-3";
                let ended = "every lease has ended: no program may act";
                wrong(
                    sample,
                    Health::Unavailable,
                    &[(ended, None), (lost, None), ("app-1 is not a member", None)],
                );
            }
        });
        assert!(data.incidents().is_empty());
        assert_eq!(
            told(&data.ended_incidents()),
            [
                "coordinator majority lost: 1 of 3 run; start coord-2, coord-3: no program could act for 1.7s; app-1 is not a \
              member; every lease has ended: no program may act; over after 1.7s"
            ]
        );
    }

    #[test]
    fn the_way_back_is_not_another_incident_and_moments_are_none() {
        let back = |n: u64, sample: &mut Sample| match n {
            4..12 => {
                set(sample, "node-2", Life::Frozen);
                wrong(sample, Health::Degraded, &[("node-2 is frozen (stopped)", Some("continue it"))]);
            }
            12..14 => wrong(sample, Health::Degraded, &[("node-2 knows view 6, the newest is 7", None)]),
            20 => wrong(sample, Health::Degraded, &[("app-1 knows view 6, the newest is 7", None)]),
            _ => {}
        };
        let data = after(13, back);
        assert_eq!(
            told(&data.incidents()),
            ["node-2 is frozen (stopped): node-2 knows view 6, the newest is 7; to do: continue it"]
        );
        let over = told(&after(40, back).ended_incidents());
        assert_eq!(over.len(), 1, "{over:?}");
        assert!(
            over[0].starts_with("node-2 is frozen (stopped)") && over[0].ends_with("; over after 2.2s"),
            "{over:?}"
        );
    }

    #[test]
    fn a_failover_between_two_samples_is_an_incident_that_is_over() {
        let data = after(24, |n, sample| {
            let failed = samples::degraded(sample.at);
            if n == 4 {
                (sample.events, sample.view) = (failed.events, failed.view);
            }
        });
        assert!(data.incidents().is_empty());
        let told = told(&data.ended_incidents());
        assert_eq!(
            told,
            ["app-2 failed: reported by coord-1 (deadbeat), removed by view 7, survivors active after 156us"]
        );
    }

    #[test]
    fn an_alert_about_a_member_belongs_to_its_incident_and_is_acknowledged_until_it_ends() {
        let late = |marks: bool, frozen: bool| {
            after(24, move |n, sample| {
                sample.processes[3].counters[Counter::RenewalsLate as usize] += n.min(20);
                let name = sample.processes[3].name;
                if frozen && n > 8 {
                    set(sample, name.as_str(), Life::Frozen);
                    wrong(sample, Health::Degraded, &[(&format!("{name} is frozen (stopped)"), None)]);
                }
                if marks && n == 23 {
                    let known = Incident {
                        id: format!("late renewals {name}"),
                        names: BTreeSet::from([name]),
                        ..Incident::default()
                    };
                    let known = known.acknowledge("alice".to_owned());
                    sample.marks.push(Mark::acknowledged(sample.at, known, "late").into());
                }
            })
        };
        let alone = late(true, false).incidents();
        assert!(
            alone.len() == 1 && alone[0].fact.starts_with("late renewals: node-1 renewed late"),
            "{alone:?}"
        );
        assert_eq!(alone[0].acknowledged.as_deref(), Some("alice"));
        assert_eq!(late(false, false).incidents()[0].acknowledged, None);
        let both = late(false, true).incidents();
        assert!(
            both.len() == 1 && both[0].caused.iter().any(|text| text.contains("renewed late")),
            "{both:?}"
        );
        let (mut data, mut sample) = (late(true, false), samples::healthy(Instant(START)));
        for n in 24..500 {
            sample.at = Instant(START + n * 250_000_000);
            data.take(Arc::new(sample.clone()));
        }
        assert!(data.incidents().is_empty() && data.incidents.acknowledged.is_empty());
    }

    const FROZEN: &str = "node-2 is frozen (stopped)";
    const OTHER: &str = "node-3 is frozen (stopped)";
    const LOST: &str = "coordinator majority lost: 1 of 3 run";

    /// That alice acknowledges an incident of this id and of these, quarters of a second after the start.
    fn acknowledge(sample: &mut Sample, id: &str, names: &[&str], quarter: u64) {
        let names = names.iter().map(|name| Name::new(name).expect("a name")).collect();
        let known = Acknowledgement { incident: id.to_owned(), by: "alice".to_owned(), names };
        let at = Instant(START + quarter * 250_000_000);
        sample.marks.push(Mark::acknowledged(at, known, "known").into());
    }

    #[test]
    fn after_an_outage_two_groups_of_one_incident_are_both_told() {
        let frozen = |sample: &mut Sample| {
            ["node-2", "node-3"].into_iter().for_each(|name| set(sample, name, Life::Frozen));
        };
        let data = after(12, |n, sample| match n {
            4..8 => wrong(sample, Health::Unavailable, &[(LOST, None), (FROZEN, None), (OTHER, None)]),
            8.. => {
                frozen(sample);
                wrong(sample, Health::Degraded, &[(FROZEN, Some("continue 2")), (OTHER, Some("3"))]);
            }
            _ => {}
        });
        let told = told(&data.incidents());
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with(FROZEN) && told[0].contains(OTHER), "{told:?}");
        assert!(told[0].ends_with("to do: continue 2"), "{told:?}");
    }

    #[test]
    fn who_knows_of_less_does_not_know_of_an_outage_or_of_further_members() {
        let who = |names: &'static [&str], worse: &'static [(&str, Option<&str>)], health: Health| {
            let data = after(16, move |n, sample| {
                if n >= 4 {
                    wrong(sample, Health::Degraded, &[(FROZEN, None)]);
                }
                if n == 6 {
                    acknowledge(sample, "node-2", names, 6);
                }
                if n >= 10 {
                    wrong(sample, health, worse);
                }
            });
            let all = data.incidents();
            assert_eq!((all.len(), all[0].id.as_str()), (1, "node-2"));
            all[0].acknowledged.clone()
        };
        for names in [&[][..], &["node-2"]] {
            let alice = Some("alice".to_owned());
            assert_eq!(who(names, &[(FROZEN, None)], Health::Degraded), alice);
            assert_eq!(who(names, &[(FROZEN, None)], Health::Unavailable), None);
            assert_eq!(who(names, &[("node-2 and node-3 are frozen", None)], Health::Degraded), None);
        }
    }

    #[test]
    fn an_acknowledgement_is_of_an_incident_that_began_before_by_its_names_or_its_id() {
        let who = |id: &'static str, names: &'static [&str], quarter: u64| {
            let data = after(8, move |n, sample| {
                if n >= 4 {
                    wrong(sample, Health::Degraded, &[(FROZEN, None)]);
                }
                if n == 6 {
                    acknowledge(sample, id, names, quarter);
                }
            });
            data.incidents()[0].acknowledged.is_some()
        };
        assert!(who("node-2", &["node-2"], 5) && who("node-2", &[], 5));
        assert!(!who("node-2", &["node-2"], 3) && !who("node-2", &[], 3), "it was of one before");
        assert!(who("node-1", &["node-1", "node-2"], 5), "the other console has merged two");
        assert!(!who("node-1", &["node-1"], 5) && !who("node-1", &[], 5));
    }

    #[test]
    fn a_failover_is_told_though_a_later_one_was_told_before_it() {
        let mut log = Log::default();
        let mut data = Data::default();
        let mut sample = samples::degraded(Instant(START));
        wrong(&mut sample, Health::Healthy, &[]);
        data.take(Arc::new(sample.clone()));
        // A later view has been told.
        log.views.insert(ViewId(9));
        sample.at = sample.at + SETTLE + SETTLE;
        let known = Known { events: &data.events, departures: &data.departures, names: &names(&sample) };
        for _ in 0..2 {
            log.tell_failovers(known, &sample);
            assert_eq!(log.ended.len(), 1, "{:?}", log.ended);
        }
    }

    fn names(sample: &Sample) -> BTreeMap<Incarnation, Name> {
        let processes = sample.processes.iter().map(|row| (row.incarnation, row.name));
        processes.chain(sample.names.iter().map(|row| (row.who, row.name))).collect()
    }

    #[test]
    fn an_outage_lasts_from_the_first_sample_that_saw_it() {
        let data = after(24, |n, sample| {
            let slow = if n >= 4 { 60_000_000_000 } else { 0 };
            sample.at = Instant(sample.at.0 + slow);
            if (4..9).contains(&n) {
                wrong(sample, Health::Unavailable, &[(LOST, None)]);
            }
        });
        assert_eq!(data.ended_incidents()[0].outage, Nanos::from_secs(1));
    }

    #[test]
    fn of_many_failovers_the_newest_are_told_and_the_others_counted() {
        let mut one = Incident::default();
        for _ in 0..2 {
            (1..=11).for_each(|view| one.add_done(ViewId(view), format!("view {view}")));
        }
        let story = one.story().expect("told");
        assert!(story.starts_with("view 4; ") && story.ends_with("view 11; and 3 before"), "{story}");
    }

    #[test]
    fn incidents_beyond_those_that_are_kept_are_counted_and_none_says_what_to_do_when_it_is_over() {
        let mut log = Log::default();
        let long =
            Incident { last: Instant(START), remedy: Some("start it".to_owned()), ..Incident::default() };
        for n in 0..HISTORY_MAX as u64 + 3 {
            assert_eq!(log.dropped, n.saturating_sub(HISTORY_MAX as u64));
            log.end(long.clone());
        }
        assert_eq!((log.ended.len(), log.dropped), (HISTORY_MAX, 3));
        let sample = samples::healthy(Instant(START));
        let json = |one| crate::incidents::incident_json(one, &sample);
        assert!(json(&log.ended[0])["over"].is_string() && json(&log.ended[0])["remedy"].is_null());
        assert!(json(&long)["over"].is_null() && json(&long)["remedy"] == "start it");
    }

    #[test]
    fn advice_does_not_repeat_its_reason() {
        let said = Advice { remedy: Some("start it".to_owned()), ..Advice::default() };
        assert_eq!(said.clone().beside("start it").remedy, None);
        assert_eq!(said.clone().beside("it is down"), said);
    }

    #[test]
    fn any_text_and_any_number_is_told() {
        for unix in [0, u64::MAX] {
            let data = after(8, |n, sample| {
                *sample = samples::degraded(sample.at);
                sample.reasons.push("-.-, node-1. (\u{1F600}) \u{0}".to_owned());
                let said = Advice { since: Some(unix), ..Advice::default() };
                sample.advice = vec![said; n as usize];
                sample.unix = if n % 2 == 0 { unix } else { sample.unix };
            });
            let sample = data.sample.as_deref().expect("read");
            assert!(data.incidents().iter().all(|one| !one.sentence(sample).is_empty()));
        }
    }
}

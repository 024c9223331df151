//! Reads the flight recorders of the own process, as an observer reads those of others: nothing of
//! the protocol waits for it, and a process that is busy is read all the same.

use crate::events::{MODULE, event_line, explain};
use crate::levels::Severity;
use crate::line::Line;
use obol_fabric::host::{Cluster, Observed, Process, Reader, RegionInfo, clock};
use obol_fabric::layout::PROPOSERS_MAX;
use obol_fabric::{Incarnation, Instant, Name, Nanos, ViewId};
use obol_fabric_ip::GatewayCounter;
use obol_membership::metrics::Counter;
use obol_membership::recorder::{EventKind, Stamped};
use obol_membership::view::coordinator_name;
use obol_membership::{Kind, View};
use obol_observe::calendar::unix_now;
use obol_observe::missed;
use obol_observe::names::Names;
use obol_observe::names_file::NamesFile;
use std::collections::BTreeMap;

/// How often regions of this process are looked for: it may get one late, or another one.
const SEARCH_INTERVAL: Nanos = Nanos::from_secs(1);
/// How often a line says that a counter has grown: what others cause must not fill the log.
const REFUSALS_INTERVAL: Nanos = Nanos::from_secs(10);
/// Counters of what the process refused or lost: a line says when they have grown. The slot, its
/// name, and what it counts.
const REFUSALS: [(usize, &str, Severity, &str); 11] = [
    refusal(Counter::DatagramsRefused, Severity::Warn, "invalid datagrams refused"),
    refusal(
        Counter::KernelNoticesRefused,
        Severity::Warn,
        "death notices refused: forged, or of another cluster",
    ),
    refusal(
        Counter::MapFailures,
        Severity::Error,
        "times no region could be mapped: out of descriptors or memory",
    ),
    refusal(Counter::LinksLost, Severity::Warn, "links lost"),
    refusal(
        Counter::DatagramsLost,
        Severity::Info,
        "datagrams lost: no connection to the receiver, or its lane was full",
    ),
    at_gateway(GatewayCounter::Strangers, "connections ended before a process had introduced itself"),
    at_gateway(GatewayCounter::Invalid, "sessions ended for an invalid message"),
    at_gateway(GatewayCounter::Denied, "operations denied that the peer's role does not allow"),
    at_gateway(
        GatewayCounter::WatchesRefused,
        "watches refused: of observers, of no process here, or too many",
    ),
    at_gateway(GatewayCounter::Stalled, "sessions ended that took no answers"),
    at_gateway(GatewayCounter::Evicted, "sessions of observers ended because their host had too many"),
];

const fn refusal(
    counter: Counter,
    severity: Severity,
    what: &'static str,
) -> (usize, &'static str, Severity, &'static str) {
    (counter as usize, counter.name(), severity, what)
}

const fn at_gateway(
    counter: GatewayCounter,
    what: &'static str,
) -> (usize, &'static str, Severity, &'static str) {
    (counter as usize, counter.name(), Severity::Warn, what)
}

/// A seat of this process.
struct Source {
    name: Name,
    region: Observed,
    seat: u16,
    /// Of the seat's occupant.
    generation: u32,
    /// The next unread event.
    next: u64,
    own: Incarnation,
    counted: [Reported; REFUSALS.len()],
}

/// What was said of a counter.
#[derive(Clone, Copy, Default)]
struct Reported {
    counted: u64,
    at: Option<Instant>,
}

impl Reported {
    /// By how much a counter has grown since it was said last, if it is to be said now.
    fn more(&mut self, counted: u64, now: Instant) -> Option<u64> {
        let Some(more) = counted.checked_sub(self.counted) else {
            // It begins anew.
            *self = Self { counted, at: None };
            return None;
        };
        if more == 0 || self.at.is_some_and(|at| now.since(at) < REFUSALS_INTERVAL) {
            return None;
        }
        *self = Self { counted, at: Some(now) };
        Some(more)
    }
}

/// A seat in one life of its region.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SourceKey {
    region: u32,
    /// That of the region's owner.
    generation: u32,
    seat: u16,
}

/// Follows the flight recorders of this process.
pub(crate) struct Follower {
    cluster: Cluster,
    me: Process,
    agent: Option<Name>,
    sources: BTreeMap<SourceKey, Source>,
    searched: Option<Instant>,
    names: Names,
    view: Option<View>,
    /// Where the names of members are kept, if this process does that.
    kept: Option<NamesFile>,
}

impl Follower {
    pub(crate) fn new(cluster: Cluster, agent: Option<Name>) -> std::io::Result<Self> {
        Ok(Self {
            cluster,
            me: Process::current()?,
            agent,
            sources: BTreeMap::new(),
            searched: None,
            names: Names::default(),
            view: None,
            kept: None,
        })
    }

    /// Finds the seats of this process.
    fn search(&mut self, now: Instant) {
        if self.searched.is_some_and(|then| now.since(then) < SEARCH_INTERVAL) {
            return;
        }
        self.searched = Some(now);
        let own = self.cluster.regions_of(self.me);
        self.kept = match self.kept.take() {
            None if self.keeps_names(&own) => Some(NamesFile::new(self.cluster.dir())),
            kept => kept,
        };
        let agent = self.agent.and_then(|agent| self.cluster.region_named(agent));
        let mut found = Vec::new();
        for info in own {
            found.push((info, 0..1));
        }
        let seats = u16::try_from(self.cluster.layout().limits().seats).unwrap_or(u16::MAX);
        found.extend(agent.map(|info| (info, 1..seats)));
        // Of a region that another process has taken, the last events were read before.
        self.sources.retain(|key, _| {
            found.iter().any(|(info, _)| (info.number, info.generation) == (key.region, key.generation))
        });
        for (info, seats) in found {
            let key = |seat| SourceKey { region: info.number, generation: info.generation, seat };
            if seats.len() == 1 && self.sources.contains_key(&key(0)) {
                continue;
            }
            // One that is being created is there at the next search.
            let Ok(region) = Observed::open(&self.cluster, info.number) else { continue };
            for seat in seats {
                if self.sources.contains_key(&key(seat)) {
                    continue;
                }
                let Some(taken) = region.reader().seat(seat).filter(|taken| taken.process == self.me) else {
                    continue;
                };
                let source = Source {
                    name: if seat == 0 { info.name } else { taken.name },
                    region: region.clone(),
                    seat,
                    generation: taken.generation,
                    next: 0,
                    own: taken.incarnation,
                    counted: [Reported::default(); REFUSALS.len()],
                };
                self.sources.insert(key(seat), source);
            }
        }
    }

    /// Whether this process keeps the names of members: a coordinator or, where none runs, an agent.
    fn keeps_names(&self, own: &[RegionInfo]) -> bool {
        let is = |kind: Kind| own.iter().any(|info| info.kind == kind as u32);
        let runs =
            || (1..=PROPOSERS_MAX as u16).any(|n| self.cluster.region_named(coordinator_name(n)).is_some());
        is(Kind::Coordinator) || is(Kind::Agent) && !runs()
    }

    /// Gives a line for everything that is new.
    pub(crate) fn poll(&mut self, give: &mut dyn FnMut(Line)) {
        let now = clock::now();
        self.search(now);
        // Two clocks at one moment.
        let (unix, now) = (unix_now(), clock::now());
        let utc = |at: Instant| unix.saturating_sub(now.since(at).0);
        let Self { sources, names, view, me, kept, cluster, .. } = self;
        for source in sources.values_mut() {
            if let Some(before) = learn(source.region.reader(), names, view)
                && let (Some(kept), Some(view)) = (kept.as_mut(), view.as_ref())
            {
                let gone = view.departed.iter().map(|gone| (gone.incarnation, gone.name));
                let members = view.members.iter().map(|member| (member.incarnation, member.name));
                // Who is not in the file has a number instead of a name in time.
                let _ = kept.add(&gone.chain(members).collect::<Vec<_>>());
                // The next view has it as well, for a while.
                let _ = missed::learn(cluster.dir(), view, &before, unix / 1_000_000_000);
            }
        }
        sources.retain(|_, source| {
            let region = source.region.clone();
            let reader = region.reader();
            let occupant = reader.seat(source.seat);
            if occupant.is_none_or(|seat| seat.process != *me || seat.generation != source.generation) {
                return false;
            }
            let events: Vec<Stamped> = reader.events(source.seat, source.next).unwrap_or_default();
            for event in events {
                if let Some(gap) = event.number.checked_sub(source.next).filter(|gap| *gap > 0) {
                    let text = format!(
                        "{gap} events of the flight recorder were overwritten before they were logged"
                    );
                    give(
                        Line::new(utc(event.at), Severity::Warn, source.name, MODULE, text).with("lost", gap),
                    );
                }
                source.next = event.number + 1;
                give(source.line(&event, utc(event.at), names, view.as_ref()));
            }
            source.refusals(reader, unix, now, give);
            true
        });
    }
}

/// Takes the newest view, and the names in it. Returns where the members of the one before were, if it is
/// another one.
fn learn(reader: Reader<'_>, names: &mut Names, view: &mut Option<View>) -> Option<missed::Regions> {
    let known = view.as_ref().map(|view| view.id);
    if reader.view_id().is_none_or(|id| known.is_some_and(|known| id <= known)) {
        return None;
    }
    let newest = reader.view().and_then(|(_, bytes)| View::from_frame(&bytes))?;
    names.know_all(&newest);
    let before = view.replace(newest);
    Some(before.as_ref().map(missed::regions).unwrap_or_default())
}

impl Source {
    fn line(&mut self, event: &Stamped, unix: u64, names: &mut Names, view: Option<&View>) -> Line {
        let record = &event.record;
        if record.kind == EventKind::Joined {
            self.own = Incarnation(record.a);
            names.know(self.own, self.name);
        }
        let mut line = event_line(self.name, event, unix, Some(self.own), names);
        if record.kind == EventKind::Decide {
            explain(&mut line, &causes(ViewId(record.a), names, view));
        }
        line
    }

    /// Gives a line for each counter of refusals that has grown.
    fn refusals(&mut self, reader: Reader<'_>, unix: u64, now: Instant, give: &mut dyn FnMut(Line)) {
        let counters = reader.counters(self.seat);
        for ((slot, name, severity, what), reported) in REFUSALS.into_iter().zip(&mut self.counted) {
            let counted = counters.get(slot).copied().unwrap_or_default();
            if let Some(more) = reported.more(counted, now) {
                let text = format!("{more} {what} ({counted} in all)");
                let line = Line::new(unix, severity, self.name, "fabric", text);
                give(line.with("counter", name).with("more", more).with("incarnation", self.own));
            }
        }
    }
}

/// What a view changed. Of one that was followed by another before it was read, who departed by it.
fn causes(id: ViewId, names: &Names, newest: Option<&View>) -> String {
    let Some(view) = newest else { return String::new() };
    if view.id == id {
        return names.causes(view).join("; ");
    }
    Names::departures(view).remove(&id).unwrap_or_default().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_grows_all_the_time_has_few_lines_and_loses_nothing() {
        let mut reported = Reported::default();
        // Five readings a second for a minute, each with two more.
        let said =
            (0..300u64).filter_map(|n| reported.more(2 * n, Instant(n * 200_000_000))).collect::<Vec<_>>();
        assert_eq!(said.iter().sum::<u64>(), reported.counted);
        assert!((5..=7).contains(&said.len()), "{said:?}");
        assert_eq!(reported.more(3, Instant(60_000_000_000)), None, "another process has begun to count");
        assert_eq!(reported.more(4, Instant(60_200_000_000)), Some(1), "which is said at once");
    }
}

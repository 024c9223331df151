//! A kill by this process: without a fault agent, a cue, or reading the cluster before its failover
//! is over.

use obol_fabric::host::clock;
use obol_fabric::{Incarnation, Instant, Name, ViewId};
use obol_membership::{Kind, View};
use obol_observe::timeline::{History, Phases};
use obol_observe::{ObservedEvent, Observer, Process};
use obol_term::output::Failure;
use std::sync::Arc;
use std::thread;
use std::time::{self, Duration};

/// After a kill the cluster is not read for this time: nearly every failover is over by then.
const REST: Duration = Duration::from_millis(20);
/// Between two reads after that.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// A failover that is not over by then has failed.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A process that is killed, and those that have to be active without it.
pub(super) struct Kill {
    victim: Process,
    survivors: Vec<Name>,
}

/// What a kill reads: all of a cluster's events, and its newest view.
trait Read {
    /// The events since the last call.
    fn events(&mut self) -> Vec<ObservedEvent>;
    fn view(&mut self) -> Option<Arc<View>>;
}

impl Read for [Observer] {
    fn events(&mut self) -> Vec<ObservedEvent> {
        self.iter_mut().flat_map(Observer::events).collect()
    }

    fn view(&mut self) -> Option<Arc<View>> {
        self.first_mut().and_then(|one| one.snapshot().view)
    }
}

/// What the stamps that were read so far say of a failover.
enum Progress {
    /// All survivors are active.
    Complete(Phases),
    /// All survivors are active, and other stamps are missing or contradict each other.
    Incomplete,
    /// Number of survivors that are not known to be active in that view, if there is one.
    Waits(Option<ViewId>, Vec<Name>),
}

impl Kill {
    /// Of these processes, the victim and the others that live.
    pub(super) fn of(victim: Name, processes: impl IntoIterator<Item = Process>) -> Result<Self, Failure> {
        let alive = processes.into_iter().filter(|process| process.alive);
        let (hit, others): (Vec<_>, Vec<_>) = alive.partition(|process| process.name == victim);
        let of_kind = |kind| others.iter().filter(move |p| p.kind == kind).map(|p| p.name).collect();
        let (programs, agents): (Vec<_>, Vec<_>) = (of_kind(Kind::App), of_kind(Kind::Agent));
        // An agent's lease serves its programs alone.
        let survivors = if programs.is_empty() { agents } else { programs };
        let hit = hit.into_iter().next();
        let victim = hit.ok_or_else(|| Failure::Failed(format!("{victim} does not run")))?;
        Ok(Self { victim, survivors })
    }

    /// Kills it, and waits until its failover is over. `None` if the time line is incomplete, which
    /// the runner of drills does not use either: the decider may have learned of the death from the
    /// view itself, as one that takes over does.
    pub(super) fn run(&self, observers: &mut [Observer]) -> Result<Option<Phases>, Failure> {
        let held = self.victim.process.hold().map_err(Failure::failed)?;
        self.follow(observers, TIMEOUT, || held.kill().map_err(Failure::failed))
    }

    fn follow(
        &self,
        cluster: &mut (impl Read + ?Sized),
        timeout: Duration,
        kill: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<Option<Phases>, Failure> {
        // The victim may be suspected and removed between the last look and its kill. Then its
        // survivors were active in that view before, and no other one follows: what is known now
        // belongs to the history, and shows that this was not a failover.
        let mut history = History::default();
        history.take(&cluster.events());
        let killed_at = clock::now();
        kill()?;
        thread::sleep(REST);
        let end = time::Instant::now() + timeout;
        loop {
            // Once more after the view is known: what its decider wrote may lie in a part that was
            // read just before.
            history.take(&cluster.events());
            let view = cluster.view();
            history.take(&cluster.events());
            let departed = view.and_then(|view| {
                view.departed
                    .iter()
                    .find(|gone| gone.incarnation == self.victim.incarnation)
                    .map(|gone| gone.at)
            });
            match progress(&history, departed, self.victim.incarnation, killed_at, &self.survivors) {
                Progress::Complete(phases) => return Ok(Some(phases)),
                Progress::Incomplete => return Ok(None),
                Progress::Waits(view, who) if time::Instant::now() > end => {
                    return Err(self.timeout(view, &who));
                }
                Progress::Waits(..) => thread::sleep(POLL_INTERVAL),
            }
        }
    }

    fn timeout(&self, view: Option<ViewId>, who: &[Name]) -> Failure {
        let (victim, within) = (self.victim.name, TIMEOUT.as_secs());
        Failure::Failed(match view {
            None => format!("no view without {victim} was decided within {within} s of its kill"),
            Some(view) => {
                let who: Vec<&str> = who.iter().map(Name::as_str).collect();
                format!(
                    "{} did not become active in view {view}, without {victim}, within {within} s of its kill; on a \
                     busy host a process may be suspected itself meanwhile: measure when it is quiet",
                    who.join(", ")
                )
            }
        })
    }
}

/// `departed` is the view without the process that was killed, if it is known.
fn progress(
    history: &History,
    departed: Option<ViewId>,
    dead: Incarnation,
    killed_at: Instant,
    survivors: &[Name],
) -> Progress {
    let Some(view) = departed else { return Progress::Waits(None, Vec::new()) };
    if let Some(phases) = Phases::of(history, view, &[dead], killed_at, survivors) {
        return Progress::Complete(phases);
    }
    let waiting = survivors.iter().filter(|name| history.active_from(view, **name).is_none());
    let waiting: Vec<Name> = waiting.copied().collect();
    if waiting.is_empty() { Progress::Incomplete } else { Progress::Waits(Some(view), waiting) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_fabric::{Address, Nanos};
    use obol_membership::recorder::{EventKind, Record, Stamped};
    use obol_membership::view::Departed;

    fn seen(process: &str, kind: Kind, what: EventKind, at: u64, a: u64) -> ObservedEvent {
        let record = Record { kind: what, reason: 1, a, b: 0 };
        let event = Stamped { number: 0, at: Instant(at), record };
        ObservedEvent { process: Name::new(process).expect("a name"), kind, event, clock_error: Nanos::ZERO }
    }

    /// A cluster whose victim was removed before it was killed.
    struct Removed {
        events: Vec<ObservedEvent>,
        view: Arc<View>,
    }

    impl Read for Removed {
        fn events(&mut self) -> Vec<ObservedEvent> {
            std::mem::take(&mut self.events)
        }

        fn view(&mut self) -> Option<Arc<View>> {
            Some(Arc::clone(&self.view))
        }
    }

    #[test]
    fn a_failover_is_over_with_the_programs_and_with_agents_only_where_there_is_no_program() {
        let name = |text: &str| Name::new(text).expect("a name");
        let survivors = |processes: &[(&str, Kind)]| {
            let alive = |&(text, kind)| Process { alive: true, ..Process::missing(name(text), kind) };
            Kill::of(name("node-2"), processes.iter().map(alive)).ok().map(|kill| kill.survivors)
        };
        let hosts = [("coord-1", Kind::Coordinator), ("node-1", Kind::Agent), ("node-2", Kind::Agent)];
        assert_eq!(survivors(&hosts), Some(vec![name("node-1")]));
        let all = [&hosts[..], &[("app-1", Kind::App)]].concat();
        assert_eq!(survivors(&all), Some(vec![name("app-1")]));
    }

    #[test]
    fn a_victim_that_was_removed_before_its_kill_is_no_failover_and_none_is_waited_for() {
        let name = |text| Name::new(text).expect("a name");
        let victim = Process { incarnation: Incarnation(9), ..Process::missing(name("app-2"), Kind::App) };
        let kill = Kill { victim, survivors: vec![name("app-1")] };
        let gone = Departed {
            token: 1,
            incarnation: Incarnation(9),
            name: name("app-2"),
            kind: Kind::App,
            at: ViewId(5),
            left: false,
        };
        let mut view = View::genesis(&[(name("coord-1"), Address::region(1))], Nanos(1), Nanos(1));
        view.departed.push(gone);
        let events = vec![
            seen("coord-1", Kind::Coordinator, EventKind::Notice, 110, 9),
            seen("coord-1", Kind::Coordinator, EventKind::Propose, 112, 5),
            seen("coord-1", Kind::Coordinator, EventKind::Decide, 115, 5),
            seen("app-1", Kind::App, EventKind::Active, 140, 5),
        ];
        let mut cluster = Removed { events, view: Arc::new(view) };
        let followed = kill.follow(&mut cluster, Duration::ZERO, || Ok(()));
        assert!(matches!(followed, Ok(None)), "{followed:?}");
    }

    #[test]
    fn a_failover_whose_decider_had_no_notice_before_it_proposed_is_over_and_not_used() {
        let survivors = ["app-1", "app-2"].map(|name| Name::new(name).expect("a name"));
        let of = |history: &History, view| progress(history, view, Incarnation(9), Instant(100), &survivors);
        let mut history = History::default();
        assert!(matches!(of(&history, None), Progress::Waits(None, _)));
        let mut events = vec![
            seen("coord-2", Kind::Coordinator, EventKind::Propose, 112, 5),
            seen("coord-2", Kind::Coordinator, EventKind::Decide, 115, 5),
            seen("coord-2", Kind::Coordinator, EventKind::Notice, 130, 9),
            seen("app-1", Kind::App, EventKind::Active, 140, 5),
        ];
        history.take(&events);
        let Progress::Waits(Some(ViewId(5)), who) = of(&history, Some(ViewId(5))) else {
            panic!("app-2 is not active");
        };
        assert_eq!(who, [survivors[1]]);
        events.push(seen("app-2", Kind::App, EventKind::Active, 150, 5));
        history.take(&events);
        assert!(matches!(of(&history, Some(ViewId(5))), Progress::Incomplete));
        let mut noticed = History::default();
        noticed.take(&[seen("coord-2", Kind::Coordinator, EventKind::Notice, 110, 9)]);
        noticed.take(&events);
        assert!(matches!(of(&noticed, Some(ViewId(5))), Progress::Complete(_)));
    }
}

//! All that may happen to a few processes: messages in any order, crashes at any time, reports of
//! the detector as late as it likes. Within the assumptions, or with one of them given up.

use super::machine::{Machine, Options, Output, Process, Set, Value};
use std::fmt;

/// An assumption of the paper that is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Weakness {
    /// One message, of any kind, is lost at one receiver; its sender may live.
    DropAtOneReceiver,
    /// A process is cut off from the others: nothing passes, and each side reports the other.
    Partition,
    /// A process is slow once: its heartbeats come later than the timeout, and it is reported.
    LateHeartbeat,
    /// The active notice of a crash overtakes a heartbeat on another tree.
    EarlyNotice,
}

impl Weakness {
    pub const ALL: [Self; 4] =
        [Self::DropAtOneReceiver, Self::Partition, Self::LateHeartbeat, Self::EarlyNotice];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DropAtOneReceiver => "drop at one receiver",
            Self::Partition => "partition",
            Self::LateHeartbeat => "late heartbeat",
            Self::EarlyNotice => "early notice",
        }
    }
}

/// What is explored.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Processes, at most 8.
    pub processes: u8,
    /// Instances of consensus, one after the other.
    pub instances: u8,
    /// Processes that may crash.
    pub crashes: u8,
    /// The assumption that is given up, if any.
    pub weakness: Option<Weakness>,
    /// Deviations from the paper.
    pub options: Options,
}

/// A step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A message arrives: its sender, its receiver, and the message as text.
    Deliver(Process, Process, String),
    /// A message is lost.
    Lose(Process, Process, String),
    Crash(Process),
    /// The detector reports, at the first process, the second one.
    Report(Process, Process),
    /// A process is cut off from all others.
    Cut(Process),
    /// The heartbeats of a process will be late.
    Delay(Process),
}

/// A process, as people count.
fn p(process: Process) -> String {
    format!("p{}", process + 1)
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deliver(from, to, what) => write!(f, "{} receives {what} from {}", p(*to), p(*from)),
            Self::Lose(from, to, what) => write!(f, "{what} from {} to {} is lost", p(*from), p(*to)),
            Self::Crash(process) => write!(f, "{} crashes", p(*process)),
            Self::Report(at, of) => write!(f, "{} is notified that {} crashed", p(*at), p(*of)),
            Self::Cut(process) => write!(f, "{} is cut off from the others", p(*process)),
            Self::Delay(process) => write!(f, "{} is slow: its heartbeats are late", p(*process)),
        }
    }
}

/// A message on its way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Flight<M> {
    from: Process,
    to: Process,
    pulse: bool,
    message: M,
}

/// A state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World<M: Machine> {
    machines: Vec<M>,
    alive: Set,
    /// Whom the detector has reported at each process.
    reported: Vec<Set>,
    flights: Vec<Flight<M::Message>>,
    crashes_left: u8,
    /// Whether the weakness may still occur, and at which process it did.
    weak: (bool, Option<Process>),
}

impl<M: Machine> World<M> {
    /// The first state: all processes have proposed. In instance i, process n proposes 10 i + n + 1.
    pub fn new(setup: &Setup) -> Self {
        let processes = setup.processes;
        let mut world = Self {
            machines: Vec::new(),
            alive: Set::first(processes),
            reported: vec![Set::default(); usize::from(processes)],
            flights: Vec::new(),
            crashes_left: setup.crashes,
            weak: (setup.weakness.is_some(), None),
        };
        for own in 0..processes {
            let proposals: Vec<Value> = (0..setup.instances).map(|i| 10 * i + own + 1).collect();
            world.machines.push(M::new(own, processes, &proposals, setup.options));
        }
        for own in 0..processes {
            world.step(setup, own, |machine, out| machine.start(out));
        }
        world
    }

    /// Lets a machine act and sends what it asks for.
    fn step(&mut self, setup: &Setup, at: Process, act: impl FnOnce(&mut M, &mut Vec<Output<M::Message>>)) {
        let mut out = Vec::new();
        act(&mut self.machines[usize::from(at)], &mut out);
        for output in out {
            match output {
                Output::Send(to, message) => self.send(setup, at, to, false, message),
                Output::Pulse(message) => {
                    for to in 0..setup.processes {
                        self.send(setup, at, to, true, message.clone());
                    }
                }
            }
        }
        self.flights.sort_unstable();
    }

    fn send(&mut self, setup: &Setup, from: Process, to: Process, pulse: bool, message: M::Message) {
        if self.alive.has(to) && !self.is_cut(setup, from, to) {
            self.flights.push(Flight { from, to, pulse, message });
        }
    }

    fn is_cut(&self, setup: &Setup, a: Process, b: Process) -> bool {
        let cut = self.weak.1.filter(|_| setup.weakness == Some(Weakness::Partition));
        cut.is_some_and(|cut| (a == cut) != (b == cut))
    }

    /// Whether the detector may report `of` at `at`.
    fn may_report(&self, setup: &Setup, at: Process, of: Process) -> bool {
        if at == of || self.reported[usize::from(at)].has(of) {
            return false;
        }
        // The timeout covers every heartbeat that was sent.
        let heartbeats = self.flights.iter().any(|f| f.pulse && f.from == of && f.to == at);
        match setup.weakness {
            _ if !self.alive.has(of) && !heartbeats => true,
            Some(Weakness::Partition) => self.is_cut(setup, at, of),
            Some(Weakness::LateHeartbeat) => self.weak.1 == Some(of),
            Some(Weakness::EarlyNotice) => !self.alive.has(of),
            _ => false,
        }
    }

    /// All steps that are possible, each with the state behind it.
    pub fn next(&self, setup: &Setup) -> Vec<(Action, Self)> {
        let mut next = Vec::new();
        for (number, flight) in self.flights.iter().enumerate() {
            if number > 0 && self.flights[number - 1] == *flight {
                continue;
            }
            let mut without = self.clone();
            without.flights.remove(number);
            let text = || flight.message.to_string();
            let mut then = without.clone();
            then.step(setup, flight.to, |m, out| m.receive(flight.from, flight.message.clone(), out));
            next.push((Action::Deliver(flight.from, flight.to, text()), then));
            // A crash may interrupt a process while it sends to one after the other; a heartbeat is
            // sent to all or none.
            if !flight.pulse && !self.alive.has(flight.from) {
                next.push((Action::Lose(flight.from, flight.to, text()), without));
            } else if self.weak.0 && setup.weakness == Some(Weakness::DropAtOneReceiver) {
                without.weak = (false, Some(flight.to));
                next.push((Action::Lose(flight.from, flight.to, text()), without));
            }
        }
        for process in self.alive.iter() {
            if self.crashes_left > 0 {
                next.push((Action::Crash(process), self.crashed(process)));
            }
            for of in 0..setup.processes {
                if self.may_report(setup, process, of) {
                    let mut then = self.clone();
                    then.reported[usize::from(process)].insert(of);
                    then.step(setup, process, |m, out| m.crash(of, out));
                    next.push((Action::Report(process, of), then));
                }
            }
            next.extend(self.weakened(setup, process));
        }
        next
    }

    fn crashed(&self, process: Process) -> Self {
        let mut then = self.clone();
        then.alive.remove(process);
        then.crashes_left -= 1;
        then.flights.retain(|flight| flight.to != process);
        then
    }

    /// The weaknesses that begin at a process.
    fn weakened(&self, setup: &Setup, process: Process) -> Option<(Action, Self)> {
        if !self.weak.0 {
            return None;
        }
        let mut then = self.clone();
        then.weak = (false, Some(process));
        match setup.weakness? {
            Weakness::Partition => {
                let lost: Vec<bool> = then.flights.iter().map(|f| then.is_cut(setup, f.from, f.to)).collect();
                let mut lost = lost.into_iter();
                then.flights.retain(|_| lost.next() != Some(true));
                Some((Action::Cut(process), then))
            }
            Weakness::LateHeartbeat => Some((Action::Delay(process), then)),
            Weakness::DropAtOneReceiver | Weakness::EarlyNotice => None,
        }
    }

    /// What is wrong in this state.
    pub fn fault(&self, setup: &Setup) -> Option<String> {
        for instance in 0..setup.instances {
            let decided = |n: usize| self.machines[n].decided().get(usize::from(instance)).copied();
            let decisions = (0..self.machines.len()).filter_map(|n| Some((n as u8, decided(n)?)));
            let mut first: Option<(Process, Value)> = None;
            for (process, value) in decisions {
                if !(10 * instance + 1..=10 * instance + setup.processes).contains(&value) {
                    return Some(format!("validity: {} decides {value}, which is not proposed", p(process)));
                }
                match first {
                    Some((other, before)) if before != value => {
                        return Some(format!(
                            "uniform agreement: {} decides {before}, {} decides {value}",
                            p(other),
                            p(process)
                        ));
                    }
                    _ => first = Some((process, value)),
                }
            }
        }
        None
    }

    /// A process that will never decide, if this state is final: nothing is on its way or to be
    /// reported.
    pub fn stalled(&self, setup: &Setup) -> Option<String> {
        let pending = !self.flights.is_empty()
            || self.alive.iter().any(|at| (0..setup.processes).any(|of| self.may_report(setup, at, of)));
        let waits = |process: &Process| {
            self.machines[usize::from(*process)].decided().len() < usize::from(setup.instances)
        };
        let process = self.alive.iter().find(waits).filter(|_| !pending)?;
        Some(format!("termination: {} waits for ever, and runs", p(process)))
    }
}

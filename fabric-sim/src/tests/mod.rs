//! Tests of the simulated fabric, with a small machine that records all events.

mod links;
mod messages;
mod processes;
mod runs;
mod seats;

use super::{Clock, Degraded, Network, World};
use obol_fabric::contract::{
    Completion, Event, Evidence, Fabric, LinkError, Machine, Remote, SeatRequest, Token,
};
use obol_fabric::layout::{Layout, Limits};
use obol_fabric::types::{Address, Instant, Nanos};

/// A completion without its borrowed bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ended {
    Read(Vec<u8>),
    Written,
    Swapped(u64),
    Permitted,
    Failed(LinkError),
}

/// The events of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Start(u32),
    Ended(u64, Ended),
    Datagram(Address, Vec<u8>),
    Death(Address, Evidence),
    Seat(u16, SeatRequest),
    Confirm(Instant),
    Tick,
}

/// A machine that records all events and does nothing but tick periodically if it has a period.
#[derive(Debug, Default)]
struct Probe {
    seen: Vec<(Instant, Seen)>,
    every: Option<Nanos>,
    due: Option<Instant>,
}

impl Probe {
    fn ticking(every: u64) -> Self {
        Self { every: Some(Nanos(every)), ..Self::default() }
    }

    fn ended(&self) -> Vec<(u64, Ended)> {
        let ended = |(_, seen): &(Instant, Seen)| match seen {
            Seen::Ended(token, ended) => Some((*token, ended.clone())),
            _ => None,
        };
        self.seen.iter().filter_map(ended).collect()
    }

    fn datagrams(&self) -> Vec<Vec<u8>> {
        let datagram = |(_, seen): &(Instant, Seen)| match seen {
            Seen::Datagram(_, bytes) => Some(bytes.clone()),
            _ => None,
        };
        self.seen.iter().filter_map(datagram).collect()
    }

    fn deaths(&self) -> Vec<(Address, Evidence)> {
        let death = |(_, seen): &(Instant, Seen)| match seen {
            Seen::Death(who, evidence) => Some((*who, *evidence)),
            _ => None,
        };
        self.seen.iter().filter_map(death).collect()
    }
}

impl Machine for Probe {
    fn start<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        self.seen.push((now, Seen::Start(fabric.address().generation)));
        self.due = self.every.map(|every| now + every);
    }

    fn handle<F: Fabric>(&mut self, now: Instant, event: Event<'_>, _fabric: &mut F) {
        let seen = match event {
            Event::Completion { token, result } => {
                let ended = match result {
                    Ok(Completion::Read(bytes)) => Ended::Read(bytes.to_vec()),
                    Ok(Completion::Written) => Ended::Written,
                    Ok(Completion::Swapped(found)) => Ended::Swapped(found),
                    Ok(Completion::Permitted) => Ended::Permitted,
                    Err(error) => Ended::Failed(error),
                };
                Seen::Ended(token.0, ended)
            }
            Event::Datagram { from, bytes } => Seen::Datagram(from, bytes.to_vec()),
            Event::Death { who, evidence } => Seen::Death(who, evidence),
            Event::Seat { seat, request } => Seen::Seat(seat, request),
            Event::Confirm { since } => Seen::Confirm(since),
        };
        self.seen.push((now, seen));
    }

    fn tick<F: Fabric>(&mut self, now: Instant, _fabric: &mut F) {
        self.seen.push((now, Seen::Tick));
        self.due = self.every.map(|every| now + every);
    }

    fn deadline(&self) -> Instant {
        self.due.unwrap_or(Instant::NEVER)
    }
}

fn layout() -> Layout {
    let limits = Limits { seats: 4, proposers: 3, lane_slots: 8, ..Limits::LEAST };
    Layout::new(limits).expect("in bounds")
}

/// A network with much jitter and reordering.
fn rough() -> Network {
    Network { one_way: super::Delay::new(500, 2_000), ..Network::default() }
}

/// A world of probes that have started.
fn world(nodes: u32, network: Network, seed: u64) -> World<Probe> {
    let mut world = World::new(layout(), network, seed);
    for _ in 0..nodes {
        world.add(Probe::default(), Clock::default(), 3);
    }
    world.run_until(10_000);
    world
}

const MILLI: u64 = 1_000_000;

/// Runs for this time.
fn pass(world: &mut World<Probe>, nanos: u64) {
    let until = world.now() + nanos;
    world.run_until(until);
}

fn post(world: &mut World<Probe>, node: u32, call: impl FnOnce(&mut super::Port<'_>)) {
    world.with_machine(node, |_, _, port| call(port)).expect("the node runs");
}

/// A word of the slot ring.
fn slot(world: &World<Probe>, node: u32, id: u64) -> u64 {
    obol_fabric::memory::relaxed(&world.memory(node)[world.layout().slot(id) as usize / 8])
}

fn at(region: u32, offset: u32) -> Remote {
    Remote { at: Address::region(region), offset }
}

fn read_word(port: &mut super::Port<'_>, region: u32, token: u64) {
    port.read(at(region, 0), 8, Token(token));
}

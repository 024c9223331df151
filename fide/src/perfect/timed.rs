//! One run without failures, in which every message takes a given time.

use super::machine::{Machine, Options, Output, Process, Value};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What a run took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Took {
    /// Until the leader, the first process, has decided.
    pub leader: u64,
    /// Until all have decided.
    pub all: u64,
    /// Messages between different processes; a heartbeat is one for each receiver.
    pub messages: u32,
}

/// A message on its way; the first to arrive is the least.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Flight<M> {
    at: u64,
    number: u64,
    from: Process,
    to: Process,
    message: M,
}

/// Runs one instance among `processes`; `delay` draws the time of each message from one process to
/// another. A process's messages to itself take none.
pub fn timed<M: Machine>(processes: u8, mut delay: impl FnMut() -> u64) -> Took {
    let mut machines: Vec<M> =
        (0..processes).map(|own| M::new(own, processes, &[own as Value + 1], Options::default())).collect();
    let mut queue: BinaryHeap<Reverse<Flight<M::Message>>> = BinaryHeap::new();
    let mut took = Took { leader: 0, all: 0, messages: 0 };
    let mut number = 0;
    let mut post = |queue: &mut BinaryHeap<_>, now: u64, from: Process, outputs: Vec<Output<M::Message>>| {
        for output in outputs {
            let to: Vec<(Process, M::Message)> = match output {
                Output::Send(to, message) => vec![(to, message)],
                Output::Pulse(message) => (0..processes).map(|to| (to, message.clone())).collect(),
            };
            for (to, message) in to {
                let at = if to == from { now } else { now + delay() };
                took.messages += u32::from(to != from);
                number += 1;
                queue.push(Reverse(Flight { at, number, from, to, message }));
            }
        }
    };
    for own in 0..processes {
        let mut out = Vec::new();
        machines[usize::from(own)].start(&mut out);
        post(&mut queue, 0, own, out);
    }
    let mut decided = vec![None; usize::from(processes)];
    while let Some(Reverse(Flight { at: now, from, to, message, .. })) = queue.pop() {
        let mut out = Vec::new();
        let machine = &mut machines[usize::from(to)];
        machine.receive(from, message, &mut out);
        if !machine.decided().is_empty() {
            decided[usize::from(to)].get_or_insert(now);
        }
        post(&mut queue, now, to, out);
    }
    took.leader = decided[0].unwrap_or(u64::MAX);
    took.all = decided.iter().map(|at| at.unwrap_or(u64::MAX)).max().unwrap_or(0);
    took
}

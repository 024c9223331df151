//! Heartbeat uniform consensus: FiDe, algorithm 4 (also algorithm 1).

use super::fcurb::Fcurb;
use super::machine::{Machine, Options, Output, Process, Set, Value};
use std::fmt;

/// A message, with its instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HucMessage {
    /// A proposal for the leader.
    Proposal(u8, Value),
    /// A decision, in a heartbeat.
    Decision(u8, Value),
}

impl HucMessage {
    const fn instance(self) -> u8 {
        match self {
            Self::Proposal(instance, _) | Self::Decision(instance, _) => instance,
        }
    }
}

impl fmt::Display for HucMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Proposal(_, value) => write!(f, "proposal {value}"),
            Self::Decision(_, value) => write!(f, "decision {value}"),
        }
    }
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Huc {
    own: Process,
    correct: Set,
    to_propose: Vec<Value>,
    proposals: Vec<Option<Value>>,
    acks: Set,
    fcurb: Fcurb,
    decided: Vec<Value>,
    buffer: Vec<(Process, HucMessage)>,
}

impl Huc {
    fn instance(&self) -> u8 {
        self.decided.len() as u8
    }

    fn is_done(&self) -> bool {
        self.decided.len() == self.to_propose.len()
    }

    fn propose(&mut self, out: &mut Vec<Output<HucMessage>>) {
        let Some(&value) = self.to_propose.get(self.decided.len()) else { return };
        self.proposals[usize::from(self.own)] = Some(value);
        self.send_to_leader(value, out);
    }

    fn send_to_leader(&self, value: Value, out: &mut Vec<Output<HucMessage>>) {
        if let Some(leader) = self.correct.lowest() {
            out.push(Output::Send(leader, HucMessage::Proposal(self.instance(), value)));
        }
    }

    /// Line 11: once every correct process has proposed.
    fn check(&mut self, out: &mut Vec<Output<HucMessage>>) {
        if self.is_done() || !self.acks.covers(self.correct) {
            return;
        }
        // DET: the lowest proposal.
        let Some(value) = self.proposals.iter().flatten().min().copied() else { return };
        self.acks = Set::default();
        out.push(Output::Pulse(HucMessage::Decision(self.instance(), value)));
    }

    fn decide(&mut self, value: Value, out: &mut Vec<Output<HucMessage>>) {
        self.decided.push(value);
        self.proposals.fill(None);
        self.acks = Set::default();
        self.propose(out);
        let instance = self.instance();
        let (now, later) = self.buffer.drain(..).partition(|(_, m)| m.instance() == instance);
        self.buffer = later;
        let now: Vec<_> = now;
        for (from, message) in now {
            self.receive(from, message, out);
        }
    }
}

impl Machine for Huc {
    type Message = HucMessage;

    fn new(own: Process, processes: u8, proposals: &[Value], _: Options) -> Self {
        Self {
            own,
            correct: Set::first(processes),
            to_propose: proposals.to_vec(),
            proposals: vec![None; usize::from(processes)],
            acks: Set::default(),
            fcurb: Fcurb::default(),
            decided: Vec::new(),
            buffer: Vec::new(),
        }
    }

    fn start(&mut self, out: &mut Vec<Output<HucMessage>>) {
        self.propose(out);
    }

    fn receive(&mut self, from: Process, message: HucMessage, out: &mut Vec<Output<HucMessage>>) {
        if message.instance() < self.instance() || self.is_done() {
            return;
        }
        // The heartbeat itself arrives now, whatever waits for an instance.
        if matches!(message, HucMessage::Decision(..)) && !self.fcurb.receive(from) {
            return;
        }
        if message.instance() > self.instance() {
            self.buffer.push((from, message));
            return;
        }
        match message {
            HucMessage::Proposal(_, value) => {
                self.proposals[usize::from(from)] = Some(value);
                self.acks.insert(from);
                self.check(out);
            }
            HucMessage::Decision(_, value) => self.decide(value, out),
        }
    }

    fn crash(&mut self, of: Process, out: &mut Vec<Output<HucMessage>>) {
        let led = self.correct.lowest() == Some(of);
        self.fcurb.crash(of);
        self.correct.remove(of);
        self.proposals[usize::from(of)] = None;
        if led && let Some(value) = self.proposals[usize::from(self.own)] {
            self.send_to_leader(value, out);
        }
        self.check(out);
    }

    fn decided(&self) -> &[Value] {
        &self.decided
    }

    fn buffered(&self) -> usize {
        self.buffer.len()
    }
}

//! Hierarchical stabilizing uniform consensus: FiDe, algorithm 3. The paper's section 4.1 lets the
//! highest id lead, its algorithm the lowest; so does this machine.

use super::machine::{Machine, Options, Output, Process, Set, Value};
use super::osrb::{Broadcast, Osrb};
use std::fmt;

/// A message, with its instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HsucMessage {
    /// The leader's proposal.
    Proposal(u8, Value),
    /// It was adopted.
    Ack(u8),
    Decision(Broadcast),
}

impl HsucMessage {
    const fn instance(self) -> u8 {
        match self {
            Self::Proposal(instance, _) | Self::Ack(instance) => instance,
            Self::Decision(broadcast) => broadcast.instance,
        }
    }
}

impl fmt::Display for HsucMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Proposal(_, value) => write!(f, "proposal {value}"),
            Self::Ack(instance) => write!(f, "ack of instance {}", instance + 1),
            Self::Decision(broadcast) => write!(f, "decision {}", broadcast.value),
        }
    }
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hsuc {
    own: Process,
    correct: Set,
    to_propose: Vec<Value>,
    proposal: Option<Value>,
    proposer: Option<Process>,
    acks: Set,
    osrb: Osrb,
    decided: Vec<Value>,
    buffer: Vec<(Process, HsucMessage)>,
}

impl Hsuc {
    fn instance(&self) -> u8 {
        self.decided.len() as u8
    }

    fn is_done(&self) -> bool {
        self.decided.len() == self.to_propose.len()
    }

    fn propose(&mut self, out: &mut Vec<Output<HsucMessage>>) {
        let Some(&value) = self.to_propose.get(self.decided.len()) else { return };
        if self.proposal.is_none() {
            self.proposal = Some(value);
            if self.correct.lowest() == Some(self.own) {
                self.send_proposal(out);
            }
        }
    }

    fn send_proposal(&self, out: &mut Vec<Output<HsucMessage>>) {
        let Some(value) = self.proposal else { return };
        let message = HsucMessage::Proposal(self.instance(), value);
        out.extend(self.correct.iter().map(|to| Output::Send(to, message)));
    }

    /// Line 20: once every correct process has adopted the proposal.
    fn check(&mut self, out: &mut Vec<Output<HsucMessage>>) {
        if self.is_done() || !self.acks.covers(self.correct) {
            return;
        }
        let Some(value) = self.proposal else { return };
        self.acks = Set::default();
        let message = Broadcast { instance: self.instance(), origin: self.own, value };
        out.extend(self.osrb.broadcast().map(|to| Output::Send(to, HsucMessage::Decision(message))));
    }

    fn decide(&mut self, value: Value, out: &mut Vec<Output<HsucMessage>>) {
        if let Some(last) = self.instance().checked_sub(1) {
            self.osrb.stabilize(last);
        }
        self.decided.push(value);
        self.proposal = None;
        self.acks = Set::default();
        self.propose(out);
        let instance = self.instance();
        let (now, later) = self.buffer.drain(..).partition(|(_, m)| m.instance() == instance);
        self.buffer = later;
        let now: Vec<_> = now;
        for (from, message) in now {
            self.handle(from, message, out);
        }
    }

    /// A message of the present instance; a decision has been delivered by the broadcast. A former
    /// one may also arrive while this one handles what it had buffered.
    fn handle(&mut self, from: Process, message: HsucMessage, out: &mut Vec<Output<HsucMessage>>) {
        if message.instance() != self.instance() || self.is_done() {
            return;
        }
        match message {
            HsucMessage::Proposal(instance, value) => {
                if self.proposer.is_none_or(|proposer| from >= proposer) {
                    self.proposal = Some(value);
                    self.proposer = Some(from);
                    out.push(Output::Send(from, HsucMessage::Ack(instance)));
                }
            }
            HsucMessage::Ack(_) => {
                self.acks.insert(from);
                self.check(out);
            }
            HsucMessage::Decision(broadcast) => self.decide(broadcast.value, out),
        }
    }
}

impl Machine for Hsuc {
    type Message = HsucMessage;

    fn new(own: Process, processes: u8, proposals: &[Value], options: Options) -> Self {
        Self {
            own,
            correct: Set::first(processes),
            to_propose: proposals.to_vec(),
            proposal: None,
            proposer: None,
            acks: Set::default(),
            osrb: Osrb::new(processes, options.printed),
            decided: Vec::new(),
            buffer: Vec::new(),
        }
    }

    fn start(&mut self, out: &mut Vec<Output<HsucMessage>>) {
        self.propose(out);
    }

    fn receive(&mut self, from: Process, message: HsucMessage, out: &mut Vec<Output<HsucMessage>>) {
        if let HsucMessage::Decision(broadcast) = message {
            // The broadcast works below the instances: it delivers and passes on in any of them.
            let (delivered, to) = self.osrb.receive(broadcast);
            out.extend(to.into_iter().map(|to| Output::Send(to, message)));
            if !delivered {
                return;
            }
        }
        if message.instance() > self.instance() {
            self.buffer.push((from, message));
        } else {
            self.handle(from, message, out);
        }
    }

    fn crash(&mut self, of: Process, out: &mut Vec<Output<HsucMessage>>) {
        let again = self.osrb.crash(of);
        out.extend(again.into_iter().map(|(to, message)| Output::Send(to, HsucMessage::Decision(message))));
        let led = self.correct.lowest() == Some(of);
        self.correct.remove(of);
        if led && self.correct.lowest() == Some(self.own) && !self.is_done() {
            self.send_proposal(out);
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

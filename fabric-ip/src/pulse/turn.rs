//! The order in which a host sends, receives and judges.

use super::{Bug, Frame, Numbers, Sender, Timing};
use obol_fabric::types::{Instant, Nanos};

/// When a host had its last turn.
#[derive(Clone, Copy, Debug)]
pub struct Presence {
    last: Option<Instant>,
    away: Nanos,
}

impl Presence {
    /// Of a host that has had no turn.
    pub fn new(timing: Timing) -> Self {
        Self { last: None, away: timing.away() }
    }

    /// How long the host was away, if it was, when a turn begins.
    fn absence(&self, now: Instant) -> Option<Nanos> {
        self.last.map(|last| now.since(last)).filter(|absence| *absence > self.away)
    }
}

/// A host that exchanges pulses with others: its machines, and what connects them.
pub trait Turn {
    /// Why a turn ends early.
    type Error;

    /// The host's clock.
    fn now(&self) -> Instant;

    /// The machine that makes pulses, and their numbers.
    fn sender(&mut self) -> (&mut Sender, &Numbers);

    /// Sends a frame to all other hosts, on all paths.
    fn send(&mut self, frame: &Frame);

    /// When it had its last turn.
    fn presence(&mut self) -> &mut Presence;

    /// Tells the receivers that this host was away for `absence`
    /// ([`Receiver::away`](super::Receiver::away)).
    fn away(&mut self, absence: Nanos);

    /// Has the receivers take all frames that have arrived, in the order of their arrival.
    fn receive(&mut self) -> Result<(), Self::Error>;

    /// Has the receivers judge the silence until now ([`Receiver::tick`](super::Receiver::tick)).
    fn judge(&mut self, now: Instant) -> Result<(), Self::Error>;

    /// The planted bug of this host.
    fn bug(&self) -> Option<Bug> {
        None
    }

    /// Sends the pulse that is due, takes what has arrived, and judges.
    fn turn(&mut self) -> Result<(), Self::Error> {
        let now = self.now();
        if let Some(absence) = self.presence().absence(now) {
            self.away(absence);
        }
        let (sender, numbers) = self.sender();
        if let Some(frame) = sender.tick(numbers, now) {
            self.send(&frame);
            self.sender().1.sent(&frame);
        }
        if Bug::JudgesFirst.is_planted(self.bug()) {
            let now = self.now();
            self.judge(now)?;
        }
        // Before anything is judged: this host may have been stopped itself.
        self.receive()?;
        let now = self.now();
        self.presence().last = Some(now);
        self.judge(now)
    }
}

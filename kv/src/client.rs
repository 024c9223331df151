//! A client: writes requests into the primary's memory, takes answers, and asks again where none comes.

use crate::VALUE_BYTES_MAX;
use crate::answer::{Answer, Status};
use crate::area::{Area, WINDOW};
use crate::entry::{Entry, Kind};
use crate::server::{Part, token};
use obol_fabric::{Address, Fabric, Incarnation, Instant, Nanos, Remote};
use obol_membership::View;
use std::collections::VecDeque;
use std::fmt;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// The value of a key.
    Get(u64),
    /// Make this the value of a key.
    Put(u64, Box<[u8]>),
}

/// Why an operation was not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// [`WINDOW`] operations wait for an answer already.
    Busy,
    /// The value has more than [`VALUE_BYTES_MAX`] bytes.
    TooLong(usize),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => write!(f, "{WINDOW} operations wait for an answer already; take one first"),
            Self::TooLong(bytes) => {
                write!(f, "a value has at most {VALUE_BYTES_MAX} bytes, this one has {bytes}")
            }
        }
    }
}

impl std::error::Error for Refusal {}

/// An operation that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// Its number, as it was begun.
    pub number: u64,
    /// How it ended.
    pub status: Status,
    /// What a GET found.
    pub value: Box<[u8]>,
}

struct Asked {
    number: u64,
    operation: Operation,
    done: bool,
}

/// A client of the cache. It has up to [`WINDOW`] operations on the way, and the primary executes them in order.
pub struct Client {
    area: Area,
    /// Tells this client's requests from those of another in the same place. Drawn at random, never zero.
    id: u64,
    own: Option<Incarnation>,
    primary: Option<(Incarnation, Address)>,
    again_every: Nanos,
    again_at: Instant,
    again: u64,
    next: u64,
    asked: VecDeque<Asked>,
    ended: VecDeque<Done>,
}

impl Client {
    /// A client with a random id, which asks again after so long without an answer.
    #[must_use]
    pub fn new(area: Area, id: u64, again_every: Nanos) -> Self {
        Self {
            area,
            id: id.max(1),
            own: None,
            primary: None,
            again_every,
            again_at: Instant::NEVER,
            again: 1,
            next: 1,
            asked: VecDeque::with_capacity(WINDOW as usize),
            ended: VecDeque::new(),
        }
    }

    /// Begins an operation; tells its number.
    pub fn begin<F: Fabric>(
        &mut self,
        now: Instant,
        operation: Operation,
        fabric: &mut F,
    ) -> Result<u64, Refusal> {
        if self.is_busy() {
            return Err(Refusal::Busy);
        }
        if let Operation::Put(_, value) = &operation
            && value.len() > VALUE_BYTES_MAX
        {
            return Err(Refusal::TooLong(value.len()));
        }
        let number = self.next;
        self.next += 1;
        self.asked.push_back(Asked { number, operation, done: false });
        self.again_at = self.again_at.min(now + self.again_every);
        self.write(number, fabric);
        self.write_head(fabric);
        Ok(number)
    }

    /// Whether no operation can be begun now: the oldest that waits for its answer is [`WINDOW`] operations old.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.asked.front().is_some_and(|oldest| self.next - oldest.number >= WINDOW)
    }

    /// An operation that has ended, if there is one.
    pub fn take(&mut self) -> Option<Done> {
        self.ended.pop_front()
    }

    /// Who is asked: the primary of the newest view that is known.
    #[must_use]
    pub fn primary(&self) -> Option<Incarnation> {
        self.primary.map(|(who, _)| who)
    }

    /// How many operations wait for an answer.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.asked.iter().filter(|asked| !asked.done).count()
    }

    pub(crate) const fn deadline(&self) -> Instant {
        self.again_at
    }

    /// Takes note of the newest view: another primary is asked everything that has no answer.
    pub(crate) fn install<F: Fabric>(
        &mut self,
        now: Instant,
        view: &View,
        own: Option<Incarnation>,
        fabric: &mut F,
    ) {
        let primary = crate::servers(view).next().map(|member| (member.incarnation, member.address));
        // A primary hears whom its view names; nobody is heard before it is a member.
        if (primary, own) != (self.primary, self.own) {
            (self.primary, self.own) = (primary, own);
            self.ask_again(now, fabric);
        }
    }

    pub(crate) fn tick<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        if now >= self.again_at {
            self.ask_again(now, fabric);
        }
    }

    fn ask_again<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        if self.asked.is_empty() {
            self.again_at = Instant::NEVER;
            return;
        }
        self.again_at = now + self.again_every;
        self.again += 1;
        let numbers: Vec<u64> = self.asked.iter().map(|asked| asked.number).collect();
        for number in numbers {
            self.write(number, fabric);
        }
        self.write_head(fabric);
    }

    /// Writes a request into the primary's memory.
    fn write<F: Fabric>(&self, number: u64, fabric: &mut F) {
        let Some((_, at)) = self.primary else { return };
        let Some(asked) = self.asked.iter().find(|asked| asked.number == number) else { return };
        let (kind, key, value) = match &asked.operation {
            Operation::Get(key) => (Kind::Get, *key, &[][..]),
            Operation::Put(key, value) => (Kind::Put, *key, &value[..]),
        };
        let mut bytes = Vec::new();
        Entry { number, kind, key, client: self.id, request: number, value }.encode(&mut bytes);
        let to = Remote { at, offset: self.area.request(fabric.address().region, number) };
        fabric.write(to, &bytes, token(Part::Send, 0));
    }

    /// Writes what tells the primary that there are requests. After them, on the same link: so it comes after them.
    fn write_head<F: Fabric>(&self, fabric: &mut F) {
        let Some((_, at)) = self.primary else { return };
        let first = self.asked.front().map_or(self.next, |asked| asked.number);
        let mut bytes = Vec::new();
        for word in [self.id, first, self.next - 1, self.again] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        let to = Remote { at, offset: self.area.client(fabric.address().region) };
        fabric.write(to, &bytes, token(Part::Send, 0));
    }

    /// An answer arrived. It may be a copy of one that came before.
    pub(crate) fn on_answer(&mut self, answer: &Answer<'_>) {
        let asked = self.asked.iter_mut().find(|asked| asked.number == answer.request && !asked.done);
        let Some(asked) = asked.filter(|_| answer.client == self.id) else { return };
        asked.done = true;
        self.ended.push_back(Done {
            number: asked.number,
            status: answer.status,
            value: answer.value.into(),
        });
        while self.asked.front().is_some_and(|asked| asked.done) {
            self.asked.pop_front();
        }
        if self.asked.is_empty() {
            self.again_at = Instant::NEVER;
        }
    }
}

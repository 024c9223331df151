//! A client: writes requests into the primary's memory, takes answers, and asks again where none comes.

use crate::answer::{ANSWER_BYTES, Answer, Status};
use crate::area::{Area, WINDOW};
use crate::entry::{Entry, Kind};
use crate::node::RING;
use crate::server::{Part, token};
use crate::{LOOKS, VALUE_BYTES_MAX, words};
use obol_fabric::{Address, Fabric, Incarnation, Instant, Nanos, Remote, ViewId};
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
    view: ViewId,
    /// It sleeps while it waits, and so may the primary.
    rings: bool,
    /// The primary was told where the conversation begins.
    is_begun: bool,
    poll_every: Nanos,
    poll_at: Instant,
    again_every: Nanos,
    again_at: Instant,
    again: u64,
    next: u64,
    /// How many have no answer.
    open: usize,
    asked: VecDeque<Asked>,
    ended: VecDeque<Done>,
    /// What is being written or read.
    bytes: Vec<u8>,
}

impl Client {
    /// A client with a random id, which looks for answers so often while it waits for any, and asks again after so long
    /// without one.
    #[must_use]
    pub fn new(area: Area, id: u64, poll_every: Nanos, again_every: Nanos) -> Self {
        Self {
            area,
            id: id.max(1),
            own: None,
            primary: None,
            view: ViewId(0),
            rings: false,
            is_begun: false,
            poll_every,
            poll_at: Instant::NEVER,
            again_every,
            again_at: Instant::NEVER,
            again: 1,
            next: 1,
            open: 0,
            asked: VecDeque::with_capacity(WINDOW as usize),
            ended: VecDeque::new(),
            bytes: Vec::new(),
        }
    }

    /// The same for who sleeps in between: it rings for the primary, which may sleep as well, and is rung for.
    #[must_use]
    pub fn ringing(self) -> Self {
        Self { rings: true, ..self }
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
        self.open += 1;
        self.again_at = self.again_at.min(now + self.again_every);
        self.poll_at = self.poll_at.min(now + self.poll_every);
        self.write(number, fabric);
        if !self.is_begun {
            self.write_head(fabric);
        }
        self.ring(fabric);
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

    /// The newest view that is known.
    #[must_use]
    pub const fn view(&self) -> ViewId {
        self.view
    }

    /// How many operations wait for an answer.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.open
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.poll_at.min(self.again_at)
    }

    /// Takes note of the newest view: another primary is asked everything that has no answer.
    pub(crate) fn install<F: Fabric>(
        &mut self,
        now: Instant,
        view: &View,
        own: Option<Incarnation>,
        fabric: &mut F,
    ) {
        self.view = view.id;
        let primary = crate::servers(view).next().map(|member| (member.incarnation, member.address));
        // A primary hears whom its view names; nobody is heard before it is a member.
        if (primary, own) != (self.primary, self.own) {
            (self.primary, self.own, self.is_begun) = (primary, own, false);
            self.ask_again(now, fabric);
        }
    }

    pub(crate) fn tick<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        if now >= self.poll_at {
            let looks = if self.poll_every == Nanos::ZERO { LOOKS } else { 1 };
            for _ in 0..looks {
                if self.look(fabric) {
                    break;
                }
                core::hint::spin_loop();
            }
            self.poll_at = if self.open == 0 { Instant::NEVER } else { now + self.poll_every };
        }
        if now >= self.again_at {
            self.ask_again(now, fabric);
        }
    }

    /// Looks for answers in the own memory; tells whether there were any. An answer may be one to a request that had one already.
    fn look<F: Fabric>(&mut self, fabric: &F) -> bool {
        let before = self.open;
        for asked in self.asked.iter_mut().filter(|asked| !asked.done) {
            let Some(place) = fabric.own(self.area.answer(asked.number), ANSWER_BYTES) else { break };
            let answer = Answer::decode(place, asked.number, &mut self.bytes);
            if let Some(answer) = answer.filter(|answer| answer.client == self.id) {
                asked.done = true;
                self.open -= 1;
                let (status, value) = (answer.status, answer.value.into());
                self.ended.push_back(Done { number: asked.number, status, value });
            }
        }
        while self.asked.front().is_some_and(|asked| asked.done) {
            self.asked.pop_front();
        }
        if self.asked.is_empty() {
            self.again_at = Instant::NEVER;
        }
        self.open < before
    }

    fn ask_again<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        let Some(first) = self.asked.front().map(|asked| asked.number) else {
            self.again_at = Instant::NEVER;
            return;
        };
        self.again_at = now + self.again_every;
        for number in first..self.next {
            self.write(number, fabric);
        }
        self.write_head(fabric);
        self.ring(fabric);
    }

    fn ring<F: Fabric>(&self, fabric: &mut F) {
        if let Some((_, at)) = self.primary.filter(|_| self.rings) {
            fabric.send(at.owner(), RING);
        }
    }

    /// Somebody rang: there are answers.
    pub(crate) fn on_ring(&mut self) {
        if self.open > 0 {
            self.poll_at = Instant::ZERO;
        }
    }

    /// Writes a request into the primary's memory.
    fn write<F: Fabric>(&mut self, number: u64, fabric: &mut F) {
        let Some((_, at)) = self.primary else { return };
        // Their numbers follow each other.
        let first = self.asked.front().map_or(number, |asked| asked.number);
        let Some(asked) = self.asked.get((number - first) as usize) else { return };
        debug_assert_eq!(asked.number, number, "an operation for each number");
        let (kind, key, value) = match &asked.operation {
            Operation::Get(key) => (Kind::Get, *key, &[][..]),
            Operation::Put(key, value) => (Kind::Put, *key, &value[..]),
        };
        Entry { number, kind, key, client: self.id, request: number, value }.encode(&mut self.bytes);
        let to = Remote { at, offset: self.area.request(fabric.address().region, number) };
        fabric.write_untold(to, &self.bytes, token(Part::Send, 0));
    }

    /// Tells the primary where the conversation begins. After the requests, on the same link: so it comes after them.
    fn write_head<F: Fabric>(&mut self, fabric: &mut F) {
        let Some((_, at)) = self.primary else { return };
        self.is_begun = true;
        self.again += 1;
        let first = self.asked.front().map_or(self.next, |asked| asked.number);
        words::seal([self.id, first, self.again, u64::from(self.rings)], &mut self.bytes);
        let to = Remote { at, offset: self.area.client(fabric.address().region) };
        fabric.write_untold(to, &self.bytes, token(Part::Send, 0));
    }
}

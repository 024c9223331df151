//! Commands that are longer than an entry, or whose reply is: their pieces on the way to the store, and
//! the parts of their replies on the way back.
//!
//! The pieces are entries that change nothing but what is staged; one more entry executes the command. So
//! it takes effect at once, and in the order of its connection. A few are on the way at a time, and a
//! few of their pieces, because others share the window of the store's client.

use super::operation_sink::OperationSink;
use obol_smr::{Access, Batch, Long, LongReply, Operation};
use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

/// Long commands at once.
const LONG_MAX: usize = 2;
/// Operations of theirs on the way, of those that the window of the client has room for.
const PARTS_MAX: usize = 4;
/// Bytes of the longest key or value, as the store has it: one that is longer is refused before its pieces
/// are, for which a full store has no memory.
pub(super) const ARGUMENT_BYTES_MAX: usize = 1 << 20;
/// How often a command is sent again whose pieces did not arrive in order.
const TRIES_MAX: u8 = 3;

/// How far a command is.
#[derive(Debug)]
enum Phase {
    /// Its pieces are sent: how many were, and how many were taken.
    Stages {
        sent: usize,
        taken: usize,
    },
    Staged,
    /// It is executed.
    Runs,
    /// Its reply is read: how many parts were asked for, how many are there, and the bytes.
    Reads {
        asked: usize,
        there: usize,
        reply: Vec<u8>,
    },
}

/// A long command under way.
#[derive(Debug)]
struct Sending {
    /// Its connection.
    of: u64,
    /// Its bytes in the connection's input.
    len: usize,
    access: Access,
    long: Long,
    phase: Phase,
    tries: u8,
}

/// An operation on the way.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// Of a staged command.
    Piece,
    Run,
    /// The part of a reply with this number.
    Read(usize),
    /// Nothing depends on it.
    Forget,
}

/// An operation of a long command.
struct Sent {
    /// The number of the command.
    of: u64,
    part: Part,
    at: Instant,
}

/// What has come of a long command.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Done {
    /// Its connection.
    pub(super) of: u64,
    /// Its bytes in the connection's input.
    pub(super) len: usize,
    pub(super) access: Access,
    /// Whether it may have taken effect, if it has no reply.
    pub(super) is_sent: bool,
    /// `None` if it was given up.
    pub(super) reply: Option<Vec<u8>>,
}

/// All long commands of a server.
#[derive(Default)]
pub(super) struct Longs {
    /// By number.
    sending: BTreeMap<u64, Sending>,
    newest: u64,
    /// By the number of the operation.
    sent: BTreeMap<u64, Sent>,
    /// Entries that are to be sent, whatever becomes of their commands.
    forgotten: VecDeque<Batch>,
    /// Parts of replies that have to be read by an entry: time has to pass in the log first.
    again: VecDeque<(u64, usize)>,
    /// Connections that wait until there are fewer.
    waiting: VecDeque<u64>,
}

/// An id that no other command has, of this server or another one.
fn id() -> u64 {
    RandomState::new().hash_one(0)
}

impl Longs {
    /// Begins one, unless there are too many.
    pub(super) fn begin(&mut self, of: u64, len: usize, access: Access, args: &[&[u8]]) -> Begun {
        if self.sending.len() >= LONG_MAX {
            self.waiting.push_back(of);
            return Begun::Waits;
        }
        let Some(long) = Long::new(id(), args.iter().copied()) else { return Begun::TooLong };
        if let Some(longest) = args.iter().find(|arg| arg.len() > ARGUMENT_BYTES_MAX) {
            return Begun::LongArgument(longest.len());
        }
        self.newest += 1;
        let phase = Phase::Stages { sent: 0, taken: 0 };
        self.sending.insert(self.newest, Sending { of, len, access, long, phase, tries: 0 });
        Begun::Sends
    }

    /// A connection that has waited, if there is room now.
    pub(super) fn next_waiting(&mut self) -> Option<u64> {
        if self.sending.len() < LONG_MAX { self.waiting.pop_front() } else { None }
    }

    /// Whether anything is on the way.
    pub(super) fn are_sent(&self) -> bool {
        !self.sent.is_empty()
    }

    /// Since when the oldest operation waits that is older than this time, if there is one.
    pub(super) fn late(&self, now: Instant, time: Duration) -> Option<Instant> {
        self.sent.values().map(|sent| sent.at).filter(|at| now.duration_since(*at) >= time).min()
    }

    /// Sends what can be sent.
    pub(super) fn send(&mut self, now: Instant, sink: &mut impl OperationSink) {
        while self.sent.len() < PARTS_MAX
            && !sink.is_busy()
            && let Some((of, part, operation)) = self.next()
        {
            // It is not busy, and no piece is too long.
            if let Some(number) = sink.begin(operation) {
                self.sent.insert(number, Sent { of, part, at: now });
            }
        }
    }

    fn next(&mut self) -> Option<(u64, Part, Operation)> {
        if let Some(batch) = self.forgotten.pop_front() {
            return Some((0, Part::Forget, Operation::Propose(batch.bytes())));
        }
        while let Some((number, part)) = self.again.pop_front() {
            if let Some(sending) = self.sending.get(&number) {
                let entry = Operation::Propose(sending.long.read(part).bytes());
                return Some((number, Part::Read(part), entry));
            }
        }
        for (number, Sending { long, phase, .. }) in &mut self.sending {
            let (part, operation) = match phase {
                Phase::Stages { sent, .. } if *sent < long.pieces() => {
                    *sent += 1;
                    (Part::Piece, Operation::Propose(long.piece(*sent - 1).bytes()))
                }
                Phase::Staged => {
                    *phase = Phase::Runs;
                    (Part::Run, Operation::Propose(long.run().bytes()))
                }
                Phase::Reads { asked, reply, .. } if *asked < Long::parts(reply.len()) => {
                    *asked += 1;
                    (Part::Read(*asked - 1), Operation::Query(long.read(*asked - 1).bytes()))
                }
                Phase::Stages { .. } | Phase::Runs | Phase::Reads { .. } => continue,
            };
            return Some((*number, part, operation));
        }
        None
    }

    /// An operation has its reply; `None` if it is none of these. Returns the command that is done, if any.
    pub(super) fn finish(&mut self, operation: u64, reply: &[u8]) -> Option<Option<Done>> {
        let Sent { of, part, .. } = self.sent.remove(&operation)?;
        let replies = Batch::replies(reply).unwrap_or_default();
        let reply = replies.first().copied();
        Some(self.advance(of, part, reply))
    }

    /// What a reply means for its command.
    fn advance(&mut self, number: u64, part: Part, reply: Option<&[u8]>) -> Option<Done> {
        let sending = self.sending.get_mut(&number)?;
        match (part, &mut sending.phase) {
            (Part::Piece, Phase::Stages { taken, .. }) => match reply {
                Some(b"+OK\r\n") => {
                    *taken += 1;
                    if *taken == sending.long.pieces() {
                        sending.phase = Phase::Staged;
                    }
                    None
                }
                Some(why) if !Long::is_misplaced(why) => {
                    let is_unknown = why.starts_with(b"-ERR unknown command");
                    let is_read = sending.access == Access::Read;
                    let why = match why {
                        _ if is_unknown => NOT_UNDERSTOOD,
                        why if is_read && why.starts_with(b"-OOM ") => NO_MEMORY_TO_READ,
                        why => why,
                    };
                    self.end(number, Some(why.to_vec()), !is_unknown)
                }
                _ => self.again_from_the_start(number),
            },
            (Part::Run, Phase::Runs) => match reply.map(Long::reply) {
                Some(LongReply::Short(reply)) => {
                    let reply = reply.to_vec();
                    self.end(number, Some(reply), false)
                }
                Some(LongReply::Kept(len)) => {
                    sending.phase = Phase::Reads { asked: 0, there: 0, reply: vec![0; len] };
                    None
                }
                None => self.end(number, Some(NOT_UNDERSTOOD.to_vec()), true),
            },
            (Part::Read(n), Phase::Reads { there, reply: whole, .. }) => {
                let (at, len) = Long::part(whole.len(), n);
                match reply {
                    Some(bytes) if bytes.len() == len => {
                        whole[at..at + len].copy_from_slice(bytes);
                        *there += 1;
                        if *there < Long::parts(whole.len()) {
                            return None;
                        }
                        let reply = core::mem::take(whole);
                        self.end(number, Some(reply), true)
                    }
                    None => {
                        self.again.push_back((number, n));
                        None
                    }
                    Some(_) => self.end(number, Some(LOST.to_vec()), false),
                }
            }
            // Of a command that was sent again.
            _ => None,
        }
    }

    /// The pieces of a command did not arrive in order: it was not executed.
    fn again_from_the_start(&mut self, number: u64) -> Option<Done> {
        let mut sending = self.sending.remove(&number)?;
        self.forgotten.push_back(sending.long.forget());
        sending.tries += 1;
        // What is on the way has the former number and id.
        self.newest += 1;
        let number = self.newest;
        let is_over = sending.tries >= TRIES_MAX;
        sending.long.rename(id());
        sending.phase = Phase::Stages { sent: 0, taken: 0 };
        self.sending.insert(number, sending);
        if is_over { self.end(number, Some(NOT_STAGED.to_vec()), false) } else { None }
    }

    /// A command is done.
    fn end(&mut self, number: u64, reply: Option<Vec<u8>>, forgets: bool) -> Option<Done> {
        let Sending { of, len, access, long, phase, .. } = self.sending.remove(&number)?;
        if forgets {
            self.forgotten.push_back(long.forget());
        }
        let is_sent = !matches!(phase, Phase::Stages { .. } | Phase::Staged);
        Some(Done { of, len, access, is_sent, reply })
    }

    /// Gives all of them up: the store does not answer, or its client has ended.
    pub(super) fn give_up(&mut self) -> Vec<Done> {
        let numbers: Vec<u64> = self.sending.keys().copied().collect();
        let done = numbers.into_iter().filter_map(|number| self.end(number, None, true)).collect();
        self.sent.clear();
        self.again.clear();
        done
    }

    /// The client of the store has ended: nothing is left of what it was to send. Returns the connections
    /// that wait.
    pub(super) fn clear(&mut self) -> VecDeque<u64> {
        self.forgotten.clear();
        core::mem::take(&mut self.waiting)
    }
}

/// Whether a long command is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    Sends,
    /// Later: its connection is told.
    Waits,
    /// It is longer than the store takes.
    TooLong,
    /// One of its arguments is: it has these bytes.
    LongArgument(usize),
}

const NOT_UNDERSTOOD: &[u8] =
    b"-ERR the store does not understand long commands: its replicas are of another release\r\n";
const NOT_STAGED: &[u8] =
    b"-ERR the command was not executed: the store has not kept all of it; send it again\r\n";
/// Redis would read all the same, so its own words would mislead.
const NO_MEMORY_TO_READ: &[u8] =
    b"-OOM a command whose text or reply has more than about 1000 bytes needs memory also if it only \
    reads, and used memory > 'maxmemory'\r\n";
const LOST: &[u8] = b"-ERR the command was executed, and its reply is lost\r\n";

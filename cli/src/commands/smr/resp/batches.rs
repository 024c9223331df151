//! Commands of many connections in few operations of the store.
//!
//! Batches are sent when no connection has sent anything more, several at a time; one that is not
//! full only when nothing of its kind is on the way. So the more there is to do, the more commands
//! share an entry and a wakeup of the leader, and a command that is alone does not wait.

use super::connection::Connection;
use super::parse::Requests;
use obol_smr::{Access, Batch, Operation, PAYLOAD_BYTES_MAX, WINDOW};
use std::collections::{BTreeMap, VecDeque};

/// Full batches that are sent though connections have sent more.
const ROUND: usize = 3;
/// Commands that are taken in a turn, those that need no store included: half a ms of work at most. The
/// thread may be a replica's, which has its own turns in between.
const COMMANDS_MAX: usize = 1024;

/// The way of batches to the store.
pub(super) trait Way {
    /// Whether it takes no operation at present.
    fn is_busy(&self) -> bool;
    /// Begins an operation; returns its number. `None` if the store cannot take it.
    fn begin(&mut self, operation: Operation) -> Option<u64>;
}

/// A batch that is being filled, or is full.
#[derive(Default)]
struct Open {
    batch: Batch,
    /// Whose commands it has, in order, and how many of each.
    owners: Vec<(u64, usize)>,
    /// The bytes of each command in its connection's input.
    lens: Vec<usize>,
}

/// A batch on its way.
struct Sent {
    access: Access,
    owners: Vec<(u64, usize)>,
    lens: Vec<usize>,
}

/// All batches.
#[derive(Default)]
pub(super) struct Batches {
    writes: Open,
    reads: Open,
    /// Full ones that are not sent.
    full: VecDeque<(Access, Open)>,
    /// By the number of the operation.
    sent: BTreeMap<u64, Sent>,
    /// Connections that may have commands in no batch, in the order of their turns.
    queue: VecDeque<u64>,
    requests: Requests,
    /// The last turn has left commands because it may not take more.
    is_spent: bool,
}

pub(super) type Connections = BTreeMap<u64, Connection>;

/// How the commands of a connection were put into a batch.
enum Outcome {
    /// It has no more for this batch.
    All,
    /// The batch has no room for the next one.
    Full,
}

/// How the turn of a connection ended.
enum Ended {
    /// It has no commands that can be taken now.
    Over,
    /// No batch has room.
    NoRoom,
    /// No more commands are taken in this turn.
    Spent,
}

impl Batches {
    /// A connection may have commands.
    pub(super) fn enqueue(&mut self, id: u64, connection: &mut Connection) {
        if connection.in_flight == 0 && connection.untaken() > 0 && !connection.is_queued {
            connection.is_queued = true;
            self.queue.push_back(id);
        }
    }

    fn has_room(&self) -> bool {
        ((self.sent.len() + self.full.len()) as u64) < WINDOW - 1
    }

    const fn open(&mut self, access: Access) -> &mut Open {
        match access {
            Access::Read => &mut self.reads,
            Access::Write => &mut self.writes,
        }
    }

    /// Puts commands into batches, while there is room. Connections whose turn is over are added to
    /// `touched`.
    pub(super) fn fill(
        &mut self,
        connections: &mut Connections,
        touched: &mut Vec<u64>,
        info: &impl Fn() -> String,
    ) {
        let mut requests = core::mem::take(&mut self.requests);
        requests.begin(COMMANDS_MAX);
        while let Some(&id) = self.queue.front() {
            let ended = connections
                .get_mut(&id)
                .map(|connection| self.fill_from(id, connection, &mut requests, info));
            match ended {
                Some(Ended::NoRoom) => break,
                Some(Ended::Spent) => {
                    // The others have their turns first.
                    self.queue.rotate_left(1);
                    touched.push(id);
                    break;
                }
                None | Some(Ended::Over) => {
                    self.queue.pop_front();
                    touched.push(id);
                }
            }
        }
        self.is_spent = requests.is_spent() && !self.queue.is_empty();
        self.requests = requests;
    }

    /// Whether commands were left only because of their number.
    pub(super) const fn are_left(&self) -> bool {
        self.is_spent
    }

    /// Puts the commands of a connection into a batch: all of a pipeline into the same one, where they
    /// fit.
    fn fill_from(
        &mut self,
        id: u64,
        connection: &mut Connection,
        requests: &mut Requests,
        info: &impl Fn() -> String,
    ) -> Ended {
        while let Some((len, access)) = connection.next(requests, info) {
            let open = self.open(access);
            let is_better_alone = open.batch.room() < connection.untaken() && open.batch.is_half_full();
            let outcome = if is_better_alone {
                Outcome::Full
            } else {
                open.push_all(id, connection, requests, (len, access), info)
            };
            match outcome {
                Outcome::All => break,
                Outcome::Full if open.batch.is_empty() => refuse(connection, len, requests),
                Outcome::Full if self.has_room() => {
                    self.close(access);
                    if connection.in_flight > 0 {
                        break;
                    }
                }
                // In its turn when there is room.
                Outcome::Full if connection.in_flight == 0 => return Ended::NoRoom,
                Outcome::Full => break,
            }
        }
        if requests.is_spent() && connection.in_flight == 0 && connection.untaken() > 0 {
            return Ended::Spent;
        }
        connection.is_queued = false;
        Ended::Over
    }

    /// Whether batches wait only for the connections to have sent all.
    pub(super) fn are_held(&self) -> bool {
        !self.full.is_empty() || self.is_alone(Access::Write) || self.is_alone(Access::Read)
    }

    /// How many connections have commands in batches that are held, and in those on the way.
    pub(super) fn owners(&self) -> (usize, usize) {
        let full = self.full.iter().map(|(_, open)| open.owners.len()).sum::<usize>();
        let sent = self.sent.values().map(|sent| sent.owners.len()).sum();
        (self.writes.owners.len() + self.reads.owners.len() + full, sent)
    }

    /// Whether any are on the way.
    pub(super) fn are_sent(&self) -> bool {
        !self.sent.is_empty()
    }

    /// Whether there is a batch of this kind that is not full, and none on the way.
    fn is_alone(&self, access: Access) -> bool {
        let open = match access {
            Access::Read => &self.reads,
            Access::Write => &self.writes,
        };
        !open.batch.is_empty() && self.has_room() && self.sent.values().all(|sent| sent.access != access)
    }

    /// Sends batches. `is_quiet`: the connections have sent all.
    pub(super) fn send(&mut self, is_quiet: bool, way: &mut impl Way) {
        if is_quiet {
            for access in [Access::Write, Access::Read] {
                if self.is_alone(access) {
                    self.close(access);
                }
            }
        } else if self.full.len() < ROUND {
            return;
        }
        while !way.is_busy()
            && let Some((access, Open { batch, owners, lens })) = self.full.pop_front()
        {
            let operation = match access {
                Access::Read => Operation::Query(batch.bytes()),
                Access::Write => Operation::Propose(batch.bytes()),
            };
            // It is not busy, and no batch is too long.
            if let Some(number) = way.begin(operation) {
                self.sent.insert(number, Sent { access, owners, lens });
            }
        }
    }

    /// A batch gets no more commands.
    fn close(&mut self, access: Access) {
        let open = core::mem::take(self.open(access));
        self.full.push_back((access, open));
    }

    /// A batch has its reply: commands that were not executed are sent again. Connections that it had
    /// commands of are added to `touched`.
    pub(super) fn finish(
        &mut self,
        id: u64,
        reply: &[u8],
        connections: &mut Connections,
        touched: &mut Vec<u64>,
    ) {
        // A batch of a client that has ended was abandoned.
        let Some(Sent { access, owners, lens }) = self.sent.remove(&id) else { return };
        let mut replies = Batch::replies(reply).unwrap_or_default().into_iter();
        let none = replies.len() == 0;
        let mut lens = lens.into_iter();
        for (n, (of, count)) in owners.into_iter().enumerate() {
            let of_this: Vec<usize> = lens.by_ref().take(count).collect();
            let Some(connection) = connections.get_mut(&of) else {
                replies.by_ref().take(count).for_each(drop);
                continue;
            };
            let is_first = n == 0 && none;
            let mut left = count;
            for (len, reply) in of_this.iter().zip(replies.by_ref()) {
                connection.answer(*len, reply);
                left -= 1;
            }
            if is_first && access == Access::Write {
                connection.answer(of_this.first().copied().unwrap_or(0), NOT_UNDERSTOOD);
                left -= 1;
            }
            if left > 0 {
                connection.take_back(left);
                connection.promoted = is_first && access == Access::Read;
            }
            self.enqueue(of, connection);
            touched.push(of);
        }
    }

    /// Drops the commands that were not sent, whose connections end.
    pub(super) fn drop_unsent(&mut self) {
        (self.writes, self.reads) = (Open::default(), Open::default());
        self.full.clear();
    }

    /// The client of the store has ended: what its batches did is unknown.
    pub(super) fn abandon(&mut self, why: &str, connections: &mut Connections, touched: &mut Vec<u64>) {
        let sent = core::mem::take(&mut self.sent).into_values().flat_map(|sent| sent.owners);
        for (of, _) in sent {
            if let Some(connection) = connections.get_mut(&of).filter(|connection| connection.in_flight > 0) {
                connection.fail(&format!("ERR whether the command took effect is unknown: {why}"));
                touched.push(of);
            }
        }
    }
}

/// The reply to a command that replicas refused to decode.
const NOT_UNDERSTOOD: &[u8] =
    b"-ERR the store does not understand this command: its replicas are of another release\r\n";

impl Open {
    /// Adds the commands of a connection that need the same, of which the first one was found.
    fn push_all(
        &mut self,
        id: u64,
        connection: &mut Connection,
        requests: &mut Requests,
        (first, access): (usize, Access),
        info: &impl Fn() -> String,
    ) -> Outcome {
        let (mut len, mut count) = (first, 0);
        let outcome = loop {
            if !self.batch.push_each(connection.texts(requests)) {
                break Outcome::Full;
            }
            connection.take(len);
            self.lens.push(len);
            count += 1;
            match connection.next(requests, info) {
                Some((next, needs)) if needs == access => len = next,
                _ => break Outcome::All,
            }
        };
        if count > 0 {
            self.owners.push((id, count));
        }
        outcome
    }
}

/// A command that is too long for any batch.
fn refuse(connection: &mut Connection, len: usize, requests: &Requests) {
    let bytes: usize = requests.lens().sum();
    let count = requests.lens().len().min(255);
    let most = PAYLOAD_BYTES_MAX - 10 - 2 * count;
    let why = format!(
        "-ERR a command has at most {most} bytes in {count} arguments here, this one has {bytes}\r\n"
    );
    connection.refuse(len, why.as_bytes());
}

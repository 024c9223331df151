//! Commands of many connections in few operations of the store.
//!
//! Batches are sent when no connection has sent anything more, several at a time; one that is not
//! full only when nothing of its kind is on the way. So the more there is to do, the more commands
//! share an entry and a wakeup of the leader, and a command that is alone does not wait.

use super::connection::{CROWDED, Connection};
use super::local::Setting;
use super::long::{ARGUMENT_BYTES_MAX, Begun, Done, Longs};
use super::operation_sink::OperationSink;
use super::parse::Requests;
use super::time_of_day::as_stored;
use obol_smr::{Access, Batch, Long, Operation, STAGED_ARGS_MAX, STAGED_BYTES_MAX, WINDOW};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Full batches that are sent though connections have sent more.
const ROUND: usize = 3;
/// Commands that are taken in a turn, those that need no store included: half a ms of work at most. The
/// thread may be a replica's, which has its own turns in between.
const COMMANDS_MAX: usize = 1024;

/// A store that answers nothing for this time is taken for one that cannot serve: failovers take
/// milliseconds.
pub(super) const STALLED_AFTER: Duration = Duration::from_secs(5);

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
    /// Since when.
    at: Instant,
    owners: Vec<(u64, usize)>,
    lens: Vec<usize>,
}

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
    /// Commands that no batch has room for.
    longs: Longs,
    /// The last turn has left commands because it may not take more.
    is_spent: bool,
    /// Connections whose commands were given up.
    waiting: Vec<u64>,
    /// Since when nothing was answered, if that is too long.
    stalled: Option<Instant>,
    /// When the store answered last.
    answered: Option<Instant>,
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
    /// It waits for a list of connections.
    Lists,
    /// No batch has room.
    NoRoom,
    /// No more commands are taken in this turn.
    Spent,
}

impl Batches {
    /// A connection may have commands.
    pub(super) fn enqueue(&mut self, id: u64, connection: &mut Connection) {
        let waits = connection.is_queued || connection.waits;
        if connection.in_flight == 0 && connection.untaken() > 0 && !waits {
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
        setting: &Setting<'_>,
    ) {
        let mut requests = core::mem::take(&mut self.requests);
        requests.begin(COMMANDS_MAX);
        while let Some(&id) = self.queue.front() {
            let list = connections.get(&id).and_then(Connection::lists).map(|own| {
                let all = connections.iter().filter(|(of, _)| !own || **of == id);
                all.map(|(_, connection)| connection.shown()).collect::<String>()
            });
            if let Some((list, connection)) = list.zip(connections.get_mut(&id)) {
                connection.answer_list(&list);
            }
            let ended = connections
                .get_mut(&id)
                .map(|connection| self.fill_from(id, connection, &mut requests, setting));
            match ended {
                Some(Ended::NoRoom) => break,
                // In the next round of this loop.
                Some(Ended::Lists) => {}
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
        setting: &Setting<'_>,
    ) -> Ended {
        while let Some((len, access)) = connection.next(requests, setting) {
            if connection.is_long {
                if connection.in_flight == 0 {
                    self.begin_long(id, connection, len, access, requests, setting);
                }
                break;
            }
            let open = self.open(access);
            let is_better_alone = open.batch.room() < connection.untaken() && open.batch.is_half_full();
            let outcome = if is_better_alone {
                Outcome::Full
            } else {
                open.push_all(id, connection, requests, len, access, setting)
            };
            match outcome {
                Outcome::All => break,
                // In the next round of this loop.
                Outcome::Full if open.batch.is_empty() => connection.is_long = true,
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
        if connection.lists().is_some() {
            return Ended::Lists;
        }
        if requests.is_spent() && connection.in_flight == 0 && connection.untaken() > 0 {
            return Ended::Spent;
        }
        connection.is_queued = false;
        Ended::Over
    }

    /// Begins to send a command that no batch has room for, if it is its turn.
    fn begin_long(
        &mut self,
        id: u64,
        connection: &mut Connection,
        len: usize,
        access: Access,
        requests: &Requests,
        setting: &Setting<'_>,
    ) {
        if setting.is_crowded {
            return connection.refuse(len, CROWDED);
        }
        let mut begin = |args: &[&[u8]]| self.longs.begin(id, len, access, args);
        let begun = match (connection.session.transaction(), as_stored(connection.texts(requests))) {
            (Some(args), _) => begin(&args.iter().map(Vec::as_slice).collect::<Vec<_>>()),
            (None, Some(args)) => begin(&args.iter().map(Vec::as_slice).collect::<Vec<_>>()),
            (None, None) => begin(&connection.texts(requests).collect::<Vec<_>>()),
        };
        match begun {
            Begun::Sends => connection.take(len),
            Begun::Waits => connection.waits = true,
            Begun::TooLong => refuse(connection, len, requests),
            Begun::LongArgument(bytes) => {
                let why = format!(
                    "-ERR a key or value has at most {ARGUMENT_BYTES_MAX} bytes, this one {bytes}\r\n"
                );
                connection.refuse(len, why.as_bytes());
            }
        }
    }

    /// A long command is done, or was given up. Others have their turn.
    fn finish_long(&mut self, done: &Done, connections: &mut Connections, touched: &mut Vec<u64>) {
        if let Some(connection) = connections.get_mut(&done.of) {
            let given_up = if done.is_sent && done.access == Access::Write { UNCERTAIN } else { UNAVAILABLE };
            connection.answer(done.len, done.reply.as_deref().unwrap_or(given_up));
            self.enqueue(done.of, connection);
        }
        touched.push(done.of);
        while let Some(next) = self.longs.next_waiting() {
            if let Some(connection) = connections.get_mut(&next) {
                connection.waits = false;
                self.enqueue(next, connection);
                touched.push(next);
                break;
            }
        }
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
        !self.sent.is_empty() || self.longs.are_sent()
    }

    /// Whether there is a batch of this kind that is not full, and none on the way.
    fn is_alone(&self, access: Access) -> bool {
        let open = match access {
            Access::Read => &self.reads,
            Access::Write => &self.writes,
        };
        !open.batch.is_empty() && self.has_room() && self.sent.values().all(|sent| sent.access != access)
    }

    /// Sends batches, and pieces of long commands. `is_quiet`: the connections have sent all.
    pub(super) fn send(&mut self, is_quiet: bool, sink: &mut impl OperationSink) {
        self.send_batches(is_quiet, sink);
        self.longs.send(Instant::now(), sink);
    }

    fn send_batches(&mut self, is_quiet: bool, sink: &mut impl OperationSink) {
        if is_quiet {
            for access in [Access::Write, Access::Read] {
                if self.is_alone(access) {
                    self.close(access);
                }
            }
        } else if self.full.len() < ROUND {
            return;
        }
        while !sink.is_busy()
            && let Some((access, Open { batch, owners, lens })) = self.full.pop_front()
        {
            let operation = match access {
                Access::Read => Operation::Query(batch.bytes()),
                Access::Write => Operation::Propose(batch.bytes()),
            };
            // It is not busy, and no batch is too long.
            if let Some(number) = sink.begin(operation) {
                self.sent.insert(number, Sent { access, at: Instant::now(), owners, lens });
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
        if let Some(done) = self.longs.finish(id, reply) {
            (self.stalled, self.answered) = (None, Some(Instant::now()));
            if let Some(done) = done {
                self.finish_long(&done, connections, touched);
            }
            return;
        }
        // A batch of a client that has ended was abandoned.
        let Some(Sent { access, owners, lens, .. }) = self.sent.remove(&id) else { return };
        (self.stalled, self.answered) = (None, Some(Instant::now()));
        let mut replies = Batch::replies(reply).unwrap_or_default().into_iter();
        let none = replies.len() == 0;
        // Then it is the only one.
        let is_long = replies.as_slice().first().is_some_and(|reply| Long::is_needed(reply));
        if is_long {
            replies.next();
        }
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
                connection.requeue(left);
                connection.promoted = is_first && access == Access::Read;
                connection.is_long = n == 0 && is_long;
            }
            self.enqueue(of, connection);
            touched.push(of);
        }
    }

    /// Since when the store has answered nothing, if that is too long.
    pub(super) const fn stalled(&self) -> Option<Instant> {
        self.stalled
    }

    /// Asks the store for nothing, if it has answered nothing lately and nothing is on the way: so that
    /// a client that only asks whether it serves has the truth.
    pub(super) fn probe(&mut self, now: Instant, sink: &mut impl OperationSink) {
        let is_recent = |at: Instant| now.duration_since(at) < STALLED_AFTER / 4;
        if self.sent.is_empty() && !self.answered.is_some_and(is_recent) && !sink.is_busy() {
            let nothing = Batch::default().bytes();
            if let Some(number) = sink.begin(Operation::Query(nothing)) {
                let (access, owners, lens) = (Access::Read, Vec::new(), Vec::new());
                self.sent.insert(number, Sent { access, at: now, owners, lens });
            }
        }
    }

    /// Answers commands that wait for too long: nobody knows when the store will serve again. Those that
    /// were sent may still take effect, and say so.
    pub(super) fn expire(&mut self, now: Instant, connections: &mut Connections, touched: &mut Vec<u64>) {
        let is_late = |sent: &Sent| now.duration_since(sent.at) >= STALLED_AFTER;
        let late_long = self.longs.late(now, STALLED_AFTER);
        if !self.sent.values().any(is_late) && late_long.is_none() {
            return;
        }
        let since = self.sent.values().map(|sent| sent.at).chain(late_long).min();
        for done in self.longs.give_up() {
            self.finish_long(&done, connections, touched);
        }
        self.stalled = self.stalled.or(since);
        for sent in self.sent.values_mut() {
            let why = match sent.access {
                Access::Read => UNAVAILABLE,
                Access::Write => UNCERTAIN,
            };
            let mut lens = core::mem::take(&mut sent.lens).into_iter();
            for (of, count) in core::mem::take(&mut sent.owners) {
                let of_this: Vec<usize> = lens.by_ref().take(count).collect();
                let Some(connection) = connections.get_mut(&of) else { continue };
                of_this.iter().for_each(|len| connection.answer(*len, why));
                self.waiting.push(of);
            }
        }
        let full = core::mem::take(&mut self.full).into_iter().map(|(_, open)| open);
        let open = [core::mem::take(&mut self.writes), core::mem::take(&mut self.reads)];
        for (of, count) in full.chain(open).flat_map(|open| open.owners) {
            if let Some(connection) = connections.get_mut(&of) {
                connection.requeue(count);
                self.waiting.push(of);
            }
        }
        for of in core::mem::take(&mut self.waiting) {
            if let Some(connection) = connections.get_mut(&of) {
                self.enqueue(of, connection);
            }
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
        self.stalled = None;
        let sent = core::mem::take(&mut self.sent).into_values().flat_map(|sent| sent.owners);
        let long = self.longs.give_up().into_iter().map(|done| (done.of, 1));
        for (of, _) in sent.chain(long) {
            if let Some(connection) = connections.get_mut(&of).filter(|connection| connection.in_flight > 0) {
                connection.fail(&format!("ERR whether the command took effect is unknown: {why}"));
                touched.push(of);
            }
        }
        for of in self.longs.clear() {
            if let Some(connection) = connections.get_mut(&of) {
                connection.waits = false;
                self.enqueue(of, connection);
            }
        }
    }
}

/// Why a command was not taken while the store does not serve.
pub(super) const DOWN: &str =
    "CLUSTERDOWN the store does not serve: no leader has answered for seconds; see `obol smr status`";
/// The replies to those that were sent before that was known.
const UNAVAILABLE: &[u8] =
    b"-CLUSTERDOWN the store does not serve: no leader has answered for seconds; see `obol smr status`\r\n";
const UNCERTAIN: &[u8] =
    b"-CLUSTERDOWN no leader has answered for seconds: this command may still take effect; see `obol smr status`\r\n";

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
        first: usize,
        access: Access,
        setting: &Setting<'_>,
    ) -> Outcome {
        let (mut len, mut count) = (first, 0);
        let outcome = loop {
            let is_pushed = match (connection.session.transaction(), as_stored(connection.texts(requests))) {
                (Some(args), _) => self.batch.push(args),
                (None, Some(args)) => self.batch.push(&args),
                (None, None) => self.batch.push_each(connection.texts(requests)),
            };
            if !is_pushed {
                break Outcome::Full;
            }
            connection.take(len);
            self.lens.push(len);
            count += 1;
            match connection.next(requests, setting) {
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

/// A command that is longer than the store takes.
fn refuse(connection: &mut Connection, len: usize, requests: &Requests) {
    let (bytes, count) = (requests.lens().sum::<usize>(), requests.lens().len());
    let why = format!(
        "-ERR a command has at most {STAGED_BYTES_MAX} bytes with lengths, in {STAGED_ARGS_MAX} arguments; this one \
         has {bytes} in {count}\r\n"
    );
    connection.refuse(len, why.as_bytes());
}

//! The link of a process to the gateway of another host: the connection, and what waits for its
//! answers.

use super::connect::Attempt;
use super::frame::{Reply, Request, Seat};
use super::probe::Probe;
use obol_fabric::contract::{Evidence, LinkError, Token};
use obol_fabric::endpoint::{Done, Reconnect};
use obol_fabric::types::{Address, Instant, Nanos};
use obol_fabric::watches::{Deaths, Watches};
use obol_identity::{Stream, StreamError};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// The most bytes that wait for a connection; further posts fail.
const WAITING_BYTES_MAX: usize = 4 << 20;

/// An operation without an answer.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) token: Token,
    pub(super) region: u32,
    pub(super) what: What,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    Read,
    Write,
    /// A WRITE whose success is not reported.
    WriteUnsignaled,
    Cas,
    /// Failed before it was sent, reported after its predecessors.
    Failed(LinkError),
}

/// What a link reports.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) done: VecDeque<(Token, Done)>,
    /// Regions with failures that were not delivered yet.
    pub(super) broken: Vec<u32>,
    pub(super) deaths: Deaths,
    /// Lost datagrams.
    pub(super) lost: u64,
}

impl Outcome {
    fn fail(&mut self, token: Token, region: u32, error: LinkError) {
        let breaks = matches!(error, LinkError::PeerDead | LinkError::Unmapped);
        if breaks && !self.broken.contains(&region) {
            self.broken.push(region);
        }
        self.done.push_back((token, Done::Failed(error)));
    }
}

pub(super) struct Link {
    pub(super) host: u8,
    pub(super) to: SocketAddr,
    connection: Reconnect<Box<Stream>>,
    /// The first attempts have failed, and what is posted waits: the gateway of a host that starts at the
    /// same time may listen soon.
    is_starting: bool,
    pending: VecDeque<Pending>,
    /// Requests that wait for a connection.
    waiting: Vec<u8>,
    /// The watches on processes of its host, as its gateway knows them. The gateway reports their deaths;
    /// of a host that falls silent only that is reported.
    watches: Watches<Seat>,
    /// When the gateway was heard last, and when it was asked for the oldest missing answer.
    heard: Instant,
    asked: Instant,
    /// Pings without an answer.
    pings: u32,
    /// Whether datagrams were sent since the last request that is answered.
    unconfirmed: bool,
    probe: Probe,
    /// A gateway that does not answer for this long is given up.
    detection: Nanos,
    attempts: u64,
    /// Attempts since there was a connection, or since it was lost.
    failures: u32,
    /// Until when attempts may fail before the gateway counts as silent. In the past once there was a
    /// connection.
    starting_until: Option<Instant>,
    /// Why there is no connection.
    pub(super) trouble: Option<String>,
}

impl Link {
    pub(super) fn new(host: u8, to: SocketAddr, detection: Nanos) -> Self {
        Self {
            host,
            to,
            connection: Reconnect::default(),
            is_starting: false,
            pending: VecDeque::new(),
            waiting: Vec::new(),
            watches: Watches::default(),
            heard: Instant::ZERO,
            asked: Instant::ZERO,
            pings: 0,
            unconfirmed: false,
            probe: Probe::new(detection),
            detection,
            attempts: 0,
            failures: 0,
            starting_until: None,
            trouble: None,
        }
    }

    /// Whether it is to be connected without being asked.
    pub(super) fn wants_connection(&self) -> bool {
        self.is_starting || self.is_watching()
    }

    /// How often there was no connection since the last one, and why.
    pub(super) fn failures(&self) -> (u32, Option<String>) {
        (self.failures, self.trouble.clone())
    }

    pub(super) fn stream(&self) -> Option<&Stream> {
        self.connection.up().map(Box::as_ref)
    }

    /// Whether a process of its host is watched that is not known to be dead.
    fn is_watching(&self) -> bool {
        self.watches.unproved().next().is_some()
    }

    /// Begins an attempt to connect if there is neither a connection nor an attempt, and one is due.
    /// Returns its number.
    pub(super) fn begin(&mut self, now: Instant) -> Option<u64> {
        if !self.connection.is_due(now) {
            return None;
        }
        self.attempts += 1;
        self.starting_until.get_or_insert(now + self.detection);
        self.connection.begin(self.attempts);
        Some(self.attempts)
    }

    /// Appends a request. `false` if it can neither be sent nor wait.
    fn put(&mut self, request: &Request<'_>) -> bool {
        let may_wait = self.may_wait() && self.waiting.len() < WAITING_BYTES_MAX;
        match self.connection.up_mut() {
            Some(stream) => {
                assert!(self.waiting.is_empty(), "what has waited is sent first");
                request.encode(&mut stream.output);
            }
            None if may_wait => request.encode(&mut self.waiting),
            None => return false,
        }
        true
    }

    /// Whether a connection may be there soon.
    fn may_wait(&self) -> bool {
        self.is_starting || self.connection.is_connecting()
    }

    /// Sends a datagram. `false` if it is lost.
    pub(super) fn send(&mut self, datagram: &Request<'_>, now: impl FnOnce() -> Instant) -> bool {
        if !self.put(datagram) {
            return false;
        }
        if !self.awaits() && !self.unconfirmed {
            self.probe.start(now());
        }
        self.unconfirmed = true;
        true
    }

    /// Posts an operation.
    pub(super) fn post(
        &mut self,
        operation: Pending,
        request: &Request<'_>,
        now: impl FnOnce() -> Instant,
        outcome: &mut Outcome,
    ) {
        if !self.put(request) {
            return self.refuse(operation.token, operation.region, LinkError::PeerDead, outcome);
        }
        self.ask(now);
        self.pending.push_back(operation);
    }

    /// A request that is answered was put, so that the datagrams before it are confirmed as well.
    fn ask(&mut self, now: impl FnOnce() -> Instant) {
        if !self.awaits() {
            self.asked = now();
            self.probe.start(self.asked);
        }
        self.unconfirmed = false;
    }

    fn ping(&mut self, now: Instant) {
        self.put(&Request::Ping);
        self.ask(|| now);
        self.pings += 1;
    }

    /// Fails an operation, after its predecessors.
    pub(super) fn refuse(&mut self, token: Token, region: u32, error: LinkError, outcome: &mut Outcome) {
        if self.pending.is_empty() {
            return outcome.fail(token, region, error);
        }
        self.pending.push_back(Pending { token, region, what: What::Failed(error) });
    }

    pub(super) fn watch(&mut self, whom: Address, outcome: &mut Outcome) {
        let may_wait = self.may_wait();
        let Some(watch) = self.watches.add(whom, Seat::of(whom)) else { return };
        if self.connection.up().is_some() {
            self.put(&Request::Watch(Seat::of(whom)));
        } else if !may_wait {
            // Otherwise its gateway is told when it answers.
            watch.report(Evidence::Silence, &mut outcome.deaths);
        }
    }

    /// A death that the gateway of its host, or of this one, reports.
    pub(super) fn report(&mut self, seat: Seat, evidence: Evidence, outcome: &mut Outcome) {
        report(&mut self.watches, seat, evidence, outcome);
    }

    /// The host has sent no pulse: it is given up as one that does not answer. A link that is being
    /// made says by itself whether the host answers.
    pub(super) fn silenced(&mut self, now: Instant, outcome: &mut Outcome) {
        if self.connection.up().is_some() {
            self.lose("its host sends no pulse".to_owned(), now, outcome);
        }
    }

    /// A process of this region may have died: its gateway is asked again for what it knows.
    pub(super) fn ask_again(&mut self, region: u32) {
        let Some(stream) = self.connection.up_mut() else { return };
        for watch in self.watches.unproved().filter(|watch| watch.whom.region == region) {
            Request::Unwatch(watch.proof).encode(&mut stream.output);
            Request::Watch(watch.proof).encode(&mut stream.output);
        }
    }

    pub(super) fn unwatch(&mut self, whom: Address, outcome: &mut Outcome) {
        let unwatched = unwatched(&mut self.watches, whom, outcome);
        if let (Some(seat), true) = (unwatched, self.connection.up().is_some()) {
            self.put(&Request::Unwatch(seat));
        }
    }

    /// Takes the result of an attempt. Returns whether there is a connection now.
    pub(super) fn take(&mut self, attempt: Attempt, now: Instant, outcome: &mut Outcome) -> bool {
        if !self.connection.is_connecting() || self.connection.attempt() != Some(attempt.number) {
            return false;
        }
        let mut stream = match attempt.result {
            Ok(stream) => stream,
            Err(error) => {
                self.lose(error.to_string(), now, outcome);
                return false;
            }
        };
        // First, so that a death is known before an operation fails by it.
        for watch in self.watches.iter_mut().filter(|watch| !watch.is_proved()) {
            watch.renew();
            Request::Watch(watch.proof).encode(&mut stream.output);
        }
        stream.output.append(&mut self.waiting);
        self.connection.established(attempt.number, stream);
        self.is_starting = false;
        (self.heard, self.asked) = (attempt.ended, now);
        if self.awaits() || self.unconfirmed {
            self.probe.start(now);
        }
        self.starting_until = Some(Instant::ZERO);
        self.failures = 0;
        self.trouble = None;
        true
    }

    /// The connection is lost, or could not be made.
    pub(super) fn lose(&mut self, trouble: String, now: Instant, outcome: &mut Outcome) {
        self.connection.fail(now);
        self.trouble = Some(trouble);
        self.failures = self.failures.saturating_add(1);
        self.is_starting = self.starting_until.is_some_and(|until| now < until);
        if !self.is_starting {
            self.give_up(outcome);
        }
    }

    /// Fails what was posted, and reports the silence.
    fn give_up(&mut self, outcome: &mut Outcome) {
        self.waiting.clear();
        (self.pings, self.unconfirmed) = (0, false);
        self.probe.stop();
        for Pending { token, region, what } in self.pending.drain(..) {
            let error = if let What::Failed(error) = what { error } else { LinkError::PeerDead };
            outcome.fail(token, region, error);
        }
        for watch in self.watches.iter_mut() {
            watch.report(Evidence::Silence, &mut outcome.deaths);
        }
    }

    /// Takes what the gateway has sent.
    pub(super) fn receive(&mut self, now: Instant, outcome: &mut Outcome) {
        let Some(stream) = self.connection.up_mut() else { return };
        let received = stream.receive();
        let taken = match &received {
            Ok(false) => Ok(()),
            Ok(true) | Err(_) => self.replies(now, outcome),
        };
        if let Err(error) = received.map(drop).and(taken) {
            self.lose(error.to_string(), now, outcome);
        }
    }

    fn replies(&mut self, now: Instant, outcome: &mut Outcome) -> Result<(), StreamError> {
        let Self { connection, pending, watches, .. } = self;
        let Some(stream) = connection.up_mut() else { return Ok(()) };
        let mut answered = false;
        while let Some(message) = stream.next_message()? {
            let unexpected = StreamError::TooLong(message.len());
            (self.heard, self.asked) = (now, now);
            match Reply::decode(message) {
                Some(Reply::Death(seat, evidence)) => report(watches, seat, evidence, outcome),
                Some(Reply::Lost(n)) => outcome.lost = outcome.lost.saturating_add(n),
                Some(Reply::Pong { .. }) => {
                    answered = true;
                    self.pings = self.pings.saturating_sub(1);
                }
                Some(reply) => {
                    answered = true;
                    let Some(Pending { token, region, what }) = pending.pop_front() else {
                        return Err(unexpected);
                    };
                    let done = match (what, reply) {
                        (_, Reply::Failed(error)) => {
                            outcome.fail(token, region, error);
                            None
                        }
                        (What::Read, Reply::Read(bytes)) => Some(read(bytes)),
                        (What::Write, Reply::Written) => Some(Done::Written),
                        (What::WriteUnsignaled, Reply::Written) => None,
                        (What::Cas, Reply::Swapped(found)) => Some(Done::Swapped(found)),
                        _ => return Err(unexpected),
                    };
                    outcome.done.extend(done.map(|done| (token, done)));
                    while let Some(Pending { what: What::Failed(_), .. }) = pending.front() {
                        if let Some(Pending { token, region, what: What::Failed(error) }) =
                            pending.pop_front()
                        {
                            outcome.fail(token, region, error);
                        }
                    }
                }
                None => return Err(unexpected),
            }
        }
        if answered {
            self.probe.answered(now, self.awaits() || self.unconfirmed);
        }
        Ok(())
    }

    /// Sends what was posted.
    pub(super) fn flush(&mut self, now: impl FnOnce() -> Instant, outcome: &mut Outcome) {
        if let Some(stream) = self.connection.up_mut()
            && let Err(error) = stream.send()
        {
            self.lose(error.to_string(), now(), outcome);
        }
    }

    /// Whether an answer is missing.
    fn awaits(&self) -> bool {
        self.pings > 0 || !self.pending.is_empty()
    }

    /// When a gateway that says nothing is asked or, if it was, given up.
    fn silent_at(&self) -> Instant {
        if self.awaits() {
            self.asked.max(self.heard) + self.detection
        } else if self.is_watching() {
            self.heard + Nanos(self.detection.0 / 2)
        } else {
            Instant::NEVER
        }
    }

    /// When what waits for a connection is given up. An attempt may take much longer, because a busy
    /// host takes its time for a handshake; only for the first connection all of it is waited for.
    fn waits_until(&self) -> Instant {
        if self.awaits() && self.starting_until.is_some_and(|until| self.asked >= until) {
            self.asked + self.detection
        } else {
            Instant::NEVER
        }
    }

    /// When [`Link::check`] is due.
    pub(super) fn due(&self) -> Instant {
        if self.connection.up().is_some() {
            self.silent_at().min(self.probe.due())
        } else if self.connection.is_connecting() {
            self.waits_until()
        } else {
            Instant::NEVER
        }
    }

    /// Gives up a gateway that does not answer, and asks one that was not heard for long.
    pub(super) fn check(&mut self, now: Instant, outcome: &mut Outcome) {
        if now < self.due() {
            return;
        }
        if self.connection.is_connecting() {
            return self.give_up(outcome);
        }
        let silent = now >= self.silent_at();
        if silent && self.awaits() {
            return self.lose(format!("no answer within {}", self.detection), now, outcome);
        }
        let is_late = now >= self.probe.due();
        self.ping(now);
        if is_late {
            self.probe.sent(now);
        }
    }
}

/// Reports the death of a process as all addresses that name it.
fn report(watches: &mut Watches<Seat>, seat: Seat, evidence: Evidence, outcome: &mut Outcome) {
    for watch in watches.iter_mut().filter(|watch| watch.proof == seat) {
        watch.report(evidence, &mut outcome.deaths);
    }
}

/// Ends a watch. Returns the process if its gateway need not watch it any longer: two addresses may name
/// one process.
fn unwatched(watches: &mut Watches<Seat>, whom: Address, outcome: &mut Outcome) -> Option<Seat> {
    let seat = watches.remove(whom, &mut outcome.deaths)?;
    watches.iter().all(|watch| watch.proof != seat).then_some(seat)
}

/// A READ's result. A word needs no memory of its own.
fn read(bytes: &[u8]) -> Done {
    let mut word = [0; 8];
    match word.get_mut(..bytes.len()) {
        Some(room) => {
            room.copy_from_slice(bytes);
            Done::Word(word, bytes.len())
        }
        None => Done::Bytes(bytes.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::Target;
    use super::*;
    use std::net::Ipv4Addr;

    const DETECTION: Nanos = Nanos::from_millis(100);
    const REGION: u32 = 70;
    const WHOM: Address = Address { generation: 3, ..Address::region(REGION) };

    fn ms(n: u64) -> Instant {
        Instant(n * 1_000_000)
    }

    /// A link whose first attempt was begun at 1 ms.
    fn connecting() -> (Link, Outcome) {
        let mut link = Link::new(2, (Ipv4Addr::LOCALHOST, 9).into(), DETECTION);
        assert_eq!(link.begin(ms(1)), Some(1));
        (link, Outcome::default())
    }

    fn read(link: &mut Link, token: u64, now: Instant, outcome: &mut Outcome) {
        let at = Target { seat: Seat::of(WHOM), offset: 0, epoch: 0 };
        let read = Pending { token: Token(token), region: REGION, what: What::Read };
        link.post(read, &Request::Read { at, len: 8 }, || now, outcome);
    }

    fn failed(outcome: &mut Outcome) -> Vec<u64> {
        let done = outcome.done.drain(..);
        done.map(|(token, done)| match done {
            Done::Failed(LinkError::PeerDead) => token.0,
            other => panic!("{other:?}"),
        })
        .collect()
    }

    #[test]
    fn a_process_with_two_addresses_is_watched_until_both_are_removed() {
        let (mut watches, mut outcome) = (Watches::default(), Outcome::default());
        let far = Address { host: 1, port: 2, ..WHOM };
        for whom in [WHOM, far] {
            watches.add(whom, Seat::of(whom)).expect("a new one");
        }
        report(&mut watches, Seat::of(Address { generation: 4, ..WHOM }), Evidence::Proof, &mut outcome);
        assert!(outcome.deaths.is_empty(), "another process");
        report(&mut watches, Seat::of(WHOM), Evidence::Suspicion, &mut outcome);
        let suspected = [(WHOM, Evidence::Suspicion), (far, Evidence::Suspicion)];
        assert_eq!(Vec::from(outcome.deaths.clone()), suspected);
        assert_eq!(unwatched(&mut watches, WHOM, &mut outcome), None);
        assert_eq!(unwatched(&mut watches, far, &mut outcome), Some(Seat::of(WHOM)));
        assert_eq!(unwatched(&mut watches, far, &mut outcome), None);
    }

    #[test]
    fn what_waits_for_a_connection_that_is_made_again_fails_within_the_bound_of_detection() {
        let (mut link, mut outcome) = connecting();
        link.lose("lost".to_owned(), ms(200), &mut outcome);
        read(&mut link, 1, ms(200), &mut outcome);
        assert_eq!(failed(&mut outcome), [1], "at once before the next attempt");
        outcome.broken.clear();
        assert_eq!(link.begin(ms(300)), Some(2));
        link.watch(WHOM, &mut outcome);
        assert_eq!(link.due(), Instant::NEVER, "nothing waits");
        read(&mut link, 2, ms(310), &mut outcome);
        read(&mut link, 3, ms(390), &mut outcome);
        assert_eq!(link.due(), ms(410));
        link.check(ms(409), &mut outcome);
        assert_eq!(failed(&mut outcome), [0; 0]);
        link.check(ms(410), &mut outcome);
        assert_eq!(failed(&mut outcome), [2, 3]);
        assert_eq!(Vec::from(std::mem::take(&mut outcome.deaths)), [(WHOM, Evidence::Silence)]);
        // The attempt goes on, and so does what is posted next.
        outcome.broken.clear();
        assert!(link.begin(ms(411)).is_none() && link.waiting.is_empty());
        read(&mut link, 4, ms(420), &mut outcome);
        assert_eq!(link.due(), ms(520));
    }

    #[test]
    fn what_waits_for_the_first_connection_is_not_given_up_before_an_attempt_fails() {
        let (mut link, mut outcome) = connecting();
        read(&mut link, 1, ms(2), &mut outcome);
        assert_eq!(link.due(), Instant::NEVER);
        link.lose("refused".to_owned(), ms(50), &mut outcome);
        assert_eq!(link.begin(ms(60)), Some(2));
        assert_eq!((link.due(), failed(&mut outcome)), (Instant::NEVER, vec![]));
        link.lose("refused".to_owned(), ms(120), &mut outcome);
        assert_eq!(failed(&mut outcome), [1]);
    }
}

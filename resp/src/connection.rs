//! One connection: its bytes, and how many of them belong to commands that are done or on the way.

use super::admission;
use super::local::{self, Local, Session, Setting};
use super::parse::Requests;
use nix::sys::epoll::EpollFlags;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{KeepAlive, TcpKeepIdle};
use obol_smr::Access;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Bytes of commands that wait; more are read when these are done.
const INPUT_MAX: usize = 64 * 1024;
/// Bytes that wait to be sent; no command is taken meanwhile.
const OUTPUT_MAX: usize = 64 * 1024;
/// A client that was silent for this long is asked whether it is there, as by Redis.
const KEEPALIVE_SECS: u32 = 300;
/// Replies to a pipeline are held until it is done, up to this number of bytes.
const HELD_MAX: usize = 16 * 1024;
pub(super) const READ_BYTES: usize = 64 * 1024;
/// Longest request of a client that has not sent the password.
const STRANGER_BYTES_MAX: usize = 4 * 1024;

/// The reply to a long command while too many bytes of others wait.
pub(super) const CROWDED: &[u8] =
    b"-ERR too many long commands and replies wait here; send it again when others are done\r\n";

/// A connection of a client.
pub(super) struct Connection {
    stream: TcpStream,
    pub(super) session: Session,
    since: Instant,
    /// Commands that have no reply yet, behind those that have one.
    input: Vec<u8>,
    /// Up to here commands have their replies.
    answered: usize,
    /// Up to here they are in a batch.
    taken: usize,
    output: Vec<u8>,
    /// Up to here it is sent.
    sent: usize,
    /// The kernel takes no more of it at present.
    is_blocked: bool,
    /// Commands in a batch that has no reply yet.
    pub(super) in_flight: usize,
    /// It waits for its turn to be put into a batch.
    pub(super) is_queued: bool,
    /// The next command needs an entry of the log though it only reads.
    pub(super) promoted: bool,
    /// The next command has to be sent as a long one.
    pub(super) is_long: bool,
    /// It waits for its turn to send a long command.
    pub(super) waits: bool,
    /// What [`Connection::excess`] was when it was counted last.
    pub(super) counted: usize,
    /// It waits for a list of connections: of this one alone, or of all.
    lists: Option<bool>,
    /// It ends when what it waits for is sent.
    closing: bool,
    /// Its client is gone.
    gone: bool,
    /// The period in which it sent something last.
    pub(super) period: u64,
    /// What the kernel was asked to report.
    interest: EpollFlags,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, session: Session) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        setsockopt(&stream, KeepAlive, &true)?;
        setsockopt(&stream, TcpKeepIdle, &KEEPALIVE_SECS)?;
        Ok(Self {
            stream,
            session,
            since: Instant::now(),
            input: Vec::new(),
            answered: 0,
            taken: 0,
            output: Vec::new(),
            sent: 0,
            is_blocked: false,
            in_flight: 0,
            is_queued: false,
            promoted: false,
            is_long: false,
            waits: false,
            counted: 0,
            lists: None,
            closing: false,
            gone: false,
            period: 0,
            interest: EpollFlags::EPOLLIN,
        })
    }

    pub(super) const fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Bytes that wait to be sent.
    const fn unsent(&self) -> usize {
        self.output.len() - self.sent
    }

    /// Whether so much waits to be sent that no command is taken.
    pub(super) const fn is_full(&self) -> bool {
        self.unsent() >= OUTPUT_MAX
    }

    /// Bytes beyond what every connection may have waiting: of long commands, and of long replies.
    pub(super) const fn excess(&self) -> usize {
        self.input.len().saturating_sub(INPUT_MAX) + self.unsent().saturating_sub(OUTPUT_MAX)
    }

    /// Bytes of commands, the last of which may be incomplete, that are in no batch.
    pub(super) const fn untaken(&self) -> usize {
        self.input.len() - self.taken
    }

    fn reads(&self) -> bool {
        let waits = self.in_flight > 0 || self.is_queued || self.waits;
        let has_enough = waits && self.input.len() - self.answered >= INPUT_MAX;
        !self.closing && !self.gone && !has_enough && !self.is_full()
    }

    /// What the kernel is to report from now on, if that has changed.
    pub(super) fn new_interest(&mut self) -> Option<EpollFlags> {
        let mut flags = EpollFlags::empty();
        flags.set(EpollFlags::EPOLLIN, self.reads());
        flags.set(EpollFlags::EPOLLOUT, self.is_blocked);
        (core::mem::replace(&mut self.interest, flags) != flags).then_some(flags)
    }

    /// Reads what has arrived, by a buffer that all connections share.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) {
        if !self.reads() {
            return;
        }
        self.forget_answered();
        match self.stream.read(buffer) {
            Ok(0) => self.gone = true,
            Ok(read) => self.input.extend_from_slice(&buffer[..read]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.gone = true,
        }
    }

    fn forget_answered(&mut self) {
        self.input.drain(..self.answered);
        self.taken -= core::mem::take(&mut self.answered);
        if self.input.capacity() > 4 * READ_BYTES && self.input.len() < READ_BYTES {
            self.input.shrink_to(READ_BYTES);
        }
    }

    /// The next command for the store: its bytes, and what it needs. Commands before it that need no
    /// store are answered, in order: not while others are on the way.
    pub(super) fn next(&mut self, requests: &mut Requests, setting: &Setting<'_>) -> Option<(usize, Access)> {
        loop {
            if self.closing || self.is_full() || self.lists.is_some() || self.session.has_sent_transaction() {
                return None;
            }
            let len = match requests.parse(&self.input[self.taken..]) {
                Ok(Some(len)) => len,
                Ok(None) if self.is_stranger_with(self.untaken()) && !requests.is_spent() => {
                    self.end_with(&local::error("ERR Protocol error: unauthenticated request is too big"));
                    return None;
                }
                Ok(None) => return None,
                Err(_) if self.in_flight > 0 => return None,
                Err(why) => {
                    self.end_with(&local::error(&why));
                    return None;
                }
            };
            let access = self.session.access(self.texts(requests));
            let is_http = admission::is_http(self.texts(requests), requests.is_line());
            if let Some(access) = access.filter(|_| !is_http) {
                if let Some(why) = setting.down {
                    if self.in_flight > 0 {
                        return None;
                    }
                    self.refuse(len, &local::error(why));
                    continue;
                }
                return Some((len, if self.promoted { Access::Write } else { access }));
            }
            if self.in_flight > 0 {
                return None;
            }
            if is_http {
                self.session.event =
                    Some("it has sent a request of HTTP, perhaps from a web page, and was disconnected");
                self.closing = true;
                return None;
            }
            self.answer_locally(requests, setting);
            self.taken += len;
            self.answered = self.taken;
        }
    }

    fn answer_locally(&mut self, requests: &Requests, setting: &Setting<'_>) {
        let args: Vec<&[u8]> = requests.texts(&self.input[self.taken..]).collect();
        match local::answer(&args, &mut self.session, setting) {
            None => {}
            Some(Local::Reply(reply)) => self.output.extend_from_slice(&reply),
            Some(Local::List { own }) => self.lists = Some(own),
            Some(Local::Quit) => {
                self.output.extend_from_slice(b"+OK\r\n");
                self.closing = true;
            }
        }
    }

    /// Whether its client has not sent the password, and sends more than it needs for that.
    const fn is_stranger_with(&self, bytes: usize) -> bool {
        !self.session.is_admitted && bytes > STRANGER_BYTES_MAX
    }

    /// Whether its client has not sent the password for some time.
    pub(super) fn is_stranger_since(&self, now: Instant, time: Duration) -> bool {
        !self.session.is_admitted && now.duration_since(self.since) >= time
    }

    /// What the operator should know of it.
    pub(super) fn take_event(&mut self) -> Option<String> {
        let what = self.session.event.take()?;
        let from = self.stream.peer_addr().map_or_else(|_| "gone".to_owned(), |at| at.to_string());
        Some(format!("client {from}: {what}"))
    }

    /// The arguments of the next command.
    pub(super) fn texts<'a>(
        &'a self,
        requests: &'a Requests,
    ) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        requests.texts(&self.input[self.taken..])
    }

    /// The next command is in a batch.
    pub(super) const fn take(&mut self, len: usize) {
        (self.promoted, self.is_long) = (false, false);
        self.taken += len;
        self.in_flight += 1;
        self.session.send_transaction(true);
    }

    /// The oldest command on the way has its reply.
    pub(super) fn answer(&mut self, len: usize, reply: &[u8]) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.answered += len;
        if self.in_flight == 0 && self.session.has_sent_transaction() {
            self.session.end_transaction();
        }
        local::put_reply(reply, &self.session, &mut self.output);
        if self.answered >= INPUT_MAX {
            self.forget_answered();
        }
    }

    /// The list of connections that it waits for, if any: whether of this one alone.
    pub(super) const fn lists(&self) -> Option<bool> {
        self.lists
    }

    /// As lists show it.
    pub(super) fn shown(&self) -> String {
        let address = self.stream.peer_addr().map_or_else(|_| "gone".to_owned(), |at| at.to_string());
        self.session.shown(&address, self.since.elapsed().as_secs())
    }

    /// It has the list that it waited for.
    pub(super) fn answer_list(&mut self, list: &str) {
        self.lists = None;
        self.output.extend_from_slice(format!("${}\r\n{list}\r\n", list.len()).as_bytes());
    }

    /// Returns the last commands on the way, which were not executed, to the queue: `count` are all that are left.
    pub(super) const fn requeue(&mut self, count: usize) {
        self.in_flight = self.in_flight.saturating_sub(count);
        self.taken = self.answered;
        self.session.send_transaction(false);
    }

    /// The next command is answered without having been in a batch.
    pub(super) fn refuse(&mut self, len: usize, reply: &[u8]) {
        self.session.end_transaction();
        (self.promoted, self.is_long) = (false, false);
        self.taken += len;
        self.answered = self.taken;
        self.output.extend_from_slice(reply);
    }

    /// Ends it after an error, because it is unknown what took effect, or nothing can be done.
    pub(super) fn fail(&mut self, why: &str) {
        self.in_flight = 0;
        if !self.closing {
            self.end_with(&local::error(why));
        }
    }

    fn end_with(&mut self, reply: &[u8]) {
        self.output.extend_from_slice(reply);
        self.closing = true;
    }

    /// Sends replies, those to a pipeline in one piece.
    pub(super) fn send(&mut self) {
        let is_held = (self.in_flight > 0 || self.is_queued) && self.unsent() < HELD_MAX;
        self.is_blocked = false;
        while self.unsent() > 0 && !is_held {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.is_blocked = error.kind() == ErrorKind::WouldBlock;
                    self.gone |= !self.is_blocked;
                    break;
                }
            }
        }
        if self.unsent() == 0 {
            self.output.clear();
            self.sent = 0;
        }
    }

    /// It ends, because too many bytes of it and others wait: not before what is on the way has its reply.
    pub(super) fn crowd_out(&mut self) {
        if self.in_flight == 0 {
            self.end_with(CROWDED);
        }
    }

    /// Its client is gone.
    pub(super) const fn lose(&mut self) {
        self.gone = true;
    }

    /// Whether its client is gone.
    pub(super) const fn is_gone(&self) -> bool {
        self.gone
    }

    /// Whether it has ended. One whose client is gone is kept while a batch has commands of it. Of the last
    /// replies, a client that does not read gets what the kernel takes.
    pub(super) const fn is_over(&self) -> bool {
        let is_sent = self.unsent() == 0 || self.is_blocked;
        self.in_flight == 0 && (self.gone && !self.is_queued || self.closing && is_sent)
    }
}

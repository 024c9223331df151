//! The follower: takes the entries of the newest leader from that leader's ring in its own memory,
//! applies those that are committed, and reports how far it is.

use crate::area::{Area, PLACES};
use crate::config::VOTERS_MAX;
use crate::direct::{self, Pointers};
use crate::entry::{ENTRY_BYTES_MAX, Entry, Expected};
use crate::log::Record;
use crate::mutants::Mutant;
use crate::position::{Index, Offset, Point, Term};
use crate::replicated::Replicated;
use crate::service::Service;
use crate::tokens::{Part, token};
use core::sync::atomic::Ordering;
use obol_fabric::sealed;
use obol_fabric::{Address, Fabric, Incarnation, Instant, Nanos, Remote, memory};

/// Entries that are taken before the next report.
const TAKEN_MAX: u32 = 128;
/// Entries that are applied in one turn: after a snapshot, many more may wait.
const APPLIED_MAX: u32 = 256;
/// Interval of reports in any case, because one may be lost.
const REPORT_EVERY: Nanos = Nanos::from_millis(5);
/// The same until the leader has begun to send.
const REPORT_FIRST: Nanos = Nanos::from_micros(100);

const HEAD_WORDS: usize = 6;
/// Bytes of a head with its checksum.
pub(crate) const HEAD_BYTES: usize = 8 * (HEAD_WORDS + 1);
const HEADER_WORDS: usize = 6;
const REPORT_WORDS: usize = 7;
/// Bits of the word with the term that are before it.
const REPORT_FLAG_BITS: u32 = 3;

/// The head of a ring, written by its writer on the link of its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Head {
    /// The log's identity.
    pub(crate) log: u64,
    pub(crate) term: Term,
    /// All entries up to this one are committed.
    pub(crate) commit: Index,
    /// Entries up to this one may be overwritten: it is written before the first of them is.
    pub(crate) low: Index,
    /// The entries of this ring continue this prefix.
    pub(crate) begin: Point,
}

impl Head {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let Self { log, term, commit, low, begin } = *self;
        sealed::seal([log, term.0, commit.0, low.0, begin.index.0, begin.at.0], out);
    }

    fn of([log, term, commit, low, index, at]: [u64; HEAD_WORDS]) -> Self {
        let begin = Point { index: Index(index), at: Offset(at) };
        Self { log, term: Term(term), commit: Index(commit), low: Index(low), begin }
    }

    /// From bytes that were READ.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        sealed::unseal(bytes).map(Self::of)
    }

    /// The head of a ring in own memory, if its term is at least this one.
    fn own<F: Fabric>(area: Area, place: u8, least: Term, fabric: &F) -> Option<Self> {
        let words = fabric.own(area.head(place), 8 * (HEAD_WORDS + 1))?;
        let is_new = words.get(1)?.load(Ordering::Relaxed) >= least.0.max(1);
        is_new.then(|| sealed::unseal_own(Some(words)).map(Self::of)).flatten()
    }
}

/// What a replica does, as it publishes it in its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, strum::FromRepr, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
#[repr(u8)]
pub enum Activity {
    /// It follows, or has not begun.
    #[default]
    Follows,
    /// It is to lead, and collects what may have been committed: it needs a majority of the voters.
    TakesOver,
    /// It leads, and serves.
    Leads,
    /// It is to lead, and has no log.
    Waits,
    /// It is to lead, or leads, and commits nothing: see [`crate::Replica::is_stalled`].
    Stalls,
}

impl Activity {
    /// From the bytes of [`Area::shared`] of a replica's region; `None` if the header was torn.
    pub fn of(memory: &[u8]) -> Option<Self> {
        Header::decode(memory).map(|header| header.activity)
    }
}

/// What a replica publishes of itself in its own region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Header {
    pub(crate) log: u64,
    pub(crate) applied: Point,
    /// It needs a snapshot.
    pub(crate) gap: bool,
    /// It has no log, and may begin one.
    pub(crate) may_bootstrap: bool,
    /// Sessions in its state, for observers.
    pub(crate) sessions: u64,
    /// What it does, for observers.
    pub(crate) activity: Activity,
    /// The term whose leader may write to it, for observers; 0 if its guard restricts no one.
    pub(crate) granted: Term,
    /// The voters that it takes for failed.
    pub(crate) failed: Places,
    /// How many voters there should be, for observers; 0 before it is known.
    pub(crate) target: u8,
}

/// Some voters, by their places: a bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Places(u8);
const _: () = assert!(PLACES as u32 <= u8::BITS);

impl Places {
    pub(crate) const fn add(&mut self, place: u8) {
        self.0 |= 1 << place;
    }

    pub(crate) const fn has(self, place: u8) -> bool {
        self.0 & 1 << place != 0
    }
}

/// The bits of the word with the sessions that have their count; the activity is above them.
const SESSION_BITS: u32 = 56;
/// Bits of the word with flags that are before the voters that have failed.
const FLAG_BITS: u32 = 8;
/// Bits of that word that are before how many voters there should be.
const FAILED_BITS: u32 = FLAG_BITS + PLACES as u32;
const _: () = assert!(VOTERS_MAX <= u8::MAX as usize);

impl Header {
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let [log, index, at, gap, sessions, granted] = sealed::unseal::<HEADER_WORDS>(bytes)?;
        let applied = Point { index: Index(index), at: Offset(at) };
        let activity = Activity::from_repr((sessions >> SESSION_BITS) as u8).unwrap_or_default();
        let sessions = sessions & ((1 << SESSION_BITS) - 1);
        let failed = Places((gap >> FLAG_BITS) as u8);
        let target = (gap >> FAILED_BITS) as u8;
        let (gap, may_bootstrap) = (gap & 1 != 0, gap & 2 != 0);
        Some(Self {
            log,
            applied,
            gap,
            may_bootstrap,
            sessions,
            activity,
            granted: Term(granted),
            failed,
            target,
        })
    }

    pub(crate) fn publish<F: Fabric>(&self, area: Area, fabric: &F) {
        let mut bytes = Vec::new();
        let Self { log, applied, gap, may_bootstrap, sessions, activity, granted, failed, target } = *self;
        let flags = u64::from(may_bootstrap) << 1 | u64::from(gap);
        let gap = u64::from(target) << FAILED_BITS | u64::from(failed.0) << FLAG_BITS | flags;
        let sessions = sessions | (activity as u64) << SESSION_BITS;
        let words = [log, applied.index.0, applied.at.0, gap, sessions, granted.0];
        sealed::seal(words, &mut bytes);
        if let Some(words) = fabric.own(area.header(), bytes.len()) {
            memory::copy_in(words, &bytes);
        }
    }
}

/// A follower's report to the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Report {
    pub(crate) who: Incarnation,
    /// The leader that it is for.
    pub(crate) to: Incarnation,
    pub(crate) log: u64,
    /// The term that it follows.
    pub(crate) term: Term,
    /// It needs a snapshot.
    pub(crate) gap: bool,
    /// It has no log, and may begin one.
    pub(crate) may_bootstrap: bool,
    /// It is to leave, and waits until it does not vote.
    pub(crate) leaves: bool,
    pub(crate) applied: Index,
    /// The ring may be overwritten up to here.
    pub(crate) freed: Point,
}

impl Report {
    fn encode(&self, out: &mut Vec<u8>) {
        let Self { who, to, log, term, gap, may_bootstrap, leaves, applied, freed } = *self;
        let flags = u64::from(leaves) << 2 | u64::from(may_bootstrap) << 1 | u64::from(gap);
        let term = term.0 << REPORT_FLAG_BITS | flags;
        sealed::seal([who.0, to.0, log, term, applied.0, freed.index.0, freed.at.0], out);
    }

    /// The report of the replica at this place in the view, if it is for this leader.
    pub(crate) fn own<F: Fabric>(area: Area, replica: usize, to: Incarnation, fabric: &F) -> Option<Self> {
        let words = fabric.own(area.report(replica), 8 * (REPORT_WORDS + 1));
        let [who, of, log, term, applied, index, at] = sealed::unseal_own::<REPORT_WORDS>(words)?;
        (of == to.0).then_some(Self {
            who: Incarnation(who),
            to,
            log,
            term: Term(term >> REPORT_FLAG_BITS),
            gap: term & 1 != 0,
            may_bootstrap: term & 2 != 0,
            leaves: term & 4 != 0,
            applied: Index(applied),
            freed: Point { index: Index(index), at: Offset(at) },
        })
    }
}

/// What a follower reports of itself besides its log.
#[derive(Clone, Copy)]
pub(crate) struct OwnReport {
    /// It may begin a log.
    pub(crate) may_bootstrap: bool,
    /// It is about to leave.
    pub(crate) leaves: bool,
}

/// What was reported to the leader last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Reported {
    term: Term,
    gap: bool,
    freed: Point,
}

/// A follower's position.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Follow {
    /// Whose ring it reads.
    place: u8,
    /// The newest head of that ring.
    head: Head,
    /// All entries up to this one are committed.
    commit: Index,
    /// A leader has another log, or one of another service; or some replica has a newer log.
    pub(crate) misfit: bool,
    reported: Option<Reported>,
    report_at: Instant,
    buffer: Vec<u8>,
}

impl Follow {
    /// The term of the leader that it follows.
    pub(crate) const fn term(&self) -> Term {
        self.head.term
    }

    /// Takes and applies entries. Returns whether there may be more.
    pub(crate) fn poll<S: Service, F: Fabric>(
        &mut self,
        area: Area,
        to: &mut Replicated<S>,
        fabric: &F,
    ) -> bool {
        self.poll_heads(area, to, fabric);
        if self.head.term == Term(0) {
            return false;
        }
        let taken = (0..TAKEN_MAX).take_while(|_| self.take(area, to, fabric)).count();
        let is_left = self.apply(to);
        taken == TAKEN_MAX as usize || is_left
    }

    /// Takes and applies entries of a log of DARE: only committed ones, from the own log, which any
    /// leader may have written. Entries after those can still change.
    pub(crate) fn poll_direct<S: Service, F: Fabric>(
        &mut self,
        area: Area,
        to: &mut Replicated<S>,
        fabric: &F,
    ) -> bool {
        for place in 0..PLACES {
            let Some(head) = Head::own(area, place, self.head.term, fabric) else { continue };
            if to.state.fits(head.log) {
                self.head = head;
            } else {
                self.misfit |= !to.state.has_replaced(head.log);
            }
        }
        let Pointers { tail, commit, begin: Some(begin) } = Pointers::own(area, fabric) else { return false };
        if self.head.term == Term(0) {
            return false;
        }
        if begin.index > to.log.end().index {
            to.log.restart(begin);
            (to.gap, to.lags) = (begin.index > to.state.applied.index, false);
        }
        to.gap |= to.state.log == 0;
        let mutant = to.state.mutant;
        let mut taken = 0;
        while taken < TAKEN_MAX && to.log.end().index < commit.min(tail) {
            let end = to.log.end();
            let record = direct::next(area, self.head.log, end, mutant, &mut self.buffer, fabric);
            let Some(record) = record else { break };
            to.log.push(record);
            taken += 1;
        }
        self.commit = commit;
        let is_left = self.apply(to);
        taken == TAKEN_MAX || is_left
    }

    /// Looks for a new leader, and for what the present one announces.
    fn poll_heads<S: Service, F: Fabric>(&mut self, area: Area, to: &mut Replicated<S>, fabric: &F) {
        for place in 0..PLACES {
            let Some(head) = Head::own(area, place, self.head.term, fabric) else { continue };
            if !to.state.fits(head.log) {
                self.misfit |= !to.state.has_replaced(head.log);
                continue;
            }
            if head.term > self.head.term {
                // What is not applied may not be what this leader has, unless it is committed.
                to.drop_uncommitted(self.commit, head.begin.index);
                (self.place, self.commit) = (place, head.commit);
            } else if head == self.head || place != self.place {
                continue;
            }
            self.head = head;
            self.commit = self.commit.max(head.commit);
            if head.begin.index > to.log.end().index {
                to.log.restart(head.begin);
                to.lags = false;
                to.gap = head.begin.index > to.state.applied.index || to.state.log == 0;
            } else if to.state.log == 0 {
                to.gap = true;
            }
        }
    }

    /// Takes the next entry.
    fn take<S: Service, F: Fabric>(&mut self, area: Area, to: &mut Replicated<S>, fabric: &F) -> bool {
        let end = to.log.end();
        let at = area.begin(end.at);
        let Some(place) = fabric.own(area.entry(self.place, at), ENTRY_BYTES_MAX) else { return false };
        let mutant = to.state.mutant;
        let expected = Expected { log: self.head.log, index: end.index.next(), at, mutant };
        let entry = Entry::read(place, &expected, &mut self.buffer);
        let Some(entry) = entry.filter(|entry| entry.term == self.head.term) else { return false };
        self.commit = self.commit.max(entry.commit);
        to.log.push(Record::of(&entry));
        true
    }

    /// Applies what is committed. Returns whether more is.
    fn apply<S: Service>(&mut self, to: &mut Replicated<S>) -> bool {
        let commit =
            if to.state.mutant.has(Mutant::ApplyUncommitted) { to.log.end().index } else { self.commit };
        to.assert_whole();
        let before = to.state.applied.index;
        let mut applied = 0;
        while !to.gap && to.state.applied.index < commit && applied < APPLIED_MAX {
            let Some(record) = to.log.get(to.state.applied.index.next()) else { break };
            to.state.apply(record);
            applied += 1;
        }
        assert!(to.state.applied.index <= commit.max(before), "only what is committed is applied");
        to.log.prune(self.head.low.min(to.state.applied.index));
        to.assert_whole();
        // What is not committed is in the ring, as far as the leader finds that it was not overwritten; and it
        // may take this replica to commit it.
        to.lags &= applied == APPLIED_MAX;
        applied == APPLIED_MAX
    }

    /// Reports to the leader: when it needs the report, and from time to time.
    #[expect(clippy::too_many_arguments, reason = "who reports what to whom")]
    pub(crate) fn report<S: Service, F: Fabric>(
        &mut self,
        now: Instant,
        own: Incarnation,
        replica: usize,
        leader: (Incarnation, Address),
        area: Area,
        replicated: &Replicated<S>,
        own_report: OwnReport,
        fabric: &mut F,
    ) {
        let freed = replicated.freed();
        let is_news = self.reported.is_none_or(|Reported { term, gap, freed: last }| {
            let advanced = freed.at.0.saturating_sub(last.at.0);
            term != self.head.term
                || gap != replicated.is_behind()
                || advanced >= u64::from(area.ring_bytes()) / 4
        });
        if !is_news && now < self.report_at {
            return;
        }
        let is_begun = self.reported.is_some_and(|last| last.term == self.head.term);
        self.report_at = now + if is_begun { REPORT_EVERY } else { REPORT_FIRST };
        let gap = replicated.is_behind();
        self.reported = Some(Reported { term: self.head.term, gap, freed });
        let (term, log, applied) = (self.head.term, replicated.state.log, replicated.state.applied.index);
        let OwnReport { may_bootstrap, leaves } = own_report;
        let report = Report { who: own, to: leader.0, log, term, gap, may_bootstrap, leaves, applied, freed };
        report.encode(&mut self.buffer);
        let to = Remote { at: leader.1, offset: area.report(replica) };
        fabric.write_unsignaled(to, &self.buffer, token(Part::Send, 0));
    }

    /// The leader may need a report.
    pub(crate) const fn report_soon(&mut self) {
        self.report_at = Instant::ZERO;
    }

    /// Another leader, or another place in the view.
    pub(crate) fn report_again(&mut self) {
        self.reported = None;
        self.report_at = Instant::ZERO;
    }
}

//! The watcher's side of death notices: a robust-futex word of the victim's seat gives the
//! suspicion, a pidfd the proof. If the victim is registered with the module deadbeat or with eBPF
//! programs, its kernel reports both earlier ([`crate::host::kernel_notifier`]).
//!
//! The kernel wakes one waiter per word, so each watcher has its own word: coordinator `i` has word
//! `i - 1`, any other process claims one of the rest. A watcher without a word polls word 0.

use crate::contract::{Evidence, LinkError};
use crate::host::futex::{TID_MASK, WAITERS, Waiter, waiter};
use crate::host::mapped::MappedRegions;
use crate::host::notice_listener::{Inbox, WatchedSeat};
use crate::host::numbers::REGIONS;
use crate::host::process::{Life, Process};
use crate::layout::{DEATH_WORDS, PROPOSERS_MAX};
use crate::notice::Notice;
use crate::types::{Address, Instant, Nanos, RegionOwner};
use crate::watches::{Deaths, Watch, Watches};
use core::sync::atomic::{AtomicU32, Ordering};
use obol_deaths::Stage;
use obol_deaths::ebpf;
use obol_deaths::pidfd;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The first interval between checks for the proof after a suspicion.
const PROOF_EVERY_MIN: Nanos = Nanos::from_micros(100);
/// The last interval: a process that released its seat may live on for long.
const PROOF_EVERY_MAX: Nanos = Nanos::from_millis(10);
/// The polling interval of a victim without a word of ours.
const WORDLESS_POLL_INTERVAL: Nanos = Nanos::from_millis(1);
/// The interval at which all victims are checked for changes without a mark of the kernel: a
/// successor, a cut robust list.
const SWEEP_EVERY: Nanos = Nanos::from_millis(100);
/// Bits of a watcher's generation in its claim of a word; the rest is its region.
const CLAIM_GENERATION_BITS: u32 = 22;
const _: () = assert!(REGIONS <= 1 << (u32::BITS - CLAIM_GENERATION_BITS));

/// The seat of a watched process.
struct Target {
    seat: WatchedSeat,
    process: Process,
    pidfd: Option<OwnedFd>,
    /// Our word in its seat.
    word: Option<usize>,
    /// Whether its death need not wake us.
    lazy: bool,
    suspected_at: Instant,
    /// The next check for the proof.
    check_at: Instant,
}

/// All watches of this process on others of its host.
pub(crate) struct SeatWatches {
    me: RegionOwner,
    all: Watches<Target>,
    /// WatchedSeat addresses without a process.
    vacant: Vec<Address>,
    /// Addresses whose process may be starting; checked at each sweep.
    unborn: Vec<(Address, bool)>,
    events: Deaths,
    swept: Instant,
    /// Whether some watch has no word of its own.
    wordless: bool,
    /// Notices of the kernel by datagram.
    inbox: Arc<Inbox>,
    /// The array in which eBPF programs report deaths, if used.
    deaths: Option<Arc<ebpf::Deaths>>,
    /// A reusable buffer for the inbox.
    mail: VecDeque<Notice>,
    /// Accepted and rejected notices since [`SeatWatches::take_counts`].
    counts: (u64, u64),
}

impl Target {
    fn word(&self) -> &AtomicU32 {
        self.seat.region.death_word(self.seat.at.seat, self.word.unwrap_or(0))
    }

    /// Whether the seat has another occupant now.
    fn is_replaced(&self, regions: &MappedRegions) -> bool {
        let Address { region, seat, generation, .. } = self.seat.at;
        self.seat.region.generation(seat) != generation
            || seat == 0 && regions.generation(region) != generation
    }

    /// Whether no thread of the process runs any more.
    fn is_over(&mut self) -> bool {
        if let Some(pidfd) = &self.pidfd {
            return pidfd::ended(pidfd);
        }
        match self.process.life() {
            Life::Dead => true,
            Life::Alive(pidfd) => {
                self.pidfd = Some(pidfd);
                false
            }
            Life::Unknown => false,
        }
    }

    fn claim_word(&mut self, me: RegionOwner, regions: &mut MappedRegions) {
        if me.region as usize <= PROPOSERS_MAX {
            self.word = Some(me.region as usize - 1);
            return;
        }
        let mine = claim_of(me);
        for index in PROPOSERS_MAX..DEATH_WORDS {
            let claim = self.seat.region.death_claim(self.seat.at.seat, index);
            let holder = claim.load(Ordering::Acquire);
            let open = holder == 0 || holder == mine || is_abandoned(holder, regions);
            if open && claim.compare_exchange(holder, mine, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                self.word = Some(index);
                return;
            }
        }
    }

    /// Requests a wake-up from the kernel. `false` if the victim is already dead.
    fn ask(&self) -> bool {
        let word = self.word();
        // Never set on a word without a thread id: the kernel would not recognise it as its own.
        word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |w| (w & TID_MASK != 0).then_some(w | WAITERS))
            .is_ok()
    }

    fn release_word(&self, me: RegionOwner) {
        if let Some(index) = self.word.filter(|&i| i >= PROPOSERS_MAX) {
            let claim = self.seat.region.death_claim(self.seat.at.seat, index);
            let _ = claim.compare_exchange(claim_of(me), 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

const fn claim_of(me: RegionOwner) -> u32 {
    me.region << CLAIM_GENERATION_BITS | me.generation & ((1 << CLAIM_GENERATION_BITS) - 1)
}

/// Whether a word's claimant is gone.
fn is_abandoned(claim: u32, regions: &mut MappedRegions) -> bool {
    let region = claim >> CLAIM_GENERATION_BITS;
    let generation = regions.generation(region);
    claim_of(RegionOwner { region, generation }) != claim
        || regions.is_gone(RegionOwner { region, generation })
}

impl SeatWatches {
    pub(crate) fn new(me: RegionOwner) -> Self {
        Self {
            me,
            all: Watches::default(),
            vacant: Vec::new(),
            unborn: Vec::new(),
            events: Deaths::new(),
            swept: Instant::ZERO,
            wordless: false,
            inbox: Arc::new(Inbox::default()),
            deaths: None,
            mail: VecDeque::new(),
            counts: (0, 0),
        }
    }

    /// The inbox for notices of the kernel.
    pub(crate) fn inbox(&self) -> Arc<Inbox> {
        Arc::clone(&self.inbox)
    }

    /// Sets the array in which eBPF programs report deaths.
    pub(crate) fn set_deaths(&mut self, deaths: Option<&Arc<ebpf::Deaths>>) {
        if self.deaths.as_ref().map(Arc::as_ptr) != deaths.map(Arc::as_ptr) {
            self.deaths = deaths.cloned();
        }
    }

    /// Accepted and rejected notices of the kernel since the last call.
    pub(crate) fn take_counts(&mut self) -> (u64, u64) {
        core::mem::take(&mut self.counts)
    }

    /// Sets the processes for which the listening thread wakes this one.
    fn publish_urgent(&self) {
        let urgent = self.all.unproved().filter(|watch| !watch.proof.lazy);
        self.inbox.set_urgent(urgent.map(|watch| watch.proof.seat.clone()));
    }

    pub(crate) fn watch(&mut self, whom: Address, lazy: bool, regions: &mut MappedRegions, now: Instant) {
        if let Some(watch) = self.all.get_mut(whom) {
            if core::mem::replace(&mut watch.proof.lazy, lazy) != lazy {
                self.publish_urgent();
            }
            return;
        }
        if let Some(unborn) = self.unborn.iter_mut().find(|(address, _)| *address == whom) {
            unborn.1 = lazy;
            return;
        }
        if self.vacant.contains(&whom) {
            return;
        }
        let mut target = match find(whom, regions) {
            Ok(target) => Target { lazy, check_at: now, ..target },
            Err(Vacant::NotYet) => {
                self.unborn.push((whom, lazy));
                return;
            }
            Err(vacant) => {
                let proved = vacant == Vacant::Replaced;
                self.vacant.push(whom);
                self.events.push_back((whom, Evidence::Suspicion));
                if proved {
                    self.events.push_back((whom, Evidence::Proof));
                }
                return;
            }
        };
        if let Life::Alive(pidfd) = target.process.life() {
            target.pidfd = Some(pidfd);
        }
        target.claim_word(self.me, regions);
        if target.word.is_some() {
            target.ask();
        } else {
            self.wordless = true;
        }
        if let Some(watch) = self.all.add(whom, target) {
            // A successor may have started while the pidfd was opened: then it refers to the
            // successor.
            check(watch, true, regions, &mut self.events, now);
        }
        self.publish_urgent();
    }

    pub(crate) fn unwatch(&mut self, whom: Address) {
        let gone = self.all.remove(whom, &mut self.events);
        self.vacant.retain(|address| *address != whom);
        self.unborn.retain(|(address, _)| *address != whom);
        let Some(gone) = gone else { return };
        if !self.all.iter().any(|watch| watch.proof.seat.at == gone.seat.at) {
            gone.release_word(self.me);
        }
        self.wordless = self.all.iter().any(|watch| watch.proof.word.is_none());
        self.publish_urgent();
    }

    /// Checks all victims. Costs one load each, two more where eBPF programs report deaths, and
    /// system calls only after a suspicion.
    pub(crate) fn check(&mut self, regions: &mut MappedRegions, now: Instant) {
        if self.inbox.has_notices() {
            self.read_notices(now);
        }
        let sweep = now.since(self.swept) >= SWEEP_EVERY;
        if sweep {
            self.swept = now;
            self.counts.1 += self.inbox.take_refused();
            for (whom, lazy) in core::mem::take(&mut self.unborn) {
                self.watch(whom, lazy, regions, now);
            }
        }
        if let Some(deaths) = &self.deaths {
            for watch in self.all.iter_mut().filter(|watch| !watch.is_proved()) {
                let is_reported = |stage| watch.proof.seat.is_reported_by(deaths, stage);
                let reported = if is_reported(Stage::Dead) {
                    Stage::Dead
                } else if !watch.has_reported(Evidence::Suspicion) && is_reported(Stage::Dying) {
                    Stage::Dying
                } else {
                    continue;
                };
                self.counts.0 += 1;
                report(watch, reported, &mut self.events, now);
            }
        }
        for watch in self.all.iter_mut() {
            check(watch, sweep, regions, &mut self.events, now);
        }
    }

    fn read_notices(&mut self, now: Instant) {
        let mut mail = core::mem::take(&mut self.mail);
        self.inbox.take(&mut mail);
        for notice in mail.drain(..) {
            for watch in self.all.iter_mut().filter(|watch| watch.proof.seat.at == notice.who) {
                if watch.proof.seat.has_drawn(notice.stage, notice.token) {
                    self.counts.0 += 1;
                    report(watch, notice.stage, &mut self.events, now);
                } else {
                    self.counts.1 += 1;
                }
            }
        }
        self.mail = mail;
    }

    pub(crate) fn next(&mut self) -> Option<(Address, Evidence)> {
        self.events.pop_front()
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.events.is_empty() && !self.inbox.has_notices()
    }

    /// Adds the words to wait on, and returns the maximum wait. `None` if a victim has just died.
    pub(crate) fn waiters(&self, waiters: &mut Vec<Waiter>, max: usize, now: Instant) -> Option<Nanos> {
        let mut span = if self.wordless { WORDLESS_POLL_INTERVAL } else { Nanos::MAX };
        for watch in self.all.unproved().filter(|watch| !watch.proof.lazy) {
            if watch.has_reported(Evidence::Suspicion) {
                span = span.min(watch.proof.check_at.since(now));
                continue;
            }
            if watch.proof.word.is_none() {
                continue;
            }
            let word = watch.proof.word();
            let value = word.load(Ordering::Acquire);
            if value & TID_MASK == 0 {
                return None;
            }
            if waiters.len() < max {
                waiters.push(waiter(word, value));
            } else {
                span = span.min(WORDLESS_POLL_INTERVAL);
            }
        }
        Some(span)
    }
}

impl Drop for SeatWatches {
    fn drop(&mut self) {
        for watch in self.all.iter() {
            watch.proof.release_word(self.me);
        }
    }
}

/// Why there is no process at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Vacant {
    /// The region has not had this owner yet, or is being created: the process may be starting.
    NotYet,
    /// There is none, which proves nothing.
    Empty,
    /// A later process is there, so the intended one is gone.
    Replaced,
}

/// The process at an address, or why there is none.
///
/// A region or seat is given to a successor only after its holder was proved dead, or released it
/// and ended its lease. But after a region got a new file, the programs in the seats of the old one
/// may live on; and a region without a holder, or that cannot be mapped, proves nothing.
fn find(whom: Address, regions: &mut MappedRegions) -> Result<Target, Vacant> {
    const FILE_SHIFT: u32 = 16;
    let newest = regions.generation(whom.region);
    let is_later = |newest: u32| whom.generation != 0 && newest.wrapping_sub(whom.generation) as i32 > 0;
    let (region, newest) = regions.get(whom.region).map_err(|error| match whom.seat {
        0 if is_later(newest) => Vacant::Replaced,
        // Retried: only this process lacks resources.
        _ if error == LinkError::Unmapped => Vacant::NotYet,
        0 if whom.generation != 0 => Vacant::NotYet,
        _ => Vacant::Empty,
    })?;
    if u32::from(whom.seat) >= region.layout().limits().seats {
        return Err(Vacant::Empty);
    }
    let generation = region.generation(whom.seat);
    if whom.generation != 0 && whom.generation != generation || whom.seat == 0 && generation != newest {
        let same_file = whom.generation >> FILE_SHIFT == generation >> FILE_SHIFT;
        return Err(match (is_later(generation), whom.seat) {
            (true, 0) => Vacant::Replaced,
            (true, _) if same_file => Vacant::Replaced,
            (false, 0) => Vacant::NotYet,
            _ => Vacant::Empty,
        });
    }
    let process = region.process(whom.seat);
    let at = Address { seat: whom.seat, generation, ..Address::region(whom.region) };
    let seat = WatchedSeat { region: region.clone(), at };
    let (suspected_at, check_at) = (Instant::ZERO, Instant::ZERO);
    Ok(Target { seat, process, pidfd: None, word: None, lazy: false, suspected_at, check_at })
}

/// Reports a suspicion if there was none. The proof is checked for at `check_at`.
fn suspect(watch: &mut Watch<Target>, events: &mut Deaths, now: Instant, check_at: Instant) {
    if !watch.has_reported(Evidence::Suspicion) {
        (watch.proof.suspected_at, watch.proof.check_at) = (now, check_at);
        watch.report(Evidence::Suspicion, events);
    }
}

/// Handles an accepted notice.
fn report(watch: &mut Watch<Target>, stage: Stage, events: &mut Deaths, now: Instant) {
    // If the notice of the death itself is lost, the pidfd reports it.
    suspect(watch, events, now, now + PROOF_EVERY_MIN);
    if stage == Stage::Dead {
        watch.report(Evidence::Proof, events);
    }
}

fn check(watch: &mut Watch<Target>, sweep: bool, regions: &MappedRegions, events: &mut Deaths, now: Instant) {
    if watch.is_proved() {
        return;
    }
    if !watch.has_reported(Evidence::Suspicion) {
        if watch.proof.word().load(Ordering::Acquire) & TID_MASK == 0 {
            // Reported without a system call; the proof is checked for in the next turn.
            suspect(watch, events, now, now);
        }
        if !sweep {
            return;
        }
    }
    if !sweep && now < watch.proof.check_at {
        return;
    }
    if watch.proof.is_replaced(regions) || watch.proof.is_over() {
        return watch.report(Evidence::Proof, events);
    }
    let pause = Nanos(now.since(watch.proof.suspected_at).0 / 8);
    watch.proof.check_at = now + pause.clamp(PROOF_EVERY_MIN, PROOF_EVERY_MAX);
}

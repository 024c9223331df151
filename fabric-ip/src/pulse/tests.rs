//! The machines under loss, reordering, repetition and restarts: every run is compared with a model
//! that looks at the whole history, and each planted bug has to be found by that comparison.

use super::receiver::Bug;
use super::*;
use obol_fabric::contract::Evidence;
use obol_fabric::types::Instant;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

const TIMING: Timing = Timing { period: Nanos(100), timeout: Nanos(450) };
const PATHS: usize = 2;
/// Schedules in which each planted bug has to show.
const SCHEDULES: usize = 20_000;

const fn death(region: u32, evidence: Evidence) -> Death {
    Death { region, generation: 1, seat: 0, evidence }
}

/// What happens on the network. Copies in flight are chosen by their place, modulo their number.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Time passes, and the sender sends what is due.
    Pass(u64),
    /// The oldest copies in flight arrive, in order.
    Arrive(usize),
    /// A copy arrives before its predecessors.
    Reorder(usize),
    /// A copy arrives, and will once more.
    Repeat(usize),
    /// A copy is lost.
    Lose(usize),
    /// A path loses all from now on, or no longer does.
    Cut(usize),
    /// A process dies.
    Die(u8),
    /// The sender starts again.
    Restart,
    /// The receiver's host is away.
    Away(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1u64..120).prop_map(Step::Pass),
        8 => (1usize..5).prop_map(Step::Arrive),
        3 => any::<usize>().prop_map(Step::Reorder),
        2 => any::<usize>().prop_map(Step::Repeat),
        2 => any::<usize>().prop_map(Step::Lose),
        2 => (0..PATHS).prop_map(Step::Cut),
        1 => (0u8..8).prop_map(Step::Die),
        1 => Just(Step::Restart),
        1 => (1u64..1000).prop_map(Step::Away),
    ];
    vec(step, 1..200)
}

/// A sender, a network, a receiver, and what a reader of the whole history expects.
struct Run {
    now: Instant,
    sender: Sender,
    numbers: Numbers,
    receiver: Receiver,
    alive: u64,
    /// Copies, each with its path.
    flying: Vec<(usize, Frame)>,
    /// Of the present life, and of all paths: numbers that have arrived by each.
    arrived: [Vec<u64>; PATHS],
    /// Pulses in the order of arrival, with whether each was the newest.
    pulses: Vec<(u64, bool, usize)>,
    newest: u64,
    bitmap: u64,
    heard: Option<Instant>,
    excused: bool,
    silent: bool,
    cut: [bool; PATHS],
    lost: [bool; PATHS],
    waiting: Vec<(u64, Instant, Vec<Death>)>,
    known: Vec<Death>,
    found: Vec<Finding>,
}

impl Run {
    fn new(bug: Option<Bug>) -> Self {
        let now = Instant(1000);
        Self {
            now,
            sender: Sender::new(TIMING.period, now),
            numbers: Numbers::default(),
            receiver: Receiver::new(TIMING, PATHS).with(bug),
            alive: 0xff,
            flying: Vec::new(),
            arrived: [Vec::new(), Vec::new()],
            pulses: Vec::new(),
            newest: 0,
            bitmap: 0,
            heard: None,
            excused: false,
            silent: false,
            cut: [false; PATHS],
            lost: [false; PATHS],
            waiting: Vec::new(),
            known: Vec::new(),
            found: Vec::new(),
        }
    }

    fn send(&mut self, frame: &Frame) {
        let open = (0..PATHS).filter(|path| !self.cut[*path]);
        self.flying.extend(open.map(|path| (path, frame.clone())));
    }

    fn step(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Pass(span) => self.pass(span),
            Step::Arrive(count) => (0..count).try_for_each(|_| self.arrive(0, false)),
            Step::Reorder(at) => self.arrive(at, false),
            Step::Repeat(at) => self.arrive(at, true),
            Step::Lose(at) => {
                if !self.flying.is_empty() {
                    self.flying.remove(at % self.flying.len());
                }
                Ok(())
            }
            Step::Cut(path) => {
                self.cut[path] = !self.cut[path];
                Ok(())
            }
            Step::Die(bit) => {
                self.alive &= !(1 << bit);
                self.numbers.set_alive(self.alive);
                let deaths = [death(u32::from(bit), Evidence::Proof)];
                for frame in self.numbers.notices(&deaths, self.now) {
                    self.send(&frame);
                }
                self.sender.repeat(deaths);
                Ok(())
            }
            Step::Restart => {
                self.alive = 0xff;
                (self.sender, self.numbers) = (Sender::new(TIMING.period, self.now), Numbers::default());
                // Its keys are new: what it has sent before is not authentic any more.
                self.receiver.begin_life();
                self.flying.clear();
                self.arrived = [Vec::new(), Vec::new()];
                self.pulses.clear();
                (self.newest, self.bitmap) = (0, 0);
                self.waiting.clear();
                self.known.clear();
                Ok(())
            }
            Step::Away(span) => {
                self.now += Nanos(span);
                let counts = self.receiver.away(Nanos(span));
                if !self.silent && !core::mem::replace(&mut self.excused, true) {
                    self.heard = self.heard.map(|heard| heard + Nanos(span));
                    if !counts {
                        return Err("the absence was not left out".to_owned());
                    }
                }
                self.pass(1)
            }
        }
    }

    /// Time passes from one deadline to the next, as a thread would sleep.
    fn pass(&mut self, span: u64) -> Result<(), String> {
        let end = self.now + Nanos(span);
        while self.now < end {
            let due = self.sender.due().min(self.receiver.due()).min(end).max(self.now + Nanos(1));
            self.now = due;
            self.numbers.set_alive(self.alive);
            if let Some(frame) = self.sender.tick(&self.numbers, self.now) {
                self.send(&frame);
                self.numbers.sent(&frame);
            }
            self.receiver.tick(self.now, &mut self.found);
            let mut expected = self.released();
            if !self.silent && self.heard.is_some_and(|heard| self.now >= heard + TIMING.timeout) {
                self.silent = true;
                expected.push(Finding::Silent);
            }
            self.compare(&expected)?;
        }
        Ok(())
    }

    fn arrive(&mut self, at: usize, again: bool) -> Result<(), String> {
        if self.flying.is_empty() {
            return Ok(());
        }
        let at = at % self.flying.len();
        let (path, frame) = if again { self.flying[at].clone() } else { self.flying.remove(at) };
        let is_first = self.receiver.receive(path, &frame, self.now, &mut self.found);
        let mut expected = Vec::new();
        let mut is_newest = false;
        if !self.arrived[path].contains(&frame.sequence) {
            self.arrived[path].push(frame.sequence);
            match frame.kind {
                FrameKind::Pulse => is_newest = self.expect_pulse(path, &frame, &mut expected),
                FrameKind::Notice { after } => {
                    self.waiting.push((after, self.now + TIMING.timeout, frame.deaths));
                    if after <= self.newest {
                        expected = self.released();
                    }
                }
            }
        }
        if is_first != is_newest {
            return Err(format!("frame {} newest: {is_first}", frame.sequence));
        }
        self.compare(&expected)
    }

    fn expect_pulse(&mut self, path: usize, frame: &Frame, expected: &mut Vec<Finding>) -> bool {
        let is_newest = self.pulses.iter().all(|(earlier, ..)| *earlier < frame.sequence);
        self.pulses.push((frame.sequence, is_newest, path));
        if is_newest {
            let vanished = self.bitmap & !frame.alive;
            if vanished != 0 {
                expected.push(Finding::Vanished(vanished));
            }
            (self.newest, self.bitmap) = (frame.sequence, frame.alive);
            if self.silent || self.heard.is_none() {
                expected.push(Finding::Heard);
            }
            (self.silent, self.excused, self.heard) = (false, false, Some(self.now));
        }
        let other = 1 - path;
        let since = self.pulses.iter().rev().take_while(|(.., by)| *by != other);
        if since.filter(|(_, newest, _)| *newest).count() as u64 >= PATH_BEHIND
            && !self.lost[other]
            && is_newest
        {
            self.lost[other] = true;
            expected.push(Finding::PathLost(other));
        }
        if self.lost[path] && self.in_order(path) {
            self.lost[path] = false;
            expected.push(Finding::PathBack(path));
        }
        for death in &frame.deaths {
            self.know(*death, expected);
        }
        expected.extend(self.released());
        is_newest
    }

    /// Whether the last pulses of a path were without a gap, and it has missed few meanwhile.
    fn in_order(&self, path: usize) -> bool {
        let mut highest = 0;
        let (mut run, mut missed) = (0, 0);
        for (number, newest, by) in &self.pulses {
            if *by != path {
                missed += u64::from(*newest);
                if missed >= PATH_BEHIND {
                    run = 0;
                }
                continue;
            }
            missed = 0;
            if *number > highest {
                run = if *number == highest + 1 { run + 1 } else { 0 };
                highest = *number;
            }
        }
        run >= PATH_BACK_AFTER && self.pulses.last().is_some_and(|(number, ..)| *number == highest)
    }

    fn know(&mut self, of: Death, expected: &mut Vec<Finding>) {
        for each in [Death { evidence: Evidence::Suspicion, ..of }, of] {
            if !self.known.contains(&each) {
                self.known.push(each);
                expected.push(Finding::Died(each));
            }
        }
    }

    /// Notices whose pulse has arrived, or has not come in time.
    fn released(&mut self) -> Vec<Finding> {
        let mut expected = Vec::new();
        for (after, until, deaths) in core::mem::take(&mut self.waiting) {
            if after <= self.newest || self.now >= until {
                deaths.iter().for_each(|death| self.know(*death, &mut expected));
            } else {
                self.waiting.push((after, until, deaths));
            }
        }
        expected
    }

    fn compare(&mut self, expected: &[Finding]) -> Result<(), String> {
        let found = core::mem::take(&mut self.found);
        if found == expected {
            return Ok(());
        }
        Err(format!("at {:?}: found {found:?}, expected {expected:?}", self.now))
    }
}

fn check(steps: &[Step], bug: Option<Bug>) -> Result<(), String> {
    let mut run = Run::new(bug);
    steps.iter().try_for_each(|step| run.step(*step))
}

proptest! {
    #[test]
    fn every_history_is_judged_as_by_a_reader_of_the_whole_of_it(steps in steps()) {
        check(&steps, None).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn arbitrary_bytes_are_no_frame_or_one_that_encodes_to_the_same(bytes in vec(any::<u8>(), 0..PLAIN_BYTES_MAX + 8)) {
        if let Some(frame) = Frame::decode(&bytes) {
            let mut again = Vec::new();
            frame.encode(&mut again);
            prop_assert_eq!(again, bytes);
        }
    }
}

#[test]
fn each_planted_bug_is_found() {
    for bug in [
        Bug::LateCounts,
        Bug::TakesTwice,
        Bug::Polls,
        Bug::Overtakes,
        Bug::KeepsLife,
        Bug::OldBitmap,
        Bug::PathAlone,
        Bug::OnePath,
        Bug::AbsenceCounts,
        Bug::AbsenceExcuses,
    ] {
        let mut runner = TestRunner::deterministic();
        let found = (0..SCHEDULES).any(|_| {
            let steps = steps().new_tree(&mut runner).expect("generated").current();
            check(&steps, Some(bug)).is_err()
        });
        assert!(found, "{bug:?} is not found");
    }
}

/// A sender whose pulses are sent when they are made.
struct Host {
    sender: Sender,
    numbers: Numbers,
}

impl Host {
    fn new() -> Self {
        Self { sender: Sender::new(TIMING.period, Instant(0)), numbers: Numbers::default() }
    }

    fn due(&self) -> Instant {
        self.sender.due()
    }

    fn tick(&mut self, now: Instant) -> Option<Frame> {
        let frame = self.sender.tick(&self.numbers, now);
        frame.iter().for_each(|frame| self.numbers.sent(frame));
        frame
    }

    fn notify(&mut self, deaths: &[Death], now: Instant) -> Vec<Frame> {
        self.sender.repeat(deaths.iter().copied());
        self.numbers.notices(deaths, now)
    }
}

/// A receiver that has heard the first pulse of a sender at time 0.
fn heard(paths: usize) -> (Host, Receiver, Vec<Finding>) {
    let (mut sender, mut receiver) = (Host::new(), Receiver::new(TIMING, paths));
    let mut found = Vec::new();
    sender.numbers.set_alive(7);
    let first = sender.tick(Instant(0)).expect("due");
    for path in 0..paths {
        receiver.receive(path, &first, Instant(0), &mut found);
    }
    assert_eq!(found, [Finding::Heard]);
    found.clear();
    (sender, receiver, found)
}

#[test]
fn a_frame_survives_encoding() {
    let deaths = (0..DEATHS_MAX as u32).map(|region| death(region, Evidence::Proof)).collect();
    let frame =
        Frame { sequence: 9, sent: Instant(5), alive: 3, kind: FrameKind::Notice { after: 8 }, deaths };
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    assert_eq!(bytes.len(), PLAIN_BYTES_MAX);
    assert_eq!(Frame::decode(&bytes), Some(frame));
    for wrong in [&bytes[..bytes.len() - 1], &[]] {
        assert_eq!(Frame::decode(wrong), None);
    }
}

#[test]
fn a_host_is_suspected_exactly_one_timeout_after_its_last_new_pulse() {
    let (_, mut receiver, mut found) = heard(1);
    receiver.tick(Instant(TIMING.timeout.0 - 1), &mut found);
    assert_eq!((&found[..], receiver.due()), (&[][..], Instant(TIMING.timeout.0)));
    receiver.tick(Instant(TIMING.timeout.0), &mut found);
    receiver.tick(Instant(TIMING.timeout.0 + 1), &mut found);
    assert_eq!(found, [Finding::Silent]);
    assert!(receiver.is_silent() && receiver.due() == Instant::NEVER);
}

/// Two hosts that are stopped together, as guests of one hypervisor are.
#[test]
fn hosts_that_were_away_together_do_not_suspect_each_other_and_one_that_dies_then_is_suspected() {
    let (mut sender, mut receiver, mut found) = heard(1);
    let away = Nanos(20 * TIMING.timeout.0);
    let at = Instant(0) + away;
    assert!(receiver.away(away));
    receiver.tick(at, &mut found);
    assert_eq!((&found[..], receiver.due()), (&[][..], at + TIMING.timeout));
    let mut died = receiver.clone();
    let frame = sender.tick(at).expect("due");
    receiver.receive(0, &frame, at, &mut found);
    assert_eq!((&found[..], receiver.due()), (&[][..], at + TIMING.timeout));
    assert!(receiver.away(away), "a pulse has arrived since");
    // Away again and again, and no pulse meanwhile.
    assert!(!died.away(away));
    died.tick(at + away, &mut found);
    assert_eq!(found, [Finding::Silent]);
    assert!(!died.away(away), "it is suspected");
}

/// Hosts that take turns in which nothing is sent or received.
struct Idle {
    host: Host,
    presence: Presence,
    now: Instant,
    absences: Vec<Nanos>,
}

impl Turn for Idle {
    type Error = core::convert::Infallible;

    fn now(&self) -> Instant {
        self.now
    }

    fn sender(&mut self) -> (&mut Sender, &Numbers) {
        (&mut self.host.sender, &self.host.numbers)
    }

    fn send(&mut self, _: &Frame) {}

    fn presence(&mut self) -> &mut Presence {
        &mut self.presence
    }

    fn away(&mut self, absence: Nanos) {
        self.absences.push(absence);
    }

    fn receive(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    fn judge(&mut self, _: Instant) -> Result<(), Self::Error> {
        Ok(())
    }
}

#[test]
fn a_host_was_away_when_it_has_missed_more_turns_than_the_limit() {
    let (host, presence) = (Host::new(), Presence::new(TIMING));
    let mut idle = Idle { host, presence, now: Instant(50_000), absences: Vec::new() };
    let away = TIMING.away();
    assert_eq!(away, Nanos(4 * TIMING.period.0));
    let long = Nanos(away.0 + 1);
    for step in [Nanos(0), away, long, away, Nanos(1_000_000)] {
        idle.now += step;
        let Ok(()) = idle.turn();
    }
    assert_eq!(idle.absences, [long, Nanos(1_000_000)], "the first turn is after no absence");
    let slow = Timing { period: PERIOD_MAX, timeout: Nanos::from_secs(4) };
    assert_eq!(slow.away(), TURN_EVERY.saturating_mul(4));
}

#[test]
fn one_path_of_two_is_lost_within_three_periods_and_no_host_is_suspected() {
    let (mut sender, mut receiver, mut found) = heard(2);
    let mut at = Instant(0);
    while found.is_empty() {
        at = sender.due();
        let frame = sender.tick(at).expect("due");
        receiver.receive(0, &frame, at, &mut found);
        receiver.tick(at, &mut found);
    }
    assert_eq!(found, [Finding::PathLost(1)]);
    assert!(at.0 <= 3 * TIMING.period.0, "{at:?}");
    assert_eq!(receiver.paths().collect::<Vec<_>>(), [PathState::Up, PathState::Lost]);
    found.clear();
    for _ in 0..=PATH_BACK_AFTER {
        at = sender.due();
        let frame = sender.tick(at).expect("due");
        receiver.receive(0, &frame, at, &mut found);
        receiver.receive(1, &frame, at, &mut found);
    }
    assert_eq!(found, [Finding::PathBack(1)]);
}

#[test]
fn a_silent_host_that_is_heard_again_by_one_path_first_has_not_lost_the_other() {
    let (mut sender, mut receiver, mut found) = heard(2);
    let at = Instant(50 * TIMING.period.0);
    receiver.tick(at, &mut found);
    for _ in 0..20 {
        sender.tick(at).into_iter().for_each(drop);
    }
    let frame = sender.notify(&[], at);
    assert!(frame.is_empty());
    let frame = sender.tick(sender.due()).expect("due");
    receiver.receive(1, &frame, at, &mut found);
    receiver.receive(0, &frame, at, &mut found);
    assert_eq!(found, [Finding::Silent, Finding::Heard]);
}

#[test]
fn a_notice_that_overtakes_its_pulse_is_held_until_that_arrives_or_the_timeout_has_passed() {
    let (mut sender, mut receiver, mut found) = heard(2);
    let at = sender.due();
    let pulse = sender.tick(at).expect("due");
    let notice = sender.notify(&[death(3, Evidence::Suspicion)], at).remove(0);
    assert_eq!(notice.kind, FrameKind::Notice { after: pulse.sequence });
    let mut other = receiver.clone();
    receiver.receive(0, &notice, at, &mut found);
    assert_eq!(found, []);
    receiver.receive(1, &pulse, at, &mut found);
    assert_eq!(found, [Finding::Died(death(3, Evidence::Suspicion))]);
    found.clear();
    other.receive(0, &notice, at, &mut found);
    other.tick(at + TIMING.timeout, &mut found);
    assert!(found.contains(&Finding::Died(death(3, Evidence::Suspicion))), "{found:?}");
}

#[test]
fn a_notice_does_not_name_a_pulse_that_is_still_being_sent() {
    let (mut sender, mut receiver, mut found) = heard(1);
    let at = sender.due();
    let pulse = sender.sender.tick(&sender.numbers, at).expect("due");
    let notice = sender.notify(&[death(3, Evidence::Suspicion)], at).remove(0);
    assert!(notice.sequence > pulse.sequence && notice.kind == FrameKind::Notice { after: 1 });
    receiver.receive(0, &notice, at, &mut found);
    assert_eq!(found, [Finding::Died(death(3, Evidence::Suspicion))]);
    sender.numbers.sent(&pulse);
    let notice = sender.notify(&[death(4, Evidence::Suspicion)], at).remove(0);
    assert_eq!(notice.kind, FrameKind::Notice { after: pulse.sequence });
}

#[test]
fn two_threads_never_use_a_number_twice_and_a_notice_is_after_its_pulse() {
    let numbers = Numbers::default();
    let pulses = || {
        let mut sender = Sender::new(Nanos(1), Instant(0));
        let sent = (0..20_000u64).filter_map(|at| {
            let frame = sender.tick(&numbers, Instant(at))?;
            numbers.sent(&frame);
            Some(frame.sequence)
        });
        sent.collect::<Vec<_>>()
    };
    let notices = || {
        let one = |_| numbers.notices(&[death(1, Evidence::Proof)], Instant(0));
        (0..20_000).flat_map(one).collect::<Vec<_>>()
    };
    let (pulses, notices) = std::thread::scope(|scope| {
        let (pulses, notices) = (scope.spawn(pulses), scope.spawn(notices));
        (pulses.join().expect("no panic"), notices.join().expect("no panic"))
    });
    let is_after =
        |frame: &Frame| matches!(frame.kind, FrameKind::Notice { after } if after < frame.sequence);
    assert!(notices.iter().all(is_after));
    let mut all: Vec<_> = notices.iter().map(|frame| frame.sequence).chain(pulses).collect();
    all.sort_unstable();
    assert_eq!(all, (1..=40_000).collect::<Vec<_>>());
}

#[test]
fn a_death_whose_notices_are_all_lost_is_in_the_next_pulses() {
    let (mut sender, mut receiver, mut found) = heard(1);
    let many: Vec<_> = (0..40).map(|region| death(region, Evidence::Suspicion)).collect();
    assert_eq!(sender.notify(&many, Instant(1)).len(), many.len().div_ceil(DEATHS_MAX));
    // Three pulses carry all of them; one more is lost.
    for n in 0..5 {
        let at = sender.due();
        let frame = sender.tick(at).expect("due");
        if n != 1 {
            receiver.receive(0, &frame, at, &mut found);
        }
    }
    found.sort_by_key(|finding| match finding {
        Finding::Died(death) => death.region,
        _ => u32::MAX,
    });
    assert_eq!(found, many.iter().map(|death| Finding::Died(*death)).collect::<Vec<_>>());
    // Repeated often enough, and then no more.
    let left = (0..1000).filter(|_| {
        let at = sender.due();
        sender.tick(at).is_some_and(|frame| !frame.deaths.is_empty())
    });
    let all = DEATH_REPEATS as usize * many.len();
    assert_eq!(left.count() + 5, all.div_ceil(DEATHS_MAX));
}

#[test]
fn a_sender_that_was_away_keeps_its_beat_and_does_not_make_up_for_what_it_missed() {
    let mut sender = Host::new();
    assert_eq!(sender.tick(Instant(0)).expect("due").sequence, 1);
    assert_eq!(sender.tick(Instant(1050)).expect("due").sequence, 2);
    assert_eq!((sender.due(), sender.tick(Instant(1099))), (Instant(1100), None));
}

#[test]
fn a_number_is_never_used_twice() {
    let mut sender = Host { numbers: Numbers::at(u64::MAX - 1), ..Host::new() };
    assert_eq!(sender.tick(Instant(0)).map(|frame| frame.sequence), Some(u64::MAX));
    assert_eq!(sender.tick(Instant(200)), None);
    assert_eq!(sender.notify(&[death(1, Evidence::Proof)], Instant(200)), []);
}

#[test]
fn the_highest_numbers_are_received_and_older_than_the_window_is_refused() {
    let (mut receiver, mut found) = (Receiver::new(TIMING, 1), Vec::new());
    let frame =
        |sequence| Frame { sequence, sent: Instant(0), alive: 0, kind: FrameKind::Pulse, deaths: Vec::new() };
    assert!(receiver.receive(0, &frame(u64::MAX - 64), Instant(0), &mut found));
    assert!(receiver.receive(0, &frame(u64::MAX), Instant(0), &mut found));
    for old in [u64::MAX, u64::MAX - 64, u64::MAX - 65, 1] {
        let before = receiver.clone();
        assert!(!receiver.receive(0, &frame(old), Instant(0), &mut found));
        assert_eq!(receiver, before, "{old}");
    }
}

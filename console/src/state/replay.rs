//! Replays a recording on the screens of the live console, up to a moment that the user moves.
//!
//! The samples stay in their file ([`Tape`]). In memory are the data as of the shown sample, and as of a few others
//! ([`Checkpoints`]) from which a move back begins. A long way is made in pieces, one for each turn of the console.

use crate::state::{Frozen, Model, Step};
use obol_fabric::{Instant, Nanos};
use obol_observe::sampling::data::Data;
use obol_observe::sampling::record::RecordingError;
use obol_observe::sampling::sample::Sample;
use obol_observe::sampling::tape::Tape;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The lowest and the highest speed, as powers of two.
const SPEEDS: (i8, i8) = (-4, 8);
/// Bytes of a recording that are decoded at a time: about a tenth of a second.
const MOVE_BYTES: u64 = 16 << 20;

/// Samples between checkpoints of a recording that has room for them.
const EVERY_LEAST: usize = 256;
/// Checkpoints over the whole recording at most: when there are more, every second one is dropped.
const CHECKPOINTS_MAX: usize = 32;
/// Samples between the checkpoints around the shown sample, so that steps back are fast, and how many of each kind
/// there are on either side.
const NEAR: [usize; 2] = [16, 256];
const NEAR_MAX: usize = 8;

/// The data as of some samples, by the number of samples before and with them.
#[derive(Clone, Debug)]
struct Checkpoints {
    /// Samples between those that are kept over the whole recording.
    every: usize,
    kept: BTreeMap<usize, Data>,
}

impl Checkpoints {
    const fn new() -> Self {
        Self { every: EVERY_LEAST, kept: BTreeMap::new() }
    }

    /// Whether one is kept while the user is at `around`.
    fn keeps(&self, passed: usize, around: usize) -> bool {
        let is_near =
            |every: usize| passed.is_multiple_of(every) && passed.abs_diff(around) <= every * NEAR_MAX;
        passed.is_multiple_of(self.every) || NEAR.into_iter().any(is_near)
    }

    /// Keeps the data if it is worth it for a user who is on the way to `around`.
    fn offer(&mut self, passed: usize, data: &Data, around: usize) {
        if !self.keeps(passed, around) || self.kept.contains_key(&passed) {
            return;
        }
        self.kept.insert(passed, data.clone());
        while self.kept.keys().filter(|passed| passed.is_multiple_of(self.every)).count() > CHECKPOINTS_MAX {
            self.every *= 2;
            self.thin_out(around);
        }
    }

    /// Drops what is not worth it for a user who is at `around`.
    fn thin_out(&mut self, around: usize) {
        let kept = std::mem::take(&mut self.kept);
        self.kept = kept.into_iter().filter(|(passed, _)| self.keeps(*passed, around)).collect();
    }

    /// The newest one up to there.
    fn up_to(&self, passed: usize) -> Option<(usize, &Data)> {
        self.kept.range(..=passed).next_back().map(|(passed, data)| (*passed, data))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Replay {
    /// The speed as a power of two: 0 is real time.
    pub(crate) speed: i8,
    /// While playing: when it started, and the time of the sample shown then.
    began: Option<(Instant, Instant)>,
    tape: Tape,
    checkpoints: Checkpoints,
    /// Samples up to the shown one, and with it.
    passed: usize,
    /// The same of the one where the user wants to be.
    wanted: usize,
}

impl Replay {
    fn new(tape: Tape) -> Self {
        Self { speed: 0, began: None, tape, checkpoints: Checkpoints::new(), passed: 0, wanted: 0 }
    }

    pub(crate) const fn plays(&self) -> bool {
        self.began.is_some()
    }

    /// The speed in words.
    pub(crate) fn name(&self) -> String {
        let power = 1u32 << self.speed.unsigned_abs();
        if self.speed < 0 { format!("1/{power}x") } else { format!("{power}x") }
    }

    /// Whether it is on the way to where the user wants to be.
    pub(crate) const fn moves(&self) -> bool {
        self.passed != self.wanted
    }

    /// Whether there is work that does not wait for the user.
    pub(crate) const fn is_busy(&self) -> bool {
        self.moves() || !self.tape.is_scanned()
    }

    /// The time from the first sample to the newest one that was found, and whether that is the last.
    pub(crate) fn span(&self) -> (Nanos, bool) {
        let last = self.tape.found().checked_sub(1).and_then(|last| self.tape.at(last));
        let span = last.zip(self.first()).map_or(Nanos::ZERO, |(last, first)| last.since(first));
        (span, self.tape.is_scanned())
    }

    /// The time of the first sample.
    pub(crate) fn first(&self) -> Option<Instant> {
        self.tape.at(0)
    }

    /// The time of the first sample that was found from a moment on.
    pub(crate) fn first_from(&self, moment: Instant) -> Option<Instant> {
        self.tape.at(self.tape.found_until(Instant(moment.0.saturating_sub(1))))
    }

    /// The time of the sample where the user wants to be.
    fn moment(&self) -> Option<Instant> {
        self.tape.at(self.wanted.checked_sub(1)?)
    }

    /// Says that there is no later sample, and what is missing after it.
    pub(crate) fn end(&self) -> String {
        let gap = self.tape.gap().map_or(String::new(), |gap| format!("; {gap}"));
        format!("the recording ends here{gap}")
    }

    /// All samples up to the shown one.
    pub(crate) fn shown(&self) -> impl Iterator<Item = Result<Sample, RecordingError>> + '_ {
        self.tape.samples(0..self.passed)
    }

    /// The number of samples up to the one at which this step ends; `None` if there is none.
    fn after_step(&mut self, step: Step) -> Option<usize> {
        let at = self.wanted.checked_sub(1)?;
        let to = match step {
            Step::Back => at.checked_sub(1),
            Step::Forward => self.tape.has(at + 1).then_some(at + 1),
            Step::ChangeBack => self.tape.change_before(at),
            Step::ChangeForward => self.tape.change_after(at),
        };
        to.map(|to| to + 1)
    }

    /// Goes a piece of the way to the wanted sample, from this data of the shown one. Returns the new data.
    fn go(&mut self, shown: Option<Data>) -> (Data, Option<RecordingError>) {
        let shown = shown.filter(|_| self.passed <= self.wanted);
        let near = self.checkpoints.up_to(self.wanted);
        let near = near.filter(|(passed, _)| shown.is_none() || *passed > self.passed);
        let (begin, mut data) = match (near, shown) {
            (Some((passed, data)), _) => (passed, data.clone()),
            (None, Some(data)) => (self.passed, data),
            (None, None) => (0, Data::default()),
        };
        self.passed = begin;
        let mut failed = None;
        for sample in self.tape.samples(begin..self.wanted) {
            match sample {
                Ok(sample) => data.take(Arc::new(sample)),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
            self.passed += 1;
            self.checkpoints.offer(self.passed, &data, self.wanted);
            if self.tape.bytes(begin..self.passed) >= MOVE_BYTES {
                break;
            }
        }
        self.checkpoints.thin_out(self.wanted);
        if let Some(error) = &failed {
            self.tape.end_at(self.passed, error);
            self.wanted = self.passed;
        }
        (data, failed)
    }
}

impl Model {
    /// Shows a recording from its first sample on. A recording without samples is shown as such.
    pub(crate) fn replay(&mut self, tape: Tape) {
        self.note = tape.gap().map(str::to_owned).or(self.note.take());
        let first = tape.found().min(1);
        self.replay = Some(Replay::new(tape));
        self.move_to(first);
    }

    /// Shows the samples up to this number of them.
    fn move_to(&mut self, wanted: usize) {
        if let Some(replay) = &mut self.replay {
            replay.wanted = wanted;
            self.go_on();
        }
    }

    /// Goes a piece of the way to the wanted sample. Returns whether the shown one has changed.
    fn go_on(&mut self) -> bool {
        let Some(replay) = self.replay.as_mut().filter(|replay| replay.moves()) else { return false };
        let shown = self.frozen.take().map(|frozen| frozen.data);
        let (data, failed) = replay.go(shown);
        if let Some(sample) = &data.sample {
            self.frozen = Some(Frozen { at: sample.at, data, before: None });
        }
        if let Some(error) = failed {
            self.note = Some(error.to_string());
            self.stop();
        }
        true
    }

    /// Moves by a step. Returns whether there was one to move to.
    pub(crate) fn step_replay(&mut self, step: Step) -> bool {
        self.stop();
        let to = self.replay.as_mut().and_then(|replay| replay.after_step(step));
        to.inspect(|to| self.move_to(*to)).is_some()
    }

    /// Moves to the newest sample up to a moment, or to the first. Returns whether it is another.
    pub(crate) fn seek_replay(&mut self, target: Instant) -> bool {
        self.stop();
        let Some(replay) = &mut self.replay else { return false };
        let (before, to) = (replay.wanted, replay.tape.until(target).max(replay.tape.found().min(1)));
        self.move_to(to);
        to != before
    }

    /// Does what does not wait for the user: searches the recording, moves, plays. Returns whether the screen
    /// changed.
    pub(crate) fn advance(&mut self) -> bool {
        let Some(replay) = &mut self.replay else { return false };
        if replay.moves() {
            return self.go_on();
        }
        let searches = !replay.tape.is_scanned();
        if searches {
            replay.tape.scan();
            self.note = self.note.take().or(replay.tape.gap().map(str::to_owned));
        }
        self.play() || searches
    }

    /// Plays or stops.
    pub(crate) fn play_or_stop(&mut self) -> bool {
        let now = self.now;
        let Some(replay) = &mut self.replay else { return false };
        replay.began = match replay.began {
            Some(_) => None,
            None => replay.moment().map(|at| (now, at)),
        };
        true
    }

    /// Stops playing, because the user has moved to a moment.
    pub(crate) fn stop(&mut self) {
        if let Some(replay) = &mut self.replay {
            replay.began = None;
        }
    }

    /// Plays faster or slower.
    pub(crate) fn speed(&mut self, by: i8) -> bool {
        let now = self.now;
        let Some(replay) = &mut self.replay else { return false };
        let before = replay.speed;
        replay.speed = (before + by).clamp(SPEEDS.0, SPEEDS.1);
        replay.began = replay.began.and(replay.moment().map(|at| (now, at)));
        before != replay.speed
    }

    /// Advances to the current moment. Returns whether the screen changed.
    fn play(&mut self) -> bool {
        let now = self.now;
        let Some(replay) = &mut self.replay else { return false };
        let Some((began, from)) = replay.began else { return false };
        let real = now.since(began).0;
        let speed = replay.speed;
        let played = if speed < 0 { real >> speed.unsigned_abs() } else { real.saturating_mul(1 << speed) };
        let due = replay.tape.until(from + Nanos(played));
        let is_later = due > replay.wanted;
        if due == replay.tape.found() {
            self.note = Some(replay.end());
            self.stop();
        }
        if is_later {
            self.move_to(due);
        }
        is_later || self.note.is_some()
    }
}

#[cfg(test)]
impl Replay {
    /// Whether the newest sample is shown.
    pub(crate) fn is_at_end(&self) -> bool {
        self.tape.is_scanned() && self.passed == self.tape.found()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use crate::state::Event;
    use crate::view::tests::{broken, console, press};
    use crate::view::text;
    use obol_observe::sampling::sample::MarkRow;

    /// A recording of what a console has shown.
    fn recorded(model: &Model) -> Tape {
        let samples: Vec<Sample> = model.store.iter().map(|sample| (*sample).clone()).collect();
        samples::tape(&samples)
    }

    /// A screen without the parts in which a replay differs from a live console.
    fn body(model: &Model) -> String {
        let shown = text(model);
        let lines: Vec<&str> = shown.lines().collect();
        let head = lines[0].replace("REPLAY", "").replace("LIVE", "");
        let head: Vec<&str> = head.split_whitespace().collect();
        // The footer, and the time bar.
        let rest = &lines[1..lines.len() - 1];
        let rest: Vec<&str> = rest.iter().copied().filter(|line| !line.ends_with("@ 23:13:27.7Z")).collect();
        format!("{}\n{}", head.join(" "), rest.join("\n"))
    }

    #[test]
    fn a_replay_has_the_screens_of_the_live_console() {
        let mut live = broken(120, 36);
        // With a row for its time bar.
        let mut replay = console(120, 37);
        replay.replay(recorded(&live));
        assert!(text(&replay).contains("REPLAY"), "{}", text(&replay));
        press(&mut replay, "}");
        while !replay.replay.as_ref().expect("a replay").is_at_end() {
            press(&mut replay, "]");
        }
        for screen in ["1", "3", "4", "5", "8"] {
            press(&mut live, screen);
            press(&mut replay, screen);
            assert_eq!(body(&replay), body(&live), "screen {screen}");
        }
    }

    #[test]
    fn a_recording_plays_in_real_time() {
        let mut model = console(100, 30);
        let mut now = Instant(1);
        model.reduce(Event::Tick(now), &mut Vec::new());
        model.replay(recorded(&broken(100, 30)));
        let first = model.frozen.as_ref().expect("shown").at;
        let after = |model: &mut Model, ms: u64, now: &mut Instant| {
            *now += Nanos::from_millis(ms);
            model.reduce(Event::Tick(*now), &mut Vec::new());
            model.frozen.as_ref().expect("shown").at.since(first)
        };
        assert_eq!(after(&mut model, 5000, &mut now), Nanos::ZERO, "it does not play by itself");
        press(&mut model, " ");
        assert_eq!(after(&mut model, 1100, &mut now), Nanos::from_millis(1000));
        press(&mut model, ">");
        assert_eq!(after(&mut model, 500, &mut now), Nanos::from_millis(2000));
        press(&mut model, " ");
        assert_eq!(after(&mut model, 500, &mut now), Nanos::from_millis(2000), "it stands");
        press(&mut model, " ");
        assert_eq!(after(&mut model, 60_000, &mut now), Nanos::from_millis(7750), "at its end");
        assert!(!model.replay.as_ref().expect("a replay").plays());
    }

    #[test]
    fn a_recording_without_samples_says_so() {
        let mut model = console(80, 24);
        model.replay(samples::tape(&[]));
        press(&mut model, " []}{");
        assert!(text(&model).contains("no sample"), "{}", text(&model));
    }

    /// Samples with all that data is derived from; the cluster is another one from the middle on.
    fn eventful(n: u64) -> Vec<Sample> {
        let one = |k: u64| {
            let at = Instant(3_600_000_000_000 + k * 250_000_000);
            let mut sample = if k % 90 < 9 { samples::degraded(at) } else { samples::healthy(at) };
            sample.cluster_id = Some(k / (n / 2));
            sample.events = k.is_multiple_of(3).then(|| samples::event(at, k)).into_iter().collect();
            if k % 170 == 5 {
                sample.marks.push(MarkRow {
                    at,
                    text: format!("note {k}"),
                    drill: None,
                    rollout: None,
                    acknowledged: None,
                });
            }
            sample
        };
        (0..n).map(one).collect()
    }

    /// Moves, in however many pieces.
    fn sought(model: &mut Model, wanted: usize) -> String {
        model.move_to(wanted);
        while model.replay.as_ref().is_some_and(Replay::moves) {
            model.advance();
        }
        format!("{:?}", model.data())
    }

    #[test]
    fn a_move_gives_what_all_samples_in_sequence_give_and_few_are_in_memory() {
        const SAMPLES: usize = 1200;
        let all = eventful(SAMPLES as u64);
        let mut random = 7_u64;
        let mut draw = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % below
        };
        // Far and near, back and forth.
        let mut places = vec![SAMPLES, 1, SAMPLES / 2, SAMPLES / 2 + 1];
        for _ in 0..12 {
            let far = 1 + draw(SAMPLES);
            places.push(far);
            places.extend((0..4).map(|_| (far + draw(60)).saturating_sub(30).clamp(1, SAMPLES)));
        }
        let mut wanted = BTreeMap::new();
        let mut data = Data::default();
        for (n, sample) in all.iter().enumerate() {
            data.take(Arc::new(sample.clone()));
            if places.contains(&(n + 1)) {
                wanted.insert(n + 1, format!("{data:?}"));
            }
        }
        let mut model = console(100, 30);
        model.replay(samples::tape(&all));
        for place in places {
            let got = sought(&mut model, place);
            assert!(got == wanted[&place], "at sample {place}");
            let Checkpoints { every, kept } = &model.replay.as_ref().expect("a replay").checkpoints;
            let most = CHECKPOINTS_MAX + NEAR.len() * (2 * NEAR_MAX + 1);
            assert!(kept.len() <= most && *every == EVERY_LEAST, "{} every {every}", kept.len());
        }
    }

    #[test]
    fn checkpoints_are_bounded_and_every_sample_has_one_not_far_before() {
        let mut checkpoints = Checkpoints::new();
        let n = 300 * EVERY_LEAST;
        for passed in 1..=n {
            checkpoints.offer(passed, &Data::default(), passed);
            checkpoints.thin_out(passed);
            assert!(checkpoints.kept.len() <= CHECKPOINTS_MAX + NEAR.len() * (2 * NEAR_MAX + 1));
        }
        assert!(checkpoints.every <= 2 * n / CHECKPOINTS_MAX, "every {}", checkpoints.every);
        for passed in 1..=n {
            let before = passed - checkpoints.up_to(passed).map_or(0, |(at, _)| at);
            let most = match n - passed {
                back if back < NEAR[0] * (NEAR_MAX - 1) => NEAR[0],
                back if back < NEAR[1] * (NEAR_MAX - 1) => NEAR[1],
                _ => checkpoints.every,
            };
            assert!(before <= most, "{before} samples are decoded for {passed}");
        }
    }

    #[test]
    fn a_sample_that_cannot_be_shown_ends_the_recording_with_a_note() {
        let mut live = console(80, 24);
        let mut bad = serde_json::to_value(samples::healthy(Instant(9))).expect("JSON");
        bad["processes"] = serde_json::json!("none");
        let tape = samples::tape_of_values(&[
            serde_json::to_value(samples::healthy(Instant(7))).expect("JSON"),
            serde_json::to_value(samples::healthy(Instant(8))).expect("JSON"),
            bad,
        ]);
        live.replay(tape);
        press(&mut live, "]");
        press(&mut live, "]");
        assert!(live.note.as_ref().is_some_and(|note| note.contains("frame 3 at byte")), "{:?}", live.note);
        assert_eq!(live.frozen.as_ref().map(|frozen| frozen.at), Some(Instant(8)));
        press(&mut live, "]");
        assert!(live.note.as_ref().is_some_and(|note| note.contains("ends here")), "{:?}", live.note);
        press(&mut live, "[");
        assert_eq!(live.frozen.as_ref().map(|frozen| frozen.at), Some(Instant(7)));
    }
}

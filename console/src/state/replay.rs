//! Replays a recording on the screens of the live console, up to a moment that the user moves.

use crate::poll::sample::Sample;
use crate::state::Model;
use crate::state::store::Store;
use obol_fabric::{Instant, Nanos};
use std::sync::Arc;

/// The lowest and the highest speed, as powers of two.
const SPEEDS: (i8, i8) = (-4, 8);

/// The replay state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replay {
    /// The speed as a power of two: 0 is real time.
    pub(crate) speed: i8,
    /// While playing: when it started, and the sample shown then.
    began: Option<(Instant, Instant)>,
}

impl Replay {
    /// Whether it plays.
    pub(crate) const fn plays(&self) -> bool {
        self.began.is_some()
    }

    /// The speed in words.
    pub(crate) fn name(&self) -> String {
        let power = 1u32 << self.speed.unsigned_abs();
        if self.speed < 0 { format!("1/{power}x") } else { format!("{power}x") }
    }
}

impl Model {
    /// Shows a recording from its first sample on. A recording without samples is shown as such.
    pub(crate) fn replay(&mut self, samples: Vec<Sample>) {
        self.store = Store::whole();
        self.replay = Some(Replay { speed: 0, began: None });
        for sample in samples {
            let sample = Arc::new(sample);
            self.live.take(Arc::clone(&sample));
            self.store.push(sample);
        }
        let first = self.store.times().next();
        if let Some(first) = first {
            self.freeze_at(first);
        }
    }

    /// Plays or stops.
    pub(crate) fn play_or_stop(&mut self) -> bool {
        let (now, at) = (self.now, self.frozen.as_ref().map(|frozen| frozen.at));
        let Some(replay) = &mut self.replay else { return false };
        replay.began = match replay.began {
            Some(_) => None,
            None => at.map(|at| (now, at)),
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
        let (now, at) = (self.now, self.frozen.as_ref().map(|frozen| frozen.at));
        let Some(replay) = &mut self.replay else { return false };
        let before = replay.speed;
        replay.speed = (before + by).clamp(SPEEDS.0, SPEEDS.1);
        replay.began = replay.began.and(at.map(|at| (now, at)));
        before != replay.speed
    }

    /// Advances to the current moment. Returns whether the sample changed.
    pub(crate) fn play(&mut self) -> bool {
        let Some(Replay { speed, began: Some((began, from)) }) = self.replay else { return false };
        let real = self.now.since(began).0;
        let played = if speed < 0 { real >> speed.unsigned_abs() } else { real.saturating_mul(1 << speed) };
        let until = from + Nanos(played);
        let Some(at) = self.frozen.as_ref().map(|frozen| frozen.at) else { return false };
        let due = self.store.times().rev().find(|time| *time <= until);
        if self.store.after(until).is_none() {
            self.stop();
            self.note = Some("the recording ends here".to_owned());
        }
        match due {
            Some(due) if due > at => {
                self.freeze_at(due);
                true
            }
            _ => self.note.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll::record::{Header, Recorder, Recording};
    use crate::samples;
    use crate::state::Event;
    use crate::view::tests::{broken, console, press};
    use crate::view::text;
    use std::path::Path;

    /// A recording of what a console has shown.
    fn recorded(model: &Model) -> Vec<Sample> {
        let mut bytes = Vec::new();
        let header = Header::new(samples::name("default"));
        let mut recorder = Recorder::begin(&mut bytes, Path::new("memory"), &header).expect("written");
        for sample in model.store.iter() {
            recorder.sample(&sample).expect("written");
        }
        drop(recorder);
        Recording::read(&bytes[..], Path::new("memory")).expect("whole").samples
    }

    /// A screen without the parts in which a replay differs from a live console.
    fn body(model: &Model) -> String {
        let shown = text(model);
        let lines: Vec<&str> = shown.lines().collect();
        let head = lines[0].replace("REPLAY", "").replace("LIVE", "");
        let head: Vec<&str> = head.split_whitespace().collect();
        format!("{}\n{}", head.join(" "), lines[1..lines.len() - 1].join("\n"))
    }

    #[test]
    fn a_replay_has_the_screens_of_the_live_console() {
        let mut live = broken(120, 36);
        let mut replay = console(120, 36);
        replay.replay(recorded(&live));
        assert!(text(&replay).contains("REPLAY"), "{}", text(&replay));
        press(&mut replay, "}");
        while replay.store.after(replay.frozen.as_ref().expect("shown").at).is_some() {
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
        model.replay(Vec::new());
        press(&mut model, " []}{");
        assert!(text(&model).contains("no sample"), "{}", text(&model));
    }
}

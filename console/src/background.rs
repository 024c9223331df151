//! Whether the terminal's background is light: it is asked once (OSC 11), and its answer is taken
//! out of the input.
//!
//! The answer comes between keys, late, in pieces, or never, and anybody may write one. So nothing
//! waits for it to read keys, and whatever follows its first two bytes is kept from the keys: up to
//! its end, to a key that cannot be part of it, or to a pause.

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use std::mem;
use std::time::Duration;

/// The question.
pub(crate) const QUESTION: &str = "\x1b]11;?\x1b\\";
/// A longer answer is none.
const LENGTH_MAX: usize = 64;
/// After this time an Esc is a key, not the start of an answer.
const ESC_PAUSE: Duration = Duration::from_millis(50);
/// After this time an answer has no further part.
const PAUSE: Duration = Duration::from_millis(250);

/// What to do with input.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// It is not of the answer, in order.
    pub(crate) passed: Vec<Event>,
    /// Whether the background is light, once that is known.
    pub(crate) light: Option<bool>,
}

/// Finds the answer in the input.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    state: State,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Awaited,
    /// An Esc, which may begin the answer.
    Esc(Event),
    /// Within the answer; `true` after an Esc, which may begin its end.
    Within(String, bool),
    Over,
}

impl Answer {
    /// Whether there was one.
    pub(crate) const fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// How long to wait for input before calling [`Answer::pause`]; `None` without end.
    pub(crate) const fn patience(&self) -> Option<Duration> {
        match self.state {
            State::Awaited | State::Over => None,
            State::Esc(_) => Some(ESC_PAUSE),
            State::Within(..) => Some(PAUSE),
        }
    }

    /// Takes what was read.
    pub(crate) fn take(&mut self, input: Event) -> Taken {
        let mut taken = Taken::default();
        let Event::Key(key) = &input else {
            taken.passed.push(input);
            return taken;
        };
        let (letter, alt, control) = parts(*key);
        match mem::take(&mut self.state) {
            State::Awaited if alt && letter == Some(']') => self.state = State::Within(String::new(), false),
            State::Awaited if key.code == KeyCode::Esc => self.state = State::Esc(input),
            State::Awaited => taken.passed.push(input),
            State::Esc(_) if letter == Some(']') && !alt && !control => {
                self.state = State::Within(String::new(), false);
            }
            State::Esc(before) => {
                let mut after = self.take(input);
                after.passed.insert(0, before);
                return after;
            }
            State::Within(text, was_esc) => match letter {
                Some('\\') if alt || was_esc => taken.light = self.end(&text),
                Some('g') if control => taken.light = self.end(&text),
                Some(letter) if !alt && !control && !was_esc => {
                    let mut text = text;
                    if text.len() <= LENGTH_MAX {
                        text.push(letter);
                    }
                    self.state = State::Within(text, false);
                }
                None if key.code == KeyCode::Esc && !was_esc => self.state = State::Within(text, true),
                _ => {
                    self.state = State::Over;
                    taken.passed.push(input);
                }
            },
            State::Over => {
                self.state = State::Over;
                taken.passed.push(input);
            }
        }
        taken
    }

    /// Nothing came for [`Answer::patience`].
    pub(crate) fn pause(&mut self) -> Taken {
        match mem::take(&mut self.state) {
            State::Esc(before) => Taken { passed: vec![before], light: None },
            State::Awaited => Taken::default(),
            State::Within(..) | State::Over => {
                self.state = State::Over;
                Taken::default()
            }
        }
    }

    fn end(&mut self, text: &str) -> Option<bool> {
        self.state = State::Over;
        is_light(text)
    }
}

/// The character of a key, and whether Alt and Ctrl are pressed.
fn parts(key: KeyEvent) -> (Option<char>, bool, bool) {
    let letter = if let KeyCode::Char(letter) = key.code { Some(letter) } else { None };
    (letter, key.modifiers.contains(KeyModifiers::ALT), key.modifiers.contains(KeyModifiers::CONTROL))
}

/// Whether an answer, such as `11;rgb:fdfd/f6f6/e3e3`, names a light colour; `None` if it names
/// none.
fn is_light(text: &str) -> Option<bool> {
    let colour = text.strip_prefix("11;")?;
    let parts = colour.strip_prefix("rgb:").or_else(|| colour.strip_prefix("rgba:"))?;
    let mut parts = parts.split('/').map(|part| {
        // XParseColor: one to four digits, as parts of their largest value.
        let digits = (1..=4).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        let value = u32::from_str_radix(part, 16).ok().filter(|_| digits)?;
        Some(f64::from(value) / (16_f64.powi(i32::try_from(part.len()).ok()?) - 1.0))
    });
    let (red, green, blue) = (parts.next()??, parts.next()??, parts.next()??);
    if parts.any(|opacity| opacity.is_none()) {
        return None;
    }
    // Luma of Rec. 601.
    Some(0.299 * red + 0.587 * green + 0.114 * blue > 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(letter: char) -> Event {
        Event::Key(KeyCode::Char(letter).into())
    }

    fn with(letter: char, modifiers: KeyModifiers) -> Event {
        Event::Key(KeyEvent::new(KeyCode::Char(letter), modifiers))
    }

    fn esc() -> Event {
        Event::Key(KeyCode::Esc.into())
    }

    /// How crossterm gives a text; in `pieces`, an Esc is the last of a read.
    fn typed(text: &str, pieces: bool) -> Vec<Event> {
        let mut all = Vec::new();
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '\x1b' if pieces => all.push(esc()),
                '\x1b' => all.extend(letters.next().map(|next| with(next, KeyModifiers::ALT))),
                '\x07' => all.push(with('g', KeyModifiers::CONTROL)),
                _ => all.push(key(letter)),
            }
        }
        all
    }

    fn taken(answer: &mut Answer, inputs: Vec<Event>) -> Taken {
        let mut all = Taken::default();
        for input in inputs {
            let one = answer.take(input);
            all.passed.extend(one.passed);
            all.light = all.light.or(one.light);
        }
        all
    }

    #[test]
    fn an_answer_is_found_between_keys_and_no_part_of_it_is_a_key() {
        for end in ["\x1b\\", "\x07"] {
            for pieces in [false, true] {
                for (colour, light) in [
                    ("rgb:fdfd/f6f6/e3e3", true),
                    ("rgb:00/00/00", false),
                    ("rgba:1e1e/1e1e/2e2e/ffff", false),
                ] {
                    let mut answer = Answer::default();
                    let found = taken(&mut answer, typed(&format!("j\x1b]11;{colour}{end}k2"), pieces));
                    assert_eq!(found.passed, typed("jk2", false), "{colour} {end:?} {pieces}");
                    assert_eq!(found.light, Some(light), "{colour} {end:?} {pieces}");
                    assert!(answer.is_over());
                    assert_eq!(taken(&mut answer, vec![esc(), key(']')]).passed, [esc(), key(']')]);
                }
            }
        }
    }

    #[test]
    fn what_is_no_colour_is_kept_from_the_keys_and_changes_nothing() {
        for text in [
            "",
            "11",
            "11;",
            "11;?",
            "11;rgb:",
            "11;rgb:ff/ff",
            "11;rgb:ff/ff/",
            "11;rgb:+f/ff/ff",
            "11;rgb:fffff/ff/ff",
            "11;rgb:xq/ff/ff",
            "11;rgb:ff/ff/ff/x",
            "10;rgb:ff/ff/ff",
            "11;#ffffff",
            "11;white",
            "11;rgb:é/ff/ff",
            "4;11;rgb:ff/ff/ff",
        ] {
            let found = taken(&mut Answer::default(), typed(&format!("\x1b]{text}\x07"), false));
            assert_eq!(found, Taken::default(), "{text}");
        }
        let long = format!("\x1b]11;rgb:{}ff/ff/ff\x07", "0".repeat(5000));
        let mut answer = Answer::default();
        assert_eq!(taken(&mut answer, typed(&long, false)), Taken::default());
        assert!(answer.is_over());
    }

    #[test]
    fn keys_are_keys_again_after_an_answer_without_an_end() {
        let mut answer = Answer::default();
        assert_eq!(taken(&mut answer, typed("\x1b]11;rgb:ff", false)), Taken::default());
        assert!(answer.patience().is_some());
        assert_eq!(answer.pause(), Taken::default());
        assert_eq!(taken(&mut answer, typed("q", false)).passed, [key('q')]);
        // A key that an answer cannot have is one.
        for end in [with('c', KeyModifiers::CONTROL), Event::Key(KeyCode::Enter.into())] {
            let mut answer = Answer::default();
            taken(&mut answer, typed("\x1b]11;rgb:ff", false));
            assert_eq!(answer.take(end.clone()).passed, [end]);
            assert!(answer.is_over());
        }
        let mut answer = Answer::default();
        taken(&mut answer, typed("\x1b]11;rgb:ff", false));
        assert_eq!(answer.take(Event::FocusLost).passed, [Event::FocusLost], "no key");
        assert_eq!(taken(&mut answer, typed("/ff/ff\x07", false)).light, Some(true));
    }

    #[test]
    fn an_esc_that_begins_no_answer_is_a_key() {
        let mut answer = Answer::default();
        assert_eq!(answer.take(esc()), Taken::default());
        assert!(answer.patience().is_some());
        assert_eq!(answer.pause().passed, [esc()]);
        assert_eq!(answer.patience(), None);
        assert_eq!(taken(&mut answer, vec![esc(), esc(), key('q')]).passed, [esc(), esc(), key('q')]);
        assert!(!answer.is_over(), "it may still come");
    }
}

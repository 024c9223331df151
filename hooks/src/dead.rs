//! Deliveries that were given up, in a file: one JSON object a line. `obol hooks resend` tries them
//! again.

use crate::config::Config;
use crate::deliver::Receiver;
use crate::failed::Failed;
use crate::letter_file::{beside, lock, open_lock};
use obol_node::FileLock;
use obol_observe::incidents::event::Event;
use obol_observe::lines;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// The file is not made larger than this: further letters are lost, which the log says.
pub const BYTES_MAX: u64 = 16 << 20;
/// What the name of the file with the letters that are being resent ends with.
const TAKEN: &str = ".resending";

/// A delivery that was given up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Letter {
    pub hook: String,
    pub event: Event,
    /// Attempts that were made.
    pub attempts: u32,
    /// Why the last one failed.
    pub why: String,
}

pub fn add(path: &Path, letter: &Letter) -> io::Result<()> {
    let _lock = lock(path)?;
    let mut file = File::options().create(true).read(true).append(true).mode(0o600).open(path)?;
    let mut line = serde_json::to_vec(letter)?;
    line.push(b'\n');
    let before = file.metadata()?.len();
    // What a process that was killed has left of a letter stays a line of its own.
    if !lines::begins(&file, before)? {
        line.insert(0, b'\n');
    }
    if before + line.len() as u64 > BYTES_MAX {
        return Err(io::Error::other(format!(
            "has {BYTES_MAX} bytes already; `obol hooks resend` empties it"
        )));
    }
    // On a full disk, a part of a letter would run into the next one.
    file.write_all(&line).inspect_err(|_| drop(file.set_len(before)))
}

/// The letters of a file, and the number of lines that are none. Those come first that a [`resend`]
/// has taken that is under way, or has died.
pub fn read(path: &Path) -> io::Result<(Vec<Letter>, u64)> {
    Ok(parse(&with_taken(path)?))
}

/// The text of those that were taken, and then of the others.
fn with_taken(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = bytes(&beside(path, TAKEN))?;
    if text.last().is_some_and(|byte| *byte != b'\n') {
        text.push(b'\n');
    }
    text.extend(bytes(path)?);
    Ok(text)
}

fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    fs::read(path).or_else(|error| none(error, Vec::new()))
}

fn parse(text: &[u8]) -> (Vec<Letter>, u64) {
    let (mut letters, mut unknown) = (Vec::new(), 0);
    for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        match serde_json::from_slice(line) {
            Ok(letter) => letters.push(letter),
            Err(_) => unknown += 1,
        }
    }
    (letters, unknown)
}

/// What became of letters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resent {
    /// Delivered now.
    pub delivered: u64,
    /// Failed again, and kept.
    pub failed: u64,
    /// Kept because they are of other hooks, or of none in the configuration.
    pub kept: u64,
    /// Lines that are not letters. They are dropped.
    pub unknown: u64,
}

/// Tries all letters again, or those of one hook, once each. `report` is called for each attempt.
///
/// If this process dies meanwhile, letters that it has delivered may be delivered again: receivers
/// recognise them by their ids.
pub fn resend(
    config: &Config,
    only: Option<&str>,
    mut report: impl FnMut(&Letter, &Result<(), Failed>),
) -> io::Result<Resent> {
    let path = &config.dead_letters;
    let taken = beside(path, TAKEN);
    // Another one would take these letters for those of one that died.
    let _alone = FileLock::try_new(open_lock(path, ".resending.lock")?)?
        .ok_or_else(|| io::Error::other("another `obol hooks resend` is under way; wait for its end"))?;
    let letters = {
        let _lock = lock(path)?;
        // What an earlier attempt has left behind that died.
        let text = with_taken(path)?;
        let fresh = beside(path, ".resending.new");
        let mut file = File::options().create(true).write(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(&text).and_then(|()| fs::rename(&fresh, &taken))?;
        fs::remove_file(path).or_else(|error| none(error, ()))?;
        parse(&text)
    };
    let mut resent = Resent { unknown: letters.1, ..Resent::default() };
    for mut letter in letters.0 {
        let hook = config.hooks.iter().find(|hook| hook.name == letter.hook);
        let Some(hook) = hook.filter(|hook| only.is_none_or(|only| only == hook.name)) else {
            resent.kept += 1;
            add(path, &letter)?;
            continue;
        };
        let result = Receiver::new(hook, config.ca_file.as_deref())
            .map_err(|error| Failed::Later { why: error.to_string(), after: None })
            .and_then(|receiver| receiver.deliver(&letter.event, 0));
        report(&letter, &result);
        match result {
            Ok(()) => resent.delivered += 1,
            Err(failed) => {
                resent.failed += 1;
                letter.attempts = letter.attempts.saturating_add(1);
                letter.why = failed.to_string();
                add(path, &letter)?;
            }
        }
    }
    fs::remove_file(&taken)?;
    Ok(resent)
}

fn none<T>(error: io::Error, value: T) -> io::Result<T> {
    if error.kind() == ErrorKind::NotFound { Ok(value) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::event;
    use obol_observe::incidents::event::Kind;

    #[test]
    fn letters_are_resent_and_those_that_fail_again_are_kept() {
        let folder = tempfile::tempdir().expect("made");
        let [path, out] = ["dead.jsonl", "out"].map(|name| folder.path().join(name));
        let text = format!(
            "schema = 1\ndead_letters = {path:?}\n[[hook]]\nname = \"good\"\non = [\"alert\"]\n\
             exec = [\"/bin/sh\", \"-c\", \"cat >> {}; echo >> {}\"]\n\
             [[hook]]\nname = \"bad\"\non = [\"alert\"]\nexec = [\"/bin/false\"]\n",
            out.display(),
            out.display()
        );
        let config = Config::parse(&text, "hooks.toml").expect("valid");
        let letters = [
            ("good", "one", 8),
            ("bad", "two", 8),
            ("gone", "three", 8),
            ("good", "four", 8),
            // Written by hand.
            ("bad", "five", u32::MAX),
        ];
        for (hook, title, attempts) in letters {
            let letter = Letter {
                hook: hook.to_owned(),
                event: event(Kind::Alert, title),
                attempts,
                why: "x".to_owned(),
            };
            add(&path, &letter).expect("added");
        }
        let resent = resend(&config, None, |_, _| ()).expect("resent");
        assert_eq!(resent, Resent { delivered: 2, failed: 2, kept: 1, unknown: 0 });
        let sent = fs::read_to_string(&out).expect("written");
        assert!(sent.contains("one") && sent.contains("four") && sent.lines().count() == 2, "{sent}");
        let (left, _) = read(&path).expect("read");
        let hooks: Vec<(&str, u32)> =
            left.iter().map(|letter| (letter.hook.as_str(), letter.attempts)).collect();
        assert_eq!(hooks, [("bad", 9), ("gone", 8), ("bad", u32::MAX)]);
        let resent = resend(&config, Some("good"), |_, _| ()).expect("resent");
        assert_eq!(resent, Resent { kept: 3, ..Resent::default() });
    }

    #[test]
    fn a_letter_after_half_a_letter_is_kept() {
        let folder = tempfile::tempdir().expect("made");
        let path = folder.path().join("dead.jsonl");
        fs::write(&path, "{\"hook\":\"a\",").expect("written");
        let event = event(Kind::Alert, "one");
        let letter = Letter { hook: "a".to_owned(), event, attempts: 8, why: "x".to_owned() };
        for kept in 1..=2 {
            add(&path, &letter).expect("added");
            assert_eq!(read(&path).expect("read"), (vec![letter.clone(); kept], 1));
        }
        fs::write(beside(&path, TAKEN), "{\"hook\":").expect("written");
        assert_eq!(read(&path).expect("read"), (vec![letter.clone(), letter], 2));
    }

    #[test]
    fn letters_that_a_killed_resend_has_taken_are_listed_and_sent_and_two_resends_exclude_each_other() {
        let folder = tempfile::tempdir().expect("made");
        let path = folder.path().join("dead.jsonl");
        let text = format!(
            "schema = 1\ndead_letters = {path:?}\n[[hook]]\nname = \"a\"\non = [\"alert\"]\nexec = [\"/bin/true\"]\n"
        );
        let config = Config::parse(&text, "hooks.toml").expect("valid");
        let letter = |title| Letter {
            hook: "a".to_owned(),
            event: event(Kind::Alert, title),
            attempts: 8,
            why: "x".to_owned(),
        };
        add(&path, &letter("one")).expect("added");
        fs::rename(&path, beside(&path, TAKEN)).expect("what a resend does first");
        add(&path, &letter("two")).expect("added");
        // No text at all.
        File::options()
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(b"\xff\n"))
            .expect("written");
        let (letters, unknown) = read(&path).expect("read");
        let titles: Vec<&str> = letters.iter().map(|letter| letter.event.title.as_str()).collect();
        assert_eq!((&titles[..], unknown), (&["one", "two"][..], 1));
        let other = open_lock(&path, ".resending.lock").and_then(FileLock::wait).expect("locked");
        let refused = resend(&config, None, |_, _| ()).expect_err("refused").to_string();
        assert!(refused.contains("is under way"), "{refused}");
        drop(other);
        let resent = resend(&config, None, |_, _| ()).expect("resent");
        assert_eq!(resent, Resent { delivered: 2, unknown: 1, ..Resent::default() });
        assert_eq!(read(&path).expect("read").0, []);
    }
}

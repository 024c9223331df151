//! Deliveries that were given up, in a file: one JSON object a line. `obol hooks resend` tries them
//! again.

use crate::config::Config;
use crate::deliver::{Failed, Receiver};
use crate::event::Event;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The file is not made larger than this: further letters are lost, which the log says.
pub const BYTES_MAX: u64 = 16 << 20;

/// A delivery that was given up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Letter {
    /// The hook.
    pub hook: String,
    /// The event.
    pub event: Event,
    /// Attempts that were made.
    pub attempts: u32,
    /// Why the last one failed.
    pub why: String,
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(end);
    name.into()
}

/// Holds others off the file.
fn lock(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let lock = File::options().create(true).append(true).mode(0o600).open(beside(path, ".lock"))?;
    lock.lock()?;
    Ok(lock)
}

/// Adds a letter.
pub fn add(path: &Path, letter: &Letter) -> io::Result<()> {
    let _lock = lock(path)?;
    let mut file = File::options().create(true).append(true).mode(0o600).open(path)?;
    let mut line = serde_json::to_vec(letter)?;
    line.push(b'\n');
    let before = file.metadata()?.len();
    if before + line.len() as u64 > BYTES_MAX {
        return Err(io::Error::other(format!(
            "has {BYTES_MAX} bytes already; `obol hooks resend` empties it"
        )));
    }
    // On a full disk, a part of a letter would run into the next one.
    file.write_all(&line).inspect_err(|_| drop(file.set_len(before)))
}

/// The letters in a file, and the lines that are none.
pub fn read(path: &Path) -> io::Result<(Vec<Letter>, u64)> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok((Vec::new(), 0)),
        text => text?,
    };
    let (mut letters, mut unknown) = (Vec::new(), 0);
    for line in text.lines() {
        match serde_json::from_str(line) {
            Ok(letter) => letters.push(letter),
            Err(_) => unknown += 1,
        }
    }
    Ok((letters, unknown))
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
    /// Lines that are no letters. They are dropped.
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
    let taken = beside(path, ".resending");
    let letters = {
        let _lock = lock(path)?;
        // What an earlier attempt has left behind that died.
        let mut text = fs::read(&taken).or_else(|error| none(error, Vec::new()))?;
        text.extend(fs::read(path).or_else(|error| none(error, Vec::new()))?);
        let fresh = beside(path, ".resending.new");
        fs::write(&fresh, &text).and_then(|()| fs::rename(&fresh, &taken))?;
        fs::remove_file(path).or_else(|error| none(error, ()))?;
        read(&taken)?
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
                letter.attempts += 1;
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
    use crate::event::Kind;
    use crate::event::tests::event;

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
        for (hook, title) in [("good", "one"), ("bad", "two"), ("gone", "three"), ("good", "four")] {
            let letter = Letter {
                hook: hook.to_owned(),
                event: event(Kind::Alert, title),
                attempts: 8,
                why: "x".to_owned(),
            };
            add(&path, &letter).expect("added");
        }
        let resent = resend(&config, None, |_, _| ()).expect("resent");
        assert_eq!(resent, Resent { delivered: 2, failed: 1, kept: 1, unknown: 0 });
        let sent = fs::read_to_string(&out).expect("written");
        assert!(sent.contains("one") && sent.contains("four") && sent.lines().count() == 2, "{sent}");
        let (left, _) = read(&path).expect("read");
        let hooks: Vec<(&str, u32)> =
            left.iter().map(|letter| (letter.hook.as_str(), letter.attempts)).collect();
        assert_eq!(hooks, [("bad", 9), ("gone", 8)]);
        let resent = resend(&config, Some("good"), |_, _| ()).expect("resent");
        assert_eq!(resent, Resent { kept: 2, ..Resent::default() });
    }
}

//! Files of commands and traces.
//!
//! A file is a sequence of blocks with empty lines between them: lines that begin with `#` are
//! comments, then come commands, one a line, then `----`, then the trace up to the next empty line.

use std::fs;
use std::path::{Path, PathBuf};

/// The target of commands.
pub(crate) trait Traced {
    /// Executes a command and adds its events to the trace, one per line.
    fn command(&mut self, words: &[&str], trace: &mut Vec<String>) -> Result<(), String>;
}

/// Runs every file of a folder of `testdata`, each with a world of its own.
pub(crate) fn check<T: Traced>(folder: &str, world: impl Fn() -> T) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(folder);
    let entries = fs::read_dir(&folder).expect("the folder of traces");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "no traces in {}", folder.display());
    let blesses = std::env::var_os("OBOL_BLESS").is_some();
    let mut different = Vec::new();
    for file in files {
        let wanted = fs::read_to_string(&file).expect("a text");
        let found = replay(&wanted, world()).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        if found == wanted {
            continue;
        }
        if blesses {
            fs::write(&file, found).expect("a file that can be written");
        } else {
            different.push(format!("{}\n{}", file.display(), difference(&wanted, &found)));
        }
    }
    assert!(
        different.is_empty(),
        "OBOL_BLESS=1 writes these traces anew if they are as they should be:\n{}",
        different.join("\n")
    );
}

/// The text with the traces of its commands.
fn replay(text: &str, mut world: impl Traced) -> Result<String, String> {
    let mut blocks = Vec::new();
    for block in text.split("\n\n").map(str::trim).filter(|block| !block.is_empty()) {
        let head: Vec<&str> = block.lines().take_while(|line| *line != "----").collect();
        let mut trace = Vec::new();
        let commands: Vec<&str> = head.iter().copied().filter(|line| !line.starts_with('#')).collect();
        for command in &commands {
            let words: Vec<&str> = command.split_whitespace().collect();
            world.command(&words, &mut trace).map_err(|error| format!("`{command}`: {error}"))?;
        }
        let mut lines: Vec<String> = head.into_iter().map(str::to_owned).collect();
        if !commands.is_empty() {
            lines.push("----".to_owned());
            lines.extend(if trace.is_empty() { vec!["(nothing)".to_owned()] } else { trace });
        }
        blocks.push(lines.join("\n"));
    }
    Ok(blocks.join("\n\n") + "\n")
}

/// The first differing line, with its context.
fn difference(wanted: &str, found: &str) -> String {
    let (wanted, found): (Vec<&str>, Vec<&str>) = (wanted.lines().collect(), found.lines().collect());
    let at = wanted.iter().zip(&found).take_while(|(wanted, found)| wanted == found).count();
    let line = |of: &[&str]| of.get(at).copied().unwrap_or("(the end)").to_owned();
    let before = wanted[at.saturating_sub(3)..at].join("\n  ");
    format!("line {}:\n  {before}\n- {}\n+ {}", at + 1, line(&wanted), line(&found))
}

/// The number at the end of a word such as `a2`, or the word itself.
pub(crate) fn number(word: &str) -> Result<usize, String> {
    let digits = word.trim_start_matches(|c: char| !c.is_ascii_digit());
    digits.parse().map_err(|_| format!("`{word}` has no number"))
}

//! The English of the sources: some phrases have German syntax, and a plain sentence is better.

use std::fs;
use std::path::{Path, PathBuf};

pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// Names of folders that have no sources.
const SKIPPED: [&str; 3] = ["target", ".git", "testdata"];
/// Endings of the files that are read. Scripts without one are read as well.
const ENDINGS: [&str; 6] = ["rs", "md", "h", "c", "sh", "toml"];
/// In two parts, so that this file passes.
const WHO: &str = concat!("who", "ever");

fn is_mark(c: char) -> bool {
    !c.is_alphanumeric() && c != '_'
}

/// The words of a text with their lines. A phrase may continue on the next line of a comment, so marks that
/// stand alone are left out.
fn words(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let words = line.split_whitespace().filter(|word| !word.chars().all(is_mark));
        found.extend(words.map(|word| (number, word)));
    }
    found
}

/// What is behind the last mark of a word: nothing, if a mark ends it.
fn tail(word: &str) -> &str {
    word.rsplit(is_mark).next().unwrap_or_default()
}

/// The banned phrases in a text, with their lines.
fn banned(text: &str) -> Vec<(usize, String)> {
    let words = words(text);
    let word = |at: usize| words.get(at).map_or("", |(_, word)| *word);
    let mut found = Vec::new();
    for (at, &(line, whole)) in words.iter().enumerate() {
        let first = tail(whole).to_lowercase();
        let [second, third] = [1, 2].map(|next| word(at + next).trim_matches(is_mark));
        let is_measure = first == "so" && matches!(second, "many" | "long");
        let is_there = at > 0 && tail(word(at - 1)).eq_ignore_ascii_case("there");
        // "no longer" is an adverb.
        let is_no = matches!(&*first, "is" | "are" | "was" | "were")
            && word(at + 1) == "no"
            && !is_there
            && !matches!(third, "" | "longer");
        if is_measure {
            found.push((line, format!("{first} {second}")));
        } else if is_no {
            found.push((line, format!("{first} no {third}")));
        } else if whole.split(is_mark).any(|part| part.eq_ignore_ascii_case(WHO)) {
            found.push((line, WHO.to_owned()));
        }
    }
    found
}

/// The files of a folder that may have to be read.
pub(crate) fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        let (path, kind) = (entry.path(), entry.file_type().expect("a kind"));
        let is_skipped = SKIPPED.iter().any(|name| entry.file_name() == *name);
        if kind.is_dir() && !is_skipped {
            files(&path, found);
        } else if kind.is_file() {
            found.push(path);
        }
    }
}

/// The text of a source; `None` for other files.
fn text(path: &Path) -> Option<String> {
    let is_script = match path.extension() {
        Some(ending) if ENDINGS.iter().any(|known| ending == *known) => false,
        Some(_) => return None,
        None => true,
    };
    let bytes = fs::read(path).expect("read");
    (!is_script || bytes.starts_with(b"#!")).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

#[test]
fn sources_are_in_plain_english() {
    let (mut all, mut found, mut read) = (Vec::new(), Vec::new(), 0);
    files(Path::new(ROOT), &mut all);
    all.sort_unstable();
    for path in all {
        let Some(text) = text(&path) else { continue };
        read += 1;
        let name = path.strip_prefix(ROOT).unwrap_or(&path).display();
        found.extend(banned(&text).into_iter().map(|(line, phrase)| format!("{name}:{line}: {phrase}")));
    }
    assert!(read > 100, "{read} files were read");
    assert!(found.is_empty(), "a plain sentence is better:\n{}", found.join("\n"));
}

#[test]
fn phrases_are_found_on_one_line_and_over_two() {
    // Words are apart here, so that this file passes.
    let of = |text: &str| banned(&text.replace('+', " "));
    let one = |line: usize, phrase: &str| vec![(line, phrase.replace('+', " "))];
    assert_eq!(of("After so+many, it ends."), one(1, "so+many"));
    assert_eq!(of("/// It ends.\n/// So\n/// long it lasts"), one(2, "so+long"));
    assert_eq!(of("\"x\" is+no+member\n"), one(1, "is+no+member"));
    assert_eq!(of("//! They are\n//! no members."), one(1, "are+no+members"));
    assert_eq!(of(&format!("Not {WHO}'s")), one(1, WHO));
    for fine in ["(\"there is+no+x\")", "it is+no+longer here", "Is it? It is+no.", "{WHO}_leads", "So, many"]
    {
        assert_eq!(of(&fine.replace("{WHO}", WHO)), [], "{fine}");
    }
}

//! No text makes the reader panic, and every accepted text is a valid profile.

use obol_config::FileError;
use obol_fabric::Layout;
use obol_profiles::{BUILTIN, Profile};
use proptest::prelude::*;

const FILES: [&str; BUILTIN.len()] = [
    include_str!("../../laptop.toml"),
    include_str!("../../dedicated.toml"),
    include_str!("../../infiniband.toml"),
    include_str!("../../roce.toml"),
    include_str!("../../soft-roce.toml"),
    include_str!("../../lan.toml"),
    include_str!("../../cloud.toml"),
];

/// A text is accepted as a profile, or rejected with valid positions.
fn judge(text: &str) -> Result<(), TestCaseError> {
    match Profile::parse(text, "any.toml") {
        Ok(profile) => {
            prop_assert_eq!(Profile::parse(&profile.to_toml(), "written"), Ok(profile.clone()));
            prop_assert!(Layout::new(profile.limits).is_ok());
            prop_assert!(profile.timing.heartbeat_every < profile.timing.heartbeat_period);
        }
        Err(error) => {
            let FileError::Refused { problems, .. } = &error else {
                return Err(TestCaseError::fail(format!("{error:?}")));
            };
            prop_assert!(!problems.is_empty());
            for problem in problems {
                let line = text.split('\n').nth(problem.line - 1);
                prop_assert!(
                    line.is_some_and(|line| problem.column <= line.chars().count() + 1),
                    "{:?}",
                    problem
                );
            }
            // One line each, whatever the file contains.
            prop_assert_eq!(error.to_string().lines().count(), problems.len(), "{}", error);
        }
    }
    Ok(())
}

/// A built-in file without comments.
fn plain(file: usize) -> Vec<&'static str> {
    FILES[file].lines().filter(|line| !line.starts_with('#')).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_text(text in "(?s).{0,200}") {
        judge(&text)?;
    }

    #[test]
    fn anything_like_toml(lines in prop::collection::vec(
        "\\[{0,3}[a-z.\" ]{0,9}\\]{0,3}|(lease|wait|limits|[a-z]{1,4})(\\.[a-z\"]{0,4})? ?= ?[\\[\\]{}\"'0-9a-z.,= -]{0,12}",
        0..20,
    )) {
        judge(&lines.join("\n"))?;
    }

    #[test]
    fn a_file_with_bytes_changed(file in 0..BUILTIN.len(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<char>()), 1..5)) {
        let mut text: Vec<char> = plain(file).join("\n").chars().collect();
        for (at, c) in changes {
            let at = at.index(text.len());
            text[at] = c;
        }
        judge(&text.into_iter().collect::<String>())?;
    }

    #[test]
    fn a_file_with_lines_moved(file in 0..BUILTIN.len(), moves in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<bool>()), 1..5)) {
        let mut lines = plain(file);
        for (from, to, keep) in moves {
            let from = from.index(lines.len());
            let line = if keep { lines[from] } else { lines.remove(from) };
            lines.insert(to.index(lines.len()), line);
        }
        judge(&lines.join("\n"))?;
    }

    #[test]
    fn a_file_with_numbers_changed(file in 0..BUILTIN.len(), at in any::<prop::sample::Index>(), number in any::<i128>(), small in 0..5000u32, unit in "ns|us|ms|s|m") {
        let mut lines: Vec<String> = plain(file).into_iter().map(str::to_owned).collect();
        let at = at.index(lines.len());
        let key = lines[at].split(" = ").next().unwrap_or_default().to_owned();
        lines[at] = format!("{key} = {number}");
        judge(&lines.join("\n"))?;
        lines[at] = format!("{key} = {small}");
        judge(&lines.join("\n"))?;
        lines[at] = format!("{key} = \"{small}{unit}\"");
        judge(&lines.join("\n"))?;
    }

    #[test]
    fn a_file_that_ends_early(file in 0..BUILTIN.len(), end in any::<prop::sample::Index>()) {
        let text = FILES[file];
        let mut end = end.index(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        judge(&text[..end])?;
    }
}

//! Any file is rejected with valid positions, or gives a usable value.

use obol_config::FileError;
use obol_fabric::Layout;
use obol_fuzz::{Shape, Target, outcome};
use obol_profiles::Profile;
use obol_profiles::testbed::Testbed;
use std::path::{Path, PathBuf};

fn here(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)
}

/// Errors name a position in the text, one line per fault.
fn refused(error: &FileError, text: &str) -> u64 {
    let FileError::Refused { problems, .. } = error else { panic!("{error:?}") };
    assert!(!problems.is_empty());
    for problem in problems {
        let line = text.split('\n').nth(problem.line - 1);
        assert!(line.is_some_and(|line| problem.column <= line.chars().count() + 1), "{problem:?}");
    }
    assert_eq!(error.to_string().lines().count(), problems.len(), "{error}");
    outcome(problems.iter().map(|problem| core::mem::discriminant(&problem.problem)).collect::<Vec<_>>())
}

#[test]
fn profiles() {
    Target::new("profiles", Shape::Text, 6_000).with_files(here(""), ".toml").run(|input| {
        let text = String::from_utf8_lossy(input);
        match Profile::parse(&text, "any.toml") {
            Ok(profile) => {
                assert_eq!(Profile::parse(&profile.to_toml(), "written"), Ok(profile.clone()));
                assert!(Layout::new(profile.limits).is_ok());
                outcome(profile.to_toml().len())
            }
            Err(error) => refused(&error, &text),
        }
    });
}

#[test]
fn testbeds() {
    Target::new("testbeds", Shape::Text, 4_000).with_files(here("sim"), ".toml").run(|input| {
        let text = String::from_utf8_lossy(input);
        match Testbed::parse(&text, "any.toml") {
            Ok(testbed) => {
                let parameters = testbed.parameters().len();
                outcome((parameters, testbed.with_early_notice().parameters().len()))
            }
            Err(error) => refused(&error, &text),
        }
    });
}

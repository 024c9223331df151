//! Any text is either a drill or rejected with places that exist.

use obol_chaos::drillfile;
use obol_fuzz::{Shape, Target, outcome};
use obol_profiles::FileError;
use std::path::Path;

#[test]
fn drill_files() {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("drills");
    Target::new("drill-files", Shape::Text, 6_000).with_files(shipped, ".toml").run(|input| {
        let text = String::from_utf8_lossy(input);
        match drillfile::parse(&text, "any.toml") {
            Ok(drill) => outcome(format!("{drill:?}").len()),
            Err(error) => {
                let FileError::Refused { problems, .. } = &error else { panic!("{error:?}") };
                assert!(!problems.is_empty());
                for problem in problems {
                    let line = text.split('\n').nth(problem.line - 1);
                    assert!(
                        line.is_some_and(|line| problem.column <= line.chars().count() + 1),
                        "{problem:?}"
                    );
                }
                assert_eq!(error.to_string().lines().count(), problems.len(), "{error}");
                outcome(
                    problems
                        .iter()
                        .map(|problem| core::mem::discriminant(&problem.fault))
                        .collect::<Vec<_>>(),
                )
            }
        }
    });
}

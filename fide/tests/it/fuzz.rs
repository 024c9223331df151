//! Any network or recording is rejected with a place, or can be planned, drawn and compared.

use obol_config::FileError;
use obol_fide::detectors::Delays;
use obol_fide::network::{Network, draw, plan};
use obol_fuzz::{Shape, Target, outcome};
use std::path::Path;

#[test]
fn networks() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    Target::new("networks", Shape::Text, 4_000).with_files(&examples, ".toml").run(|input| {
        let text = String::from_utf8_lossy(input);
        match Network::parse(&text, "any.toml") {
            Ok(network) => match plan(&network) {
                Ok(plan) => {
                    let links = plan.senders.iter().flat_map(|s| &s.trees).map(|tree| tree.edges().count());
                    outcome((draw(&network, &plan).len() / 512, links.sum::<usize>()))
                }
                Err(error) => outcome(core::mem::discriminant(&error)),
            },
            Err(FileError::Refused { problems, .. }) => {
                assert!(!problems.is_empty());
                for problem in &problems {
                    let line = text.split('\n').nth(problem.line - 1);
                    assert!(
                        line.is_some_and(|line| problem.column <= line.chars().count() + 1),
                        "{problem:?}"
                    );
                }
                outcome(problems.iter().map(|p| core::mem::discriminant(&p.problem)).collect::<Vec<_>>())
            }
            Err(error) => panic!("{error:?}"),
        }
    });
}

#[test]
fn network_recordings() {
    let valid =
        (0..1_010_u64).fold(String::new(), |text, n| text + &format!("{} {}\n", n * 100, n * 100 + n % 7));
    Target::new("network-recordings", Shape::Text, 2_000).with(valid).run(|input| {
        let text = String::from_utf8_lossy(input);
        match Delays::parse(&text, "any", 1) {
            Ok(delays) => {
                assert!(delays.period > 0);
                outcome((delays.frames.len(), delays.span() / delays.period))
            }
            Err(error) => outcome(core::mem::discriminant(&error)),
        }
    });
}

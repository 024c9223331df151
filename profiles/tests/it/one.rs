//! One mistake in a profile is one problem: what follows from it is not reported.

use obol_profiles::{BUILTIN, Profile};

/// The problems of a text.
fn problems(text: &str) -> Vec<String> {
    let refused = Profile::parse(text, "mine.toml").err();
    refused.iter().flat_map(|error| error.problems()).map(|one| one.problem.to_string()).collect()
}

#[test]
fn one_mistake_is_one_problem_and_what_follows_from_it_is_not_reported() {
    let mut tried = 0;
    for name in BUILTIN {
        let good = Profile::builtin(name).expect("it ships").to_toml();
        for line in good.lines().filter(|line| !line.starts_with('#')) {
            let Some((key, value)) = line.split_once(" = ") else { continue };
            for wrong in [format!("{key}x = {value}"), format!("{key} = 0.5")] {
                let text: Vec<&str> = good
                    .lines()
                    .map(|other| if std::ptr::eq(other, line) { &wrong } else { other })
                    .collect();
                let found = problems(&text.join("\n"));
                assert_eq!(found.len(), 1, "{name}: {wrong}: {found:#?}");
                tried += 1;
            }
        }
    }
    assert!(tried > 200, "{tried} mistakes were tried");
}

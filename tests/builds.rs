//! What the README's commands compile: each package once, and programs of tests only where there are tests.

use crate::support::files;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Packages and their features, as `cargo tree` has them with these arguments.
fn packages(selection: &[&str]) -> BTreeSet<String> {
    let mut tree = Command::new(env!("CARGO"));
    tree.args(["tree", "--offline", "--locked", "--prefix", "none", "--format", "{p} {f}"]);
    let output = tree.args(selection).current_dir(ROOT).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8_lossy(&output.stdout);
    // What was above is marked.
    lines.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

#[test]
fn tests_compile_packages_with_the_same_features_as_the_program() {
    let program = packages(&["--package", "obol", "--edges", "normal,build"]);
    let tests = packages(&["--workspace", "--edges", "normal,build,dev"]);
    assert!(program.len() > 100, "{} packages", program.len());
    let differ: Vec<&String> = program.difference(&tests).collect();
    assert!(
        differ.is_empty(),
        "tests add features to these, so `cargo test` compiles them, and what uses them, once more; add those features to the \
         workspace's Cargo.toml: {differ:?}"
    );
}

/// Whether documentation has an example that `cargo test` runs.
fn has_example(source: &str) -> bool {
    let mut is_open = false;
    source.lines().filter_map(|line| line.trim_start().strip_prefix("//")?.split_once("```")).any(
        |(_, kind)| {
            is_open = !is_open;
            is_open && ["", "no_run", "rust", "should_panic"].contains(&kind)
        },
    )
}

#[test]
fn libraries_have_programs_of_tests_where_they_have_tests() {
    let workspace = fs::read_to_string(Path::new(ROOT).join("Cargo.toml")).expect("read");
    let members = workspace.lines().find_map(|line| line.strip_prefix("members = [")).expect("its members");
    let mut wrong = BTreeMap::new();
    for member in members.split('"').skip(1).step_by(2) {
        let folder = Path::new(ROOT).join(member);
        if !folder.join("src/lib.rs").exists() {
            continue;
        }
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("read");
        let sources =
            files(&folder.join("src")).into_iter().filter(|file| file.extension().is_some_and(|e| e == "rs"));
        let texts: Vec<String> = sources.map(|file| fs::read_to_string(file).expect("read")).collect();
        assert!(!texts.is_empty(), "{member} has no sources");
        let tests = texts.iter().any(|text| text.contains("#[test]") || text.contains("proptest!"));
        let examples = texts.iter().any(|text| has_example(text));
        for (line, has_some) in [("\ntest = false\n", tests), ("\ndoctest = false\n", examples)] {
            if manifest.contains(line) == has_some {
                wrong.insert(format!("{member}: {}", line.trim()), has_some);
            }
        }
    }
    assert!(wrong.is_empty(), "true: it has some, so these lines go; false: they are missing: {wrong:?}");
}

#[test]
fn examples_are_found() {
    for text in
        ["/// ```\n/// x();\n/// ```", "//! ```no_run\n", "    /// ```text\n    /// ```\n    /// ```rust\n"]
    {
        assert!(has_example(text), "{text}");
    }
    for text in ["/// ```text\n/// x\n/// ```\n", "let fence = \"```\";", "//! ```toml\n//! ```\n"] {
        assert!(!has_example(text), "{text}");
    }
}

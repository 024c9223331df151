//! The order of the crates: docs/design/architecture.md names each of them above those that it depends on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// What stands before and behind the table.
const FENCE: &str = "\n```\n";

/// The lines of the table with the crates that they name: a column begins with one, or says what it is.
fn rows(page: &str, crates: &BTreeSet<String>) -> BTreeMap<String, usize> {
    let table = page.split(FENCE).nth(1).expect("a table");
    let mut rows = BTreeMap::new();
    for (row, line) in table.lines().enumerate() {
        for column in line.split("  ") {
            let first = column.split_whitespace().next().unwrap_or_default();
            if crates.contains(first) {
                assert_eq!(rows.insert(first.to_owned(), row), None, "{first} has two lines");
            }
        }
    }
    rows
}

/// The crates that a manifest depends on, other than for its tests.
fn dependencies(manifest: &str) -> Vec<&str> {
    let of_section = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1);
    let lines = of_section.take_while(|line| !line.starts_with('['));
    lines.filter_map(|line| line.strip_prefix("obol-")?.split(['.', ' ']).next()).collect()
}

#[test]
fn a_crate_depends_only_on_crates_below_it() {
    let read = |path: &Path| fs::read_to_string(path).expect("read");
    let root = Path::new(ROOT);
    let mut manifests = BTreeMap::new();
    for entry in fs::read_dir(root).expect("a folder") {
        let entry = entry.expect("an entry");
        let manifest = entry.path().join("Cargo.toml");
        if manifest.exists() {
            manifests.insert(entry.file_name().into_string().expect("text"), read(&manifest));
        }
    }
    let crates: BTreeSet<String> = manifests.keys().cloned().collect();
    let rows = rows(&read(&root.join("docs/design/architecture.md")), &crates);
    let missing: Vec<&String> = crates.iter().filter(|name| !rows.contains_key(*name)).collect();
    assert!(missing.is_empty(), "the table does not name {missing:?}");
    let mut wrong = Vec::new();
    for (name, manifest) in &manifests {
        let upward = dependencies(manifest).into_iter().filter(|below| rows[name] >= rows[*below]);
        wrong.extend(upward.map(|below| format!("{name} depends on {below}, which is not below it")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn manifests_and_tables_are_read() {
    let crates = ["low", "left", "right"].map(str::to_owned).into();
    let page = "A\n\n```\nleft   on top     right   as well\nlow    below\n```\n";
    let expected = [("left", 0), ("right", 0), ("low", 1)].map(|(name, row)| (name.to_owned(), row));
    assert_eq!(rows(page, &crates), expected.into());
    let manifest = "[package]\nname = \"obol-left\"\n\n[dependencies]\nobol-low.workspace = true\nserde = \"1\"\n\n\
                    [dev-dependencies]\nobol-right.workspace = true\n";
    assert_eq!(dependencies(manifest), ["low"]);
}

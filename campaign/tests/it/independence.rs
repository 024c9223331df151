//! The oracle takes nothing but decoders, names and numbers from the crates that it judges: a rule that it
//! borrowed would be as wrong as theirs.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const CRATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// What the oracle names of `membership`.
const OF_MEMBERSHIP: &[&str] = &[
    "ActiveMutant",
    "Change",
    // What a leader shows of itself: for marks and cues.
    "Coordinator::is_leading",
    "Coordinator::proposes",
    "Kind",
    "Mutant",
    "Reason",
    "View",
    "consensus::INSTANCES",
    "consensus::SlotState",
    "consensus::SlotWord",
    "frame",
    "metrics::Counter",
    "recorder::EventKind",
    "recorder::Stamped",
];

/// What it names of `fabric`.
const OF_FABRIC: &[&str] = &[
    "Address",
    "Incarnation",
    "Instant",
    "Layout",
    "Name",
    "Nanos",
    "Page",
    "ViewId",
    "memory",
    "page",
    "page::load",
    "recorder",
];

/// Names of public functions of `membership`, and of the modules of `fabric` above, that the oracle calls: decoders, and what finds an entry of a
/// decided view.
const DECODERS: &[&str] = &[
    "acceptor",
    "copy_out",
    "decode_frame_for",
    "from_frame",
    "from_raw",
    "load",
    "member",
    "of_kind",
    "slot",
    "span",
    "state",
    "to_frame",
    // What processes show of themselves: it is judged.
    "coordinator",
    "has",
    "incarnation",
    "is_leading",
    "proposes",
    "view",
];

/// Names that functions of `membership` share with the oracle's own and with those of the standard library,
/// the simulator and the layout.
const SHARED: &[&str] = &[
    "check", "clear", "contains", "count", "died", "expire", "fenced", "follow", "get", "iter", "name",
    "new", "newest", "next", "of", "page", "position", "push", "raise", "range", "read", "request", "sum",
    "take",
];

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Where its first word ends.
fn word(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c| !is_word(c)).unwrap_or(text.len()))
}

/// A source without its comments and the unit tests at its end.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("a source");
    let text = text.split("#[cfg(test)]\nmod").next().unwrap_or_default();
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

fn sources(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(code(&path));
        }
    }
}

fn read(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    sources(&Path::new(CRATES).join(folder), &mut found);
    assert!(!found.is_empty(), "{folder} has sources");
    found
}

/// The paths of a tree such as `a::{b, c::{self, d}}`, and what follows it.
fn paths<'a>(tree: &'a str, before: &str, found: &mut BTreeSet<String>) -> &'a str {
    let tree = tree.trim_start();
    if let Some(mut rest) = tree.strip_prefix('{') {
        loop {
            rest = rest.trim_start_matches([',', ' ', '\n']);
            if let Some(rest) = rest.strip_prefix('}') {
                return rest;
            }
            assert!(!rest.is_empty(), "a tree ends");
            let left = rest.len();
            rest = paths(rest, before, found);
            assert!(rest.len() < left, "{rest}");
        }
    }
    let (name, rest) = word(tree);
    let path = match (before, name) {
        (before, "self") => before.to_owned(),
        ("", name) => name.to_owned(),
        (before, name) => format!("{before}::{name}"),
    };
    if let Some(deeper) = rest.strip_prefix("::") {
        return paths(deeper, &path, found);
    }
    found.insert(path);
    rest
}

/// What a source names of a crate.
fn named(source: &str, of: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in source.match_indices(of) {
        let (before, rest) = (&source[..at], &source[at + of.len()..]);
        if before.ends_with(is_word) || rest.starts_with(is_word) {
            continue;
        }
        let rest = rest.strip_prefix("::").unwrap_or_else(|| panic!("`{of}` is named in paths only"));
        paths(rest, "", &mut found);
    }
    found
}

/// The public functions of a source.
fn functions(source: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in source.match_indices("pub ") {
        let mut rest = &source[at + "pub ".len()..];
        while let Some(more) = ["const ", "unsafe "].iter().find_map(|kind| rest.strip_prefix(kind)) {
            rest = more;
        }
        found.extend(rest.strip_prefix("fn ").map(|rest| word(rest).0.to_owned()));
    }
    found
}

/// The functions that a source calls, or passes on.
fn called(source: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, mark) in source.match_indices(['.', ':']) {
        let (name, rest) = word(&source[at + 1..]);
        let is_path = mark == ":" && source[..at].ends_with(':');
        let is_call = rest.starts_with('(') || rest.starts_with("::<");
        if name.starts_with(char::is_lowercase) && (is_path || mark == "." && is_call) {
            found.insert(name.to_owned());
        }
    }
    found
}

/// What an oracle takes that it must not.
fn borrowed(oracle: &str, public: &BTreeSet<String>) -> Vec<String> {
    let lists = [("obol_membership", OF_MEMBERSHIP), ("obol_fabric", OF_FABRIC)];
    let names = lists.into_iter().flat_map(|(of, list)| {
        let known = move |path: &String| list.contains(&path.as_str());
        named(oracle, of)
            .into_iter()
            .filter(move |path| !known(path))
            .map(move |path| format!("{of}::{path}"))
    });
    let known = |name: &&String| DECODERS.contains(&name.as_str()) || SHARED.contains(&name.as_str());
    let calls = called(oracle);
    names.chain(calls.intersection(public).filter(|name| !known(name)).cloned()).collect()
}

#[test]
fn the_oracle_takes_only_decoders_names_and_numbers_from_what_it_judges() {
    let of_fabric = ["memory", "page", "recorder"].map(|module| format!("{CRATES}/fabric/src/{module}.rs"));
    let of_fabric = of_fabric.iter().map(|path| code(Path::new(path)));
    let judged: Vec<String> = read("membership/src").into_iter().chain(of_fabric).collect();
    let public: BTreeSet<String> = judged.iter().flat_map(|source| functions(source)).collect();
    let oracle = read("campaign/src/oracle");
    let found: Vec<String> = oracle.iter().flat_map(|source| borrowed(source, &public)).collect();
    assert!(found.is_empty(), "{found:?}: the oracle has to know it by itself");

    let all: BTreeSet<String> = oracle.iter().flat_map(|source| named(source, "obol_membership")).collect();
    let unused: Vec<_> = OF_MEMBERSHIP.iter().filter(|name| !all.contains(**name)).collect();
    assert!(unused.is_empty(), "{unused:?} are allowed for nothing");

    let catches = |source: &str, what: &[&str]| assert_eq!(borrowed(source, &public), what, "{source}");
    catches("let same = old.is_compatible(&view);", &["is_compatible"]);
    catches("views.all(View::is_compatible)", &["is_compatible"]);
    catches(
        "use obol_membership::{View, lease::{self, shortened}};",
        &["obol_membership::lease", "obol_membership::lease::shortened"],
    );
    catches("let reach = view\n    .reach();", &["reach"]);
    catches("obol_fabric::page::active(words)", &["obol_fabric::page::active", "active"]);
    catches("use obol_fabric::page;\nif page::active(words) {}", &["active"]);
    catches("use obol_fabric::{Nanos, ViewId, memory};\nuse obol_fabric_sim::State;", &[]);
}

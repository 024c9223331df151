//! Every good word that the program prints has a test in which it must not be said. Such a word stands in a
//! literal of the product's code, or is the name of a variant that is written by its name.

use crate::prose::{ROOT, files};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What operators read as: all is as it should be.
const WORDS: [&str; 14] = [
    "clean",
    "fine",
    "good",
    "healthy",
    "held",
    "holds",
    "ok",
    "okay",
    "passed",
    "passes",
    "ready",
    "resolved",
    "sound",
    "succeeded",
];

/// Each good word: the file, the phrase with it in a literal (or `Kind::Variant`), and a test that fails if it
/// is said of what is not so.
const EARNED: &[(&str, &str, &str)] = &[
    ("bench/src/lib.rs", "ok", "a_figure_is_ok_only_if_it_is_met"),
    (
        "chaos/src/drills/engine/journal.rs",
        "passed",
        "a_bound_does_not_hold_where_a_measured_failover_lacks_the_figure",
    ),
    ("chaos/src/drills/engine/journal.rs", "holds", "a_bound_holds_only_if_it_was_judged_and_found_to"),
    (
        "chaos/src/drills/report/postmortem.rs",
        "All that could be judged held",
        "everything_held_is_said_only_of_a_drill_that_passed_with_all_bounds_judged",
    ),
    (
        "chaos/src/drills/report/postmortem.rs",
        "Everything held",
        "everything_held_is_said_only_of_a_drill_that_passed_with_all_bounds_judged",
    ),
    ("chaos/src/drills/report/postmortem.rs", "held", "that_a_bound_or_a_probe_held_is_said_only_if_it_did"),
    (
        "chaos/src/drills/report/postmortem.rs",
        "held its bound",
        "that_a_bound_or_a_probe_held_is_said_only_if_it_did",
    ),
    ("chaos/src/drills/report/postmortem.rs", "holds", "that_a_bound_or_a_probe_held_is_said_only_if_it_did"),
    ("cli/src/commands/drill/files.rs", "holds", "a_steady_state_holds_only_if_its_probe_says_so"),
    ("cli/src/commands/host.rs", "is good", "a_host_whose_keys_are_faulty_is_not_good"),
    (
        "cli/src/commands/profile.rs",
        "is a good profile",
        "a_bad_profile_is_refused_with_line_and_column_and_leaves_nothing",
    ),
    (
        "cli/src/commands/upgrade.rs",
        "back, and the cluster healthy",
        "a_cluster_is_healthy_again_only_if_it_was_for_long_enough_with_the_process_back",
    ),
    (
        "console/src/screens/chaos.rs",
        "ok it may run",
        "a_drill_may_run_and_a_bound_holds_only_if_it_was_found_so",
    ),
    ("console/src/screens/chaos.rs", "holds", "a_drill_may_run_and_a_bound_holds_only_if_it_was_found_so"),
    ("console/src/screens/members.rs", "ok", "a_heartbeat_that_stands_still_is_not_said_to_be_ok"),
    ("console/src/screens/mod.rs", "ok", "healthy_is_not_said_of_a_cluster_that_is_not"),
    ("console/src/view/rollout.rs", "passed", "of_rollouts_that_ended_only_one_that_passed_is_green"),
    (
        "doctor/src/lib.rs",
        "{} good",
        "pauses_that_the_lease_does_not_outlast_are_a_warning_if_they_are_too_many",
    ),
    (
        "doctor/src/lib.rs",
        "Severity::Good",
        "pauses_that_the_lease_does_not_outlast_are_a_warning_if_they_are_too_many",
    ),
    ("export/src/server.rs", "ok", "an_exporter_that_is_not_alive_or_not_ready_does_not_say_ok"),
    (
        "fide/src/perfect/counterexamples.rs",
        "holds in every state",
        "what_was_not_searched_to_its_end_or_is_broken_is_not_said_to_hold_in_every_state",
    ),
    (
        "fide/src/perfect/counterexamples.rs",
        "holds in these states, which are not all",
        "what_was_not_searched_to_its_end_or_is_broken_is_not_said_to_hold_in_every_state",
    ),
    (
        "node/src/service.rs",
        "READY=1",
        "a_process_is_reported_ready_once_and_alive_before_each_limit_has_passed",
    ),
    ("observe/src/incidents/event.rs", "resolved", "an_alert_begins_and_ends_once"),
    (
        "observe/src/incidents/event.rs",
        "State::Resolved",
        "a_health_that_changes_to_and_fro_is_reported_once",
    ),
    ("observe/src/incidents/mod.rs", "passed", "a_rollout_begins_and_has_a_verdict_with_reasons"),
    ("observe/src/sampling/data.rs", "ok", "only_a_member_that_knows_the_newest_view_and_may_act_is_ok"),
    (
        "observe/src/snapshot.rs",
        "Health::Healthy",
        "a_program_that_was_killed_is_missed_until_it_is_back_or_forgotten",
    ),
    ("observe/src/table.rs", "ok", "ok_is_said_of_a_live_member_with_a_live_agent_and_a_lease_alone"),
    (
        "report/src/lib.rs",
        "healthy in every sample",
        "healthy_in_every_sample_is_said_only_of_a_report_without_outages_and_failovers",
    ),
    ("resp/src/lib.rs", "ok", "the_state_of_a_store_that_does_not_serve_is_not_ok"),
    ("resp/src/local.rs", "OK", "a_password_that_nobody_has_set_is_not_accepted"),
    ("rollout/src/lib.rs", "passed", "a_rollout_after_which_members_are_missing_fails_whatever_its_limits"),
    ("rollout/src/report.rs", "holds", "a_limit_holds_only_if_it_was_judged_and_found_to"),
    ("smr/src/keys/commands.rs", "OK", "commands_whose_replies_have_no_room_are_not_executed"),
];

/// Phrases in which the word judges nothing, and the files with them: what holds a thing, what is not yet so, and
/// what exit codes mean.
const PLAIN: &[(&str, &str)] = &[
    ("", "for good"),
    ("", "not healthy"),
    ("", "holds a"),
    ("", "holds an"),
    ("", "holds it"),
    ("", "holds no"),
    ("", "holds the"),
    ("", "holds view"),
    ("", "holds other"),
    ("", "be held"),
    ("", "healthy process"),
    ("", "healthy processes"),
    ("", "until the cluster is healthy"),
    ("bench/src/kv/peers.rs", "+OK"),
    ("campaign/src/papers/", "a majority holds"),
    ("campaign/src/papers/", "passes"),
    ("campaign/src/papers/", "passed on"),
    ("chaos/src/drillfile/read.rs", "the largest count that passes"),
    ("chaos/src/drillfile/schema.rs", "if `when` holds"),
    ("chaos/src/drills/agent/lock.rs", "it holds {0}"),
    ("chaos/src/drills/studies/tuning.rs", "{CLEAN_STEPS} good ones"),
    ("cli/src/commands/", "0 passed"),
    ("cli/src/commands/", "0 it holds"),
    ("cli/src/commands/", "0 the cluster is healthy afterwards"),
    ("cli/src/commands/", "0  healthy"),
    ("cli/src/commands/", "0 done or healthy"),
    ("cli/src/commands/", "passed on"),
    ("cli/src/commands/", "and the cluster is healthy"),
    ("cli/src/commands/", "must be healthy"),
    ("cli/src/commands/", "`obol host clean`"),
    ("cli/src/commands/", "host clean"),
    ("cli/src/commands/down.rs", "its directory holds votes"),
    ("cli/src/commands/log.rs", "A change holds until"),
    ("cli/src/commands/drill/files.rs", "A halt holds until"),
    ("cli/src/commands/rollout.rs", "as it was before: healthy"),
    ("console/src/screens/members.rs", "ok; ~ joining"),
    ("console/src/screens/members.rs", "ok, or for how long"),
    ("doctor/src/lib.rs", "select(.severity != \"good\")"),
    ("membership/src/lease.rs", "a CLEAR holds for ever"),
    ("node/src/endpoint.rs", "What its memory holds"),
    ("observe/src/stats.rs", "held by a test"),
    ("observe/src/warnings.rs", "though they are healthy"),
    ("profiles/src/keys.rs", "counting holds"),
    ("resp/src/connection.rs", "+OK"),
    ("resp/src/long.rs", "+OK"),
    ("supervise/src/down.rs", "`obol host clean FILE`"),
    ("supervise/src/down.rs", "The kernel holds them"),
    ("supervise/src/run/mod.rs", "has never succeeded"),
    ("supervise/src/upgrade.rs", "has not been healthy for long enough"),
];

/// A source without comments and without what is compiled for tests alone.
#[derive(Default)]
struct Source {
    /// All but the contents of literals, a quotation mark for each.
    code: String,
    /// Line and text of each literal.
    literals: Vec<(usize, String)>,
    /// Modules of other files that are compiled for tests alone.
    test_modules: Vec<String>,
}

impl Source {
    fn parse(text: &str) -> Self {
        let mut all = Self::default();
        all.split(text);
        all.drop_tests();
        all
    }

    /// Separates literals from code, and drops comments.
    fn split(&mut self, text: &str) {
        let chars: Vec<char> = text.chars().collect();
        let at = |n: usize| chars.get(n).copied().unwrap_or('\0');
        let (mut n, mut line) = (0, 1);
        while n < chars.len() {
            let begin = n;
            match at(n) {
                '/' if at(n + 1) == '/' => n += chars[n..].iter().take_while(|c| **c != '\n').count(),
                '/' if at(n + 1) == '*' => {
                    n += 2;
                    while n < chars.len() && !(at(n) == '*' && at(n + 1) == '/') {
                        n += 1;
                    }
                    n += 2;
                }
                '"' => {
                    let mut said = String::new();
                    n += 1;
                    while n < chars.len() && at(n) != '"' {
                        let is_escape = at(n) == '\\';
                        n += usize::from(is_escape);
                        match at(n) {
                            // The line goes on behind the blanks of the next one.
                            '\n' if is_escape => {
                                while at(n + 1).is_whitespace() {
                                    n += 1;
                                }
                            }
                            '"' | '\\' if is_escape => said.push(at(n)),
                            _ if is_escape => said.push(' '),
                            c => said.push(c),
                        }
                        n += 1;
                    }
                    n += 1;
                    self.add(line, said);
                }
                // A character, not a lifetime.
                '\'' if at(n + 1) == '\\' => {
                    n += 3;
                    n += chars[n.min(chars.len())..].iter().take_while(|c| **c != '\'').count() + 1;
                }
                '\'' if at(n + 2) == '\'' => n += 3,
                c if is_of_word(c) => {
                    n += chars[n..].iter().take_while(|c| is_of_word(**c)).count();
                    let word: String = chars[begin..n].iter().collect();
                    let marks = chars[n..].iter().take_while(|c| **c == '#').count();
                    if matches!(&*word, "r" | "br" | "cr") && at(n + marks) == '"' {
                        let end: Vec<char> = std::iter::once('"').chain("#".repeat(marks).chars()).collect();
                        let from = n + marks + 1;
                        let len = chars[from..].windows(end.len()).position(|part| part == end);
                        let len = len.expect("a raw literal ends");
                        self.add(line, chars[from..from + len].iter().collect());
                        n = from + len + end.len();
                    } else {
                        self.code.push_str(&word);
                    }
                }
                c => {
                    self.code.push(c);
                    n += 1;
                }
            }
            line += chars[begin..n.min(chars.len())].iter().filter(|c| **c == '\n').count();
        }
    }

    fn add(&mut self, line: usize, said: String) {
        self.code.push('"');
        self.literals.push((line, said));
    }

    /// Drops the items behind `#[cfg(test)]`.
    fn drop_tests(&mut self) {
        const FOR_TESTS: &str = "#[cfg(test)]";
        while let Some(from) = self.code.find(FOR_TESTS) {
            let (mut depth, mut to) = (0, self.code.len());
            for (n, c) in self.code[from + FOR_TESTS.len()..].char_indices() {
                match c {
                    '(' | '[' | '{' => depth += 1,
                    ')' | ']' | '}' => depth -= 1,
                    _ => {}
                }
                if depth == 0 && matches!(c, '}' | ';') {
                    to = from + FOR_TESTS.len() + n + 1;
                    break;
                }
            }
            let item = &self.code[from + FOR_TESTS.len()..to];
            if let Some(name) = item.trim().strip_suffix(';').and_then(|item| item.rsplit_once("mod ")) {
                self.test_modules.push(name.1.to_owned());
            }
            let marks = |code: &str| code.matches('"').count();
            let first = marks(&self.code[..from]);
            let n = marks(&self.code[from..to]);
            self.literals.drain(first..first + n);
            self.code.replace_range(from..to, "");
        }
    }

    /// The variants of enums that are written by their names.
    fn named_variants(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (at, _) in self.code.match_indices("enum ") {
            let before = &self.code[..at];
            let attributes = before.rfind([';', '}']).map_or(before, |end| &before[end..]);
            let is_named =
                ["Serialize", "IntoStaticStr", "ValueEnum"].iter().any(|one| attributes.contains(one));
            let Some((head, rest)) = self.code[at + 5..].split_once('{').filter(|_| is_named) else {
                continue;
            };
            let kind = head.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            let mut depth = 0;
            for part in rest.split_inclusive([',', '(', ')', '{', '}', '[', ']']) {
                let name = part.trim_matches(|c: char| !c.is_alphanumeric());
                if depth == 0 && is_good(&name.to_lowercase()) {
                    found.push(format!("{kind}::{name}"));
                }
                match part.chars().next_back() {
                    Some('(' | '{' | '[') => depth += 1,
                    Some(')' | '}' | ']') => depth -= 1,
                    _ => {}
                }
                if depth < 0 {
                    break;
                }
            }
        }
        found
    }
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn is_good(word: &str) -> bool {
    WORDS.contains(&word)
}

/// Whether a text has a good word. The name of a value in braces is not printed.
fn has_good_word(text: &str) -> bool {
    let mut from = 0;
    text.split(|c| !is_of_word(c)).any(|word| {
        let at = from;
        from += word.len() + text[at + word.len()..].chars().next().map_or(0, char::len_utf8);
        is_good(&word.to_lowercase()) && !text[..at].ends_with('{')
    })
}

/// A text without a phrase, wherever it stands as whole words; whether it was there.
fn without(text: &str, phrase: &str) -> (String, bool) {
    let (mut kept, mut rest, mut was_there) = (String::new(), text, false);
    while let Some(at) = rest.find(phrase) {
        let (before, after) = (&rest[..at], &rest[at + phrase.len()..]);
        let is_whole = !before.ends_with(is_of_word) && !after.starts_with(is_of_word);
        kept.push_str(before);
        kept.push_str(if is_whole { "|" } else { phrase });
        (rest, was_there) = (after, was_there || is_whole);
    }
    (kept + rest, was_there)
}

/// The names of all tests in a text.
fn tests_in(text: &str) -> impl Iterator<Item = String> {
    text.split("#[test]").skip(1).filter_map(|item| {
        let (_, item) = item.split_once("fn ")?;
        Some(item.split('(').next()?.to_owned())
    })
}

#[test]
fn every_good_word_that_is_printed_has_a_test_in_which_it_must_not_be_said() {
    let mut all = Vec::new();
    files(Path::new(ROOT), &mut all);
    all.retain(|path| path.extension().is_some_and(|ending| ending == "rs"));
    all.sort_unstable();
    let (mut tests, mut sources, mut for_tests) = (BTreeSet::new(), Vec::new(), BTreeSet::<PathBuf>::new());
    for path in all {
        let text = fs::read_to_string(&path).expect("text");
        tests.extend(tests_in(&text));
        let place = path.strip_prefix(ROOT).unwrap_or(&path).to_owned();
        let is_product = place.components().nth(1).is_some_and(|part| part.as_os_str() == "src");
        if !is_product || place.starts_with("tests") {
            continue;
        }
        let source = Source::parse(&text);
        let is_root = ["lib.rs", "main.rs", "mod.rs"].iter().any(|name| place.ends_with(name));
        let folder =
            if is_root { place.parent().expect("a folder").to_owned() } else { place.with_extension("") };
        for name in &source.test_modules {
            for_tests.insert(folder.join(name));
        }
        sources.push((place, source));
    }
    assert!(sources.len() > 300, "{} files were read", sources.len());
    let (mut said, mut wrong) = (BTreeSet::new(), Vec::new());
    for (place, source) in sources {
        if for_tests.iter().any(|path| place.starts_with(path) || place == path.with_extension("rs")) {
            continue;
        }
        let name = place.to_str().expect("text").to_owned();
        let mut heard = |at: String, text: &str| {
            let plain = PLAIN.iter().map(|(of, phrase)| (name.starts_with(of), *phrase));
            // A lone word is earned where it is all that is said, or each later sentence of the file would be.
            let is_earned = |of: &str, phrase: &str| {
                let all = text.trim_matches(|c: char| !is_of_word(c));
                name == of && (!is_good(&phrase.to_lowercase()) || all == phrase)
            };
            let earned = EARNED.iter().map(|(of, phrase, _)| (is_earned(of, phrase), *phrase));
            let mut left = text.to_owned();
            for (n, (_, phrase)) in plain.chain(earned).enumerate().filter(|(_, (is_of_here, _))| *is_of_here)
            {
                let (rest, was_there) = without(&left, phrase);
                left = rest;
                if was_there {
                    said.insert(n);
                }
            }
            if has_good_word(&left) {
                wrong.push(format!("{at}: {text:?}"));
            }
        };
        for variant in source.named_variants() {
            heard(name.clone(), &variant);
        }
        for (line, text) in &source.literals {
            heard(format!("{name}:{line}"), text);
        }
    }
    assert!(
        wrong.is_empty(),
        "add a test in which it must not be said to EARNED, or a phrase that judges nothing to PLAIN:\n{}",
        wrong.join("\n")
    );
    let earned = EARNED.iter().map(|(of, phrase, _)| (of, phrase));
    let phrases = PLAIN.iter().map(|(of, phrase)| (of, phrase)).chain(earned);
    let stale: Vec<_> =
        phrases.enumerate().filter(|(n, _)| !said.contains(n)).map(|(_, entry)| entry).collect();
    assert!(stale.is_empty(), "no such phrase is left: {stale:?}");
    let untested: Vec<_> = EARNED.iter().filter(|(_, _, test)| !tests.contains(*test)).collect();
    assert!(untested.is_empty(), "there is no such test: {untested:?}");
}

#[test]
fn a_good_word_is_found_wherever_it_is_printed() {
    let of = |text: &str| {
        let source = Source::parse(text);
        let literals = source.literals.iter().filter(|(_, text)| has_good_word(text));
        let lines: Vec<String> = literals.map(|(line, _)| line.to_string()).collect();
        [lines, source.named_variants()].concat()
    };
    for (text, found) in [
        ("f(\"all is\\nhealthy\")", &["1"][..]),
        ("\n// \"ok\"\nf(\"Ok: {n}\")", &["3"]),
        ("f('\"', \"x\", '\\'', \"holds\")", &["1"]),
        ("fn f<'a>() -> &'a str { r#\"a \"good\" one\"# }", &["1"]),
        ("f(\"a \\\n    b\");\nf(b\"+OK\\r\\n\")", &["3"]),
        ("f(\"{ok} of {holds:>3}, was_healthy, Token, looks\")", &[]),
        ("#[cfg(test)]\nmod tests {\n fn f(a: [u8; 2]) { g(\"ok\") }\n}\nf(\"ok\")", &["5"]),
        ("#[cfg(test)]\n#[allow(x)]\nuse a::{b, c};\nf(\"ok\")", &["4"]),
        ("#[derive(Serialize)]\nenum A { Bad, Good(u8), Healthy }", &["A::Good", "A::Healthy"]),
        ("#[derive(Debug)]\nenum A { Ok }\nstruct B { a: Serialize }", &[]),
    ] {
        assert_eq!(of(text), found, "{text}");
    }
    assert_eq!(Source::parse("#[cfg(test)]\nmod a;\nmod b;").test_modules, ["a"]);
    assert_eq!(without("is not ok, took", "not ok"), ("is |, took".to_owned(), true));
    assert_eq!(without("took", "ok"), ("took".to_owned(), false));
}

//! Where a name exists that was typed in the wrong place.

use clap::Command;
use obol_chaos::drillfile;
use obol_chaos::drills::studies::table2;
use std::ffi::OsString;

/// The lines that `name` may have been meant for: commands of this name, those that take it as a word
/// of a list, and those that take it as the name of a built-in drill or profile.
pub(crate) fn elsewhere(whole: &Command, name: &str) -> Vec<String> {
    let mut lines = Vec::new();
    below(whole, "", name, &mut lines);
    if name == table2::NAME || drillfile::shipped().any(|drill| drill.name == name) {
        lines.push(format!("obol drill run {name}"));
    }
    if obol_profiles::BUILTIN.contains(&name) {
        lines.push(format!("obol profile show {name}"));
    }
    lines
}

fn below(command: &Command, path: &str, name: &str, lines: &mut Vec<String>) {
    for one in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        let path = format!("{path} {}", one.get_name());
        // `coordinator-replace` is `coordinator replace`.
        if one.get_name() == name || path.trim_start().replace(' ', "-") == name {
            lines.push(format!("obol{path}"));
        }
        let words = one.get_positionals().flat_map(|word| word.get_possible_values());
        if words.filter(|word| !word.is_hide_set()).any(|word| word.get_name() == name) {
            lines.push(format!("obol{path} {name}"));
        }
        below(one, &path, name, lines);
    }
}

/// The command line with `coordinator-replace` as its command read as `coordinator replace`.
pub(super) fn in_two_words(whole: &Command, mut line: Vec<OsString>) -> Vec<OsString> {
    let word = line.get(1).and_then(|word| word.to_str()).unwrap_or_default();
    let words = whole.get_subcommands().find_map(|one| {
        let rest = word.strip_prefix(one.get_name())?.strip_prefix('-')?;
        let below = one.find_subcommand(rest).filter(|below| !below.is_hide_set())?;
        Some([one.get_name().into(), below.get_name().into()])
    });
    if let Some(words) = words {
        line.splice(1..2, words);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::root::command;

    #[test]
    fn a_name_leads_to_the_commands_that_have_it() {
        for (name, wanted) in [
            ("freeze", &["obol drill run freeze"][..]),
            ("replace", &["obol coordinator replace"]),
            ("coordinator-replace", &["obol coordinator replace", "obol drill run coordinator-replace"]),
            ("leader", &["obol drill leader"]),
            ("app", &["obol drill app", "obol drill run app"]),
            ("laptop", &["obol profile show laptop"]),
            ("zsh", &["obol completions zsh"]),
            // They are the supervisor's.
            ("lease-cache", &[]),
            ("fault-agent", &[]),
            ("nothing", &[]),
        ] {
            assert_eq!(elsewhere(&command(), name), wanted, "{name}");
        }
    }

    #[test]
    fn a_command_of_two_words_may_have_a_hyphen() {
        let of = |line: &str| {
            let read = in_two_words(&command(), line.split(' ').map(OsString::from).collect());
            read.join(" ".as_ref()).into_string().expect("text")
        };
        assert_eq!(of("obol coordinator-replace 3"), "obol coordinator replace 3");
        for other in
            ["obol", "obol drill run coordinator-replace", "obol coordinator-nothing", "obol coordinator-run"]
        {
            assert_eq!(of(other), other);
        }
    }
}

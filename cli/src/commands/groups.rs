//! The groups in which `obol --help` shows the commands: clap has one list.

use clap::Command;
use clap::builder::StyledStr;
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _};

/// Where no terminal says how wide it is, and at most. As for all other help.
const WIDTH_MAX: usize = 100;
const WIDTH_MIN: usize = 40;
/// Before a name, and between it and what the command does.
const INDENT: usize = 2;

const GROUPS: [(&str, &[&str]); 8] = [
    ("Run a cluster", &["up", "run", "start", "stop", "kill", "forget", "down"]),
    ("Watch it", &["console", "status", "events", "logs", "watch", "report", "record", "replay"]),
    ("Change it", &["coordinator", "lease", "log", "mark", "upgrade", "rollout"]),
    ("Break it on purpose", &["drill"]),
    ("Store data", &["kv", "smr"]),
    ("Connect other systems", &["export", "hooks", "shadow"]),
    ("Prepare hosts", &["doctor", "tune", "profile", "host", "plan", "fabric", "detector"]),
    ("Measure, prove, and the shell", &["bench", "sim", "config", "completions", "man", "help"]),
];

/// How wide the help may be. Only a terminal that shows it is asked: without one, the library would run
/// another program.
pub(super) fn width() -> usize {
    let shown = io::stdout().is_terminal().then(crossterm::terminal::window_size);
    let columns = shown.and_then(Result::ok).map(|size| usize::from(size.columns));
    columns.filter(|columns| *columns > 0).unwrap_or(WIDTH_MAX)
}

/// The help of `obol` itself, for [`Command::help_template`].
pub(super) fn template(command: &Command, width: usize) -> StyledStr {
    let (header, literal) = (command.get_styles().get_header(), command.get_styles().get_literal());
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    let names = GROUPS.iter().flat_map(|(_, names)| *names);
    let column = INDENT + names.map(|name| name.len()).max().unwrap_or_default() + INDENT;
    for (heading, names) in GROUPS {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n{header}{heading}:{header:#}\n");
        for name in names {
            let about = match command.find_subcommand(name).and_then(Command::get_about) {
                Some(about) => about.to_string(),
                None => "Print this message, or the help of a command".to_owned(),
            };
            let lines = wrapped(&about, width.clamp(WIDTH_MIN, WIDTH_MAX) - column);
            let gap = column - INDENT - name.len();
            let _ = write!(text, "{:INDENT$}{literal}{name}{literal:#}{:gap$}", "", "");
            let _ = writeln!(text, "{}", lines.join(&format!("\n{:column$}", "")));
        }
    }
    let _ = write!(text, "\n{header}Options:{header:#}\n{{options}}{{after-help}}");
    text.into()
}

/// Words on lines of at most this width, if they fit.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let Some(line) = lines.last_mut() else { break };
        if line.is_empty() {
            line.push_str(word);
        } else if line.len() + 1 + word.len() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let command = crate::commands::root::command();
        let mut named: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let mut shown: Vec<&str> =
            command.get_subcommands().filter(|one| !one.is_hide_set()).map(Command::get_name).collect();
        shown.push("help");
        named.sort_unstable();
        shown.sort_unstable();
        shown.dedup();
        assert_eq!(named, shown);
    }

    #[test]
    fn lines_are_as_wide_as_they_may_be() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("unbreakable", 4), ["unbreakable"]);
        assert_eq!(wrapped("", 4), [""]);
    }
}

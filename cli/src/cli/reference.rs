//! What the command line says of itself, against the files in `reference/`: every `--help`, and the
//! schema of the console's configuration.
//!
//! What was changed on purpose: `OBOL_BLESS=1 cargo test --release -p obol cli`, then read the
//! difference.

use crate::commands::root::command_as_wide_as;
use clap::Command;
use std::fmt::Write as _;
use std::path::PathBuf;

/// As wide as help is where there is no terminal.
const WIDTH: usize = 100;

fn holds(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("src/cli/reference/{name}"));
    if std::env::var_os("OBOL_BLESS").is_some() {
        std::fs::write(&path, text).expect("the folder is there");
        return;
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = kept.lines().zip(text.lines()).enumerate().find(|(_, (kept, now))| kept != now);
    let (line, (kept_line, now)) =
        differs.unwrap_or((kept.lines().count().min(text.lines().count()), ("", "")));
    assert!(
        kept == text,
        "{} is not what obol says, from line {} on:\n  kept  {kept_line}\n  now   {now}\nif it is meant: \
         OBOL_BLESS=1 cargo test --release -p obol cli",
        path.display(),
        line + 1
    );
}

/// A command and those below it that operators see.
fn walk(command: &Command, visit: &mut impl FnMut(&Command)) {
    visit(command);
    let below = command.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name() != "help");
    below.for_each(|one| walk(one, visit));
}

fn built() -> Command {
    let mut command = command_as_wide_as(WIDTH).term_width(WIDTH).disable_help_subcommand(true);
    command.build();
    command
}

#[test]
fn the_help_of_every_command_is_as_it_is_kept() {
    let mut all = String::new();
    walk(&built(), &mut |command| {
        let mut command = command.clone();
        let name = command.get_bin_name().unwrap_or("obol").to_owned();
        writeln!(all, "$ {name} --help\n{}", command.render_help()).expect("a string");
    });
    holds("help.txt", &all);
}

#[test]
fn the_schema_of_the_configuration_is_as_it_is_kept() {
    let schema = serde_json::to_string_pretty(&obol_console::config::schema::schema()).expect("JSON");
    holds("config.schema.json", &(schema + "\n"));
}

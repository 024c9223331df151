//! The command `obol` itself: its subcommands, and what all of them share.

use super::groups;
use clap::builder::Resettable;
use clap::{Arg, Args, Command, Parser};
use std::ffi::OsStr;
use std::path::PathBuf;

/// Membership for microsecond clusters: leases, failovers and drills
#[derive(Debug, Parser)]
#[command(name = "obol", version, max_term_width = 100, arg_required_else_help = true)]
#[command(
    after_help = "`obol up` starts a whole cluster of real processes on this host and shows it live. The other \
    commands work on a cluster that runs; they read its memory without asking its processes.\n\
    \nExit codes: 0 done or healthy, 1 degraded or failed, 2 unreachable or refused, 3 unavailable (no program may act), \
    4 unknown (hosts cannot be read), 7 the output could not be written.\
    \nEnvironment: OBOL_CLUSTER and OBOL_ROOT set the defaults of --cluster and --root, OBOL_CONFIG that of the console's --config; NO_COLOR turns colours off."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    #[command(subcommand)]
    pub(crate) command: super::Command,
}

/// The cluster that is meant where none is named.
pub(crate) const DEFAULT: &str = "default";

/// Heads the options of the commands that work on a cluster.
const HEADING: &str = "Cluster options";

/// Commands that work on no cluster. Their help leaves out the cluster options, which they accept.
const WITHOUT_CLUSTER: [&str; 15] = [
    "replay",
    "drill list",
    "drill show",
    "drill schema",
    "drill audit",
    "sim",
    "profile",
    "config",
    "fabric",
    "host example",
    "host check",
    "host keys",
    "detector",
    "man",
    "completions",
];

/// Commands that make clusters of their own, or learn a cluster's name from a file.
const WITHOUT_NAME: [&str; 3] = ["bench", "host prepare", "host clean"];

/// The options that every command has.
#[derive(Clone, Debug, Args)]
pub(crate) struct ClusterArgs {
    /// Name of the cluster; several can run side by side
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        default_value = DEFAULT,
        env = "OBOL_CLUSTER",
        hide_env = true,
        help_heading = HEADING
    )]
    pub(crate) cluster: obol_fabric::Name,
    /// Directory that holds the clusters of this host [default: /dev/shm/obol-UID]
    #[arg(long, global = true, value_name = "DIR", env = "OBOL_ROOT", hide_env = true, help_heading = HEADING)]
    pub(crate) root: Option<PathBuf>,
}

/// The command line. What it reads is the same for all commands; only the help differs.
pub(crate) fn command() -> Command {
    command_as_wide_as(groups::width())
}

/// The same, with help of this width.
pub(crate) fn command_as_wide_as(width: usize) -> Command {
    let command = <Cli as clap::CommandFactory>::command();
    let command = without_empty_variables(command);
    let hidden: Vec<Arg> = command.get_arguments().map(|option| option.clone().hide(true)).collect();
    let command = hide_cluster_options(command, "", &hidden);
    let template = groups::template(&command, width);
    command.help_template(template)
}

/// An environment variable that is empty is as good as none, for every option.
fn without_empty_variables(command: Command) -> Command {
    let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    command
        .mut_args(|option| match option.get_env().is_some_and(is_empty) {
            true => option.env(Resettable::Reset),
            false => option,
        })
        .mut_subcommands(without_empty_variables)
}

/// Hides the cluster options of the commands below this one that do not use them.
fn hide_cluster_options(command: Command, path: &str, hidden: &[Arg]) -> Command {
    command.mut_subcommands(|below| {
        let path = format!("{path} {}", below.get_name());
        let is_in = |list: &[&str]| list.contains(&path.trim_start());
        let unused =
            |option: &&Arg| is_in(&WITHOUT_CLUSTER) || is_in(&WITHOUT_NAME) && option.get_id() == "cluster";
        // An option that a command has itself is not inherited.
        let below = below.args(hidden.iter().filter(unused).cloned());
        hide_cluster_options(below, &path, hidden)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn commands_without_a_cluster_accept_the_options_and_do_not_show_them() {
        let mut all = command();
        all.build();
        for path in WITHOUT_CLUSTER.iter().chain(&WITHOUT_NAME) {
            let mut at = &mut all;
            for name in path.split(' ') {
                at = at.find_subcommand_mut(name).expect("a command");
            }
            let help = at.render_help().to_string();
            assert!(!help.contains("--cluster <NAME>"), "{help}");
            assert_eq!(help.contains("--root <DIR>"), WITHOUT_NAME.contains(path), "{help}");
        }
        assert!(command().try_get_matches_from(["obol", "sim", "table2", "--cluster", "x"]).is_ok());
        let set = command().try_get_matches_from(["obol", "drill", "list", "--root", "/x"]).expect("valid");
        assert_eq!(set.get_one::<PathBuf>("root").map(|root| root.as_path()), Some("/x".as_ref()));
    }
}

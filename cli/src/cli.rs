//! The command line: what all commands share, and how it is read.

mod daemon;
#[cfg(test)]
mod reference;

use crate::commands;
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Args, Command, FromArgMatches, Parser};
use daemon::Daemon;
use obol_fabric::Nanos;
use obol_observe::plain;
use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Membership for microsecond clusters: leases, failovers and drills
#[derive(Debug, Parser)]
#[command(name = "obol", version, max_term_width = 100, arg_required_else_help = true)]
#[command(
    after_help = "`obol up` starts a whole cluster of real processes on this host and shows it live. The other \
    commands work on a cluster that runs; they read its memory without asking its processes.\n\
    \nExit codes: 0 done or healthy, 1 degraded or failed, 2 unreachable or refused, 3 unavailable (no program may act).\
    \nEnvironment: OBOL_CLUSTER and OBOL_ROOT set the defaults of --cluster and --root, OBOL_CONFIG that of the console's --config; NO_COLOR turns colours off."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    #[command(subcommand)]
    pub(crate) command: commands::Command,
}

/// The cluster that is meant where none is named.
pub(crate) const DEFAULT: &str = "default";

/// Heads the options of the commands that work on a cluster.
const HEADING: &str = "Cluster options";

/// Commands that work on no cluster. Their help leaves out the cluster options, which they accept.
const WITHOUT_CLUSTER: [&str; 14] = [
    "replay",
    "drill list",
    "drill show",
    "drill schema",
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
const WITHOUT_NAME: [&str; 4] = ["tune", "bench", "host prepare", "host clean"];

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

impl Cli {
    /// Reads the command line, or says what is wrong with it and ends the process.
    pub(crate) fn read() -> Self {
        if let Some(daemon) = Daemon::read() {
            return daemon;
        }
        let command = command().color(colours());
        let parsed = command.clone().try_get_matches();
        parsed.and_then(|found| Self::from_arg_matches(&found)).unwrap_or_else(|mut error| {
            let shown =
                |name: &String| command.find_subcommand(name).is_none_or(|found| !found.is_hide_set());
            // The library would list the daemons' commands, too, and propose them for a mistyped
            // one.
            for kind in [ContextKind::ValidSubcommand, ContextKind::SuggestedSubcommand] {
                match error.remove(kind) {
                    Some(ContextValue::Strings(mut names)) => {
                        names.retain(shown);
                        if !names.is_empty() {
                            error.insert(kind, ContextValue::Strings(names));
                        }
                    }
                    Some(other) => drop(error.insert(kind, other)),
                    None => {}
                }
            }
            // What was typed may come from a file, and the library repeats it as it is.
            let shown = error.render().to_string();
            if let Cow::Owned(neutral) = plain::lines(&shown) {
                // The exit code counts if the text cannot be written.
                let _ = obol_console::output::remark(neutral.trim_end());
                std::process::exit(error.exit_code());
            }
            error.exit()
        })
    }
}

/// The command line. What it reads is the same for all commands; only the help differs.
pub(crate) fn command() -> Command {
    let command = <Cli as clap::CommandFactory>::command();
    let hidden: Vec<Arg> = command.get_arguments().map(|option| option.clone().hide(true)).collect();
    hide_cluster_options(command, "", &hidden)
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

/// Whether help and errors may be coloured. Left to itself, the library also colours on terminals
/// that know no escape codes as soon as the variable CI is set.
fn colours() -> clap::ColorChoice {
    match std::env::var_os("TERM") {
        Some(term) if term == "dumb" => clap::ColorChoice::Never,
        _ => clap::ColorChoice::Auto,
    }
}

/// A time with its unit.
pub(crate) fn span(text: &str) -> Result<Nanos, String> {
    obol_profiles::duration::parse(text).map_err(|error| error.to_string())
}

/// An address with or without the port of the first coordinator.
pub(crate) fn listen(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, obol_node::network::PORT));
    address
        .or_else(|_| text.parse())
        .map_err(|_| "an address looks like 10.1.0.1, or 10.1.0.1:7471".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_console::options::duration;
    use std::time::Duration;

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

    #[test]
    fn an_address_may_have_a_port() {
        assert_eq!(listen("10.1.0.1"), Ok(SocketAddr::from(([10, 1, 0, 1], 7471))));
        assert_eq!(listen("10.1.0.1:80"), Ok(SocketAddr::from(([10, 1, 0, 1], 80))));
        assert_eq!(listen("fd00::1").map(|at| at.port()), Ok(7471));
        assert!(listen("host").is_err());
    }

    #[test]
    fn times_need_a_unit() {
        assert_eq!(duration("20s"), Ok(Duration::from_secs(20)));
        assert_eq!(duration("1.5ms"), Ok(Duration::from_micros(1500)));
        assert!(duration("20").is_err());
        assert!(duration("20d").is_err());
        assert!(duration("0s").is_err());
    }
}

//! `obol run`: any program as a member, without a change to it; and the hidden commands that it starts.

use super::drill::DrillKind;
use crate::logging::LogOptions;
use clap::{Args, ValueEnum};
use obol_config::duration;
use obol_fabric::Name;
use obol_supervise::run::{self, Options, Policy};
use obol_term::output::Failure;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Run an unmodified program as a member
#[derive(Debug, Args)]
#[command(
    after_help = "The program is removed from the view when it dies, is frozen, or fails its health command. A \
    frozen program is killed before it could resume in a role that another has taken. Signals and the exit code are passed on. \
    What the program leaves behind is killed.\n\
    \nThe program, its hooks and its health command find OBOL_NAME, OBOL_NODE, OBOL_CLUSTER and OBOL_ROOT in their \
    environment; hooks also OBOL_INCARNATION, OBOL_VIEW and OBOL_MEMBERS (the apps of the view, oldest first), and \
    OBOL_LOST (why) when the membership is lost or given up.\n\
    \nSIGTERM and SIGINT are passed on to the program. It has --grace to end, then it is killed with all that it \
    started; a second signal kills at once. The member leaves after that, when nothing of the program runs any more.\n\
    \nTry:\n  obol run --name cache-1 --node node-1 --shell --on-view 'echo view $OBOL_VIEW: $OBOL_MEMBERS' -- sleep 60\n\
    \nExit codes: the program's, as a shell reports it: 128 and the signal, 126 not executable, 127 not found; \
    2 no such cluster or agent, or its name is taken."
)]
pub(crate) struct Run {
    /// The name that the program has in the cluster
    #[arg(long)]
    name: Name,
    /// The agent that it belongs to; may be left out where this host has just one
    #[arg(long, value_name = "AGENT")]
    node: Option<Name>,
    /// A program to execute whenever a view with this member becomes active
    #[arg(long, value_name = "HOOK")]
    on_view: Option<OsString>,
    /// A program to execute when the membership is lost, and before it is given up when the program
    /// was asked to end. Without one the program is killed when the membership is lost
    #[arg(long, value_name = "HOOK")]
    on_lost: Option<OsString>,
    /// Start this once and send it view and lost events as lines on its standard input: "view ID
    /// INCARNATION MEMBER.." and "lost ID INCARNATION WHY"
    #[arg(long, alias = "views-to", value_name = "HOOK")]
    hook_stream: Option<OsString>,
    /// How long the program has to end after SIGTERM or SIGINT; then it is killed with all that it
    /// started. A second signal kills at once
    #[arg(long, value_name = "TIME", value_parser = duration::argument, default_value = "10s")]
    grace: Duration,
    /// Do not use a control group, even where one could be made
    #[arg(long, hide = true)]
    no_group: bool,
    /// Hooks and the health command are lines for /bin/sh, not programs
    #[arg(long)]
    shell: bool,
    /// A hook or health command that takes longer is killed
    #[arg(long, value_name = "TIME", value_parser = duration::argument, default_value = "5s")]
    hook_timeout: Duration,
    /// A program that checks the health; the member joins after its first success, however long
    /// that takes
    #[arg(long, value_name = "COMMAND")]
    health: Option<OsString>,
    /// How often the health command is executed
    #[arg(long, value_name = "TIME", value_parser = duration::argument, default_value = "1s", requires = "health")]
    health_every: Duration,
    /// Kill the program after this many consecutive failures of it, once it has succeeded
    #[arg(long, value_name = "N", default_value_t = 3, requires = "health", value_parser = clap::value_parser!(u32).range(1..))]
    health_failures: u32,
    /// When the program is restarted after it has ended
    #[arg(long, value_enum, default_value_t = Restart::Never)]
    restart: Restart,
    /// Delay of the first restart; doubles with each one
    #[arg(long, alias = "restart-pause", value_name = "TIME", value_parser = duration::argument, default_value = "100ms")]
    restart_backoff: Duration,
    /// The longest delay; reset to the first one when the program has run for as long
    #[arg(long, alias = "restart-pause-max", value_name = "TIME", value_parser = duration::argument, default_value = "10s")]
    restart_backoff_max: Duration,
    /// Report events as JSON lines on standard error
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    log: LogOptions,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    words: Vec<OsString>,
}

/// When a program is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Restart {
    /// Never: `run` ends with the program
    Never,
    /// When it ended with another exit code than 0, or by a signal
    OnFailure,
    /// Whenever it ended
    Always,
}

impl From<Restart> for Policy {
    fn from(restart: Restart) -> Self {
        match restart {
            Restart::Never => Self::Never,
            Restart::OnFailure => Self::OnFailure,
            Restart::Always => Self::Always,
        }
    }
}

/// Becomes a program that dies with `run`
#[derive(Debug, Args)]
pub(crate) struct ExecWithParent {
    /// The core to pin it to
    #[arg(long)]
    core: Option<u32>,
    #[command(flatten)]
    tied: Tied,
}

/// Runs a hook or health command, and ends all that it started when `run` ends
#[derive(Debug, Args)]
pub(crate) struct CommandShim {
    /// The standard input is the command's, not for reporting how it ended
    #[arg(long)]
    feeds: bool,
    #[command(flatten)]
    tied: Tied,
}

/// A program, and the process that it must not outlive.
#[derive(Debug, Args)]
struct Tied {
    /// The process that it must not outlive
    #[arg(long)]
    parent: u32,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

impl Tied {
    fn plain(&self) -> run::Tied {
        run::Tied { parent: self.parent, words: self.words.clone() }
    }
}

impl Run {
    fn options(&self) -> Options {
        Options {
            name: self.name,
            node: self.node,
            on_view: self.on_view.clone(),
            on_lost: self.on_lost.clone(),
            hook_stream: self.hook_stream.clone(),
            grace: self.grace,
            uses_group: !self.no_group,
            shell: self.shell,
            hook_timeout: self.hook_timeout,
            health: self.health.clone(),
            health_every: self.health_every,
            health_failures: self.health_failures,
            restart: self.restart.into(),
            restart_backoff: self.restart_backoff,
            restart_backoff_max: self.restart_backoff_max,
            json: self.json,
            log: self.log.settings(),
            words: self.words.clone(),
        }
    }
}

/// Refuses a name that stands for a role: `obol kill leader` would mean two.
fn unreserved(name: Name) -> Result<(), Failure> {
    let roles = DrillKind::value_variants().iter().filter_map(DrillKind::to_possible_value);
    if roles.into_iter().any(|role| role.matches(name.as_str(), true)) {
        return Err(Failure::Refused(format!(
            "{name} is not a name but a role, as in `obol kill leader` and `obol drill app`; choose another --name"
        )));
    }
    Ok(())
}

pub(crate) fn run(root: &Path, cluster: Name, args: &Run) -> Result<ExitCode, Failure> {
    unreserved(args.name)?;
    run::run(root, cluster, &args.options())
}

pub(crate) fn exec_with_parent(_: &Path, _: Name, args: &ExecWithParent) -> Result<ExitCode, Failure> {
    run::exec_with_parent(args.core, &args.tied.plain())
}

pub(crate) fn command_shim(_: &Path, _: Name, args: &CommandShim) -> Result<ExitCode, Failure> {
    run::command_shim(args.feeds, &args.tied.plain())
}

//! `obol hooks`: commands and webhooks on what happens in a cluster.

use crate::logging::LogOptions;
use crate::problems;
use clap::Subcommand;
use obol_config::{PlacedProblem, nearest};
use obol_fabric::Name;
use obol_hooks::{Action, Config, Dispatcher, Receiver, dead};
use obol_node::ClusterLocation;
use obol_node::Site;
use obol_node::network::print_id;
use obol_observe::calendar::unix_now;
use obol_observe::incidents::Incidents;
use obol_observe::incidents::event::{Event, Kind, Severity, State};
use obol_supervise::signals;
use obol_term::output::{self, Failure};
use serde::Serialize;
use serde_json::Map;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The file that `obol hooks example` prints.
const EXAMPLE: &str = include_str!("../../../examples/hooks/hooks.toml");
/// How often the cluster is read.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Call commands and webhooks on alerts, view changes, failovers and drill verdicts
#[derive(Debug, Subcommand)]
pub(crate) enum HooksCommand {
    /// Print a file to start from, with Slack, Grafana and a template
    Example,
    /// Check a file; every mistake is named with line and column
    #[command(
        after_help = "Exit codes: 0 valid, 1 valid, and something that it names is not on this host, 2 invalid."
    )]
    Check {
        /// The file
        file: PathBuf,
        /// Print one JSON object for scripts
        #[arg(long)]
        json: bool,
    },
    /// Call hooks once with an event of the kind test, and report how that went
    #[command(after_help = "Exit codes: 0 all were delivered, 1 one was not, 2 the file is invalid.")]
    Test {
        /// The file
        file: PathBuf,
        /// Only this hook
        hook: Option<String>,
        /// Print one JSON object per hook
        #[arg(long)]
        json: bool,
    },
    /// Call hooks until SIGTERM, SIGHUP or Ctrl-C
    #[command(
        after_help = "Reads the cluster as the console does, without involving its processes; on a cluster of several hosts it is enough to \
        run it on one. It waits for a cluster that is not there yet. What is wrong when it starts is reported; views, failovers and annotations \
        of before are not.\n\
        \nA delivery that fails is repeated with exponential back-off, in order. One that is given up is a dead letter: \
        `obol hooks resend`. At the end what waits is tried once more, for at most 10 s; the rest become dead letters."
    )]
    Run {
        /// The file
        file: PathBuf,
        #[command(flatten)]
        log: LogOptions,
    },
    /// Try dead letters again, once each; those that are delivered are removed
    #[command(
        after_help = "Receivers recognise what they have got already by the header Obol-Event, or by the id in the body.\n\
        \nExit codes: 0 none is left, 1 some are kept, 2 the file is invalid."
    )]
    Resend {
        /// The file
        file: PathBuf,
        /// Only those of this hook
        #[arg(long)]
        hook: Option<String>,
        /// Only list them
        #[arg(long)]
        list: bool,
        /// Print JSON: one object per letter with --list, else one in all
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(root: &Path, cluster: Name, command: &HooksCommand) -> Result<ExitCode, Failure> {
    match command {
        HooksCommand::Example => {
            output::text(EXAMPLE)?;
            Ok(ExitCode::SUCCESS)
        }
        HooksCommand::Check { file, json } => check(file, *json),
        HooksCommand::Test { file, hook, json } => test(root, cluster, file, hook.as_deref(), *json),
        HooksCommand::Run { file, log } => serve(root, cluster, file, log),
        HooksCommand::Resend { file, hook, list: true, json } => list(file, hook.as_deref(), *json),
        HooksCommand::Resend { file, hook, list: false, json } => resend(file, hook.as_deref(), *json),
    }
}

fn load(file: &Path) -> Result<Config, Failure> {
    Config::load(file).map_err(Failure::refused)
}

/// Refuses a name that no hook has.
fn known(config: &Config, hook: Option<&str>) -> Result<(), Failure> {
    let Some(wanted) = hook else { return Ok(()) };
    let names: Vec<&str> = config.hooks.iter().map(|hook| hook.name.as_str()).collect();
    if names.contains(&wanted) {
        return Ok(());
    }
    let near = nearest(wanted, names.iter().copied())
        .map_or(String::new(), |near| format!("; did you mean {near}?"));
    Err(Failure::Refused(format!("no hook {wanted:?}; there are: {}{near}", names.join(", "))))
}

fn check(file: &Path, json: bool) -> Result<ExitCode, Failure> {
    #[derive(Serialize)]
    struct CheckJson<'a> {
        file: String,
        hooks: Vec<&'a str>,
        problems: &'a [PlacedProblem],
    }
    let config = Config::load(file).map_err(|error| problems::refused(json, file, error))?;
    let problems = config.problems();
    let hooks = config.hooks.iter().map(|hook| hook.name.as_str()).collect();
    let found = CheckJson { file: file.display().to_string(), hooks, problems: &problems };
    output::json_or(json, &found, |_| {
        for hook in &config.hooks {
            let on: Vec<&str> = hook.on.iter().map(|kind| kind.name()).collect();
            let to = match &hook.action {
                Action::Exec(words) => words.join(" "),
                Action::Webhook { url, .. } => url.clone(),
            };
            output::line(format_args!("{:<14} {:<34} {to}", hook.name, on.join(", ")))?;
        }
        let say = |PlacedProblem { line, column, problem }: &PlacedProblem| {
            output::line(format_args!("  ! {}:{line}:{column}: {problem}", file.display()))
        };
        problems.iter().try_for_each(say)
    })?;
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// An event of no cluster's.
fn test_event(root: &Path, cluster: Name) -> Event {
    let unix = unix_now();
    let identity =
        Site::open(root, cluster).map_or("unknown".to_owned(), |site| print_id(site.cluster.nonce()));
    Event {
        id: format!("{identity}-test-{unix}"),
        kind: Kind::Test,
        unix,
        cluster: cluster.to_string(),
        identity,
        host: obol_observe::names::hostname(),
        severity: Severity::Info,
        state: State::Event,
        subject: "test".to_owned(),
        title: "a test of this hook by `obol hooks test`".to_owned(),
        details: Map::new(),
    }
}

fn test(
    root: &Path,
    cluster: Name,
    file: &Path,
    only: Option<&str>,
    json: bool,
) -> Result<ExitCode, Failure> {
    #[derive(Serialize)]
    struct TestJson<'a> {
        hook: &'a str,
        delivered: bool,
        why: Option<String>,
    }
    let config = load(file)?;
    known(&config, only)?;
    let event = test_event(root, cluster);
    let mut all = true;
    for hook in config.hooks.iter().filter(|hook| only.is_none_or(|only| only == hook.name)) {
        let receiver = Receiver::new(hook, config.ca_file.as_deref()).map_err(|error| error.to_string());
        let result =
            receiver.and_then(|receiver| receiver.deliver(&event, 0).map_err(|failed| failed.to_string()));
        all &= result.is_ok();
        let test = TestJson { hook: &hook.name, delivered: result.is_ok(), why: result.err() };
        output::json_or(json, &test, |test| match &test.why {
            None => output::line(format_args!("{:<14} delivered", test.hook)),
            Some(why) => output::line(format_args!("{:<14} failed: {why}", test.hook)),
        })?;
    }
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn serve(root: &Path, cluster: Name, file: &Path, log: &LogOptions) -> Result<ExitCode, Failure> {
    let config = load(file)?;
    let stop = signals::ending()?;
    for PlacedProblem { line, column, problem } in config.problems() {
        output::remark(format_args!("obol: {}:{line}:{column}: {problem}", file.display()))?;
    }
    let dispatcher = Dispatcher::start(&config).map_err(Failure::failed)?;
    let mut incidents = Incidents::new(&ClusterLocation { root: root.to_owned(), cluster });
    output::remark(format_args!(
        "obol: hooks that wait for events of cluster {cluster}: {}",
        config.hooks.len()
    ))?;
    let mut logs = false;
    while !stop.load(Ordering::Relaxed) {
        if !logs && Site::open(root, cluster).is_ok() {
            // Its log is among those of the cluster, which may come later.
            log.start_command(root, cluster, "hooks");
            logs = true;
        }
        for event in incidents.poll() {
            dispatcher.offer(&event);
        }
        // A signal is answered after the pause at the latest.
        std::thread::sleep(POLL_INTERVAL);
    }
    dispatcher.finish();
    Ok(ExitCode::SUCCESS)
}

fn list(file: &Path, only: Option<&str>, json: bool) -> Result<ExitCode, Failure> {
    let config = load(file)?;
    known(&config, only)?;
    let (letters, _) = dead::read(&config.dead_letters)
        .map_err(|error| Failure::Failed(format!("{}: {error}", config.dead_letters.display())))?;
    let letters: Vec<_> =
        letters.iter().filter(|letter| only.is_none_or(|only| only == letter.hook)).collect();
    for letter in &letters {
        output::json_or(json, letter, |letter| {
            output::line(format_args!(
                "{}  {:<14} {}: given up at attempt {}: {}",
                letter.event.time(),
                letter.hook,
                letter.event.title,
                letter.attempts,
                letter.why
            ))
        })?;
    }
    Ok(if letters.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn resend(file: &Path, only: Option<&str>, json: bool) -> Result<ExitCode, Failure> {
    #[derive(Serialize)]
    struct ResentJson {
        delivered: u64,
        failed: u64,
        kept: u64,
        unknown: u64,
    }
    let config = load(file)?;
    known(&config, only)?;
    let report = |letter: &dead::Letter, result: &Result<(), obol_hooks::Failed>| {
        if let (Err(failed), false) = (result, json) {
            // The summary says how many there are.
            let _ = output::remark(format_args!("obol: {}: {}: {failed}", letter.hook, letter.event.title));
        }
    };
    let resent = dead::resend(&config, only, report)
        .map_err(|error| Failure::Failed(format!("{}: {error}", config.dead_letters.display())))?;
    let dead::Resent { delivered, failed, kept, unknown } = resent;
    output::json_or(json, &ResentJson { delivered, failed, kept, unknown }, |_| {
        output::line(format_args!("{delivered} delivered, {failed} failed again, {kept} of other hooks"))?;
        if unknown > 0 {
            output::line(format_args!("lines that were not letters and are dropped: {unknown}"))?;
        }
        Ok(())
    })?;
    Ok(if failed + kept == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_valid() {
        let config = Config::parse(EXAMPLE, "hooks.toml").unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(config.hooks.len(), 5);
    }
}

//! `obol doctor`: what this host, and the cluster on it, can promise, what costs more than it has
//! to, and how to change that. It changes nothing itself.

mod clocks;
mod detectors;
pub mod devices;
pub mod diagnose;
mod machine;
mod memory;
mod network;
mod pauses;
mod promise;

use clap::Args;
use obol_chaos::drills::Host;
use obol_chaos::drills::agent::undo_record;
use obol_config::duration;
use obol_fabric::host::HostError;
use obol_fabric::{Name, Nanos};
use obol_node::{Hosts, Site, SiteError};
use obol_profiles::Profile;
use obol_term::output::{self, Failure};
use pauses::Pauses;
use promise::Promises;
use serde::Serialize;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Check what this host can promise to a cluster, and how to get more out of it
#[derive(Debug, Args)]
#[command(
    after_help = "Each finding has what it costs and how to change it; figures are measured now, or name where they come \
        from. The summary states samples and confidence. While it measures, it sleeps and wakes a few thousand times a \
        second on each core; run it as the user of obol's processes, whose rights and limits it checks.\n\
        \nExit codes: 0 nothing costs more than it has to, 1 there are warnings, 2 refused, 3 obol cannot run here as wanted.\n\
        \nTry: obol doctor\n     obol doctor --hosts /etc/obol/cluster.toml --profile lan\n     obol doctor --json | jq '.findings[] | select(.severity != \"good\")'"
)]
pub struct Doctor {
    /// The file of hosts: checks this host's certificate and whether the others can be reached
    #[arg(long, value_name = "FILE")]
    hosts: Option<PathBuf>,
    /// This host's address in that file, if it is ambiguous
    #[arg(long, value_name = "IP", requires = "hosts")]
    address: Option<IpAddr>,
    /// What to check for: a name that `obol profile list` knows, or a file [default: the profile of
    /// the running cluster, of the file of hosts, or laptop]
    #[arg(long, value_name = "NAME|FILE")]
    profile: Option<String>,
    /// How long pauses are measured, for each kind of scheduling
    #[arg(long = "for", alias = "time", value_name = "TIME", default_value = "3s", value_parser = duration::argument)]
    time: Duration,
    /// Print one JSON object for scripts
    #[arg(long)]
    json: bool,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Severity {
    /// As it should be.
    Good,
    /// It limits what this host can do, and may be meant so.
    Note,
    /// It costs something.
    Warning,
    /// obol cannot run here as wanted.
    Problem,
}

impl Severity {
    const fn sign(self) -> char {
        match self {
            Self::Good => '+',
            Self::Note => '.',
            Self::Warning => '!',
            Self::Problem => 'X',
        }
    }
}

/// One finding.
#[derive(Clone, Debug, Serialize)]
struct Finding {
    /// What was checked, such as `clock source`.
    check: &'static str,
    severity: Severity,
    /// What was found.
    found: String,
    /// What that costs.
    cost: Option<String>,
    /// What to do.
    remedy: Option<String>,
}

impl Finding {
    fn good(check: &'static str, found: impl fmt::Display) -> Self {
        Self { check, severity: Severity::Good, found: found.to_string(), cost: None, remedy: None }
    }

    fn bad(
        check: &'static str,
        severity: Severity,
        found: impl fmt::Display,
        (cost, remedy): (impl fmt::Display, impl fmt::Display),
    ) -> Self {
        let (cost, remedy) = (Some(cost.to_string()), Some(remedy.to_string()));
        debug_assert!(
            remedy.as_ref().is_some_and(|remedy| remedy.matches('`').count() >= 2),
            "{check}: {remedy:?} names no command and no setting"
        );
        Self { check, severity, found: found.to_string(), cost, remedy }
    }

    fn note(check: &'static str, found: impl fmt::Display, advice: (&str, &str)) -> Self {
        Self::bad(check, Severity::Note, found, advice)
    }

    fn warning(
        check: &'static str,
        found: impl fmt::Display,
        advice: (impl fmt::Display, impl fmt::Display),
    ) -> Self {
        Self::bad(check, Severity::Warning, found, advice)
    }

    fn problem(
        check: &'static str,
        found: impl fmt::Display,
        advice: (impl fmt::Display, impl fmt::Display),
    ) -> Self {
        Self::bad(check, Severity::Problem, found, advice)
    }
}

/// What is checked for.
struct Subject<'a> {
    root: &'a Path,
    cluster: Name,
    site: Option<&'a Site>,
    hosts: Option<(&'a Hosts, &'a Path)>,
    address: Option<IpAddr>,
    profile: &'a Profile,
}

/// Everything.
#[derive(Serialize)]
struct Report {
    host: Host,
    profile: String,
    /// The cluster that runs here, if one does.
    cluster: Option<String>,
    worst: Severity,
    findings: Vec<Finding>,
    pauses: Vec<Pauses>,
    promises: Promises,
}

impl Report {
    fn code(&self) -> ExitCode {
        ExitCode::from(match self.worst {
            Severity::Good | Severity::Note => 0,
            Severity::Warning => 1,
            Severity::Problem => 3,
        })
    }
}

/// A file of the kernel's, as one line; `None` if there is none.
fn line_of(path: impl AsRef<Path>) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|line| !line.is_empty())
}

fn profile(args: &Doctor, site: Option<&Site>, hosts: Option<&(Hosts, &Path)>) -> Result<Profile, Failure> {
    if let Some(name) = &args.profile {
        return Profile::load(name).map_err(Failure::refused);
    }
    if let Some((hosts, file)) = hosts {
        return Ok(hosts.deployment(0, file).map_err(Failure::refused)?.profile);
    }
    match site {
        Some(site) => Ok(site.deployment.profile.clone()),
        None => Profile::builtin("laptop").map_err(Failure::failed),
    }
}

/// A cluster that is there, but not for this program. That none is there is no fault of the host, and
/// a root that cannot be used is found for itself.
fn unreadable(cluster: Name, error: &SiteError) -> Option<Finding> {
    use HostError::{Corrupt, OtherRelease, Release, Version};
    let is_there = match error {
        SiteError::Deployment(_) => true,
        SiteError::Fabric(error) => {
            matches!(error, OtherRelease { .. } | Release { .. } | Version { .. } | Corrupt { .. })
        }
    };
    is_there.then(|| {
        Finding::problem(
            "cluster",
            format_args!("{cluster} cannot be read by this program: {error}"),
            (
                "neither is it checked, nor can processes of this program join it",
                "see above, or `obol doctor --cluster NAME` checks another one",
            ),
        )
    })
}

/// What drills have left in force on this host.
fn left_by_drills(site: &Site) -> Option<Finding> {
    let left = undo_record::left_by_drills(&site.cluster)?;
    let cost = "processes of this host are hindered, and the cluster takes them for dead";
    let remedy =
        format!("`obol drill recover --cluster {0}`, then `obol status --cluster {0}`", site.cluster.name());
    Some(Finding::warning("drills", left, (cost, remedy)))
}

/// Runs `obol doctor`.
pub fn run(root: &Path, cluster: Name, args: &Doctor) -> Result<ExitCode, Failure> {
    let hosts = match &args.hosts {
        Some(file) => Some((Hosts::load(file).map_err(Failure::refused)?, file.as_path())),
        None => None,
    };
    let (site, unreadable) = match Site::open(root, cluster) {
        Ok(site) => (Some(site), None),
        Err(error) => (None, unreadable(cluster, &error)),
    };
    let profile = profile(args, site.as_ref(), hosts.as_ref())?;
    let subject = Subject {
        root,
        cluster,
        site: site.as_ref(),
        hosts: hosts.as_ref().map(|(hosts, file)| (hosts, *file)),
        address: args.address,
        profile: &profile,
    };
    if !args.json {
        // Informative only.
        let _ = output::remark(format_args!(
            "doctor: checks for the profile {}; pauses are measured for {} under each kind of scheduling",
            profile.name,
            Nanos::from_std(args.time)
        ));
    }
    let pauses = pauses::measure(&profile, args.time)?;
    let mut findings = clocks::check();
    findings.extend(pauses::check(&pauses, &profile));
    findings.extend(machine::check(&profile));
    findings.extend(detectors::check(root)?);
    findings.extend(memory::check(&subject));
    findings.extend(unreadable);
    findings.extend(site.as_ref().and_then(left_by_drills));
    findings.extend(network::check(&subject));
    let promises = promise::of(&subject, &pauses);
    let report = Report {
        host: Host::this(),
        profile: profile.name.to_string(),
        cluster: site.as_ref().map(|site| site.cluster.name().to_string()),
        worst: findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Good),
        findings,
        pauses,
        promises,
    };
    output::json_or(args.json, &report, print)?;
    Ok(report.code())
}

/// A number of things.
fn several(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn print(report: &Report) -> std::io::Result<()> {
    let width = report.findings.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
    // What needs an operator is first.
    let mut findings: Vec<&Finding> = report.findings.iter().collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    for finding in findings {
        let Finding { check, severity, found, cost, remedy } = finding;
        output::line(format_args!("{} {check:<width$}  {found}", severity.sign()))?;
        for (head, text) in [("costs", cost), ("to do", remedy)] {
            if let Some(text) = text {
                output::line(format_args!("  {:width$}  {head}: {text}", ""))?;
            }
        }
    }
    output::line("")?;
    for pauses in &report.pauses {
        pauses.lines().into_iter().try_for_each(output::line)?;
    }
    output::line("")?;
    report.promises.lines().into_iter().try_for_each(output::line)?;
    let count = |severity| report.findings.iter().filter(|finding| finding.severity == severity).count();
    output::line(format_args!(
        "\n{} good, {}, {}, {}; {} cores, Linux {}, profile {}",
        count(Severity::Good),
        several(count(Severity::Note), "note"),
        several(count(Severity::Warning), "warning"),
        several(count(Severity::Problem), "problem"),
        report.host.cores,
        report.host.kernel,
        report.profile
    ))
}

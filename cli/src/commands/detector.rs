//! `obol detector`: which death detector this host has, and the eBPF programs for hosts without the
//! kernel module.

use clap::Subcommand;
use obol_deaths::Detection;
use obol_deaths::Detectors;
use obol_deaths::ebpf::{self, EbpfError};
use obol_fabric::Name;
use obol_term::output::{self, Failure};
use std::fs;
use std::path::Path;
use std::process::ExitCode;

/// Show which death detector this host has; load and unload the eBPF programs, for hosts without
/// the kernel module
#[derive(Debug, Subcommand)]
pub(crate) enum DetectorCommand {
    /// Show whether the module, eBPF programs or neither would report the deaths of this user's
    /// processes, and why
    #[command(after_help = "Exit codes: 0 the kernel reports deaths, 1 only robust futexes and pidfds do.")]
    Show {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Load the eBPF programs, as root; they stay until `unload` or a reboot
    #[command(
        after_help = "Processes that run already use them within a second, unless the module is there. Needs a kernel \
        with CONFIG_DEBUG_INFO_BTF; 6.1 or later, if others than root are to use them.\n\
        \nExit codes: 0 loaded, 1 the kernel refuses them, 2 loaded already, or not root."
    )]
    Load {
        /// Let this group use them, by name or number; without it only root may
        #[arg(long, value_name = "GROUP")]
        group: Option<String>,
    },
    /// Unload the eBPF programs, as root; no death is missed meanwhile
    Unload,
}

/// Where groups have their numbers.
const GROUPS: &str = "/etc/group";

pub(crate) fn run(_: &Path, _: Name, command: &DetectorCommand) -> Result<ExitCode, Failure> {
    match command {
        DetectorCommand::Show { json } => show(*json),
        DetectorCommand::Load { group } => load(group.as_deref()),
        DetectorCommand::Unload => unload(),
    }
}

fn show(json: bool) -> Result<ExitCode, Failure> {
    let report = Detectors::look();
    if json {
        output::json(&report)?;
    } else {
        output::line(format_args!("deaths are detected by {}", report.first.name()))?;
        for (name, refusal) in [("module", &report.module), ("ebpf", &report.ebpf)] {
            output::line(format_args!("  {name:<8}{}", refusal.as_deref().unwrap_or("can be used")))?;
        }
        if report.first == Detection::Ebpf && !report.wakes {
            output::line(
                "  they wake no process that sleeps: loaded by an earlier release, or Linux before 6.1",
            )?;
        }
    }
    Ok(if report.first == Detection::FutexPidfd { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The number of a group, by its name or as it is.
fn number(group: &str) -> Result<u32, Failure> {
    if let Ok(number) = group.parse() {
        return Ok(number);
    }
    let text = fs::read_to_string(GROUPS).map_err(|error| {
        Failure::Failed(format!("cannot read {GROUPS}: {error}; give the group's number"))
    })?;
    let fields = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let found = fields.into_iter().find(|fields| fields.first() == Some(&group));
    found.and_then(|fields| fields.get(2)?.parse().ok()).ok_or_else(|| {
        Failure::Refused(format!(
            "{GROUPS} has no group {group}; make it with `groupadd --system {group}`, or give its number"
        ))
    })
}

fn load(group: Option<&str>) -> Result<ExitCode, Failure> {
    let loaded = ebpf::load(group.map(number).transpose()?).map_err(|error| match error {
        EbpfError::Loaded | EbpfError::Denied { .. } => Failure::refused(error),
        _ => Failure::failed(error),
    })?;
    let when = if loaded.early { "before" } else { "after" };
    let woken = if loaded.wakes { "are woken" } else { "are not woken: Linux before 6.1" };
    output::line(format_args!(
        "loaded; proofs come {when} the memory of the dead goes; sleeping processes {woken}"
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn unload() -> Result<ExitCode, Failure> {
    let any = ebpf::unload().map_err(Failure::failed)?;
    output::line(if any { "unloaded" } else { "there was nothing to unload" })?;
    Ok(ExitCode::SUCCESS)
}

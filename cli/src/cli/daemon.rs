//! The command line of a cluster's own processes.

use crate::commands::Command;
use crate::commands::agent::Named;
use crate::commands::app::DemoApp;
use crate::commands::coordinator::Coordinator;
use crate::commands::coordinator::run::CoordinatorRun;
use crate::commands::gateway::Gateway;
use crate::commands::root::{Cli, ClusterArgs};
use clap::{Parser, Subcommand};

/// The command line of a cluster's own processes, without those of all other commands: what is read
/// of it stays in the memory of a process that runs for months.
#[derive(Debug, Parser)]
#[command(name = "obol", disable_help_flag = true, disable_help_subcommand = true)]
pub(super) struct Daemon {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    Agent(Named),
    LeaseCache(Named),
    App(DemoApp),
    Gateway(Gateway),
    #[command(subcommand)]
    Coordinator(CoordinatorRole),
}

#[derive(Debug, Subcommand)]
enum CoordinatorRole {
    Run(CoordinatorRun),
}

impl Daemon {
    /// Reads the command line, if it is a daemon's.
    pub(super) fn read() -> Option<Cli> {
        const ROLES: [&str; 5] = ["agent", "lease-cache", "app", "gateway", "coordinator"];
        std::env::args_os().find(|word| ROLES.iter().any(|role| word == role))?;
        let Self { cluster, role } = Self::try_parse().ok()?;
        let command = match role {
            Role::Agent(named) => Command::Agent(named),
            Role::LeaseCache(named) => Command::LeaseCache(named),
            Role::App(app) => Command::App(app),
            Role::Gateway(gateway) => Command::Gateway(gateway),
            Role::Coordinator(CoordinatorRole::Run(run)) => Command::Coordinator(Coordinator::Run(run)),
        };
        Some(Cli { cluster, command })
    }
}

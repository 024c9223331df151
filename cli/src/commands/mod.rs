//! The subcommands of `obol`, one file or folder each: its arguments with their help, and what it
//! does. A new one is declared here twice, as a module and in the list, and named in [`groups`].

pub(crate) mod agent;
pub(crate) mod app;
mod cleanup;
mod completions;
mod config;
mod console;
pub(crate) mod coordinator;
mod detector;
mod down;
pub(crate) mod drill;
mod drill_load;
mod events;
mod export;
mod fabric;
mod fault_agent;
mod forget;
pub(crate) mod gateway;
mod groups;
mod hooks;
mod host;
mod kill;
mod kv;
mod lease;
mod log;
mod logs;
mod man;
mod mark;
mod plan;
mod prefilled_console;
mod profile;
mod record;
mod replay;
mod report;
mod rollout;
pub(crate) mod root;
mod run;
mod shadow;
mod sim;
pub(crate) mod smr;
mod status;
mod tune;
pub(crate) mod up;
mod upgrade;
mod watch;

use clap::Subcommand;
use obol_fabric::Name;
use obol_term::output::Failure;
use std::path::Path;
use std::process::ExitCode;

macro_rules! commands {
    ($($(#[$attribute:meta])* $name:ident($arguments:ty) => $run:path,)*) => {
        #[derive(Debug, Subcommand)]
        pub(crate) enum Command {
            $($(#[$attribute])* $name($arguments),)*
        }

        impl Command {
            pub(crate) fn run(&self, root: &Path, cluster: Name) -> Result<ExitCode, Failure> {
                match self {
                    $(Self::$name(arguments) => $run(root, cluster, arguments),)*
                }
            }
        }
    };
}

impl Command {
    /// Whether the exit code is a verdict, which counts as well if nobody reads the output to its end.
    /// The other commands end with their reader.
    pub(crate) const fn has_verdict(&self) -> bool {
        matches!(
            self,
            Self::Status(_)
                | Self::Hooks(_)
                | Self::Kill(_)
                | Self::Stop(_)
                | Self::Start(_)
                | Self::Kv(kv::Kv::Check(_))
                | Self::Smr(smr::Smr::Check(_) | smr::Smr::Status(_))
                | Self::Drill(_)
                | Self::Rollout(_)
                | Self::Upgrade(_)
                | Self::Doctor(_)
                | Self::Sim(_)
                | Self::Profile(_)
                | Self::Host(_)
                | Self::Coordinator(_)
                | Self::Lease(_)
        )
    }
}

// `groups` has their order in the help.
commands! {
    Up(up::Up) => up::run,
    Console(console::Console) => console::run,
    Status(status::Status) => status::run,
    Logs(logs::Logs) => logs::run,
    Events(events::Events) => events::run,
    Watch(watch::Watch) => watch::run,
    Report(report::Report) => report::run,
    Record(record::Record) => record::run,
    Replay(replay::Replay) => replay::run,
    Mark(mark::Mark) => mark::run,
    Run(run::Run) => run::run,
    /// Kill a process with SIGKILL, by name (app-2) or by role (leader)
    Kill(kill::Target) => kill::kill,
    /// Let a process leave the cluster gracefully and end, without counting as failed
    Stop(kill::Target) => kill::stop,
    /// Start a process of the cluster that is down
    Start(kill::Target) => kill::start,
    Forget(forget::Forget) => forget::run,
    Down(down::Down) => down::run,
    #[command(subcommand)]
    Coordinator(coordinator::Coordinator) => coordinator::run,
    #[command(subcommand)]
    Lease(lease::Lease) => lease::run,
    #[command(subcommand)]
    Log(log::LogCommand) => log::run,
    Upgrade(upgrade::Upgrade) => upgrade::run,
    Drill(drill::Drill) => drill::run,
    Rollout(rollout::Rollout) => rollout::run,
    #[command(subcommand)]
    Kv(kv::Kv) => kv::run,
    #[command(subcommand)]
    Smr(smr::Smr) => smr::run,
    #[command(hide = true)]
    ExecWithParent(run::ExecWithParent) => run::exec_with_parent,
    #[command(hide = true)]
    CommandShim(run::CommandShim) => run::command_shim,
    Export(export::Export) => export::run,
    #[command(subcommand)]
    Hooks(hooks::HooksCommand) => hooks::run,
    Shadow(shadow::Shadow) => shadow::run,
    Doctor(obol_doctor::Doctor) => obol_doctor::run,
    Tune(tune::Tune) => tune::run,
    #[command(subcommand)]
    Profile(profile::ProfileCommand) => profile::run,
    #[command(subcommand)]
    Host(host::HostCommand) => host::run,
    #[command(subcommand)]
    Plan(plan::Plan) => plan::run,
    #[command(subcommand)]
    Fabric(fabric::FabricCommand) => fabric::run,
    #[command(subcommand, alias = "deaths")]
    Detector(detector::DetectorCommand) => detector::run,
    Bench(obol_bench::Bench) => obol_bench::run,
    #[command(subcommand)]
    Sim(sim::Sim) => sim::run,
    #[command(subcommand)]
    Config(config::ConfigCommand) => config::run,
    Completions(completions::Completions) => completions::run,
    Man(man::ManPages) => man::run,
    /// An agent process (started by `up`)
    #[command(hide = true)]
    Agent(agent::Named) => agent::run,
    /// The gateway of this host, in a cluster of several hosts
    #[command(hide = true)]
    Gateway(gateway::Gateway) => gateway::run,
    /// A lease cache process (started by `up`)
    #[command(hide = true)]
    LeaseCache(agent::Named) => agent::run_lease_cache,
    #[command(hide = true)]
    App(app::DemoApp) => app::run,
    #[command(hide = true)]
    FaultAgent(fault_agent::FaultAgent) => fault_agent::run,
    #[command(hide = true)]
    DrillLoad(drill_load::DrillLoad) => drill_load::run,
    #[command(hide = true)]
    PrefilledConsole(prefilled_console::PrefilledConsole) => prefilled_console::run,
    #[command(hide = true)]
    Cleanup(cleanup::Cleanup) => cleanup::run,
    #[command(hide = true)]
    Floor(obol_bench::Floor) => obol_bench::measure_floor,
}

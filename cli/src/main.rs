//! `obol`: the operator's program, and the thin mains of the daemons.

mod bench;
mod cli;
mod coordinators;
mod daemons;
mod detector;
mod directory;
mod drill;
mod drills;
mod events;
mod fabric;
mod host;
mod kill;
mod kv;
mod lease;
mod live;
mod man;
mod names;
mod profile;
mod replacement;
mod run;
mod running;
mod said;
mod saved;
mod signals;
mod sim;
mod spares;
mod status;
mod table;
mod table2;
mod tune;
mod up;
mod watch;

use cli::{Cli, Command};
use obol_console::output::{self, Failure};
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::read();
    match run(&cli) {
        Ok(code) => code,
        // Whoever read our output has seen enough.
        Err(Failure::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            // Nobody is left to tell if this fails, too.
            let _ = output::complain(&failure);
            failure.code()
        }
    }
}

fn run(cli: &Cli) -> Result<ExitCode, Failure> {
    let root = cli.place.root.clone().unwrap_or_else(obol_fabric::host::default_root);
    let cluster = cli.place.cluster;
    match &cli.command {
        Command::Up(up) => up::run(&root, cluster, up),
        Command::Console { look, arm } => {
            obol_console::run(obol_console::poll::Place { root, cluster }, look.clone(), *arm)
        }
        Command::Record { file, time } => {
            obol_console::record(obol_console::poll::Place { root, cluster }, file, *time)
        }
        Command::Replay { file, look } => obol_console::replay(file, look),
        Command::Report(options) => {
            obol_console::report(&obol_console::poll::Place { root, cluster }, options)
        }
        Command::Status(how) => status::run(&root, cluster, how.json),
        Command::Events { last, json } => events::run(&root, cluster, *last, *json),
        Command::Watch(watch) => watch::run(&root, cluster, watch),
        Command::Mark { text } => obol_console::mark(&obol_console::poll::Place { root, cluster }, text),
        Command::Kill(target) => kill::kill(&root, cluster, &target.target),
        Command::Stop(target) => kill::stop(&root, cluster, &target.target),
        Command::Start(target) => kill::start(&root, cluster, &target.target),
        Command::Down => kill::down(&root, cluster),
        Command::Run(options) => run::run(&root, cluster, options),
        Command::Kv(command) => kv::run(&root, cluster, command),
        Command::RunTied { parent, words } => run::become_program(*parent, words),
        Command::RunGuarded { parent, feeds, words } => run::guard(*parent, *feeds, words),
        Command::Drill(drill) => drill::run(&root, cluster, drill),
        Command::Tune(tune) => tune::run(&root, tune),
        Command::Bench(bench) => bench::run(&root, bench),
        Command::AgedConsole => obol_console::aged(obol_console::poll::Place { root, cluster }),
        Command::Sim(sim) => sim::run(sim),
        Command::Profile(command) => profile::run(command),
        Command::Config(command) => obol_console::config::run(command),
        Command::Fabric(command) => fabric::run(command),
        Command::Host(command) => host::run(&root, command),
        Command::Detector(command) => detector::run(command),
        Command::Man { dir } => man::run(dir.as_deref()),
        Command::Completions { shell } => {
            output::bytes(&cli::completions(*shell))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Lease(what) => lease::run(&root, cluster, what),
        Command::Coordinator(what) => coordinators::run(&root, cluster, what),
        Command::Agent(agent) => daemons::agent(&root, cluster, agent.name),
        Command::LeaseCache(cache) => daemons::lease_cache(&root, cluster, cache.name),
        Command::App(app) => daemons::app(&root, cluster, app.name, app.node),
        Command::FaultAgent { stdio } => drills::fault_agent(&root, cluster, *stdio),
        Command::DrillLoad { threads, mebibytes, nanoseconds } => {
            daemons::load(*threads, *mebibytes, *nanoseconds)
        }
        Command::Keep { folder } => running::keep(&root, cluster, folder.as_deref()),
        Command::FloorRole { role } => bench::floor_role(&root, cluster, *role),
    }
}

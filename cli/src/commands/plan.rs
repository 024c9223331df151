//! `obol plan`: what is computed before anything runs.

use crate::problems;
use clap::{Args, Subcommand};
use obol_fabric::{Name, Nanos};
use obol_fide::network::{self, Network, Pair, Risk};
use obol_term::output::{self, Failure, json, line};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Plan a network: redundant paths, timeouts, and what remains of their risk
#[derive(Debug, Subcommand)]
pub(crate) enum Plan {
    /// Plan vertex-disjoint multicast trees over a network, and estimate when all of them fail
    ///
    /// Reads a topology with link rates, delays and failure rates; chooses for each member trees that
    /// share no switch (FiDe, USENIX ATC 2025, appendix B); derives the timeouts that their delays
    /// allow; and bounds how often a living member is silenced because all of its trees fail at once
    /// (appendix C, and the common causes that the file names). Nothing is configured or contacted.
    #[command(after_help = "\
Exit code 0 with a plan, 2 if the file is wrong or the network does not allow the trees.

  obol plan network --example > net.toml     a file to begin with, with comments
  obol plan network net.toml --out net.svg   the plan, and a drawing of it

The timeouts are lower bounds for hosts that keep the latencies in the file; `obol tune` measures.")]
    Network(NetworkPlan),
}

/// `obol plan network`.
#[derive(Debug, Args)]
pub(crate) struct NetworkPlan {
    /// The network, in TOML
    #[arg(value_name = "FILE", required_unless_present = "example")]
    file: Option<PathBuf>,
    /// Print a file to begin with
    #[arg(long, conflicts_with_all = ["file", "json", "svg"])]
    example: bool,
    /// Draw the plan to this file
    #[arg(long = "out", alias = "svg", value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print one JSON object for scripts
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(_: &Path, _: Name, command: &Plan) -> Result<ExitCode, Failure> {
    let Plan::Network(command) = command;
    let Some(file) = command.file.as_ref().filter(|_| !command.example) else {
        output::text(network::EXAMPLE)?;
        return Ok(ExitCode::SUCCESS);
    };
    let network = Network::load(&file.to_string_lossy()).map_err(|error| match file.exists() {
        true => problems::refused(command.json, file, error),
        false => Failure::Refused(format!("{error}; `obol plan network --example` prints one to begin with")),
    })?;
    let plan = network::plan(&network)
        .map_err(|error| Failure::refused(format_args!("{}: {error}", file.display())))?;
    if let Some(to) = &command.svg {
        output::file(to, network::draw(&network, &plan))?;
    }
    if command.json {
        json(&Printed::new(&network, &plan))?;
    } else {
        print(&network, &plan)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A plan in JSON.
#[derive(Serialize)]
struct Printed<'p> {
    name: &'p str,
    trees: Vec<PrintedTree<'p>>,
    pairs: &'p [Pair],
    timeout_ns: u64,
    busiest_link_percent: f64,
    risk: &'p Risk,
}

/// One tree in JSON.
#[derive(Serialize)]
struct PrintedTree<'p> {
    sender: &'p str,
    tree: usize,
    /// Parent and child.
    links: Vec<[&'p str; 2]>,
}

impl<'p> Printed<'p> {
    fn new(network: &'p Network, plan: &'p network::Plan) -> Self {
        let name = |node: usize| network.nodes[node].name.as_str();
        let mut trees = Vec::new();
        for sender in &plan.senders {
            for (number, tree) in sender.trees.iter().enumerate() {
                let links = tree.edges().map(|(from, to)| [name(from), name(to)]).collect();
                trees.push(PrintedTree { sender: name(sender.sender), tree: number + 1, links });
            }
        }
        Self {
            name: &network.name,
            trees,
            pairs: &plan.pairs,
            timeout_ns: plan.timeout().0,
            busiest_link_percent: plan.busiest_percent,
            risk: &plan.risk,
        }
    }
}

fn print(network: &Network, plan: &network::Plan) -> Result<(), Failure> {
    let name = |node: usize| network.nodes[node].name.as_str();
    line("SENDER            TREE  SWITCHES")?;
    for sender in &plan.senders {
        for (number, tree) in sender.trees.iter().enumerate() {
            let switches: Vec<&str> =
                tree.edges().map(|(_, to)| to).filter(|to| !network.nodes[*to].host).map(name).collect();
            line(format_args!("{:<16} {:>5}  {}", name(sender.sender), number + 1, switches.join(" ")))?;
        }
    }
    line("\nFROM              TO                  LATENCY      JITTER     TIMEOUT")?;
    for pair in &plan.pairs {
        let [latency, jitter, timeout] =
            [pair.latency_ns, pair.jitter_ns, pair.timeout_ns].map(|ns| Nanos(ns).to_string());
        line(format_args!("{:<17} {:<16} {latency:>10}  {jitter:>10}  {timeout:>10}", pair.from, pair.to))?;
    }
    line(format_args!("\nthe busiest link spends {:.3} % of its bandwidth on frames", plan.busiest_percent))?;
    let risk = &plan.risk;
    line(format_args!(
        "links that fail together silence a member with a probability of at most {:.4} a year",
        risk.links_yearly
    ))?;
    for cause in &risk.causes {
        line(format_args!(
            "{} silences {} at {} with a probability of {:.4} a year",
            cause.name, cause.from, cause.to, cause.yearly
        ))?;
    }
    match risk.once_in_years {
        Some(years) => line(format_args!("this placement fails silently once in {years:.1} years"))?,
        None => line("no failure that the file names silences a member")?,
    }
    Ok(())
}

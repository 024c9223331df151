//! The arguments of `obol sim`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum Sim {
    /// Run many seeds; exit code 1 if an invariant is violated
    Campaign {
        /// How many seeds
        #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
        seeds: u64,
        /// The first seed
        #[arg(long, value_name = "S", default_value_t = 1)]
        seed: u64,
        /// Where the scenarios are saved to which violating seeds are shrunk
        #[arg(long, value_name = "DIR", default_value = ".")]
        keep: PathBuf,
        /// Print one JSON object for scripts
        #[arg(long)]
        json: bool,
    },
    /// Run one seed or scenario file again and print what happened
    #[command(
        after_help = "Exit code 0 if no invariant is broken, 1 if one is, 2 if there is nothing to replay.\n\
        \nA scenario file names a seed, which draws the cluster, and lists what is done to it and when; \
        `obol sim shrink` writes one, and it can be edited:\n\
        \n  obol sim shrink 42 && obol sim replay obol-seed-42.toml"
    )]
    Replay {
        /// A seed, or a scenario file
        #[arg(value_name = "SEED|FILE")]
        what: String,
        /// Plant this bug (in a build with the feature `mutants`) instead of what the file names
        #[arg(long, value_name = "NAME")]
        mutant: Option<String>,
    },
    /// Drop from a violating seed or scenario whatever the violation does not need, and save the
    /// rest
    Shrink {
        /// A seed, or a scenario file
        #[arg(value_name = "SEED|FILE")]
        what: String,
        /// Plant this bug (in a build with the feature `mutants`)
        #[arg(long, value_name = "NAME")]
        mutant: Option<String>,
        /// Where to save it [default: obol-seed-SEED.toml]
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Runs that it may take
        #[arg(long, value_name = "N", default_value_t = 3000)]
        budget: u32,
    },
    /// Plant each bug and count the seeds until it is caught (in a build with the feature
    /// `mutants`)
    Mutants {
        /// Seeds that a bug may survive before the campaign has failed
        #[arg(long, value_name = "N", default_value_t = 2000)]
        budget: u64,
        /// Print one JSON object for scripts
        #[arg(long)]
        json: bool,
    },
    /// uKharon's Table 2 on a simulated testbed: failover times beside the published ones
    ///
    /// Runs this program's machines, leases and all, on the testbed's parameters. Each row is a
    /// failure of an app (A) alone or with the leader (C), a lease cache (L), or both. Columns: as
    /// in the paper (leases are waited for); with fencing; with fencing and kernels that tell of a
    /// kill at its signal. Times are medians in microseconds from the death of the app to the first
    /// survivor that is active without it, the 99th percentile in brackets (from 299 repetitions
    /// on). ALL OUT is until no failed process is left in the view.
    Table2 {
        /// Failovers behind each figure
        #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        repetitions: u32,
        #[command(flatten)]
        options: PapersOptions,
    },
    /// uKharon's Figure 3 on a simulated testbed: how long leases must be to be renewed in time
    ///
    /// 32 members renew at the coordinators while other traffic loads the network and other
    /// programs load the memory. Each figure is the percentage of renewals that would have been
    /// timely with leases of that length.
    Leases {
        /// Simulated time of each load
        #[arg(long, value_name = "MS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=60_000))]
        span_ms: u32,
        #[command(flatten)]
        options: PapersOptions,
    },
    /// How failovers and renewals scale on a simulated testbed, from 8 to 4096 members
    ///
    /// Each member has a lease page of its own. Methods: leases waited for or fenced, renewed at
    /// the acceptors or at lease caches, fences raised by the leader or fanned out through the
    /// caches. Up to 32 members leases are as published; beyond that they grow with the members, so
    /// that renewals cost a coordinator the same at any size.
    ///
    /// Clusters are simulated on all cores, but no more than 4096 members at once, which take 1.5
    /// GB of memory.
    Scale {
        /// The largest size; sizes double from 8 on
        #[arg(long = "up-to", value_name = "MEMBERS", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(8..=4096))]
        largest: u32,
        /// Failovers behind each figure
        #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        repetitions: u32,
        #[command(flatten)]
        options: PapersOptions,
    },
    /// Run table2, leases and scale, and draw them into one HTML page
    ///
    /// The page needs no other file. In a directory it is called report.html, and each plot lies
    /// beside it as SVG. It takes 1.5 GB of memory: see scale.
    Report {
        /// Where to write it: a file, or a directory that exists
        #[arg(value_name = "FILE|DIR")]
        to: PathBuf,
        /// The largest size for `scale`
        #[arg(long = "up-to", value_name = "MEMBERS", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(8..=4096))]
        largest: u32,
        /// Testbed: infiniband, or a file
        #[arg(long, value_name = "NAME|FILE", default_value = "infiniband")]
        model: String,
        /// The first seed; the same seed gives the same figures
        #[arg(long, value_name = "S", default_value_t = 1)]
        seed: u64,
    },
}

/// What the papers' experiments have in common.
#[derive(Debug, Args)]
pub(crate) struct PapersOptions {
    /// Testbed: infiniband, or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "infiniband")]
    pub(crate) model: String,
    /// The first seed; the same seed gives the same figures
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print one JSON object for scripts
    #[arg(long)]
    pub(crate) json: bool,
}

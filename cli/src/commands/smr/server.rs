//! `obol smr server`: a replica of the store.

use super::preset::PresetName;
use clap::{Args, ValueEnum};
use obol_config::duration;
use obol_fabric::host::{NameClaim, sched};
use obol_fabric::{Name, Nanos};
use obol_node::Site;
use obol_observe::namesakes::unused_elsewhere;
use obol_replica::{Settings, named};
use obol_server::smr::{Options as Daemon, Resp, ServiceKind};
use obol_smr::{REPLICA_PREFIX, VOTERS_MAX};
use obol_supervise::signals;
use obol_term::options::size;
use obol_term::output::Failure;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// What the replicas keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KeptName {
    /// Keys and values (`obol smr get`, `put`, clients of Redis)
    #[value(name = "keys")]
    Keys,
    /// Orders that are matched by price and time (`obol smr book`)
    #[value(name = "orderbook")]
    OrderBook,
}

/// How a replica runs.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Its name: smr- and something
    #[arg(long, value_parser = replica_name)]
    name: Name,
    /// What it keeps; the same for all replicas of a cluster
    #[arg(long, value_name = "SERVICE", value_enum, default_value = "keys")]
    service: KeptName,
    /// How an earlier leader is excluded; the same for all replicas of a
    /// cluster
    #[arg(long, value_name = "PRESET", value_enum, default_value = "view", conflicts_with = "unreplicated")]
    preset: PresetName,
    /// Replicas that should have every answered command, for a new store: a
    /// majority of them has to survive
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=VOTERS_MAX as i64))]
    voters: u32,
    /// Keep no copies, as a baseline for benchmarks: one process answers at once,
    /// as HERD does, and the keys are lost with it
    #[arg(long, conflicts_with = "voters")]
    unreplicated: bool,
    /// Poll interval; 0 keeps an otherwise unused core busy
    #[arg(long, value_name = "TIME", value_parser = duration::argument_or_zero, default_value = "20us")]
    poll_every: Duration,
    /// Stay on this core
    #[arg(long, value_name = "N")]
    core: Option<u32>,
    /// Begin a new, empty store even if earlier replicas held one; stop all of
    /// them first
    #[arg(long)]
    force_empty: bool,
    /// Serve clients of Redis at this address, such as 127.0.0.1:6379: any
    /// replica does, also one that does not lead
    #[arg(long, value_name = "ADDRESS")]
    resp: Option<SocketAddr>,
    /// The password that clients of Redis have to send: the first line of this
    /// file, which only its owner or group may read
    #[arg(long, value_name = "FILE", requires = "resp")]
    resp_password_file: Option<PathBuf>,
    /// Serve clients of Redis on other hosts, though all that they send and get
    /// can be read on the way, the password as well
    #[arg(long, requires = "resp_password_file")]
    resp_unencrypted: bool,
    /// Refuse commands that need memory while it leads and keys and values take
    /// more than this, such as 500MB or 4GB. The same for all replicas
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    memory_max: Option<u64>,
    /// Print its state as JSON lines
    #[arg(long)]
    json: bool,
    /// End with the process that started it, and the store with it
    #[arg(long, hide = true)]
    tied: bool,
}

impl Options {
    fn daemon(&self) -> Daemon {
        let resp = self.resp.map(|address| Resp {
            address,
            password_file: self.resp_password_file.clone(),
            unencrypted: self.resp_unencrypted,
        });
        Daemon {
            service: match self.service {
                KeptName::Keys => ServiceKind::Keys,
                KeptName::OrderBook => ServiceKind::OrderBook,
            },
            preset: self.preset.preset(),
            settings: Settings {
                name: self.name,
                voters: self.voters,
                unreplicated: self.unreplicated,
                force_empty: self.force_empty,
                temporary: self.tied,
                poll_every: Nanos::from_std(self.poll_every),
            },
            resp,
            memory_max: self.memory_max,
            json: self.json,
        }
    }
}

fn replica_name(text: &str) -> Result<Name, String> {
    named(text, REPLICA_PREFIX)
}

/// A size, such as 500MB. Its former units are none for bytes, and K, M and G in powers of 1024.
fn memory(text: &str) -> Result<u64, String> {
    let units = [("K", 1 << 10), ("M", 1 << 20), ("G", 1_u64 << 30)];
    let unit = units.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes)));
    let (number, unit) = unit.unwrap_or((text, 1));
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    bytes.filter(|bytes| *bytes > 0).map_or_else(|| size(text), Ok)
}

pub(super) fn run(root: &Path, site: &Site, options: &Options) -> Result<ExitCode, Failure> {
    if options.tied {
        sched::die_with_parent().map_err(Failure::failed)?;
    }
    if options.service != KeptName::Keys && options.resp.is_some() {
        return Err(Failure::Refused(
            "--resp: clients of Redis need keys and values; leave out --service, or --resp".to_owned(),
        ));
    }
    if options.service != KeptName::Keys && options.memory_max.is_some() {
        return Err(Failure::Refused(
            "--memory-max: only keys and values have a bound; leave out --service, or --memory-max"
                .to_owned(),
        ));
    }
    if let Some(core) = options.core {
        sched::pin_to_core(core).map_err(|error| {
            Failure::Refused(format!(
                "--core: core {core}: {error}; `nproc` prints the number of cores, which count from 0"
            ))
        })?;
    }
    let stop = signals::ending()?;
    // Also between two of its lives.
    let _name = NameClaim::reserve(&site.cluster, options.name).map_err(Failure::refused)?;
    unused_elsewhere(root, site.cluster.name(), options.name)?;
    obol_server::smr::run(site, &options.daemon(), &stop)?;
    Ok(ExitCode::SUCCESS)
}

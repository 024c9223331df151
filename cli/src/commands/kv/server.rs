//! `obol kv server`: a server of the cache.

use super::Sharding;
use crate::logging::LogOptions;
use crate::values::pause;
use clap::Args;
use obol_fabric::Name;
use obol_fabric::host::{NameClaim, sched};
use obol_kv::{SERVER_PREFIX, Shard};
use obol_node::Site;
use obol_observe::namesakes::unused_elsewhere;
use obol_server::kv::{MarkOwner, Settings};
use obol_supervise::signals;
use obol_term::output::Failure;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// How a server runs.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Name of the server; begins with kv-
    #[arg(long, value_parser = server_name)]
    name: Name,
    #[command(flatten)]
    sharding: Sharding,
    /// Poll interval; 0 keeps an otherwise unused core busy for each shard
    #[arg(long, value_name = "TIME", value_parser = pause, default_value = "20us")]
    poll_every: Duration,
    /// Stay on this core; further shards on those that follow
    #[arg(long, value_name = "N")]
    core: Option<u32>,
    /// Start empty even if earlier servers held state; stop all of them first
    #[arg(long, alias = "begin-anew")]
    force_empty: bool,
    /// Print its state as JSON lines
    #[arg(long)]
    json: bool,
    /// End with the process that started it
    #[arg(long, hide = true)]
    tied: bool,
    /// Its keys belong to the command that started it
    #[arg(long, hide = true)]
    temporary: bool,
    #[command(flatten)]
    log: LogOptions,
}

impl Options {
    fn settings(&self) -> Settings {
        Settings {
            name: self.name,
            shards: self.sharding.shards,
            poll_every: self.poll_every,
            core: self.core,
            force_empty: self.force_empty,
            json: self.json,
            whose: if self.temporary { MarkOwner::Command } else { MarkOwner::User },
        }
    }
}

fn server_name(text: &str) -> Result<Name, String> {
    let name = Name::new(text).map_err(|error| error.to_string())?;
    match Shard::of_server(text) {
        Some(Shard::WHOLE) => Ok(name),
        Some(shard) => {
            Err(format!("`.{shard}` at its end is for a shard, whose member --shards names so; leave it out"))
        }
        None => Err(format!("a server's name begins with `{SERVER_PREFIX}`, such as {SERVER_PREFIX}1")),
    }
}

pub(super) fn run(root: &Path, site: &Site, options: &Options) -> Result<ExitCode, Failure> {
    if options.tied {
        sched::die_with_parent().map_err(Failure::failed)?;
    }
    let shards = options.sharding.shards;
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    if options.poll_every == Duration::ZERO && shards as usize > cores {
        return Err(Failure::Refused(format!(
            "--poll-every 0 keeps a core busy for each of {shards} shards, and there are {cores}: fewer --shards, or a pause, such \
             as --poll-every 20us"
        )));
    }
    let stop = signals::ending()?;
    // That of its log; each shard has a name of its own, or this one.
    let _name = NameClaim::reserve(&site.cluster, options.name).map_err(Failure::refused)?;
    unused_elsewhere(root, site.cluster.name(), options.name)?;
    options.log.start(root, site, options.name, None);
    obol_server::kv::run(site, &options.settings(), &stop)?;
    Ok(ExitCode::SUCCESS)
}

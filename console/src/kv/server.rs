//! `obol kv server`: the threads of a server, one for each shard, each a member of its own.

use super::{Patience, Sharding, area, join};
use crate::cli::duration;
use crate::output::{self, Failure};
use crate::signals;
use clap::Args;
use obol_fabric::shm::sched;
use obol_fabric::{Drive, Name, Nanos};
use obol_kv::{Node, SERVER_PREFIX, Server, Service, Shard, Standing};
use obol_profiles::Site;
use obol_profiles::endpoint::Act;
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How a server runs.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Its name: kv- and something
    #[arg(long, value_parser = server_name)]
    name: Name,
    #[command(flatten)]
    sharding: Sharding,
    /// How often it looks into its memory; 0 keeps a core for each shard busy that nobody else wants
    #[arg(long, value_name = "TIME", value_parser = pause, default_value = "20us")]
    poll_every: Duration,
    /// Stay on this core; further shards on those that follow
    #[arg(long, value_name = "N")]
    core: Option<u32>,
    /// Print where it stands as JSON lines
    #[arg(long)]
    json: bool,
    /// End with the process that started it
    #[arg(long, hide = true)]
    tied: bool,
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

/// A span that may be zero.
fn pause(text: &str) -> Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { duration(text) }
}

#[derive(Serialize)]
struct StandingJson {
    event: &'static str,
    /// Of how many, counted from 1.
    shard: u32,
    shards: u32,
    standing: &'static str,
    /// Of a primary: its backup has everything; of a backup: it has.
    redundant: bool,
    answered: u64,
}

impl StandingJson {
    fn of(shard: Shard, standing: Standing, answered: u64) -> Self {
        let (standing, redundant) = match standing {
            Standing::Out => ("out", false),
            Standing::Spare => ("spare", false),
            Standing::Backup { synced } => ("backup", synced),
            Standing::TakingOver => ("taking-over", false),
            Standing::Primary { redundant } => ("primary", redundant),
            Standing::Lost => ("lost", false),
            Standing::Misfit { .. } => ("misfit", false),
        };
        let (number, shards) = (shard.index() + 1, shard.count());
        Self { event: "standing", shard: number, shards, standing, redundant, answered }
    }
}

/// Tells where a server stands until it is stopped, can not serve any more, or was excluded.
struct Tell<'a> {
    shard: Shard,
    node: &'a mut Node,
    stop: &'a AtomicBool,
    json: bool,
    /// It looks without a pause: whoever else wants its core must not wait until the kernel takes it away.
    yields: bool,
}

impl Act for Tell<'_> {
    /// Where it stood at last; out if it was excluded.
    type Output = Standing;

    fn on<D: Drive>(self, endpoint: &mut D) -> Standing {
        let mut told = None;
        let done = AtomicBool::new(false);
        let (mut patience, mut answered) = (Patience::default(), 0);
        endpoint.run(self.node, &done, |node, _| {
            let Some(server) = node.server() else { return };
            if server.answered() != answered {
                (answered, patience) = (server.answered(), Patience::default());
            } else if self.yields {
                patience.idle();
            }
            let standing = if node.is_over() { Standing::Out } else { server.standing() };
            // While there is traffic the log is never empty for long: what is told is that the backup has everything once.
            let is_news = match (told, standing) {
                (Some(Standing::Primary { redundant: true }), Standing::Primary { redundant: false }) => {
                    !server.has_synced_backup()
                }
                _ => told != Some(standing),
            };
            if is_news {
                told = Some(standing);
                if self.json {
                    // A server goes on whether or not anybody reads this.
                    let _ = output::json(&StandingJson::of(self.shard, standing, server.answered()));
                }
            }
            let is_over = matches!(standing, Standing::Lost | Standing::Misfit { .. });
            if is_over || node.is_over() || self.stop.load(Ordering::Relaxed) {
                done.store(true, Ordering::Relaxed);
            }
        });
        told.unwrap_or(Standing::Out)
    }
}

/// Ends all threads when one ends, however it does: a server without one of its shards would never be whole again.
struct EndAll<'a>(&'a AtomicBool);

impl Drop for EndAll<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Serves a shard on this thread.
fn serve(site: &Site, options: &Options, shard: Shard, stop: &AtomicBool) -> Result<(), Failure> {
    let _end_all = EndAll(stop);
    if let Some(core) = options.core.map(|first| first + shard.index()) {
        sched::pin_to_core(core).map_err(|error| {
            Failure::Refused(format!(
                "--core: core {core}: {error}; `nproc` tells how many there are, counted from 0"
            ))
        })?;
    }
    let every = Nanos::from_std(options.poll_every);
    let name = shard.name(options.name).map_err(|error| {
        Failure::Refused(format!("--name {} with `.{shard}` at its end: {error}", options.name))
    })?;
    let yields = every == Nanos::ZERO;
    // A server that was excluded comes back with memory of its own: what a primary of before still writes, which may have slept
    // longer, comes into no log that counts.
    let last = loop {
        let newest = site.newest().map_err(Failure::refused)?;
        let server = Server::new(area(site)?, shard, every, newest);
        let (mut endpoint, node) = join(site, name, Service::Server(Box::new(server)))?;
        let mut node = node.once();
        let last = endpoint.each(Tell { shard, node: &mut node, stop, json: options.json, yields });
        if last != Standing::Out || stop.load(Ordering::Relaxed) {
            endpoint.serve(&mut node, &AtomicBool::new(true));
            break last;
        }
    };
    match last {
        Standing::Lost => Err(Failure::Failed(format!(
            "{name}: all servers that had the state are gone; start this one again, and it begins with nothing if it is the first"
        ))),
        Standing::Misfit { shards } => Err(Failure::Refused(format!(
            "--shards {}: the cache that runs has its keys split into {shards}; start this server with --shards {shards}",
            shard.count()
        ))),
        _ => Ok(()),
    }
}

pub(super) fn run(site: &Site, options: &Options) -> Result<ExitCode, Failure> {
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
    let stop = signals::flag(&[SIGTERM, SIGINT])?;
    let stop = &*stop;
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for shard in Shard::split(shards) {
            let thread = std::thread::Builder::new().name(format!("obol-kv-{shard}"));
            let run = move || serve(site, options, shard, stop);
            threads.push(thread.spawn_scoped(scope, run).map_err(|error| {
                drop(EndAll(stop));
                Failure::failed(error)
            })?);
        }
        // The first that says why counts; the others ended for it.
        let ended = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(Failure::Failed("a shard's thread panicked".to_owned())))
        });
        ended.collect::<Vec<_>>().into_iter().collect::<Result<(), Failure>>()
    })?;
    Ok(ExitCode::SUCCESS)
}

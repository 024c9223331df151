//! `obol kv`: a replicated cache on a cluster, and what shows that it keeps its word.

mod bench;
mod check;
mod load;
mod server;

use clap::{Args, Subcommand};
use obol_config::duration;
use obol_fabric::{Endpoint, Name};
use obol_kv::{Client, Operation, SERVER_PREFIX, SHARDS_MAX, Status};
use obol_node::{Site, endpoint};
use obol_server::POLL_INTERVAL;
use obol_server::kv::{Session, Work, client, join};
use obol_supervise::clients::claim_name;
use obol_term::output::{self, Failure};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// What a client of one operation is called.
const CLIENT_NAME: &str = "kv_client";

/// How many shards a cache that is to be started has.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Sharding {
    /// Shard the keys among this many threads of each server; all servers of a
    /// cache need the same number
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(SHARDS_MAX)))]
    pub(crate) shards: u32,
}

/// A replicated key-value cache on the cluster, with fast failover
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Try, while `obol up` runs:\n  obol kv server --name kv-1 &\n  obol kv server --name kv-2 &\n  \
    obol kv put 1 hello && obol kill kv-1 && obol kv get 1\n  obol stop kv-2 && obol kv check --for 10s --kill-every 1s"
)]
pub(crate) enum Kv {
    /// Serve: the oldest server is the primary, the next two are its backups
    Server(server::Options),
    /// Read a key
    Get {
        /// The key
        key: u64,
        #[command(flatten)]
        client: ClientOptions,
    },
    /// Write a key
    Put {
        /// The key
        key: u64,
        /// The value, at most 1024 bytes
        value: String,
        #[command(flatten)]
        client: ClientOptions,
    },
    /// Run a light load of reads and writes, as a demo
    Load(load::Options),
    /// Start servers, kill primaries, and check every answer against the writes
    #[command(
        after_help = "Each client writes keys of its own, larger values from time to time, and reads all keys. An answer is wrong \
        if it is older than a PUT that was answered, or than a value that was read, before the GET was begun.\n\
        \nWith --freeze-every a server may be frozen while another one dies: with three servers nothing is lost then either.\n\
        \nNeeds a cluster: obol up --apps 1 &  obol kv check --for 10s --kill-every 1s\n\
        \nExit codes: 0 all answers are right, 1 some are wrong, or none came, or the cache stopped because no complete copy was left, \
        2 no such cluster, 5 interrupted by a signal, so there is no verdict, 6 inconclusive: no requested kill or freeze took place."
    )]
    Check(check::Options),
    /// Measure a replicated cache beside memcached and Redis, where they are installed
    #[command(
        after_help = "Needs a cluster: obol up --apps 1 &  obol kv bench\n\nThe primary and the client keep a core busy each."
    )]
    Bench(bench::Options),
}

/// How a client runs.
#[derive(Debug, Args)]
pub(crate) struct ClientOptions {
    /// Name of this client in the cluster [default: kv_client, with -PID at its
    /// end while another process has that]
    #[arg(long)]
    name: Option<Name>,
    /// Give up after this time
    #[arg(long, value_name = "TIME", value_parser = duration::argument, default_value = "5s")]
    timeout: Duration,
}

pub(crate) fn run(root: &Path, cluster: Name, command: &Kv) -> Result<ExitCode, Failure> {
    let site = Site::open(root, cluster).map_err(Failure::refused)?;
    match command {
        Kv::Server(options) => server::run(root, &site, options),
        Kv::Get { key, client } => one(&site, client, Operation::Get(*key)),
        Kv::Put { key, value, client } => one(&site, client, Operation::Put(*key, value.as_bytes().into())),
        Kv::Bench(options) => bench::run(root, &site, options),
        Kv::Load(options) => load::run(&site, options),
        Kv::Check(options) => check::run(root, &Arc::new(site), options),
    }
}

/// One operation.
struct Once {
    operation: Option<Operation>,
    ended: Option<obol_kv::Done>,
    until: std::time::Instant,
}

impl Work for Once {
    fn turn(&mut self, client: &mut Client, endpoint: &mut Endpoint) -> bool {
        if !client.is_busy()
            && let Some(operation) = self.operation.take()
        {
            // An empty window takes one; the value was checked.
            let _ = client.begin(obol_fabric::host::clock::now(), operation, endpoint);
        }
        self.ended = client.take();
        self.ended.is_some() || std::time::Instant::now() >= self.until
    }
}

fn one(site: &Site, options: &ClientOptions, operation: Operation) -> Result<ExitCode, Failure> {
    if let Operation::Put(_, value) = &operation
        && value.len() > obol_kv::VALUE_BYTES_MAX
    {
        return Err(Failure::refused(obol_kv::BeginError::TooLong(value.len())));
    }
    let is_get = matches!(operation, Operation::Get(_));
    let (name, _claim) = claim_name(site, options.name, CLIENT_NAME)?;
    let (mut endpoint, mut node) = join(site, name, client(site, POLL_INTERVAL)?)?;
    let until = std::time::Instant::now() + options.timeout;
    let mut once = Once { operation: Some(operation), ended: None, until };
    let stop = AtomicBool::new(false);
    let used = Session { node: &mut node, work: &mut once, stop: &stop }.in_full(&mut endpoint);
    endpoint::serve(&mut endpoint, &mut node, &AtomicBool::new(true));
    used?;
    let Some(done) = once.ended else {
        return Err(Failure::Failed(format!(
            "no answer within {:?}; see `obol status` whether a server runs ({SERVER_PREFIX}1, ...)",
            options.timeout
        )));
    };
    match done.status {
        Status::Done if is_get => output::value(&done.value)?,
        Status::Done => {}
        Status::Missing => return Err(Failure::Failed("the cache does not have this key".to_owned())),
        Status::Full => return Err(Failure::Failed("the cache has no room for another key".to_owned())),
    }
    Ok(ExitCode::SUCCESS)
}

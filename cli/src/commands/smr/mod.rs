//! `obol smr`: a replicated key-value store on a cluster, and what shows that it keeps its word.

mod bench;
mod book;
mod check;
pub(crate) mod preset;
mod recover;
mod server;
mod status;

use clap::{Args, Subcommand};
use obol_config::duration;
use obol_fabric::Name;
use obol_node::Site;
use obol_replica::named;
use obol_server::smr::ask;
use obol_smr::{Batch, CLIENT_PREFIX, Done, KEY_BYTES_MAX, KeyValue, Operation, VOTERS_MAX};
use obol_supervise::clients::claim_name;
use obol_term::output::{self, Failure};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// What a client of one operation is called.
const CLIENT_NAME: &str = "smrc-client";

/// A replicated key-value store that survives the death of any minority of its replicas
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Try, while `obol up` runs:\n  for n in 1 2 3; do obol smr server --name smr-$n & sleep 1; done\n  \
    obol smr put greeting hello && obol kill smr-1 && obol smr get greeting"
)]
pub(crate) enum Smr {
    /// Keep the store: one replica leads, and a majority has every answered command
    Server(server::Options),
    /// Show how far each replica is, as its memory says
    #[command(
        after_help = "The figures are read from the memory of the replicas; none of them has to answer, so a frozen one is shown as \
        well. They are numbers of entries: ACCEPTED of the newest one that is there, COMMITTED of the newest one that it knows to \
        be committed, APPLIED of the newest one that is part of its state, LAG of how many of the leader's it has not applied, \
        and LAG B of their bytes, PRUNED of the newest one that was given up, so that a replica without it needs a snapshot. \
        RING is the part of the leader's ring, in bytes, that was not applied yet. GRANTED is the term whose leader may write to \
        the replica, with a preset that restricts this. Redundancy counts the members that have every entry that the leader \
        knows to be committed. Screen 9 (Stores) of `obol console` shows the same, live.\n\
        \nExit codes: 0 a replica leads, 1 none does, 2 no such cluster."
    )]
    Status(status::Options),
    /// Continue with what one replica has, where no majority of the voters comes back
    #[command(
        after_help = "Where a majority of the voters has died, those that are left keep what they have and serve nobody. This makes \
        one of them the only voter of a new log, with all entries that it has. What only the lost ones had is lost, so choose the \
        one with the highest ACCEPTED in `obol smr status`, and use it only if the others are lost for good: one that was only \
        frozen or cut off ends when it comes back, with a message that it has another store.\n\
        \nExit codes: 0 it serves, 1 it does not, 2 refused."
    )]
    Recover(recover::Options),
    /// Read a key
    Get {
        /// The key; one of more than 255 bytes, which clients of Redis may have written, by an entry of the log
        key: String,
        #[command(flatten)]
        client: ClientOptions,
    },
    /// Write a key
    Put {
        /// The key, at most 255 bytes
        key: String,
        /// The value, at most 767 bytes
        value: String,
        #[command(flatten)]
        client: ClientOptions,
    },
    /// Remove a key
    Delete {
        /// The key, also one of more than 255 bytes
        key: String,
        #[command(flatten)]
        client: ClientOptions,
    },
    /// Set how many replicas are to have every answered command, while the store is used
    #[command(
        after_help = "Replicas that run and do not vote are added, one at a time, until that number votes: start them before or \
        afterwards (`obol smr server`). If there are more voters than that, each stays one until it is stopped (`obol stop`) or \
        dies, and none takes its place.\n\
        \nExit codes: 0 it is part of the log, 1 no answer came, 2 no such cluster."
    )]
    Resize {
        /// How many replicas are to vote
        #[arg(value_parser = clap::value_parser!(u32).range(1..=VOTERS_MAX as i64))]
        voters: u32,
        #[command(flatten)]
        client: ClientOptions,
    },
    /// Trade on an order book that replicas keep (`obol smr server --service orderbook`)
    #[command(
        subcommand,
        after_help = "Prices and quantities are integers, in units that all users agree on. The best price trades first, and at one \
        price the oldest order.\n\
        \nTry, while `obol up` runs:\n  for n in 1 2 3; do obol smr server --name smr-$n --service orderbook & sleep 1; done\n  \
        obol smr book sell 10 --at 101; obol smr book buy 4 --at 102; obol smr book depth"
    )]
    Book(book::Book),
    /// Start replicas, kill, freeze and cut them off, and check every answer against the writes
    #[command(
        after_help = "Each client writes keys of its own, larger values from time to time, and reads all keys. An answer is wrong \
        if it is older than a write that was answered, or than a value that was read, before the read was begun. At the end all \
        keys are read once more; one without what was answered is lost.\n\
        \nA replica is hit when all of them vote and have everything, and by one fault at a time. A killed one is started again \
        with empty memory. A freeze or a cut lasts for a random time up to --fault-max, so some are over before the others \
        notice. If the replicas do not have everything again within 20 seconds, the check fails. So it does if the memory of a \
        process of the cluster grows by more than 2 MiB from the first fifth of the time to the last one, where these have ten \
        seconds or more.\n\
        \nNeeds a cluster: obol up --apps 1 &  obol smr check --for 10s --kill-every 1s\n  \
        obol smr check --for 10m --kill-every 3s --freeze-every 3s --cut-every 3s --preset view,mu\n\
        \nExit codes: 0 all answers are right, 1 some are wrong or lost, none came, the replicas did not recover, or memory \
        grows, 2 no such cluster, 5 interrupted by a signal, so there is no verdict, 6 inconclusive: one of the requested \
        faults did not take place."
    )]
    Check(check::Options),
    /// Measure a replicated store beside the same server without copies
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "Replicas and a single server without copies (`obol smr server --unreplicated`) are measured in turns; each \
        figure is the median of the turns. Latencies are those of one client with one operation at a time. With --preset the \
        figures of several presets are beside each other; with mu, reads are entries of the log, and a client may have \
        answers before the members have excluded the leader.\n\
        \nNeeds a cluster: obol up --apps 1 &  obol smr bench\n  obol smr bench --preset view,mu,mu+views,dare\n\
        \nExit codes: 0 all figures meet their targets, 1 one does not, 2 refused."
    )]
    Bench(bench::Options),
}

/// How a client runs.
#[derive(Debug, Args)]
pub(crate) struct ClientOptions {
    /// Its name in the cluster: smrc- and something [default: smrc-client, with
    /// -PID at its end while another process has that]
    #[arg(long, value_parser = client_name)]
    name: Option<Name>,
    /// Give up after this time
    #[arg(long, value_name = "TIME", value_parser = duration::argument, default_value = "5s")]
    timeout: Duration,
}

fn client_name(text: &str) -> Result<Name, String> {
    named(text, CLIENT_PREFIX)
}

pub(crate) fn run(root: &Path, cluster: Name, command: &Smr) -> Result<ExitCode, Failure> {
    let mut site = Site::open(root, cluster).map_err(Failure::refused)?;
    obol_replica::for_requests(&mut site);
    match command {
        Smr::Server(options) => server::run(root, &site, options),
        Smr::Status(options) => status::run(root, &site, options),
        Smr::Recover(options) => recover::run(root, &site, options),
        Smr::Get { key, client } if key.len() > KEY_BYTES_MAX => {
            let reply = one(&site, client, Operation::Propose(long_key("GET", key)?))?.reply;
            output::value(bulk_of(&reply)?)?;
            Ok(ExitCode::SUCCESS)
        }
        Smr::Get { key, client } => {
            let query = KeyValue::get(key.as_bytes()).map_err(Failure::refused)?;
            let done = one(&site, client, Operation::Query(query))?;
            output::value(found(&done)?)?;
            Ok(ExitCode::SUCCESS)
        }
        Smr::Put { key, value, client } => {
            let put = KeyValue::put(key.as_bytes(), value.as_bytes()).map_err(Failure::refused)?;
            found(&one(&site, client, Operation::Propose(put))?)?;
            Ok(ExitCode::SUCCESS)
        }
        Smr::Delete { key, client } if key.len() > KEY_BYTES_MAX => {
            let reply = one(&site, client, Operation::Propose(long_key("DEL", key)?))?.reply;
            match reply_of(&reply)? {
                b":0\r\n" => Err(no_key()),
                _ => Ok(ExitCode::SUCCESS),
            }
        }
        Smr::Delete { key, client } => {
            let delete = KeyValue::delete(key.as_bytes()).map_err(Failure::refused)?;
            found(&one(&site, client, Operation::Propose(delete))?)?;
            Ok(ExitCode::SUCCESS)
        }
        Smr::Resize { voters, client } => {
            one(&site, client, Operation::Resize(*voters))?;
            Ok(ExitCode::SUCCESS)
        }
        Smr::Book(book) => book::run(&site, book),
        Smr::Check(options) => check::run(root, &Arc::new(site), options),
        Smr::Bench(options) => bench::run(root, &Arc::new(site), options),
    }
}

/// What an answer contains.
fn found(done: &Done) -> Result<&[u8], Failure> {
    if KeyValue::is_full(&done.reply) {
        return Err(Failure::Failed(
            "the leader's memory is full (--memory-max): delete keys, or start replicas with a larger bound"
                .to_owned(),
        ));
    }
    if KeyValue::is_large(&done.reply) {
        return Err(Failure::Failed(
            "the value is too long to be read here: a client of Redis can read it (`obol smr server --resp`)"
                .to_owned(),
        ));
    }
    match KeyValue::outcome(&done.reply) {
        Ok(Some(value)) => Ok(value),
        Ok(None) => Err(no_key()),
        Err(error) => Err(Failure::failed(error)),
    }
}

fn no_key() -> Failure {
    Failure::Failed("the store does not have this key".to_owned())
}

/// A command of Redis with a key for which others have no room.
fn long_key(command: &str, key: &str) -> Result<Box<[u8]>, Failure> {
    let mut batch = Batch::default();
    if batch.push(&[command, key]) {
        return Ok(batch.bytes());
    }
    Err(Failure::Refused(format!(
        "the store has no keys of {} bytes: no command has room for one",
        key.len()
    )))
}

/// The reply to the one command of a batch, as Redis words it.
fn reply_of(reply: &[u8]) -> Result<&[u8], Failure> {
    let replies = Batch::replies(reply).unwrap_or_default();
    match replies.first() {
        Some([b'-', why @ ..]) => Err(Failure::Failed(String::from_utf8_lossy(why).trim_end().to_owned())),
        Some(reply) => Ok(reply),
        None => Err(Failure::Failed("the answer has no room for the value, or is damaged".to_owned())),
    }
}

/// The value in such a reply.
fn bulk_of(reply: &[u8]) -> Result<&[u8], Failure> {
    let bulk = reply_of(reply)?;
    if bulk == b"$-1\r\n" {
        return Err(no_key());
    }
    let value = bulk.iter().position(|byte| *byte == b'\n').map(|end| &bulk[end + 1..]);
    let value = value.filter(|_| bulk.starts_with(b"$")).and_then(|value| value.strip_suffix(b"\r\n"));
    value.ok_or_else(|| Failure::Failed("the answer is not a value".to_owned()))
}

fn one(site: &Site, options: &ClientOptions, operation: Operation) -> Result<Done, Failure> {
    let (name, _claim) = claim_name(site, options.name, CLIENT_NAME)?;
    ask(site, name, operation, options.timeout)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reply to a batch of one command.
    fn reply(text: &str) -> Vec<u8> {
        let len = u16::try_from(text.len()).expect("short").to_le_bytes();
        [&[1][..], &len, text.as_bytes()].concat()
    }

    #[test]
    fn a_value_is_read_from_the_reply_to_a_command_of_redis() {
        let value =
            |text: &str| bulk_of(&reply(text)).map(|value| String::from_utf8_lossy(value).into_owned());
        assert_eq!(value("$4\r\na\r\nb\r\n").ok().as_deref(), Some("a\r\nb"));
        assert_eq!(value("$0\r\n\r\n").ok().as_deref(), Some(""));
        for (text, why) in [
            ("$-1\r\n", "does not have"),
            ("-OOM full\r\n", "OOM full"),
            (":1\r\n", "not a value"),
            ("$", "not a value"),
        ] {
            let said = value(text).expect_err(text).to_string();
            assert!(said.contains(why), "{said}");
        }
        assert!(bulk_of(&[0]).is_err() && bulk_of(&[]).is_err(), "no command was executed");
        assert!(long_key("GET", &"k".repeat(1000)).is_ok() && long_key("GET", &"k".repeat(1100)).is_err());
    }
}

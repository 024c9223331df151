//! `obol smr recover`: a store continues with what one replica has, on an operator's word.

use clap::Args;
use obol_config::duration;
use obol_fabric::Name;
use obol_node::Site;
use obol_observe::Observer;
use obol_observe::replicas::{Doing, Log, Replica, Replicas};
use obol_replica::{ReplicaError, named};
use obol_server::smr::failure;
use obol_smr::{Preset, REPLICA_PREFIX};
use obol_term::output::{self, Failure};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Interval of looks whether it leads.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// It may just begin to take over; and without views, one that gets nowhere leads and follows by turns.
const LOOKS_FOR: Duration = Duration::from_millis(300);

/// Which replica continues.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The replica whose state the store continues with; it runs on this host
    #[arg(long, value_name = "NAME", value_parser = replica_name)]
    from: Name,
    /// Continue even if another replica has entries that this one lacks: they are
    /// lost then
    #[arg(long)]
    lose_newer: bool,
    /// Give up if it does not serve within this time
    #[arg(long, value_name = "TIME", value_parser = duration::argument, default_value = "5s")]
    timeout: Duration,
}

fn replica_name(text: &str) -> Result<Name, String> {
    named(text, REPLICA_PREFIX)
}

/// The replicas, and where they are.
struct Seen {
    replicas: Replicas,
    /// The number of the host of each process; 0 if it is not known.
    hosts: BTreeMap<Name, u8>,
}

impl Seen {
    fn host(&self, one: &Replica) -> String {
        match self.hosts.get(&one.name) {
            None | Some(0) => "another host".to_owned(),
            Some(host) => format!("host {host}"),
        }
    }

    /// Its name, with its host if it is not this one.
    fn placed(&self, one: &Replica) -> String {
        if one.elsewhere { format!("{} ({})", one.name, self.host(one)) } else { one.name.to_string() }
    }
}

/// Why a store cannot continue with this replica; otherwise its log.
fn may_recover<'a>(seen: &'a Seen, options: &Options) -> Result<&'a Log, String> {
    let (of, name) = (&seen.replicas, options.from);
    if let Some(leader) = of.leader {
        return Err(format!("{leader} leads, and serves: there is nothing to recover"));
    }
    if of.preset == Some(Preset::Dare.to_string()) {
        return Err(format!(
            "replicas with preset {} cannot continue alone: continue those that are frozen (`kill -CONT`) or cut off, or end all \
             and begin an empty store: `obol smr server --preset {} --force-empty --name {name}`",
            Preset::Dare,
            Preset::Dare
        ));
    }
    let mut named = of.replicas.iter().filter(|one| one.name == name);
    let all: Vec<String> = of.replicas.iter().map(|one| seen.placed(one)).collect();
    let one = named.next().ok_or_else(|| match &all[..] {
        [] => "no replica runs, so no state is left".to_owned(),
        all => format!("no replica {name} runs; there are: {}", all.join(", ")),
    })?;
    if one.elsewhere {
        let host = seen.host(one);
        return Err(format!("{name} is of {host}: run `obol smr recover --from {name}` there"));
    }
    let log = one.log.as_ref().ok_or_else(|| format!("{name} has no state: it never had the store"))?;
    if log.needs_snapshot {
        return Err(format!("{name} has no whole state: it was loading a snapshot"));
    }
    if one.activity == Some(Doing::TakesOver) && one.member && !one.frozen {
        return Err(format!(
            "{name} takes over, and its voters may be there: wait until it serves, or `obol smr status` says that it lacks a majority"
        ));
    }
    if one.activity != Some(Doing::Stalls) || !one.member || one.frozen {
        let older = of.replicas.iter().find(|one| one.activity == Some(Doing::Stalls));
        let what = older.map_or(String::new(), |older| {
            let older = older.name;
            format!("; {older} is to lead: recover from it, or stop it first (`obol stop {older}`), and what it has is lost")
        });
        return Err(format!("{name} is not to lead: {}{what}", one.clause()));
    }
    let is_newer = |other: &&Replica| {
        let newer =
            other.log.as_ref().is_some_and(|other| other.id == log.id && other.accepted > log.accepted);
        other.name != name && newer
    };
    match of.replicas.iter().find(is_newer) {
        Some(other) if !options.lose_newer => {
            let has = other.log.as_ref().map_or(0, |other| other.accepted - log.accepted);
            Err(format!(
                "{} has {has} entries that {name} lacks: recover from it, or give them up with --lose-newer",
                other.name
            ))
        }
        _ => Ok(log),
    }
}

pub(super) fn run(root: &Path, site: &Site, options: &Options) -> Result<ExitCode, Failure> {
    let observer = Observer::open(root, site.cluster.name()).map_err(Failure::refused)?;
    let mut observer = observer.read_replicas();
    let mut read = || {
        let snapshot = observer.snapshot();
        let hosts = snapshot.all_processes().map(|process| (process.name, process.host)).collect();
        let replicas =
            Replicas::read(&mut observer, &snapshot).ok_or_else(|| failure(ReplicaError::NoRoom))?;
        Ok::<Seen, Failure>(Seen { replicas, hosts })
    };
    let given_up = Instant::now() + LOOKS_FOR;
    let before = loop {
        let before = read()?;
        let Some(why) = may_recover(&before, options).err() else { break before };
        if before.replicas.leader.is_some() || Instant::now() > given_up {
            return Err(Failure::Refused(why));
        }
        std::thread::sleep(POLL_INTERVAL);
    };
    let log = may_recover(&before, options).map_err(Failure::Refused)?;
    let (name, applied, id_before) = (options.from, log.accepted, &log.id);
    obol_replica::recover(site, name.as_str()).map_err(failure)?;
    let end = Instant::now() + options.timeout;
    loop {
        let now = read()?.replicas;
        let one = now.replicas.iter().find(|one| one.name == name);
        if now.leader == Some(name) {
            let id = one.and_then(|one| one.log.as_ref()).map_or("--", |log| &log.id);
            if id == id_before {
                obol_replica::end_recovery(site, name.as_str());
                output::line(format_args!(
                    "{name} serves again with its log: a majority of the voters has come back"
                ))?;
                return Ok(ExitCode::SUCCESS);
            }
            output::line(format_args!(
                "{name} serves with what it has, up to entry {applied}, as the only voter of log {id}. Other replicas of the log \
                 before end, or are to be stopped; start them again, and they load its state"
            ))?;
            return Ok(ExitCode::SUCCESS);
        }
        if one.is_none() || Instant::now() > end {
            obol_replica::end_recovery(site, name.as_str());
            let what = one.map_or("it has ended".into(), Replica::clause);
            return Err(Failure::Failed(format!(
                "{name} does not serve within {:?}: {what}; see `obol smr status`",
                options.timeout
            )));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

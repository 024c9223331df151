//! Replicas of a store that a command starts and ends, and hears of by what they print.

use crate::failovers::Victims;
use crate::process::{POLL_INTERVAL, Process, SERVE_TIMEOUT, living};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use obol_node::Site;
use obol_replica::MarkOwner;
use obol_smr::REPLICA_PREFIX;
use obol_supervise::leaving::{forget_own, terminate_and_wait};
use obol_term::output::Failure;
use std::io;
use std::path::Path;

/// Where a replica says that it stands.
#[derive(Clone, Debug, Default)]
struct Standing {
    standing: String,
    redundancy: u64,
    voters: u64,
}

/// A replica that runs.
type Running = Process<Standing>;

/// Replicas that were started for a command, and end with it.
pub struct Replicas<'a> {
    root: &'a Path,
    site: &'a Site,
    poll_every: String,
    of_all: Vec<String>,
    /// How many come before these, in the process of the command.
    before: usize,
    running: Vec<Running>,
}

impl Drop for Replicas<'_> {
    fn drop(&mut self) {
        let count = self.running.len();
        terminate_and_wait(self.running.iter_mut().map(|replica| &mut replica.child));
        self.running.clear();
        // The keys belonged to this command only.
        let own: Vec<String> = (0..self.before + count).map(name).collect();
        own.iter().for_each(|name| MarkOwner::Command.clear(self.site, name));
        forget_own(self.root, self.site.cluster.name(), |name| own.iter().any(|own| own == name));
    }
}

/// The name of a replica.
pub fn name(place: usize) -> String {
    format!("{REPLICA_PREFIX}{}", place + 1)
}

impl<'a> Replicas<'a> {
    /// Starts `count` replicas in a cluster without any, the first one and all of them with these options.
    pub fn start(
        root: &'a Path,
        site: &'a Site,
        count: u32,
        poll_every: &str,
        of_first: &[&str],
        of_all: &[&str],
    ) -> Result<Self, Failure> {
        let cluster = site.cluster.name();
        if let Some(one) = living(root, cluster, REPLICA_PREFIX)?.first() {
            return Err(Failure::Refused(format!(
                "a store runs already ({one}), and this starts its own: end its replicas (`obol stop {one}`), or use a cluster without \
                 (`obol up --cluster NAME`)"
            )));
        }
        let of_all = of_all.iter().map(|option| (*option).to_owned()).collect();
        let mut all =
            Self { root, site, poll_every: poll_every.to_owned(), of_all, before: 0, running: Vec::new() };
        for place in 0..count as usize {
            // It starts empty, whatever was there before. No replica may begin a log later.
            let first = place == 0;
            let options = if first { [&["--force-empty"], of_first].concat() } else { Vec::new() };
            let replica = all.replica(place, &options)?;
            all.running.push(replica);
            if first {
                all.until(|standing| standing == "leading")?;
            }
        }
        Ok(all)
    }

    /// Starts all of `count` replicas but the first one, which leads and is not one of these.
    pub fn behind(
        root: &'a Path,
        site: &'a Site,
        count: u32,
        poll_every: &str,
        of_all: &[&str],
    ) -> Result<Self, Failure> {
        let of_all = of_all.iter().map(|word| (*word).to_owned()).collect();
        let poll_every = poll_every.to_owned();
        let mut all = Self { root, site, poll_every, of_all, before: 1, running: Vec::new() };
        for place in all.before..count as usize {
            let replica = all.replica(place, &[])?;
            all.running.push(replica);
        }
        Ok(all)
    }

    fn replica(&self, place: usize, options: &[&str]) -> Result<Running, Failure> {
        let name = name(place);
        let mut arguments = vec!["smr", "server", "--json", "--tied", "--poll-every", &self.poll_every];
        arguments.extend(["--name", &name]);
        arguments.extend(options);
        arguments.extend(self.of_all.iter().map(String::as_str));
        let hear = |line: &serde_json::Value, standing: &mut Standing| {
            *standing = Standing {
                standing: line["standing"].as_str().unwrap_or_default().to_owned(),
                redundancy: line["redundancy"].as_u64().unwrap_or(0),
                voters: line["voters"].as_u64().unwrap_or(0),
            };
        };
        Process::start(self.root, self.site.cluster.name(), &arguments, Standing::default(), hear)
    }

    fn until(&mut self, is: impl Fn(&str) -> bool) -> Result<(), Failure> {
        let end = std::time::Instant::now() + SERVE_TIMEOUT;
        while !self.running.iter().all(|one| is(&one.standing().standing)) {
            // It has said why.
            if self.running.iter_mut().any(|one| matches!(one.child.try_wait(), Ok(Some(_)))) {
                return Err(Failure::Failed(format!("a replica ended by itself: {}", self.stand())));
            }
            if std::time::Instant::now() > end {
                return Err(self.not_ready());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    fn not_ready(&self) -> Failure {
        Failure::Failed(format!("the store is not redundant within {SERVE_TIMEOUT:?}: {}", self.stand()))
    }

    /// Waits until all replicas vote and have everything; returns the leader.
    pub fn redundant(&self) -> Result<usize, Failure> {
        let end = std::time::Instant::now() + SERVE_TIMEOUT;
        loop {
            if let Some(leader) = self.redundant_leader() {
                return Ok(leader);
            }
            if std::time::Instant::now() > end {
                return Err(self.not_ready());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Who leads, if all replicas vote and have everything. One that was frozen says that it leads
    /// until it has learned of its successor, so no other one must say so.
    pub fn redundant_leader(&self) -> Option<usize> {
        let count = self.running.len();
        let leads = |(_, one): &(usize, &Running)| one.standing().standing == "leading";
        let mut leaders = self.running.iter().enumerate().filter(leads);
        let (leader, one) = leaders.next()?;
        let is_redundant = one.standing().redundancy as usize == count;
        (is_redundant && leaders.next().is_none()).then_some(leader)
    }

    /// The leader among those that run, if there are `voters` voters and all have everything.
    pub fn leader_of(&self, voters: u32, runs: &[bool]) -> Option<usize> {
        let leads = |(one, runs): (&Running, &bool)| {
            let Standing { standing, redundancy, voters: all } = &*one.standing();
            *runs && standing == "leading" && [*redundancy, *all] == [u64::from(voters); 2]
        };
        self.running.iter().zip(runs).position(leads)
    }

    /// Starts one more.
    pub fn add(&mut self) -> Result<(), Failure> {
        let replica = self.replica(self.running.len(), &[])?;
        self.running.push(replica);
        Ok(())
    }

    /// Sends a replica a signal.
    pub fn signal(&self, place: usize, signal: Signal) -> Result<(), Failure> {
        // It is not reaped, so the number is its own.
        let pid = Pid::from_raw(self.running[place].child.id().cast_signed());
        kill(pid, signal).map_err(io::Error::from).map_err(Failure::failed)
    }

    /// Drops what a replica has said of itself, before a fault that keeps it from saying more.
    pub fn forget(&self, place: usize) {
        *self.running[place].standing() = Standing::default();
    }

    /// Where each replica says that it stands.
    pub fn stand(&self) -> String {
        let stands = |(place, one): (usize, &Running)| {
            let Standing { standing, redundancy, voters } = &*one.standing();
            let standing = if standing.is_empty() { "silent" } else { standing };
            format!("{} {standing}, redundancy {redundancy} of {voters}", name(place))
        };
        self.running.iter().enumerate().map(stands).collect::<Vec<_>>().join("; ")
    }

    /// Kills a replica.
    pub fn end(&mut self, place: usize) -> Result<(), Failure> {
        self.running[place].child.kill().map_err(Failure::failed)
    }

    /// Starts a replica that was killed again, with empty memory.
    pub fn restart(&mut self, place: usize) -> Result<(), Failure> {
        self.running[place].child.wait().map_err(Failure::failed)?;
        self.running[place] = self.replica(place, &[])?;
        Ok(())
    }
}

impl Victims for Replicas<'_> {
    fn redundant(&mut self) -> Result<usize, Failure> {
        Replicas::redundant(self)
    }

    fn kill(&mut self, place: usize) -> Result<(), Failure> {
        self.end(place)
    }

    fn restore(&mut self, place: usize) -> Result<(), Failure> {
        self.restart(place)
    }
}

//! Replicas of a store that a command starts and ends, and hears of by what they print.

use obol_fabric::host::sched;
use obol_node::Site;
use obol_observe::{Observer, Process};
use obol_replica::Whose;
use obol_smr::REPLICA_PREFIX;
use obol_supervise::leaving::{forget_own, let_leave};
use obol_term::output::Failure;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// How long the replicas have to serve at first, and to be redundant again.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Poll interval for the replicas.
pub const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Where a replica says that it stands.
#[derive(Clone, Debug, Default)]
struct Standing {
    standing: String,
    redundancy: u64,
    voters: u64,
}

/// A replica that runs.
struct Running {
    child: Child,
    standing: Arc<Mutex<Standing>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

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
        let_leave(self.running.iter_mut().map(|replica| &mut replica.child));
        self.running.clear();
        // The keys belonged to this command only.
        let own: Vec<String> = (0..self.before + count).map(name).collect();
        own.iter().for_each(|name| Whose::Command.clear(self.site, name));
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
        let seen = Observer::open(root, cluster).map_err(Failure::refused)?.snapshot();
        let serves = |p: &&Process| p.alive && p.name.as_str().starts_with(REPLICA_PREFIX);
        if let Some(one) = seen.all_processes().find(serves) {
            return Err(Failure::Refused(format!(
                "a store runs already ({}), and this starts its own: end its replicas (`obol stop {}`), or use a cluster without \
                 (`obol up --cluster NAME`)",
                one.name, one.name
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
        let mut command = Command::new(std::env::current_exe().map_err(Failure::failed)?);
        sched::pass_parent_id(&mut command)
            .arg("--root")
            .arg(self.root)
            .args(["--cluster", self.site.cluster.name().as_str()]);
        command.args(["smr", "server", "--json", "--tied", "--poll-every", &self.poll_every]);
        command.args(["--name", &name(place)]).args(options).args(&self.of_all);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(Failure::failed)?;
        let standing = Arc::new(Mutex::new(Standing::default()));
        let known = Arc::clone(&standing);
        let Some(out) = child.stdout.take() else { return Err(Failure::Failed("no pipe".to_owned())) };
        let read = move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let Ok(line) = serde_json::from_str::<serde_json::Value>(&line) else { continue };
                let standing = line["standing"].as_str().unwrap_or_default().to_owned();
                let redundancy = line["redundancy"].as_u64().unwrap_or(0);
                let voters = line["voters"].as_u64().unwrap_or(0);
                *known.lock() = Standing { standing, redundancy, voters };
            }
        };
        std::thread::Builder::new().name("obol-reports".to_owned()).spawn(read).map_err(Failure::failed)?;
        Ok(Running { child, standing })
    }

    fn until(&mut self, is: impl Fn(&str) -> bool) -> Result<(), Failure> {
        let end = std::time::Instant::now() + PATIENCE;
        while !self.running.iter().all(|one| is(&one.standing.lock().standing)) {
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
        Failure::Failed(format!("the store is not redundant within {PATIENCE:?}: {}", self.stand()))
    }

    /// Waits until all replicas vote and have everything; returns the leader.
    pub fn redundant(&self) -> Result<usize, Failure> {
        let end = std::time::Instant::now() + PATIENCE;
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
        let leads = |(_, one): &(usize, &Running)| one.standing.lock().standing == "leading";
        let mut leaders = self.running.iter().enumerate().filter(leads);
        let (leader, one) = leaders.next()?;
        let is_redundant = one.standing.lock().redundancy as usize == count;
        (is_redundant && leaders.next().is_none()).then_some(leader)
    }

    /// The leader among those that run, if there are `voters` voters and all have everything.
    pub fn leader_of(&self, voters: u32, runs: &[bool]) -> Option<usize> {
        let leads = |(one, runs): (&Running, &bool)| {
            let Standing { standing, redundancy, voters: all } = &*one.standing.lock();
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
        kill_process(Pid::from_child(&self.running[place].child), signal).map_err(Failure::failed)
    }

    /// Drops what a replica has said of itself, before a fault that keeps it from saying more.
    pub fn forget(&self, place: usize) {
        *self.running[place].standing.lock() = Standing::default();
    }

    /// Where each replica says that it stands.
    pub fn stand(&self) -> String {
        let stands = |(place, one): (usize, &Running)| {
            let Standing { standing, redundancy, voters } = &*one.standing.lock();
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

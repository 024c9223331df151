//! Drills on real processes: an observer, a fault agent on each host with a target, and the
//! multicast cue.

use super::cues::Cues;
use super::error::RunError;
use super::fleet::Fleet;
use super::journal::Host;
use super::options::Options;
use super::parts::{Part, elsewhere, parts};
use super::subject::{Subject as _, System};
use crate::drillfile::Allowed;
use crate::drillfile::{Drill, Step};
use crate::drills::agent::channel::{Arm, LATE, Order, Reply, Stamp};
use crate::drills::agent::cue::Token;
use crate::drills::agent::invocation::Invocation;
use crate::drills::agent::remote::{ANSWER_TIMEOUT, Remote, RemoteError};
use crate::drills::agent::ssh::Login;
use crate::drills::agent::undo_record::records;
use crate::drills::agent::{switch, undo};
use crate::drills::victims::select::{Chosen, Supervisor};
use crate::faults::Record;
use obol_fabric::{Instant, Nanos};
use obol_node::Site;
use obol_observe::{Observer, Process};
use obol_supervise::control::{self, Request};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{self, Duration};
use std::{io, thread};

/// A cue that arrives later after the order to arm is late.
const CUE_EXPIRES: Nanos = Nanos::from_secs(2);
/// Where hosts take seconds to detect a loss, they take as long to arm a fault: a cue is late, and a fault
/// agent hangs, only after this many times that span.
const CUE_DETECTIONS: u64 = 4;
const ANSWER_DETECTIONS: u64 = 8;
/// Timeout for the fault agents' reports of the cue or its expiry. On a busy host a program that sets
/// packet filters takes seconds.
const FIRED_TIMEOUT: Duration = Duration::from_secs(20);
/// Timeout for a fault agent's undo, and for a restart by it.
const UNDONE_TIMEOUT: Duration = Duration::from_secs(10);
/// The dead man's switch is divided by this. In one part the loss of a fault agent is found, in the next its
/// warden may undo, and the others are for the undo by this process.
const DEAD_MAN_PARTS: u32 = 4;
/// Poll interval while others undo.
const UNDO_POLL: Duration = Duration::from_millis(5);

/// How long others may take to undo what these records name. A fault agent that lives has its time; the
/// warden of one that was killed may have been killed as well.
fn patience(records: &[Record], dead_man: Nanos) -> Duration {
    let lives = records.iter().any(|record| !record.is_left());
    if lives { UNDONE_TIMEOUT } else { UNDONE_TIMEOUT.min(dead_man.to_std() / DEAD_MAN_PARTS) }
}

/// Waits until others have undone everything in a cluster's directory; false if that takes too long.
fn await_undone(dir: &Path, since: time::Instant, dead_man: Nanos) -> io::Result<bool> {
    loop {
        let records = records(dir)?;
        if records.is_empty() {
            return Ok(true);
        }
        if since.elapsed() >= patience(&records, dead_man) {
            return Ok(false);
        }
        thread::sleep(UNDO_POLL);
    }
}

/// A cluster of processes.
pub(super) struct Live {
    fleet: Fleet,
    supervisor: Supervisor,
    cues: Cues,
    root: PathBuf,
    options: Options,
    dead_man: Nanos,
    /// The fault agents, by the number of their host; started when they are first needed.
    agents: BTreeMap<u8, Remote>,
    /// Those of hosts that have crashed. Closing their channels earlier would end them before their hosts.
    crashed: Vec<Remote>,
    /// The parts of the hosts in the current step.
    armed: BTreeMap<u8, Part>,
    /// The token of the next cue.
    token: Option<Token>,
}

impl Live {
    /// Starts the fault agent of this host; those of others are started when they have a target.
    pub(super) fn start(
        root: &Path,
        drill: &Drill,
        options: &Options,
        fleet: Fleet,
        supervisor: Supervisor,
    ) -> Result<Self, RunError> {
        if options.ssh.is_some()
            && let Some(network) = fleet.deployment().network.as_ref().filter(|n| n.hosts.len() > 1)
        {
            return Err(RunError::SeveralHosts(network.hosts.len()));
        }
        if options.ssh.is_none() && options.login != Login::new() && fleet.is_here() {
            return Err(RunError::NoSsh);
        }
        let own = fleet.own();
        let name = fleet.name_here(own).unwrap_or_default();
        let cues = Cues::open(&Site::open(root, name)?)?;
        let mut live = Self {
            fleet,
            supervisor,
            cues,
            root: root.to_owned(),
            options: options.clone(),
            dead_man: drill.guards.dead_man,
            agents: BTreeMap::new(),
            crashed: Vec::new(),
            armed: BTreeMap::new(),
            token: None,
        };
        live.start_agent(own)?;
        Ok(live)
    }

    /// Starts the fault agent of a host, unless it runs.
    fn start_agent(&mut self, host: u8) -> Result<(), RunError> {
        if self.agents.contains_key(&host) {
            return Ok(());
        }
        let Options { program, ssh, login, .. } = &self.options;
        let own = self.fleet.name_here(self.fleet.own()).unwrap_or_default();
        let at = |cluster| Invocation { program, root: &self.root, cluster };
        let agent = match (ssh, self.fleet.name_here(host)) {
            (Some(ssh), _) => Remote::by_ssh(ssh, at(own), self.dead_man)?,
            (None, Some(name)) => Remote::start(at(name), &self.root.join(name.as_str()), self.dead_man)?,
            (None, None) => {
                let network = self.fleet.deployment().network.as_ref();
                let address =
                    network.and_then(|network| network.hosts.get(usize::from(host).checked_sub(1)?));
                let address = address.ok_or(RunError::NoWay(host))?;
                Remote::by_ssh(&login.to(*address), at(own), self.dead_man)?
            }
        };
        self.agents.insert(host, agent);
        Ok(())
    }

    fn agent(&self, host: u8) -> Result<&Remote, RemoteError> {
        self.agents.get(&host).ok_or(RemoteError::Ended)
    }

    /// The next reply of a fault agent. Fails as soon as another one that is armed has ended, because what
    /// that has injected is to be undone.
    fn reply(&self, host: u8, within: Duration, doing: &'static str) -> Result<Reply, RemoteError> {
        let agent = self.agent(host)?;
        let end = time::Instant::now() + within;
        loop {
            let left = end.saturating_duration_since(time::Instant::now());
            match agent.reply(left.min(self.dead_man.to_std() / DEAD_MAN_PARTS), doing) {
                Err(RemoteError::Silent(_)) if !left.is_zero() => {}
                answer => return answer,
            }
            if self.armed.keys().filter_map(|host| self.agents.get(host)).any(Remote::has_ended) {
                return Err(RemoteError::Ended);
            }
        }
    }

    /// How long a fault agent may take to arm itself, for which it starts a dozen programs if the fault is
    /// one of the network.
    fn answers_within(&self) -> Duration {
        ANSWER_TIMEOUT.max(self.detections(ANSWER_DETECTIONS).to_std())
    }

    /// This many times what the profile allows for the detection of a lost host.
    fn detections(&self, times: u64) -> Nanos {
        self.fleet.deployment().profile.ip.detection.saturating_mul(times)
    }

    /// Arms all fault agents with a part: each begins before the first has answered.
    fn arm_all(&self, drill: &Drill, token: Token) -> Result<(), RunError> {
        let guards = &drill.guards;
        for (host, part) in &self.armed {
            let arm = Arm {
                token: token.to_hex(),
                expires_in: CUE_EXPIRES.max(self.detections(CUE_DETECTIONS)).0,
                dead_man: guards.dead_man.0,
                environment: drill.environment.to_string(),
                max_targets: guards.max_targets,
                keep_acceptors: guards.keep_acceptors,
                keep_lease_caches: guards.keep_lease_caches,
                deny_hosts: guards.deny_hosts.clone(),
                allowed: Allowed { crash: self.options.crash.clone(), ..guards.allowed.clone() },
                injections: part.injections.clone(),
                elsewhere: elsewhere(&self.armed, *host),
                restart: part.restart.clone(),
                locks: self.fleet.name_here(*host).is_none(),
            };
            self.agent(*host)?.order(&Order::Arm(Box::new(arm)))?;
        }
        for host in self.armed.keys() {
            match self.agent(*host)?.armed(self.answers_within()) {
                Err(RemoteError::Refused(reason)) if self.armed.len() > 1 => {
                    return Err(RemoteError::Refused(format!("on host {host}: {reason}")).into());
                }
                answer => answer?,
            }
        }
        Ok(())
    }

    /// Waits until nothing is left to undo on a host whose fault agent was lost at that time; what became of
    /// it.
    fn undone_on(&self, host: u8, since: time::Instant) -> String {
        let remedy = |why: &str| {
            format!("host {host}: faults may still be in force{why}; run `obol drill recover` there")
        };
        let Some(name) = self.fleet.name_here(host) else {
            return match self.site().and_then(|site| switch::await_undone_on(&site, host)) {
                Ok(true) => format!("host {host}: its faults are undone"),
                Ok(false) => remedy(""),
                Err(why) => remedy(&format!(" ({why})")),
            };
        };
        let dir = self.root.join(name.as_str());
        if await_undone(&dir, since, self.dead_man).is_ok_and(|undone| undone) {
            return format!("host {host}: its faults are undone");
        }
        // The warden was killed as well, hangs, or is slow: then the lock on the record lets one of both undo.
        // This process holds the drill lock.
        let recovered = Observer::open(&self.root, name)
            .map_err(|error| error.to_string())
            .and_then(|mut observer| undo::recover(&mut observer).map_err(|error| error.to_string()));
        match recovered {
            Ok(undone) if undone.failed.is_empty() => {
                let done = undone.done.join("; ");
                // The warden was first.
                let colon = if done.is_empty() { "" } else { ": " };
                format!("host {host}: its faults are undone{colon}{done}")
            }
            Ok(undone) => remedy(&format!(" ({})", undone.failed.join("; "))),
            Err(why) => remedy(&format!(" ({why})")),
        }
    }

    fn site(&self) -> Result<Site, String> {
        let name = self.fleet.name_here(self.fleet.own()).unwrap_or_default();
        Site::open(&self.root, name).map_err(|error| error.to_string())
    }

    /// The stamps of a fault agent on this host's clock.
    fn localized(&self, host: u8, stamp: Stamp) -> Stamp {
        let (at, error) =
            self.fleet.time_of(host, Instant(stamp.at)).unwrap_or((Instant(stamp.at), Nanos::MAX));
        Stamp { at: at.0, host, clock_error: error.0, ..stamp }
    }
}

impl System for Live {
    type Subject = Fleet;

    fn subject(&mut self) -> &mut Fleet {
        &mut self.fleet
    }

    fn supervisor(&self) -> Supervisor {
        self.supervisor.clone()
    }

    fn stamps(&self, process: &Process) -> bool {
        // A program in a seat reads its agent's page. Programs of `up` stamp it themselves; for
        // others the agent's stamp counts.
        process.seat == 0 || self.supervisor.stamps(process)
    }

    fn host(&self) -> Host {
        Host::this()
    }

    fn ssh(&self) -> Option<String> {
        if let Some(ssh) = &self.options.ssh {
            return Some(ssh.host.clone());
        }
        let hosts = self.fleet.deployment().network.as_ref().map_or(&[][..], |network| &network.hosts);
        let numbered = (1..).zip(hosts);
        let reached =
            numbered.filter(|(n, _)| self.agents.contains_key(n) && self.fleet.name_here(*n).is_none());
        let reached: Vec<String> = reached.map(|(_, address)| address.to_string()).collect();
        (!reached.is_empty()).then(|| reached.join(", "))
    }

    fn arm(
        &mut self,
        drill: &Drill,
        step: &Step,
        chosen: &[Chosen],
        restart: &[Process],
    ) -> Result<(), RunError> {
        let own = self.fleet.own();
        self.armed = parts(&self.fleet, step, chosen, restart, own)?;
        let hosts: Vec<u8> = self.armed.keys().copied().collect();
        for host in &hosts {
            self.start_agent(*host)?;
        }
        let detection = self.fleet.deployment().profile.ip.detection;
        self.cues.connect(&hosts, own, detection)?;
        let token = Token::draw().map_err(|error| RunError::Io(PathBuf::from("/dev/urandom"), error))?;
        if let Err(error) = self.arm_all(drill, token) {
            for host in hosts {
                // One that is lost disarms by itself.
                let _ = self.agent(host).and_then(Remote::disarm);
            }
            self.armed.clear();
            return Err(error);
        }
        self.token = Some(token);
        Ok(())
    }

    fn fire(&mut self) -> Result<Option<Vec<Stamp>>, RunError> {
        // The fault agents stamp their own injections; nothing here delays the failover.
        self.fleet.observer().rest();
        if let Some(token) = self.token.take() {
            self.cues.send(token);
        }
        let (mut stamps, mut late) = (Vec::new(), Vec::new());
        for host in self.armed.keys().copied() {
            match self.reply(host, FIRED_TIMEOUT.max(self.answers_within()), "report the cue")? {
                Reply::Fired { stamps: found } => {
                    stamps.extend(found.into_iter().map(|stamp| self.localized(host, stamp)));
                }
                Reply::Expired => late.push(host),
                other => return Err(RemoteError::Answer(other).into()),
            }
        }
        // A host that crashes takes no orders any more.
        let ends = |(host, part): &(&u8, &Part)| part.crashes && stamps.iter().any(|stamp| stamp.hit(**host));
        let crashed: Vec<u8> = self.armed.iter().filter(ends).map(|(host, _)| *host).collect();
        for host in crashed {
            self.armed.remove(&host);
            self.crashed.extend(self.agents.remove(&host));
        }
        let Some(first) = stamps.iter().map(|stamp| stamp.at).min() else {
            self.armed.clear();
            return Ok(None);
        };
        for host in late {
            let Some(part) = self.armed.remove(&host) else { continue };
            stamps.extend(part.injections.iter().map(|injection| Stamp {
                name: injection.victim(),
                at: first,
                error: Some(LATE.to_owned()),
                host,
                clock_error: 0,
            }));
        }
        Ok(Some(stamps))
    }

    fn undo_early(&mut self) -> Result<(), RunError> {
        for (host, _) in self.armed.iter().filter(|(_, part)| part.lasts()) {
            self.agent(*host)?.order(&Order::Undo)?;
        }
        Ok(())
    }

    fn spare(&mut self) {
        self.crashed.iter().for_each(Remote::close);
    }

    fn is_over(&self) -> bool {
        let lasting = self.armed.iter().filter(|(_, part)| part.lasts());
        let undone: Vec<Option<bool>> =
            lasting.map(|(host, _)| self.agents.get(host).map_or(Some(false), Remote::has_undone)).collect();
        undone.contains(&Some(false)) || undone.iter().all(|undone| *undone == Some(true))
    }

    fn agent_gone(&self) -> Box<dyn Fn() -> bool> {
        let armed = self.armed.keys().filter_map(|host| self.agents.get(host));
        let gone: Vec<_> = armed.map(Remote::gone).collect();
        Box::new(move || gone.iter().any(|gone| gone.load(Ordering::Relaxed)))
    }

    fn undone(&mut self, lasts: Nanos) -> Result<Vec<String>, RunError> {
        let mut all = Vec::new();
        let lasting = self.armed.iter().filter(|(_, part)| part.lasts());
        let mut hosts: Vec<u8> = lasting.map(|(host, _)| *host).collect();
        // A fault agent that is gone is found before others are waited for.
        let has_undone = |host: &u8| self.agents.get(host).map_or(Some(false), Remote::has_undone);
        hosts.sort_by_key(|host| has_undone(host) != Some(false));
        for host in hosts {
            match self.reply(host, lasts.to_std() + UNDONE_TIMEOUT, "undo its faults")? {
                Reply::Undone { failed } => all.extend(failed),
                other => return Err(RemoteError::Answer(other).into()),
            }
        }
        Ok(all)
    }

    fn start(&mut self, victim: &Process) -> Result<(), RunError> {
        if !self.armed.contains_key(&victim.host) {
            // The cue came too late there, so it runs.
            return Ok(());
        }
        let Supervisor::Hosts(network) = &self.supervisor else {
            // The supervisor refuses until the kernel has reaped the old process.
            let dir = control::supervised(self.fleet.observer().cluster());
            control::request(&dir, &Request::Start { name: victim.name.to_string() })?;
            return Ok(());
        };
        if network.supervisor(victim.host).start_command(victim.kind, victim.name).is_none() {
            // Its supervisor restarts it, and the next repetition waits until it has joined.
            return Ok(());
        }
        let Some(part) = self.armed.get_mut(&victim.host).filter(|part| !part.restarted) else {
            return Ok(());
        };
        part.restarted = true;
        self.agent(victim.host)?.order(&Order::Restart)?;
        match self.reply(victim.host, UNDONE_TIMEOUT, "restart processes")? {
            Reply::Undone { failed } if failed.is_empty() => Ok(()),
            Reply::Undone { failed } => Err(RunError::Restart(failed.join("; "))),
            other => Err(RemoteError::Answer(other).into()),
        }
    }

    fn lost(&mut self) -> Vec<String> {
        let since = time::Instant::now();
        // Each that still runs undoes now, and may take long.
        self.agents.values().for_each(Remote::close);
        let mut hosts: Vec<u8> = std::mem::take(&mut self.armed).into_keys().collect();
        // What those have injected that have ended may be undone by nobody but this process, and only on its
        // machine, so they come first.
        let may_wait = |host: &u8| {
            let lives = self.agents.get(host).is_some_and(|agent| !agent.has_ended());
            (lives, self.fleet.name_here(*host).is_none())
        };
        hosts.sort_by_key(may_wait);
        let mut undone = Vec::new();
        for host in hosts {
            drop(self.agents.remove(&host));
            undone.push(self.undone_on(host, since));
        }
        self.agents.clear();
        undone
    }

    fn restored(&mut self) -> Result<(), RunError> {
        for host in std::mem::take(&mut self.armed).into_keys() {
            self.agent(host)?.order(&Order::Undone)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_fault_agent_that_was_killed_is_undone_within_the_dead_mans_switch() {
        let this = obol_fabric::host::Process::current().expect("it lives");
        let of = |started| Record::new((this.pid, started), Vec::new());
        // Another process had the same pid before.
        let (lives, killed) = (of(this.started), of(this.started - 1));
        for dead_man in [Nanos::from_millis(200), Nanos::from_secs(3), Nanos::from_secs(60)] {
            let patience = |records: &[&Record]| {
                let records: Vec<Record> = records.iter().copied().cloned().collect();
                super::patience(&records, dead_man)
            };
            assert!(patience(&[&killed]) <= dead_man.to_std() / 2, "{dead_man}");
            assert!(patience(&[&killed]) <= UNDONE_TIMEOUT, "{dead_man}");
            assert_eq!(patience(&[&killed, &lives]), UNDONE_TIMEOUT, "it undoes itself");
        }
        let dir = tempfile::tempdir().expect("made");
        let dir = dir.path();
        let undone = || await_undone(dir, time::Instant::now(), Nanos::from_millis(200)).expect("read");
        assert!(undone(), "nothing is left");
        killed.write(dir).expect("written");
        assert!(!undone(), "nobody undoes it");
        killed.remove(dir).expect("removed");
        assert!(undone());
    }
}

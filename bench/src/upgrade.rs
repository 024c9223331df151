//! What an upgrade costs those who use the cluster, against a restart of all daemons at once: each on
//! a cluster of its own, in turns, while clients of the cache check every answer and programs ask
//! whether they are active.

use super::{Figure, PROFILE};
use clap::Args;
use obol_agent::{AttachError, Attached, Embedded};
use obol_config::duration;
use obol_fabric::host::this_program;
use obol_fabric::{Name, Nanos};
use obol_membership::Kind;
use obol_node::Site;
use obol_observe::{Health, Process, Snapshot};
use obol_profiles::Profile;
use obol_supervise::control::{self, Request};
use obol_supervise::ending;
use obol_supervise::running::{Running, START_TIMEOUT, Shape, dies_with_parent};
use obol_term::output::{self, Failure};
use serde::Deserialize;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often a program asks whether it is active.
const ASK_EVERY: Duration = Duration::from_micros(200);
/// How often the cluster is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Clients of the cache.
const CLIENTS: usize = 2;
/// How the names of the check's clients begin.
const CLIENT_PREFIX: &str = "kvc-check-";
/// How long a program waits at a time for its agent's successor, and for its admission.
const ATTACH_TIMEOUT: Nanos = Nanos::from_millis(20);
const JOIN_TIMEOUT: Nanos = Nanos::from_secs(20);
/// How one daemon is restarted, for sh. The supervisor stands in for systemd.
const RESTART: &str = r#""$OBOL_BENCH" stop "$OBOL_NAME" >&2; "$OBOL_BENCH" start "$OBOL_NAME" >&2"#;

#[derive(Debug, Args)]
pub(crate) struct BenchUpgrade {
    /// Upgrades, and as many restarts
    #[arg(long = "count", alias = "turns", value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    turns: u32,
    /// How long clients check the cache in each; the daemons must be back by then
    #[arg(long = "for", value_name = "TIME", value_parser = duration::argument, default_value = "10s")]
    time: Duration,
    /// Print one JSON object for scripts
    #[arg(long)]
    pub(super) json: bool,
}

/// How all daemons are replaced.
#[derive(Clone, Copy, Debug)]
enum How {
    /// One after another, by `obol upgrade`.
    Upgrade,
    /// All at once.
    Restart,
}

/// What users of a cluster noticed: the longest of each, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Noticed {
    /// A client's wait for an answer.
    clients: f64,
    /// A program with a core of its own was not active.
    own_core: f64,
    /// A program on an agent that was restarted was not active.
    on_agent: f64,
    wrong: u64,
}

impl Noticed {
    fn or_longer(self, other: Self) -> Self {
        Self {
            clients: self.clients.max(other.clients),
            own_core: self.own_core.max(other.own_core),
            on_agent: self.on_agent.max(other.on_agent),
            wrong: self.wrong + other.wrong,
        }
    }
}

/// The longest time within which a program was not active, from the last look that found it active
/// to the next one.
#[derive(Debug)]
struct Outage {
    active_at: Instant,
    is_out: bool,
    longest: Duration,
}

impl Outage {
    /// Of a program that is active now.
    const fn new(now: Instant) -> Self {
        Self { active_at: now, is_out: false, longest: Duration::ZERO }
    }

    fn look(&mut self, now: Instant, active: bool) {
        if active && self.is_out {
            self.longest = self.longest.max(now.saturating_duration_since(self.active_at));
        }
        self.is_out = !active;
        if active {
            self.active_at = now;
        }
    }
}

/// A program of the cluster.
trait Program {
    fn is_active(&mut self) -> Result<bool, Failure>;
    /// Ends its membership.
    fn leave(self) -> Result<(), Failure>;
}

impl Program for Embedded {
    fn is_active(&mut self) -> Result<bool, Failure> {
        Ok(self.view().is_some_and(|view| self.active(&view)))
    }

    fn leave(self) -> Result<(), Failure> {
        Ok(())
    }
}

impl Program for Attached {
    fn is_active(&mut self) -> Result<bool, Failure> {
        let again = if self.lost().is_some() {
            self.attach_again(ATTACH_TIMEOUT).and_then(|()| self.join(JOIN_TIMEOUT).map(drop))
        } else if self.is_excluded() {
            self.join(JOIN_TIMEOUT).map(drop)
        } else {
            Ok(())
        };
        match again {
            Ok(()) => Ok(self.view().is_some_and(|view| self.active(&view))),
            Err(AttachError::Lost(_) | AttachError::NoSuccessor { .. }) => Ok(false),
            Err(error) => Err(Failure::failed(error)),
        }
    }

    fn leave(self) -> Result<(), Failure> {
        Self::leave(&self, JOIN_TIMEOUT).map(drop).map_err(Failure::failed)
    }
}

/// A program that asks again and again whether it is active, on a thread of its own.
struct Watch {
    what: &'static str,
    active: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    longest: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<(), Failure>>>,
}

impl Watch {
    /// Starts it, and waits until it is active.
    fn start<P: Program>(
        what: &'static str,
        open: impl FnOnce() -> Result<P, Failure> + Send + 'static,
    ) -> Result<Self, Failure> {
        let (active, stop, longest) = <(Arc<AtomicBool>, Arc<AtomicBool>, Arc<AtomicU64>)>::default();
        let (is_active, ends, longest_of) = (Arc::clone(&active), Arc::clone(&stop), Arc::clone(&longest));
        let run = move || {
            let mut program = open()?;
            while !program.is_active()? && !ends.load(Ordering::Relaxed) {
                thread::sleep(ASK_EVERY);
            }
            let mut outage = Outage::new(Instant::now());
            while !ends.load(Ordering::Relaxed) {
                let is = program.is_active()?;
                outage.look(Instant::now(), is);
                let longest = u64::try_from(outage.longest.as_nanos()).unwrap_or(u64::MAX);
                longest_of.store(longest, Ordering::Relaxed);
                is_active.store(is, Ordering::Release);
                thread::sleep(ASK_EVERY);
            }
            program.leave()
        };
        let thread = thread::Builder::new().name("obol-watch".to_owned()).spawn(run);
        let thread = Some(thread.map_err(Failure::failed)?);
        let mut watch = Self { what, active, stop, longest, thread };
        watch.until_active()?;
        Ok(watch)
    }

    fn until_active(&mut self) -> Result<(), Failure> {
        let end = Instant::now() + START_TIMEOUT;
        while !self.active.load(Ordering::Acquire) {
            if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
                self.join()?;
                return Err(Failure::Failed(format!("{} ended", self.what)));
            }
            if Instant::now() > end {
                let (what, patience) = (self.what, START_TIMEOUT.as_secs());
                return Err(Failure::Failed(format!("{what} is not active after {patience} s")));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Ends it once it is active again; returns its longest outage, in milliseconds.
    fn end(mut self) -> Result<f64, Failure> {
        self.until_active()?;
        self.join()?;
        Ok(Nanos(self.longest.load(Ordering::Relaxed)).as_micros_f64() / 1e3)
    }

    fn join(&mut self) -> Result<(), Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().map_err(|_| Failure::Failed(format!("{} panicked", self.what)))?
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Where it is dropped before its end, something else has failed, and is reported.
        let _ = self.join();
    }
}

/// What `obol kv check` prints.
#[derive(Debug, Deserialize)]
struct Checked {
    wrong: u64,
    longest_wait_us: f64,
}

/// Clients that check every answer of a cache of three servers.
struct Check(Child);

/// This program with the options that name the cluster.
fn obol(running: &Running) -> Result<Command, Failure> {
    let exe = this_program::file().map_err(Failure::failed)?;
    let program = exe.to_str().ok_or_else(|| Failure::Failed(format!("{} is not text", exe.display())))?;
    let mut command = dies_with_parent(program, None).map_err(Failure::failed)?;
    command.env("OBOL_ROOT", &running.reaper.root).env("OBOL_CLUSTER", running.reaper.cluster.as_str());
    command.env("OBOL_BENCH", exe).stdin(Stdio::null());
    Ok(command)
}

impl Check {
    /// Starts it, and waits until its clients are active.
    fn start(running: &Running, time: Duration) -> Result<Self, Failure> {
        let mut command = obol(running)?;
        command.args(["kv", "check", "--json", "--clients", &CLIENTS.to_string()]);
        command.args(["--for", &format!("{}ms", time.as_millis())]).stdout(Stdio::piped());
        let mut check = Self(command.spawn().map_err(Failure::failed)?);
        let mut observer = running.observer()?;
        let end = Instant::now() + START_TIMEOUT;
        loop {
            let snapshot = observer.snapshot();
            let works = |p: &&Process| p.name.as_str().starts_with(CLIENT_PREFIX) && p.is_active(snapshot.at);
            if snapshot.processes.iter().filter(works).count() == CLIENTS {
                return Ok(check);
            }
            if check.has_ended()? || Instant::now() > end {
                return Err(Failure::Failed("the clients of the cache did not become active".to_owned()));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn has_ended(&mut self) -> Result<bool, Failure> {
        Ok(self.0.try_wait().map_err(Failure::failed)?.is_some())
    }

    /// What its clients saw, when its time is over.
    fn end(&mut self) -> Result<Checked, Failure> {
        let out = self.0.stdout.take().ok_or_else(|| Failure::Failed("no pipe".to_owned()))?;
        let read = std::io::read_to_string(out).map_err(Failure::failed)?;
        let status = self.0.wait().map_err(Failure::failed)?;
        let checked: Checked = serde_json::from_str(&read)
            .map_err(|error| Failure::Failed(format!("`obol kv check` ended with {status}: {error}")))?;
        // Wrong answers are a figure.
        if status.success() || checked.wrong > 0 {
            return Ok(checked);
        }
        Err(Failure::Failed(format!("`obol kv check` ended with {status}")))
    }
}

impl Drop for Check {
    fn drop(&mut self) {
        // Mostly it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The daemons of the cluster that live.
fn daemons(snapshot: &Snapshot) -> impl Iterator<Item = &Process> {
    snapshot.processes.iter().filter(|p| p.alive && p.seat == 0 && p.kind != Kind::App)
}

impl How {
    fn replace_all(self, running: &Running) -> Result<(), Failure> {
        let mut observer = running.observer()?;
        let before = observer.snapshot();
        match self {
            Self::Upgrade => upgrade(running)?,
            Self::Restart => restart(running, &before)?,
        }
        let end = Instant::now() + START_TIMEOUT;
        loop {
            let snapshot = observer.snapshot();
            let is_back = |old: &Process| {
                snapshot
                    .process(old.name.as_str())
                    .is_some_and(|new| new.incarnation > old.incarnation && snapshot.is_member(new))
            };
            if snapshot.health == Health::Healthy && daemons(&before).all(is_back) {
                return Ok(());
            }
            if Instant::now() > end {
                let why = snapshot.reasons.join("; ");
                return Err(Failure::Failed(format!("after {self:?} the cluster is not healthy: {why}")));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// One after another, as an operator does.
fn upgrade(running: &Running) -> Result<(), Failure> {
    let mut command = obol(running)?;
    command.args(["upgrade", "--all", "--json", "--restart", RESTART]);
    let output = command.stderr(Stdio::piped()).output().map_err(Failure::failed)?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr);
    Err(Failure::Failed(format!("`obol upgrade` ended with {}: {}", output.status, why.trim())))
}

/// All end at once; when the last has ended, all are started on the memory that they left.
fn restart(running: &Running, before: &Snapshot) -> Result<(), Failure> {
    thread::scope(|scope| {
        let ends: Vec<_> = daemons(before)
            .map(|daemon| scope.spawn(|| ending::stop(daemon.name.as_str(), daemon.process)))
            .collect();
        ends.into_iter()
            .try_for_each(|end| end.join().map_err(|_| Failure::Failed("a thread panicked".to_owned()))?)
    })?;
    let dir = control::supervised(&running.site()?.cluster);
    daemons(before).try_for_each(|daemon| {
        let name = daemon.name.to_string();
        control::request(&dir, &Request::Start { name }).map(drop).map_err(Failure::failed)
    })
}

fn name(text: &str) -> Result<Name, Failure> {
    Name::new(text).map_err(Failure::failed)
}

/// Replaces all daemons of a cluster of its own.
fn measure(root: &Path, profile: &Profile, how: How, time: Duration) -> Result<Noticed, Failure> {
    let shape = Shape::new("upgrade", profile, 3);
    let running = Running::start(root, &shape)?;
    let site: Arc<Site> = Arc::new(running.site()?);
    let (own, agents) = (Arc::clone(&site), site);
    let own_core = Watch::start("the program with a core of its own", move || {
        Embedded::start(own, name("bench-embedded")?).map_err(Failure::failed)
    })?;
    let on_agent = Watch::start("the program on an agent", move || {
        let attached =
            Attached::open(&agents, name("node-1")?, name("bench-attached")?).map_err(Failure::failed)?;
        attached.join(JOIN_TIMEOUT).map_err(Failure::failed)?;
        Ok(attached)
    })?;
    let mut check = Check::start(&running, time)?;
    how.replace_all(&running)?;
    if check.has_ended()? {
        return Err(Failure::Failed(format!(
            "the daemons were not back within {} s; repeat it with a longer --for",
            time.as_secs_f64()
        )));
    }
    let Checked { wrong, longest_wait_us } = check.end()?;
    let (own_core, on_agent) = (own_core.end()?, on_agent.end()?);
    Ok(Noticed { clients: longest_wait_us / 1e3, own_core, on_agent, wrong })
}

pub(super) fn run(root: &Path, options: &BenchUpgrade) -> Result<Vec<Figure>, Failure> {
    let profile = Profile::builtin(PROFILE).map_err(Failure::failed)?;
    let (mut upgrade, mut restart) = (Noticed::default(), Noticed::default());
    for turn in 0..options.turns {
        // Informative only: the benchmark continues without it.
        let _ = output::remark(format_args!("bench: turn {} of {}", turn + 1, options.turns));
        // Who comes second meets a warmer machine.
        let order = if turn % 2 == 0 { [How::Restart, How::Upgrade] } else { [How::Upgrade, How::Restart] };
        for how in order {
            let noticed = measure(root, &profile, how, options.time)?;
            let into = match how {
                How::Upgrade => &mut upgrade,
                How::Restart => &mut restart,
            };
            *into = into.or_longer(noticed);
        }
    }
    Ok(figures(upgrade, restart))
}

/// The upgrade's against the restart's.
fn figures(upgrade: Noticed, restart: Noticed) -> Vec<Figure> {
    let against = |name, measured, floor| Figure::against(name, "ms", measured, floor, 1.0);
    vec![
        against("upgrade v restart: longest wait of a client", upgrade.clients, restart.clients),
        against("longest not active, core of its own", upgrade.own_core, restart.own_core),
        against("longest not active, on a restarted agent", upgrade.on_agent, restart.on_agent),
        Figure::at_most("wrong answers, upgrade", "", upgrade.wrong as f64, 0.0),
        Figure::at_most("wrong answers, restart", "", restart.wrong as f64, 0.0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_lasts_from_the_last_active_look_to_the_next_and_late_looks_are_none() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let longest = |looks: &[(u64, bool)]| {
            let mut outage = Outage::new(at(0));
            looks.iter().for_each(|(ms, active)| outage.look(at(*ms), *active));
            outage.longest.as_millis()
        };
        assert_eq!(longest(&[(1, true), (50, true)]), 0, "the thread was late");
        assert_eq!(longest(&[(1, true), (2, false), (3, false), (7, true), (8, true)]), 6);
        assert_eq!(longest(&[(1, false), (3, true), (4, false), (5, true)]), 3);
    }

    #[test]
    fn an_upgrade_with_a_wrong_answer_or_a_longer_outage_misses_a_figure() {
        let short = Noticed { clients: 1.0, own_core: 0.0, on_agent: 1.0, wrong: 0 };
        let long = Noticed { clients: 9.0, own_core: 9.0, on_agent: 9.0, wrong: 0 };
        let met = |upgrade, restart| figures(upgrade, restart).iter().all(|figure| figure.met);
        assert!(met(short, long));
        assert!(!met(long, short));
        for wrong in [short.or_longer(Noticed { wrong: 1, ..short }), Noticed { clients: 10.0, ..short }] {
            assert!(!met(wrong, long), "{wrong:?}");
        }
    }
}

//! `obol run`: any program as a member, without a change to it.
//!
//! `run` sits in a seat of the node's agent for the program and ends the seat with it. It passes
//! signals and the exit code on, starts the program again by policy, and leaves nothing behind. A
//! process between the two, the shim, is the program's parent. The membership is never given up
//! before the shim has proved that nothing of the program runs.

mod call;
mod command_shim;
mod feed;
mod group;
mod health;
mod hooks;
mod journal;
mod listen;
mod membership;
mod program;
mod restart;
mod shim;

pub use command_shim::run as command_shim;
pub use program::{Tied, exec_with_parent};
pub use restart::Policy;

use crate::logging;
use call::Call;
use group::Group;
use hooks::{Hooks, Setup};
use journal::{Journal, Message};
use membership::{End, Life, MembershipEvent};
use obol_fabric::host::{Cluster, NameClaim, Process};
use obol_fabric::{Incarnation, Name, Nanos};
use obol_logs::Settings;
use obol_membership::Kind;
use obol_node::ClusterLocation;
use obol_node::Site;
use obol_observe::namesakes::{refusal_elsewhere, unused_elsewhere};
use obol_term::output::{self, Failure};
use program::Children;
use restart::Restarts;
use shim::{Cause, Report, Request, Shim, Split};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Signals that are passed on to the program as they come.
const PASSED: [i32; 5] = [SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH];
/// Signals that end the program; it leaves the cluster when nothing of it runs any more.
const ENDING: [i32; 2] = [SIGTERM, SIGINT];
/// Interval of checks for time-driven events.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Between two attempts to kill what a shim left behind.
const KILL_EVERY: Duration = Duration::from_millis(2);
/// Why a program is killed whose `run` was stopped by a signal.
const RUN_STOPPED: &str = "obol run was frozen";
/// How long the shim has to end after the program has.
const SHIM_TIMEOUT: Nanos = Nanos::from_secs(5);

/// A program that is run as a member, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name that the program has in the cluster.
    pub name: Name,
    /// The agent that it belongs to; none if this host has just one.
    pub node: Option<Name>,
    /// Executed whenever a view with this member becomes active.
    pub on_view: Option<OsString>,
    /// Executed when the membership is lost, and before it is given up when the program was asked to
    /// end. Without one the program is killed when the membership is lost.
    pub on_lost: Option<OsString>,
    /// Started once; reads an event a line.
    pub hook_stream: Option<OsString>,
    /// How long the program has to end once it was asked to; then it is killed with all that it started.
    pub grace: Duration,
    /// Whether it gets a control group of its own, where one can be made.
    pub uses_group: bool,
    /// Whether hooks and the health command are lines for a shell, not programs.
    pub shell: bool,
    /// A hook or health command that takes longer is killed.
    pub hook_timeout: Duration,
    /// Checks the health; the member joins after its first success.
    pub health: Option<OsString>,
    /// How often the health command is executed.
    pub health_every: Duration,
    /// The program is killed after this many consecutive failures of it, once it has succeeded.
    pub health_failures: u32,
    /// When the program is restarted after it has ended.
    pub restart: Policy,
    /// Delay of the first restart; doubles with each one.
    pub restart_backoff: Duration,
    /// The longest delay; reset to the first one when the program has run for as long.
    pub restart_backoff_max: Duration,
    /// Whether events are reported as lines of JSON.
    pub json: bool,
    /// How `run` itself logs.
    pub log: Settings,
    /// The program and its arguments.
    pub words: Vec<OsString>,
}

/// What `run` reacts to.
enum Event {
    Signal(i32),
    Membership(MembershipEvent),
    /// The health command has succeeded for the first time.
    Healthy,
    /// It has failed too often before its first success.
    NotYetHealthy,
    /// It has failed too often.
    Unhealthy,
    /// A report of the shim; `None` when it is gone.
    Shim(Option<Report>),
}

/// One run of the program.
struct RunningProgram {
    life: Arc<Life>,
    threads: Vec<JoinHandle<()>>,
    own: Incarnation,
    /// When it is killed, once it was asked to end.
    kill_at: Option<Instant>,
    /// Why it is killed, once the shim was asked to.
    killed: Option<String>,
    status: Option<ExitStatus>,
}

struct Supervisor<'a> {
    options: &'a Options,
    shim: &'a Shim,
    location: ClusterLocation,
    node: Name,
    environment: Vec<(&'static str, String)>,
    children: Arc<Children>,
    journal: Arc<Journal>,
    hooks: Hooks,
    tx: Sender<Event>,
    rx: Receiver<Event>,
    /// The program is asked to end: it is not started again.
    stopping: bool,
    /// Why the program cannot be a member.
    refusal: Option<String>,
}

/// Runs the program, as a member whenever it may be one; the exit code is the program's.
pub fn run(root: &Path, cluster: Name, options: &Options) -> Result<ExitCode, Failure> {
    // Before there is a second thread, and before anything is mapped that must not be in two
    // processes.
    let shim = match shim::split(&options.words, options.uses_group).map_err(Failure::failed)? {
        Split::Run(shim) => shim,
        Split::Shim(code) => return Ok(code),
    };
    let children = Arc::new(Children::default());
    children.add(shim.pid);
    let ended = supervise(root, cluster, options, &shim, &children);
    shim.close();
    shim.end_if_stopped();
    // It has nothing left to end, or ends what a failure here left behind.
    let held = Process::of(shim.pid).and_then(Process::hold);
    if held.is_ok_and(|held| !held.wait_ended(SHIM_TIMEOUT)) {
        return Err(Failure::Failed(format!(
            "processes of the program do not end; process {} still tries to kill them",
            shim.pid
        )));
    }
    ended
}

/// Runs the program until the policy or a signal says that it is enough.
fn supervise(
    root: &Path,
    cluster: Name,
    options: &Options,
    shim: &Shim,
    children: &Arc<Children>,
) -> Result<ExitCode, Failure> {
    let site = Site::open(root, cluster).map_err(Failure::refused)?;
    site.deployment.check_name(Kind::App, options.name).map_err(Failure::refused)?;
    let node = agent(&site.cluster, options.node)?;
    let another = |failure| Failure::Refused(format!("{failure}; choose another --name"));
    // From before its program starts until it has ended: a seat is taken for a part of that time only.
    let _name = NameClaim::reserve(&site.cluster, options.name).map_err(Failure::refused).map_err(another)?;
    unused_elsewhere(root, cluster, options.name).map_err(another)?;
    logging::start(&options.log, root, &site, options.name, Some(node));
    drop(site);
    obol_fabric::host::sched::adopt_orphans().map_err(Failure::failed)?;
    let (tx, rx) = mpsc::channel();
    pass_signals(tx.clone()).map_err(Failure::failed)?;
    let reports = tx.clone();
    let forward = move |what| {
        // There is no receiver any more when `run` ends.
        let _ = reports.send(Event::Shim(what));
    };
    shim.listen(forward).map_err(Failure::failed)?;
    let journal = Arc::new(Journal { name: options.name, json: options.json });
    let environment = vec![
        ("OBOL_CLUSTER", cluster.to_string()),
        ("OBOL_ROOT", root.display().to_string()),
        ("OBOL_NODE", node.to_string()),
        ("OBOL_NAME", options.name.to_string()),
    ];
    let setup = Setup {
        on_view: options.on_view.clone(),
        on_lost: options.on_lost.clone(),
        hook_stream: options.hook_stream.clone(),
        by_shell: options.shell,
        timeout: options.hook_timeout,
        environment: environment.clone(),
    };
    let hooks = Hooks::start(setup, Arc::clone(children), Arc::clone(&journal)).map_err(Failure::failed)?;
    let mut supervisor = Supervisor {
        options,
        shim,
        location: ClusterLocation { root: root.to_owned(), cluster },
        node,
        environment,
        children: Arc::clone(children),
        journal,
        hooks,
        tx,
        rx,
        stopping: false,
        refusal: None,
    };
    let ended = supervisor.lives();
    supervisor.hooks.finish();
    // What hooks left behind.
    children.end_orphans().map_err(Failure::failed)?;
    let code = ended.map_err(Failure::failed)?;
    supervisor.refusal.map_or(Ok(ExitCode::from(code)), |refusal| Err(another(Failure::Refused(refusal))))
}

/// The agent that is wanted, or the one that runs on this host, if there is exactly one.
fn agent(cluster: &Cluster, wanted: Option<Name>) -> Result<Name, Failure> {
    let regions = cluster.regions();
    let agents: Vec<Name> =
        regions.iter().filter(|r| r.alive && r.kind == Kind::Agent as u32).map(|r| r.name).collect();
    match (wanted, &agents[..]) {
        (Some(wanted), agents) if agents.contains(&wanted) => Ok(wanted),
        (None, [agent]) => Ok(*agent),
        (_, []) => {
            Err(Failure::Refused("no agent runs on this host; start one, or see `obol status`".to_owned()))
        }
        _ => {
            let mut names: Vec<&str> = agents.iter().map(Name::as_str).collect();
            names.sort_unstable();
            let why = wanted.map_or("several agents run on this host".to_owned(), |wanted| {
                format!("no agent {wanted} runs on this host")
            });
            Err(Failure::Refused(format!("{why}; choose one: --node {}", names.join("|"))))
        }
    }
}

/// Forwards every relevant signal to the channel.
fn pass_signals(tx: Sender<Event>) -> io::Result<()> {
    let signals = [&PASSED[..], &ENDING, &[SIGCHLD]].concat();
    listen::signals(&signals, move |signal| tx.send(Event::Signal(signal)).is_ok())
}

impl Supervisor<'_> {
    /// One life after the other, until the policy or a signal ends them. Returns the exit
    /// code.
    fn lives(&mut self) -> io::Result<u8> {
        let options = self.options;
        let mut restarts =
            Restarts::new(options.restart, options.restart_backoff, options.restart_backoff_max);
        loop {
            let begun = Instant::now();
            let code = match self.begin()? {
                Ok(running) => {
                    let status = self.live(running)?;
                    if let Err(error) = self.children.end_orphans() {
                        self.journal.write(&Message::Trouble { text: error.to_string() });
                    }
                    program::code(status)
                }
                Err(code) => code,
            };
            self.journal.write(&Message::Ended { code });
            let pause = restarts.after(code == 0, begun.elapsed());
            let Some(pause) = pause.filter(|_| !self.stopping) else { return Ok(code) };
            self.journal.write(&Message::Restart { pause_ms: pause.as_millis() as u64 });
            if self.is_stopped_within(pause) {
                return Ok(code);
            }
            // Another one of its name may have been admitted meanwhile.
            if let Some(refusal) = self.successor() {
                self.refusal = Some(refusal);
                return Ok(code);
            }
            // That took a while, too.
            if self.is_stopped_within(Duration::ZERO) {
                return Ok(code);
            }
        }
    }

    /// Why the program is not started again, if a live process of another host has its name by now. What
    /// cannot be looked for, because the cluster is down for example, holds up no start.
    fn successor(&self) -> Option<String> {
        let ClusterLocation { root, cluster } = &self.location;
        refusal_elsewhere(root, *cluster, self.options.name).unwrap_or_else(|error| {
            let text = format!("whether another host runs {} is not known: {error}", self.options.name);
            self.journal.write(&Message::Trouble { text });
            None
        })
    }

    /// Waits between two lives; returns whether the next one was cancelled.
    fn is_stopped_within(&mut self, pause: Duration) -> bool {
        let end = Instant::now() + pause;
        loop {
            match self.rx.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(Event::Signal(signal)) if ENDING.contains(&signal) => {
                    self.stopping = true;
                    return true;
                }
                // A late message of the previous life.
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    }

    /// Starts the program; nothing joins before it was executed. If it cannot be, the error is the
    /// exit code that says so.
    fn begin(&mut self) -> io::Result<Result<RunningProgram, u8>> {
        self.shim.start(&self.environment)?;
        let process = loop {
            match self.next(None)? {
                Some(Event::Shim(Some(Report::Started { pid, started }))) => {
                    break Process { pid, started };
                }
                Some(Event::Shim(Some(Report::NotStarted { text, is_missing }))) => {
                    output::remark(format_args!("obol run: {text}"))?;
                    let code = if is_missing { program::NOT_FOUND } else { program::NOT_EXECUTABLE };
                    return Ok(Err(code));
                }
                Some(Event::Shim(None)) => return Err(self.shim_died()),
                Some(Event::Shim(Some(Report::Trouble(text)))) => {
                    self.journal.write(&Message::Trouble { text });
                }
                // Asked again when it has started.
                Some(Event::Signal(signal)) if ENDING.contains(&signal) => self.stopping = true,
                _ => {}
            }
        };
        self.journal.write(&Message::Started { pid: process.pid });
        let life = Arc::new(Life::new(self.location.clone(), self.node, self.options.name, process));
        let own = Incarnation::NONE;
        let mut running =
            RunningProgram { life, threads: Vec::new(), own, kill_at: None, killed: None, status: None };
        if self.stopping {
            self.kill(&mut running, "it was terminated during its start")?;
        } else if let Some(health) = health::Health::of(self.options, &self.environment) {
            running.threads.push(health.start(
                Arc::clone(&running.life),
                Arc::clone(&self.children),
                self.tx.clone(),
            )?);
        } else {
            self.join(&mut running)?;
        }
        Ok(Ok(running))
    }

    /// The next event, if there is one within [`POLL_INTERVAL`] and before that time. A shim
    /// that stands still is killed first; that it stands still wakes this thread as any end of a
    /// child does.
    fn next(&self, until: Option<Instant>) -> io::Result<Option<Event>> {
        self.shim.end_if_stopped();
        let left = until.map_or(POLL_INTERVAL, |until| until.saturating_duration_since(Instant::now()));
        match self.rx.recv_timeout(left.min(POLL_INTERVAL)) {
            Ok(event) => Ok(Some(event)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("the signal thread has ended")),
        }
    }

    /// One life of the program, until nothing of it runs any more and its membership has ended.
    fn live(&mut self, mut running: RunningProgram) -> io::Result<ExitStatus> {
        loop {
            let event = self.next(running.kill_at)?;
            match event {
                Some(Event::Signal(signal)) if PASSED.contains(&signal) => running.life.pass(signal),
                Some(Event::Signal(signal)) if ENDING.contains(&signal) => {
                    self.stop(signal, &mut running)?;
                }
                Some(Event::Signal(_)) => self.children.reap_orphans()?,
                Some(Event::Healthy) => self.join(&mut running)?,
                Some(Event::NotYetHealthy) => {
                    let failures = self.options.health_failures;
                    let text = format!(
                        "no member yet: its health command has failed {failures} times, and has never succeeded"
                    );
                    self.journal.write(&Message::Trouble { text });
                }
                Some(Event::Unhealthy) => {
                    self.lost("its health command fails", &mut running);
                    self.kill(&mut running, "its health command fails")?;
                }
                Some(Event::Membership(event)) => self.handle_membership(event, &mut running)?,
                Some(Event::Shim(Some(Report::Gone))) => break,
                Some(Event::Shim(report)) => self.handle_report(report, &mut running)?,
                None => {}
            }
            if running.kill_at.take_if(|at| Instant::now() >= *at).is_some() {
                let grace = Nanos::from_std(self.options.grace);
                self.kill(&mut running, &format!("it did not end within {grace}"))?;
            }
        }
        self.finish(running)
    }

    /// Handles a report of the shim about a running program.
    fn handle_report(&mut self, report: Option<Report>, running: &mut RunningProgram) -> io::Result<()> {
        match report {
            // A frozen program must not wake up in a role that another has taken.
            Some(Report::Stopped) => {
                self.lost("it was frozen", running);
                self.kill(running, "it was frozen")?;
            }
            Some(Report::Killed(cause)) => {
                if cause == Cause::RunStopped {
                    self.lost(RUN_STOPPED, running);
                    (running.killed, running.kill_at) = (Some(RUN_STOPPED.to_owned()), None);
                    running.life.stop_joining();
                }
                let why = running.killed.clone().unwrap_or_default();
                self.journal.write(&Message::Killed { why });
            }
            Some(Report::Lives) if running.killed.is_none() => running.life.lives(),
            Some(Report::Ended(status)) => running.status = Some(ExitStatus::from_raw(status)),
            Some(Report::Slow(pids)) => {
                let text = format!(
                    "these processes do not end after SIGKILL, and it stays a member until they do: {pids:?}"
                );
                self.journal.write(&Message::Trouble { text });
            }
            Some(Report::Trouble(text)) => self.journal.write(&Message::Trouble { text }),
            Some(Report::Started { .. } | Report::NotStarted { .. } | Report::Lives | Report::Gone) => {}
            None => {
                let error = self.shim_died();
                running.life.over(End::Dead);
                self.lost("its shim process died", running);
                return Err(error);
            }
        }
        Ok(())
    }

    /// The shim is gone, and `run` has adopted its children: ends them, however long it takes.
    fn shim_died(&self) -> io::Error {
        self.children.forget(self.shim.pid);
        let group = Group::left_by(self.shim.pid);
        let kill_group = || group.as_ref().inspect(|group| group.kill()).is_none_or(Group::is_empty);
        loop {
            let is_empty = kill_group();
            match self.children.end_orphans() {
                Ok(()) if is_empty => break,
                Ok(()) => std::thread::sleep(KILL_EVERY),
                Err(error) => self.journal.write(&Message::Trouble { text: error.to_string() }),
            }
        }
        let what = if self.shim.was_stopped() { "stood still and was killed" } else { "was killed" };
        io::Error::other(format!("the shim, the parent of the program, {what}, and so was the program"))
    }

    /// Asks the program to end; kills it at the second request.
    fn stop(&mut self, signal: i32, running: &mut RunningProgram) -> io::Result<()> {
        if std::mem::replace(&mut self.stopping, true) {
            return self.kill(running, "it was terminated twice");
        }
        self.journal.write(&Message::Stopping { signal });
        running.life.stop_joining();
        running.life.pass(signal);
        // A grace without an end is one, too.
        running.kill_at = Instant::now().checked_add(self.options.grace);
        Ok(())
    }

    /// Kills the program and all that it started.
    /// The shim says when it has.
    fn kill(&self, running: &mut RunningProgram, why: &str) -> io::Result<()> {
        running.kill_at = None;
        running.life.stop_joining();
        if running.killed.is_some() {
            return Ok(());
        }
        running.killed = Some(why.to_owned());
        self.ask(&Request::Kill)
    }

    fn ask(&self, request: &Request) -> io::Result<()> {
        match self.shim.ask(request) {
            // The next report of the shim is that it is gone.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            asked => asked,
        }
    }

    /// Starts the thread that keeps the program a member.
    fn join(&self, running: &mut RunningProgram) -> io::Result<()> {
        let (life, tx) = (Arc::clone(&running.life), self.tx.clone());
        let report = move |event| {
            // There is no receiver any more when `run` ends.
            let _ = tx.send(Event::Membership(event));
        };
        let thread = std::thread::Builder::new().name("obol-seat".to_owned());
        running.threads.push(thread.spawn(move || life.run(&report))?);
        Ok(())
    }

    /// Takes note of what became of the membership.
    fn handle_membership(&mut self, event: MembershipEvent, running: &mut RunningProgram) -> io::Result<()> {
        match event {
            MembershipEvent::Member(incarnation) => {
                running.own = incarnation;
                self.journal.write(&Message::Member { incarnation: incarnation.0 });
            }
            // A program that is asked to end takes no new role.
            MembershipEvent::Active(..) if self.stopping => {}
            MembershipEvent::Active(view, own) => self.hooks.call(Call::View { view, own }),
            MembershipEvent::Lost(why, incarnation) => {
                // What was given up already, because `run` was frozen for example, is lost once.
                if running.own == incarnation {
                    self.lost(why, running);
                }
                // Without a hook the program cannot learn of it and must not continue. Otherwise it
                // joins again, unless it is being killed.
                if self.hooks.reports_losses() {
                    self.ask(&Request::Confirm)?;
                } else {
                    self.kill(running, why)?;
                }
            }
            MembershipEvent::Left => {
                running.own = Incarnation::NONE;
                self.journal.write(&Message::Left);
            }
            MembershipEvent::Trouble(text) => self.journal.write(&Message::Trouble { text }),
            MembershipEvent::NameTaken(_) if self.stopping => {}
            MembershipEvent::NameTaken(refusal) => {
                self.stopping = true;
                self.kill(running, &refusal)?;
                self.refusal = Some(refusal);
            }
        }
        Ok(())
    }

    /// The program was a member and is none any more.
    fn lost(&self, why: &str, running: &mut RunningProgram) {
        if running.own != Incarnation::NONE {
            self.journal.write(&Message::Lost { why: why.to_owned() });
            self.hooks.call(Call::Lost { why: why.to_owned(), own: running.own });
        }
        running.own = Incarnation::NONE;
    }

    /// Whether the program has ended by itself, successfully, and is not started again.
    fn is_done(&self, status: ExitStatus, running: &RunningProgram) -> bool {
        status.success() && running.killed.is_none() && self.options.restart != Policy::Always
    }

    /// Nothing of the program runs any more: now its membership may end, too.
    fn finish(&mut self, mut running: RunningProgram) -> io::Result<ExitStatus> {
        // Messages about the membership so far.
        let mut later = Vec::new();
        while let Ok(event) = self.rx.try_recv() {
            match event {
                Event::Membership(event) => self.handle_membership(event, &mut running)?,
                Event::Signal(signal) if ENDING.contains(&signal) => self.stopping = true,
                other => later.push(other),
            }
        }
        if self.stopping {
            if running.own != Incarnation::NONE {
                self.hooks.call(Call::Lost { why: "it was asked to end".to_owned(), own: running.own });
            }
            // Whatever role a hook has taken is given up before another member can take it.
            self.hooks.settle();
            running.life.over(End::Leaves);
        } else if let Some(status) = running.status.filter(|status| self.is_done(*status, &running)) {
            // It has done its work and is not expected back.
            self.lost(&program::how(status), &mut running);
            self.hooks.settle();
            running.life.over(End::Leaves);
        } else {
            running.life.over(End::Dead);
        }
        for thread in running.threads.drain(..) {
            // A panic has been reported already.
            let _ = thread.join();
        }
        // The last messages of the threads.
        while let Ok(event) = self.rx.try_recv() {
            match event {
                Event::Membership(event) => self.handle_membership(event, &mut running)?,
                Event::Signal(signal) if ENDING.contains(&signal) => self.stopping = true,
                Event::Shim(None) => return Err(self.shim_died()),
                _ => {}
            }
        }
        if later.iter().any(|event| matches!(event, Event::Shim(None))) {
            return Err(self.shim_died());
        }
        let status = running
            .status
            .ok_or_else(|| io::Error::other("the shim, the program's parent, does not say how it ended"))?;
        if running.own != Incarnation::NONE && !self.stopping {
            self.lost(&program::how(status), &mut running);
        }
        Ok(status)
    }
}

//! `obol run`: any program as a member, without a change to it.
//!
//! `run` sits in a seat of the node's agent for the program and ends the seat with it. It passes
//! signals and the exit code on, starts the program again by policy, and leaves nothing behind. A
//! process between the two, the shim, is the program's parent. The membership is never given up
//! before the shim has proved that nothing of the program runs.

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

pub(crate) use command_shim::{CommandShim, run as command_shim};
pub(crate) use program::{ExecWithParent, exec_with_parent};

use crate::commands::drill::DrillKind;
use crate::ending::unused_elsewhere;
use crate::logging::LogOptions;
use clap::{Args, ValueEnum};
use group::Group;
use hooks::{Call, Hooks, Setup};
use journal::{Journal, Message};
use membership::{End, Life, MembershipEvent};
use obol_config::duration;
use obol_fabric::host::{Cluster, NameClaim, Process};
use obol_fabric::{Incarnation, Name, Nanos};
use obol_membership::Kind;
use obol_node::ClusterLocation;
use obol_node::Site;
use obol_term::output::{self, Failure};
use program::Children;
use restart::{Policy, Restarts};
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

/// Run an unmodified program as a member
#[derive(Debug, Args)]
#[command(
    after_help = "The program is removed from the view when it dies, is frozen, or fails its health command. A \
    frozen program is killed before it could resume in a role that another has taken. Signals and the exit code are passed on. \
    What the program leaves behind is killed.\n\
    \nThe program, its hooks and its health command find OBOL_NAME, OBOL_NODE, OBOL_CLUSTER and OBOL_ROOT in their \
    environment; hooks also OBOL_INCARNATION, OBOL_VIEW and OBOL_MEMBERS (the apps of the view, oldest first), and \
    OBOL_LOST (why) when the membership is lost or given up.\n\
    \nSIGTERM and SIGINT are passed on to the program. It has --grace to end, then it is killed with all that it \
    started; a second signal kills at once. The member leaves after that, when nothing of the program runs any more.\n\
    \nTry:\n  obol run --name cache-1 --node node-1 --shell --on-view 'echo view $OBOL_VIEW: $OBOL_MEMBERS' -- sleep 60\n\
    \nExit codes: the program's, as a shell reports it: 128 and the signal, 126 not executable, 127 not found; \
    2 no such cluster or agent, or its name is taken."
)]
pub(crate) struct Run {
    /// The name that the program has in the cluster
    #[arg(long)]
    name: Name,
    /// The agent that it belongs to; may be left out where this host has just one
    #[arg(long, value_name = "AGENT")]
    node: Option<Name>,
    /// A program to execute whenever a view with this member becomes active
    #[arg(long, value_name = "HOOK")]
    on_view: Option<OsString>,
    /// A program to execute when the membership is lost, and before it is given up when the program
    /// was asked to end. Without one the program is killed when the membership is lost
    #[arg(long, value_name = "HOOK")]
    on_lost: Option<OsString>,
    /// Start this once and send it view and lost events as lines on its standard input: "view ID
    /// INCARNATION MEMBER.." and "lost ID INCARNATION WHY"
    #[arg(long, alias = "views-to", value_name = "HOOK")]
    hook_stream: Option<OsString>,
    /// How long the program has to end after SIGTERM or SIGINT; then it is killed with all that it
    /// started. A second signal kills at once
    #[arg(long, value_name = "TIME", value_parser = duration::argument, default_value = "10s")]
    grace: Duration,
    /// Do not use a control group, even where one could be made
    #[arg(long, hide = true)]
    no_group: bool,
    /// Hooks and the health command are lines for /bin/sh, not programs
    #[arg(long)]
    shell: bool,
    /// A hook or health command that takes longer is killed
    #[arg(long, value_name = "TIME", value_parser = duration::argument, default_value = "5s")]
    hook_timeout: Duration,
    /// A program that checks the health; the member joins after its first success, however long
    /// that takes
    #[arg(long, value_name = "COMMAND")]
    health: Option<OsString>,
    /// How often the health command is executed
    #[arg(long, value_name = "TIME", value_parser = duration::argument, default_value = "1s", requires = "health")]
    health_every: Duration,
    /// Kill the program after this many consecutive failures of it, once it has succeeded
    #[arg(long, value_name = "N", default_value_t = 3, requires = "health", value_parser = clap::value_parser!(u32).range(1..))]
    health_failures: u32,
    /// When the program is restarted after it has ended
    #[arg(long, value_enum, default_value_t = Policy::Never)]
    restart: Policy,
    /// Delay of the first restart; doubles with each one
    #[arg(long, alias = "restart-pause", value_name = "TIME", value_parser = duration::argument, default_value = "100ms")]
    restart_backoff: Duration,
    /// The longest delay; reset to the first one when the program has run for as long
    #[arg(long, alias = "restart-pause-max", value_name = "TIME", value_parser = duration::argument, default_value = "10s")]
    restart_backoff_max: Duration,
    /// Report events as JSON lines on standard error
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    log: LogOptions,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    words: Vec<OsString>,
}

/// What `run` reacts to.
enum Happening {
    Signal(i32),
    MembershipEvent(MembershipEvent),
    /// The health command has succeeded for the first time.
    Healthy,
    /// It has failed too often before its first success.
    NotYetHealthy,
    /// It has failed too often.
    Unhealthy,
    /// A report of the shim; `None` when it is gone.
    Shim(Option<Report>),
}

/// A life of the program, as it goes.
struct Course {
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
    options: &'a Run,
    shim: &'a Shim,
    location: ClusterLocation,
    node: Name,
    environment: Vec<(&'static str, String)>,
    children: Arc<Children>,
    journal: Arc<Journal>,
    hooks: Hooks,
    tx: Sender<Happening>,
    rx: Receiver<Happening>,
    /// The program is asked to end: it is not started again.
    stopping: bool,
}

pub(crate) fn run(root: &Path, cluster: Name, options: &Run) -> Result<ExitCode, Failure> {
    // Before there is a second thread, and before anything is mapped that must not be in two
    // processes.
    let shim = match shim::split(&options.words, !options.no_group).map_err(Failure::failed)? {
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
    options: &Run,
    shim: &Shim,
    children: &Arc<Children>,
) -> Result<ExitCode, Failure> {
    unreserved(options.name)?;
    let site = Site::open(root, cluster).map_err(Failure::refused)?;
    site.deployment.check_name(Kind::App, options.name).map_err(Failure::refused)?;
    let node = agent(&site.cluster, options.node)?;
    let another = |failure| Failure::Refused(format!("{failure}; choose another --name"));
    // From before its program starts until it has ended: a seat is taken for a part of that time only.
    let _name = NameClaim::reserve(&site.cluster, options.name).map_err(Failure::refused).map_err(another)?;
    unused_elsewhere(root, cluster, options.name).map_err(another)?;
    options.log.start(root, &site, options.name, Some(node));
    drop(site);
    obol_fabric::host::sched::adopt_orphans().map_err(Failure::failed)?;
    let (tx, rx) = mpsc::channel();
    pass_signals(tx.clone()).map_err(Failure::failed)?;
    let reports = tx.clone();
    let forward = move |what| {
        // There is no receiver any more when `run` ends.
        let _ = reports.send(Happening::Shim(what));
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
    };
    let ended = supervisor.lives();
    supervisor.hooks.finish();
    // What hooks left behind.
    children.end_orphans().map_err(Failure::failed)?;
    ended.map(ExitCode::from).map_err(Failure::failed)
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

/// Refuses a name that stands for a role: `obol kill leader` would mean two.
fn unreserved(name: Name) -> Result<(), Failure> {
    let roles = DrillKind::value_variants().iter().filter_map(DrillKind::to_possible_value);
    if roles.into_iter().any(|role| role.matches(name.as_str(), true)) {
        return Err(Failure::Refused(format!(
            "{name} is not a name but a role, as in `obol kill leader` and `obol drill app`; choose another --name"
        )));
    }
    Ok(())
}

/// Forwards every relevant signal to the channel.
fn pass_signals(tx: Sender<Happening>) -> io::Result<()> {
    let signals = [&PASSED[..], &ENDING, &[SIGCHLD]].concat();
    listen::signals(&signals, move |signal| tx.send(Happening::Signal(signal)).is_ok())
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
                Ok(course) => {
                    let status = self.live(course)?;
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
        }
    }

    /// Waits between two lives; returns whether the next one was cancelled.
    fn is_stopped_within(&mut self, pause: Duration) -> bool {
        let end = Instant::now() + pause;
        loop {
            match self.rx.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(Happening::Signal(signal)) if ENDING.contains(&signal) => {
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
    fn begin(&mut self) -> io::Result<Result<Course, u8>> {
        self.shim.start(&self.environment)?;
        let process = loop {
            match self.next(None)? {
                Some(Happening::Shim(Some(Report::Started { pid, started }))) => {
                    break Process { pid, started };
                }
                Some(Happening::Shim(Some(Report::NotStarted { text, is_missing }))) => {
                    output::remark(format_args!("obol run: {text}"))?;
                    let code = if is_missing { program::NOT_FOUND } else { program::NOT_EXECUTABLE };
                    return Ok(Err(code));
                }
                Some(Happening::Shim(None)) => return Err(self.shim_died()),
                Some(Happening::Shim(Some(Report::Trouble(text)))) => {
                    self.journal.write(&Message::Trouble { text });
                }
                // Asked again when it has started.
                Some(Happening::Signal(signal)) if ENDING.contains(&signal) => self.stopping = true,
                _ => {}
            }
        };
        self.journal.write(&Message::Started { pid: process.pid });
        let life = Arc::new(Life::new(self.location.clone(), self.node, self.options.name, process));
        let own = Incarnation::NONE;
        let mut course = Course { life, threads: Vec::new(), own, kill_at: None, killed: None, status: None };
        if self.stopping {
            self.kill(&mut course, "it was terminated during its start")?;
        } else if let Some(health) = health::Health::of(self.options, &self.environment) {
            course.threads.push(health.start(
                Arc::clone(&course.life),
                Arc::clone(&self.children),
                self.tx.clone(),
            )?);
        } else {
            self.join(&mut course)?;
        }
        Ok(Ok(course))
    }

    /// The next happening, if there is one within [`POLL_INTERVAL`] and before that time. A shim
    /// that stands still is killed first; that it stands still wakes this thread as any end of a
    /// child does.
    fn next(&self, until: Option<Instant>) -> io::Result<Option<Happening>> {
        self.shim.end_if_stopped();
        let left = until.map_or(POLL_INTERVAL, |until| until.saturating_duration_since(Instant::now()));
        match self.rx.recv_timeout(left.min(POLL_INTERVAL)) {
            Ok(happening) => Ok(Some(happening)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("the signal thread has ended")),
        }
    }

    /// One life of the program, until nothing of it runs any more and its membership has ended.
    fn live(&mut self, mut course: Course) -> io::Result<ExitStatus> {
        loop {
            let happening = self.next(course.kill_at)?;
            match happening {
                Some(Happening::Signal(signal)) if PASSED.contains(&signal) => course.life.pass(signal),
                Some(Happening::Signal(signal)) if ENDING.contains(&signal) => {
                    self.stop(signal, &mut course)?;
                }
                Some(Happening::Signal(_)) => self.children.reap_orphans()?,
                Some(Happening::Healthy) => self.join(&mut course)?,
                Some(Happening::NotYetHealthy) => {
                    let failures = self.options.health_failures;
                    let text = format!(
                        "no member yet: its health command has failed {failures} times, and has never succeeded"
                    );
                    self.journal.write(&Message::Trouble { text });
                }
                Some(Happening::Unhealthy) => {
                    self.lost("its health command fails", &mut course);
                    self.kill(&mut course, "its health command fails")?;
                }
                Some(Happening::MembershipEvent(event)) => self.handle_membership(event, &mut course)?,
                Some(Happening::Shim(Some(Report::Gone))) => break,
                Some(Happening::Shim(report)) => self.handle_report(report, &mut course)?,
                None => {}
            }
            if course.kill_at.take_if(|at| Instant::now() >= *at).is_some() {
                let grace = Nanos::from_std(self.options.grace);
                self.kill(&mut course, &format!("it did not end within {grace}"))?;
            }
        }
        self.finish(course)
    }

    /// Handles a report of the shim about a running program.
    fn handle_report(&mut self, report: Option<Report>, course: &mut Course) -> io::Result<()> {
        match report {
            // A frozen program must not wake up in a role that another has taken.
            Some(Report::Stopped) => {
                self.lost("it was frozen", course);
                self.kill(course, "it was frozen")?;
            }
            Some(Report::Killed(cause)) => {
                if cause == Cause::RunStopped {
                    self.lost(RUN_STOPPED, course);
                    (course.killed, course.kill_at) = (Some(RUN_STOPPED.to_owned()), None);
                    course.life.stop_joining();
                }
                let why = course.killed.clone().unwrap_or_default();
                self.journal.write(&Message::Killed { why });
            }
            Some(Report::Lives) if course.killed.is_none() => course.life.lives(),
            Some(Report::Ended(status)) => course.status = Some(ExitStatus::from_raw(status)),
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
                course.life.over(End::Dead);
                self.lost("its shim process died", course);
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
    fn stop(&mut self, signal: i32, course: &mut Course) -> io::Result<()> {
        if std::mem::replace(&mut self.stopping, true) {
            return self.kill(course, "it was terminated twice");
        }
        self.journal.write(&Message::Stopping { signal });
        course.life.stop_joining();
        course.life.pass(signal);
        // A grace without an end is one, too.
        course.kill_at = Instant::now().checked_add(self.options.grace);
        Ok(())
    }

    /// Kills the program and all that it started.
    /// The shim says when it has.
    fn kill(&self, course: &mut Course, why: &str) -> io::Result<()> {
        course.kill_at = None;
        course.life.stop_joining();
        if course.killed.is_some() {
            return Ok(());
        }
        course.killed = Some(why.to_owned());
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
    fn join(&self, course: &mut Course) -> io::Result<()> {
        let (life, tx) = (Arc::clone(&course.life), self.tx.clone());
        let report = move |event| {
            // There is no receiver any more when `run` ends.
            let _ = tx.send(Happening::MembershipEvent(event));
        };
        let thread = std::thread::Builder::new().name("obol-seat".to_owned());
        course.threads.push(thread.spawn(move || life.run(&report))?);
        Ok(())
    }

    /// Takes note of what became of the membership.
    fn handle_membership(&self, event: MembershipEvent, course: &mut Course) -> io::Result<()> {
        match event {
            MembershipEvent::Member(incarnation) => {
                course.own = incarnation;
                self.journal.write(&Message::Member { incarnation: incarnation.0 });
            }
            // A program that is asked to end takes no new role.
            MembershipEvent::Active(..) if self.stopping => {}
            MembershipEvent::Active(view, own) => self.hooks.call(Call::View { view, own }),
            MembershipEvent::Lost(why, incarnation) => {
                // What was given up already, because `run` was frozen for example, is lost once.
                if course.own == incarnation {
                    self.lost(why, course);
                }
                // Without a hook the program cannot learn of it and must not continue. Otherwise it
                // joins again, unless it is being killed.
                if self.hooks.reports_losses() {
                    self.ask(&Request::Confirm)?;
                } else {
                    self.kill(course, why)?;
                }
            }
            MembershipEvent::Left => {
                course.own = Incarnation::NONE;
                self.journal.write(&Message::Left);
            }
            MembershipEvent::Trouble(text) => self.journal.write(&Message::Trouble { text }),
        }
        Ok(())
    }

    /// The program was a member and is none any more.
    fn lost(&self, why: &str, course: &mut Course) {
        if course.own != Incarnation::NONE {
            self.journal.write(&Message::Lost { why: why.to_owned() });
            self.hooks.call(Call::Lost { why: why.to_owned(), own: course.own });
        }
        course.own = Incarnation::NONE;
    }

    /// Whether the program has ended by itself, successfully, and is not started again.
    fn is_done(&self, status: ExitStatus, course: &Course) -> bool {
        status.success() && course.killed.is_none() && self.options.restart != Policy::Always
    }

    /// Nothing of the program runs any more: now its membership may end, too.
    fn finish(&mut self, mut course: Course) -> io::Result<ExitStatus> {
        // Messages about the membership so far.
        let mut later = Vec::new();
        while let Ok(happening) = self.rx.try_recv() {
            match happening {
                Happening::MembershipEvent(event) => self.handle_membership(event, &mut course)?,
                Happening::Signal(signal) if ENDING.contains(&signal) => self.stopping = true,
                other => later.push(other),
            }
        }
        if self.stopping {
            if course.own != Incarnation::NONE {
                self.hooks.call(Call::Lost { why: "it was asked to end".to_owned(), own: course.own });
            }
            // Whatever role a hook has taken is given up before another member can take it.
            self.hooks.settle();
            course.life.over(End::Leaves);
        } else if let Some(status) = course.status.filter(|status| self.is_done(*status, &course)) {
            // It has done its work and is not expected back.
            self.lost(&program::how(status), &mut course);
            self.hooks.settle();
            course.life.over(End::Leaves);
        } else {
            course.life.over(End::Dead);
        }
        for thread in course.threads.drain(..) {
            // A panic has been reported already.
            let _ = thread.join();
        }
        // The last messages of the threads.
        while let Ok(happening) = self.rx.try_recv() {
            match happening {
                Happening::MembershipEvent(event) => self.handle_membership(event, &mut course)?,
                Happening::Signal(signal) if ENDING.contains(&signal) => self.stopping = true,
                Happening::Shim(None) => return Err(self.shim_died()),
                _ => {}
            }
        }
        if later.iter().any(|happening| matches!(happening, Happening::Shim(None))) {
            return Err(self.shim_died());
        }
        let status = course
            .status
            .ok_or_else(|| io::Error::other("the shim, the program's parent, does not say how it ended"))?;
        if course.own != Incarnation::NONE && !self.stopping {
            self.lost(&program::how(status), &mut course);
        }
        Ok(status)
    }
}

//! `obol run`: any program as a member, without a change to it.
//!
//! `run` sits in a seat of the node's agent for the program and ends the seat with it. It is the program's parent: it
//! passes signals and the exit code on, starts the program again by policy, and leaves nothing behind.

mod feed;
mod health;
mod hooks;
mod journal;
mod membership;
mod program;
mod restart;

pub(crate) use program::become_program;

use crate::cli::duration;
use crate::output::Failure;
use clap::Args;
use hooks::{Call, Hooks, Setup};
use journal::{Journal, Told};
use membership::{Life, Standing};
use obol_chaos::observe::Observer;
use obol_fabric::shm::Cluster;
use obol_fabric::{Incarnation, Name};
use obol_membership::Kind;
use obol_profiles::Site;
use obol_profiles::endpoint::LEAVE_TIMEOUT;
use program::{Kept, Program};
use restart::{Policy, Restarts};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// Signals that are passed on to the program as they come.
const PASSED: [i32; 5] = [SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH];
/// Signals that end the program: it leaves the cluster first.
const ENDING: [i32; 2] = [SIGTERM, SIGINT];
/// A stopped program is looked for so often at least, should its signal have been lost in another.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How a program is run as a member.
#[derive(Debug, Args)]
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
    /// A program to execute when the membership is lost; without one the program is killed then
    #[arg(long, value_name = "HOOK")]
    on_lost: Option<OsString>,
    /// A program that is started once, and told all that by lines on its standard input: "view ID INCARNATION MEMBER.."
    /// and "lost ID INCARNATION WHY"
    #[arg(long, value_name = "HOOK")]
    views_to: Option<OsString>,
    /// Hooks and the health command are lines for /bin/sh, not programs
    #[arg(long)]
    shell: bool,
    /// A hook or health command that takes longer is killed
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5s")]
    hook_timeout: Duration,
    /// A program to execute now and then; the member joins after its first success
    #[arg(long, value_name = "COMMAND")]
    health: Option<OsString>,
    /// How often the health command is executed
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1s", requires = "health")]
    health_every: Duration,
    /// So many failures of it in a row, and the program is killed
    #[arg(long, value_name = "N", default_value_t = 3, requires = "health", value_parser = clap::value_parser!(u32).range(1..))]
    health_failures: u32,
    /// When the program is started again after it has ended
    #[arg(long, value_enum, default_value_t = Policy::Never)]
    restart: Policy,
    /// The pause before the first start again; doubles with each one
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "100ms")]
    restart_pause: Duration,
    /// The longest pause; a program that lived as long starts with short ones again
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s")]
    restart_pause_max: Duration,
    /// Tell what happens as JSON lines on standard error
    #[arg(long)]
    json: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    words: Vec<OsString>,
}

/// What `run` reacts to.
enum Happening {
    Signal(i32),
    Standing(Standing),
    /// The health command has succeeded for the first time.
    Healthy,
    /// It has failed too often.
    Unhealthy,
}

/// How a life of the program ended.
struct Ended {
    status: ExitStatus,
    lived: Duration,
}

struct Supervisor<'a> {
    options: &'a Run,
    site: Arc<Site>,
    node: Name,
    environment: Vec<(&'static str, String)>,
    kept: Arc<Kept>,
    journal: Arc<Journal>,
    hooks: Hooks,
    tell: Sender<Happening>,
    told: Receiver<Happening>,
    /// The program is asked to end: it is not started again.
    stopping: bool,
}

pub(crate) fn run(root: &Path, cluster: Name, options: &Run) -> Result<ExitCode, Failure> {
    let site = Arc::new(Site::open(root, cluster).map_err(Failure::refused)?);
    let node = agent(&site.cluster, options.node)?;
    unused(root, cluster, options.name)?;
    obol_fabric::shm::sched::adopt_orphans().map_err(Failure::failed)?;
    let (tell, told) = mpsc::channel();
    pass_signals(tell.clone()).map_err(Failure::failed)?;
    let kept = Arc::new(Kept::default());
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
        views_to: options.views_to.clone(),
        by_shell: options.shell,
        timeout: options.hook_timeout,
        environment: environment.clone(),
    };
    let hooks = Hooks::start(setup, Arc::clone(&kept), Arc::clone(&journal)).map_err(Failure::failed)?;
    let mut supervisor =
        Supervisor { options, site, node, environment, kept, journal, hooks, tell, told, stopping: false };
    let ended = supervisor.lives();
    supervisor.hooks.finish();
    ended.map(|status| ExitCode::from(program::code(status))).map_err(Failure::failed)
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

/// Refuses a name that somebody has: `obol kill` and hooks could not tell the two apart.
fn unused(root: &Path, cluster: Name, name: Name) -> Result<(), Failure> {
    let seen = Observer::open(root, cluster).map_err(Failure::refused)?.snapshot();
    let Some(other) = seen.everybody().find(|other| other.alive && other.name == name) else { return Ok(()) };
    Err(Failure::Refused(format!("{name} runs already (pid {}); choose another --name", other.process.pid)))
}

/// Has every signal that matters told to the channel.
fn pass_signals(tell: Sender<Happening>) -> io::Result<()> {
    let mut signals = Signals::new(PASSED.iter().chain(&ENDING).chain(&[SIGCHLD]))?;
    let listen = move || {
        for signal in signals.forever() {
            if tell.send(Happening::Signal(signal)).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("obol-signals".to_owned()).spawn(listen).map(drop)
}

impl Supervisor<'_> {
    /// One life after the other, until the policy or a signal says that it is enough.
    fn lives(&mut self) -> io::Result<ExitStatus> {
        let options = self.options;
        let mut restarts = Restarts::new(options.restart, options.restart_pause, options.restart_pause_max);
        loop {
            let ended = self.live()?;
            if let Err(error) = self.kept.end_orphans() {
                self.journal.tell(&Told::Trouble { text: error.to_string() });
            }
            self.journal.tell(&Told::Ended { code: program::code(ended.status) });
            let pause = restarts.after(ended.status.success(), ended.lived);
            let Some(pause) = pause.filter(|_| !self.stopping) else { return Ok(ended.status) };
            self.journal.tell(&Told::Restart { pause_ms: pause.as_millis() as u64 });
            if self.is_stopped_within(pause) {
                return Ok(ended.status);
            }
        }
    }

    /// Waits between two lives; tells whether the next is not wanted any more.
    fn is_stopped_within(&mut self, pause: Duration) -> bool {
        let end = Instant::now() + pause;
        loop {
            match self.told.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(Happening::Signal(signal)) if ENDING.contains(&signal) => {
                    self.stopping = true;
                    return true;
                }
                // What the life before has told late.
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    }

    /// One life of the program.
    fn live(&mut self) -> io::Result<Ended> {
        let begun = Instant::now();
        let mut program = Program::start(&self.options.words, &self.environment, &self.kept)?;
        self.journal.tell(&Told::Started { pid: program.process().pid });
        let life = match program.hold() {
            Ok(held) => Arc::new(Life {
                site: Arc::clone(&self.site),
                node: self.node,
                name: self.options.name,
                program: held,
                leaving: AtomicBool::new(false),
            }),
            // It has ended already.
            Err(_) => return self.bury(&mut program, begun, Incarnation::NONE),
        };
        let mut threads = Vec::new();
        if let Some(health) = health::Health::of(self.options, &self.environment) {
            threads.push(health.start(Arc::clone(&life), Arc::clone(&self.kept), self.tell.clone())?);
        } else {
            threads.push(self.stand(&life)?);
        }
        let mut own = Incarnation::NONE;
        // The signal that is passed on as soon as the program has left, and until when that is waited for.
        let mut parting: Option<(i32, Instant)> = None;
        while !life.program.has_ended() {
            let happening = match self.told.recv_timeout(LOOK_EVERY) {
                Ok(happening) => Some(happening),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other("nobody tells signals")),
            };
            match happening {
                Some(Happening::Signal(signal)) if PASSED.contains(&signal) => pass(&life, signal),
                Some(Happening::Signal(signal)) if ENDING.contains(&signal) => {
                    self.stopping = true;
                    life.leaving.store(true, Ordering::Relaxed);
                    // Whoever asks twice is in a hurry.
                    match parting.take() {
                        Some(_) => pass(&life, signal),
                        None => parting = Some((signal, Instant::now() + LEAVE_TIMEOUT.to_std())),
                    }
                }
                Some(Happening::Signal(_)) => self.kept.reap_orphans()?,
                Some(Happening::Healthy) => threads.push(self.stand(&life)?),
                Some(Happening::Unhealthy) => {
                    self.lost("its health command fails", &mut own, &life);
                    kill(&life);
                }
                Some(Happening::Standing(standing)) => self.standing(standing, &mut own, &life, &mut parting),
                None => {}
            }
            if let Some((signal, until)) = parting
                && Instant::now() >= until
            {
                pass(&life, signal);
                parting = None;
            }
            // A frozen program must not wake up in a role that another has taken.
            if program.process().is_stopped() {
                self.lost("it was frozen", &mut own, &life);
                kill(&life);
            }
        }
        for thread in threads {
            // A thread that panicked has told so already.
            let _ = thread.join();
        }
        // What the threads told at last.
        while let Ok(happening) = self.told.try_recv() {
            match happening {
                Happening::Standing(standing) => self.standing(standing, &mut own, &life, &mut None),
                Happening::Signal(signal) if ENDING.contains(&signal) => self.stopping = true,
                _ => {}
            }
        }
        self.bury(&mut program, begun, own)
    }

    /// Has a thread stand for the program.
    fn stand(&self, life: &Arc<Life>) -> io::Result<std::thread::JoinHandle<()>> {
        let (life, tell) = (Arc::clone(life), self.tell.clone());
        let tell = move |standing| {
            // Nobody listens any more when `run` ends.
            let _ = tell.send(Happening::Standing(standing));
        };
        std::thread::Builder::new().name("obol-seat".to_owned()).spawn(move || life.stand(&tell))
    }

    /// Takes note of what became of the membership.
    fn standing(
        &self,
        standing: Standing,
        own: &mut Incarnation,
        life: &Life,
        parting: &mut Option<(i32, Instant)>,
    ) {
        match standing {
            Standing::Member(incarnation) => {
                *own = incarnation;
                self.journal.tell(&Told::Member { incarnation: incarnation.0 });
            }
            Standing::Active(view, own) => self.hooks.call(Call::View { view, own }),
            Standing::Lost(why, incarnation) => {
                *own = incarnation;
                self.lost(why, own, life);
                // Nobody can tell the program, so it must not go on.
                if !self.hooks.tell_losses() {
                    kill(life);
                }
            }
            Standing::Left => {
                *own = Incarnation::NONE;
                self.journal.tell(&Told::Left);
                if let Some((signal, _)) = parting.take() {
                    pass(life, signal);
                }
            }
            Standing::Trouble(error) => self.journal.tell(&Told::Trouble { text: error.to_string() }),
        }
    }

    /// The program was a member and is none any more.
    fn lost(&self, why: &str, own: &mut Incarnation, life: &Life) {
        if *own != Incarnation::NONE && !life.leaving.load(Ordering::Relaxed) {
            self.journal.tell(&Told::Lost { why: why.to_owned() });
            self.hooks.call(Call::Lost { why: why.to_owned(), own: *own });
        }
        *own = Incarnation::NONE;
    }

    /// The program has ended: takes its exit status.
    fn bury(&self, program: &mut Program, begun: Instant, own: Incarnation) -> io::Result<Ended> {
        let status = program.end(&self.kept)?;
        if own != Incarnation::NONE && !self.stopping {
            let why = program::how(status);
            self.journal.tell(&Told::Lost { why: why.clone() });
            self.hooks.call(Call::Lost { why, own });
        }
        Ok(Ended { status, lived: begun.elapsed() })
    }
}

/// A program that has ended meanwhile needs no signal.
fn pass(life: &Life, signal: i32) {
    let _ = life.program.signal(signal);
}

fn kill(life: &Life) {
    let _ = life.program.kill();
}

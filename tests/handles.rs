//! What a program's handles say when its agent dies, and when it forks: one table of commands and
//! answers, to which a program in Rust and one in C are held.

use crate::capi;
use crate::support::{Root, until};
use obol_agent::{
    AttachError, Attached, Embedded, Failures, Inactive, Lost, MembershipHandle, OwnView, Views,
};
use obol_fabric::host::{fork, reap};
use obol_fabric::{Name, Nanos};
use obol_node::Site;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

const WAIT: Nanos = Nanos::from_secs(20);
/// The arguments of the program in Rust, which is this test program.
const ARGUMENTS: &str = "OBOL_TEST_HANDLES";

/// What happens in a test.
enum Step {
    /// A command, and its answer.
    Say(&'static str, &'static str),
    /// A command that has this answer sooner or later.
    Until(&'static str, &'static str),
    /// No command for longer than the longest promise of progress.
    Hang,
    KillAgent,
    /// Its state in the cluster's status is this.
    Shown(&'static str),
    StartAgent,
    /// The process that began is killed; its child keeps running.
    KillParent,
    /// The cluster has this member active.
    Active(&'static str),
    /// The cluster has removed this member.
    Removed(&'static str),
}

use Step::{Active, Hang, KillAgent, KillParent, Removed, Say, Shown, StartAgent, Until};

/// Everything that a handle answers in the child of a fork.
const FORKED: [Step; 11] = [
    Say("incarnation", "no"),
    Say("active", "no"),
    Say("guard", "no"),
    Say("check", "forked"),
    Say("excluded", "yes"),
    Say("agent lives", "no"),
    Say("views", "forked"),
    Say("failures", "forked"),
    Say("join", "forked"),
    Say("leave", "forked"),
    Say("close", "ok"),
];

const ATTACH: [Step; 6] = [
    Say("attach", "ok"),
    Say("join", "ok"),
    Say("open streams", "ok"),
    Say("act", "yes"),
    Say("incarnation", "yes"),
    Active("guest"),
];

const EMBED: [Step; 6] = [
    Say("embed", "ok"),
    Say("join", "ok"),
    Say("open streams", "ok"),
    Say("act", "yes"),
    Say("incarnation", "yes"),
    Active("guest"),
];

/// What "promise much time" promises in both programs.
const LONGEST_PROMISE: Nanos = Nanos::from_secs(2);

/// Both programs.
const LANGUAGES: [&str; 2] = ["Rust", "C"];

/// A program that is given commands.
struct Driver {
    first: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Driver {
    fn start(language: &str, root: &Root, built: &Path) -> Self {
        let mut command = if language == "C" {
            let mut command = Command::new(built);
            command.arg(root.path()).args(["node-1", "guest"]);
            // Of `cargo test`, where an older build of the library may lie.
            command.env_remove("LD_LIBRARY_PATH");
            command
        } else {
            let mut command = Command::new(std::env::current_exe().expect("this program"));
            command.args(["--exact", "handles::the_program_in_rust", "--ignored", "--nocapture"]);
            command.env(ARGUMENTS, root.path());
            command
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut first = command.spawn().expect("it starts");
        let commands = first.stdin.take().expect("a pipe");
        let mut answers = BufReader::new(first.stdout.take().expect("a pipe"));
        if language != "C" {
            // What the test harness says before it runs the one test.
            for _ in 0..2 {
                answers.read_line(&mut String::new()).expect("it says something");
            }
        }
        Self { first, commands, answers }
    }

    fn say(&mut self, command: &str) -> String {
        writeln!(self.commands, "{command}").expect("it listens");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("it answers");
        // The harness begins the line of a test with its name.
        answer.trim_end().rsplit(" ... ").next().unwrap_or_default().to_owned()
    }

    fn run(&mut self, language: &str, root: &Root, steps: &[Step]) {
        for step in steps {
            match *step {
                Say(command, answer) => assert_eq!(self.say(command), answer, "{language}: {command}"),
                Until(command, answer) => until(command, || self.say(command) == answer),
                Hang => std::thread::sleep(LONGEST_PROMISE.to_std() * 2),
                KillAgent => drop(root.run(&["kill", "node-1"]).ends(0)),
                StartAgent => drop(root.run(&["start", "node-1"]).ends(0)),
                Shown(state) => until(state, || {
                    let said = root.run(&["status"]).out;
                    let line = said.lines().find(|line| line.starts_with("guest "));
                    line.is_some_and(|line| line.contains(state))
                }),
                KillParent => {
                    self.first.kill().expect("it runs");
                    self.first.wait().expect("reaped");
                }
                Active(name) => drop(root.until(name, |status| status.is_active(name))),
                Removed(name) => drop(root.until(name, |status| !status.is_active(name))),
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // The reader of the commands ends when there are no more; a parent that waits does not.
        let _ = self.first.kill();
        let _ = self.first.wait();
    }
}

/// Runs the same steps with both programs.
fn both(steps: &[&[Step]]) {
    let root = Root::new();
    let prefix = capi::install(&root);
    let link = capi::flags(&prefix, &["--cflags", "--libs"]);
    let built = capi::compile(&prefix, "tests/handles.c", "handles", &link);
    let _up = root.up(&["--apps", "1"]);
    for language in LANGUAGES {
        let mut driver = Driver::start(language, &root, &built);
        for steps in steps {
            driver.run(language, &root, steps);
        }
        drop(driver);
        for name in ["guest", "another"] {
            root.until("it is gone", |status| !status.is_active(name));
        }
    }
    std::fs::remove_dir_all(&prefix).expect("removed");
}

#[test]
fn a_program_learns_that_its_agent_died_and_attaches_again() {
    both(&[
        &ATTACH,
        &[
            Say("excluded", "no"),
            Say("agent lives", "yes"),
            Until("check", "ok"),
            KillAgent,
            Say("views", "agent died"),
            Say("failures", "agent died"),
            Until("check", "agent died"),
            Say("active", "no"),
            Say("guard", "no"),
            Say("excluded", "yes"),
            Say("agent lives", "no"),
            Say("join", "agent died"),
            Say("leave", "agent died"),
            Say("attach again, without waiting", "timeout"),
            Say("attach to nobody", "cluster"),
            Shown("no agent"),
            StartAgent,
            Say("join", "agent died"),
            Say("attach again", "ok"),
            Say("agent lives", "yes"),
            Say("views", "agent died"),
            Say("join", "ok"),
            Say("open streams", "ok"),
            Say("act", "yes"),
            Active("guest"),
            Say("leave", "ok"),
            Say("check", "inactive"),
            Say("close", "ok"),
        ],
    ]);
}

#[test]
fn a_member_changes_its_promise_of_progress_and_takes_it_back() {
    both(&[&[
        Say("attach", "ok"),
        Say("promise much time", "ok"),
        Say("join", "ok"),
        Say("promise nothing", "ok"),
        Hang,
        Say("excluded", "no"),
        Say("act", "yes"),
        Say("promise little time", "ok"),
        Until("excluded", "yes"),
        Say("promise nothing", "ok"),
        Say("join", "ok"),
        Say("act", "yes"),
        Say("leave", "ok"),
        Say("close", "ok"),
    ]]);
}

#[test]
fn a_forked_child_of_an_attached_program_is_no_member_and_may_become_one() {
    both(&[
        &ATTACH,
        &[Say("fork", "ok"), Say("attach again", "forked")],
        &FORKED,
        // What the child dropped was not its own.
        &[
            Active("guest"),
            KillParent,
            Say("attach as another", "ok"),
            Say("check", "inactive"),
            Say("join", "ok"),
            Say("act", "yes"),
            Active("another"),
            Removed("guest"),
            Say("leave", "ok"),
            Say("close", "ok"),
        ],
    ]);
}

#[test]
fn a_forked_child_of_a_program_with_a_core_of_its_own_is_no_member() {
    both(&[
        &EMBED,
        &[Say("fork", "ok"), KillParent],
        &FORKED,
        &[Removed("guest"), Say("embed", "ok"), Say("join", "ok"), Say("act", "yes"), Say("close", "ok")],
    ]);
}

#[test]
fn a_program_that_goes_into_the_background_is_told_and_attaches_there() {
    both(&[
        &ATTACH,
        &[Say("go into the background", "ok")],
        &FORKED,
        &[
            Removed("guest"),
            Say("attach as another", "ok"),
            Say("join", "ok"),
            Say("act", "yes"),
            Active("another"),
            Say("leave", "ok"),
            Say("close", "ok"),
        ],
    ]);
}

#[test]
fn a_program_that_starts_others_stays_a_member() {
    both(&[
        &ATTACH,
        &[
            Say("spawn", "ok"),
            Until("check", "ok"),
            Say("fork and exec", "ok"),
            Say("act", "yes"),
            Say("excluded", "no"),
            Say("leave", "ok"),
            Say("close", "ok"),
        ],
        &EMBED,
        &[
            Say("spawn", "ok"),
            Say("fork and exec", "ok"),
            Say("act", "yes"),
            Say("excluded", "no"),
            Say("close", "ok"),
        ],
    ]);
}

/// The program in Rust: as `handles.c`.
#[derive(Default)]
struct Program {
    attached: Option<Attached>,
    embedded: Option<Embedded>,
    view: Option<OwnView>,
    views: Option<Views>,
    failures: Option<Failures>,
}

fn lost(lost: Lost) -> &'static str {
    match lost {
        Lost::AgentDied(_) | Lost::CoreEnded(_) => "agent died",
        Lost::Forked => "forked",
    }
}

fn word(done: Result<(), AttachError>) -> &'static str {
    let Err(error) = done else { return "ok" };
    match error {
        AttachError::Lost(why) => lost(why),
        AttachError::Fabric(_) | AttachError::Release { .. } => "cluster",
        AttachError::NotAdmitted { .. } | AttachError::NoSuccessor { .. } => "timeout",
    }
}

/// How a stream ends.
fn end_of<T>(mut next: impl FnMut() -> Result<Option<T>, Lost>) -> &'static str {
    loop {
        match next() {
            Ok(Some(_)) => {}
            Ok(None) => return "timeout",
            Err(why) => return lost(why),
        }
    }
}

const fn truth(so: bool) -> &'static str {
    if so { "yes" } else { "no" }
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

impl Program {
    fn handle(&self) -> &MembershipHandle {
        match (&self.attached, &self.embedded) {
            (Some(attached), _) => attached,
            (None, Some(embedded)) => embedded,
            (None, None) => panic!("it is not a member yet"),
        }
    }

    fn attach(&mut self, root: &Path, agent: &str, as_whom: &str) -> &'static str {
        let site = Site::open(root, name("default")).expect("the cluster runs");
        word(Attached::open(&site, name(agent), name(as_whom)).map(|attached| self.attached = Some(attached)))
    }

    fn attach_again(&mut self, timeout: Nanos) -> &'static str {
        word(self.attached.as_mut().expect("it is attached").attach_again(timeout))
    }

    fn promise(&self, within: Nanos) -> &'static str {
        self.attached.as_ref().expect("it is attached").promise_progress(within);
        "ok"
    }

    fn join(&mut self) -> &'static str {
        if let Some(attached) = &self.attached {
            return word(attached.join(WAIT).map(drop));
        }
        let mut found = "timeout";
        until("it is admitted", || {
            let handle = self.handle();
            found = match handle.lost() {
                Some(why) => lost(why),
                None if handle.view().is_some_and(|view| view.is_mine()) => "ok",
                None => return false,
            };
            true
        });
        found
    }

    fn act(&mut self) -> bool {
        until("its view is active", || {
            self.view = self.handle().view();
            self.active()
        });
        true
    }

    fn active(&self) -> bool {
        self.view.as_ref().is_some_and(|view| self.handle().active(view))
    }

    fn run(&mut self, command: &str, root: &Path) -> &'static str {
        let so = |so| truth(so);
        match command {
            "attach" => self.attach(root, "node-1", "guest"),
            "attach as another" => self.attach(root, "node-1", "another"),
            "attach to nobody" => self.attach(root, "nobody", "guest"),
            "embed" => {
                let site = Site::open(root, name("default")).expect("the cluster runs");
                self.embedded = Some(Embedded::start(Arc::new(site), name("guest")).expect("it starts"));
                "ok"
            }
            "join" => self.join(),
            "open streams" => {
                (self.views, self.failures) = (Some(self.handle().views()), Some(self.handle().failures()));
                "ok"
            }
            "act" => so(self.act()),
            "active" => so(self.active()),
            "guard" => so(self.view.as_ref().is_some_and(|view| self.handle().guard(view, |_| ()).is_some())),
            "check" => match self.handle().check(self.view.as_ref().expect("it has acted")) {
                Ok(()) => "ok",
                Err(Inactive::Lost(why)) => lost(why),
                Err(Inactive::NotMine | Inactive::NoLease) => "inactive",
            },
            "excluded" => {
                so(self.attached.as_ref().map_or(self.handle().lost().is_some(), Attached::is_excluded))
            }
            "incarnation" => so(self.handle().incarnation() != obol_fabric::Incarnation::NONE),
            "agent lives" => so(self.handle().lost().is_none()),
            "views" => end_of(|| self.views.as_mut().expect("they are open").next(WAIT)),
            "failures" => end_of(|| self.failures.as_mut().expect("they are open").next(WAIT)),
            "leave" => match (&self.attached, self.handle().lost()) {
                (Some(attached), _) => match attached.leave(WAIT) {
                    Ok(true) => "ok",
                    Ok(false) => "timeout",
                    Err(why) => lost(why),
                },
                (None, Some(why)) => lost(why),
                (None, None) => "argument",
            },
            "promise much time" => self.promise(LONGEST_PROMISE),
            "promise little time" => self.promise(Nanos::from_millis(50)),
            "promise nothing" => self.promise(Nanos::ZERO),
            "attach again" => self.attach_again(WAIT),
            "attach again, without waiting" => self.attach_again(Nanos::ZERO),
            "close" => {
                (self.attached, self.embedded) = (None, None);
                "ok"
            }
            "spawn" => {
                let ended = Command::new("/bin/true").status();
                if ended.is_ok_and(|status| status.success()) { "ok" } else { "failed" }
            }
            "fork and exec" => match fork().expect("a child") {
                None => {
                    let error = Command::new("/bin/true").exec();
                    eprintln!("{error}");
                    std::process::exit(1);
                }
                Some(child) => {
                    until("the other program ends", || reap(child));
                    "ok"
                }
            },
            "fork" | "go into the background" => match fork().expect("a child") {
                None => "ok",
                Some(_) if command == "fork" => loop {
                    std::thread::park();
                },
                Some(_) => std::process::exit(0),
            },
            _ => "no such command",
        }
    }
}

/// A command. The test waits for an answer before it gives the next, so nothing of that is read
/// before a fork.
fn line() -> Option<String> {
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line).expect("a line");
    (read > 0).then(|| line.trim_end().to_owned())
}

#[test]
#[ignore = "a program that other tests run"]
fn the_program_in_rust() {
    let root = std::env::var_os(ARGUMENTS).expect("its arguments");
    let mut program = Program::default();
    while let Some(command) = line() {
        println!("{}", program.run(&command, Path::new(&root)));
    }
    // The harness of a child waits for threads that it has not got.
    drop(program);
    std::process::exit(0);
}

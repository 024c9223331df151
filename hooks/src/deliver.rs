//! One attempt to deliver an event.

use crate::config::{Action, Hook};
use crate::failed::Failed;
use crate::webhook;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use obol_observe::incidents::event::Event;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use ureq::Agent;

/// How often a program is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// What is quoted of a program's standard error, in bytes.
const ERROR_BYTES_MAX: u64 = 500;

/// How often a delivery was tried until it succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    pub attempts: u32,
}

/// The receiver of a hook.
pub struct Receiver {
    hook: Hook,
    agent: Option<Agent>,
}

impl Receiver {
    /// Of a hook. `ca_file` has the certificates of authorities, in place of the host's.
    pub fn new(hook: &Hook, ca_file: Option<&Path>) -> io::Result<Self> {
        let agent = match hook.action {
            Action::Webhook { .. } => Some(webhook::agent(hook, ca_file)?),
            Action::Exec(_) => None,
        };
        Ok(Self { hook: hook.clone(), agent })
    }

    pub const fn hook(&self) -> &Hook {
        &self.hook
    }

    /// Delivers an event once. `suppressed` counts those that were suppressed before it.
    pub fn deliver(&self, event: &Event, suppressed: u64) -> Result<(), Failed> {
        self.deliver_unless(event, suppressed, &|| false)
    }

    /// The same, but a program is killed as soon as it `is_over`.
    pub(crate) fn deliver_unless(
        &self,
        event: &Event,
        suppressed: u64,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(), Failed> {
        match (&self.hook.action, &self.agent) {
            (Action::Exec(words), _) => execute(words, event, suppressed, self.hook.timeout, is_over),
            (action, Some(agent)) => webhook::post(agent, action, event, suppressed),
            (Action::Webhook { .. }, None) => Ok(()),
        }
    }
}

fn later(why: impl Into<String>) -> Failed {
    Failed::Later { why: why.into(), after: None }
}

/// Runs a program with the event on standard input.
fn execute(
    words: &[String],
    event: &Event,
    suppressed: u64,
    timeout: Duration,
    is_over: &dyn Fn() -> bool,
) -> Result<(), Failed> {
    let Some((program, arguments)) = words.split_first() else { return Ok(()) };
    let failed = |error: io::Error| later(format!("{program}: {error}"));
    // A file in memory: a pipe would block a program that writes much, or that leaves children.
    let memory =
        |name: &str| memfd_create(name, MFdFlags::MFD_CLOEXEC).map(File::from).map_err(io::Error::from);
    let mut input = memory("obol-event").map_err(failed)?;
    let mut errors = memory("obol-stderr").map_err(failed)?;
    let body = event.to_json(suppressed).to_string();
    let written = input.write_all(body.as_bytes()).and_then(|()| input.seek(SeekFrom::Start(0)));
    written.map_err(failed)?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(input)
        .stdout(Stdio::null())
        .stderr(errors.try_clone().map_err(failed)?)
        .env("OBOL_EVENT_ID", &event.id)
        .env("OBOL_EVENT_KIND", event.kind.name())
        .env("OBOL_EVENT_STATE", event.state.name())
        .env("OBOL_EVENT_SEVERITY", event.severity.name())
        .env("OBOL_EVENT_SUBJECT", &event.subject)
        .env("OBOL_EVENT_TITLE", &event.title)
        .env("OBOL_CLUSTER", &event.cluster)
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    match wait(&mut child, timeout, is_over).map_err(failed)? {
        Some(status) if status.success() => Ok(()),
        Some(status) => {
            let mut said = Vec::new();
            let read = errors
                .seek(SeekFrom::Start(0))
                .and_then(|_| errors.take(ERROR_BYTES_MAX).read_to_end(&mut said));
            let said = String::from_utf8_lossy(&said).trim().to_owned();
            let said = if read.is_err() || said.is_empty() { String::new() } else { format!(": {said}") };
            Err(later(format!("{program} ended with {status}{said}")))
        }
        None if is_over() => {
            Err(later(format!("{program} had not ended when `obol hooks run` ended, and was killed")))
        }
        None => Err(later(format!("{program} did not end within {timeout:?} and was killed"))),
    }
}

/// Waits for the end of a program; kills it, and what it started, when its time is over.
fn wait(child: &mut Child, timeout: Duration, is_over: &dyn Fn() -> bool) -> io::Result<Option<ExitStatus>> {
    let end = Instant::now() + timeout;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= end || is_over() {
            // It is not reaped yet, so the group is its own.
            let killed = killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
            child.kill()?;
            child.wait()?;
            killed?;
            return Ok(None);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::event;
    use obol_observe::incidents::event::Kind;

    fn run(script: &str, timeout: Duration) -> Result<(), Failed> {
        let words = ["/bin/sh", "-c", script].map(str::to_owned);
        execute(&words, &event(Kind::Alert, "a title"), 4, timeout, &|| false)
    }

    #[test]
    fn a_program_gets_the_event_on_standard_input_and_in_its_environment() {
        let folder = tempfile::tempdir().expect("made");
        let out = folder.path().join("out");
        let script = format!(
            "cat > {0}; echo \"|$OBOL_EVENT_KIND|$OBOL_EVENT_TITLE|$OBOL_CLUSTER\" >> {0}",
            out.display()
        );
        run(&script, Duration::from_secs(60)).expect("delivered");
        let text = std::fs::read_to_string(out).expect("written");
        let (json, rest) = text.split_once('|').expect("both");
        let value: serde_json::Value = serde_json::from_str(json).expect("JSON");
        assert_eq!((&value["title"], &value["suppressed"]), (&"a title".into(), &4.into()));
        assert_eq!(rest.trim(), "alert|a title|default");
    }

    #[test]
    fn a_program_that_fails_or_hangs_has_not_delivered() {
        let failed =
            run("echo no pager >&2; exit 3", Duration::from_secs(60)).expect_err("failed").to_string();
        assert!(failed.contains("exit status: 3: no pager"), "{failed}");
        let hangs = run("sleep 1000", Duration::from_millis(50)).expect_err("killed").to_string();
        assert!(hangs.contains("was killed"), "{hangs}");
        let missing = execute(
            &["/nowhere/page".to_owned()],
            &event(Kind::Alert, "x"),
            0,
            Duration::from_secs(1),
            &|| false,
        );
        assert!(missing.expect_err("missing").to_string().starts_with("/nowhere/page: "));
    }
}

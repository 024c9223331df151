//! A program of a rollout, in a process group of its own, so that all of it can be ended.

use super::Ended;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use obol_term::output::Failure;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a group may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(10);
/// Poll interval for its end.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A program that runs.
pub(super) struct Running {
    child: Child,
    shown: String,
    began: Instant,
}

/// A command line as a shell would read it, for reports.
pub(super) fn shown(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./-_".contains(c);
    let quoted = |word: &String| match !word.is_empty() && word.chars().all(plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// A line for a shell.
pub(super) fn shell(line: &str) -> Vec<String> {
    ["/bin/sh", "-c", line].map(str::to_owned).to_vec()
}

impl Running {
    /// Starts it. Its output is passed through, or all of it to standard error. It gets no input: a
    /// process group in the background must not read from the terminal.
    pub(super) fn start(words: &[String], to_stderr: bool, env: &[(&str, String)]) -> Result<Self, Failure> {
        let shown = shown(words);
        let (program, arguments) =
            words.split_first().ok_or_else(|| Failure::Refused("there is no command to run".to_owned()))?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).process_group(0);
        command.envs(env.iter().map(|(name, value)| (name, value)));
        if to_stderr {
            command.stdout(io::stderr());
        }
        let child = command.spawn().map_err(|error| Failure::Refused(format!("{program}: {error}")))?;
        Ok(Self { child, shown, began: Instant::now() })
    }

    fn ended(&self, status: ExitStatus) -> Ended {
        Ended {
            command: self.shown.clone(),
            status: Some(status.to_string()),
            succeeded: status.success(),
            took: self.began.elapsed().as_secs_f64(),
        }
    }

    /// How it ended, if it has.
    pub(super) fn poll(&mut self) -> io::Result<Option<Ended>> {
        Ok(self.child.try_wait()?.map(|status| self.ended(status)))
    }

    /// Waits for its end, and ends it after a time.
    pub(super) fn wait(mut self, within: Duration) -> io::Result<Ended> {
        let end = Instant::now() + within;
        while Instant::now() < end {
            if let Some(ended) = self.poll()? {
                return Ok(ended);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        self.end()
    }

    /// Ends it and all of its group: SIGTERM first, and SIGKILL for what is left.
    pub(super) fn end(mut self) -> io::Result<Ended> {
        let group = Pid::from_raw(self.child.id().cast_signed());
        // What has ended already is what is wanted.
        let _ = killpg(group, Signal::SIGTERM);
        let end = Instant::now() + GRACE;
        let mut status = None;
        while Instant::now() < end {
            status = self.child.try_wait()?;
            // The leader may have ended before those that it started.
            let lives = killpg(group, None).is_ok();
            if status.is_some() && !lives {
                break;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        let _ = killpg(group, Signal::SIGKILL);
        let status = match status {
            Some(status) => status,
            None => self.child.wait()?,
        };
        Ok(self.ended(status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_can_be_pasted_into_a_shell() {
        let words = ["kubectl", "rollout", "a b", "it's", "", "$x"].map(str::to_owned);
        let line = shown(&words);
        assert_eq!(line, "kubectl rollout 'a b' 'it'\\''s' '' '$x'");
        let out = Command::new("sh").args(["-c", &format!("printf '%s|' {line}")]).output().expect("sh runs");
        assert_eq!(String::from_utf8_lossy(&out.stdout), "kubectl|rollout|a b|it's||$x|");
    }

    #[test]
    fn all_of_a_group_is_ended_also_what_ignores_sigterm_in_time() {
        let running = Running::start(&shell("sleep 600 & sleep 600"), true, &[]).expect("started");
        let group = Pid::from_raw(running.child.id().cast_signed());
        let ended = running.end().expect("ended");
        assert!(!ended.succeeded, "{ended:?}");
        assert!(killpg(group, None).is_err(), "nothing of it is left");
    }
}

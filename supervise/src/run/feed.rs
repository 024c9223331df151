//! The hook that stays: started once, it reads a line on its standard input for each event that the
//! other hooks are started for. Starting a program takes longer than all the rest of a failover.

use super::call::{Call, names};
use super::program::{Children, Environment, Input, ShimHandle, under_shim};
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

/// A hook that stays, once there was a call.
pub(super) struct Feed {
    words: Vec<OsString>,
    /// How long it may take to read a line, and to end.
    timeout: Duration,
    children: Arc<Children>,
    running: Option<(ShimHandle, UnixStream)>,
}

/// The form of a call:
///
/// ```text
/// view 12 7 redis-7001 redis-7002
/// lost 12 5 it was frozen
/// ```
///
/// The view, the own incarnation, and the applications of the view, oldest first; or why the
/// membership was lost.
fn line(call: &Call, newest: u64) -> String {
    match call {
        Call::View { view, own } => format!("view {} {own} {}\n", view.id, names(view)),
        Call::Lost { why, own } => format!("lost {newest} {own} {why}\n"),
    }
}

impl Feed {
    pub(super) const fn new(words: Vec<OsString>, timeout: Duration, children: Arc<Children>) -> Self {
        Self { words, timeout, children, running: None }
    }

    /// Starts it if it does not run.
    pub(super) fn start(&mut self, environment: &Environment) -> io::Result<&mut UnixStream> {
        if self.running.as_mut().is_some_and(|(hook, _)| hook.has_ended()) {
            self.end();
        }
        let running = match self.running.take() {
            Some(running) => running,
            None => {
                let (own, its) = UnixStream::pair()?;
                own.set_write_timeout(Some(self.timeout))?;
                let mut command = under_shim(&self.words, environment, Input::Command)?;
                command.stdin(Stdio::from(OwnedFd::from(its)));
                (self.children.stay(&mut command)?, own)
            }
        };
        Ok(&mut self.running.insert(running).1)
    }

    /// Sends it the event. One that has ended is restarted first; for one that does not read in
    /// time the event is dropped.
    pub(super) fn send(&mut self, call: &Call, newest: u64, environment: &Environment) -> io::Result<()> {
        self.start(environment)?.write_all(line(call, newest).as_bytes())
    }

    /// Ends it: its standard input does, and if that is not enough it is killed.
    pub(super) fn end(&mut self) {
        if let Some((hook, own)) = self.running.take() {
            drop(own);
            hook.end(&self.children, self.timeout);
        }
    }
}

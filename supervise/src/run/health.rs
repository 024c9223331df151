//! The health command: checks what the existence of the program's process does not show.

use super::membership::Life;
use super::program::{Children, Environment, execute};
use super::{Event, Options};
use obol_fabric::Nanos;
use std::ffi::OsString;
use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

/// A program's health command, and how it is judged.
pub(super) struct Health {
    words: Vec<OsString>,
    every: Duration,
    timeout: Duration,
    failures_max: u32,
    environment: Vec<(&'static str, String)>,
}

impl Health {
    pub(super) fn of(options: &Options, environment: &Environment) -> Option<Self> {
        let health = options.health.as_ref()?;
        Some(Self {
            words: super::program::words(health, options.shell),
            every: options.health_every,
            timeout: options.hook_timeout,
            failures_max: options.health_failures,
            environment: environment.to_vec(),
        })
    }

    /// Executes the command now and then, until the program has ended. Reports its first success,
    /// and that it failed too often before or after that. A program that has never been healthy is
    /// not a member, and has no time limit.
    pub(super) fn start(
        self,
        life: Arc<Life>,
        children: Arc<Children>,
        tx: Sender<Event>,
    ) -> io::Result<JoinHandle<()>> {
        let look = move || {
            let (mut was_healthy, mut failures) = (false, 0);
            loop {
                if self.is_healthy(&children) {
                    failures = 0;
                    if !was_healthy && tx.send(Event::Healthy).is_err() {
                        return;
                    }
                    was_healthy = true;
                } else {
                    failures += 1;
                    let event = if was_healthy { Event::Unhealthy } else { Event::NotYetHealthy };
                    if failures == self.failures_max && tx.send(event).is_err() {
                        return;
                    }
                }
                if life.end_within(Nanos::from_std(self.every)).is_some() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("obol-health".to_owned()).spawn(look)
    }

    /// A command that cannot be executed, or takes too long, does not succeed.
    fn is_healthy(&self, children: &Children) -> bool {
        let status = execute(&self.words, &self.environment, children, self.timeout, Stdio::null());
        matches!(status, Ok(Some(status)) if status.success())
    }
}

//! Hooks: the operator's programs for views and losses. One runs at a time, in the order of events;
//! of views that pile up meanwhile only the newest is reported.

use super::call::{Call, names};
use super::feed::Feed;
use super::journal::{Journal, Message};
use super::program::{Children, Environment, code, execute, words};
use obol_fabric::ViewId;
use obol_membership::View;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// What hooks there are, and how they run.
pub(super) struct Setup {
    pub(super) on_view: Option<OsString>,
    pub(super) on_lost: Option<OsString>,
    /// The hook that stays.
    pub(super) hook_stream: Option<OsString>,
    pub(super) by_shell: bool,
    pub(super) timeout: Duration,
    /// What every hook finds in its environment.
    pub(super) environment: Vec<(&'static str, String)>,
}

impl Setup {
    fn hook(&self, call: &Call) -> Option<&OsStr> {
        match call {
            Call::View { .. } => self.on_view.as_deref(),
            Call::Lost { .. } => self.on_lost.as_deref(),
        }
    }

    /// What a hook finds in its environment.
    fn environment(&self, call: &Call, newest: Option<&View>) -> Vec<(&'static str, String)> {
        let mut environment = self.environment.clone();
        let (own, view) = match call {
            Call::View { view, own } => (*own, Some(&**view)),
            Call::Lost { own, why } => {
                environment.push(("OBOL_LOST", why.clone()));
                (*own, newest)
            }
        };
        environment.push(("OBOL_INCARNATION", own.to_string()));
        if let Some(view) = view {
            environment.push(("OBOL_VIEW", view.id.to_string()));
            environment.push(("OBOL_MEMBERS", names(view)));
        }
        environment
    }
}

#[derive(Default)]
struct Queue {
    calls: VecDeque<Call>,
    /// No more will come.
    closed: bool,
    /// A call is in progress.
    busy: bool,
    /// The newest view that was passed to a hook.
    newest: Option<Arc<View>>,
}

/// Shared by those who call hooks and the thread that runs them.
struct Shared {
    setup: Setup,
    children: Arc<Children>,
    journal: Arc<Journal>,
    queue: Mutex<Queue>,
    more: Condvar,
    /// No call is left.
    idle: Condvar,
}

impl Shared {
    /// The next call and the newest view; waits for one. `None` when no more will come.
    fn next(&self) -> Option<(Call, Option<Arc<View>>)> {
        let mut queue = self.queue.lock();
        loop {
            queue.busy = !queue.calls.is_empty();
            if let Some(call) = queue.calls.pop_front() {
                return Some((call, queue.newest.clone()));
            }
            self.idle.notify_all();
            if queue.closed {
                return None;
            }
            self.more.wait(&mut queue);
        }
    }

    fn run(&self) {
        let Setup { hook_stream, by_shell, timeout, environment, .. } = &self.setup;
        let children = || Arc::clone(&self.children);
        let mut feed =
            hook_stream.as_deref().map(|hook| Feed::new(words(hook, *by_shell), *timeout, children()));
        let log = |outcome: io::Result<()>| {
            if let Err(error) = outcome {
                self.journal.write(&Message::Trouble { text: format!("hook-stream: {error}") });
            }
        };
        if let Some(feed) = &mut feed {
            // Now, so that it is ready when it matters.
            log(feed.start(environment).map(drop));
        }
        while let Some((call, newest)) = self.next() {
            if let Some(feed) = &mut feed {
                log(feed.send(&call, newest.as_ref().map_or(0, |view| view.id.0), environment));
            }
            let Some(hook) = self.setup.hook(&call) else { continue };
            let view = match &call {
                Call::View { view, .. } => Some(view.id),
                Call::Lost { .. } => None,
            };
            let ended = self.execute(hook, &self.setup.environment(&call, newest.as_deref()));
            self.journal.write(&message(call.name(), view, ended));
        }
        if let Some(mut feed) = feed {
            feed.end();
        }
    }

    fn execute(&self, hook: &OsStr, environment: &Environment) -> io::Result<Option<ExitStatus>> {
        execute(
            &words(hook, self.setup.by_shell),
            environment,
            &self.children,
            self.setup.timeout,
            Stdio::inherit(),
        )
    }
}

fn message(hook: &'static str, view: Option<ViewId>, ended: io::Result<Option<ExitStatus>>) -> Message {
    let view = view.map(|view| view.0);
    match ended {
        Ok(Some(status)) => Message::Hook { hook, view, code: Some(code(status)), error: None },
        Ok(None) => Message::Hook {
            hook,
            view,
            code: None,
            error: Some("it took too long and was killed".to_owned()),
        },
        Err(error) => Message::Hook { hook, view, code: None, error: Some(error.to_string()) },
    }
}

/// The hooks of a `run`.
pub(super) struct Hooks {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Hooks {
    pub(super) fn start(setup: Setup, children: Arc<Children>, journal: Arc<Journal>) -> io::Result<Self> {
        let (queue, more, idle) = (Mutex::default(), Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { setup, children, journal, queue, more, idle });
        let runs = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("obol-hooks".to_owned()).spawn(move || runs.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Whether there is a hook for losses.
    pub(super) fn reports_losses(&self) -> bool {
        self.shared.setup.on_lost.is_some()
    }

    pub(super) fn call(&self, call: Call) {
        let mut queue = self.shared.queue.lock();
        if let Call::View { view, .. } = &call {
            queue.newest = Some(Arc::clone(view));
            // A view without a call so far is outdated.
            queue.calls.retain(|waiting| matches!(waiting, Call::Lost { .. }));
        }
        queue.calls.push_back(call);
        self.shared.more.notify_one();
    }

    /// Waits until all that was called is over; no hook takes longer than its timeout.
    pub(super) fn settle(&self) {
        let ended = || self.thread.as_ref().is_none_or(JoinHandle::is_finished);
        let mut queue = self.shared.queue.lock();
        while (queue.busy || !queue.calls.is_empty()) && !ended() {
            self.shared.idle.wait_for(&mut queue, self.shared.setup.timeout);
        }
    }

    /// Lets what is called run, and ends.
    pub(super) fn finish(mut self) {
        self.shared.queue.lock().closed = true;
        self.shared.more.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic has been reported already.
            let _ = thread.join();
        }
    }
}

//! Sends the marks of a rollout to the other hosts of the cluster, on a thread of its own: the gate
//! does not wait for a host that does not answer.

use obol_fabric::Name;
use obol_node::Site;
use obol_observe::annotations::{Forwarded, Mark, RolloutStep};
use obol_term::output::Failure;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

/// The thread, and the way to it.
pub(super) struct Forwarder {
    marks: Sender<Mark>,
    thread: JoinHandle<Option<String>>,
}

impl Forwarder {
    /// Starts the thread.
    pub(super) fn start(root: &Path, cluster: Name) -> Result<Self, Failure> {
        let site = Site::open(root, cluster).map_err(Failure::refused)?;
        let (marks, received) = mpsc::channel();
        let thread = thread::Builder::new().name("obol-marks".to_owned());
        let thread = thread.spawn(move || forward(&site, &received)).map_err(Failure::failed)?;
        Ok(Self { marks, thread })
    }

    /// Sends a mark after those before it.
    pub(super) fn send(&self, mark: Mark) {
        // Fails only if the thread has panicked, which `end` reports.
        let _ = self.marks.send(mark);
    }

    /// Waits until all marks are sent. Returns whom the newest begin or end has not reached, and why.
    pub(super) fn end(self) -> Option<String> {
        let Self { marks, thread } = self;
        drop(marks);
        thread.join().unwrap_or_else(|_| Some("the thread that sends them has panicked".to_owned()))
    }
}

fn forward(site: &Site, received: &Receiver<Mark>) -> Option<String> {
    let mut missed = None;
    while let Ok(first) = received.recv() {
        for mark in newest([first].into_iter().chain(received.try_iter()).collect()) {
            if let Forwarded::Not(why) = mark.forward(site) {
                tracing::warn!(target: "rollout", "the annotation is on this host, and not on all others: {why}");
                if !is_passing(&mark) {
                    missed = Some(why);
                }
            }
        }
    }
    missed
}

/// Whether a later mark of the rollout replaces this one on consoles.
fn is_passing(mark: &Mark) -> bool {
    mark.rollout.as_ref().is_some_and(|rollout| rollout.step == RolloutStep::Goes)
}

/// Leaves out the marks that are replaced by a later one already.
fn newest(marks: Vec<Mark>) -> Vec<Mark> {
    let last = marks.len().saturating_sub(1);
    let kept = marks.into_iter().enumerate().filter(|(n, mark)| *n == last || !is_passing(mark));
    kept.map(|(_, mark)| mark).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_fabric::Instant;
    use obol_observe::annotations::RolloutMark;

    #[test]
    fn marks_that_a_later_one_replaces_are_not_sent_and_begin_and_end_always() {
        use RolloutStep::{Begins, Goes, Over};
        let mark = |at: u64, step| {
            let [name, phase] = ["deploy", "running"].map(str::to_owned);
            Mark::rollout(Instant(at), RolloutMark { name, phase, compared: vec![], wrong: vec![], step })
        };
        let sent = |steps: &[RolloutStep]| {
            let marks = (0..).zip(steps).map(|(at, step)| mark(at, *step)).collect();
            newest(marks).into_iter().map(|mark| mark.at).collect::<Vec<_>>()
        };
        assert_eq!(sent(&[Begins, Goes, Goes, Over]), [0, 3]);
        assert_eq!(sent(&[Begins, Goes, Goes]), [0, 2]);
        assert_eq!(sent(&[Goes]), [0]);
    }
}

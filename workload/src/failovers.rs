//! Failovers as a client sees them, beside those of the membership for the very same kills.

use crate::process::SERVE_TIMEOUT;
use obol_fabric::host::clock;
use obol_fabric::{Instant, Name, ViewId};
use obol_membership::recorder::EventKind;
use obol_observe::Observer;
use obol_observe::stats::Distribution;
use obol_term::output::Failure;
use std::collections::BTreeMap;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

/// What a client saw of a failover.
pub struct Gap {
    /// Its last answer of the one that was killed, and its first of the next one.
    pub last: Instant,
    pub first: Instant,
    /// The view that named the next one.
    pub view: ViewId,
}

/// When each process first reported that a view was active.
#[derive(Debug, Default)]
pub struct Actives(BTreeMap<(ViewId, Name), Instant>);

impl Actives {
    /// Handles the messages since the last call.
    pub fn hear(&mut self, observer: &mut Observer) {
        for seen in observer.events().iter().filter(|seen| seen.event.record.kind == EventKind::Active) {
            self.0.entry((ViewId(seen.event.record.a), seen.process)).or_insert(seen.event.at);
        }
    }

    /// Whether any process has reported this view or a later one.
    pub fn any(&self, view: ViewId) -> bool {
        self.0.range((view, Name::default())..).next().is_some()
    }

    /// When the last process did, of this view or the next that came to be active: two deaths may
    /// be two views at once. Reports of it and of earlier ones are dropped.
    pub fn take_last(&mut self, view: ViewId) -> Option<Instant> {
        let (first, _) = *self.0.range((view, Name::default())..).next()?.0;
        let later = self.0.split_off(&(ViewId(first.0.saturating_add(1)), Name::default()));
        let until = std::mem::replace(&mut self.0, later);
        until.range((first, Name::default())..).map(|(_, at)| *at).max()
    }
}

/// The processes that are killed.
pub trait Victims {
    /// Waits until the one that serves may be killed; returns its place.
    fn redundant(&mut self) -> Result<usize, Failure>;
    fn kill(&mut self, place: usize) -> Result<(), Failure>;
    /// Brings back the one that was killed, after the failover.
    fn restore(&mut self, place: usize) -> Result<(), Failure>;
}

/// What the failovers took.
pub struct Failovers {
    /// From a client's last answer to its first of the next one.
    pub client: Distribution,
    /// From the kill to the last survivor's `active`.
    pub members: Distribution,
}

/// Kills `count` victims, each after a pause in which all members report the failover before. `by_views`
/// if the next one serves only in a view without the one before: otherwise a client may have its answer
/// before there is one.
pub fn measure(
    victims: &mut impl Victims,
    observer: &mut Observer,
    gaps: &Receiver<Gap>,
    count: u32,
    pause: Duration,
    by_views: bool,
) -> Result<Failovers, Failure> {
    let next = || {
        let gap = gaps.recv_timeout(SERVE_TIMEOUT);
        gap.map_err(|_| Failure::Failed(format!("the client had no answer within {SERVE_TIMEOUT:?}")))
    };
    // It reports its first answer, too.
    next()?;
    let mut all = Failovers { client: Distribution::new(), members: Distribution::new() };
    let (mut actives, mut last) = (Actives::default(), None::<(Instant, ViewId)>);
    for n in 0..=count {
        let place = victims.redundant()?;
        thread::sleep(pause);
        actives.hear(observer);
        if let Some((killed, view)) = last.take()
            && let Some(active) = actives.take_last(view)
        {
            all.members.add(active.since(killed));
        }
        if n == count {
            break;
        }
        // What came before is not news.
        while gaps.try_recv().is_ok() {}
        let before = if by_views { None } else { Some(newest(observer)?) };
        let killed = clock::now();
        victims.kill(place)?;
        // One that was reported late is of before.
        let gap = loop {
            let gap = next()?;
            if gap.first > killed {
                break gap;
            }
        };
        victims.restore(place)?;
        all.client.add(gap.first.since(gap.last));
        last = Some((killed, before.map_or(gap.view, |view| ViewId(view.0.saturating_add(1)))));
    }
    Ok(all)
}

fn newest(observer: &mut Observer) -> Result<ViewId, Failure> {
    let view = observer.snapshot().view.as_ref().map(|view| view.id);
    view.ok_or_else(|| Failure::Failed("no process knows a view".to_owned()))
}

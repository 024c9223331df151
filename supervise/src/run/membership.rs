//! The program's membership, which `run` holds for it: one thread represents the program and ends
//! its membership with it, another reports active views.

use crate::daemons::{START_TIMEOUT, leave, set_watched_thread_priority};
use obol_agent::{AttachError, Attached, OwnView};
use obol_fabric::host::{Held, Presence, Process, clock};
use obol_fabric::{Incarnation, Name, Nanos};
use obol_membership::View;
use obol_node::ClusterLocation;
use obol_node::Site;
use obol_observe::namesakes::Namesakes;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How often the end of the program's membership is looked for while no view changes.
const POLL_INTERVAL: Nanos = Nanos::from_millis(50);
/// How often a decided view is checked for being active: no wakeup is sent when a lease begins.
const ACTIVE_EVERY: Nanos = Nanos::from_micros(200);
/// The pause before a membership that could not be had is tried for again, and after how long that
/// is worth a remark.
const AGAIN_AFTER: Nanos = Nanos::from_millis(20);
const TROUBLE_AFTER: Nanos = Nanos::from_secs(1);

/// What becomes of the membership.
pub(super) enum MembershipEvent {
    /// The program is this member.
    Member(Incarnation),
    /// A view that the program is in is active.
    Active(Arc<View>, Incarnation),
    /// The program is not a member any more, and may run on.
    Lost(&'static str, Incarnation),
    /// It left, after its program had ended.
    Left,
    /// It cannot become a member: a live process of another host has its name.
    NameTaken(String),
    /// It cannot become a member now, and could not for a while; it is tried again.
    Trouble(String),
}

/// How the membership of a program ends of which nothing runs any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// As its death.
    Dead,
    /// As it wished.
    Leaves,
}

/// One life of the program.
pub(super) struct Life {
    /// It is opened for each seat: a cluster that went down and came up again has another memory.
    location: ClusterLocation,
    node: Name,
    name: Name,
    /// The program itself; `None` if it had ended before it could be held.
    program: Option<Held>,
    /// Set once it is not to join any more. An existing membership continues.
    joins_no_more: AtomicBool,
    /// Set once a membership was lost, until it is known that the program is not about to be
    /// killed.
    is_in_doubt: AtomicBool,
    /// Set when nothing of the program runs any more.
    end: Mutex<Option<End>>,
    ended: Condvar,
}

impl Life {
    pub(super) fn new(location: ClusterLocation, node: Name, name: Name, program: Process) -> Self {
        let (joins_no_more, is_in_doubt) = (AtomicBool::new(false), AtomicBool::new(false));
        let (end, ended) = (Mutex::default(), Condvar::new());
        let program = program.hold().ok();
        Self { location, node, name, program, joins_no_more, is_in_doubt, end, ended }
    }

    /// Passes a signal on. A program that has ended needs none.
    pub(super) fn pass(&self, signal: i32) {
        if let Some(program) = &self.program {
            let _ = program.signal(signal);
        }
    }

    /// Has it join no more.
    pub(super) fn stop_joining(&self) {
        self.joins_no_more.store(true, Ordering::Relaxed);
    }

    /// The program lives after its membership was lost: it may join again.
    pub(super) fn lives(&self) {
        self.is_in_doubt.store(false, Ordering::Relaxed);
    }

    /// Nothing of the program runs any more, and its membership is to end.
    pub(super) fn over(&self, end: End) {
        self.stop_joining();
        self.end.lock().get_or_insert(end);
        self.ended.notify_all();
    }

    /// Whether no process of the program is left; waits for that up to a timeout.
    pub(super) fn end_within(&self, timeout: Nanos) -> Option<End> {
        let mut end = self.end.lock();
        self.ended.wait_while_for(&mut end, |end| end.is_none(), timeout.to_std());
        *end
    }

    /// Whether the program should be a member: it lives, and was not withdrawn.
    fn is_wanted(&self) -> bool {
        let lives = self.program.as_ref().is_some_and(|program| !program.has_ended());
        lives && !self.joins_no_more.load(Ordering::Relaxed)
    }

    fn is_in_doubt(&self) -> bool {
        self.is_in_doubt.load(Ordering::Relaxed)
    }

    /// Stands for the program, on this thread, until its membership has ended or it is to have
    /// none.
    pub(super) fn run(&self, report: &(impl Fn(MembershipEvent) + Sync)) {
        let (mut reported, mut since) = (String::new(), None);
        while self.is_wanted() {
            if !self.is_in_doubt() {
                match self.run_once(report) {
                    Ok(()) => (reported, since) = (String::new(), None),
                    // An agent that died is soon started again.
                    Err(text) => {
                        let since = *since.get_or_insert_with(clock::now);
                        if clock::now().since(since) >= TROUBLE_AFTER && reported != text {
                            report(MembershipEvent::Trouble(text.clone()));
                            reported = text;
                        }
                    }
                }
            }
            // Whether it has ended is asked for again at once.
            let _ = self.end_within(AGAIN_AFTER);
        }
    }

    /// Takes a seat and keeps it, at this agent.
    fn run_once(&self, report: &(impl Fn(MembershipEvent) + Sync)) -> Result<(), String> {
        let site =
            Site::open(&self.location.root, self.location.cluster).map_err(|error| error.to_string())?;
        let beat_every = site.deployment.profile.timing.heartbeat_every;
        set_watched_thread_priority(&site);
        let (app, mut presence) =
            Attached::open_present(&site, self.node, self.name).map_err(|error| error.to_string())?;
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| self.follow(&app, &done, Namesakes::of(&site, self.name), report));
            let kept = self.keep(&app, &mut presence, beat_every, report);
            // Marks this seat as dead before anything else is waited for.
            drop(presence);
            done.store(true, Ordering::Relaxed);
            kept.map_err(|error| error.to_string())
        })
    }

    /// Keeps the program a member until nothing of it runs any more, or it has lost its agent.
    fn keep(
        &self,
        app: &Attached,
        presence: &mut Presence,
        beat_every: Nanos,
        report: &impl Fn(MembershipEvent),
    ) -> Result<(), AttachError> {
        while self.is_wanted() {
            if self.is_in_doubt() {
                presence.beat();
                if self.end_within(beat_every).is_some() || !app.agent_lives() {
                    return Ok(());
                }
                continue;
            }
            let own = app.join_present(presence, START_TIMEOUT, || self.is_wanted())?;
            if let Some(own) = own {
                report(MembershipEvent::Member(own));
            }
            let why = loop {
                presence.beat();
                match self.end_within(beat_every) {
                    Some(End::Dead) => return Ok(()),
                    Some(End::Leaves) => {
                        leave(app, presence, beat_every);
                        report(MembershipEvent::Left);
                        return Ok(());
                    }
                    None => {}
                }
                if !app.agent_lives() {
                    break "its agent ended";
                }
                if app.is_excluded() {
                    break "it was excluded";
                }
            };
            if let Some(own) = own {
                self.is_in_doubt.store(true, Ordering::Relaxed);
                report(MembershipEvent::Lost(why, own));
            }
            if !app.agent_lives() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reports each view of the program as it becomes active, and that it is refused for its name.
    fn follow(
        &self,
        app: &Attached,
        done: &AtomicBool,
        mut namesakes: Namesakes,
        report: &impl Fn(MembershipEvent),
    ) {
        let mut views = app.views();
        let mut waiting: Option<OwnView> = None;
        while !done.load(Ordering::Relaxed) {
            let wait = if waiting.is_some() { ACTIVE_EVERY } else { POLL_INTERVAL };
            match views.next(wait) {
                Ok(Some(view)) => waiting = Some(view).filter(OwnView::is_mine),
                Ok(None) => {}
                // Its agent died, which the thread that stands for the program sees, too.
                Err(_) => break,
            }
            if let Some(view) = waiting.take_if(|view| app.active(view)) {
                report(MembershipEvent::Active(Arc::clone(view.shared()), app.incarnation()));
            }
            if app.is_name_taken()
                && let Some(refusal) = namesakes.refusal()
            {
                report(MembershipEvent::NameTaken(refusal));
            }
        }
    }
}

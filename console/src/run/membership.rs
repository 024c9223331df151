//! The program's membership, which `run` holds for it: one thread stands for the program and ends its seat with it, another
//! tells of the views that are active.

use crate::daemons::{START_TIMEOUT, attach, leave};
use obol_agent::{AttachError, Attached, OwnView};
use obol_fabric::shm::{Held, Presence};
use obol_fabric::{Incarnation, Name, Nanos};
use obol_membership::View;
use obol_profiles::Site;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How often the end of the program's membership is looked for while no view changes.
const LOOK_EVERY: Nanos = Nanos::from_millis(50);
/// How often a view that is decided is asked whether it is active: nobody rings when a lease begins.
const ACTIVE_EVERY: Nanos = Nanos::from_micros(200);
/// The pause before a membership that could not be had is tried for again.
const AGAIN_AFTER: Nanos = Nanos::from_millis(200);

/// What becomes of the membership.
pub(super) enum Standing {
    /// The program is this member.
    Member(Incarnation),
    /// A view that the program is in is active.
    Active(Arc<View>, Incarnation),
    /// The program is no member any more, and runs on.
    Lost(&'static str, Incarnation),
    /// It left, as it was asked.
    Left,
    /// It can not become a member now; it is tried again.
    Trouble(AttachError),
}

/// One life of the program.
pub(super) struct Life {
    pub(super) site: Arc<Site>,
    pub(super) node: Name,
    pub(super) name: Name,
    pub(super) program: Held,
    /// Set to make it leave.
    pub(super) leaving: AtomicBool,
}

impl Life {
    fn is_wanted(&self) -> bool {
        !self.leaving.load(Ordering::Relaxed) && !self.program.has_ended()
    }

    /// Stands for the program, on this thread, until it has ended or left.
    pub(super) fn stand(&self, tell: &(impl Fn(Standing) + Sync)) {
        while self.is_wanted() {
            if let Err(error) = self.sit(tell) {
                tell(Standing::Trouble(error));
                // Whether it has ended is asked for again at once.
                let _ = self.program.wait_ended(AGAIN_AFTER);
            }
        }
        if self.leaving.load(Ordering::Relaxed) && !self.program.has_ended() {
            tell(Standing::Left);
        }
    }

    /// Takes a seat and keeps it, at this agent.
    fn sit(&self, tell: &(impl Fn(Standing) + Sync)) -> Result<(), AttachError> {
        let (app, mut presence) = attach(&self.site, self.node, self.name, &self.leaving)?;
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| self.follow(&app, &done, tell));
            let kept = self.keep(&app, &mut presence, tell);
            // Tells everybody that this seat is dead, before anything else is waited for.
            drop(presence);
            done.store(true, Ordering::Relaxed);
            kept
        })
    }

    /// Keeps the program a member until it has ended, left, or lost its agent.
    fn keep(
        &self,
        app: &Attached,
        presence: &mut Presence,
        tell: &impl Fn(Standing),
    ) -> Result<(), AttachError> {
        let beat_every = self.site.deployment.profile.timing.heartbeat_every;
        while self.is_wanted() {
            let Some(own) = app.join_present(presence, START_TIMEOUT, || self.is_wanted())? else {
                if !self.program.has_ended() {
                    leave(app, presence, beat_every);
                }
                break;
            };
            tell(Standing::Member(own));
            let why = loop {
                presence.beat();
                if self.program.wait_ended(beat_every) {
                    return Ok(());
                }
                if self.leaving.load(Ordering::Relaxed) {
                    leave(app, presence, beat_every);
                    return Ok(());
                }
                if !app.agent_lives() {
                    tell(Standing::Lost("its agent died", own));
                    return Ok(());
                }
                if app.is_excluded() {
                    break "it was excluded";
                }
            };
            tell(Standing::Lost(why, own));
        }
        Ok(())
    }

    /// Tells each view of the program's as it becomes active.
    fn follow(&self, app: &Attached, done: &AtomicBool, tell: &impl Fn(Standing)) {
        let mut views = app.views();
        let mut waiting: Option<OwnView> = None;
        while !done.load(Ordering::Relaxed) && !self.program.has_ended() {
            let wait = if waiting.is_some() { ACTIVE_EVERY } else { LOOK_EVERY };
            if let Some(view) = views.next(wait) {
                waiting = Some(view).filter(OwnView::is_mine);
            }
            if let Some(view) = waiting.take_if(|view| app.active(view)) {
                tell(Standing::Active(Arc::clone(view.shared()), app.incarnation()));
            }
        }
    }
}

//! Changes as streams.

use crate::app::App;
use crate::status::{Refusal, Status, lent, place, reported};
use crate::view::{self, Kind, Reason, View};
use obol_agent as agent;
use obol_fabric::Nanos;
use std::ffi::c_char;

/// A program's views in order. One thread at a time.
pub struct Views(agent::Views);

/// The failures of other members. One thread at a time.
pub struct Failures(agent::Failures);

/// A member that was removed because it failed.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Failure {
    /// The failed member.
    pub incarnation: u64,
    /// The first view without it.
    pub view: u64,
    /// The accuser; 0 if the view that names it was superseded before the program polled.
    pub accuser: u64,
    /// Why it was reported.
    pub reason: Reason,
    /// The member's kind; `OBOL_KIND_UNKNOWN` if it joined and failed between two polls.
    pub kind: Kind,
    /// The member's name; empty if its kind is unknown.
    pub name: [c_char; 24],
}

impl From<agent::Failure> for Failure {
    fn from(failure: agent::Failure) -> Self {
        Self {
            incarnation: failure.incarnation.0,
            view: failure.view.0,
            accuser: failure.accused.map_or(0, |(accuser, _)| accuser.0),
            reason: failure.accused.map_or(Reason::Unknown, |(_, reason)| reason.into()),
            kind: failure.member.map_or(Kind::Unknown, |member| member.kind.into()),
            name: view::name(failure.member.map(|member| member.name).unwrap_or_default()),
        }
    }
}

/// Opens the stream of a program's views, beginning with the newest. Views superseded before the
/// program polls are skipped. Null for a null pointer. It may outlive the program's handle.
///
/// # Safety
/// `app` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_views_open(app: *const App) -> *mut Views {
    // SAFETY: the caller's promise.
    let views = unsafe { app.as_ref() }.map(|app| Box::into_raw(Box::new(Views(app.views()))));
    views.unwrap_or(std::ptr::null_mut())
}

/// Stores the next view in `*view`, to be freed by the caller. Waits for at most `timeout_ns`
/// nanoseconds. `OBOL_STATUS_AGENT_DIED` if there will be no more.
///
/// # Safety
/// `views` is null or a live stream that no other thread uses during the call; `view` is null or
/// points to memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_views_next(views: *mut Views, timeout_ns: u64, view: *mut *mut View) -> Status {
    reported(|| {
        // SAFETY: the caller's promise.
        let (views, out) = unsafe { (lent("views", views)?, place("view", view)?) };
        let waited = Nanos(timeout_ns);
        let next = views.0.next(waited)?.ok_or_else(|| Refusal::timeout("no other view", waited))?;
        out.write(Box::into_raw(Box::new(View(next))));
        Ok(())
    })
}

/// Closes a stream of views. A null pointer is ignored.
///
/// # Safety
/// `views` is null or a stream that is no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_views_close(views: *mut Views) {
    if !views.is_null() {
        // SAFETY: every stream that C has was made by `Box::into_raw`, and the caller gives it
        // back.
        drop(unsafe { Box::from_raw(views) });
    }
}

/// Opens the stream of the failures of other members from now on, each once. Null for a null
/// pointer. It may outlive the program's handle.
///
/// # Safety
/// `app` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_failures_open(app: *const App) -> *mut Failures {
    // SAFETY: the caller's promise.
    let failures = unsafe { app.as_ref() }.map(|app| Box::into_raw(Box::new(Failures(app.failures()))));
    failures.unwrap_or(std::ptr::null_mut())
}

/// Stores the next failure in `*failure`. Waits for at most `timeout_ns` nanoseconds.
/// `OBOL_STATUS_AGENT_DIED` if there will be no more.
///
/// # Safety
/// `failures` is null or a live stream that no other thread uses during the call; `failure` is null
/// or points to memory for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_failures_next(
    failures: *mut Failures,
    timeout_ns: u64,
    failure: *mut Failure,
) -> Status {
    reported(|| {
        // SAFETY: the caller's promise.
        let (failures, out) = unsafe { (lent("failures", failures)?, place("failure", failure)?) };
        let waited = Nanos(timeout_ns);
        let next = failures.0.next(waited)?.ok_or_else(|| Refusal::timeout("no failure", waited))?;
        out.write(next.into());
        Ok(())
    })
}

/// Closes a stream of failures. A null pointer is ignored.
///
/// # Safety
/// `failures` is null or a stream that is no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_failures_close(failures: *mut Failures) {
    if !failures.is_null() {
        // SAFETY: every stream that C has was made by `Box::into_raw`, and the caller gives it
        // back.
        drop(unsafe { Box::from_raw(failures) });
    }
}

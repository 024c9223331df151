//! Views: the members of the cluster.

use obol_agent::OwnView;
use obol_fabric::Name;
use obol_fabric::types::NAME_BYTES_MAX;
use obol_membership as membership;
use std::ffi::c_char;
use std::mem::MaybeUninit;

/// A view, as the program that read it sees it: the members of the cluster, and whether the program
/// is one. It is immutable and may be shared between threads.
pub struct View(pub(crate) OwnView);

/// What a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Kind {
    /// Unknown: the member is no longer recorded.
    Unknown = 0,
    /// Proposer and acceptor.
    Coordinator = 1,
    /// Holds the lease of its node's applications.
    Agent = 2,
    /// An application.
    App = 3,
    /// Renews the leases of others.
    LeaseCache = 4,
}

impl From<membership::Kind> for Kind {
    fn from(kind: membership::Kind) -> Self {
        match kind {
            membership::Kind::Coordinator => Self::Coordinator,
            membership::Kind::Agent => Self::Agent,
            membership::Kind::App => Self::App,
            membership::Kind::LeaseCache => Self::LeaseCache,
        }
    }
}

/// Why a member was reported as failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Reason {
    /// Unknown: the view that names it was superseded before the program polled.
    Unknown = 0,
    /// The kernel reported the end of the process.
    Deadbeat = 1,
    /// Its heartbeat stood still.
    Heartbeat = 2,
    /// Its host did not answer.
    Timeout = 3,
    /// It was removed with its agent.
    Host = 4,
    /// A later process took its place.
    Replaced = 5,
    /// Its process lives, but it broke its promise of progress.
    Progress = 6,
}

impl From<membership::Reason> for Reason {
    fn from(reason: membership::Reason) -> Self {
        match reason {
            membership::Reason::Deadbeat => Self::Deadbeat,
            membership::Reason::Heartbeat => Self::Heartbeat,
            membership::Reason::Timeout => Self::Timeout,
            membership::Reason::Host => Self::Host,
            membership::Reason::Replaced => Self::Replaced,
            membership::Reason::Progress => Self::Progress,
        }
    }
}

/// One life of one process in the cluster.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Member {
    /// Its identity; never used again for another.
    pub incarnation: u64,
    /// The agent whose lease it acts under; 0 if it has its own.
    pub host: u64,
    /// What it is.
    pub kind: Kind,
    /// What operators call it; ends with a zero byte.
    pub name: [c_char; 24],
}

const _: () = assert!(NAME_BYTES_MAX < 24);

/// A name as a C string.
pub(crate) fn name(name: Name) -> [c_char; 24] {
    let mut text = [0; 24];
    for (to, from) in text.iter_mut().zip(name.as_str().bytes()) {
        *to = from as c_char;
    }
    text
}

impl From<&membership::view::Member> for Member {
    fn from(member: &membership::view::Member) -> Self {
        Self {
            incarnation: member.incarnation.0,
            host: member.host.0,
            kind: member.kind.into(),
            name: name(member.name),
        }
    }
}

/// The view's number: 1 more than its predecessor's. 0 for a null pointer.
///
/// # Safety
/// `view` is null or a live view.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_view_id(view: *const View) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { view.as_ref() }.map_or(0, |view| view.0.id.0)
}

/// Whether the program that read this view is a member of it. Only then can it be active for that
/// program.
///
/// # Safety
/// `view` is null or a live view.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_view_is_mine(view: *const View) -> bool {
    // SAFETY: the caller's promise.
    unsafe { view.as_ref() }.is_some_and(|view| view.0.is_mine())
}

/// The number of members of the view.
///
/// # Safety
/// `view` is null or a live view.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_view_members(view: *const View) -> usize {
    // SAFETY: the caller's promise.
    unsafe { view.as_ref() }.map_or(0, |view| view.0.members.len())
}

/// Copies the member at `index`, counted from 0 in the order of incarnations, to `member`. False if
/// there is none.
///
/// # Safety
/// `view` is null or a live view; `member` is null or points to memory for one that no other thread
/// uses during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_view_member(view: *const View, index: usize, member: *mut Member) -> bool {
    // SAFETY: the caller's promise.
    let (view, place) = unsafe { (view.as_ref(), member.cast::<MaybeUninit<Member>>().as_mut()) };
    let found = view.and_then(|view| view.0.members.get(index));
    match (found, place) {
        (Some(found), Some(place)) => {
            place.write(found.into());
            true
        }
        _ => false,
    }
}

/// Another handle to the same view, to be freed separately. Null for a null pointer.
///
/// # Safety
/// `view` is null or a live view.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_view_clone(view: *const View) -> *mut View {
    // SAFETY: the caller's promise.
    let copy = unsafe { view.as_ref() }.map(|view| Box::into_raw(Box::new(View(view.0.clone()))));
    copy.unwrap_or(std::ptr::null_mut())
}

/// Frees a view. A null pointer is ignored.
///
/// # Safety
/// `view` is null or a view that is no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_view_free(view: *mut View) {
    if !view.is_null() {
        // SAFETY: every view that C has was made by `Box::into_raw`, and the caller gives it back.
        drop(unsafe { Box::from_raw(view) });
    }
}

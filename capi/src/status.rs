//! The result of a call, and the text of its error.

use obol_agent::{AttachError, Inactive, Lost, NotConfirmed};
use obol_fabric::host::HostError;
use obol_fabric::{Name, Nanos};
use obol_node::SiteError;
use obol_node::endpoint::EndpointError;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::fmt::Display;
use std::mem::MaybeUninit;

/// The result of a call. After anything but `OBOL_STATUS_OK`, `obol_last_error` returns the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Status {
    /// Success.
    Ok = 0,
    /// An argument is null, not UTF-8, or not a valid name.
    Argument = 1,
    /// The cluster cannot be used: it does not run here, has no live agent of that name, keeps the
    /// name of the program for another process, or has no seat left.
    Cluster = 2,
    /// The agent of this node died, or the program's own core ended: call `obol_attach_again`, or
    /// close the handle and attach later.
    AgentDied = 3,
    /// The operation did not complete in the given time.
    Timeout = 4,
    /// The handle belongs to the parent of this forked process, which alone is the member: attach,
    /// or embed, after the fork. `obol_close` may be called, and does not affect the parent.
    Forked = 5,
    /// The view is not active now: there is no lease on it, or this program is not a member of it.
    /// Take the newest view.
    Inactive = 6,
    /// Whether the command took effect is unknown: read the state of the service.
    Unknown = 7,
}

/// Why a call failed.
pub(crate) struct Refusal {
    pub(crate) status: Status,
    text: String,
}

impl Refusal {
    pub(crate) fn new(status: Status, text: impl Display) -> Self {
        Self { status, text: text.to_string() }
    }

    pub(crate) fn argument(text: impl Display) -> Self {
        Self::new(Status::Argument, text)
    }

    #[cfg(test)]
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn timeout(what: &str, waited: Nanos) -> Self {
        Self::new(Status::Timeout, format_args!("{what} within {waited}"))
    }
}

impl From<SiteError> for Refusal {
    fn from(error: SiteError) -> Self {
        Self::new(Status::Cluster, error)
    }
}

impl From<EndpointError> for Refusal {
    fn from(error: EndpointError) -> Self {
        Self::new(Status::Cluster, error)
    }
}

impl From<Lost> for Refusal {
    fn from(lost: Lost) -> Self {
        let status = match lost {
            Lost::AgentDied(_) | Lost::CoreEnded(_) => Status::AgentDied,
            Lost::Forked => Status::Forked,
        };
        Self::new(status, lost)
    }
}

impl From<Inactive> for Refusal {
    fn from(inactive: Inactive) -> Self {
        match inactive {
            Inactive::Lost(lost) => Self::from(lost),
            Inactive::NotMine | Inactive::NoLease => Self::new(Status::Inactive, inactive),
        }
    }
}

impl From<AttachError> for Refusal {
    fn from(error: AttachError) -> Self {
        let status = match &error {
            AttachError::Lost(lost) => return Self::from(*lost),
            AttachError::Fabric(HostError::Forked { .. }) => Status::Forked,
            AttachError::Fabric(_) | AttachError::Release { .. } => Status::Cluster,
            AttachError::NotAdmitted { .. } | AttachError::NoSuccessor { .. } => Status::Timeout,
        };
        Self::new(status, error)
    }
}

impl From<NotConfirmed> for Refusal {
    fn from(error: NotConfirmed) -> Self {
        match error {
            NotConfirmed::Lost(lost) => Self::from(lost),
            NotConfirmed::NotMine(_) | NotConfirmed::Superseded(_) => Self::new(Status::Inactive, error),
            NotConfirmed::Timeout { .. } => Self::new(Status::Timeout, error),
        }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs a call and keeps the text of its error for `obol_last_error`.
pub(crate) fn reported(call: impl FnOnce() -> Result<(), Refusal>) -> Status {
    match call() {
        Ok(()) => Status::Ok,
        Err(refusal) => {
            // C cannot represent a text with an inner zero byte; no error has one.
            let text = CString::new(refusal.text).unwrap_or_default();
            LAST.with(|last| last.replace(text));
            refusal.status
        }
    }
}

/// The error message of the last failed call of this thread. Empty if none has failed.
///
/// The text is valid until the next call of this thread fails.
#[unsafe(no_mangle)]
pub extern "C" fn obol_last_error() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}

/// The version of this library, such as `0.1.0`. The text is valid until the program ends.
///
/// Functions are added and never removed, so a program that was made for one version runs with all later ones
/// of the same major version.
#[unsafe(no_mangle)]
pub extern "C" fn obol_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// A text argument.
///
/// # Safety
/// `text` is null or points to a string that ends with a zero byte and is not changed during the
/// call.
pub(crate) unsafe fn text<'a>(what: &str, text: *const c_char) -> Result<&'a str, Refusal> {
    if text.is_null() {
        return Err(Refusal::argument(format_args!("{what} is null")));
    }
    // SAFETY: not null, and the caller promises the rest.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|error| Refusal::argument(format_args!("{what}: {error}")))
}

/// A name argument.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn name(what: &str, pointer: *const c_char) -> Result<Name, Refusal> {
    // SAFETY: the caller's promise.
    let text = unsafe { text(what, pointer) }?;
    Name::new(text).map_err(|error| Refusal::argument(format_args!("{what} {text:?}: {error}")))
}

/// A pointer argument.
///
/// # Safety
/// `pointer` is null or points to a live value that no thread changes during the call.
pub(crate) unsafe fn given<'a, T>(what: &str, pointer: *const T) -> Result<&'a T, Refusal> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| Refusal::argument(format_args!("{what} is null")))
}

/// A mutable pointer argument.
///
/// # Safety
/// `pointer` is null or points to a live value that no other thread uses during the call.
pub(crate) unsafe fn lent<'a, T>(what: &str, pointer: *mut T) -> Result<&'a mut T, Refusal> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_mut() }.ok_or_else(|| Refusal::argument(format_args!("{what} is null")))
}

/// A pointer to uninitialised memory for a result.
///
/// # Safety
/// `pointer` is null or points to memory for a `T` that no other thread uses during the call.
pub(crate) unsafe fn place<'a, T>(what: &str, pointer: *mut T) -> Result<&'a mut MaybeUninit<T>, Refusal> {
    // SAFETY: the caller's promise, and any memory is a `MaybeUninit`.
    unsafe { lent(what, pointer.cast::<MaybeUninit<T>>()) }
}

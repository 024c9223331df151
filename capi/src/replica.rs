//! A program's own deterministic service, replicated.

use crate::app::site;
use crate::service::{Foreign, Parts, Service};
use crate::status::{Refusal, Status, given, name, place, reported};
use obol_fabric::{Name, Nanos};
use obol_replica::{CallError, ReplicaError, Settings, Store};
use obol_smr::{Active, BeginError, LoadError, PAYLOAD_BYTES_MAX, REPLICA_PREFIX, VOTERS_MAX, Views};
use std::ffi::c_char;
use std::sync::Arc;

/// Bytes of the longest command, query or reply.
pub const OBOL_REPLICA_BYTES_MAX: usize = 1024;
const _: () = assert!(OBOL_REPLICA_BYTES_MAX == PAYLOAD_BYTES_MAX);

/// How often a replica that shares its core looks for requests.
const POLL_EVERY: Nanos = Nanos::from_micros(20);

impl From<ReplicaError> for Refusal {
    fn from(error: ReplicaError) -> Self {
        let status = if matches!(error, ReplicaError::Name(_)) { Status::Argument } else { Status::Cluster };
        Self::new(status, error)
    }
}

impl From<CallError> for Refusal {
    fn from(error: CallError) -> Self {
        let status = match error {
            CallError::Begin(_) | CallError::Nested => Status::Argument,
            CallError::Timeout(_) => Status::Timeout,
            CallError::Unknown(_) => Status::Unknown,
            CallError::Ended(_) => Status::Cluster,
            CallError::Forked => Status::Forked,
        };
        Self::new(status, error)
    }
}

/// A replica of a service. Any thread may use it, several at once; `obol_replica_close` ends it.
pub struct Replica(Store);

/// Starts a replica of `service` on threads of its own, and stores the handle in `*replica`. Three
/// programs that do so, each with a name of its own (see `obol_attach`), keep the service together: `obol_propose` of
/// any of them executes a command on all, and what was answered survives the death of any minority.
/// The oldest one leads. `obol smr status` shows them.
///
/// `name_of_replica` begins with `smr-`; a member `smrc-`, for the calls of this program, follows
/// from it. `voters` is how many replicas of a new service should have every answered command, at
/// most 7; 3 is usual. All replicas of a cluster keep the same service.
///
/// The service begins with the state of an `on_load` of length 0, the same in all programs; what
/// others have done since follows by commands, or by another `on_load`. The replica has a place in
/// the cluster when this returns; it takes part when it is a member, and calls wait for that.
///
/// The state is in the memory of the replicas. Where a majority of them has died before others took
/// their places, it is lost, and calls end with `OBOL_STATUS_TIMEOUT`: no replica begins an empty
/// state in its place, until the cluster itself is started anew, or an operator has a program call
/// `obol_replica_open_empty`.
///
/// `root` is the directory of this host's clusters, `cluster` the cluster's name. Null selects, like
/// the command `obol`, what OBOL_ROOT and OBOL_CLUSTER in the environment say, or else the defaults.
///
/// # Safety
/// The texts are null or end with a zero byte; `service` is null or points to a service whose
/// functions another thread may call with its context until `obol_replica_close` has returned;
/// `replica` is null or points to memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_replica_open(
    root: *const c_char,
    cluster: *const c_char,
    name_of_replica: *const c_char,
    voters: u32,
    service: *const Service,
    replica: *mut *mut Replica,
) -> Status {
    let how = How { parts: None, force_empty: false };
    // SAFETY: the caller's promise.
    unsafe { open(root, cluster, name_of_replica, voters, service, how, replica) }
}

/// The same for a service whose state is saved and loaded in parts: none of the functions of `parts` may
/// be null. A null `parts` is refused.
///
/// # Safety
/// As `obol_replica_open`; `parts` is null or points to functions which another thread may call with the
/// service's context until `obol_replica_close` has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_replica_open_parts(
    root: *const c_char,
    cluster: *const c_char,
    name_of_replica: *const c_char,
    voters: u32,
    service: *const Service,
    parts: *const Parts,
    replica: *mut *mut Replica,
) -> Status {
    let how = How { parts: Some(parts), force_empty: false };
    // SAFETY: the caller's promise.
    unsafe { open(root, cluster, name_of_replica, voters, service, how, replica) }
}

/// Starts a replica that begins a new, empty state also where earlier replicas of this host have died
/// with theirs; otherwise as `obol_replica_open`, or as `obol_replica_open_parts` if `parts` is not null.
/// It is for one program, after all replicas have ended, also those that wait for the state: an empty state
/// is begun by the oldest replica of the cluster only. After that, the other programs open theirs as
/// always, and take the state from it.
///
/// All that was answered before is lost then, for all programs. So this is an operator's decision, who sees
/// in `obol smr status` that no replica is left, and never one of the program itself, after a call without
/// an answer, say: replicas that are frozen or cut off still have the state, and go on with it when a
/// majority of them returns. While such replicas are on this host, nothing is begun, and the status is
/// `OBOL_STATUS_CLUSTER`. One that returns after a new state was begun takes no part any more, and its
/// calls end with `OBOL_STATUS_CLUSTER`.
///
/// Beside a replica that has the state nothing is begun, and nothing is lost: this one takes that state.
///
/// # Safety
/// As `obol_replica_open_parts`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_replica_open_empty(
    root: *const c_char,
    cluster: *const c_char,
    name_of_replica: *const c_char,
    voters: u32,
    service: *const Service,
    parts: *const Parts,
    replica: *mut *mut Replica,
) -> Status {
    let how = How { parts: (!parts.is_null()).then_some(parts), force_empty: true };
    // SAFETY: the caller's promise.
    unsafe { open(root, cluster, name_of_replica, voters, service, how, replica) }
}

/// In what the functions that open a replica differ.
#[derive(Clone, Copy)]
struct How {
    /// Those of a service in parts.
    parts: Option<*const Parts>,
    /// It begins anew.
    force_empty: bool,
}

/// # Safety
/// As [`obol_replica_open_parts`].
unsafe fn open(
    root: *const c_char,
    cluster: *const c_char,
    name_of_replica: *const c_char,
    voters: u32,
    service: *const Service,
    How { parts, force_empty }: How,
    replica: *mut *mut Replica,
) -> Status {
    reported(|| {
        // SAFETY: the caller's promise.
        let (out, name, service) = unsafe {
            (place("replica", replica)?, name("name", name_of_replica)?, given("service", service)?)
        };
        // SAFETY: the caller's promise.
        let parts = parts.map(|parts| unsafe { given("parts", parts) }).transpose()?;
        let service = Foreign::new(service, parts)?;
        let settings = settings(name, voters, force_empty)?;
        // SAFETY: the caller's promise.
        let mut site = unsafe { site(root, cluster) }?;
        obol_replica::for_requests(&mut site);
        let empty = move || {
            let mut service = service.clone();
            service.begin().map_err(|LoadError| ReplicaError::InitialState)?;
            Ok(service)
        };
        let store = Store::open::<Foreign, Views, Active>(Arc::new(site), settings, empty)?;
        out.write(Box::into_raw(Box::new(Replica(store))));
        Ok(())
    })
}

fn settings(name: Name, voters: u32, force_empty: bool) -> Result<Settings, Refusal> {
    let name = obol_replica::named(name.as_str(), REPLICA_PREFIX).map_err(Refusal::argument)?;
    if voters == 0 || voters as usize > VOTERS_MAX {
        return Err(Refusal::argument(format_args!("voters is {voters}; it has to be 1 to {VOTERS_MAX}")));
    }
    let (unreplicated, temporary) = (false, false);
    Ok(Settings { name, voters, unreplicated, force_empty, temporary, poll_every: POLL_EVERY })
}

/// Executes a command on the replicated service, and stores the reply of `on_commit`: up to `room`
/// bytes of it in `reply`, its length in `*reply_length`. Waits for at most `timeout_ns`
/// nanoseconds.
///
/// The command takes effect once, whichever leaders die meanwhile. After `OBOL_STATUS_TIMEOUT` it
/// may still take effect; after `OBOL_STATUS_UNKNOWN` it may have.
///
/// # Safety
/// `replica` is null or a live handle; `command` is null or points to `length` bytes, `reply` to
/// memory for `room` bytes, `reply_length` to memory for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_propose(
    replica: *const Replica,
    command: *const u8,
    length: usize,
    timeout_ns: u64,
    reply: *mut u8,
    room: usize,
    reply_length: *mut usize,
) -> Status {
    let reply = Reply { bytes: reply, room, length: reply_length };
    // SAFETY: the caller's promise.
    unsafe {
        call(replica, Argument { name: "command", bytes: command, length }, &reply, |to, bytes| {
            to.propose(bytes, Nanos(timeout_ns))
        })
    }
}

/// Queries the replicated service at its leader, and stores the reply of `on_read` as
/// `obol_propose` does. It sees all commands that were answered before the call, of whichever
/// program.
///
/// # Safety
/// As `obol_propose`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_read(
    replica: *const Replica,
    query: *const u8,
    length: usize,
    timeout_ns: u64,
    reply: *mut u8,
    room: usize,
    reply_length: *mut usize,
) -> Status {
    let reply = Reply { bytes: reply, room, length: reply_length };
    // SAFETY: the caller's promise.
    unsafe {
        call(replica, Argument { name: "query", bytes: query, length }, &reply, |to, bytes| {
            to.read(bytes, Nanos(timeout_ns))
        })
    }
}

/// How many voters have every command that was answered, as of some moments ago; 0 if this replica
/// does not lead, in the child of a fork, and for a null pointer. While it is 1, nothing survives the
/// leader's death.
///
/// # Safety
/// `replica` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_replica_redundancy(replica: *const Replica) -> usize {
    // SAFETY: the caller's promise.
    unsafe { replica.as_ref() }.map_or(0, |replica| replica.0.redundancy())
}

/// Ends the replica: it leaves the cluster gracefully, and the others continue. If they cannot, as the
/// last one of two that is frozen, it ends after 3 s, and they serve once they can; `obol smr status`
/// says what they lack. No function of its service is called afterwards. A null pointer is ignored.
/// In the child of a fork it does not affect the parent.
///
/// # Safety
/// `replica` is null or a handle that is no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_replica_close(replica: *mut Replica) {
    if !replica.is_null() {
        // SAFETY: every handle that C has was made by `Box::into_raw`, and the caller gives it
        // back.
        drop(unsafe { Box::from_raw(replica) });
    }
}

/// Where C wants a reply.
struct Reply {
    bytes: *mut u8,
    room: usize,
    length: *mut usize,
}

/// A command or query as C gives it.
#[derive(Clone, Copy)]
struct Argument {
    /// The name of the C function's parameter.
    name: &'static str,
    bytes: *const u8,
    length: usize,
}

impl Argument {
    /// Its bytes.
    ///
    /// # Safety
    /// The pointer is null or points to as many bytes, which no thread changes while the result lives.
    unsafe fn get<'a>(self) -> Result<&'a [u8], Refusal> {
        let Self { name, bytes, length } = self;
        match length {
            0 => Ok(&[]),
            _ if bytes.is_null() => Err(Refusal::argument(format_args!("{name} is null"))),
            // A length that is the error of another call points to nothing.
            _ if length > OBOL_REPLICA_BYTES_MAX => Err(CallError::from(BeginError::TooLong(length)).into()),
            // SAFETY: the caller's promise.
            _ => Ok(unsafe { std::slice::from_raw_parts(bytes, length) }),
        }
    }
}

/// Calls the service, and gives C what fits of the reply, and its length.
///
/// # Safety
/// The replica is null or a live handle; the argument's pointer is null or points to as many bytes,
/// that no thread changes during the call; those of the reply are null or point to memory for `room`
/// bytes and for a number.
unsafe fn call(
    replica: *const Replica,
    argument: Argument,
    reply: &Reply,
    ask: impl FnOnce(&Store, &[u8]) -> Result<Box<[u8]>, CallError>,
) -> Status {
    reported(|| {
        // SAFETY: the caller's promise.
        let replica = unsafe { given("replica", replica) }?;
        // SAFETY: the caller's promise.
        let argument = unsafe { argument.get() }?;
        let answer = ask(&replica.0, argument)?;
        if !reply.bytes.is_null() {
            let fits = answer.len().min(reply.room);
            // SAFETY: the caller's promise; the answer lies outside of that memory.
            unsafe { std::ptr::copy_nonoverlapping(answer.as_ptr(), reply.bytes, fits) };
        }
        // SAFETY: the caller's promise.
        if let Some(length) = unsafe { reply.length.as_mut() } {
            *length = answer.len();
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_anything_is_read() {
        for length in [OBOL_REPLICA_BYTES_MAX + 1, isize::MAX as usize, usize::MAX] {
            // SAFETY: nothing is read.
            let refused = unsafe { Argument { name: "command", bytes: std::ptr::dangling(), length }.get() };
            assert_eq!(refused.err().map(|refusal| refusal.status), Some(Status::Argument), "{length}");
        }
    }
}

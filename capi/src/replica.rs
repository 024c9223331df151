//! A program's own deterministic service, replicated.

use crate::app::site;
use crate::status::{Refusal, Status, given, name, place, reported};
use obol_fabric::{Name, Nanos};
use obol_replica::{CallError, ReplicaError, Settings, Store};
use obol_smr::{Active, BeginError, LoadError, PAYLOAD_BYTES_MAX, REPLICA_PREFIX, VOTERS_MAX, Views};
use std::ffi::{c_char, c_void};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Bytes of the longest command, query or reply.
pub const OBOL_REPLICA_BYTES_MAX: usize = 1024;
const _: () = assert!(OBOL_REPLICA_BYTES_MAX == PAYLOAD_BYTES_MAX);

/// How often a replica that shares its core looks for requests.
const POLL_EVERY: Nanos = Nanos::from_micros(20);

/// Where a service writes a reply or its state.
pub struct Output(Vec<u8>);

/// Executes a command that is committed, on every replica, in the same order. The new state must
/// follow from the old one and the command alone: no clock, no random numbers. The reply is what
/// `obol_propose` returns; what goes beyond `OBOL_REPLICA_BYTES_MAX` is cut off. A command may be
/// any bytes that a program of the cluster proposed.
pub type OnCommit =
    Option<unsafe extern "C" fn(context: *mut c_void, command: *const u8, length: usize, reply: *mut Output)>;

/// Answers a query, at the leader only, without a change.
pub type OnRead =
    Option<unsafe extern "C" fn(context: *mut c_void, query: *const u8, length: usize, reply: *mut Output)>;

/// Writes the whole state, for a replica that has none.
pub type OnSave = Option<unsafe extern "C" fn(context: *mut c_void, state: *mut Output)>;

/// Replaces the state by one that `on_save` wrote. Length 0 means the initial state, which it has to
/// accept. Returns false, and changes nothing, if it is no state of this service: the replica then takes
/// no part any more, and calls end with `OBOL_STATUS_CLUSTER`.
pub type OnLoad = Option<unsafe extern "C" fn(context: *mut c_void, state: *const u8, length: usize) -> bool>;

/// A deterministic service. One thread of the replica calls all functions, one at a time, each with
/// `context`. They return, and do not call `obol_propose`, `obol_read` or `obol_replica_close`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Service {
    /// Given to each function.
    pub context: *mut c_void,
    /// Executes a command.
    pub on_commit: OnCommit,
    /// Answers a query.
    pub on_read: OnRead,
    /// Writes the state.
    pub on_save: OnSave,
    /// Replaces the state.
    pub on_load: OnLoad,
}

/// The functions of a [`Service`], each of which is there.
#[derive(Clone, Copy)]
struct Foreign {
    context: *mut c_void,
    on_commit: unsafe extern "C" fn(*mut c_void, *const u8, usize, *mut Output),
    on_read: unsafe extern "C" fn(*mut c_void, *const u8, usize, *mut Output),
    on_save: unsafe extern "C" fn(*mut c_void, *mut Output),
    on_load: unsafe extern "C" fn(*mut c_void, *const u8, usize) -> bool,
}

// SAFETY: the caller of `obol_replica_open` promises that another thread may use them.
unsafe impl Send for Foreign {}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Foreign").field(&self.context).finish()
    }
}

// Copies share the state, which C has.
impl PartialEq for Foreign {
    fn eq(&self, other: &Self) -> bool {
        self.context == other.context
    }
}

impl Eq for Foreign {}

impl Hash for Foreign {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.context.hash(state);
    }
}

/// Lets a function append to `to`.
fn written(to: &mut Vec<u8>, write: impl FnOnce(*mut Output)) {
    let mut output = Output(std::mem::take(to));
    write(&raw mut output);
    *to = output.0;
}

impl obol_smr::Service for Foreign {
    const KIND: u8 = 64;

    fn apply(&mut self, command: &[u8], reply: &mut Vec<u8>) {
        // SAFETY: the promise of `obol_replica_open`'s caller; command and reply outlive the call.
        written(reply, |to| unsafe { (self.on_commit)(self.context, command.as_ptr(), command.len(), to) });
    }

    fn read(&self, query: &[u8], reply: &mut Vec<u8>) {
        // SAFETY: as above.
        written(reply, |to| unsafe { (self.on_read)(self.context, query.as_ptr(), query.len(), to) });
    }

    fn save(&self, to: &mut Vec<u8>) {
        // SAFETY: as above.
        written(to, |to| unsafe { (self.on_save)(self.context, to) });
    }

    fn load(&mut self, from: &[u8]) -> Result<(), LoadError> {
        // SAFETY: as above.
        let is_loaded = unsafe { (self.on_load)(self.context, from.as_ptr(), from.len()) };
        if is_loaded { Ok(()) } else { Err(LoadError) }
    }
}

impl TryFrom<&Service> for Foreign {
    type Error = Refusal;

    fn try_from(service: &Service) -> Result<Self, Refusal> {
        let missing = |what: &'static str| move || Refusal::argument(format_args!("{what} is null"));
        Ok(Self {
            context: service.context,
            on_commit: service.on_commit.ok_or_else(missing("on_commit"))?,
            on_read: service.on_read.ok_or_else(missing("on_read"))?,
            on_save: service.on_save.ok_or_else(missing("on_save"))?,
            on_load: service.on_load.ok_or_else(missing("on_load"))?,
        })
    }
}

impl From<ReplicaError> for Refusal {
    fn from(error: ReplicaError) -> Self {
        let status = if matches!(error, ReplicaError::Name(_)) { Status::Argument } else { Status::Cluster };
        Self::new(status, error)
    }
}

impl From<CallError> for Refusal {
    fn from(error: CallError) -> Self {
        let status = match error {
            CallError::Begin(_) => Status::Argument,
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

/// Appends `length` bytes to a reply or a state. Does nothing for a null pointer.
///
/// # Safety
/// `output` is null or what a function of the service was given, during that call; `bytes` is null
/// or points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_output_write(output: *mut Output, bytes: *const u8, length: usize) {
    // SAFETY: the caller's promise.
    if let (Some(output), false) = (unsafe { output.as_mut() }, bytes.is_null()) {
        // SAFETY: the caller's promise.
        output.0.extend_from_slice(unsafe { std::slice::from_raw_parts(bytes, length) });
    }
}

/// Starts a replica of `service` on threads of its own, and stores the handle in `*replica`. Three
/// programs that do so, each with a name of its own, keep the service together: `obol_propose` of
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
/// state in its place, until the cluster itself is started anew.
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
    reported(|| {
        // SAFETY: the caller's promise.
        let (out, name, service) = unsafe {
            (place("replica", replica)?, name("name", name_of_replica)?, given("service", service)?)
        };
        let service = Foreign::try_from(service)?;
        let settings = settings(name, voters)?;
        // SAFETY: the caller's promise.
        let mut site = unsafe { site(root, cluster) }?;
        obol_replica::for_requests(&mut site);
        let empty = move || {
            let mut service = service;
            obol_smr::Service::load(&mut service, &[]).map_err(|LoadError| ReplicaError::InitialState)?;
            Ok(service)
        };
        let store = Store::open::<Foreign, Views, Active>(Arc::new(site), settings, empty)?;
        out.write(Box::into_raw(Box::new(Replica(store))));
        Ok(())
    })
}

fn settings(name: Name, voters: u32) -> Result<Settings, Refusal> {
    let name = obol_replica::named(name.as_str(), REPLICA_PREFIX).map_err(Refusal::argument)?;
    if voters == 0 || voters as usize > VOTERS_MAX {
        return Err(Refusal::argument(format_args!("voters is {voters}; it has to be 1 to {VOTERS_MAX}")));
    }
    Ok(Settings { name, voters, unreplicated: false, force_empty: false, poll_every: POLL_EVERY })
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
        call(replica, ("command", command, length), &reply, |to, bytes| to.propose(bytes, Nanos(timeout_ns)))
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
    unsafe { call(replica, ("query", query, length), &reply, |to, bytes| to.read(bytes, Nanos(timeout_ns))) }
}

/// How many voters have every command that was answered, as of some moments ago; 0 if this replica
/// does not lead, and for a null pointer. While it is 1, nothing survives the leader's death.
///
/// # Safety
/// `replica` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_replica_redundancy(replica: *const Replica) -> usize {
    // SAFETY: the caller's promise.
    unsafe { replica.as_ref() }.map_or(0, |replica| replica.0.redundancy())
}

/// Ends the replica: it leaves the cluster gracefully, and the others continue. No function of its
/// service is called afterwards. A null pointer is ignored. In the child of a fork it does not
/// affect the parent.
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

/// The bytes of a command or query.
///
/// # Safety
/// The pointer is null or points to as many bytes, which no thread changes while the result lives.
unsafe fn argument<'a>(what: &str, bytes: *const u8, length: usize) -> Result<&'a [u8], Refusal> {
    match length {
        0 => Ok(&[]),
        _ if bytes.is_null() => Err(Refusal::argument(format_args!("{what} is null"))),
        // A length that is the error of another call points to nothing.
        _ if length > OBOL_REPLICA_BYTES_MAX => Err(CallError::from(BeginError::TooLong(length)).into()),
        // SAFETY: the caller's promise.
        _ => Ok(unsafe { std::slice::from_raw_parts(bytes, length) }),
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
    (what, bytes, length): (&str, *const u8, usize),
    reply: &Reply,
    ask: impl FnOnce(&Store, &[u8]) -> Result<Box<[u8]>, CallError>,
) -> Status {
    reported(|| {
        // SAFETY: the caller's promise.
        let replica = unsafe { given("replica", replica) }?;
        // SAFETY: the caller's promise.
        let argument = unsafe { argument(what, bytes, length) }?;
        let answer = ask(&replica.0, argument)?;
        if !reply.bytes.is_null() {
            let fits = answer.len().min(reply.room);
            // SAFETY: the caller's promise; the answer is no part of that memory.
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
            let refused = unsafe { argument("command", std::ptr::dangling(), length) };
            assert_eq!(refused.err().map(|refusal| refusal.status), Some(Status::Argument), "{length}");
        }
    }
}

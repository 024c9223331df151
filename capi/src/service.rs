//! A service that C implements, as the replica calls it.

use crate::status::Refusal;
use obol_smr::LoadError;
use std::ffi::c_void;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Where a service writes a reply, its state, or a part of it. The library owns it; it is valid during
/// the call that was given it.
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

/// Writes the whole state, for a replica that has none. Never called for a service with `obol_parts`.
pub type OnSave = Option<unsafe extern "C" fn(context: *mut c_void, state: *mut Output)>;

/// Replaces the state by one that `on_save` wrote. Length 0 means the initial state, which it has to
/// accept. Returns false, and changes nothing, if this is not a state of the service: the replica then takes
/// no part any more, and calls end with `OBOL_STATUS_CLUSTER`. For a service with `obol_parts` the length
/// is always 0.
pub type OnLoad = Option<unsafe extern "C" fn(context: *mut c_void, state: *const u8, length: usize) -> bool>;

/// A deterministic service. One thread of the replica calls all functions, one at a time, each with
/// `context`. They return. In them `obol_propose` and `obol_read` fail at once, with
/// `OBOL_STATUS_ARGUMENT`; `obol_replica_close` takes effect when they have returned.
///
/// The same thread shows the others that the program lives. If a function takes longer than the period
/// of heartbeats (`heartbeat.period` of the profile: 100 ms with laptop, 1 ms with dedicated), the replica
/// may be excluded. `on_save` and `on_load` work on the whole state, each time a replica joins. They are
/// fit for a state that is saved or loaded within a fraction of that, with the copies that the library
/// makes: with laptop, up to some 10 MB on a busy machine. With a larger one, the replica that saves it may
/// be excluded meanwhile, and the one that loads it, too. Both join again, and what was answered is not
/// lost, but nothing is answered while fewer than a majority can. Such a service needs `obol_parts`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Service {
    /// Given to each function.
    pub context: *mut c_void,
    /// Executes a command.
    pub on_commit: OnCommit,
    /// Answers a query.
    pub on_read: OnRead,
    /// Writes the state; may be null with `obol_parts`.
    pub on_save: OnSave,
    /// Replaces the state.
    pub on_load: OnLoad,
}

/// Begins a save. The parts that follow are the state of this moment, whatever `on_commit` changes before
/// they are written: the service keeps what a command overwrites, or copies what it changes. Returns the
/// number of bytes that follow; about is enough, it is for the progress that `obol smr status` shows.
pub type OnSaveBegin = Option<unsafe extern "C" fn(context: *mut c_void) -> u64>;

/// Writes the next part of the save that was begun, with `obol_output_write`, and returns true with the
/// last one. 4 to 16 KB are a good size: writing it should take less than a tenth of a millisecond. A part
/// without any byte that is not the last one is followed by the next one at once.
pub type OnSavePart = Option<unsafe extern "C" fn(context: *mut c_void, part: *mut Output) -> bool>;

/// The save that was begun is over: the service frees what it has kept for it. Called once after each
/// `on_save_begin`: after the last part, or earlier, if the parts are not wanted any more (the replica that
/// loaded them died, say) or the state is about to be replaced.
pub type OnSaveEnd = Option<unsafe extern "C" fn(context: *mut c_void)>;

/// Begins a load: the service makes a second state, without anything in it, to load bytes into. Until
/// `on_load_commit`, all other functions go on with the first one.
pub type OnLoadBegin = Option<unsafe extern "C" fn(context: *mut c_void)>;

/// Loads bytes into the second state, and returns how many of them it has used. They are what another
/// replica's `on_save_part` wrote, in the same order, but cut elsewhere: a call has some KB, and may end
/// in the middle of a record. What is not used is given again, with more after it. A number above
/// `length`, such as SIZE_MAX, says that this is not a state of the service.
pub type OnLoadPart =
    Option<unsafe extern "C" fn(context: *mut c_void, bytes: *const u8, length: usize) -> usize>;

/// All bytes of a saved state were given and used: the second state becomes the state, and the service
/// puts the former one aside for `on_work` to free. Returns false, and changes nothing, if the second
/// state is not whole; `on_load_abandon` follows.
pub type OnLoadCommit = Option<unsafe extern "C" fn(context: *mut c_void) -> bool>;

/// Gives up the load: the service puts the second state aside for `on_work` to free. The state stays as it
/// is. Called when the replica that saves died or stopped, and after a refusal; another load may begin.
pub type OnLoadAbandon = Option<unsafe extern "C" fn(context: *mut c_void)>;

/// Frees some of what was put aside, for less than a tenth of a millisecond, and returns whether more is
/// left. Called often, also if nothing is left: then it returns false at once.
pub type OnWork = Option<unsafe extern "C" fn(context: *mut c_void) -> bool>;

/// Further functions of a service, for a state of any size: it is saved and loaded in parts, while
/// commands go on. `obol_replica_open_parts` takes them; none of them may be null. They are called as
/// those of `obol_service`: by the same thread, one at a time, with the same context. Each of them should
/// return within a tenth of a millisecond.
///
/// At one time there are at most one save and one load. A load is begun, then bytes are given, and then it
/// is either committed or abandoned, once. A save may go on during a load; it is ended before a commit.
///
/// The parts, one after the other, are what `on_save` would have written. So programs with and without
/// these functions can be replicas of one service, if `on_load` reads the same bytes; a program can be
/// given them while the others run.
///
/// - A program that dies leaves nothing. When it runs again, it begins with the initial state, and loads
///   from another replica. One that dies while it saves: the replica that loads abandons, and begins again
///   with another one's save. One that dies while it loads: the save is ended within about a second.
/// - When a replica begins anew, the save and the load are ended first; then `on_load` is called with
///   length 0.
/// - `obol_replica_close` calls no function: the program frees what a save or a load has begun.
/// - An allocator may return all free memory to the system in one call, or join all freed pieces: with
///   glibc, a call of malloc or free took 100 ms after a million pieces were freed. Keep memory for reuse,
///   or set, by mallopt, `M_TRIM_THRESHOLD` to INT_MAX, `M_TOP_PAD` to 64 MB and `M_MXFAST` to 0.
///
/// The example `stock.c` has all of it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Parts {
    /// Begins a save.
    pub on_save_begin: OnSaveBegin,
    /// Writes the next part of it.
    pub on_save_part: OnSavePart,
    /// Ends it.
    pub on_save_end: OnSaveEnd,
    /// Begins a load.
    pub on_load_begin: OnLoadBegin,
    /// Loads bytes.
    pub on_load_part: OnLoadPart,
    /// Has what was loaded take effect.
    pub on_load_commit: OnLoadCommit,
    /// Gives it up.
    pub on_load_abandon: OnLoadAbandon,
    /// Frees in steps.
    pub on_work: OnWork,
}

/// The functions of a [`Service`]; none is missing.
#[derive(Clone)]
pub(crate) struct Foreign {
    context: *mut c_void,
    on_commit: unsafe extern "C" fn(*mut c_void, *const u8, usize, *mut Output),
    on_read: unsafe extern "C" fn(*mut c_void, *const u8, usize, *mut Output),
    /// One of a service in parts may not be there.
    on_save: Option<unsafe extern "C" fn(*mut c_void, *mut Output)>,
    on_load: unsafe extern "C" fn(*mut c_void, *const u8, usize) -> bool,
    parts: Option<InParts>,
}

/// The functions of [`Parts`], none of them missing, and what was begun with them.
#[derive(Clone)]
struct InParts {
    on_save_begin: unsafe extern "C" fn(*mut c_void) -> u64,
    on_save_part: unsafe extern "C" fn(*mut c_void, *mut Output) -> bool,
    on_save_end: unsafe extern "C" fn(*mut c_void),
    on_load_begin: unsafe extern "C" fn(*mut c_void),
    on_load_part: unsafe extern "C" fn(*mut c_void, *const u8, usize) -> usize,
    on_load_commit: unsafe extern "C" fn(*mut c_void) -> bool,
    on_load_abandon: unsafe extern "C" fn(*mut c_void),
    on_work: unsafe extern "C" fn(*mut c_void) -> bool,
    begun: Arc<Begun>,
    /// The load that this copy of the service is for; 0 for none.
    load: u64,
}

/// What C has under way, for all copies of a service. One thread at a time uses it.
#[derive(Default)]
struct Begun {
    saves: AtomicBool,
    /// The number of the load; 0 for none.
    load: AtomicU64,
    loads: AtomicU64,
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
fn written<T>(to: &mut Vec<u8>, write: impl FnOnce(*mut Output) -> T) -> T {
    let mut output = Output(std::mem::take(to));
    let result = write(&raw mut output);
    *to = output.0;
    result
}

impl InParts {
    fn end_save(&self, context: *mut c_void) {
        if self.begun.saves.swap(false, Ordering::Relaxed) {
            // SAFETY: the promise of `obol_replica_open`'s caller.
            unsafe { (self.on_save_end)(context) }
        }
    }

    fn abandon(&self, context: *mut c_void) {
        if self.begun.load.swap(0, Ordering::Relaxed) != 0 {
            // SAFETY: as above.
            unsafe { (self.on_load_abandon)(context) }
        }
    }

    /// Whether this copy of the service is the one that loads.
    fn is_loading(&self) -> bool {
        self.load != 0 && self.begun.load.load(Ordering::Relaxed) == self.load
    }
}

impl Foreign {
    /// Has the service begin with its initial state.
    pub(crate) fn begin(&mut self) -> Result<(), LoadError> {
        if let Some(parts) = &self.parts {
            parts.abandon(self.context);
            parts.end_save(self.context);
        }
        self.load_whole(&[])
    }

    fn load_whole(&self, from: &[u8]) -> Result<(), LoadError> {
        // SAFETY: the promise of `obol_replica_open`'s caller; the bytes outlive the call.
        let is_loaded = unsafe { (self.on_load)(self.context, from.as_ptr(), from.len()) };
        if is_loaded { Ok(()) } else { Err(LoadError) }
    }
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
        if let Some(on_save) = self.on_save {
            // SAFETY: as above.
            written(to, |to| unsafe { on_save(self.context, to) });
        }
    }

    fn load(&mut self, from: &[u8]) -> Result<(), LoadError> {
        self.load_whole(from)
    }

    fn begin_save(&mut self) -> Option<u64> {
        let parts = self.parts.as_ref()?;
        parts.end_save(self.context);
        parts.begun.saves.store(true, Ordering::Relaxed);
        // SAFETY: as above.
        Some(unsafe { (parts.on_save_begin)(self.context) })
    }

    fn save_part(&mut self, to: &mut Vec<u8>) -> Option<bool> {
        let parts = self.parts.as_ref().filter(|parts| parts.begun.saves.load(Ordering::Relaxed))?;
        // SAFETY: as above.
        let is_last = written(to, |to| unsafe { (parts.on_save_part)(self.context, to) });
        if is_last {
            parts.end_save(self.context);
        }
        Some(is_last)
    }

    fn end_save(&mut self) {
        if let Some(parts) = &self.parts {
            parts.end_save(self.context);
        }
    }

    fn begin_load(&self) -> Self {
        let mut other = self.clone();
        if let Some(parts) = &mut other.parts {
            parts.abandon(self.context);
            parts.load = parts.begun.loads.fetch_add(1, Ordering::Relaxed) + 1;
            parts.begun.load.store(parts.load, Ordering::Relaxed);
            // SAFETY: as above.
            unsafe { (parts.on_load_begin)(self.context) };
        }
        other
    }

    fn load_part(&mut self, from: &mut Vec<u8>) -> Result<(), LoadError> {
        let Some(parts) = &self.parts else { return Ok(()) };
        if !parts.is_loading() {
            return Err(LoadError);
        }
        if from.is_empty() {
            return Ok(());
        }
        // SAFETY: as above.
        let used = unsafe { (parts.on_load_part)(self.context, from.as_ptr(), from.len()) };
        if used > from.len() {
            return Err(LoadError);
        }
        from.drain(..used);
        Ok(())
    }

    fn end_load(&mut self, rest: &[u8]) -> Result<(), LoadError> {
        let Some(parts) = &self.parts else { return self.load(rest) };
        if !rest.is_empty() || !parts.is_loading() {
            return Err(LoadError);
        }
        parts.end_save(self.context);
        // SAFETY: as above.
        if !unsafe { (parts.on_load_commit)(self.context) } {
            return Err(LoadError);
        }
        parts.begun.load.store(0, Ordering::Relaxed);
        Ok(())
    }

    fn work(&mut self) -> bool {
        // SAFETY: as above.
        self.parts.as_ref().is_some_and(|parts| unsafe { (parts.on_work)(self.context) })
    }

    fn discard(&mut self, other: Self) {
        if let Some(parts) = other.parts.filter(InParts::is_loading) {
            parts.abandon(self.context);
        }
    }
}

fn there<T>(what: &str, function: Option<T>) -> Result<T, Refusal> {
    function.ok_or_else(|| Refusal::argument(format_args!("{what} is null")))
}

impl Foreign {
    /// The functions, if all that are needed are there.
    pub(crate) fn new(service: &Service, parts: Option<&Parts>) -> Result<Self, Refusal> {
        if parts.is_none() {
            there("on_save", service.on_save)?;
        }
        Ok(Self {
            context: service.context,
            on_commit: there("on_commit", service.on_commit)?,
            on_read: there("on_read", service.on_read)?,
            on_save: service.on_save,
            on_load: there("on_load", service.on_load)?,
            parts: parts.map(InParts::try_from).transpose()?,
        })
    }
}

impl TryFrom<&Parts> for InParts {
    type Error = Refusal;

    fn try_from(parts: &Parts) -> Result<Self, Refusal> {
        Ok(Self {
            on_save_begin: there("on_save_begin", parts.on_save_begin)?,
            on_save_part: there("on_save_part", parts.on_save_part)?,
            on_save_end: there("on_save_end", parts.on_save_end)?,
            on_load_begin: there("on_load_begin", parts.on_load_begin)?,
            on_load_part: there("on_load_part", parts.on_load_part)?,
            on_load_commit: there("on_load_commit", parts.on_load_commit)?,
            on_load_abandon: there("on_load_abandon", parts.on_load_abandon)?,
            on_work: there("on_work", parts.on_work)?,
            begun: Arc::default(),
            load: 0,
        })
    }
}

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

#[cfg(test)]
mod tests;

//! A program as a member: attached to its node's agent, or with a core of its own.

use crate::status::{Refusal, Status, given, lent, name, place, reported, text};
use crate::view::View;
use obol_agent::{Attached, Embedded, Lost, MembershipHandle};
use obol_fabric::host::{clock, default_root};
use obol_fabric::{Incarnation, Name, Nanos};
use obol_node::Site;
use std::ffi::{c_char, c_void};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

/// A program of the cluster. Any thread may use it, several at once; `obol_close` ends it.
pub struct App(Program);

enum Program {
    Attached(Attached),
    Embedded(Embedded),
}

impl Deref for App {
    type Target = MembershipHandle;

    fn deref(&self) -> &MembershipHandle {
        match &self.0 {
            Program::Attached(attached) => attached,
            Program::Embedded(embedded) => embedded,
        }
    }
}

impl App {
    fn join(&self, timeout: Nanos) -> Result<(), Refusal> {
        match &self.0 {
            Program::Attached(attached) => attached.join(timeout).map(|_| ()).map_err(Refusal::from),
            Program::Embedded(embedded) => {
                let end = clock::now() + timeout;
                let mut views = embedded.views();
                while !embedded.view().is_some_and(|view| view.is_mine()) {
                    if let Some(error) = embedded.refusal() {
                        return Err(Refusal::new(Status::Cluster, error));
                    }
                    let left = end.since(clock::now());
                    if left == Nanos::ZERO {
                        let what = if embedded.is_name_taken() {
                            "not admitted: another member has its name"
                        } else {
                            "not admitted"
                        };
                        return Err(Refusal::timeout(what, timeout));
                    }
                    // The incarnation may become known a little after the view that has it.
                    let next = views.next(left.min(POLL_INTERVAL));
                    if embedded.refusal().is_none() {
                        next?;
                    }
                }
                Ok(())
            }
        }
    }
}

/// How often a program that waits for admission polls.
const POLL_INTERVAL: Nanos = Nanos::from_millis(1);

/// Finds a cluster by the caller's arguments.
///
/// # Safety
///
/// Both are null or point to strings that end with a zero byte.
pub(crate) unsafe fn site(root: *const c_char, cluster: *const c_char) -> Result<Site, Refusal> {
    let root = if root.is_null() {
        std::env::var_os("OBOL_ROOT").map_or_else(default_root, PathBuf::from)
    } else {
        // SAFETY: the caller's promise.
        PathBuf::from(unsafe { text("root", root) }?)
    };
    let cluster = if cluster.is_null() {
        let chosen = std::env::var("OBOL_CLUSTER").unwrap_or_else(|_| "default".to_owned());
        Name::new(&chosen).map_err(|error| Refusal::argument(format!("OBOL_CLUSTER: {error}")))?
    } else {
        // SAFETY: the caller's promise.
        unsafe { name("cluster", cluster) }?
    };
    Ok(Site::open(&root, cluster)?)
}

/// Takes a seat at the agent `agent` of this node, under the name `name_of_app`, and stores the
/// handle in `*app`. The program becomes a member by `obol_join`.
///
/// A name has 1 to 23 bytes of `a-z A-Z 0-9 . _ -` and begins with a letter or digit
/// (`OBOL_STATUS_ARGUMENT`). It belongs to one live process of the host at a time, until `obol_close`
/// or the end of the process, and in that process to one handle: a name that another has is refused
/// with `OBOL_STATUS_CLUSTER`, and `obol_last_error` says which process has it. Names that the cluster
/// keeps for other processes, running or not, are
/// refused with `OBOL_STATUS_CLUSTER`: `leader`; `coord-N` for each coordinator that there can be
/// (`limits.proposers` of the profile); those of its agents and lease caches, under `obol up` `node-N`
/// and `cache-N` as far as it started them; and with several hosts `gateway` and `gateway-N`.
///
/// `root` is the directory of this host's clusters, `cluster` the cluster's name. Null selects, like
/// the command `obol`, what OBOL_ROOT and OBOL_CLUSTER in the environment say, or else the defaults.
///
/// # Safety
/// The texts are null or end with a zero byte; `app` is null or points to memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_attach(
    root: *const c_char,
    cluster: *const c_char,
    agent: *const c_char,
    name_of_app: *const c_char,
    app: *mut *mut App,
) -> Status {
    reported(|| {
        // SAFETY: the caller's promise.
        let (out, agent, own) =
            unsafe { (place("app", app)?, name("agent", agent)?, name("name", name_of_app)?) };
        // SAFETY: the caller's promise.
        let site = unsafe { site(root, cluster) }?;
        let attached = Attached::open(&site, agent, own)?;
        out.write(Box::into_raw(Box::new(App(Program::Attached(attached)))));
        Ok(())
    })
}

/// Starts a core of the program's own on a thread, under the name `name_of_app`, and stores the
/// handle in `*app`. It joins by itself, now and whenever it was removed; `obol_join` waits for
/// that. Names are as with `obol_attach`.
///
/// `root` is the directory of this host's clusters, `cluster` the cluster's name. Null selects, like
/// the command `obol`, what OBOL_ROOT and OBOL_CLUSTER in the environment say, or else the defaults.
///
/// # Safety
/// The texts are null or end with a zero byte; `app` is null or points to memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_embed(
    root: *const c_char,
    cluster: *const c_char,
    name_of_app: *const c_char,
    app: *mut *mut App,
) -> Status {
    reported(|| {
        // SAFETY: the caller's promise.
        let (out, own) = unsafe { (place("app", app)?, name("name", name_of_app)?) };
        // SAFETY: the caller's promise.
        let site = unsafe { site(root, cluster) }?;
        let embedded = Embedded::start(Arc::new(site), own)?;
        out.write(Box::into_raw(Box::new(App(Program::Embedded(embedded)))));
        Ok(())
    })
}

/// Becomes a member, as a new incarnation, and waits for that for at most `timeout_ns` nanoseconds.
/// An attached program that was removed calls this again. If programs of its name failed or left
/// repeatedly, the join is put on hold for a while; `obol_last_error` says for how long. If another
/// member has its name, which may be of another host, it waits for the end of that one.
///
/// # Safety
/// `app` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_join(app: *const App, timeout_ns: u64) -> Status {
    // SAFETY: the caller's promise.
    reported(|| unsafe { given("app", app) }?.join(Nanos(timeout_ns)))
}

/// Leaves the cluster gracefully, which does not count as a failure, and waits for that for at most
/// `timeout_ns` nanoseconds. An embedded program leaves only by `obol_close`.
///
/// # Safety
/// `app` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_leave(app: *const App, timeout_ns: u64) -> Status {
    reported(|| {
        let waited = Nanos(timeout_ns);
        // SAFETY: the caller's promise.
        let app = unsafe { given("app", app) }?;
        match &app.0 {
            Program::Attached(attached) if attached.leave(waited)? => Ok(()),
            Program::Attached(_) => Err(Refusal::timeout("no view without it was decided", waited)),
            Program::Embedded(embedded) => Err(embedded.lost().map_or_else(
                || Refusal::argument("an embedded program leaves only by obol_close"),
                Refusal::from,
            )),
        }
    })
}

/// Closes the handle and ends the membership. Views and streams outlive it. A null pointer is
/// ignored.
///
/// An embedded program leaves gracefully by that. An attached one that has not called `obol_leave`
/// is reported to the others as failed, as if it had died.
///
/// Membership stays with the process that attached or embedded. A forked child has copies of its
/// handles: they are never active and return `OBOL_STATUS_FORKED`; closing them does not affect the
/// parent. So a server that forks workers attaches in each worker, and a program that becomes a
/// daemon by `fork` or `daemon` attaches after that: an earlier membership would end with the
/// parent. `posix_spawn`, and `fork` with `exec`, are safe at any time.
///
/// # Safety
/// `app` is null or a handle that is no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_close(app: *mut App) {
    if !app.is_null() {
        // SAFETY: every handle that C has was made by `Box::into_raw`, and the caller gives it
        // back.
        drop(unsafe { Box::from_raw(app) });
    }
}

/// This program's incarnation; 0 while it is not a member, in the child of a fork, and for a null
/// pointer.
///
/// # Safety
/// `app` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_incarnation(app: *const App) -> u64 {
    // SAFETY: the caller's promise.
    let app = unsafe { app.as_ref() };
    app.map_or(Incarnation::NONE, |app| app.incarnation()).0
}

/// Whether the program has to join again: the cluster removed it, or its agent died; `obol_join`
/// then returns that error. An embedded core joins by itself as long as it runs.
///
/// # Safety
/// `app` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_is_excluded(app: *const App) -> bool {
    // SAFETY: the caller's promise.
    match unsafe { app.as_ref() }.map(|app| &app.0) {
        Some(Program::Attached(attached)) => attached.is_excluded(),
        Some(Program::Embedded(embedded)) => embedded.lost().is_some(),
        None => false,
    }
}

/// Whether the program's agent, or its own core, still runs. If not, the membership ends, streams
/// end, and an attached program calls `obol_attach_again`. False in the child of a fork, and for a
/// null pointer.
///
/// # Safety
/// `app` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_agent_lives(app: *const App) -> bool {
    // SAFETY: the caller's promise.
    unsafe { app.as_ref() }.is_some_and(|app| app.lost().is_none())
}

/// After its agent's death: takes a seat at the agent's successor, which has the same name, and
/// waits for one for at most `timeout_ns` nanoseconds. Call `obol_join` afterwards. Existing
/// streams end with `OBOL_STATUS_AGENT_DIED`; open new ones. Does nothing while the agent lives.
///
/// # Safety
/// `app` is null or a live handle that no other thread uses during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_attach_again(app: *mut App, timeout_ns: u64) -> Status {
    reported(|| {
        // SAFETY: the caller's promise.
        let app = unsafe { lent("app", app) }?;
        match &mut app.0 {
            Program::Attached(attached) => Ok(attached.attach_again(Nanos(timeout_ns))?),
            Program::Embedded(embedded) => Err(match embedded.lost() {
                Some(Lost::Forked) => Lost::Forked.into(),
                _ => Refusal::argument(
                    "a program with a core of its own has no agent; close it and embed again",
                ),
            }),
        }
    })
}

/// The newest view that is known to be decided, to be freed by the caller; null before the first,
/// and for a null pointer.
///
/// # Safety
/// `app` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_newest_view(app: *const App) -> *mut View {
    // SAFETY: the caller's promise.
    let view = unsafe { app.as_ref() }.and_then(|app| app.view());
    view.map_or(std::ptr::null_mut(), |view| Box::into_raw(Box::new(View(view))))
}

/// Whether `view` is active for this program now: the program is a member of it, and no later view
/// that excludes an application has been active anywhere. No system call, no allocation; false for
/// a null pointer.
///
/// # Safety
/// `app` is null or a live handle, `view` null or a live view that it gave.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_active(app: *const App, view: *const View) -> bool {
    // SAFETY: the caller's promise.
    match unsafe { (app.as_ref(), view.as_ref()) } {
        (Some(app), Some(view)) => app.active(&view.0),
        _ => false,
    }
}

/// As `obol_active`, with the reason: `OBOL_STATUS_OK` if it is active, else
/// `OBOL_STATUS_INACTIVE`, `OBOL_STATUS_AGENT_DIED` or `OBOL_STATUS_FORKED`. Costs the same while
/// it is active.
///
/// # Safety
/// `app` is null or a live handle, `view` null or a live view that it gave.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_check(app: *const App, view: *const View) -> Status {
    reported(|| {
        // SAFETY: the caller's promise.
        let (app, view) = unsafe { (given("app", app)?, given("view", view)?) };
        Ok(app.check(&view.0)?)
    })
}

/// Calls `work(view, context)` if `view` is active, and returns whether it is still active
/// afterwards. The effect of `work` must not count before this has returned true.
///
/// # Safety
/// As `obol_active`; `work` is null or a function that returns and may be called with these
/// arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_guard(
    app: *const App,
    view: *const View,
    work: Option<unsafe extern "C" fn(view: *const View, context: *mut c_void)>,
    context: *mut c_void,
) -> bool {
    // SAFETY: the caller's promise.
    match (unsafe { (app.as_ref(), view.as_ref()) }, work) {
        ((Some(app), Some(view)), Some(work)) => {
            // SAFETY: the caller's promise; the view outlives the call.
            app.guard(&view.0, |_| unsafe { work(view, context) }).is_some()
        }
        _ => false,
    }
}

/// As `obol_active`, also where the lease has expired: then the coordinators are asked, and
/// `OBOL_STATUS_OK` means that `view` was active at some moment between the call and its return.
/// Waits for at most `timeout_ns` nanoseconds. It works where delays are longer than leases, and
/// costs a round trip.
///
/// # Safety
/// As `obol_active`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_confirm(app: *const App, view: *const View, timeout_ns: u64) -> Status {
    reported(|| {
        // SAFETY: the caller's promise.
        let (app, view) = unsafe { (given("app", app)?, given("view", view)?) };
        Ok(app.confirm(&view.0, Nanos(timeout_ns))?)
    })
}

/// As `obol_guard`, also where leases are too short for the delays: calls `work(view, context)`
/// once older leases are over, and then confirms `view` as `obol_confirm` does. The effect of
/// `work` must not count unless this returns `OBOL_STATUS_OK`. Waits for at most `timeout_ns`
/// nanoseconds, not counting the work.
///
/// # Safety
/// As `obol_guard`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_guard_within(
    app: *const App,
    view: *const View,
    timeout_ns: u64,
    work: Option<unsafe extern "C" fn(view: *const View, context: *mut c_void)>,
    context: *mut c_void,
) -> Status {
    reported(|| {
        // SAFETY: the caller's promise.
        let (app, view) = unsafe { (given("app", app)?, given("view", view)?) };
        let work = work.ok_or_else(|| Refusal::argument("work is null"))?;
        // SAFETY: the caller's promise; the view outlives the call.
        app.guard_within(&view.0, Nanos(timeout_ns), |_| unsafe { work(view, context) })?;
        Ok(())
    })
}

/// The number of changes of view and lease start; for `obol_wait_changed`. 0 for a null pointer.
///
/// # Safety
/// `app` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_changes(app: *const App) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { app.as_ref() }.map_or(0, |app| app.changes())
}

/// Sleeps until view or lease start have changed since `seen`, or for at most `timeout_ns`
/// nanoseconds; returns the number of changes. To wait until a view is active, sleep at most until
/// its lease begins, which causes no wake-up: poll every millisecond or so.
///
/// # Safety
/// `app` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_wait_changed(app: *const App, seen: u32, timeout_ns: u64) -> u32 {
    // SAFETY: the caller's promise.
    let app = unsafe { app.as_ref() };
    app.map_or(0, |app| app.wait_changed(seen, Nanos(timeout_ns)))
}

/// Promises to call `obol_progress` at least every `within_ns` nanoseconds from now on; 0 cancels
/// the promise. A member that breaks it is removed, although its process lives. A promise made
/// before `obol_join` counts from the join on; one made at an agent does not apply at its
/// successor.
///
/// # Safety
/// `app` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_promise_progress(app: *const App, within_ns: u64) {
    // SAFETY: the caller's promise.
    if let Some(app) = unsafe { app.as_ref() } {
        match &app.0 {
            Program::Attached(attached) => attached.promise_progress(Nanos(within_ns)),
            Program::Embedded(embedded) => embedded.promise_progress(Nanos(within_ns)),
        }
    }
}

/// Reports that the program makes progress.
///
/// # Safety
/// `app` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn obol_progress(app: *const App) {
    // SAFETY: the caller's promise.
    if let Some(app) = unsafe { app.as_ref() } {
        match &app.0 {
            Program::Attached(attached) => attached.progress(),
            Program::Embedded(embedded) => embedded.progress(),
        }
    }
}

//! How many tests have clusters at a time. A cluster is about nine processes which mostly wait, so some share a
//! host of two cores; those that would disturb others, or be disturbed by them, have it alone.

use parking_lot::{Condvar, Mutex};

/// Tests with clusters at a time.
const TOGETHER: usize = 4;

/// Why a test has no other one beside it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Alone {
    /// It passes only if times are as on a host that does little else: of drills whose bounds are judged, of
    /// pulses, of faults that a check has to inject within its time.
    Measures,
    /// Its processes are scheduled in real time, or wait by spinning: others would get no core.
    RealTime,
}

/// Who has the host.
struct Host {
    /// Shares that are taken.
    taken: usize,
    /// Who comes next waits for this turn, so that a test which wants all shares gets them.
    turn: u64,
    /// Turns that were given out.
    drawn: u64,
}

static HOST: Mutex<Host> = Mutex::new(Host { taken: 0, turn: 0, drawn: 0 });
static CHANGED: Condvar = Condvar::new();

/// A share of the host, or all of it. Ends when dropped.
#[derive(Debug)]
pub(crate) struct Share(usize);

impl Share {
    /// Waits for its turn, and for a share; for all of them with a reason to be alone.
    pub(crate) fn wait(alone: Option<Alone>) -> Self {
        let wanted = if alone.is_some() { TOGETHER } else { 1 };
        let mut host = HOST.lock();
        let mine = host.drawn;
        host.drawn += 1;
        CHANGED.wait_while(&mut host, |host| host.turn != mine || host.taken + wanted > TOGETHER);
        host.taken += wanted;
        host.turn += 1;
        CHANGED.notify_all();
        Self(wanted)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        HOST.lock().taken -= self.0;
        CHANGED.notify_all();
    }
}

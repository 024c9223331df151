//! Row 24: what hosts conclude from each other's pulses, compared with what the network has
//! delivered. A pulse counts if it was sent later, in true time, than all that have arrived before:
//! neither numbers nor lives of senders are looked at.

use super::violation::{Verdict, broken};
use crate::pulses::PulsePlan;
use obol_fabric::{Instant, Nanos};
use obol_fabric_ip::pulse::Finding;

/// A path is lost when it has missed as many newer pulses (docs/design/pulse.md): not read from what this
/// judges.
const PATH_BEHIND: u64 = 3;
/// How late a deadline may be noticed: clocks are converted to true time and back.
const ROUNDING: Nanos = Nanos(8);

/// What one host has heard of another.
#[derive(Clone, Debug)]
struct Heard {
    /// When the newest pulse was sent, in true time.
    sent: u64,
    /// When it arrived, by the clock of the host.
    at: Instant,
    is_suspected: bool,
    /// The host was stopped since, which has moved `at`.
    is_excused: bool,
    /// When the newest pulse was sent that the network has delivered while the host was stopped.
    waits: u64,
    /// By path: newer pulses that others have delivered since it last delivered any.
    missed: Vec<u64>,
    /// By path: whether the host has found it lost.
    lost: Vec<bool>,
}

/// What all hosts have heard.
#[derive(Debug)]
pub(crate) struct Pulsed {
    timeout: Nanos,
    hosts: u32,
    paths: usize,
    /// By host, and the host that it hears; `None` before its first pulse.
    heard: Vec<Option<Heard>>,
    /// Suspicions so far.
    pub(crate) silences: u64,
}

impl Pulsed {
    pub(crate) fn new(plan: &PulsePlan) -> Self {
        let PulsePlan { hosts, paths, .. } = *plan;
        let heard = vec![None; (hosts * hosts) as usize];
        Self { timeout: plan.timing.timeout, hosts, paths, heard, silences: 0 }
    }

    const fn place(&self, host: u32, of: u32) -> usize {
        (host * self.hosts + of) as usize
    }

    /// Whether a host suspects another one.
    pub(crate) fn suspects(&self, host: u32, of: u32) -> bool {
        self.heard[self.place(host, of)].as_ref().is_some_and(|heard| heard.is_suspected)
    }

    /// A host's gateway has started again, and knows nothing.
    pub(crate) fn forget(&mut self, host: u32) {
        for of in 0..self.hosts {
            let place = self.place(host, of);
            self.heard[place] = None;
        }
    }

    /// Pulses of a new life of the sender are expected.
    pub(crate) fn begin_life(&mut self, host: u32, of: u32) {
        let place = self.place(host, of);
        if let Some(heard) = &mut self.heard[place] {
            heard.missed.fill(0);
            heard.waits = 0;
        }
    }

    /// A pulse has reached a host that is stopped, and waits there.
    pub(crate) fn waits(&mut self, host: u32, of: u32, sent: u64) {
        let place = self.place(host, of);
        if let Some(heard) = &mut self.heard[place] {
            heard.waits = heard.waits.max(sent);
        }
    }

    /// A host continues that had no turn for `absence`. This time does not count as silence of the
    /// others: once until the next pulse.
    pub(crate) fn away(&mut self, host: u32, absence: Nanos) {
        for of in 0..self.hosts {
            let place = self.place(host, of);
            let heard = self.heard[place].as_mut().filter(|heard| !heard.is_excused && !heard.is_suspected);
            if let Some(heard) = heard {
                (heard.at, heard.is_excused) = (heard.at + absence, true);
            }
        }
    }

    /// A pulse was handed to a host. Returns whether it is newer than all before.
    pub(crate) fn arrived(&mut self, host: u32, of: u32, path: usize, sent: u64, at: Instant) -> bool {
        let (place, paths) = (self.place(host, of), self.paths);
        let is_first = self.heard[place].is_none();
        let heard = self.heard[place].get_or_insert_with(|| Heard {
            sent,
            at,
            is_suspected: false,
            is_excused: false,
            waits: 0,
            missed: vec![0; paths],
            lost: vec![false; paths],
        });
        let is_newer = is_first || sent > heard.sent;
        if is_newer {
            (heard.sent, heard.at, heard.is_excused) = (sent, at, false);
            heard.missed.iter_mut().for_each(|missed| *missed += 1);
        }
        heard.missed[path] = 0;
        is_newer
    }

    /// A host has concluded something about another one.
    pub(crate) fn found(&mut self, host: u32, of: u32, finding: Finding, at: Instant, now: u64) -> Verdict {
        let (place, timeout) = (self.place(host, of), self.timeout);
        let Some(heard) = &mut self.heard[place] else {
            return broken!(24, now, "host {host} finds {finding:?} of host {of}, which it has never heard");
        };
        match finding {
            Finding::Silent if at < heard.at + timeout => {
                let age = at.since(heard.at);
                broken!(
                    24,
                    now,
                    "host {host} suspects host {of} {age} after a new pulse arrived; the timeout is {timeout}"
                )
            }
            Finding::Silent if heard.waits > heard.sent => {
                broken!(24, now, "host {host} suspects host {of}, but a new pulse of it waits to be taken")
            }
            Finding::Silent => {
                heard.is_suspected = true;
                self.silences += 1;
                Ok(())
            }
            Finding::Heard => {
                heard.is_suspected = false;
                Ok(())
            }
            Finding::PathLost(path) if heard.missed[path] < PATH_BEHIND => {
                let missed = heard.missed[path];
                broken!(
                    24,
                    now,
                    "host {host} finds path {path} from host {of} lost, which has missed {missed} pulses"
                )
            }
            Finding::PathLost(path) | Finding::PathBack(path) => {
                heard.lost[path] = finding == Finding::PathLost(path);
                Ok(())
            }
            Finding::Died(_) | Finding::Vanished(_) => Ok(()),
        }
    }

    /// A host that runs has handled all until now: it suspects exactly those that are silent, and has
    /// found each path lost that has missed enough pulses.
    pub(crate) fn judge(&self, host: u32, at: Instant, now: u64) -> Verdict {
        for of in (0..self.hosts).filter(|of| *of != host) {
            let Some(heard) = &self.heard[self.place(host, of)] else { continue };
            let late = heard.missed.iter().zip(&heard.lost).position(|(n, lost)| *n >= PATH_BEHIND && !lost);
            if let Some(path) = late {
                let missed = heard.missed[path];
                return broken!(
                    24,
                    now,
                    "host {host} does not find path {path} from host {of} lost, which has missed {missed} pulses"
                );
            }
            let deadline = heard.at + self.timeout;
            if at > deadline + ROUNDING && !heard.is_suspected {
                let age = at.since(heard.at);
                let timeout = self.timeout;
                return broken!(
                    24,
                    now,
                    "host {host} does not suspect host {of}, {age} after its last new pulse; the timeout is {timeout}"
                );
            }
            if at < deadline && heard.is_suspected {
                return broken!(24, now, "host {host} suspects host {of}, whose pulses arrive again");
            }
        }
        Ok(())
    }
}

//! Clients that take locks by SET NX PX, extend them and look at them, on hosts whose clocks are wrong, while
//! leaders follow each other.

use super::{
    AFTERMATH, AGAIN_EVERY_MAX, CLIENTS, Client, Detector, Guard, Node, Operation, Plan, RECOVERY_MAX,
    ServiceRun, Store, stamped_by_client,
};
use crate::locks::{Locks, MS, Reached, Told};
use obol_smr::{Batch, Done};
use std::collections::BTreeMap;

/// The spans of the locks, in ms: much shorter than what follows a failover, a few times that, and many.
const SPANS_MS: [u64; 3] = [6, 20, 1000];
/// Leaders stay for this long, and up to five times that.
const CALM: u64 = 2 * MS;

/// What a client has sent, and when.
#[derive(Clone, Copy)]
struct Asked {
    key: usize,
    begin: u64,
    leaders: u64,
    act: LockAct,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LockAct {
    /// Takes it if it is free.
    Take,
    /// Gives it a new deadline, whichever owner it has: by PEXPIRE, or EXPIRE if its span is whole seconds.
    Extend,
    Look,
}

impl<D: Detector, G: Guard> Store<D, G> {
    /// Until leaders have changed so often. The judge knows true time, and what clients were told.
    pub(crate) fn locks(seed: u64, plan: &Plan, failovers: u64) -> Result<Reached, String> {
        let mut store = Self::start(seed, plan);
        store.steady()?;
        for client in CLIENTS {
            store.asked.entry(client).or_default().is_held = true;
        }
        let (mut locks, mut asked) = (Locks::new(&SPANS_MS), BTreeMap::new());
        while store.oracle.failovers < failovers {
            let leader = store.lock_until_whole(&mut locks, &mut asked)?;
            let calm = store.cluster.now() + CALM + store.rng.below(4 * CALM);
            store.lock_until(calm, &mut locks, &mut asked)?;
            if store.rng.permille(700) {
                store.cluster.kill(leader);
            } else {
                store.cluster.freeze(leader);
                store.lingers = true;
            }
            let soon = store.cluster.now() + MS / 4 + store.rng.below(MS);
            store.lock_until(soon, &mut locks, &mut asked)?;
        }
        store.lock_until_whole(&mut locks, &mut asked)?;
        store.all_told(&mut locks, &mut asked)?;
        locks.judge()
    }

    /// Clients work with locks until all faults are over and all voters have everything.
    fn lock_until_whole(
        &mut self,
        locks: &mut Locks,
        asked: &mut BTreeMap<u32, Asked>,
    ) -> Result<u32, String> {
        self.end_faults();
        if std::mem::take(&mut self.lingers) {
            self.lock_until(self.cluster.now() + AFTERMATH, locks, asked)?;
        }
        let end = self.cluster.now() + RECOVERY_MAX;
        while self.cluster.now() < end {
            if let Some(leader) = self.whole() {
                return Ok(leader);
            }
            self.lock_until(self.cluster.now() + MS / 50, locks, asked)?;
        }
        Err(format!("invariant 12: not redundant again: {}", self.states()))
    }

    /// Clients begin nothing more, and get their answers: what may have taken effect is known then.
    fn all_told(&mut self, locks: &mut Locks, asked: &mut BTreeMap<u32, Asked>) -> Result<(), String> {
        let end = self.cluster.now() + 2 * AGAIN_EVERY_MAX.0;
        while !asked.is_empty() {
            if self.cluster.now() > end {
                return Err(format!("invariant 12: {:?} have no answer: {}", asked.keys(), self.states()));
            }
            self.hear(locks, asked)?;
            self.run_until(self.cluster.now() + 10_000)?;
        }
        Ok(())
    }

    /// Takes the answers that are there.
    fn hear(&mut self, locks: &mut Locks, asked: &mut BTreeMap<u32, Asked>) -> Result<(), String> {
        for client in CLIENTS {
            let taken = self.cluster.machine_mut(client).member_mut().and_then(Node::client);
            if let Some(done) = taken.and_then(Client::take)
                && let Some(asked) = asked.remove(&client)
            {
                self.told(client, asked, &done)?.into_iter().for_each(|told| locks.tell(told));
            }
        }
        Ok(())
    }

    /// Clients work with locks until a time.
    fn lock_until(
        &mut self,
        end: u64,
        locks: &mut Locks,
        asked: &mut BTreeMap<u32, Asked>,
    ) -> Result<(), String> {
        while self.cluster.now() < end {
            self.hear(locks, asked)?;
            for client in CLIENTS {
                if !asked.contains_key(&client) && self.rng.permille(50) {
                    self.ask_for_lock(client, asked);
                }
            }
            let soon = self.cluster.now() + 10_000;
            self.run_until(soon)?;
        }
        Ok(())
    }

    fn ask_for_lock(&mut self, client: u32, asked: &mut BTreeMap<u32, Asked>) {
        let key = self.rng.below(SPANS_MS.len() as u64) as usize;
        let act = match self.rng.below(40) {
            0..16 => LockAct::Take,
            // Seldom: it has to end sometimes.
            16 => LockAct::Extend,
            _ => LockAct::Look,
        };
        let (name, span) = (format!("lock{key}"), SPANS_MS[key]);
        let (owner, span_ms) = (client.to_string(), span.to_string());
        let seconds = (span / 1000).to_string();
        let own: &[&str] = match act {
            LockAct::Take => &["SET", &name, &owner, "NX", "PX", &span_ms],
            LockAct::Extend if span % 1000 == 0 => &["EXPIRE", &name, &seconds],
            LockAct::Extend => &["PEXPIRE", &name, &span_ms],
            LockAct::Look => &["STRLEN", &name],
        };
        let mut batch = Batch::default();
        for command in [&["GET", &name][..], own, &["PTTL", &name], &["TTL", &name]] {
            assert!(batch.push(command), "four short commands");
        }
        let batch = stamped_by_client(&batch.bytes());
        let operation =
            if act == LockAct::Look { Operation::Query(batch) } else { Operation::Propose(batch) };
        let (begin, leaders) = (self.cluster.now(), self.oracle.failovers);
        if self.begin(client, operation) {
            asked.insert(client, Asked { key, begin, leaders, act });
        }
    }

    /// What an answer says; `None` for a look that needs an entry, because time has to pass in the log first.
    fn told(&self, client: u32, asked: Asked, done: &Done) -> Result<Option<Told>, String> {
        let Asked { key, begin, leaders, act } = asked;
        let replies = Batch::replies(&done.reply).ok_or("no replies")?;
        let text = |n: usize| replies.get(n).map(|reply: &&[u8]| String::from_utf8_lossy(reply).into_owned());
        let [Some(owner), Some(own), Some(left), Some(seconds)] = [0, 1, 2, 3].map(text) else {
            return if act == LockAct::Look { Ok(None) } else { Err(format!("{} replies", replies.len())) };
        };
        let number = |text: &str| {
            let digits = text.trim_start_matches(':').trim_end();
            digits.parse::<i64>().map_err(|error| format!("{text}: {error}"))
        };
        let owner =
            owner.lines().nth(1).map(str::parse::<u64>).transpose().map_err(|error| format!("{error}"))?;
        let given = match act {
            LockAct::Take if own.starts_with('+') => Some(u64::from(client)),
            LockAct::Extend if own.starts_with(":1") => owner,
            _ => None,
        };
        let (left_ms, seconds) = (number(&left)?, number(&seconds)?);
        let rounded = if left_ms < 0 { left_ms } else { (left_ms + 500) / 1000 };
        if seconds != rounded {
            return Err(format!("TTL says {seconds}, PTTL {left_ms}"));
        }
        let (end, last) = (self.cluster.now(), self.oracle.failovers);
        Ok(Some(Told { key, begin, end, leaders: (leaders, last), owner, given, left_ms }))
    }
}

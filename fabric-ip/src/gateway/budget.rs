//! What the processes of a host that were let in may cost. A certificate says that a host belongs to
//! the cluster, not that its programs behave: each host has a budget of its own, one for its observers
//! and one for its members, so that neither takes time, memory or descriptors from anyone else.

use obol_fabric::host::{FIRST_FREE, PER_HOST};
use obol_fabric::types::Nanos;
use obol_identity::{KNOWN_HANDSHAKES_MAX, STRANGERS_MAX};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The work in a turn, in bytes that are decrypted and encrypted. What is beyond waits for the next
/// turn, in which all others have their shares as well.
pub(super) const SHARE: usize = 256 << 10;
/// The work of a message beside its bytes.
pub(super) const MESSAGE_WORK: usize = 64;
/// Answers of a session that wait to be taken, in bytes: no further request is executed before.
pub(super) const UNSENT_MAX: usize = 1 << 20;
/// The same for all sessions of a budget together: beyond it, none that has any is served further.
pub(super) const UNSENT_OF_HOST_MAX: usize = 8 << 20;
/// A session whose answers wait, and that takes none for this long, is ended.
pub(super) const STALLED_MAX: Nanos = Nanos::from_secs(10);
/// How often that is looked for.
pub(super) const STALLED_EVERY: Nanos = Nanos::from_secs(1);
/// Sessions of observers of a host. For a further one, that which was used least recently is ended.
/// (A member has one session for each region, and a gateway one for its pulses.)
pub(super) const READERS_MAX: usize = 64;
/// The same where the system allows few descriptors.
const READERS_MIN: usize = 4;
/// Watches of a session, and of all sessions of a budget: more than a host has processes to watch.
pub(super) const WATCHES_MAX: usize = 1024;
pub(super) const WATCHES_OF_HOST_MAX: usize = 4096;
/// Changes of watches that wait for the watching thread: further requests of the budget wait.
const COMMANDS_MAX: usize = 256;
/// Questions without an answer. The gateway's program has a thread for each.
pub(super) const QUESTIONS_MAX: usize = 4;

/// Descriptors beside those for other hosts: files, regions, processes that are watched.
const OWN_DESCRIPTORS: usize = 256;
/// Sessions with a region of a host.
const MEMBERS_MAX: usize = (PER_HOST + FIRST_FREE) as usize;

/// How many observers of a host may have a session, so that descriptors are left for members.
pub(super) fn readers_max(descriptors: usize, hosts: usize) -> usize {
    let shared = descriptors.saturating_sub(OWN_DESCRIPTORS + STRANGERS_MAX);
    let of_host = shared / hosts.max(1);
    of_host.saturating_sub(MEMBERS_MAX + KNOWN_HANDSHAKES_MAX).clamp(READERS_MIN, READERS_MAX)
}

/// Whose budget it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Payer {
    /// The host of the certificate.
    pub(super) host: u8,
    /// Whether it is that of its observers.
    pub(super) reads: bool,
}

/// What was used of a budget.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// In this turn.
    work: usize,
    /// Whether something waits for the next turn because of it.
    pub(super) is_overdrawn: bool,
    pub(super) unsent: usize,
    pub(super) watches: usize,
    pub(super) questions: usize,
    /// Each command that waits has a clone.
    commands: Arc<()>,
}

impl Account {
    /// What is left of its share of this turn.
    pub(super) const fn left(&self) -> usize {
        SHARE.saturating_sub(self.work)
    }

    pub(super) const fn work(&mut self, work: usize) {
        self.work = self.work.saturating_add(work);
    }

    /// Whether the watching thread still has enough of it to do.
    pub(super) fn has_commands(&self) -> bool {
        Arc::strong_count(&self.commands) > COMMANDS_MAX
    }

    /// To be kept until a command is carried out.
    pub(super) fn command(&self) -> Arc<()> {
        Arc::clone(&self.commands)
    }

    /// How much may wait for a session to take it.
    pub(super) const fn unsent_max(&self) -> usize {
        if self.unsent > UNSENT_OF_HOST_MAX { 0 } else { UNSENT_MAX }
    }
}

/// All budgets.
#[derive(Debug, Default)]
pub(super) struct Accounts(BTreeMap<Payer, Account>);

impl Accounts {
    pub(super) fn of(&mut self, payer: Payer) -> &mut Account {
        self.0.entry(payer).or_default()
    }

    /// Returns how many have used up their shares, so that something waits.
    pub(super) fn next_turn(&mut self) -> u64 {
        let mut overdrawn = 0;
        for account in self.0.values_mut() {
            account.work = 0;
            overdrawn += u64::from(core::mem::take(&mut account.is_overdrawn));
        }
        overdrawn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_descriptors_leave_room_for_the_members_of_all_hosts() {
        assert_eq!(readers_max(1024, 3), READERS_MAX);
        assert_eq!(readers_max(0, 0), READERS_MIN);
        for (descriptors, hosts) in [(1024, 3), (1024, 6), (4096, 31), (1 << 20, 31)] {
            let readers = readers_max(descriptors, hosts);
            let all =
                OWN_DESCRIPTORS + STRANGERS_MAX + hosts * (readers + MEMBERS_MAX + KNOWN_HANDSHAKES_MAX);
            assert!(all <= descriptors, "{all} of {descriptors} for {hosts} hosts");
        }
    }

    #[test]
    fn a_budget_of_one_host_is_not_used_by_another_one_nor_that_of_members_by_observers() {
        let mut accounts = Accounts::default();
        let [reader, member, other] =
            [(3, true), (3, false), (2, true)].map(|(host, reads)| Payer { host, reads });
        accounts.of(reader).work(SHARE + 1);
        accounts.of(reader).unsent = UNSENT_OF_HOST_MAX + 1;
        let waiting: Vec<_> = (0..COMMANDS_MAX).map(|_| accounts.of(reader).command()).collect();
        for (payer, left) in [(reader, 0), (member, SHARE), (other, SHARE)] {
            let account = accounts.of(payer);
            let full = (account.unsent_max() == 0, account.has_commands());
            assert_eq!((account.left(), full), (left, (left == 0, left == 0)), "{payer:?}");
        }
        accounts.of(reader).is_overdrawn = true;
        assert_eq!((accounts.next_turn(), accounts.next_turn()), (1, 0));
        drop(waiting);
        assert_eq!((accounts.of(reader).left(), accounts.of(reader).has_commands()), (SHARE, false));
    }
}

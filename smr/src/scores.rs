//! The pull score of Mu as a detector (Mu, 5.1): each replica counts in its own memory, reads the
//! counters of the others, and takes the one with the lowest id of those that count for the leader.
//!
//! The id of a voter is its position in the configuration, which lists voters by how long they have
//! voted. So one that joins never leads before those that voted already: it learns that it votes later
//! than they do, and who leads is the same in the configurations before and after it. Places do not
//! give that order: they are assigned again. Views say which processes there are, with their addresses;
//! they say nothing of who leads, and a view without a leader changes no term.
//!
//! Where this differs from Mu:
//!
//! - A score begins at its maximum. Mu says nothing of this; otherwise each replica would first take
//!   itself for the leader.
//! - A READ that is under way changes no score, and one that fails sets it to the minimum: that is the
//!   timeout of the connection, which Mu calls the longer one.
//! - A replica keeps a score of itself, too: it considers itself alive when its own counter goes on. In
//!   Mu the counter of a leader that is stuck stands still for others only, so it would ask for the
//!   permission to write again and again.
//! - Fate sharing, which Mu's authors describe and did not build: the counter stands still while the
//!   replication plane has no turn, or has had something to do for [`STUCK_AFTER`] looks without
//!   getting on. Mu looks every 10,000 iterations, at calls of `propose` only; here a takeover counts
//!   as well.
//! - A replica that a majority of the voters takes for failed does not consider itself alive either: each
//!   publishes whom it takes for failed, beside its counter. A leader that reaches the others and is not
//!   reached by them would otherwise take the permissions back from its successor, and never learn that
//!   it has them. It leads again when the others find that its counter goes on.
//! - The term of a leader is its proposal number (4.1). It is chosen before the permission is asked
//!   for, above all that the headers of others have shown, and ends with the place of the leader, so no
//!   two leaders have the same. Mu reads the minimum proposals after the permission is granted. If one
//!   was missed, its owner does not grant the permission, and the next look shows it.

use crate::area::{HEADER_BYTES, PLACES};
use crate::config::Voter;
use crate::follow::{Activity, Header, Places};
use crate::members;
use crate::mutants::{ActiveMutant, Mutant};
use crate::position::Term;
use crate::preset::{Detector, Known, Leadership, Others, Work};
use crate::tokens::{Part, token};
use core::sync::atomic::Ordering;
use obol_fabric::sealed::word;
use obol_fabric::{Address, Fabric, Incarnation, Instant, LinkError, Nanos, Remote};
use obol_membership::View;

/// The highest score (Mu, 5.1); the lowest is 0.
const SCORE_MAX: u8 = 15;
/// A replica whose score drops below this has failed (Mu, 5.1).
const FAILED_BELOW: u8 = 2;
/// A replica whose score exceeds this is alive again (Mu, 5.1).
const ALIVE_ABOVE: u8 = 6;
/// Looks after which a replication plane that gets nowhere is stuck.
const STUCK_AFTER: u32 = 20;
/// Looks before the next term is tried: a replica that considers this one dead, and leads itself, finds
/// out within this time that it is alive.
const NEXT_TERM_AFTER: u64 = ALIVE_ABOVE as u64 + 2;
/// Higher terms are not those of any leader: an entry has no room for the one after them.
const TERM_MAX: u64 = (1 << 48) - 2 * PLACES as u64;

/// What one replica thinks of another one, or of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Score {
    points: u8,
    is_alive: bool,
}

impl Default for Score {
    fn default() -> Self {
        Self { points: SCORE_MAX, is_alive: true }
    }
}

impl Score {
    /// After a look at the counter: whether it has gone on.
    fn count(&mut self, went_on: bool) {
        self.points = if went_on { (self.points + 1).min(SCORE_MAX) } else { self.points.saturating_sub(1) };
        // Two thresholds, so that it does not oscillate.
        self.is_alive = self.points > ALIVE_ABOVE || self.is_alive && self.points >= FAILED_BELOW;
    }

    /// The connection has failed.
    const fn fail(&mut self) {
        (self.points, self.is_alive) = (0, false);
    }
}

/// Another replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Other {
    at: Address,
    /// Distinguishes the READs of it.
    id: u32,
    score: Score,
    counter: u64,
    /// `None` until it was whole once.
    header: Option<Header>,
    is_outstanding: bool,
}

/// Whether the replication plane gets on (Mu, 5.1, fate sharing).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Fate {
    last: Work,
    /// Looks since it got on.
    quiet: u32,
}

impl Fate {
    fn look(&mut self, work: Work) {
        let is_stuck = work.pending.is_some() && work.pending == self.last.pending;
        self.quiet = if is_stuck || work.turns == self.last.turns { self.quiet.saturating_add(1) } else { 0 };
        self.last = work;
    }

    const fn is_stuck(&self) -> bool {
        self.quiet >= STUCK_AFTER
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PullScore {
    /// The replicas of the newest view.
    replicas: Vec<(Incarnation, Address)>,
    others: Vec<Other>,
    own: Score,
    counter: u64,
    /// The own counter at the last look.
    looked: u64,
    fate: Fate,
    leadership: Option<Leadership>,
    /// The voters that it takes for failed.
    failed: Places,
    /// To whom this replica reports.
    leader: Option<(Incarnation, Address)>,
    look_at: Instant,
    /// The newest term in which it was excluded.
    lost: Term,
    /// When the next term may be tried.
    term_at: Instant,
    ids: u32,
    mutant: ActiveMutant,
}

impl PullScore {
    /// Counts in its own memory, unless this replica is not a member or its fate is shared.
    fn count<F: Fabric>(&mut self, known: &Known<'_>, fabric: &F) {
        let shares = !self.mutant.has(Mutant::FateUnshared);
        if known.own.is_none() || shares && self.fate.is_stuck() {
            return;
        }
        self.counter += 1;
        if let Some([word]) = fabric.own(known.area.counter(), 8) {
            word.store(self.counter, Ordering::Relaxed);
        }
    }

    /// READs the counters, and the headers beside them, of all voters and of the replicas of the view.
    fn look<F: Fabric>(&mut self, known: &Known<'_>, fabric: &mut F) {
        self.fate.look(known.work);
        self.own.count(self.counter != core::mem::replace(&mut self.looked, self.counter));
        let voters = known.config.voters.iter().map(|voter| voter.address);
        let all: Vec<Address> = voters.chain(self.replicas.iter().map(|(_, at)| *at)).collect();
        self.others.retain(|other| all.contains(&other.at));
        let own = fabric.address();
        for at in all {
            if at != own && !self.others.iter().any(|other| other.at == at) {
                self.ids += 1;
                let (id, score) = (self.ids, Score::default());
                self.others.push(Other { at, id, score, counter: 0, header: None, is_outstanding: false });
            }
        }
        for other in self.others.iter_mut().filter(|other| !other.is_outstanding) {
            other.is_outstanding = true;
            let from = Remote { at: other.at, offset: known.area.header() };
            fabric.read(from, HEADER_BYTES, token(Part::Pull, other.id));
        }
    }

    /// The voters that are not alive by their scores.
    fn find_failed(&self, known: &Known<'_>, own: Address) -> Places {
        let is_alive = |at: Address| {
            let score = self.others.iter().find(|other| other.at == at).map(|other| other.score);
            if at == own { self.own.is_alive } else { score.is_some_and(|score| score.is_alive) }
        };
        let mut failed = Places::default();
        for voter in known.config.voters.iter().filter(|voter| !is_alive(voter.address)) {
            failed.add(voter.place);
        }
        failed
    }

    /// Whether a majority of the voters takes this one for failed, by what those say that are alive.
    fn is_given_up(&self, known: &Known<'_>, place: u8) -> bool {
        let says = |other: &&Other| {
            let votes = known.config.voter(other.at).is_some() && other.score.is_alive;
            votes && other.header.is_some_and(|header| header.log == known.log && header.failed.has(place))
        };
        self.others.iter().filter(says).count() >= known.config.majority()
    }

    /// The voter with the lowest id of those that are alive (Mu, 5.1).
    fn lowest(&self, known: &Known<'_>, own: Address) -> Option<(u8, Address)> {
        let is_given_up =
            |place: u8| self.is_given_up(known, place) && !self.mutant.has(Mutant::LeadsUnreached);
        let may_lead = |voter: &&Voter| {
            let is_able = || voter.address != own || known.own.is_some() && !is_given_up(voter.place);
            !self.failed.has(voter.place) && is_able()
        };
        let lowest = known.config.voters.iter().find(may_lead);
        lowest.map(|voter| (voter.place, voter.address))
    }

    /// The highest term that is known here: the minimum proposals of Mu (4.1).
    fn newest_term(&self, known: &Known<'_>) -> Term {
        // Of a replica with another log it needs no permission.
        let needed = |header: &Header| header.log == known.log || header.log == 0;
        let headers = self.others.iter().filter_map(|other| other.header).filter(needed);
        headers
            .map(|header| header.granted)
            .chain([known.granted, known.lost])
            .filter(|term| term.0 <= TERM_MAX)
            .max()
            .unwrap_or_default()
    }

    /// The leadership of this replica: the one that it has, or the next one.
    fn own_reign(&mut self, now: Instant, known: &Known<'_>, place: u8, at: Address) -> Option<Leadership> {
        let leader = known.own?;
        let newest = self.newest_term(known);
        let present = self.leadership.filter(|leadership| leadership.leader == leader);
        if known.lost > self.lost {
            // The replica that excluded it leads until it finds out that this one is alive.
            (self.lost, self.term_at) = (known.lost, now + pause(known));
        }
        let is_good = present.is_some_and(|it| it.term > known.lost && it.term >= newest);
        if is_good || present.is_some() && now < self.term_at {
            return present;
        }
        self.term_at = now + pause(known);
        let newest = newest.max(present.map_or(Term(0), |present| present.term));
        Some(Leadership { leader, at, term: next_term(newest, place) })
    }

    fn incarnation(&self, at: Address) -> Option<Incarnation> {
        self.replicas.iter().find_map(|(who, address)| (*address == at).then_some(*who))
    }

    /// The replica that leads or takes over in the highest term, by the replicas' own headers.
    fn leader_by_headers(&self, known: &Known<'_>) -> Option<(Incarnation, Address)> {
        let leads = |header: &Header| {
            let is_of_log = header.log != 0 && (header.log == known.log || known.log == 0);
            is_of_log && matches!(header.activity, Activity::Leads | Activity::TakesOver | Activity::Stalls)
        };
        let leading = self.others.iter().filter_map(|other| {
            let header = other.header.filter(leads)?;
            Some((header.granted, self.incarnation(other.at)?, other.at))
        });
        leading.max_by_key(|(term, ..)| *term).map(|(_, who, at)| (who, at))
    }
}

const fn pause(known: &Known<'_>) -> Nanos {
    known.every.saturating_mul(NEXT_TERM_AFTER)
}

/// The next term of the replica with this place after another one.
fn next_term(after: Term, place: u8) -> Term {
    Term((after.0 / u64::from(PLACES) + 1) * u64::from(PLACES) + u64::from(place))
}

impl Detector for PullScore {
    const OF_VIEWS: bool = false;

    fn install(&mut self, view: &View) {
        self.replicas = members::replicas(view).map(|member| (member.incarnation, member.address)).collect();
    }

    fn leadership(&self) -> Option<Leadership> {
        self.leadership
    }

    fn leader(&self) -> Option<(Incarnation, Address)> {
        self.leader
    }

    fn failed(&self) -> Places {
        self.failed
    }

    fn others(&self, (own, may_bootstrap): (Incarnation, bool)) -> Others {
        let header = |at: Address| self.others.iter().find(|other| other.at == at).and_then(|it| it.header);
        let others = self.replicas.iter().filter(|(who, _)| *who != own);
        let headers: Vec<(Incarnation, Option<Header>)> =
            others.map(|(who, at)| (*who, header(*at))).collect();
        Others::of((own, may_bootstrap), &headers)
    }

    fn poll<F: Fabric>(&mut self, now: Instant, known: &Known<'_>, fabric: &mut F) -> bool {
        self.count(known, fabric);
        if now >= self.look_at {
            self.look_at = now + known.every;
            self.look(known, fabric);
        }
        self.leader = self.leader_by_headers(known);
        let own = fabric.address();
        self.failed = self.find_failed(known, own);
        let leadership = match self.lowest(known, own) {
            Some((place, at)) if at == own => self.own_reign(now, known, place, at),
            // Its term is its own affair.
            Some((_, at)) => {
                Some(Leadership { leader: self.incarnation(at).unwrap_or_default(), at, term: Term(0) })
            }
            None => None,
        };
        core::mem::replace(&mut self.leadership, leadership) != leadership
    }

    fn on_read(&mut self, argument: u32, result: Result<&[u8], LinkError>) {
        let Some(other) = self.others.iter_mut().find(|other| other.id == argument) else { return };
        other.is_outstanding = false;
        match result {
            Ok(bytes) => {
                let counter = word(bytes, HEADER_BYTES as usize / 8 - 1).unwrap_or_default();
                other.score.count(core::mem::replace(&mut other.counter, counter) != counter);
                // One that was torn is whole at the next look.
                other.header = Header::decode(bytes).or(other.header);
            }
            // This says nothing of the other one.
            Err(LinkError::Unmapped) => {}
            Err(_) => other.score.fail(),
        }
    }

    #[cfg(feature = "mutants")]
    fn plant(&mut self, mutant: Mutant) {
        self.mutant = ActiveMutant::new(mutant);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_has_two_thresholds_and_two_bounds() {
        let mut score = Score::default();
        let mut looks_until = |went_on: bool, is_alive: bool| {
            (1..100).find(|_| {
                score.count(went_on);
                score.is_alive == is_alive
            })
        };
        // From 15 to 1; from there to 7; and back to 1.
        assert_eq!(looks_until(false, false), Some(14));
        assert_eq!(looks_until(true, true), Some(6));
        assert_eq!(looks_until(false, false), Some(6));
        let mut score = Score::default();
        (0..100).for_each(|_| score.count(true));
        assert_eq!(score, Score::default());
        score.fail();
        (0..100).for_each(|_| score.count(false));
        assert_eq!(score, Score { points: 0, is_alive: false });
    }

    #[test]
    fn terms_grow_and_no_two_places_share_one() {
        let mut all = Vec::new();
        for after in 0..64 {
            for place in 0..PLACES {
                let next = next_term(Term(after), place);
                assert!(next > Term(after));
                assert_eq!(next.0 % u64::from(PLACES), u64::from(place));
                all.push((next, place));
            }
        }
        assert!(next_term(Term(TERM_MAX), PLACES - 1).0 < 1 << 48, "an entry has 48 bits for it");
        let shared = |(one, other): (&(Term, u8), &(Term, u8))| one.0 == other.0 && one.1 != other.1;
        all.sort_unstable();
        assert!(!all.iter().zip(&all[1..]).any(shared));
    }

    #[test]
    fn a_plane_is_stuck_that_has_no_turn_or_gets_nowhere() {
        let stuck_after = |work: &dyn Fn(u64) -> Work| {
            let mut fate = Fate::default();
            (1..100).find(|look| {
                fate.look(work(*look));
                fate.is_stuck()
            })
        };
        assert_eq!(stuck_after(&|turns| Work { turns, pending: None }), None);
        assert_eq!(stuck_after(&|turns| Work { turns, pending: Some(turns) }), None);
        // The first look has nothing to compare with.
        let after = Some(u64::from(STUCK_AFTER) + 1);
        assert_eq!(stuck_after(&|turns| Work { turns, pending: Some(7) }), after);
        assert_eq!(stuck_after(&|_| Work { turns: 1, pending: None }), after);
    }
}

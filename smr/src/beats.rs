//! The detector of DARE (4.2.2): the leader writes heartbeats into the memory of the others, and a server
//! that finds none in its period takes it for failed, and becomes a candidate.
//!
//! [`crate::Votes`] writes and finds the heartbeats; who has them decides here. Where this differs from
//! DARE:
//!
//! - A server suspects only a leader. DARE begins with everybody suspecting all others; here a server
//!   waits for one period.
//! - The period grows by its first value, up to [`PERIODS_MAX`] of them. DARE increments it without end,
//!   so that a leader that is slower than any given bound is trusted at some time.
//! - The timeouts of candidates are drawn from the term and the server's incarnation, as the machines draw
//!   nothing at random: no two candidates have the same again and again.
//! - Views say which processes there are, with their addresses. They say nothing of who leads.

use crate::area::HEADER_BYTES;
use crate::follow::Header;
use crate::members;
use crate::position::Term;
use crate::preset::{Detector, Known, Leadership, Others};
use crate::tokens::{Part, token};
use obol_fabric::{Address, Fabric, Incarnation, Instant, LinkError, Nanos, Remote};
use obol_membership::View;
use obol_rng::SplitMix;

/// Heartbeats of a leader in the first period.
const BEATS_IN_PERIOD: u64 = 30;
/// A server that suspects the leader while another one asks for its vote waits this many request
/// intervals before it asks for votes itself.
const ASKS_WAITED: u64 = 4;
/// The longest period, in first ones.
const PERIODS_MAX: u64 = 32;

/// A replica whose header is READ before there is a log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Other {
    who: Incarnation,
    at: Address,
    id: u32,
    header: Option<Header>,
    is_outstanding: bool,
}

/// The heartbeats of a leader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Beats {
    others: Vec<Other>,
    replicas: Vec<(Incarnation, Address)>,
    leadership: Option<Leadership>,
    /// A heartbeat has come since the check before the last one.
    trusts: bool,
    /// A heartbeat has come since the last check.
    heard: bool,
    /// The counts of [`crate::Election`] at the last check.
    beats: u64,
    stale: u64,
    votes: u64,
    ignored: u64,
    /// How often the period grew.
    grown: u64,
    check_at: Option<Instant>,
    look_at: Instant,
    ids: u32,
}

impl Beats {
    fn period(&self, known: &Known<'_>) -> Nanos {
        known.every.saturating_mul(BEATS_IN_PERIOD * (1 + self.grown))
    }

    /// How long a candidate waits for votes (DARE, 3.2.2): one period to two.
    fn timeout(&self, known: &Known<'_>, term: Term) -> Nanos {
        let period = self.period(known);
        let seed = known.own.unwrap_or_default().0 << 32 ^ term.0;
        Nanos(period.0 + SplitMix::new(seed).next_u64() % period.0.max(1))
    }

    /// Who else has a log: only a server without one needs to know.
    fn look<F: Fabric>(&mut self, known: &Known<'_>, fabric: &mut F) {
        let replicas = &self.replicas;
        self.others.retain(|other| replicas.contains(&(other.who, other.at)));
        for &(who, at) in replicas {
            if at != fabric.address() && !self.others.iter().any(|other| other.who == who) {
                self.ids += 1;
                self.others.push(Other { who, at, id: self.ids, header: None, is_outstanding: false });
            }
        }
        for other in self.others.iter_mut().filter(|other| !other.is_outstanding) {
            other.is_outstanding = true;
            let from = Remote { at: other.at, offset: known.area.header() };
            fabric.read(from, HEADER_BYTES, token(Part::Pull, other.id));
        }
    }

    /// Its own leadership, as a candidate or leader, unless it is over.
    fn continued(&mut self, now: Instant, known: &Known<'_>, mut own: Leadership) -> Option<Leadership> {
        let election = &known.election;
        // Another candidate has won.
        let is_beaten = election.leader.is_some_and(|other| other.term >= own.term && !known.leads);
        let is_outdated = election.term > own.term || known.lost >= own.term || is_beaten;
        if is_outdated || known.own != Some(own.leader) {
            self.check_at = Some(now + self.period(known));
            self.trusts = false;
            return None;
        }
        if !known.leads && self.check_at.is_some_and(|at| now >= at) {
            own.term = Term(election.term.max(own.term).0 + 1);
            self.check_at = Some(now + self.timeout(known, own.term));
        }
        Some(own)
    }

    /// The periodic check of a server that neither leads nor wants to.
    fn check(&mut self, now: Instant, known: &Known<'_>, at: Address) -> Option<Leadership> {
        let election = &known.election;
        let leader = election.leader;
        let has_come = election.beats != core::mem::replace(&mut self.beats, election.beats);
        self.trusts |= has_come;
        if election.votes != core::mem::replace(&mut self.votes, election.votes) || self.check_at.is_none() {
            self.check_at = Some(now + self.period(known));
        }
        self.heard |= has_come;
        if self.check_at.is_some_and(|at| now < at) {
            return leader;
        }
        if election.stale != core::mem::replace(&mut self.stale, election.stale) {
            // A leader was outdated that runs: the suspicion may have been false (4.2.2).
            self.grown = (self.grown + 1).min(PERIODS_MAX - 1);
        }
        self.check_at = Some(now + self.period(known));
        self.trusts = core::mem::take(&mut self.heard);
        let is_asked = election.ignored != core::mem::replace(&mut self.ignored, election.ignored);
        let Some(own) = known.own.filter(|_| known.stands && !self.trusts) else { return leader };
        if is_asked {
            // Another server has found the same first, and asks again.
            self.check_at = Some(now + known.every.saturating_mul(ASKS_WAITED));
            return leader;
        }
        let term = Term(election.term.0 + 1);
        self.check_at = Some(now + self.timeout(known, term));
        Some(Leadership { leader: own, at, term })
    }
}

impl Detector for Beats {
    const OF_VIEWS: bool = false;

    fn install(&mut self, view: &View) {
        self.replicas = members::replicas(view).map(|member| (member.incarnation, member.address)).collect();
    }

    fn leadership(&self) -> Option<Leadership> {
        self.leadership
    }

    fn trusts(&self) -> bool {
        self.trusts
    }

    fn others(&self, own: (Incarnation, bool)) -> Others {
        let others = self.replicas.iter().filter(|(who, _)| *who != own.0);
        let header = |who: Incarnation| self.others.iter().find(|other| other.who == who)?.header;
        let headers: Vec<(Incarnation, Option<Header>)> =
            others.map(|(who, _)| (*who, header(*who))).collect();
        Others::of(own, &headers)
    }

    fn poll<F: Fabric>(&mut self, now: Instant, known: &Known<'_>, fabric: &mut F) -> bool {
        if known.log == 0 && now >= self.look_at {
            self.look_at = now + known.every;
            self.look(known, fabric);
        }
        let before = self.leadership;
        let is_own = |leadership: &Leadership| leadership.at == fabric.address();
        self.leadership = match before.filter(is_own) {
            Some(own) => {
                self.trusts = known.leads;
                self.continued(now, known, own)
            }
            None => self.check(now, known, fabric.address()),
        };
        self.leadership != before
    }

    fn on_read(&mut self, argument: u32, result: Result<&[u8], LinkError>) {
        let Some(other) = self.others.iter_mut().find(|other| other.id == argument) else { return };
        other.is_outstanding = false;
        if let Ok(bytes) = result {
            other.header = Header::decode(bytes).or(other.header);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::area::Area;
    use crate::config::Config;
    use crate::preset::{Election, Work};
    use obol_fabric::{Layout, Limits};

    const OWN: Incarnation = Incarnation(5);
    const EVERY: Nanos = Nanos(10);
    const PERIOD: u64 = BEATS_IN_PERIOD * EVERY.0;

    fn known(config: &Config, election: Election) -> Known<'_> {
        let limits = Limits { slots: 8, proposers: 7, value_bytes: 1536, ..Limits::LEAST };
        Known {
            area: Area::of(&Layout::new(limits).expect("in bounds")).expect("there is room"),
            every: EVERY,
            own: Some(OWN),
            config,
            log: 7,
            granted: election.term,
            lost: Term(0),
            work: Work::default(),
            leads: false,
            stands: true,
            election,
        }
    }

    fn heartbeat(beats: u64) -> Election {
        let leader = Some(Leadership { leader: Incarnation(1), at: Address::region(1), term: Term(3) });
        Election { term: Term(3), beats, leader, ..Election::default() }
    }

    #[test]
    fn a_leader_without_heartbeats_for_a_period_is_suspected() {
        let (mut beats, config, at) = (Beats::default(), Config::default(), Address::region(2));
        let mut check = |now: u64, election| beats.check(Instant(now), &known(&config, election), at);
        assert_eq!(check(0, heartbeat(1)).map(|leadership| leadership.leader), Some(Incarnation(1)));
        assert_eq!(check(PERIOD, heartbeat(1)).map(|leadership| leadership.leader), Some(Incarnation(1)));
        let leadership = check(2 * PERIOD, heartbeat(1));
        assert_eq!(leadership, Some(Leadership { leader: OWN, at, term: Term(4) }));
        assert!(!beats.trusts());
    }

    #[test]
    fn a_period_grows_with_heartbeats_of_lower_terms() {
        let (mut beats, config, at) = (Beats::default(), Config::default(), Address::region(2));
        let period = |beats: &Beats| beats.period(&known(&config, heartbeat(0))).0;
        assert_eq!(period(&beats), PERIOD);
        let mut now = 0;
        for stale in 1..100 {
            now += PERIODS_MAX * PERIOD;
            beats.check(Instant(now), &known(&config, Election { stale, ..heartbeat(stale) }), at);
            assert_eq!(period(&beats), stale.clamp(1, PERIODS_MAX) * PERIOD);
        }
    }

    #[test]
    fn candidates_have_different_timeouts_of_one_period_to_two() {
        let (beats, config) = (Beats::default(), Config::default());
        let known = known(&config, heartbeat(0));
        let all: Vec<u64> = (0..20).map(|term| beats.timeout(&known, Term(term)).0).collect();
        assert!(all.iter().all(|timeout| (PERIOD..2 * PERIOD).contains(timeout)), "{all:?}");
        assert!(all.windows(2).any(|two| two[0] != two[1]));
        let other = Known { own: Some(Incarnation(6)), ..known };
        assert_ne!(all[3], beats.timeout(&other, Term(3)).0);
    }

    #[test]
    fn a_candidate_gives_way_to_a_leader_and_tries_a_higher_term_otherwise() {
        let (mut beats, config, at) = (Beats::default(), Config::default(), Address::region(2));
        let own = Leadership { leader: OWN, at, term: Term(4) };
        beats.check_at = Some(Instant(0));
        let next = beats.continued(Instant(1), &known(&config, heartbeat(1)), own);
        assert_eq!(next.map(|leadership| leadership.term), Some(Term(5)));
        let won = Election { term: Term(5), ..heartbeat(2) };
        let won = Election { leader: won.leader.map(|leader| Leadership { term: Term(5), ..leader }), ..won };
        let own = next.expect("it goes on");
        assert_eq!(beats.continued(Instant(2), &known(&config, won), own), None);
    }
}

//! DARE's failover by the rules of its detector and election (3.2, 4.2.2), with the periods and the
//! order of the published program. Messages take no time: they are a thousandth of the timeouts.

use obol_fabric::Nanos;
use obol_rng::Rng;

/// The period of the leader's heartbeats: the published program's.
pub(super) const BEAT_EVERY: Nanos = Nanos::from_millis(1);
/// How often a server looks for a heartbeat, until the program has adjusted that: the same.
pub(super) const POLL_INTERVAL: Nanos = Nanos::from_millis(10);
/// The period with which the program begins to adjust it: twice that of heartbeats.
pub(super) const ADJUSTED_EVERY: Nanos = Nanos::from_millis(2);
/// How long a candidate waits for votes: uniform between these, in the same program.
pub(super) const ELECTION: (Nanos, Nanos) = (Nanos::from_millis(10), Nanos::from_millis(30));

/// What a server last voted for or knows of. The order of the fields is that of the comparison.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Sid {
    term: u64,
    has_leader: bool,
    whom: usize,
}

struct Server {
    sid: Sid,
    /// When its timer is due: the next look for a heartbeat, or the end of its election.
    due: u64,
    /// A heartbeat has come since its last look.
    has_beat: bool,
    /// The newest requests of others that it has not looked at, as it knows a leader.
    requests: Vec<Option<Sid>>,
    votes: usize,
}

/// From the death of the leader of a group of `servers` servers until another one has a majority.
pub(super) fn failover(servers: u32, look_every: Nanos, rng: &mut Rng) -> Nanos {
    const TERM: u64 = 1;
    let others = servers as usize - 1;
    let leader = others;
    let last_beat = rng.below(BEAT_EVERY.0);
    let begin = |rng: &mut Rng| {
        let due = rng.below(look_every.0);
        // Its last look was `look_every - due` before the death.
        let has_beat = look_every.0 - due > last_beat;
        let sid = Sid { term: TERM, has_leader: true, whom: leader };
        Server { sid, due, has_beat, requests: vec![None; others], votes: 0 }
    };
    let mut all: Vec<Server> = (0..others).map(|_| begin(rng)).collect();
    let majority = servers as usize / 2 + 1;
    loop {
        // A group of three or more has two others at least.
        let Some(at) = (0..others).min_by_key(|n| all[*n].due) else { return Nanos::ZERO };
        let now = all[at].due;
        let server = &mut all[at];
        if core::mem::take(&mut server.has_beat) {
            server.due = now + look_every.0;
            continue;
        }
        // It stands for the next term, and waits for votes for a random time (3.2.2).
        let (low, high) = ELECTION;
        server.sid = Sid { term: server.sid.term + 1, has_leader: false, whom: at };
        server.due = now + low.0 + rng.below(high.0 - low.0);
        server.votes = 1;
        let request = server.sid;
        for other in (0..others).filter(|other| *other != at) {
            all[other].requests[at] = Some(request);
            vote(&mut all, other, now, look_every);
        }
        // Now that it knows no leader, it looks at what others asked for before.
        vote(&mut all, at, now, look_every);
        if all.iter().any(|server| server.votes >= majority) {
            return Nanos(now);
        }
    }
}

/// A server looks at the requests for its vote (3.2.3), unless it knows a leader.
fn vote(all: &mut [Server], at: usize, now: u64, look_every: Nanos) {
    let server = &mut all[at];
    if server.sid.has_leader {
        return;
    }
    // One vote in a term: only a higher term is above this.
    let voted = Sid { has_leader: true, ..server.sid };
    let best = server.requests.iter_mut().filter_map(Option::take).filter(|sid| *sid > voted).max();
    let Some(best) = best else { return };
    (server.sid, server.due, server.votes) = (best, now + look_every.0, 0);
    if let Some(candidate) = all.get_mut(best.whom).filter(|candidate| candidate.sid == best) {
        candidate.votes += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(servers: u32, look_every: Nanos) -> Vec<u64> {
        let mut rng = Rng::new(3);
        (0..4000).map(|_| failover(servers, look_every, &mut rng).0).collect()
    }

    /// The first round of votes is split: the server that first finds the leader dead asks servers that
    /// still know one.
    #[test]
    fn a_failover_takes_a_look_without_a_heartbeat_and_an_election_timeout() {
        for (servers, every) in
            [(3, POLL_INTERVAL), (5, POLL_INTERVAL), (7, POLL_INTERVAL), (3, ADJUSTED_EVERY)]
        {
            let all = draws(servers, every);
            let (least, most) = (all.iter().min(), all.iter().max());
            let low = every.0 - BEAT_EVERY.0 + ELECTION.0.0;
            let high = 2 * every.0 + ELECTION.1.0;
            assert!(least.is_some_and(|least| *least >= low), "{servers} {every}: {least:?}");
            assert!(most.is_some_and(|most| *most < high + every.0), "{servers} {every}: {most:?}");
        }
    }

    #[test]
    fn more_candidates_are_sooner_done() {
        let mean = |servers| draws(servers, POLL_INTERVAL).iter().sum::<u64>() / 4000;
        assert!(mean(3) > mean(5) && mean(5) > mean(7), "{} {} {}", mean(3), mean(5), mean(7));
    }
}

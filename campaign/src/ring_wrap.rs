//! A coordinator is frozen in the middle of a proposal while the ring of slots wraps under
//! other acceptors.

use super::act::Act;
use super::driver::Driver;
use super::fault_schedule::{FaultSchedule, lease};
use super::oracle::Cue;
use super::targeted::longest;

/// How long spare coordinators may need to join, in leases.
const JOIN_LEASES: u64 = 4;

impl FaultSchedule {
    /// The second of three acceptors must not read the value of a slot before the ring has
    /// wrapped, and must find enough words that have not. Returns the duration.
    ///
    /// 1. The leader's operations do not reach the second acceptor, so it decides a slot with the
    ///    third. The second one suspects it and takes over in that slot.
    /// 2. The second one's first attempt corrects its prediction of the leader's word, but not of
    ///    the third acceptor's, whose answer is lost. In the next attempt the leader's acceptor
    ///    promises and reports the value, the third does not promise, and the second one freezes
    ///    before it reads the value.
    /// 3. A spare replaces the third acceptor, and the leader decides slots with it until the place
    ///    of the first slot holds another value.
    /// 4. The second one resumes. It and the third are a majority of the acceptors that it knows,
    ///    and their words are still of the first slot.
    pub(super) fn wrap_ring_under_frozen(&mut self, driver: &Driver) -> u64 {
        let (leader, second, third, spare) = (0, 1, 2, driver.scenario.deciders());
        let (unit, network, timing) = (lease(driver), driver.scenario.rough, driver.scenario.config.timing);
        let round_trip = 2 * (longest(network.one_way) + longest(network.step));
        // A request, a proposal, and the preparation of the next slot.
        let view = 3 * round_trip + 3_000;
        let cut = JOIN_LEASES * unit;
        self.after(driver, cut, Act::Cut(leader, second));
        self.after(driver, cut + 1, Act::SetLease(unit + 1, 1 << leader));

        let timeouts = 3 * (longest(network.link_timeout) + round_trip);
        let outbid = cut + 2 * timing.heartbeat_period.0 + timeouts + 2 * view;
        let expires = driver.cluster.now() + outbid;
        // Operations of the leader that are held up must not overtake this attempt.
        let posted = longest(network.step) + longest(network.loopback) + 200;
        let acts = vec![(0, Act::Cut(third, second)), (posted, Act::Heal(leader, second))];
        self.on_cue(Cue::Takeover, expires, acts);

        let mut lap = round_trip;
        // The third one is frozen too, so that it does not take over.
        let mut acts = vec![
            (0, Act::Freeze(second)),
            (0, Act::Freeze(third)),
            (0, Act::Cut(leader, second)),
            (lap, Act::Heal(third, second)),
        ];
        for act in [Act::SetAcceptor(spare, true), Act::SetAcceptor(third, false)] {
            acts.extend([(lap, act), (lap + view / 2, act)]);
            lap += view;
        }
        for n in 0..u64::from(driver.scenario.config.layout.limits().slots) {
            acts.push((lap, Act::SetLease(unit + n % 2, 1 << leader)));
            lap += view;
        }
        acts.extend([(lap, Act::Heal(leader, second)), (lap, Act::Thaw(second))]);
        acts.push((lap + view, Act::Thaw(third)));
        self.on_cue(Cue::Outbid(second), expires, acts);

        let end = outbid + lap + 2 * view;
        for act in [Act::Heal(leader, second), Act::Heal(third, second), Act::Thaw(second), Act::Thaw(third)]
        {
            self.after(driver, end, act);
        }
        end + unit
    }
}

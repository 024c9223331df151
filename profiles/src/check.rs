//! Rules between keys: each names its keys and gives its reason.

use crate::Profile;
use obol_config::duration::print;
use obol_fabric::{Layout, Nanos};
use obol_fabric_ip::pulse::TIMEOUT_PERIODS_MIN;
use obol_membership::lease::shortened;

pub(crate) struct Rule {
    /// The keys involved; errors are reported at the first. The rule is checked only if all of them
    /// were read.
    pub(crate) keys: &'static [&'static str],
    /// The rule and its reason, a sentence without its full stop.
    pub(crate) must: &'static str,
    /// Describes the violation, if the values break the rule.
    pub(crate) broken: fn(&Profile) -> Option<String>,
}

pub(crate) static RULES: &[Rule] = &[
    Rule {
        keys: &[
            "lease.duration",
            "lease.renew_every",
            "cache.timeout",
            "lease.renew_timeout",
            "lease.drift_ppm",
        ],
        must: "lease.duration less drift must be more than lease.renew_every + cache.timeout + lease.renew_timeout, or \
               one lost renewal ends the lease",
        broken: renewals_too_slow,
    },
    Rule {
        keys: &["lease.max", "lease.duration"],
        must: "lease.max must be at least lease.duration, or leases would start above it",
        broken: max_too_short,
    },
    Rule {
        keys: &["cache.lease", "lease.renew_every", "lease.renew_timeout", "lease.drift_ppm"],
        must: "cache.lease less drift must be more than lease.renew_every + lease.renew_timeout, or one lost renewal \
               keeps a lease cache from vouching",
        broken: cache_renewals_too_slow,
    },
    Rule {
        keys: &["heartbeat.every", "heartbeat.period"],
        must: "heartbeat.every must be less than heartbeat.period, or a healthy process shows the same value twice \
               and is suspected",
        broken: heartbeats_too_slow,
    },
    Rule {
        keys: &["link.timeout", "link.every"],
        must: "link.timeout must be at least three times link.every, or a lost heartbeat makes a silence, and a lost \
               report is forgotten before it counts",
        broken: links_too_slow,
    },
    Rule {
        keys: &["pulse.timeout", "pulse.period"],
        must: "pulse.timeout must be at least three times pulse.period, or one lost pulse and the delay of the next make \
               a silence",
        broken: pulses_too_slow,
    },
    Rule {
        keys: &["coordinator.join_hold_max", "coordinator.join_hold"],
        must: "coordinator.join_hold_max must be at least coordinator.join_hold, or the first hold would exceed it",
        broken: holds_too_short,
    },
    Rule {
        keys: &[
            "limits.value_bytes",
            "limits.seats",
            "limits.slots",
            "limits.proposers",
            "limits.lanes",
            "limits.lane_slots",
            "limits.datagram_bytes",
            "limits.recorder_events",
        ],
        must: "limits.value_bytes and all other limits together must keep a region below 4 GiB, because its offsets \
               have 32 bits",
        broken: region_too_large,
    },
];

impl Profile {
    /// The problem with leases of another duration under this profile, if any: a renewal and its
    /// repeat must fit in.
    pub fn lease_trouble(&self, lease: Nanos) -> Option<String> {
        let mut with = self.clone();
        with.timing.lease = lease;
        let rule = RULES.first()?;
        (rule.broken)(&with).map(|values| format!("{}: {values}", rule.must))
    }
}

fn renewals_too_slow(profile: &Profile) -> Option<String> {
    let timing = &profile.timing;
    let usable = shortened(timing.lease, timing.drift_ppm);
    let renewal =
        timing.renew_every.saturating_add(timing.cache_timeout).saturating_add(timing.renew_timeout);
    (renewal >= usable).then(|| format!("{} is not more than {}", print(usable), print(renewal)))
}

fn max_too_short(profile: &Profile) -> Option<String> {
    let (max, usual) = (profile.timing.lease_max, profile.timing.lease);
    (max < usual).then(|| format!("{} is less than {}", print(max), print(usual)))
}

fn cache_renewals_too_slow(profile: &Profile) -> Option<String> {
    let timing = &profile.timing;
    let usable = shortened(timing.cache_lease, timing.drift_ppm);
    let renewal = timing.renew_every.saturating_add(timing.renew_timeout);
    (renewal >= usable).then(|| format!("{} is not more than {}", print(usable), print(renewal)))
}

fn heartbeats_too_slow(profile: &Profile) -> Option<String> {
    let (every, period) = (profile.timing.heartbeat_every, profile.timing.heartbeat_period);
    (every >= period).then(|| format!("{} is not less than {}", print(every), print(period)))
}

fn links_too_slow(profile: &Profile) -> Option<String> {
    let (every, timeout) = (profile.timing.link_every, profile.timing.link_timeout);
    let least = every.saturating_mul(3);
    (timeout < least).then(|| format!("{} is less than {}", print(timeout), print(least)))
}

fn pulses_too_slow(profile: &Profile) -> Option<String> {
    let (period, timeout) = (profile.pulse.period, profile.pulse.timeout);
    let least = period.saturating_mul(TIMEOUT_PERIODS_MIN);
    (timeout < least).then(|| format!("{} is less than {}", print(timeout), print(least)))
}

fn holds_too_short(profile: &Profile) -> Option<String> {
    let (max, first) = (profile.timing.join_hold_max, profile.timing.join_hold);
    (max < first).then(|| format!("{} is less than {}", print(max), print(first)))
}

/// Each limit was checked by itself when it was read; what is left is their sum. The message names
/// the largest products, not the exact bytes, which are private to the layout.
fn region_too_large(profile: &Profile) -> Option<String> {
    let limits = &profile.limits;
    let product = |factors: [u32; 3]| factors.into_iter().map(u64::from).product::<u64>();
    Layout::new(*limits).err().map(|_| {
        format!(
            "slots * proposers * value_bytes = {}, lanes * lane_slots * datagram_bytes = {}, seats * recorder_events \
             = {}",
            product([limits.slots, limits.proposers, limits.value_bytes]),
            product([limits.lanes, limits.lane_slots, limits.datagram_bytes]),
            product([limits.seats, limits.recorder_events, 1]),
        )
    })
}

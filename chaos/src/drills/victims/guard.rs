//! Guards that can forbid a repetition. The runner checks them before it arms anything, and each
//! fault agent again by its own observations.

use super::select::Chosen;
use crate::drillfile::{Drill, Guards, Keep, StepFault, TargetKind};
use crate::faults::{Effect, Planning};
use obol_membership::Kind;
use obol_node::Deployment;
use obol_observe::{Deciders, Process, Snapshot};
use serde::Serialize;

/// A guard's decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// Its name, as in the file.
    pub guard: &'static str,
    /// Whether it allows the repetition.
    pub allows: bool,
    /// The reason.
    pub says: String,
}

/// Checks every guard for processes that would be silent for a while.
pub fn check(guards: &Guards, snapshot: &Snapshot, silent: &[&Chosen], hit: usize) -> Vec<Answer> {
    let host = obol_observe::names::hostname();
    let falls_silent = |p: &Process| silent.iter().any(|c| c.process.is(p));
    let live = snapshot.processes.iter().filter(|p| p.kind == Kind::LeaseCache && p.alive && !p.frozen);
    let caches = live.filter(|p| !falls_silent(p)).count();
    let touches = |kind: Kind| silent.iter().any(|c| c.process.kind == kind);
    let denied = guards.deny_hosts.iter().find(|pattern| matches(pattern, &host));
    vec![
        Answer {
            guard: "max_targets",
            allows: hit <= guards.max_targets as usize,
            says: format!("victims: {hit}, at most {}", guards.max_targets),
        },
        keep_acceptors(guards.keep_acceptors, snapshot, touches(Kind::Coordinator), falls_silent),
        Answer {
            guard: "keep_lease_caches",
            allows: !touches(Kind::LeaseCache) || caches >= guards.keep_lease_caches as usize,
            says: format!("lease caches left: {caches}, required: {}", guards.keep_lease_caches),
        },
        Answer {
            guard: "deny_hosts",
            allows: denied.is_none(),
            says: match denied {
                Some(pattern) => format!("this host, {host}, is denied by {pattern:?}"),
                None => format!("this host, {host}, is not denied"),
            },
        },
    ]
}

/// Whether enough of the coordinators that decide remain: a spare is none of them.
fn keep_acceptors(
    keep: Keep,
    snapshot: &Snapshot,
    touches: bool,
    falls_silent: impl Fn(&Process) -> bool,
) -> Answer {
    let guard = "keep_acceptors";
    let Some(deciders) = Deciders::newest(snapshot) else {
        let says = "no view can be read, so it is unknown which coordinators decide".to_owned();
        return Answer { guard, allows: !touches, says };
    };
    let left = deciders.acting(snapshot).filter(|p| !falls_silent(p)).count();
    let required = match keep {
        Keep::Majority => deciders.majority(),
        Keep::Number(n) => n as usize,
    };
    let all = deciders.names().len();
    Answer {
        guard,
        allows: !touches || left >= required,
        says: format!("leaves {left} of {all} coordinators that decide, {required} required"),
    }
}

/// Whether the drill was made for this cluster.
pub fn environment(wanted: &str, deployment: &Deployment) -> Answer {
    let label = deployment.environment;
    let allows = wanted == label.as_str();
    let says = if allows {
        format!("the cluster is labelled {label:?}")
    } else {
        format!(
            "the drill is for {wanted:?}, and the cluster is labelled {label:?} (`obol up --environment`)"
        )
    };
    Answer { guard: "environment", allows, says }
}

/// Whether a cluster supports a fault, and this host if it is injected here.
pub fn supported(drill: &Drill, fault: &StepFault, deployment: &Deployment, simulated: bool) -> Answer {
    let targets = drill.targets.iter().filter(|target| fault.targets.contains(&target.name));
    let targets: Vec<TargetKind> = targets.map(|target| target.kind).collect();
    let name = fault.kind.name();
    match fault.kind.refusal(Planning {
        allowed: &drill.guards.allowed,
        dead_man: drill.guards.dead_man,
        lasts: fault.lasts,
        simulated,
        deployment,
        targets: &targets,
    }) {
        Some(says) => Answer { guard: "means", allows: false, says: format!("{name}: {says}") },
        None => Answer { guard: "means", allows: true, says: format!("{name} is supported here") },
    }
}

/// Why the hosts of its victims must not be hit, if so.
pub fn spared(fault: &StepFault, chosen: &[&Chosen], deployment: &Deployment) -> Option<Answer> {
    let says = chosen.iter().find_map(|one| fault.kind.spares(deployment, one.process.host))?;
    Some(Answer { guard: "means", allows: false, says })
}

/// Whether a pause has the length for what is expected of it, by the heartbeat of the cluster's profile
/// while leases last as long as now; `None` for other faults. In between it may go either way.
pub fn detection(
    fault: &StepFault,
    guards: &Guards,
    snapshot: &Snapshot,
    deployment: &Deployment,
) -> Option<Answer> {
    let lasts = fault.lasts.filter(|_| fault.kind.effect() == Effect::Stops)?;
    let timing = &deployment.profile.timing;
    let lease = snapshot.view.as_ref().map_or(timing.lease, |view| view.lease);
    let reads = u64::from(timing.confirm_at(lease));
    let suspected = timing.heartbeat_period.saturating_mul(reads);
    // The first READ may find the value of a beat that was just before the pause.
    let safe = timing.heartbeat_period.saturating_mul(reads.saturating_sub(1));
    let after = format!("a stalled process is suspected after {suspected} ({reads} x heartbeat.period)");
    let (allows, says) = match fault.tolerated {
        true => {
            (lasts < safe, format!("a pause of {lasts} is to be tolerated, and below {safe} it is: {after}"))
        }
        false => (lasts >= suspected, format!("a pause of {lasts} is to have its victims removed: {after}")),
    };
    let advice = match (allows, fault.tolerated) {
        (true, _) => "",
        (false, true) => "; let it be shorter, or do without expect = \"tolerated\"",
        (false, false) => "; let it last longer, or write expect = \"tolerated\"",
    };
    let (allows, advice) = match guards.allow_undetected {
        true if !allows => (true, "; allow_undetected lets it run"),
        _ => (allows, advice),
    };
    Some(Answer { guard: "detection", allows, says: says + advice })
}

/// Whether a text matches a pattern, in which `*` matches any text.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(head) else { return false };
    (0..=text.len()).filter(|at| text.is_char_boundary(*at)).any(|at| matches(rest, &text[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drillfile;
    use obol_config::duration;
    use obol_fabric::{Instant, Nanos};
    use obol_observe::Health;
    use obol_profiles::Profile;

    /// What the guard says of a pause of this length.
    fn pause(deployment: &Deployment, lasts: Nanos, expect: &str) -> Answer {
        let text = format!(
            "[drill]\nschema = 1\nid = \"d\"\ntitle = \"t\"\nenvironment = \"local\"\n\
             [targets]\na = {{ kind = \"app\", select = \"one\" }}\n[[step]]\nname = \"s\"\n\
             fault = {{ kind = \"freeze\", for = \"{}\", target = \"a\"{expect} }}\n",
            duration::print(lasts)
        );
        let drill = drillfile::parse(&text, "d").expect("a drill");
        assert_eq!(drill.judges(), expect.contains("tolerated"));
        let (health, reasons) = (Health::Healthy, Vec::new());
        let snapshot = Snapshot {
            at: Instant(0),
            view: None,
            processes: Vec::new(),
            remote: Vec::new(),
            health,
            reasons,
        };
        detection(&drill.steps[0].faults[0], &drill.guards, &snapshot, deployment).expect("it is a pause")
    }

    #[test]
    fn a_pause_has_the_length_for_what_is_expected_of_it() {
        for name in ["laptop", "lan"] {
            let profile = Profile::builtin(name).expect("built in");
            let timing = profile.timing;
            let deployment = Deployment::new(1, 1, 0, profile).expect("in bounds");
            let suspected = timing.heartbeat_period.saturating_mul(u64::from(timing.heartbeat_confirm));
            let short = timing.heartbeat_period.max(Nanos::from_millis(1));
            const TOLERATED: &str = ", expect = \"tolerated\"";
            for (lasts, expect, allows) in [
                (suspected, "", true),
                (suspected, ", expect = \"removed\"", true),
                (suspected.saturating_sub(Nanos(1)), "", false),
                (short, TOLERATED, short.saturating_add(timing.heartbeat_period) < suspected),
                (suspected, TOLERATED, false),
            ] {
                let answer = pause(&deployment, lasts, expect);
                assert_eq!(answer.allows, allows, "{name} {lasts} {expect}: {answer:?}");
                assert!(answer.says.contains(&suspected.to_string()), "{answer:?}");
            }
        }
    }

    #[test]
    fn a_star_matches_any_text() {
        for (pattern, text, fits) in [
            ("prod-*", "prod-7", true),
            ("prod-*", "prod-", true),
            ("prod-*", "xprod-7", false),
            ("*db*", "a-db-1", true),
            ("*db", "a-db-1", false),
            ("*", "", true),
            ("", "a", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
        }
    }
}

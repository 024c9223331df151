//! What forbids a repetition. The runner asks before it arms anything, and each fault agent asks
//! again by what it sees itself.

use super::select::Chosen;
use crate::drillfile::{Drill, Guards, Keep, StepFault, TargetKind};
use crate::faults::Place;
use obol_membership::Kind;
use obol_node::Deployment;
use obol_observe::Snapshot;
use serde::Serialize;

/// What a guard says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// Its name, as in the file.
    pub guard: &'static str,
    /// Whether the repetition may go on.
    pub allows: bool,
    /// What it saw.
    pub says: String,
}

/// Asks every guard about processes that would be silent for a while.
#[must_use]
pub fn ask(
    guards: &Guards,
    deployment: &Deployment,
    snapshot: &Snapshot,
    silent: &[&Chosen],
    hit: usize,
) -> Vec<Answer> {
    let host = hostname();
    let left = |kind: Kind| {
        let live = snapshot.processes.iter().filter(|p| p.kind == kind && p.alive && !p.frozen);
        live.filter(|p| !silent.iter().any(|c| c.process.process == p.process)).count()
    };
    let all = usize::from(deployment.coordinators);
    let acceptors = match guards.keep_acceptors {
        Keep::Majority => all / 2 + 1,
        Keep::Number(n) => n as usize,
    };
    let (coordinators, caches) = (left(Kind::Coordinator), left(Kind::LeaseCache));
    let touches = |kind: Kind| silent.iter().any(|c| c.process.kind == kind);
    let denied = guards.deny_hosts.iter().find(|pattern| matches(pattern, &host));
    vec![
        Answer {
            guard: "max_targets",
            allows: hit <= guards.max_targets as usize,
            says: format!("hits {hit}, at most {} may be", guards.max_targets),
        },
        Answer {
            guard: "keep_acceptors",
            allows: !touches(Kind::Coordinator) || coordinators >= acceptors,
            says: format!("leaves {coordinators} of {all} coordinators, {acceptors} must be"),
        },
        Answer {
            guard: "keep_lease_caches",
            allows: !touches(Kind::LeaseCache) || caches >= guards.keep_lease_caches as usize,
            says: format!("leaves {caches} lease caches, {} must be", guards.keep_lease_caches),
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

/// Whether the drill was made for this cluster.
#[must_use]
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

/// Whether this host can do what a fault asks for.
#[must_use]
pub fn means(drill: &Drill, fault: &StepFault, deployment: &Deployment) -> Answer {
    let targets = drill.targets.iter().filter(|target| fault.targets.contains(&target.name));
    let targets: Vec<TargetKind> = targets.map(|target| target.kind).collect();
    let name = fault.kind.name();
    match fault.kind.refusal(Place { guards: &drill.guards, deployment, targets: &targets }) {
        Some(says) => Answer { guard: "means", allows: false, says: format!("{name}: {says}") },
        None => Answer { guard: "means", allows: true, says: format!("{name} can be done here") },
    }
}

/// This host's name.
#[must_use]
pub fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// Whether a text is as a pattern says, in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(head) else { return false };
    (0..=text.len()).filter(|at| text.is_char_boundary(*at)).any(|at| matches(rest, &text[at..]))
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_any_text() {
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

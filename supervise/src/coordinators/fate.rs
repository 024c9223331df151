//! What became of a removed coordinator of another host.

use obol_fabric::{LinkError, Name};
use obol_term::output::Failure;

/// What is known of a removed coordinator of another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It has ended, was stopped, or never ran.
    Ended,
    Runs,
    /// It may run.
    Unknown,
}

/// What this host can learn about it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evidence {
    /// Whether it is a member, and was read alive.
    pub(super) is_live_member: bool,
    /// Whether it lives by its memory, if its host has a gateway that could be asked.
    pub(super) memory: Option<Result<bool, LinkError>>,
    /// Whether that gateway answered before and after.
    pub(super) host_answers: bool,
    /// Whether the newest view says that it left on request.
    pub(super) left: bool,
}

impl Fate {
    pub(super) fn of(known: Evidence) -> Self {
        match known.memory {
            _ if known.is_live_member => Self::Runs,
            Some(Ok(true)) => Self::Runs,
            Some(Ok(false) | Err(LinkError::PeerReplaced)) => Self::Ended,
            // The same error means that it is dead, and that its host does not answer.
            Some(Err(LinkError::PeerDead)) if known.host_answers => Self::Ended,
            _ if known.left => Self::Ended,
            _ => Self::Unknown,
        }
    }

    /// What it means for a coordinator that this command could not stop; `None` if nothing is left
    /// to do.
    pub(super) fn failure(self, name: Name, place: &str) -> Option<Failure> {
        let text = match self {
            Self::Ended => return None,
            Self::Runs => format!(
                "{name} decides no more, but still runs on {place}, where this command cannot stop it: it is a spare, \
                 and may be taken again in place of one that fails. Stop it there: `obol stop {name}`, or its unit"
            ),
            Self::Unknown => format!(
                "{name} decides no more, but whether it has ended is not known, because {place} does not answer for it. \
                 If it runs there, it is a spare as soon as it can be reached, and may be taken again in place of one \
                 that fails. Make sure that it has ended: `obol stop {name}` there, its unit, or switch the host off"
            ),
        };
        Some(Failure::Failed(text))
    }

    /// Whether it runs, as far as that is known.
    pub(super) const fn runs(self) -> Option<bool> {
        match self {
            Self::Ended => Some(false),
            Self::Runs => Some(true),
            Self::Unknown => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Evidence =
        Evidence { is_live_member: false, memory: None, host_answers: false, left: false };

    #[test]
    fn a_removed_coordinator_has_ended_only_if_that_is_known() {
        let memory = |memory| Evidence { memory: Some(memory), ..NOTHING };
        let answering = |memory| Evidence { host_answers: true, memory: Some(memory), ..NOTHING };
        let cases = [
            (Fate::Unknown, NOTHING),
            (Fate::Unknown, Evidence { host_answers: true, ..NOTHING }),
            (Fate::Unknown, memory(Err(LinkError::PeerDead))),
            (Fate::Unknown, answering(Err(LinkError::Denied))),
            (Fate::Unknown, answering(Err(LinkError::Unmapped))),
            (Fate::Runs, memory(Ok(true))),
            (Fate::Runs, Evidence { is_live_member: true, ..NOTHING }),
            (Fate::Runs, Evidence { left: true, ..memory(Ok(true)) }),
            (Fate::Ended, memory(Ok(false))),
            (Fate::Ended, memory(Err(LinkError::PeerReplaced))),
            (Fate::Ended, answering(Err(LinkError::PeerDead))),
            (Fate::Ended, Evidence { left: true, ..NOTHING }),
            (Fate::Ended, Evidence { left: true, ..memory(Err(LinkError::PeerDead)) }),
        ];
        for (fate, known) in cases {
            assert_eq!(Fate::of(known), fate, "{known:?}");
        }
    }

    #[test]
    fn the_command_fails_and_says_what_to_do_unless_the_coordinator_has_ended() {
        let name = Name::new("coord-2").expect("a name");
        assert!(Fate::Ended.failure(name, "host 10.0.0.2").is_none());
        for fate in [Fate::Runs, Fate::Unknown] {
            let Some(Failure::Failed(text)) = fate.failure(name, "host 10.0.0.2") else {
                panic!("{fate:?} must end with exit code 1");
            };
            assert!(text.contains("host 10.0.0.2") && text.contains("`obol stop coord-2`"), "{text}");
        }
    }
}

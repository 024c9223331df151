//! The replicated store, as far as it matters to the health of its cluster.

use obol_smr::{Activity, Brief};

/// A replicated store as the health of its cluster counts it: by the few bytes in which each replica says
/// what it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Store {
    /// Replicas that run.
    pub replicas: usize,
    /// Those whose memory cannot be read, because their host does not answer.
    pub unread: usize,
    /// Whether one leads, and serves.
    pub serves: bool,
    /// Whether one is to lead, and has no log.
    pub waits: bool,
    /// Members with a whole copy of the log that is served.
    pub whole: usize,
    /// How many copies there should be; 0 if that is not known.
    pub target: usize,
}

impl Store {
    /// Of replicas that run: whether each can act, being a member and not frozen, and what it says.
    /// `None` without replicas.
    pub(crate) fn of(replicas: &[(bool, Option<Brief>)]) -> Option<Self> {
        let acting = || replicas.iter().filter(|(acts, _)| *acts).filter_map(|(_, brief)| *brief);
        let leader = acting().find(|brief| brief.activity == Activity::Leads);
        let is_copy = |brief: &Brief| brief.whole && leader.is_some_and(|leader| leader.log == brief.log);
        (!replicas.is_empty()).then(|| Self {
            replicas: replicas.len(),
            unread: replicas.iter().filter(|(_, brief)| brief.is_none()).count(),
            serves: leader.is_some(),
            waits: acting().any(|brief| brief.activity == Activity::Waits),
            whole: acting().filter(is_copy).count(),
            target: leader.map_or(0, |leader| leader.target.into()),
        })
    }

    /// Why it is not as it should be, and what to do.
    pub(crate) fn complaint(&self) -> Option<String> {
        if self.unread > 0 {
            // That their host does not answer is said already; one of them may lead.
            return None;
        }
        match self.serves {
            false if self.waits => {
                Some("the store does not serve: no replica that runs has it; see `obol smr status`".to_owned())
            }
            false => Some(
                "the store does not serve: no replica leads, which needs a majority of its voters; see `obol smr status`"
                    .to_owned(),
            ),
            true if self.whole < self.target => Some(format!(
                "the store has {} of {} copies: start a replica again, wait while one loads, or ask for fewer by `obol smr \
                 resize`",
                self.whole, self.target
            )),
            true => None,
        }
    }
}

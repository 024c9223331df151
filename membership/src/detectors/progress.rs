//! The progress detector. A program may promise progress: its agent then READs a word that the
//! application itself advances, and suspects the program when the word stands still, although the
//! process is alive. (Mu, section 5.1, fate sharing.)

use super::Scope;
use super::stall::{Probes, Rule, Seen};
use crate::Config;
use crate::view::{Member, Reason};
use obol_fabric::{Layout, Nanos};

/// The period in which a program promised to advance its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Promise(Nanos);

impl Rule for Promise {
    const REASON: Reason = Reason::Progress;

    fn targets<'v>(scope: &Scope<'v>) -> Vec<(&'v Member, Self)> {
        let promises = scope.promises.iter().filter(|_| scope.me.is_some());
        promises.filter_map(|(who, within)| Some((scope.view.member(*who)?, Self(*within)))).collect()
    }

    fn offset(&self, layout: &Layout, seat: u16) -> u32 {
        layout.progress(seat)
    }

    /// A broken promise is found at most a quarter of its period late.
    fn pause(&self, _: &Config) -> Nanos {
        Nanos(self.0.0 / 4)
    }

    /// From the completion of one READ to the post of a later one.
    fn is_stalled(&self, seen: &Seen, _: u32) -> bool {
        seen.same > 1 && seen.posted.since(seen.since) >= self.0
    }
}

/// One agent's progress detector.
pub(crate) type Progress = Probes<Promise>;

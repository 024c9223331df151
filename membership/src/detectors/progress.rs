//! The progress detector: a program may promise progress, and its agent then READs the word that
//! the application itself advances, and suspects it although its process lives. (Mu, section 5.1,
//! fate sharing.)

use super::stall::{Probes, Rule, Seen};
use super::{Detector, Id, Scope, Verdict};
use crate::Config;
use crate::view::Level;
use obol_fabric::{Completion, Fabric, Instant, Layout, LinkError, Nanos};

/// Within what time a program promised to advance its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Promise(Nanos);

impl Rule for Promise {
    const LEVEL: Level = Level::Progress;

    fn offset(&self, layout: &Layout, seat: u16) -> u32 {
        layout.progress(seat)
    }

    /// A promise is found broken at most a quarter late.
    fn pause(&self, _: &Config) -> Nanos {
        Nanos(self.0.0 / 4)
    }

    /// From the completion of one READ to the post of a later one.
    fn is_stalled(&self, seen: &Seen, _: u32) -> bool {
        seen.same > 1 && seen.posted.since(seen.since) >= self.0
    }
}

/// One agent's progress detector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Progress(Probes<Promise>);

impl Detector for Progress {
    fn follow(&mut self, scope: &Scope<'_>, now: Instant) {
        let promised = scope.promises.iter().filter(|_| scope.me.is_some());
        let promised =
            promised.filter_map(|(who, within)| Some((scope.view.member(*who)?, Promise(*within))));
        self.0.follow(promised, scope, now);
    }

    fn deadline(&self) -> Instant {
        self.0.deadline()
    }

    fn tick<F: Fabric>(&mut self, id: Id, scope: &Scope<'_>, now: Instant, fabric: &mut F) {
        self.0.tick(id, scope.config, now, fabric);
    }

    fn complete(
        &mut self,
        peer: u16,
        round: u32,
        result: &Result<Completion<'_>, LinkError>,
        config: &Config,
        now: Instant,
    ) -> Option<Verdict> {
        self.0.complete(peer, round, result, config, now)
    }
}

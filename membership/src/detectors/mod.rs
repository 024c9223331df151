//! The failure detectors, one file each. A detector is a type that implements [`Detector`] and one
//! line of the registry below; coordinators and members run all registered ones.
//!
//! | detector | level in uKharon | finds |
//! |---|---|---|
//! | [`deadbeat`] | 1 | dead processes, by the notices of the kernel or the fabric |
//! | [`heartbeat`] | 2 | processes that have stalled |
//! | [`progress`] | 2 | programs that break their promise of progress |
//! | [`links`] | 3 | links that are down |
//! | pulse | none | hosts that are silent, by their gateways |
//!
//! A deadbeat notice and a silence that pulses show are events of the fabric, so those detectors have
//! nothing to probe and are not in the registry.

pub mod deadbeat;
pub mod heartbeat;
pub mod links;
pub mod progress;
mod stall;

use crate::Config;
use crate::tokens::{self, Labelled};
use crate::view::{Reason, View};
use heartbeat::Heartbeat;
use links::Links;
use obol_fabric::{Completion, Fabric, Incarnation, Instant, LinkError, Nanos, Token};
use progress::Progress;

/// The input of a detector.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// The newest view.
    pub view: &'a View,
    /// This process; `None` while it is not a member.
    pub me: Option<Incarnation>,
    /// Programs in this agent's seats that promised progress, with the period of each.
    pub promises: &'a [(Incarnation, Nanos)],
    /// Timing and layout.
    pub config: &'a Config,
}

/// What a completed probe says about a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has stalled, or cannot be reached.
    Suspect(Incarnation, Reason),
    /// It was suspected here and runs again.
    Retract(Incarnation),
    /// The link to it is down. This does not make the process suspected: see [`links`].
    LinkDown(Incarnation),
    /// The link to it is up again.
    LinkUp(Incarnation),
}

/// Identifies a registered detector in the tokens of its probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id(u8);

impl Id {
    /// The token of a probe.
    pub const fn token(self, peer: u16, round: u32) -> Token {
        tokens::pack_probe(self.0, peer, round)
    }
}

/// A failure detector: posts probes and judges their results. It never acts on a verdict.
pub trait Detector: Default {
    /// Switches to a new view, or to none of its members while this process is not a member itself.
    /// Members watched before keep their history.
    fn follow(&mut self, scope: &Scope<'_>, now: Instant);

    /// When [`Detector::tick`] is due.
    fn deadline(&self) -> Instant;

    /// Posts the probes that are due.
    fn tick<F: Fabric>(&mut self, id: Id, scope: &Scope<'_>, now: Instant, fabric: &mut F);

    /// Takes the completion of a probe.
    fn complete(&mut self, done: Labelled<'_>, config: &Config, now: Instant) -> Option<Verdict>;
}

/// Registers detectors. New views, ticks and deadline queries reach them in this order.
macro_rules! registry {
    ($($name:ident: $detector:ty,)+) => {
        /// The registered detectors of one process.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
        pub struct Detectors { $(pub(crate) $name: $detector,)+ }

        impl Detectors {
            const IDS: Ids = {
                #[expect(non_camel_case_types, reason = "named like the fields")]
                enum Index { $($name),+ }
                Ids { $($name: Id(Index::$name as u8)),+ }
            };

            /// See [`Detector::follow`].
            pub fn follow(&mut self, scope: &Scope<'_>, now: Instant) {
                $(self.$name.follow(scope, now);)+
            }

            /// See [`Detector::deadline`].
            pub fn deadline(&self) -> Instant {
                Instant::NEVER$(.min(self.$name.deadline()))+
            }

            /// See [`Detector::tick`].
            pub fn tick<F: Fabric>(&mut self, scope: &Scope<'_>, now: Instant, fabric: &mut F) {
                $(self.$name.tick(Self::IDS.$name, scope, now, fabric);)+
            }

            /// See [`Detector::complete`].
            pub fn complete(
                &mut self,
                token: Token,
                result: Result<Completion<'_>, LinkError>,
                config: &Config,
                now: Instant,
            ) -> Option<Verdict> {
                let done = Labelled::new(token, result)?;
                $(if tokens::detector(token) == Some(Self::IDS.$name.0) {
                    return self.$name.complete(done, config, now);
                })+
                None
            }
        }

        struct Ids { $($name: Id),+ }
    };
}

registry! {
    heartbeat: Heartbeat,
    progress: Progress,
    links: Links,
}

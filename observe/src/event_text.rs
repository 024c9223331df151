//! Descriptions of flight recorder events.

use obol_fabric::{Incarnation, Nanos, ViewId};
use obol_membership::holds::Hold;
use obol_membership::recorder::Kind as Event;

/// The members in an event's values: the subject, and who reported it.
pub const fn members(kind: Event, a: u64, b: u64) -> (Option<Incarnation>, Option<Incarnation>) {
    match kind {
        Event::Notice => (Some(Incarnation(a)), Some(Incarnation(b))),
        Event::Suspect
        | Event::Retract
        | Event::Joined
        | Event::Excluded
        | Event::Left
        | Event::JoinHeld
        | Event::ClockFast
        | Event::ClockSlow => (Some(Incarnation(a)), None),
        _ => (None, None),
    }
}

/// The view in an event's values.
pub const fn view(kind: Event, a: u64, b: u64) -> Option<ViewId> {
    match kind {
        Event::Propose
        | Event::Decide
        | Event::ViewReceived
        | Event::Fenced
        | Event::Clear
        | Event::Active
        | Event::LeaseLost
        | Event::Takeover
        | Event::Abort
        | Event::Service => Some(ViewId(a)),
        Event::Excluded | Event::Left | Event::Replacing | Event::Replaced => Some(ViewId(b)),
        Event::Started
        | Event::Notice
        | Event::Joined
        | Event::Suspect
        | Event::Retract
        | Event::ClockFast
        | Event::ClockSlow
        | Event::JoinHeld => None,
    }
}

/// How long an event holds back joins of a name.
pub fn hold(kind: Event, b: u64) -> Option<Nanos> {
    (kind == Event::JoinHeld).then(|| Hold::of_word(b).2)
}

/// Describes the values of an event. `who` names an incarnation.
pub fn describe(kind: Event, a: u64, b: u64, who: impl Fn(u64) -> String) -> String {
    let view = |more: &str| format!("view {a}{}", if b == 1 { more } else { "" });
    match kind {
        Event::Started => format!("generation {a}"),
        Event::Notice => format!("{}, reported by {}", who(a), who(b)),
        Event::Suspect | Event::Retract => who(a),
        Event::Joined => format!("as {}", who(a)),
        Event::Excluded | Event::Left => format!("{}, by view {b}", who(a)),
        Event::Decide => view(", adopted"),
        Event::ViewReceived => view(", by snapshot"),
        Event::Fenced => format!("base {a}, {b} holders by fence"),
        Event::Clear => format!("base {a}"),
        Event::JoinHeld => {
            let (failures, within, hold) = Hold::of_word(b);
            format!(
                "join of {} on hold for {hold}: it failed, left or was suspected {failures} times in {within}",
                who(a)
            )
        }
        Event::Replacing => format!("coord-{a} is an acceptor from view {b} on, because another is missing"),
        Event::Replaced => format!("coord-{a} is missing and no acceptor from view {b} on"),
        Event::ClockFast => format!("{} runs fast by {b} ppm or more", who(a)),
        Event::ClockSlow => format!("{} runs slow by {b} ppm or more", who(a)),
        Event::Propose
        | Event::Active
        | Event::LeaseLost
        | Event::Takeover
        | Event::Abort
        | Event::Service => view(""),
    }
}

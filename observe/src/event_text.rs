//! Descriptions of flight recorder events.

use obol_fabric::{Incarnation, Nanos, ViewId};
use obol_membership::holds::Hold;
use obol_membership::recorder::EventKind;

/// The members in an event's values: the subject, and who reported it.
pub const fn members(kind: EventKind, a: u64, b: u64) -> (Option<Incarnation>, Option<Incarnation>) {
    match kind {
        EventKind::Notice => (Some(Incarnation(a)), Some(Incarnation(b))),
        EventKind::Suspect
        | EventKind::Retract
        | EventKind::Joined
        | EventKind::Excluded
        | EventKind::Left
        | EventKind::JoinHeld
        | EventKind::ClockFast
        | EventKind::ClockSlow => (Some(Incarnation(a)), None),
        _ => (None, None),
    }
}

/// The view in an event's values.
pub const fn view(kind: EventKind, a: u64, b: u64) -> Option<ViewId> {
    match kind {
        EventKind::Propose
        | EventKind::Decide
        | EventKind::ViewReceived
        | EventKind::Fenced
        | EventKind::Clear
        | EventKind::Active
        | EventKind::LeaseLost
        | EventKind::Takeover
        | EventKind::Abort
        | EventKind::Service => Some(ViewId(a)),
        EventKind::Excluded | EventKind::Left | EventKind::Replacing | EventKind::Replaced => Some(ViewId(b)),
        EventKind::Started
        | EventKind::Notice
        | EventKind::Joined
        | EventKind::Suspect
        | EventKind::Retract
        | EventKind::ClockFast
        | EventKind::ClockSlow
        | EventKind::JoinHeld => None,
    }
}

/// How long an event holds back joins of a name.
pub fn hold(kind: EventKind, b: u64) -> Option<Nanos> {
    (kind == EventKind::JoinHeld).then(|| Hold::of_word(b).2)
}

/// Describes the values of an event. `who` names an incarnation.
pub fn describe(kind: EventKind, a: u64, b: u64, who: impl Fn(u64) -> String) -> String {
    let view = |more: &str| format!("view {a}{}", if b == 1 { more } else { "" });
    match kind {
        EventKind::Started => format!("generation {a}"),
        EventKind::Notice => format!("{}, reported by {}", who(a), who(b)),
        EventKind::Suspect | EventKind::Retract => who(a),
        EventKind::Joined => format!("as {}", who(a)),
        EventKind::Excluded | EventKind::Left => format!("{}, by view {b}", who(a)),
        EventKind::Decide => view(", adopted"),
        EventKind::ViewReceived => view(", by snapshot"),
        EventKind::Fenced => format!("base {a}, {b} holders by fence"),
        EventKind::Clear => format!("base {a}"),
        EventKind::JoinHeld => {
            let (failures, within, hold) = Hold::of_word(b);
            format!(
                "join of {} on hold for {hold}: it failed, left or was suspected {failures} times in {within}",
                who(a)
            )
        }
        EventKind::Replacing => {
            format!("coord-{a} is an acceptor from view {b} on, because another is missing")
        }
        EventKind::Replaced => format!("coord-{a} is missing and no acceptor from view {b} on"),
        EventKind::ClockFast => format!("{} runs fast by {b} ppm or more", who(a)),
        EventKind::ClockSlow => format!("{} runs slow by {b} ppm or more", who(a)),
        EventKind::Propose
        | EventKind::Active
        | EventKind::LeaseLost
        | EventKind::Takeover
        | EventKind::Abort
        | EventKind::Service => view(""),
    }
}

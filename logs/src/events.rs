//! Events of flight recorders as lines, with the identifiers that the recorder has.

use crate::levels::Severity;
use crate::line::Line;
use obol_fabric::{Incarnation, Name, ViewId};
use obol_membership::Reason;
use obol_membership::recorder::{EventKind, Stamped};
use obol_observe::event_text;
use obol_observe::names::Names;

/// The module of lines from flight recorders.
pub(crate) const MODULE: &str = "membership";
/// The field with the event's time on the host's monotonic clock, in nanoseconds: with the process
/// it identifies an event, so that its line and its record are shown once.
pub const STAMP: &str = "at_ns";

/// How much an event matters.
pub const fn severity(event: EventKind) -> Severity {
    match event {
        EventKind::ClockFast | EventKind::ClockSlow => Severity::Error,
        EventKind::Notice
        | EventKind::LeaseLost
        | EventKind::Takeover
        | EventKind::Excluded
        | EventKind::Suspect
        | EventKind::Retract
        | EventKind::JoinHeld
        | EventKind::Replacing
        | EventKind::Replaced => Severity::Warn,
        EventKind::Started | EventKind::Decide | EventKind::Joined | EventKind::Left => Severity::Info,
        EventKind::Propose
        | EventKind::ViewReceived
        | EventKind::Fenced
        | EventKind::Clear
        | EventKind::Active
        | EventKind::Abort
        | EventKind::Service => Severity::Debug,
    }
}

/// An event as a line. `own` is the incarnation of the process at that time, if it is known.
pub fn event_line(
    process: Name,
    event: &Stamped,
    unix: u64,
    own: Option<Incarnation>,
    names: &Names,
) -> Line {
    let record = &event.record;
    let (kind, a, b) = (record.kind, record.a, record.b);
    let what = kind.name().replace('_', " ");
    let values = event_text::describe(kind, a, b, |who| names.shown(Incarnation(who)));
    let mut line = Line::new(unix, severity(kind), process, MODULE, format!("{what}: {values}"));
    let mut put = |name: &'static str, value: Option<String>| {
        line.fields.extend(value.map(|value| (name.into(), value)));
    };
    let known =
        |who: Incarnation| Some(who).filter(|who| *who != Incarnation::NONE).map(|who| who.to_string());
    put("event", Some(kind.name().to_owned()));
    put("view", event_text::view(kind, a, b).map(|view| view.to_string()));
    put("incarnation", own.and_then(known));
    let (who, by) = event_text::members(kind, a, b);
    for (field, number, of) in [("who", "who_incarnation", who), ("by", "by_incarnation", by)] {
        put(field, of.and_then(|who| names.get(who)).map(|name| name.to_string()));
        put(number, of.and_then(known));
    }
    let reason = Reason::from_repr(record.reason).filter(|_| record.reason != 0);
    put("detector", reason.map(|reason| reason.name().to_owned()));
    put(STAMP, Some(event.at.0.to_string()));
    line
}

/// The view whose decision a line reports, if it does.
pub fn decided(line: &Line) -> Option<ViewId> {
    let is_decision = line.module == MODULE && line.field("event") == Some(EventKind::Decide.name());
    line.field("view").filter(|_| is_decision)?.parse().ok().map(ViewId)
}

/// Adds what the view changed to the line of its decision, in place of what it says about that
/// already: a process may have written it when it knew less.
pub fn explain(line: &mut Line, causes: &str) {
    if decided(line).is_none() || causes.is_empty() {
        return;
    }
    // "decide: view 7", and then the causes.
    let known = line.text.match_indices(": ").nth(1).map_or(line.text.len(), |(at, _)| at);
    line.text.truncate(known);
    line.text.push_str(": ");
    line.text.push_str(causes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_fabric::Instant;
    use obol_membership::recorder::Record;

    #[test]
    fn an_exclusion_has_the_identifiers_of_the_flight_recorder() {
        let node = Name::new("node-2").expect("a name");
        let mut names = Names::default();
        names.know(Incarnation(7), node);
        let event = Stamped { number: 3, at: Instant(99), record: Record::new(EventKind::Excluded, 7, 8) };
        let line = event_line(node, &event, 5, Some(Incarnation(7)), &names);
        assert_eq!(line.text, "excluded: node-2 (7), by view 8");
        let fields =
            ["event", "view", "incarnation", "who", "who_incarnation", STAMP].map(|name| line.field(name));
        assert_eq!(fields, ["excluded", "8", "7", "node-2", "7", "99"].map(Some));
        assert!(line.is_about("node-2") && line.severity == Severity::Warn);
    }

    #[test]
    fn a_decision_says_once_what_the_view_changed_and_no_other_event_does() {
        let coordinator = Name::new("coord-1").expect("a name");
        let line = |kind| {
            let event = Stamped { number: 3, at: Instant(99), record: Record::new(kind, 7, 8) };
            event_line(coordinator, &event, 5, None, &Names::default())
        };
        let mut decision = line(EventKind::Decide);
        let (bare, cause) = (decision.text.clone(), "node-2 (7) failed: deadbeat, reported by coord-1 (1)");
        explain(&mut decision, "");
        assert_eq!((decided(&decision), &decision.text), (Some(ViewId(7)), &bare));
        explain(&mut decision, "node-2 (7) failed");
        explain(&mut decision, cause);
        assert_eq!(decision.text, format!("{bare}: {cause}"));
        let mut other = line(EventKind::ViewReceived);
        let before = other.clone();
        explain(&mut other, cause);
        assert_eq!((decided(&other), other), (None, before));
    }
}

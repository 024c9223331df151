//! Artificial events for tests.

use obol_observe::incidents::event::{Event, Kind, Severity, State};
use serde_json::Map;

pub(crate) fn event(kind: Kind, title: &str) -> Event {
    Event {
        id: format!("00ff-{title}"),
        kind,
        unix: 1_795_572_847_120_394_811,
        cluster: "default".to_owned(),
        identity: "00000000000000ff".to_owned(),
        host: "web-1".to_owned(),
        severity: Severity::Warning,
        state: State::Event,
        subject: "node-2".to_owned(),
        title: title.to_owned(),
        details: Map::from_iter([("view".to_owned(), 8.into())]),
    }
}

//! Failovers as comma-separated values (RFC 4180), one per line; times in nanoseconds, unknown
//! phases empty.

use crate::Report;
use obol_observe::failovers::PHASES;
use std::fmt::Write as _;

/// A field, quoted if necessary.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// The whole text.
pub(super) fn text(report: &Report) -> String {
    let mut text = String::from("view,began_unix_ns,decider,dead,level");
    for phase in PHASES {
        let _ = write!(text, ",{phase}_ns");
    }
    text.push_str(",total_ns,active_last\r\n");
    let number = |value: Option<obol_fabric::Nanos>| value.map_or(String::new(), |value| value.0.to_string());
    for (part, failover) in report.failovers() {
        let reason = failover.dead.first().and_then(|dead| dead.reason).map_or("", |reason| reason.name());
        let began = report.unix(failover.began);
        let dead = field(&part.dead(failover));
        let _ =
            write!(text, "{},{began},{},{dead},{reason}", failover.view, field(failover.decider.as_str()));
        for phase in failover.phases() {
            let _ = write!(text, ",{}", number(phase));
        }
        let last = failover.last_active().map_or(String::new(), |(name, _)| name.to_string());
        let _ = write!(text, ",{},{}\r\n", number(failover.total()), field(&last));
    }
    text
}

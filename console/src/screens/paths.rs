//! The paths by which pulses of other hosts arrive, on screen 5 of a cluster that sends them.
//!
//! ```text
//! ┌─ Paths 2 ────────────────────────────────────────────────────────────────────────────┐
//! │ FROM     ADDRESS          STATE      MARGIN       GAP   TIMEOUT  FRAMES/s  MISSED  .. │
//! │ host 2   10.1.0.2         up           94 %    1.02ms    20.0ms      1000       0  .. │
//! │ host 2   10.2.0.2         ! lost       94 %    1.02ms    20.0ms         0    1000  .. │
//! └──────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! All of the last second: frames that have arrived by this path, pulses that have arrived by another
//! one only, how much longer the slowest frame took than the fastest, and the longest gap between two
//! new pulses of the host by any path. MARGIN is what that leaves of the timeout.

use crate::state::Model;
use crate::theme::Tone;
use crate::widgets::canvas::{Canvas, Cell, count};
use obol_fabric::Nanos;
use obol_fabric_ip::PulsePathState;
use obol_observe::sampling::data::Data;
use obol_observe::sampling::sample::PathRow;
use ratatui::layout::Rect;

fn rows(data: &Data) -> &[PathRow] {
    data.sample.as_deref().map_or(&[], |sample| &sample.paths)
}

/// The lines that a frame with all paths needs; 0 without paths.
pub(super) fn height(model: &Model) -> u16 {
    match rows(model.data()).len() {
        0 => 0,
        n => u16::try_from(n).unwrap_or(u16::MAX).saturating_add(3),
    }
}

/// The state of a path, and how it is shown.
fn state(row: &PathRow) -> (&'static str, Tone) {
    match row.state {
        _ if row.silent => ("x silent", Tone::Bad),
        PulsePathState::Lost => ("! lost", Tone::Bad),
        PulsePathState::Unheard => ("? unheard", Tone::Warn),
        PulsePathState::Up => ("up", Tone::Good),
    }
}

/// The columns: head, width, and whether it is on the right.
const HEADS: [(&str, usize, bool); 9] = [
    ("FROM", 7, false),
    ("ADDRESS", 15, false),
    ("STATE", 9, false),
    ("MARGIN", 6, true),
    ("GAP", 8, true),
    ("TIMEOUT", 8, true),
    ("FRAMES/s", 8, true),
    ("MISSED", 6, true),
    ("JITTER", 8, true),
];

fn cells(row: &PathRow, limit: u64) -> [(String, Tone); 9] {
    let span = |span: Option<Nanos>| span.map_or("--".to_owned(), |span| span.to_string());
    let number = |n: Option<u64>| n.map_or("--".to_owned(), count);
    let (state, tone) = state(row);
    let missed = row.frames.zip(row.pulses).map(|(frames, pulses)| pulses.saturating_sub(frames));
    let margin = row.margin_percent();
    let thin = margin.is_some_and(|margin| margin < limit);
    [
        (format!("host {}", row.host), Tone::Text),
        (row.address.to_string(), Tone::Text),
        (state.to_owned(), tone),
        (margin.map_or("--".to_owned(), |n| format!("{n} %")), if thin { Tone::Warn } else { Tone::Text }),
        (span(row.gap), Tone::Text),
        (row.timeout.to_string(), Tone::Text),
        (number(row.frames), Tone::Text),
        (number(missed), if missed > Some(0) { Tone::Warn } else { Tone::Text }),
        (span(row.jitter), Tone::Text),
    ]
}

/// Draws all that have room, the first ones.
pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    let data = model.data();
    let rows = rows(data);
    let title = Cell::new(format!("Paths {}", rows.len()), Tone::Title);
    let inside = canvas.frame(area, &[title], &[Cell::new("pulses of the last second", Tone::Dim)]);
    let limit = data.sample.as_ref().and_then(|sample| sample.thresholds).map_or(0, |t| t.margin_percent);
    let mut line = |y: u16, cells: &[(String, Tone)]| {
        let mut x = inside.x + 1;
        for ((text, tone), (_, width, right)) in cells.iter().zip(HEADS) {
            let end = x.saturating_add(width as u16);
            if end > inside.x + inside.width {
                return;
            }
            let shown = if right { format!("{text:>width$}") } else { format!("{text:<width$}") };
            canvas.put(inside, x, y, &shown, *tone);
            x = end + 2;
        }
    };
    line(inside.y, &HEADS.map(|(head, ..)| (head.to_owned(), Tone::Dim)));
    for (row, y) in rows.iter().zip(inside.y + 1..inside.y + inside.height) {
        line(y, &cells(row, u64::from(limit)));
    }
}

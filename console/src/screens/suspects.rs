//! Who suspects whom, beside the accusations on screen 5.
//!
//! ```text
//! ┌─ Who suspects whom ──────────── ! not settled ─┐
//! │ BY        app-2  node-2                        │
//! │ coord-1       1       .                        │
//! │ coord-3       .      !2                        │
//! └────────────────────────────────────────────────┘
//! ```
//!
//! Of the events that were read: how often a process suspected another one, or reported its death. The
//! newest accused have the first columns.

use crate::state::Model;
use crate::theme::Tone;
use crate::widgets::canvas::{Canvas, Cell, count, short, width};
use obol_fabric::{Incarnation, Instant, Name};
use obol_membership::recorder::EventKind;
use obol_observe::sampling::data::Data;
use ratatui::layout::Rect;
use std::collections::{BTreeMap, HashMap};

/// The least and the largest width of a column, whose head is a name.
const COLUMN: (u16, u16) = (5, 14);
/// Least width of the pane.
const WIDE_LEAST: u16 = 40;
/// Least width of what is beside it.
const BESIDE_LEAST: u16 = 70;

/// The suspicions of one process against one other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pair {
    times: u64,
    /// Whether one is neither taken back nor followed by a removal.
    lasts: bool,
    last: Instant,
}

/// The suspicions of one process against one incarnation.
#[derive(Default)]
struct Accused {
    suspected: u64,
    reported: bool,
    lasts: bool,
    last: Instant,
}

fn pairs(data: &Data) -> BTreeMap<(Name, Name), Pair> {
    let mut all: HashMap<(Name, u64), Accused> = HashMap::new();
    for event in &data.events {
        let by = match event.event {
            EventKind::Suspect | EventKind::Retract => Some(event.process),
            EventKind::Notice => data.name(Incarnation(event.b)),
            _ => None,
        };
        let Some(by) = by else { continue };
        let one = all.entry((by, event.a)).or_default();
        match event.event {
            EventKind::Suspect => (one.suspected, one.lasts) = (one.suspected + 1, true),
            EventKind::Retract => one.lasts = false,
            // It comes to everybody, and of what was suspected.
            _ => one.reported = true,
        }
        one.last = one.last.max(event.at);
    }
    let sample = data.sample.as_deref();
    let is_member = |who: u64| {
        sample.is_some_and(|sample| {
            let is_gone = sample.view.iter().flat_map(|view| &view.departed).any(|gone| gone.who.0 == who);
            !is_gone && sample.processes.iter().any(|row| row.incarnation.0 == who)
        })
    };
    let mut pairs: BTreeMap<(Name, Name), Pair> = BTreeMap::new();
    for ((by, who), one) in all {
        let times = one.suspected.max(u64::from(one.reported));
        let Some(of) = data.name(Incarnation(who)).filter(|_| times > 0) else { continue };
        let pair = pairs.entry((by, of)).or_default();
        pair.times += times;
        pair.lasts |= one.lasts && is_member(who);
        pair.last = pair.last.max(one.last);
    }
    pairs
}

/// The accusers by name, and the accused, the newest first.
fn sides(pairs: &BTreeMap<(Name, Name), Pair>) -> (Vec<Name>, Vec<Name>) {
    let mut by: Vec<Name> = pairs.keys().map(|(by, _)| *by).collect();
    by.dedup();
    let mut last: BTreeMap<Name, Instant> = BTreeMap::new();
    for ((_, of), pair) in pairs {
        let known = last.entry(*of).or_default();
        *known = pair.last.max(*known);
    }
    let mut of: Vec<(Name, Instant)> = last.into_iter().collect();
    of.sort_by_key(|(_, last)| std::cmp::Reverse(*last));
    (by, of.into_iter().map(|(name, _)| name).collect())
}

/// Divides an area: what is at the left, and this at the right, if there is room and anybody suspects.
pub(super) fn split(model: &Model, area: Rect) -> (Rect, Option<Rect>) {
    let wide = area.width / 2;
    if wide < WIDE_LEAST || area.width - wide < BESIDE_LEAST || pairs(model.data()).is_empty() {
        return (area, None);
    }
    let left = Rect { width: area.width - wide, ..area };
    (left, Some(Rect { x: left.right(), width: wide, ..area }))
}

pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    let pairs = pairs(model.data());
    let (by, of) = sides(&pairs);
    let hint = Cell::new("! neither taken back nor settled", Tone::Dim);
    let inside = canvas.frame(area, &[Cell::new("Who suspects whom", Tone::Title)], &[hint]);
    let cut = canvas.glyphs.cut;
    let wide = |name: &Name| width(name.as_str()).clamp(COLUMN.0, COLUMN.1);
    let heads = by.iter().map(|name| width(name.as_str())).max().unwrap_or(0).min(inside.width / 3);
    canvas.put(inside, inside.x + 1, inside.y, "BY", Tone::Dim);
    let rows = || (inside.y + 1..inside.bottom()).zip(&by);
    for (y, name) in rows() {
        canvas.put(inside, inside.x + 1, y, &short(name.as_str(), heads, cut), Tone::Text);
    }
    let mut x = inside.x + 1 + heads + 2;
    for (at, name) in of.iter().enumerate() {
        let column = wide(name);
        if x + column > inside.right() {
            let more = format!("+{}", of.len() - at);
            canvas.put(inside, inside.right().saturating_sub(width(&more)), inside.y, &more, Tone::Dim);
            break;
        }
        let head = short(name.as_str(), column, cut);
        canvas.put(inside, x + column - width(&head), inside.y, &head, Tone::Dim);
        for (y, by) in rows() {
            let (text, tone) = match pairs.get(&(*by, *name)) {
                None => (".".to_owned(), Tone::Dim),
                Some(pair) if pair.lasts => (format!("!{}", count(pair.times)), Tone::Bad),
                Some(pair) => (count(pair.times), Tone::Text),
            };
            canvas.put(inside, x + column.saturating_sub(width(&text)), y, &text, tone);
        }
        x += column + 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use obol_membership::Kind;
    use obol_observe::sampling::sample::{DepartedRow, EventRow};
    use std::sync::Arc;

    const START: u64 = 3_600_000_000_000;

    /// What is said of these events, of a coordinator and at a microsecond each: `by -> of times`.
    fn said(events: &[(&str, EventKind, u64, u64)], departed: bool) -> Vec<String> {
        let mut sample = samples::healthy(Instant(START));
        if departed {
            let gone = DepartedRow {
                who: Incarnation(7),
                name: samples::name("app-2"),
                kind: Kind::App,
                at: obol_fabric::ViewId(7),
                left: false,
            };
            sample.view.as_mut().expect("a view").departed.push(gone);
        }
        let row = |(us, (process, event, a, b)): (u64, &(&str, EventKind, u64, u64))| EventRow {
            at: Instant(START + us * 1_000),
            process: samples::name(process),
            kind: Kind::Coordinator,
            number: us,
            event: *event,
            reason: None,
            a: *a,
            b: *b,
            doubt: obol_fabric::Nanos::ZERO,
        };
        sample.events = (0..).zip(events).map(row).collect();
        let mut data = Data::default();
        data.take(Arc::new(sample));
        let shown = |((by, of), pair): (&(Name, Name), &Pair)| {
            format!("{by} -> {of} {}{}", if pair.lasts { "!" } else { "" }, pair.times)
        };
        pairs(&data).iter().map(shown).collect()
    }

    #[test]
    fn a_suspicion_and_its_reports_are_one_and_last_until_they_are_taken_back() {
        use EventKind::{Notice, Retract, Suspect};
        let names = |all: &[(&str, EventKind, u64, u64)]| said(all, false);
        let suspect = ("coord-1", Suspect, 5, 0);
        let once = names(&[suspect]);
        assert!(
            once.len() == 1 && once[0].starts_with("coord-1 -> ") && once[0].ends_with(" !1"),
            "{once:?}"
        );
        let told = names(&[suspect, ("coord-1", Notice, 5, 1), ("coord-2", Notice, 5, 1)]);
        assert_eq!(told, once, "every process gets the notice");
        let back = names(&[suspect, ("coord-1", Retract, 5, 0)]);
        assert!(back[0].ends_with(" 1"), "{back:?}");
        let again = names(&[suspect, ("coord-1", Retract, 5, 0), suspect]);
        assert!(again[0].ends_with(" !2"), "{again:?}");
        let proof = names(&[("coord-1", Notice, 5, 2), ("coord-3", Notice, 5, 2)]);
        assert!(
            proof.len() == 1 && proof[0].starts_with("coord-2 -> ") && proof[0].ends_with(" 1"),
            "{proof:?}"
        );
        assert_eq!(names(&[("coord-1", Retract, 5, 0)]), [""; 0], "what was suspected before is not counted");
        assert_eq!(names(&[("coord-1", Suspect, 999, 0)]), [""; 0], "nobody knows who that is");
    }

    #[test]
    fn a_suspicion_does_not_outlast_the_member() {
        let mut all = vec![("coord-1", EventKind::Suspect, 7, 0)];
        let before = said(&all, false);
        assert!(before[0].contains(" !1"), "{before:?}");
        all.push(("coord-1", EventKind::Notice, 7, 1));
        let after = said(&all, true);
        assert!(after[0].ends_with(" 1"), "{after:?}");
    }
}

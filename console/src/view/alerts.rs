//! All that is wrong, with what to do about it, and the alerts that ended, in pages over the middle of the
//! screen.

use crate::state::Model;
use crate::theme::Tone;
use crate::widgets::canvas::{Canvas, Cell, clock, wrapped};
use obol_fabric::Instant;
use obol_observe::advice;
use obol_observe::calendar::age;
use obol_observe::sampling::alerts::Raised;
use ratatui::layout::Rect;

/// Largest width of a page.
const WIDE_MAX: u16 = 110;
/// Where the explanations of an alert begin.
const INDENT: &str = "    ";

/// The lines of an alert.
fn of_alert(model: &Model, one: &Raised, unix: impl Fn(Instant) -> u64, lines: &mut Vec<(String, Tone)>) {
    let now = model.data().sample.as_ref().map_or(one.last, |sample| sample.at);
    let rule = one.rule();
    let known = if model.acknowledged.contains(&one.key()) { "  acknowledged" } else { "" };
    let since = format!("since {} ({})", clock(unix(one.since)), age(now.since(one.since)));
    lines.push((format!("! {}  {}  {since}{known}", rule.name, one.who), Tone::Warn));
    lines.push((format!("{INDENT}{}", one.clause), Tone::Text));
    lines.push((format!("{INDENT}do: {}", rule.remedy), Tone::Text));
    lines.push((format!("{INDENT}docs/alerts.md, {}", rule.section), Tone::Dim));
}

/// Everything, wrapped to this width.
fn lines(model: &Model, wide: usize) -> Vec<(String, Tone)> {
    let data = model.data();
    let mut lines = Vec::new();
    let Some(sample) = &data.sample else { return vec![("nothing was read yet".to_owned(), Tone::Dim)] };
    let unix = |at: Instant| sample.unix.saturating_sub(sample.at.since(at).0);
    let alerting = &data.alerting;
    match &alerting.spell {
        None => lines.push((format!("The cluster is {}", sample.health.name()), Tone::Title)),
        Some(spell) => {
            let since = format!("since {} ({})", clock(unix(spell.since)), age(sample.at.since(spell.since)));
            lines.push((format!("The cluster is {}  {since}", spell.health.name()), Tone::Title));
            lines.extend(spell.reasons.iter().map(|reason| (format!("! {reason}"), Tone::Warn)));
            let remedy = advice::of_health(spell.health).map(|remedy| format!("{INDENT}do: {remedy}"));
            lines.extend(remedy.map(|remedy| (remedy, Tone::Text)));
            lines.push((format!("{INDENT}docs/alerts.md, {}", spell.section()), Tone::Dim));
        }
    }
    let raised: Vec<&Raised> = alerting.raised().collect();
    let other = if alerting.spell.is_some() { "Other alerts" } else { "Alerts" };
    lines.push((format!("{other}: {}", raised.len()), Tone::Title));
    raised.into_iter().for_each(|one| of_alert(model, one, unix, &mut lines));
    let alerts =
        alerting.history.iter().map(|one| (one.since, one.last, one.rule().name, one.clause.clone()));
    let spells = alerting.spells.iter();
    let spells = spells.map(|one| (one.since, one.last, one.health.name(), one.reasons.join("; ")));
    let mut ended: Vec<_> = alerts.chain(spells).collect();
    ended.sort_by_key(|(_, last, ..)| std::cmp::Reverse(*last));
    if !ended.is_empty() {
        lines.push(("Ended, as far as this console has seen".to_owned(), Tone::Title));
    }
    for (since, last, name, why) in ended {
        let (from, to) = (clock(unix(since)), clock(unix(last)));
        lines.push((format!("{from} to {to}  {name}: {why}"), Tone::Dim));
    }
    let parts = |(line, tone): (String, Tone)| {
        let parts = wrapped(&line, wide).into_iter().enumerate();
        let part = |(at, part): (usize, String)| {
            let indent = if at > 0 || line.starts_with(INDENT) { INDENT } else { "" };
            (format!("{indent}{}", part.trim_start()), tone)
        };
        parts.map(part).collect::<Vec<_>>()
    };
    lines.into_iter().flat_map(parts).collect()
}

/// All pages for this area.
fn pages(model: &Model, area: Rect) -> Vec<Vec<(String, Tone)>> {
    let height = usize::from(area.height.saturating_sub(2)).max(1);
    let wide = usize::from(area.width.min(WIDE_MAX)).saturating_sub(4 + INDENT.len()).max(10);
    lines(model, wide).chunks(height).map(<[_]>::to_vec).collect()
}

/// The number of pages.
pub(crate) fn count(model: &Model, area: Rect) -> usize {
    pages(model, area).len()
}

/// Draws the open page over an area.
pub(crate) fn draw(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    let pages = pages(model, area);
    let at = model.help_page.min(pages.len().saturating_sub(1));
    let Some(lines) = pages.get(at) else { return };
    let wide = area.width.min(WIDE_MAX);
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(area.height);
    let (x, y) = (area.x + (area.width - wide) / 2, area.y + (area.height - height) / 2);
    let place = Rect { x, y, width: wide, height };
    for y in place.top()..place.bottom() {
        canvas.blank(place, y);
    }
    let title = format!("Alerts  {} of {}", at + 1, pages.len());
    let hint =
        model.keymap.fill("{alerts} acknowledges in this console, {down} {up} pages, any other key closes");
    let inside = canvas.frame(place, &[Cell::new(title, Tone::Title)], &[Cell::new(hint, Tone::Dim)]);
    for (at, (line, tone)) in lines.iter().enumerate() {
        let y = inside.y + u16::try_from(at).unwrap_or(0);
        if y < inside.bottom() {
            canvas.put(inside, inside.x + 1, y, line, *tone);
        }
    }
}

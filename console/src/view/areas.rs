//! Where the parts of the screen are, and the reasons above its body, whose number decides that.

use super::{rollout, timebar};
use crate::screens;
use crate::state::{Mode, Model};
use crate::theme::Tone;
use crate::widgets::canvas::wrapped;
use crate::widgets::trend;
use obol_fabric::Nanos;
use obol_observe::calendar::age;
use obol_observe::incidents::incident::Incident;
use ratatui::layout::Rect;

/// Least height with tabs.
const TABS_FROM: u16 = 5;
/// Least height with a footer.
const FOOTER_FROM: u16 = 9;
/// Reasons shown at once, at most.
const REASONS_MAX: u16 = 3;
/// Rows of a screen beside those of its list before it has charts: frames, heads, and what is below the list.
const BODY_LEAST: u16 = 12;
/// Columns around the text of a line.
const MARGINS: usize = 4;
/// How long an annotation keeps a line of them from what is wrong.
const NOTE_FRESH: Nanos = Nanos::from_secs(60);

/// The layout.
pub(crate) struct Areas {
    pub(super) header: Rect,
    pub(super) tabs: Rect,
    pub(super) reasons: Rect,
    pub(crate) body: Rect,
    /// Charts of the shown screen.
    pub(super) trends: Rect,
    pub(super) time: Rect,
    pub(super) footer: Rect,
}

impl Areas {
    pub(crate) fn of(model: &Model) -> Self {
        let (width, height) = model.size;
        let mut y = 0;
        let mut take = |n: u16| {
            let n = n.min(height - y);
            let area = Rect { x: 0, y, width, height: n };
            y += n;
            area
        };
        let header = take(1);
        let tabs = take(u16::from(height >= TABS_FROM));
        let most = if height >= FOOTER_FROM + REASONS_MAX { REASONS_MAX } else { u16::from(height >= 3) };
        let reasons = take(u16::try_from(zone(model, most).len()).unwrap_or(most));
        let footer = u16::from(height >= FOOTER_FROM || model.mode != Mode::Normal && height > 1);
        let time = u16::from(timebar::is_shown(model));
        let rest = height.saturating_sub(reasons.bottom() + footer + time);
        let charts = charts(model, rest);
        let body = take(rest - charts);
        let trends = take(charts);
        let time = take(time);
        let footer = take(footer);
        Self { header, tabs, reasons, body, trends, time, footer }
    }
}

/// The height of the charts in these rows: the list of the screen, and what is below it, come first.
fn charts(model: &Model, rest: u16) -> u16 {
    let screen = screens::shown(model);
    let rows = u16::try_from(screen.rows(model).len()).unwrap_or(u16::MAX);
    let wanted = (rest / 3).min(trend::MOST);
    let is_room = rest.saturating_sub(wanted) >= rows.saturating_add(BODY_LEAST);
    if screen.trends().is_empty() || wanted < trend::LEAST || !is_room { 0 } else { wanted }
}

/// The lines above the body, at most `room`: the newest incident has what it needs, and others have one each.
pub(super) fn zone(model: &Model, room: u16) -> Vec<(String, Tone)> {
    let entries = reasons(model);
    let room = usize::from(room);
    let wide = usize::from(model.size.0).saturating_sub(MARGINS).max(MARGINS);
    let mut lines = Vec::new();
    for (at, (sign, text, tone)) in entries.iter().enumerate() {
        let (left, others) = (room - lines.len(), entries.len() - at - 1);
        if left == 0 {
            break;
        }
        let more = if left == 1 && others > 0 {
            model.keymap.fill(&format!("({others} more: {{alerts}})  "))
        } else {
            String::new()
        };
        let most = left.saturating_sub(others).max(1);
        let mut parts = if *sign == "!" && most > 1 { wrapped(text, wide) } else { vec![text.clone()] };
        if parts.len() > most {
            // What is cut off has a sign.
            let rest = parts.split_off(most - 1).join(" ");
            parts.push(rest);
        }
        let begin = |n: usize| if n == 0 { *sign } else { " " };
        lines.extend(
            parts.into_iter().enumerate().map(|(n, part)| (format!("{} {more}{part}", begin(n)), *tone)),
        );
    }
    lines
}

/// What is wrong, the newest first, and what is noted.
fn reasons(model: &Model) -> Vec<(&'static str, String, Tone)> {
    let mut all = Vec::new();
    if let Some(why) = &model.lost {
        let seen = model.stale().map_or(String::new(), |since| format!(" (last read {} ago)", age(since)));
        all.push(("?", format!("{why}{seen}"), Tone::Stale));
    }
    let data = model.data();
    if let Some(sample) = &data.sample {
        let open = data.incidents().into_iter().filter(|one| one.acknowledged.is_none());
        let is_now =
            |one: &Incident| one.last == sample.at && sample.health.is_known_to_serve() == Some(false);
        let tone = |one: &Incident| if is_now(one) { Tone::Bad } else { Tone::Warn };
        all.extend(open.map(|one| ("!", one.sentence(sample), tone(&one))));
    }
    if let (Some(mark), Some(sample)) = (data.note(), &data.sample) {
        // Zero counts are shown of members only.
        let shown = data.since.each().enumerate().filter(|(at, (_, n))| *at < 3 || *n > 0);
        let counted: Vec<String> = shown.map(|(_, (name, n))| format!("{name} {n}")).collect();
        let since = age(sample.at.since(mark.at));
        let seen = data
            .counted_since()
            .filter(|from| *from > mark.at)
            .map_or(String::new(), |from| format!(", of which {} were polled", age(sample.at.since(from))));
        let text = format!("{since} since \"{}\"{seen}: {}", mark.text, counted.join("  "));
        // It keeps its line for a while, however many reasons there are; then what is wrong comes first.
        let is_fresh = sample.at.since(mark.at) < NOTE_FRESH;
        let place = if is_fresh { all.len().min(1) } else { all.len() };
        all.insert(place, ("*", text, Tone::Text));
    }
    if model.owner && all.is_empty() && data.sample.is_some() && data.ended_incidents().is_empty() {
        let text = model.keymap.fill("try it: `obol kill app-1` in another terminal, then 3 shows the failover; {help} explains what this is");
        all.push(("*", text, Tone::Dim));
    }
    if let Some(banner) = rollout::banner(data) {
        all.insert(0, banner);
    }
    all
}

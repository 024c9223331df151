//! Where the parts of the screen are, and the reasons above its body, whose number decides that.

use super::rollout;
use crate::state::{Mode, Model};
use crate::theme::Tone;
use obol_fabric::Nanos;
use obol_observe::calendar::age;
use ratatui::layout::Rect;

/// Least height with tabs.
const TABS_FROM: u16 = 5;
/// Least height with a footer.
const FOOTER_FROM: u16 = 9;
/// Reasons shown at once, at most.
const REASONS_MAX: u16 = 3;
/// How long an annotation keeps a line of them from what is wrong.
const NOTE_FRESH: Nanos = Nanos::from_secs(60);

/// The layout.
pub(crate) struct Areas {
    pub(super) header: Rect,
    pub(super) tabs: Rect,
    pub(super) reasons: Rect,
    pub(crate) body: Rect,
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
        let wanted = u16::try_from(reasons(model).len()).unwrap_or(REASONS_MAX);
        let most = if height >= FOOTER_FROM + REASONS_MAX { REASONS_MAX } else { u16::from(height >= 3) };
        let reasons = take(wanted.min(most));
        let footer = u16::from(height >= FOOTER_FROM || model.mode != Mode::Normal && height > 1);
        let body = take(height.saturating_sub(reasons.bottom() + footer));
        let footer = take(footer);
        Self { header, tabs, reasons, body, footer }
    }
}

/// Why the cluster is not healthy, or cannot be read.
pub(super) fn reasons(model: &Model) -> Vec<(&'static str, String, Tone)> {
    let mut all = Vec::new();
    if let Some(why) = &model.lost {
        let seen = model.stale().map_or(String::new(), |since| format!(" (last read {} ago)", age(since)));
        all.push(("?", format!("{why}{seen}"), Tone::Stale));
    }
    if let Some(sample) = &model.data().sample {
        let is_outage = sample.health.is_known_to_serve() == Some(false);
        let tone = if is_outage { Tone::Bad } else { Tone::Warn };
        all.extend(sample.reasons.iter().map(|reason| ("!", reason.clone(), tone)));
    }
    let data = model.data();
    let shown = data.alerting.raised().filter(|one| !model.acknowledged.contains(&one.key()));
    all.extend(shown.map(|one| ("!", format!("{}: {}", one.rule().name, one.clause), Tone::Warn)));
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
        let place = if is_fresh { all.len().min(usize::from(REASONS_MAX) - 1) } else { all.len() };
        all.insert(place, ("*", text, Tone::Text));
    }
    if let Some(banner) = rollout::banner(data) {
        all.insert(0, banner);
    }
    all
}

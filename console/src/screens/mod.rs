//! The screens, one file each. A new one is a file that implements [`Screen`] and a line in
//! [`ALL`]: its tab, its number key, its command in the palette, its help, its table in the
//! configuration and the remembered order follow from that.

mod chaos;
pub(crate) mod clusters;
mod counters;
mod events;
mod failovers;
pub(crate) mod incidents;
mod latency;
mod leases;
pub(crate) mod members;
mod paths;
mod stores;
mod suspects;

use crate::input::Action;
use crate::state::filter::Filter;
use crate::state::table::{Key, List, Move};
use crate::state::{Effect, Model, RowId, ScreenId};
use crate::theme::Tone;
use crate::widgets::canvas::Canvas;
use crate::widgets::grid::{self, Column};
use crate::widgets::trend::Trend;
use obol_fabric::Instant;
use obol_observe::Health;
use obol_observe::sampling::data::Data;
use obol_observe::sampling::sample::ProcessRow;
use ratatui::layout::Rect;

/// All of them in the order of their tabs. A console starts with the first one.
static ALL: &[&dyn Screen] = &[
    &members::Members,
    &leases::Leases,
    &failovers::Failovers,
    &counters::COORDINATORS,
    &counters::DETECTORS,
    &chaos::Chaos,
    &latency::Latency,
    &events::Events,
    &stores::Stores,
    &incidents::Incidents,
];

/// The one without a digit, a tab and a place among them.
pub(crate) static CLUSTERS: &dyn Screen = &clusters::Clusters;

/// Screens that digits can show.
const TEN: usize = 10;

/// What is fixed of a screen.
pub(crate) struct About {
    /// Its title, one word. In lower case it is its command and its table in the configuration.
    pub(crate) id: ScreenId,
    /// The columns of its list.
    pub(crate) columns: &'static [Column],
    /// Whether the user may choose the columns.
    pub(crate) has_choice_of_columns: bool,
    /// Whether the user may sort the rows.
    pub(crate) can_sort: bool,
    /// Whether the list can be filtered.
    pub(crate) can_filter: bool,
    /// Explanations of further signs for the help.
    pub(crate) signs: &'static [(&'static str, &'static str)],
}

impl About {
    /// A list that the user may arrange in every way.
    const fn list(id: ScreenId, columns: &'static [Column]) -> Self {
        Self { id, columns, has_choice_of_columns: true, can_sort: true, can_filter: true, signs: &[] }
    }
}

/// A screen: a list of rows, and anything drawn beside it. The state of the list is in
/// [`Model::list`].
pub(crate) trait Screen: Sync {
    /// What is fixed of it.
    fn about(&self) -> About;

    /// What a newcomer is looking at.
    fn what(&self) -> &'static str;

    fn id(&self) -> ScreenId {
        self.about().id
    }

    /// The columns of its list.
    fn columns(&self) -> Vec<Column> {
        self.about().columns.to_vec()
    }

    /// The footer: `{action}` stands for its key; hints without room are dropped from the right.
    fn hints(&self, _model: &Model) -> &'static str {
        "{down}/{up} select   {sort}/{sort-by} sort   {reverse} reverse   {filter} filter   {freeze} freeze"
    }

    /// The shown rows in order.
    fn rows(&self, model: &Model) -> Vec<RowId>;

    /// The list's part of its area.
    fn list_area(&self, _model: &Model, area: Rect) -> Rect {
        area
    }

    fn draw(&self, model: &Model, canvas: &mut Canvas<'_>, area: Rect);

    /// Charts below it where the list leaves room.
    fn trends(&self) -> &'static [&'static Trend] {
        &[]
    }

    /// Moves the selection. Returns whether the screen changed.
    fn select(&self, model: &mut Model, to: Move) -> bool {
        let rows = self.rows(model);
        model.list_mut(self.id()).begin(to, &rows)
    }

    /// Handles an action differently from other screens; returns whether the screen changed.
    fn act(&self, _model: &mut Model, _action: Action, _effects: &mut Vec<Effect>) -> Option<bool> {
        None
    }
}

impl dyn Screen {
    /// The digit that shows it: its place among the tabs from 1, and 0 for the tenth.
    pub(crate) fn number(&self) -> u8 {
        let place = ALL.iter().position(|screen| screen.id() == self.id());
        place.and_then(|place| u8::try_from((place + 1) % TEN).ok()).unwrap_or(0)
    }

    /// The name of its command and of its table in the configuration.
    pub(crate) fn name(&self) -> String {
        self.id().0.to_lowercase()
    }

    /// The state of its list.
    pub(crate) fn list<'m>(&self, model: &'m Model) -> &'m List<RowId> {
        model.list(self.id())
    }

    /// Rows per page of its list.
    pub(crate) fn page_rows(&self, model: &Model, area: Rect) -> usize {
        grid::page_rows(self.list_area(model, area))
    }
}

/// All of them in the order of their tabs.
pub(crate) fn all() -> impl ExactSizeIterator<Item = &'static dyn Screen> {
    ALL.iter().copied()
}

/// These, and those without a tab.
pub(crate) fn everywhere() -> impl Iterator<Item = &'static dyn Screen> {
    all().chain([CLUSTERS])
}

/// The screen with which a console begins.
pub(crate) fn first() -> ScreenId {
    ALL[0].id()
}

/// The screen that is shown.
pub(crate) fn shown(model: &Model) -> &'static dyn Screen {
    everywhere().find(|screen| screen.id() == model.screen).unwrap_or(ALL[0])
}

/// The screen `by` tabs further on.
pub(crate) fn beside(model: &Model, by: isize) -> ScreenId {
    let count = ALL.len();
    let place = ALL.iter().position(|screen| screen.id() == model.screen);
    // From one without a tab to the first, or to the last.
    let place = place.unwrap_or(if by > 0 { count - 1 } else { 0 });
    ALL[(place + count).saturating_add_signed(by) % count].id()
}

/// The screen of a digit.
pub(crate) fn numbered(number: u8) -> Option<ScreenId> {
    Some(ALL.get((usize::from(number) + TEN - 1) % TEN)?.id())
}

/// What is said of a cluster's health, in the header and in the list of clusters.
pub(crate) fn health(health: Health) -> (String, Tone) {
    let (mark, tone) = match health {
        Health::Healthy => ("ok", Tone::Good),
        Health::Degraded => ("!", Tone::Warn),
        Health::Unknown => ("?", Tone::Stale),
        Health::Unavailable | Health::Unreachable => ("x", Tone::Bad),
    };
    (format!("{mark} {}", health.name()), tone)
}

/// Why a list is empty: the filter, or else `none`.
fn draw_none(
    model: &Model,
    canvas: &mut Canvas<'_>,
    area: Rect,
    filter: &Filter,
    (what, none): (&str, &str),
) {
    let hidden = format!("the filter matches no {what}; {{back}} clears it");
    let why = model.keymap.fill(if filter.is_empty() { none } else { &hidden });
    canvas.put(area, area.x + 2, area.y, &why, Tone::Dim);
}

/// A list of this height above, and the area below it if that is high enough.
fn split(body: Rect, height: u16, least: u16) -> (Rect, Option<Rect>) {
    let left = body.height.checked_sub(height).filter(|left| *left >= least);
    let Some(left) = left else { return (body, None) };
    (Rect { height, ..body }, Some(Rect { y: body.y + height, height: left, ..body }))
}

/// The processes of a list in order.
fn processes<'m>(
    model: &'m Model,
    id: ScreenId,
    columns: &[Column],
    kept: impl Fn(&ProcessRow, &Data) -> bool,
    key: impl Fn(usize, &ProcessRow, &Data, Instant) -> Key,
) -> Vec<&'m ProcessRow> {
    let data = model.data();
    let Some(sample) = data.sample.as_deref() else { return Vec::new() };
    let mut rows: Vec<&ProcessRow> = sample.processes.iter().filter(|row| kept(row, data)).collect();
    let falls = |column: usize| columns.get(column).is_some_and(|column| column.falls);
    model.list(id).arrange(&mut rows, falls, |column, row| key(column, row, data, sample.at));
    rows
}

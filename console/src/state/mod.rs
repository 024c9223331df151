//! What the console is at one moment. Nothing here reads a cluster, a clock or a terminal, and
//! nothing draws.

pub(crate) mod act;
pub(crate) mod alerts;
pub(crate) mod chaos;
pub(crate) mod data;
pub(crate) mod filter;
pub(crate) mod mouse;
mod packed;
pub(crate) mod replay;
pub(crate) mod store;
pub(crate) mod table;
pub(crate) mod windows;

use crate::input::{Keymap, Press};
use crate::poll::Update;
use crate::theme::{Glyphs, Theme};
use act::Verb;
use chaos::{Chaos, DrillUpdate};
use data::Data;
use mouse::Mouse;
use obol_fabric::{Instant, Name, Nanos, ViewId};
use replay::Replay;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::Store;
use table::List;

/// A cluster that was not read for twice the time between two samples, and so much more, is shown
/// as stale.
const STALE_BEYOND: Nanos = Nanos::from_millis(750);

/// A step back goes so many samples further back, so that the next ones are short.
const STEPS_AHEAD: usize = 32;
/// When so few of them are left, it goes back again.
const STEPS_LEAST: usize = 8;

/// A screen, known by its title.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ScreenId(pub(crate) &'static str);

/// What a row of a list is known by, so that a selection follows it wherever it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowId {
    Process(Name),
    /// A failover, by the view without the dead.
    View(ViewId),
    /// An event, by its process and stamp.
    Event(Name, Instant),
    /// A row that never changes its place.
    Place(usize),
}

/// What is being typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prompt {
    Filter,
    Palette,
    /// The column that the list is to be sorted by.
    SortBy,
    /// A note that divides before from after.
    Note,
    /// The cluster's name, to arm a drill.
    Arm,
}

/// What keys mean now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Normal,
    Help,
    /// All about the selected member is shown.
    Detail,
    /// Whether this is to be done to this process is asked.
    Confirm {
        verb: Verb,
        who: Name,
    },
    /// A line is typed.
    Typing {
        what: Prompt,
        text: String,
    },
    /// Quitting would end the cluster, too.
    Leaving,
}

/// What happens to the console.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Key(Press),
    Mouse(Mouse),
    Resize(u16, u16),
    Update(Update),
    /// So late it is on the host's monotonic clock.
    Tick(Instant),
    /// What the chaos screen's worker tells.
    Chaos(DrillUpdate),
    /// A report was written to this folder, or why not.
    Exported(Result<String, String>),
    /// A note was written, or why not.
    Noted(Result<String, String>),
    /// A recording began (its file), or ended (why, or none if as asked).
    Recording(Result<Option<String>, String>),
}

/// What the console wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// End; `true` leaves the screen's text in the terminal.
    Quit(bool),
    Suspend,
    Redraw,
    /// Begin a recording, or end it.
    Record,
    /// Write this note beside the cluster's memory.
    Note(String),
    /// Write a report on what is kept, in every format.
    Export,
    /// Put this into the clipboard of whoever sits at the terminal.
    Copy(String),
    /// Keep how the lists are sorted for the next start.
    Remember,
    /// Sound the terminal's bell.
    Bell,
    /// Find out what this drill would do.
    Preview(String),
    /// Run this drill.
    RunDrill(String),
    /// End the drill that runs.
    AbortDrill,
    /// Kill, stop or start a process.
    Act(Verb, Name),
    /// Let the console have the mouse, or the terminal.
    Mouse(bool),
}

/// Samples as they were at an earlier moment.
#[derive(Clone, Debug)]
pub(crate) struct Frozen {
    /// The newest sample that is shown.
    pub(crate) at: Instant,
    /// What follows from the samples up to it.
    pub(crate) data: Data,
    /// The same for an earlier sample, so that steps back from here need not begin with the oldest.
    pub(crate) before: Option<Box<(Instant, Data)>>,
}

/// The whole console.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) cluster: Name,
    pub(crate) theme: Theme,
    pub(crate) keymap: Arc<Keymap>,
    pub(crate) glyphs: Glyphs,
    pub(crate) size: (u16, u16),
    pub(crate) screen: ScreenId,
    pub(crate) mode: Mode,
    /// Whether quitting ends the cluster, too.
    pub(crate) owner: bool,
    /// Whether a new alert is heard.
    pub(crate) bell: bool,
    /// Follows the cluster, whatever is shown.
    pub(crate) live: Data,
    pub(crate) store: Store,
    pub(crate) frozen: Option<Frozen>,
    /// How a recording is played; none for a cluster that runs.
    pub(crate) replay: Option<Replay>,
    /// The file that is being recorded to.
    pub(crate) recording: Option<String>,
    /// How often the cluster is read.
    pub(crate) polled_every: Nanos,
    /// Why the cluster can not be read now.
    pub(crate) lost: Option<String>,
    /// How late it is.
    pub(crate) now: Instant,
    pub(crate) chaos: Chaos,
    /// What the user has done to the list of each screen.
    lists: BTreeMap<ScreenId, List<RowId>>,
    /// The failover that others are compared with.
    pub(crate) marked: Option<ViewId>,
    /// The time line's scale: each step is twice as fine; 0 shows all of it.
    pub(crate) zoom: i8,
    /// The time at the time line's left edge, after the first notice. As a time it stays, whatever
    /// the scale.
    pub(crate) pan: Nanos,
    /// So many processes beside the critical path are scrolled past in the time line.
    pub(crate) scroll: usize,
    /// Whether the console captures the mouse; else the terminal selects text with it.
    pub(crate) mouse: bool,
    /// The page of the help that is open.
    pub(crate) help_page: usize,
    /// The marked one of what can be chosen, while a name is typed.
    pub(crate) choice: Option<usize>,
    /// What the last key did, if it needs saying.
    pub(crate) note: Option<String>,
}

impl Model {
    pub(crate) fn new(cluster: Name, screen: ScreenId, theme: Theme, glyphs: Glyphs, owner: bool) -> Self {
        Self {
            cluster,
            theme,
            keymap: Arc::default(),
            glyphs,
            size: (0, 0),
            screen,
            mode: Mode::Normal,
            owner,
            bell: false,
            live: Data::default(),
            store: Store::default(),
            frozen: None,
            replay: None,
            recording: None,
            polled_every: Nanos::from_millis(250),
            lost: None,
            now: Instant::ZERO,
            chaos: Chaos::default(),
            lists: BTreeMap::new(),
            marked: None,
            zoom: 0,
            pan: Nanos::ZERO,
            scroll: 0,
            mouse: true,
            help_page: 0,
            choice: None,
            note: None,
        }
    }

    /// What the user has done to the list of a screen.
    pub(crate) fn list(&self, screen: ScreenId) -> &List<RowId> {
        static UNTOUCHED: List<RowId> = List::new();
        self.lists.get(&screen).unwrap_or(&UNTOUCHED)
    }

    /// The same, to change it.
    pub(crate) fn list_mut(&mut self, screen: ScreenId) -> &mut List<RowId> {
        self.lists.entry(screen).or_default()
    }

    /// What is shown: the newest, or what was when the screen was frozen.
    pub(crate) fn data(&self) -> &Data {
        self.frozen.as_ref().map_or(&self.live, |frozen| &frozen.data)
    }

    /// How old the newest sample is, if that is too old.
    pub(crate) fn stale(&self) -> Option<Nanos> {
        let age = self.now.since(self.live.sample.as_ref()?.at);
        (self.lost.is_some()
            || self.replay.is_none()
                && age > self.polled_every.saturating_mul(2).saturating_add(STALE_BEYOND))
        .then_some(age)
    }

    /// Makes the next steps back short while there is nothing else to do.
    pub(crate) fn look_ahead(&mut self) {
        // Of a recording all samples are kept, and it is played forward.
        let Some(frozen) = self.frozen.as_mut().filter(|_| self.replay.is_none()) else { return };
        let before = frozen.before.as_ref().map(|before| before.0);
        let between = |from| self.store.times().filter(|at| *at > from && *at < frozen.at).count();
        if before.is_some_and(|from| between(from) >= STEPS_LEAST) {
            return;
        }
        match self.store.places_before(frozen.at, STEPS_AHEAD) {
            Some(from) if before != Some(from) => {
                let mut data = Data::default();
                data.take_from(&self.store, None, from);
                frozen.before = Some(Box::new((from, data)));
            }
            _ => {}
        }
    }

    /// Shows the samples up to this moment, and no later ones.
    pub(crate) fn freeze_at(&mut self, at: Instant) {
        let (mut data, from, before) = match self.frozen.take() {
            Some(Frozen { at: from, data, before }) if from <= at => (data, Some(from), before),
            Some(Frozen { before: Some(before), .. }) if before.0 <= at => {
                (before.1.clone(), Some(before.0), Some(before))
            }
            _ => {
                let mut data = Data::default();
                let from = self.store.places_before(at, STEPS_AHEAD);
                let before = from.map(|from| {
                    data.take_from(&self.store, None, from);
                    Box::new((from, data.clone()))
                });
                (data, from, before)
            }
        };
        data.take_from(&self.store, from, at);
        self.frozen = Some(Frozen { at, data, before });
    }
}

//! The state of the console. Nothing here reads a cluster, a clock or a terminal, and nothing
//! draws.

pub(crate) mod act;
pub(crate) mod chaos;
pub(crate) mod filter;
pub(crate) mod mouse;
mod packed;
pub(crate) mod replay;
pub(crate) mod store;
pub(crate) mod table;

use crate::contexts::{Context, Summary};
use crate::input::{Action, Keymap, Press};
use crate::theme::{Glyphs, Theme};
use act::Verb;
use chaos::{Chaos, DrillUpdate};
use mouse::Mouse;
use obol_fabric::{Instant, Name, Nanos, ViewId};
use obol_observe::incidents::incident::Incident;
use obol_observe::sampling::Update;
use obol_observe::sampling::data::Data;
use replay::Replay;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use store::Store;
use table::List;

/// Data is stale when no sample has arrived for twice the interval plus this.
const STALE_BEYOND: Nanos = Nanos::from_millis(750);

/// A step back prepares this many earlier samples, so that the next steps are fast.
const STEPS_AHEAD: usize = 32;
/// With fewer prepared samples than this, it prepares more.
const STEPS_LEAST: usize = 8;

/// A screen, known by its title.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ScreenId(pub(crate) &'static str);

/// The identity of a list's row, which a selection follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowId {
    Process(Name),
    /// A failover, by the view without the dead.
    View(ViewId),
    /// An event, by its process and stamp.
    Event(Name, Instant),
    /// An incident, by a number that is made of its id.
    Incident(u64),
    /// A row with a fixed place.
    Fixed(usize),
}

/// A move from the shown sample to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Back,
    Forward,
    /// To the view change before it.
    ChangeBack,
    ChangeForward,
}

/// The purpose of the typed text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prompt {
    Filter,
    Palette,
    /// The column to sort by.
    SortBy,
    /// An annotation.
    Note,
    /// The cluster's name, to arm a drill.
    Arm,
    /// The name of a production cluster, to do this.
    Act(Verb, Name),
}

/// The meaning of keys at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Normal,
    Help,
    /// The details of the selected member are open.
    Detail,
    /// Log lines are shown.
    Logs,
    /// An action on a process waits for confirmation.
    Confirm {
        verb: Verb,
        who: Name,
    },
    /// A line is being typed.
    Typing {
        what: Prompt,
        text: String,
    },
    /// Quitting, which ends the cluster, waits for confirmation.
    Leaving,
}

/// An event for the console.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Key(Press),
    Mouse(Mouse),
    Resize(u16, u16),
    /// Whether the terminal's background is light.
    Background(bool),
    Update(Update),
    /// The time on the host's monotonic clock.
    Tick(Instant),
    /// An update of the chaos screen's worker.
    Chaos(DrillUpdate),
    /// The clusters of the list; nothing was read of them.
    Contexts(Vec<Context>),
    /// What was read of the cluster at this place of the list.
    Summary(usize, Summary),
    /// A log line of a process, or the reason why its log ended.
    Logged(Name, String),
    /// The folder of a report, or an error.
    Exported(Result<String, String>),
    /// The result of an annotation.
    Noted(Result<String, String>),
    /// A recording began (with its file), or ended (with an error, or on request).
    Recording(Result<Option<String>, String>),
}

/// An effect to perform outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// End; `true` leaves the screen's text in the terminal.
    Quit(bool),
    Suspend,
    Redraw,
    /// Begin or end a recording.
    Record,
    /// Write this annotation.
    Note(String),
    /// Say in all consoles that this operator knows of this incident.
    Acknowledge(Box<Incident>),
    /// Write a report on the kept samples, in every format.
    Export,
    /// Copy this to the clipboard of the terminal's user.
    Copy(String),
    /// Save the order of the lists for the next start.
    Remember,
    /// Sound the terminal's bell.
    Bell,
    /// Preview this drill.
    Preview(String),
    RunDrill(String),
    /// Abort the running drill.
    AbortDrill,
    /// Follow the log lines of this process, and of no other.
    Logs(Option<Name>),
    /// Kill, stop or start a process.
    Act(Verb, Name),
    /// Capture or release the mouse.
    Mouse(bool),
    /// Show the cluster at this place of the list in place of this one.
    Switch(usize),
}

/// Samples as of an earlier moment.
#[derive(Clone, Debug)]
pub(crate) struct Frozen {
    /// The newest shown sample.
    pub(crate) at: Instant,
    /// Data derived up to it.
    pub(crate) data: Data,
    /// The same for an earlier sample, from which steps back can start.
    pub(crate) before: Option<Box<(Instant, Data)>>,
}

/// Log lines that are kept.
const LOG_LINES_MAX: usize = 2000;

/// The log lines of a process, which are followed.
#[derive(Clone, Debug)]
pub(crate) struct Logs {
    pub(crate) who: Name,
    pub(crate) lines: VecDeque<String>,
    /// How many of the newest are below the shown ones.
    pub(crate) back: usize,
}

impl Logs {
    pub(crate) fn take(&mut self, line: String) {
        self.lines.push_back(line);
        // What is read stays in its place.
        self.back = if self.back > 0 { (self.back + 1).min(self.lines.len()) } else { 0 };
        if self.lines.len() > LOG_LINES_MAX {
            self.lines.pop_front();
        }
    }
}

/// The state of the console.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) cluster: Name,
    pub(crate) theme: Theme,
    /// Whether the terminal's background decides the theme.
    pub(crate) theme_follows: bool,
    pub(crate) keymap: Arc<Keymap>,
    pub(crate) glyphs: Glyphs,
    pub(crate) size: (u16, u16),
    pub(crate) screen: ScreenId,
    pub(crate) mode: Mode,
    /// Whether quitting ends the cluster, too.
    pub(crate) owner: bool,
    /// Whether a new alert sounds the bell.
    pub(crate) bell: bool,
    /// Live data, whatever is shown.
    pub(crate) live: Data,
    pub(crate) store: Store,
    pub(crate) frozen: Option<Frozen>,
    /// The replay state; `None` for a live cluster.
    pub(crate) replay: Option<Replay>,
    /// The file that is being recorded to.
    pub(crate) recording: Option<String>,
    /// The poll interval.
    pub(crate) polled_every: Nanos,
    /// Why the cluster cannot be read now.
    pub(crate) lost: Option<String>,
    /// The current time.
    pub(crate) now: Instant,
    pub(crate) chaos: Chaos,
    pub(crate) logs: Option<Logs>,
    /// The state of each screen's list.
    lists: BTreeMap<ScreenId, List<RowId>>,
    /// The failover marked for comparison.
    pub(crate) marked: Option<ViewId>,
    /// The time line's zoom as a power of two; 0 shows all.
    pub(crate) zoom: i8,
    /// The time at the time line's left edge, after the first notice; independent of the zoom.
    pub(crate) pan: Nanos,
    /// Scroll offset of the processes beside the critical path in the time line.
    pub(crate) scroll: usize,
    /// Whether the console captures the mouse; if not, the terminal selects text with it.
    pub(crate) mouse: bool,
    /// The open page of the help.
    pub(crate) help_page: usize,
    /// The marked choice while a name is typed.
    pub(crate) choice: Option<usize>,
    /// The shown cluster; `None` for a recording.
    pub(crate) context: Option<Context>,
    /// The clusters to choose from, and what was read of them.
    pub(crate) contexts: Vec<Context>,
    pub(crate) summaries: Vec<Option<Summary>>,
    /// A message about the last key, if any.
    pub(crate) note: Option<String>,
}

impl Model {
    /// Whether the action can do anything in this console, on some screen.
    pub(crate) fn offers(&self, action: Action) -> bool {
        use Action::*;
        match action {
            Kill | Stop | Start | Arm | RunDrill | AbortDrill => self.chaos.may_arm && self.replay.is_none(),
            Note | Record => self.replay.is_none(),
            Faster | Slower => self.replay.is_some(),
            _ => true,
        }
    }

    pub(crate) fn new(cluster: Name, screen: ScreenId, theme: Theme, glyphs: Glyphs, owner: bool) -> Self {
        Self {
            cluster,
            theme,
            theme_follows: false,
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
            logs: None,
            lists: BTreeMap::new(),
            marked: None,
            zoom: 0,
            pan: Nanos::ZERO,
            scroll: 0,
            mouse: true,
            help_page: 0,
            choice: None,
            context: None,
            contexts: Vec::new(),
            summaries: Vec::new(),
            note: None,
        }
    }

    /// What the cluster is called: its name in the configuration, if it has one.
    pub(crate) fn called(&self) -> String {
        self.context.as_ref().map_or_else(|| self.cluster.to_string(), |shown| shown.name.clone())
    }

    /// Whether it is one of those that serve users.
    pub(crate) fn is_production(&self) -> bool {
        self.context.as_ref().is_some_and(|shown| shown.production)
    }

    /// The state of a screen's list.
    pub(crate) fn list(&self, screen: ScreenId) -> &List<RowId> {
        static UNTOUCHED: List<RowId> = List::new();
        self.lists.get(&screen).unwrap_or(&UNTOUCHED)
    }

    /// The same, mutable.
    pub(crate) fn list_mut(&mut self, screen: ScreenId) -> &mut List<RowId> {
        self.lists.entry(screen).or_default()
    }

    /// The shown data: live, or as of the freeze.
    pub(crate) fn data(&self) -> &Data {
        self.frozen.as_ref().map_or(&self.live, |frozen| &frozen.data)
    }

    /// The time of the newest shown sample.
    pub(crate) fn shown_at(&self) -> Option<Instant> {
        let shown = self.frozen.as_ref().map(|frozen| frozen.at);
        shown.or_else(|| self.live.sample.as_ref().map(|sample| sample.at))
    }

    /// All that is known, also of later than what is shown; of a recording, what was shown.
    pub(crate) fn newest(&self) -> &Data {
        if self.replay.is_some() { self.data() } else { &self.live }
    }

    /// The times of the first and the newest sample that can be shown.
    pub(crate) fn reach(&self) -> Option<(Instant, Instant)> {
        match &self.replay {
            Some(replay) => replay.first().map(|first| (first, first + replay.span().0)),
            None => Some((self.store.times().next()?, self.store.times().next_back()?)),
        }
    }

    /// The samples at which incidents and marks were seen first.
    pub(crate) fn past_moments(&self) -> (Vec<Instant>, Vec<Instant>) {
        let data = self.newest();
        let seen = |at: Instant| match &self.replay {
            Some(replay) => replay.first_from(at),
            None => self.store.times().find(|time| *time >= at),
        };
        let incidents = data.incidents().into_iter().chain(data.ended_incidents());
        let marks = data.marks.iter().filter_map(|mark| seen(mark.at));
        (incidents.filter_map(|one| seen(one.since)).collect(), marks.collect())
    }

    /// Shows the samples up to a moment, or the first one. Returns whether that is another than what is shown.
    pub(crate) fn seek(&mut self, target: Instant) -> bool {
        let Some(shown) = self.shown_at() else { return false };
        if self.replay.is_some() {
            return self.seek_replay(target);
        }
        let times = || self.store.times();
        let Some(at) = times().rev().find(|at| *at <= target).or(times().next()) else { return false };
        if at != shown {
            self.freeze_at(at);
        }
        at != shown
    }

    /// The age of the newest sample, if it is stale.
    pub(crate) fn stale(&self) -> Option<Nanos> {
        let age = self.now.since(self.live.sample.as_ref()?.at);
        (self.lost.is_some()
            || self.replay.is_none()
                && age > self.polled_every.saturating_mul(2).saturating_add(STALE_BEYOND))
        .then_some(age)
    }

    /// Prepares the next steps back while idle.
    pub(crate) fn look_ahead(&mut self) {
        // A recording has checkpoints.
        let Some(frozen) = self.frozen.as_mut().filter(|_| self.replay.is_none()) else { return };
        let before = frozen.before.as_ref().map(|before| before.0);
        let between = |from| self.store.times().filter(|at| *at > from && *at < frozen.at).count();
        if before.is_some_and(|from| between(from) >= STEPS_LEAST) {
            return;
        }
        match self.store.places_before(frozen.at, STEPS_AHEAD) {
            Some(from) if before != Some(from) => {
                let mut data = Data::default();
                self.store.derive(&mut data, None, from);
                frozen.before = Some(Box::new((from, data)));
            }
            _ => {}
        }
    }

    /// Shows the kept samples up to this moment.
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
                    self.store.derive(&mut data, None, from);
                    Box::new((from, data.clone()))
                });
                (data, from, before)
            }
        };
        self.store.derive(&mut data, from, at);
        self.frozen = Some(Frozen { at, data, before });
    }
}

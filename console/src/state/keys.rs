//! What each action does to the console.

use crate::input::{Action, Press};
use crate::poll::sample::ProcessRow;
use crate::state::act::Verb;
use crate::state::data::Status;
use crate::state::filter::Filter;
use crate::state::palette::{Choice, Does};
use crate::state::table::Move;
use crate::state::{Effect, Frozen, Mode, Model, Prompt, Screen};
use crate::view;
use crossterm::event::KeyCode;
use obol_fabric::{Name, Nanos, ViewId};

/// The time line is at most two to the power of this finer or coarser than the one that shows all.
const ZOOM_MAX: i8 = 12;
/// What is typed is at most so long.
const TYPED_MAX: usize = 128;

impl Model {
    /// Takes a key. `true` if the screen is another now.
    pub(super) fn press(&mut self, press: Press, effects: &mut Vec<Effect>) -> bool {
        match self.mode {
            Mode::Typing { .. } => self.type_key(press, effects),
            Mode::Help => match self.keymap.action(press) {
                Some(action @ (Action::Quit | Action::QuitKeep | Action::Suspend | Action::Redraw)) => {
                    self.mode = Mode::Normal;
                    // Closing the help is what `q` means here.
                    action == Action::Quit || self.act(action, effects)
                }
                Some(Action::Help | Action::NextScreen | Action::PageDown | Action::Down)
                    if self.help_page + 1 < view::help_pages(self) =>
                {
                    self.help_page += 1;
                    true
                }
                Some(Action::PreviousScreen | Action::PageUp | Action::Up) if self.help_page > 0 => {
                    self.help_page -= 1;
                    true
                }
                _ => {
                    self.mode = Mode::Normal;
                    true
                }
            },
            Mode::Confirm { verb, who } => self.answer(verb, who, press, effects),
            Mode::Detail => match self.keymap.action(press) {
                Some(Action::Back | Action::Quit) => {
                    self.mode = Mode::Normal;
                    true
                }
                Some(
                    action @ (Action::Open | Action::Screen(_) | Action::NextScreen | Action::PreviousScreen),
                ) => {
                    self.mode = Mode::Normal;
                    if action == Action::Open {
                        self.events_of_selected()
                    } else {
                        // The pane closes, whatever else changes.
                        self.act(action, effects);
                        true
                    }
                }
                Some(action) => self.act(action, effects),
                None => false,
            },
            Mode::Leaving => {
                self.mode = Mode::Normal;
                if press.typed() == Some('y') {
                    effects.push(Effect::Quit(false));
                }
                true
            }
            Mode::Normal => {
                let said = self.note.take().is_some();
                self.keymap.action(press).is_some_and(|action| self.act(action, effects)) || said
            }
        }
    }

    fn type_key(&mut self, press: Press, effects: &mut Vec<Effect>) -> bool {
        let Mode::Typing { what, text } = &self.mode else { return false };
        let what = *what;
        let candidates = self.candidates(what, text);
        let marked = self.marked_choice(text).filter(|at| *at < candidates.len());
        let Mode::Typing { text, .. } = &mut self.mode else { return false };
        match (press.code(), press.typed()) {
            (KeyCode::Down | KeyCode::Up, _) if candidates.is_empty() => return false,
            (KeyCode::Down, _) => {
                self.choice = Some(marked.map_or(0, |at| (at + 1).min(candidates.len() - 1)));
                return true;
            }
            (KeyCode::Up, _) => {
                self.choice = Some(marked.map_or(candidates.len() - 1, |at| at.saturating_sub(1)));
                return true;
            }
            (KeyCode::Tab, _) => {
                let Some(choice) = candidates.get(marked.unwrap_or(0)) else { return false };
                text.clone_from(&choice.name);
                self.choice = None;
                return true;
            }
            (KeyCode::Esc, _) => {
                self.mode = Mode::Normal;
                self.choice = None;
                if what == Prompt::Filter {
                    self.set_filter("");
                }
            }
            (KeyCode::Enter, _) => {
                let text = std::mem::take(text);
                self.mode = Mode::Normal;
                self.choice = None;
                match what {
                    Prompt::Palette | Prompt::SortBy => {
                        let chosen = marked.and_then(|at| candidates.into_iter().nth(at));
                        self.choose(what, text.trim(), chosen, effects);
                    }
                    Prompt::Arm => self.armed_by(text.trim()),
                    Prompt::Note if !text.trim().is_empty() => {
                        effects.push(Effect::Note(text.trim().to_owned()));
                    }
                    Prompt::Note | Prompt::Filter => {}
                }
            }
            (KeyCode::Backspace, _) => {
                if text.pop().is_none() {
                    self.mode = Mode::Normal;
                }
                self.choice = None;
                self.refilter();
            }
            (_, Some(letter)) if text.len() < TYPED_MAX && !letter.is_control() => {
                text.push(letter);
                self.choice = None;
                self.refilter();
            }
            _ => return false,
        }
        true
    }

    /// A filter works while it is typed.
    fn refilter(&mut self) {
        if let Mode::Typing { what: Prompt::Filter, text } = &self.mode {
            let text = text.clone();
            self.set_filter(&text);
        }
    }

    fn set_filter(&mut self, text: &str) {
        let filter = Filter::new(text);
        match self.screen {
            Screen::Members => self.members.filter = filter,
            Screen::Leases => self.leases.filter = filter,
            Screen::Failovers => self.failovers.filter = filter,
            Screen::Coordinators => self.coordinators.filter = filter,
            Screen::Detectors => self.detectors.filter = filter,
            Screen::Chaos | Screen::Latency => {}
            Screen::Events => self.events.filter = filter,
        }
    }

    /// The filter of the screen that is shown.
    pub(crate) fn filter(&self) -> &Filter {
        match self.screen {
            Screen::Members => &self.members.filter,
            Screen::Leases => &self.leases.filter,
            Screen::Failovers => &self.failovers.filter,
            Screen::Coordinators => &self.coordinators.filter,
            Screen::Detectors => &self.detectors.filter,
            Screen::Chaos => &self.chaos.list.filter,
            Screen::Latency => &self.latency.filter,
            Screen::Events => &self.events.filter,
        }
    }

    /// Does what was chosen by name.
    fn choose(&mut self, what: Prompt, text: &str, chosen: Option<Choice>, effects: &mut Vec<Effect>) {
        match chosen.map(|choice| choice.does) {
            Some(Does::Act(action)) => drop(self.act(action, effects)),
            Some(Does::Sort(column)) => self.sort_by(column, effects),
            None if text.is_empty() => {}
            None => {
                let (kind, key) = match what {
                    Prompt::SortBy => ("column", "{sort-by}"),
                    _ => ("command", "{palette}"),
                };
                let list = self.keymap.fill(&format!("{key} lists them all, and Tab completes"));
                self.note = Some(format!("no {kind} {text:?}: {list}"));
            }
        }
    }

    /// Does what was asked. `true` if the screen is another now.
    pub(super) fn act(&mut self, action: Action, effects: &mut Vec<Effect>) -> bool {
        let page = isize::try_from(view::page_rows(self)).unwrap_or(1).max(1);
        match action {
            Action::Screen(number) => {
                let found = Screen::ALL.into_iter().find(|screen| screen.number() == number);
                found.is_some_and(|screen| std::mem::replace(&mut self.screen, screen) != screen)
            }
            Action::NextScreen => self.turn(1),
            Action::PreviousScreen => self.turn(Screen::ALL.len() - 1),
            Action::Down => self.go(Move::By(1)),
            Action::Up => self.go(Move::By(-1)),
            Action::PageDown => self.go(Move::By(page)),
            Action::PageUp => self.go(Move::By(-page)),
            Action::First => self.go(Move::First),
            Action::Last => self.go(Move::Last),
            Action::Open if self.screen == Screen::Chaos => self.preview(effects),
            Action::Open => self.open(),
            Action::Kill => self.ask(Verb::Kill),
            Action::Stop => self.ask(Verb::Stop),
            Action::Start => self.ask(Verb::Start),
            Action::Mouse => {
                self.mouse ^= true;
                effects.push(Effect::Mouse(self.mouse));
                let who = if self.mouse {
                    "the console has the mouse"
                } else {
                    "the terminal has the mouse, to select text"
                };
                self.note = Some(who.to_owned());
                true
            }
            Action::Arm => self.arm(effects),
            Action::RunDrill => self.run_armed(effects),
            Action::AbortDrill => self.abort(effects),
            Action::Back => self.back(),
            Action::Sort => self.sort(effects),
            Action::SortBy if self.order(self.screen).is_none() => {
                self.note = Some("the rows of this screen have an order of their own".to_owned());
                true
            }
            Action::SortBy => {
                self.mode = Mode::Typing { what: Prompt::SortBy, text: String::new() };
                true
            }
            Action::Reverse => self.reverse(effects),
            Action::Filter if matches!(self.screen, Screen::Chaos | Screen::Latency) => false,
            Action::Filter => {
                let text = self.filter().text().to_owned();
                self.mode = Mode::Typing { what: Prompt::Filter, text };
                true
            }
            Action::Palette => {
                self.mode = Mode::Typing { what: Prompt::Palette, text: String::new() };
                true
            }
            Action::FindNext => self.find(1),
            Action::FindPrevious => self.find(-1),
            Action::Freeze if self.replay.is_some() => self.play_or_stop(),
            Action::Freeze => self.freeze(),
            Action::Faster => self.speed(1),
            Action::Slower => self.speed(-1),
            Action::Note if self.replay.is_some() => {
                self.note = Some("a recording takes no notes".to_owned());
                true
            }
            Action::Note => {
                self.mode = Mode::Typing { what: Prompt::Note, text: String::new() };
                true
            }
            Action::Export => {
                effects.push(Effect::Export);
                false
            }
            Action::Copy => {
                if self.screen == Screen::Failovers && self.failovers.selected.is_none() {
                    // The newest is shown.
                    self.failovers.selected = view::failovers::rows(self).last().map(|f| f.view);
                }
                self.note = Some(match crate::selected(self) {
                    Some(row) => {
                        effects.push(Effect::Copy(row.clone()));
                        // Whether a terminal takes it, it does not tell.
                        format!("copied, where the terminal allows that: {row}")
                    }
                    None => self.keymap.fill("nothing is selected; {down} and {up} select"),
                });
                true
            }
            Action::Record if self.replay.is_some() => {
                self.note = Some("this is a recording already".to_owned());
                true
            }
            Action::Record => {
                effects.push(Effect::Record);
                false
            }
            Action::StepBack | Action::StepForward | Action::EventBack | Action::EventForward => {
                self.step(action)
            }
            Action::ZoomIn
            | Action::ZoomOut
            | Action::ZoomReset
            | Action::PanLeft
            | Action::PanRight
            | Action::LineUp
            | Action::LineDown => self.screen == Screen::Failovers && self.look_at(action),
            Action::Mark => self.mark(),
            Action::Theme => {
                self.theme = self.theme.next();
                self.note = Some(format!("theme {}", self.theme.name()));
                true
            }
            Action::Help => {
                (self.mode, self.help_page) = (Mode::Help, 0);
                true
            }
            Action::Suspend => {
                effects.push(Effect::Suspend);
                true
            }
            Action::Redraw => {
                effects.push(Effect::Redraw);
                true
            }
            Action::Quit if self.owner => {
                self.mode = Mode::Leaving;
                true
            }
            Action::Quit => {
                effects.push(Effect::Quit(false));
                false
            }
            Action::QuitKeep => {
                effects.push(Effect::Quit(true));
                false
            }
        }
    }

    pub(super) fn reverse(&mut self, effects: &mut Vec<Effect>) -> bool {
        let Some((_, reverse)) = self.order(self.screen) else { return false };
        *reverse ^= true;
        self.keep_order(effects);
        true
    }

    /// Has the order remembered, and says so.
    fn keep_order(&mut self, effects: &mut Vec<Effect>) {
        let columns = view::columns(self.screen);
        let Some((sort, reverse)) = self.order(self.screen) else { return };
        let how = match (sort.and_then(|at| columns.get(at)), *reverse) {
            (Some(column), reverse) => {
                let falls = column.falls ^ reverse;
                let way = match (column.right, falls) {
                    (true, true) => "the largest first",
                    (true, false) => "the smallest first",
                    (false, true) => "descending",
                    (false, false) => "ascending",
                };
                format!("sorted by {}, {way}", column.head)
            }
            (None, true) => "in the list's own order, the other way round".to_owned(),
            (None, false) => "in the list's own order".to_owned(),
        };
        self.note = Some(format!("{how}; this is kept for the next start"));
        effects.push(Effect::Remember);
    }

    /// Sorts the shown list by a column, or by none.
    pub(super) fn sort_by(&mut self, column: Option<usize>, effects: &mut Vec<Effect>) {
        match self.screen {
            Screen::Members => self.members.sort_by(column),
            Screen::Leases => self.leases.sort_by(column),
            Screen::Coordinators => self.coordinators.sort_by(column),
            Screen::Detectors => self.detectors.sort_by(column),
            Screen::Failovers | Screen::Chaos | Screen::Latency | Screen::Events => return,
        }
        self.keep_order(effects);
    }

    fn turn(&mut self, by: usize) -> bool {
        let at = Screen::ALL.iter().position(|screen| *screen == self.screen).unwrap_or(0);
        self.screen = Screen::ALL[(at + by) % Screen::ALL.len()];
        true
    }

    pub(super) fn go(&mut self, to: Move) -> bool {
        match self.screen {
            Screen::Members => {
                let shown: Vec<Name> = view::members::rows(self).iter().map(|row| row.name).collect();
                self.members.begin(to, &shown)
            }
            Screen::Leases => {
                let shown: Vec<Name> = view::leases::rows(self).iter().map(|row| row.name).collect();
                self.leases.begin(to, &shown)
            }
            Screen::Coordinators | Screen::Detectors => {
                let rows = view::counters::rows(self, self.screen);
                let shown: Vec<Name> = rows.iter().map(|row| row.name).collect();
                let list = match self.screen {
                    Screen::Coordinators => &mut self.coordinators,
                    _ => &mut self.detectors,
                };
                list.begin(to, &shown)
            }
            Screen::Failovers => {
                let shown: Vec<ViewId> = view::failovers::rows(self).iter().map(|f| f.view).collect();
                // Without a selection the newest is shown.
                self.failovers.selected = self.failovers.selected.or(shown.last().copied());
                (self.pan, self.scroll) = (Nanos::ZERO, 0);
                self.failovers.go(to, &shown);
                true
            }
            Screen::Chaos => {
                let shown: Vec<String> = self.chaos.drills.iter().map(|drill| drill.name.clone()).collect();
                self.chaos.list.go(to, &shown)
            }
            Screen::Latency => {
                self.latency.go(to, &view::latency::names());
                true
            }
            Screen::Events => {
                let shown: Vec<(Name, u64)> =
                    view::events::rows(self).iter().map(|event| (event.process, event.at.0)).collect();
                match (to, &self.events.selected) {
                    // The newest are shown.
                    (Move::By(_), None) => self.events.go(Move::Last, &shown),
                    _ => self.events.go(to, &shown),
                }
            }
        }
    }

    /// Another part of the time line.
    fn look_at(&mut self, action: Action) -> bool {
        let before = (self.zoom, self.pan, self.scroll);
        let Some((step, end)) = view::failovers::pan(self) else { return false };
        match action {
            Action::ZoomIn => self.zoom = (self.zoom + 1).min(ZOOM_MAX),
            Action::ZoomOut => self.zoom = (self.zoom - 1).max(-ZOOM_MAX),
            Action::ZoomReset => (self.zoom, self.pan, self.scroll) = (0, Nanos::ZERO, 0),
            Action::PanLeft => self.pan = Nanos(self.pan.0.saturating_sub(step.0)),
            // What is behind the last moment has nothing to show.
            Action::PanRight => self.pan = self.pan.saturating_add(step).min(end.max(self.pan)),
            Action::LineUp => self.scroll = self.scroll.saturating_sub(1),
            _ => self.scroll = (self.scroll + 1).min(view::failovers::processes(self)),
        }
        before != (self.zoom, self.pan, self.scroll)
    }

    /// Compares other failovers with the selected one, or no more.
    fn mark(&mut self) -> bool {
        if self.screen != Screen::Failovers {
            return false;
        }
        let shown: Vec<ViewId> = view::failovers::rows(self).iter().map(|f| f.view).collect();
        let Some(newest) = shown.last().copied() else { return false };
        let here = self.failovers.selected.filter(|view| shown.contains(view)).unwrap_or(newest);
        self.marked = (self.marked != Some(here)).then_some(here);
        let said = self.marked.map(|view| format!("view {view} is marked; others are compared with it"));
        self.note = Some(said.unwrap_or("no failover is marked".to_owned()));
        true
    }

    /// From a member to all about it, and from a failover to its events.
    fn open(&mut self) -> bool {
        if self.screen == Screen::Failovers {
            self.screen = Screen::Events;
            self.events.filter = Filter::default();
            self.events.selected = None;
            let views = view::failovers::rows(self);
            let selected = views.iter().find(|f| Some(f.view) == self.failovers.selected).or(views.last());
            if let Some(first) = selected.and_then(|failover| failover.moments.first()) {
                let id = (first.process, first.at.0);
                self.events.selected = Some(id);
            }
            return true;
        }
        if self.screen != Screen::Members {
            return false;
        }
        let names: Vec<Name> = view::members::rows(self).iter().map(|row| row.name).collect();
        let Some(name) = names.get(self.members.place(&names)) else { return false };
        self.members.selected = Some(*name);
        self.mode = Mode::Detail;
        true
    }

    /// From the selected member to its events.
    fn events_of_selected(&mut self) -> bool {
        let Some(name) = self.members.selected else { return false };
        self.events.filter = Filter::new(&format!("-l process={name}"));
        self.events.selected = None;
        self.screen = Screen::Events;
        true
    }

    fn back(&mut self) -> bool {
        if !self.filter().is_empty() {
            self.set_filter("");
            return true;
        }
        let screen = std::mem::replace(&mut self.screen, Screen::Members);
        screen != Screen::Members
    }

    fn sort(&mut self, effects: &mut Vec<Effect>) -> bool {
        let columns = view::columns(self.screen).len();
        match self.screen {
            Screen::Members => self.members.sort_next(columns),
            Screen::Leases => self.leases.sort_next(columns),
            Screen::Coordinators => self.coordinators.sort_next(columns),
            Screen::Detectors => self.detectors.sort_next(columns),
            Screen::Failovers | Screen::Chaos | Screen::Latency | Screen::Events => return false,
        }
        self.keep_order(effects);
        true
    }

    /// To the next member that needs somebody.
    fn find(&mut self, by: isize) -> bool {
        if self.screen != Screen::Members {
            return false;
        }
        let rows = view::members::rows(self);
        let names: Vec<Name> = rows.iter().map(|row| row.name).collect();
        let needs = |row: &&ProcessRow| {
            !matches!(self.data().status(row), Status::Ok | Status::Joining | Status::Left)
        };
        let wanted: Vec<usize> = (0..rows.len()).filter(|at| needs(&rows[*at])).collect();
        let here = self.members.selected.as_ref().map(|_| self.members.place(&names));
        let after = wanted.iter().find(|at| here.is_none_or(|here| **at > here)).or(wanted.first());
        let before = wanted.iter().rfind(|at| here.is_none_or(|here| **at < here)).or(wanted.last());
        match if by > 0 { after } else { before } {
            Some(at) => self.members.selected = Some(names[*at]),
            None => self.note = Some("no member needs anybody".to_owned()),
        }
        true
    }

    fn freeze(&mut self) -> bool {
        self.frozen = match self.frozen.take() {
            Some(_) => None,
            None => {
                let Some(sample) = &self.live.sample else { return false };
                Some(Frozen { at: sample.at, data: self.live.clone(), before: None })
            }
        };
        true
    }

    fn step(&mut self, action: Action) -> bool {
        let Some(newest) = self.live.sample.as_ref().map(|sample| sample.at) else { return false };
        let at = self.frozen.as_ref().map_or(newest, |frozen| frozen.at);
        let found = match action {
            Action::StepBack => self.store.before(at),
            Action::StepForward => self.store.after(at),
            Action::EventBack => self.store.change_before(at),
            _ => self.store.change_after(at),
        };
        self.stop();
        match found {
            Some(at) => self.freeze_at(at),
            None => {
                let end = matches!(action, Action::StepForward | Action::EventForward);
                let live = if self.replay.is_some() {
                    "the recording ends here"
                } else {
                    "this is the newest; {freeze} goes on"
                };
                let what = if end { live } else { "nothing earlier is kept" };
                self.note = Some(self.keymap.fill(what));
            }
        }
        true
    }
}

//! The effect of each action on the console.

use crate::input::{Action, Jump, Press};
use crate::palette::{Choice, Command};
use crate::screens::{self, clusters, incidents, members};
use crate::state::act::Verb;
use crate::state::filter::Filter;
use crate::state::table::Move;
use crate::state::{Effect, Frozen, Logs, Mode, Model, Prompt, Step};
use crate::view;
use crossterm::event::KeyCode;
use obol_fabric::Name;
use std::collections::VecDeque;

/// Length limit of typed text.
const TYPED_MAX: usize = 128;

/// The second of a time of day, as `12:35` or `12:35:07`.
fn second_of_day(text: &str) -> Option<u64> {
    let parts = text.split(':').map(|part| part.parse::<u64>().ok().filter(|_| part.len() <= 2));
    let (hour, minute, second) = match parts.collect::<Option<Vec<_>>>()?[..] {
        [hour, minute] => (hour, minute, 0),
        [hour, minute, second] => (hour, minute, second),
        _ => return None,
    };
    (hour < 24 && minute < 60 && second < 60).then_some(hour * 3600 + minute * 60 + second)
}

impl Model {
    /// Handles a key. Returns whether the screen changed.
    pub(super) fn press(&mut self, press: Press, effects: &mut Vec<Effect>) -> bool {
        match self.mode {
            Mode::Typing { .. } => self.type_key(press, effects),
            Mode::Help => match self.keymap.action(press) {
                Some(action @ (Action::Quit | Action::QuitKeep | Action::Suspend | Action::Redraw)) => {
                    self.mode = Mode::Normal;
                    // In the help, `q` closes it.
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
                        members::show_events(self)
                    } else {
                        // The pane closes, whatever else changes.
                        self.act(action, effects);
                        true
                    }
                }
                Some(action @ (Action::Events | Action::Drills)) => {
                    self.mode = Mode::Normal;
                    self.act(action, effects)
                }
                Some(action) => self.act(action, effects),
                None => false,
            },
            Mode::Logs => self.read_logs(press, effects),
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
        match (press.code, press.typed()) {
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
                    Prompt::Act(verb, who) => self.act_by_name(verb, who, text.trim(), effects),
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

    /// A filter takes effect while it is typed.
    fn refilter(&mut self) {
        if let Mode::Typing { what: Prompt::Filter, text } = &self.mode {
            let text = text.clone();
            self.set_filter(&text);
        }
    }

    fn set_filter(&mut self, text: &str) {
        if screens::shown(self).about().can_filter {
            self.list_mut(self.screen).filter = Filter::new(text);
        }
    }

    /// Executes a choice by name.
    fn choose(&mut self, what: Prompt, text: &str, chosen: Option<Choice>, effects: &mut Vec<Effect>) {
        match chosen.map(|choice| choice.command) {
            Some(Command::Act(action)) => drop(self.act(action, effects)),
            Some(Command::Sort(column)) => self.sort_by(column, effects),
            None if text.is_empty() => {}
            None if what == Prompt::Palette
                && let Some(second) = second_of_day(text) =>
            {
                self.go_to_time(second);
            }
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

    /// Executes an action. Returns whether the screen changed.
    pub(super) fn act(&mut self, action: Action, effects: &mut Vec<Effect>) -> bool {
        let screen = screens::shown(self);
        if let Some(changed) = screen.act(self, action, effects) {
            return changed;
        }
        let page = isize::try_from(view::page_rows(self)).unwrap_or(1).max(1);
        let mut emit = |effect, changed| {
            effects.push(effect);
            changed
        };
        match action {
            Action::Screen(number) => screens::numbered(number)
                .is_some_and(|screen| std::mem::replace(&mut self.screen, screen) != screen),
            Action::NextScreen => self.turn(1),
            Action::PreviousScreen => self.turn(-1),
            Action::Down => self.go(Move::By(1)),
            Action::Up => self.go(Move::By(-1)),
            Action::PageDown => self.go(Move::By(page)),
            Action::PageUp => self.go(Move::By(-page)),
            Action::First => self.go(Move::First),
            Action::Last => self.go(Move::Last),
            Action::Kill => self.ask(Verb::Kill),
            Action::Stop => self.ask(Verb::Stop),
            Action::Start => self.ask(Verb::Start),
            Action::Mouse => self.toggle_mouse(effects),
            Action::Arm => self.arm(effects),
            Action::RunDrill => self.run_armed(effects),
            Action::AbortDrill => self.abort(effects),
            Action::Back => self.back(),
            Action::Sort => self.sort(effects),
            Action::SortBy if !screen.about().can_sort => {
                self.say("the rows of this screen cannot be sorted")
            }
            Action::SortBy => self.ask_for(Prompt::SortBy, ""),
            Action::Reverse => self.reverse(effects),
            Action::Filter if !screen.about().can_filter => false,
            Action::Filter => {
                let text = screen.list(self).filter.text().to_owned();
                self.ask_for(Prompt::Filter, &text)
            }
            Action::Palette => self.ask_for(Prompt::Palette, ""),
            Action::Freeze if self.replay.is_some() => self.play_or_stop(),
            Action::Freeze => self.freeze(),
            Action::Faster => self.speed(1),
            Action::Slower => self.speed(-1),
            Action::Note if self.replay.is_some() => self.say("a recording cannot be annotated"),
            Action::Note => self.ask_for(Prompt::Note, ""),
            Action::Export => emit(Effect::Export, false),
            Action::Copy => self.copy(effects),
            Action::Record if self.replay.is_some() => self.say("this is a recording already"),
            Action::Record => emit(Effect::Record, false),
            Action::Seek(jump) => self.jump(jump),
            Action::StepBack | Action::StepForward | Action::EventBack | Action::EventForward => {
                self.step(action)
            }
            // These keys belong to some screens only.
            Action::Open
            | Action::Logs
            | Action::Events
            | Action::Drills
            | Action::FindNext
            | Action::FindPrevious
            | Action::Mark
            | Action::ZoomIn
            | Action::ZoomOut
            | Action::ZoomReset
            | Action::PanLeft
            | Action::PanRight
            | Action::LineUp
            | Action::LineDown => false,
            Action::Theme => self.next_theme(),
            Action::Help => {
                self.help_page = 0;
                self.turn_to(Mode::Help)
            }
            Action::Alerts => {
                self.screen = incidents::ID;
                true
            }
            Action::Clusters => std::mem::replace(&mut self.screen, clusters::ID) != clusters::ID,
            Action::Suspend => emit(Effect::Suspend, true),
            Action::Redraw => emit(Effect::Redraw, true),
            Action::Quit if self.owner => self.turn_to(Mode::Leaving),
            Action::Quit => emit(Effect::Quit(false), false),
            Action::QuitKeep => emit(Effect::Quit(true), false),
        }
    }

    fn next_theme(&mut self) -> bool {
        self.theme = self.theme.next();
        self.theme_follows = false;
        self.say(&format!("theme {}", self.theme.name()))
    }

    /// Moves through log lines, or closes them.
    fn read_logs(&mut self, press: Press, effects: &mut Vec<Effect>) -> bool {
        let page = usize::from(view::log_rows(self)).max(1);
        let Some(logs) = &mut self.logs else { return false };
        let last = logs.lines.len().saturating_sub(page);
        logs.back = match self.keymap.action(press) {
            Some(Action::Up) => (logs.back + 1).min(last),
            Some(Action::Down) => logs.back.saturating_sub(1),
            Some(Action::PageUp) => (logs.back + page).min(last),
            Some(Action::PageDown) => logs.back.saturating_sub(page),
            Some(Action::First) => last,
            Some(Action::Last) => 0,
            Some(Action::Back | Action::Quit | Action::Logs) => {
                (self.mode, self.logs) = (Mode::Normal, None);
                effects.push(Effect::Logs(None));
                return true;
            }
            Some(action @ (Action::Suspend | Action::Redraw)) => return self.act(action, effects),
            _ => return false,
        };
        true
    }

    /// Follows the log lines of a process.
    pub(crate) fn follow_logs(&mut self, who: Name, effects: &mut Vec<Effect>) -> bool {
        if self.replay.is_some() {
            return self.say("a recording has no log lines; its events are on screen 8");
        }
        self.logs = Some(Logs { who, lines: VecDeque::new(), back: 0 });
        effects.push(Effect::Logs(Some(who)));
        self.turn_to(Mode::Logs)
    }

    /// Shows a note.
    fn say(&mut self, note: &str) -> bool {
        self.note = Some(note.to_owned());
        true
    }

    /// Begins to type a line.
    fn ask_for(&mut self, what: Prompt, text: &str) -> bool {
        self.turn_to(Mode::Typing { what, text: text.to_owned() })
    }

    fn turn_to(&mut self, mode: Mode) -> bool {
        self.mode = mode;
        true
    }

    fn toggle_mouse(&mut self, effects: &mut Vec<Effect>) -> bool {
        self.mouse ^= true;
        effects.push(Effect::Mouse(self.mouse));
        self.say(if self.mouse {
            "the console captures the mouse"
        } else {
            "mouse released: the terminal selects text"
        })
    }

    /// Copies the selected row.
    fn copy(&mut self, effects: &mut Vec<Effect>) -> bool {
        self.note = Some(match view::selected(self) {
            Some(row) => {
                effects.push(Effect::Copy(row.clone()));
                // A terminal does not report whether it accepts this.
                format!("copied, if the terminal allows it: {row}")
            }
            None => self.keymap.fill("nothing is selected; {down} and {up} select"),
        });
        true
    }

    pub(super) fn reverse(&mut self, effects: &mut Vec<Effect>) -> bool {
        if !screens::shown(self).about().can_sort {
            return false;
        }
        self.list_mut(self.screen).reverse ^= true;
        self.keep_order(effects);
        true
    }

    /// Has the order saved, and reports it.
    fn keep_order(&mut self, effects: &mut Vec<Effect>) {
        let screen = screens::shown(self);
        let columns = screen.columns();
        let list = screen.list(self);
        let how = match (list.sort.and_then(|at| columns.get(at)), list.reverse) {
            (Some(column), reverse) => {
                let falls = column.falls ^ reverse;
                let way = match (column.right, falls) {
                    (true, true) => "largest first",
                    (true, false) => "smallest first",
                    (false, true) => "descending",
                    (false, false) => "ascending",
                };
                format!("sorted by {}, {way}", column.head)
            }
            (None, true) => "in the default order, reversed".to_owned(),
            (None, false) => "in the default order".to_owned(),
        };
        self.note = Some(format!("{how}; saved for the next start"));
        effects.push(Effect::Remember);
    }

    /// Sorts the shown list by a column, or by none.
    pub(super) fn sort_by(&mut self, column: Option<usize>, effects: &mut Vec<Effect>) {
        if screens::shown(self).about().can_sort {
            self.list_mut(self.screen).sort_by(column);
            self.keep_order(effects);
        }
    }

    fn turn(&mut self, by: isize) -> bool {
        self.screen = screens::beside(self, by);
        true
    }

    pub(super) fn go(&mut self, to: Move) -> bool {
        screens::shown(self).select(self, to)
    }

    fn back(&mut self) -> bool {
        if !self.list(self.screen).filter.is_empty() {
            self.set_filter("");
            return true;
        }
        let first = screens::first();
        std::mem::replace(&mut self.screen, first) != first
    }

    fn sort(&mut self, effects: &mut Vec<Effect>) -> bool {
        let screen = screens::shown(self);
        if !screen.about().can_sort {
            return false;
        }
        self.list_mut(self.screen).sort_next(screen.columns().len());
        self.keep_order(effects);
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

    /// Shows the newest sample up to a time of day in UTC, of the shown day or the day before.
    fn go_to_time(&mut self, second: u64) {
        const DAY: u64 = 86_400 * 1_000_000_000;
        let Some(newest) = self.newest().sample.clone() else { return };
        let today = (newest.unix - newest.unix % DAY).saturating_add(second * 1_000_000_000);
        let last = self.reach().map_or(newest.at, |(_, last)| last);
        let is_ahead = newest.instant_at(today) > last;
        let unix = if is_ahead { today.saturating_sub(DAY) } else { today };
        if !self.seek(newest.instant_at(unix)) {
            self.note = Some("this is what is kept of that time".to_owned());
        }
    }

    /// Moves in time, or says that there is nothing to move to.
    fn jump(&mut self, jump: Jump) -> bool {
        let Some(at) = self.shown_at() else { return false };
        let (target, none) = match jump {
            Jump::Back(span) => (Some(at - span), "no earlier sample is kept"),
            Jump::Forward(span) => (Some(at + span), "this is the newest; {freeze} resumes"),
            Jump::IncidentBack => {
                (self.past_moments().0.into_iter().filter(|then| *then < at).max(), "no incident before")
            }
            Jump::IncidentForward => {
                (self.past_moments().0.into_iter().filter(|then| *then > at).min(), "no incident after")
            }
            Jump::MarkBack => {
                (self.past_moments().1.into_iter().filter(|then| *then < at).max(), "no mark before")
            }
            Jump::MarkForward => {
                (self.past_moments().1.into_iter().filter(|then| *then > at).min(), "no mark after")
            }
        };
        if !target.is_some_and(|target| self.seek(target)) {
            self.note = Some(self.keymap.fill(none));
        }
        true
    }

    fn step(&mut self, action: Action) -> bool {
        let step = match action {
            Action::StepBack => Step::Back,
            Action::StepForward => Step::Forward,
            Action::EventBack => Step::ChangeBack,
            _ => Step::ChangeForward,
        };
        let Some(at) = self.shown_at() else { return false };
        let moved = match self.replay {
            Some(_) => self.step_replay(step),
            None => self.store.after_step(at, step).inspect(|at| self.freeze_at(*at)).is_some(),
        };
        if !moved {
            self.note = Some(match (step, &self.replay) {
                (Step::Back | Step::ChangeBack, _) => "no earlier sample is kept".to_owned(),
                (_, Some(replay)) => replay.end(),
                (_, None) => self.keymap.fill("this is the newest; {freeze} resumes"),
            });
        }
        true
    }
}

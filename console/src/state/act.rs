//! What an operator does to one process from the console: kill it, let it leave, start it again. As
//! drills, only where the console was started with `--arm`; each is asked about once more, and done
//! by the command of the same name.

use crate::input::Press;
use crate::poll::sample::Life;
use crate::state::{Effect, Mode, Model, Screen};
use crate::view;
use obol_fabric::Name;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Kill,
    Stop,
    Start,
}

impl Verb {
    /// The command that does it.
    pub(crate) const fn command(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Stop => "stop",
            Self::Start => "start",
        }
    }

    /// What it means, for the question.
    pub(crate) const fn means(self) -> &'static str {
        match self {
            Self::Kill => "Kill {} at once (SIGKILL)",
            Self::Stop => "Stop {} gracefully, so that it leaves",
            Self::Start => "Start {} again",
        }
    }
}

impl Model {
    /// Asks whether the selected process is meant.
    pub(super) fn ask(&mut self, verb: Verb) -> bool {
        let why = if self.replay.is_some() {
            "nothing can be done to the processes of a recording"
        } else if !self.chaos.may_arm {
            "this console is read-only: `obol console --arm` lets processes be killed, stopped and started"
        } else if self.frozen.is_some() {
            "this is what was; {freeze} goes on live"
        } else if self.screen != Screen::Members {
            "processes are killed, stopped and started on screen 1"
        } else {
            let rows = view::members::rows(self);
            let selected = rows.iter().find(|row| Some(row.name) == self.members.selected);
            match selected.map(|row| (row.name, row.life)) {
                None => "nothing is selected; {down} and {up} select",
                Some((_, Life::Down | Life::Left)) if verb != Verb::Start => "it is down already",
                Some((_, Life::Runs | Life::Frozen)) if verb == Verb::Start => "it runs already",
                Some((who, _)) => {
                    self.mode = Mode::Confirm { verb, who };
                    return true;
                }
            }
        };
        self.note = Some(self.keymap.fill(why));
        true
    }

    /// Takes the answer; anything but `y` is a no.
    pub(super) fn answer(&mut self, verb: Verb, who: Name, press: Press, effects: &mut Vec<Effect>) -> bool {
        self.mode = Mode::Normal;
        if press.typed() == Some('y') {
            self.note = Some(format!("{} {who} ...", verb.command()));
            effects.push(Effect::Act(verb, who));
        } else {
            self.note = Some(format!("{who} is left alone"));
        }
        true
    }
}

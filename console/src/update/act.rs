//! Confirmation of an action on one process.

use crate::input::Press;
use crate::screens::members;
use crate::state::act::Verb;
use crate::state::{Effect, Mode, Model, Prompt};
use obol_fabric::Name;
use obol_observe::sampling::sample::Life;

impl Model {
    /// Requests confirmation for the selected process.
    pub(super) fn ask(&mut self, verb: Verb) -> bool {
        let why = if self.replay.is_some() {
            "processes of a recording cannot be changed"
        } else if !self.chaos.may_arm {
            "this console is read-only: start it with `obol console --arm` to kill, stop and start processes"
        } else if self.frozen.is_some() {
            "this is a past moment; {freeze} resumes live"
        } else if self.screen != members::ID {
            "processes are killed, stopped and started on screen 1"
        } else {
            match members::selected(self).map(|row| (row.name, row.life)) {
                None => "nothing is selected; {down} and {up} select",
                Some((_, Life::Down | Life::Left)) if verb != Verb::Start => "it is already down",
                Some((_, Life::Runs | Life::Frozen)) if verb == Verb::Start => "it is already running",
                Some((who, _)) if self.is_production() => {
                    self.mode = Mode::Typing { what: Prompt::Act(verb, who), text: String::new() };
                    return true;
                }
                Some((who, _)) => {
                    self.mode = Mode::Confirm { verb, who };
                    return true;
                }
            }
        };
        self.note = Some(self.keymap.fill(why));
        true
    }

    /// Does it, if the text is the production cluster's name.
    pub(super) fn act_by_name(&mut self, verb: Verb, who: Name, text: &str, effects: &mut Vec<Effect>) {
        if text == self.called() {
            self.note = Some(format!("{} {who} ...", verb.command()));
            effects.push(Effect::Act(verb, who));
        } else {
            self.note = Some(format!("{who} was not touched: {text:?} is not the cluster's name"));
        }
    }

    /// Handles the answer; anything but `y` is a no.
    pub(super) fn answer(&mut self, verb: Verb, who: Name, press: Press, effects: &mut Vec<Effect>) -> bool {
        self.mode = Mode::Normal;
        if press.typed() == Some('y') {
            self.note = Some(format!("{} {who} ...", verb.command()));
            effects.push(Effect::Act(verb, who));
        } else {
            self.note = Some(format!("{who} was not touched"));
        }
        true
    }
}

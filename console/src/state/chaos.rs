//! Drills from the console: the list, a preview, the armed drill, and the last runs. A fault needs
//! `--arm`, a preview that every guard allows, the typed name of the cluster, and then a key; each
//! run is armed separately.

use crate::input::Keymap;
use crate::state::act::Verb;
use crate::state::{Effect, Mode, Model, Prompt, RowId, ScreenId};
use obol_chaos::drills::Journal;
use obol_chaos::drills::engine::progress::Progress;
use obol_fabric::{Instant, Name};
use obol_membership::Kind;
use std::collections::VecDeque;

/// The screen of drills.
pub(crate) const SCREEN: ScreenId = ScreenId("Chaos");

/// Runs to keep.
const RUNS_MAX: usize = 32;

/// A drill in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) count: u32,
    /// The kinds of its victims.
    pub(crate) hits: Vec<Kind>,
}

/// The plan of a drill at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Preview {
    pub(crate) drill: String,
    /// Whether every guard allows it.
    pub(crate) allowed: bool,
    /// Steps and guards line by line; `true` for a line that refuses.
    pub(crate) lines: Vec<(String, bool)>,
    /// A summary of the victims.
    pub(crate) hits: String,
}

/// A run that ended: its journal, or why there is none.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Run {
    pub(crate) drill: String,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
    pub(crate) found: Result<Box<Journal>, String>,
}

/// An update of the worker.
#[derive(Clone, Debug)]
pub(crate) enum DrillUpdate {
    /// The preview of a drill, or why there is none.
    Previewed {
        drill: String,
        found: Result<Preview, String>,
    },
    /// Completed repetitions of the running drill, and their total.
    Done {
        done: u32,
        of: u32,
    },
    /// The running repetition and step, and its stage.
    Stage(Progress),
    /// The result of an action on a process.
    Acted {
        verb: Verb,
        who: Name,
        how: Result<(), String>,
    },
    Ended {
        found: Result<Box<Journal>, String>,
    },
}

/// A drill that runs.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    pub(crate) drill: String,
    pub(crate) since: Instant,
    /// It was aborted, and has not ended yet.
    pub(crate) is_aborted: bool,
}

/// The chaos screen's state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chaos {
    /// Whether the console was started with `--arm`.
    pub(crate) may_arm: bool,
    pub(crate) drills: Vec<Choice>,
    /// The newest preview, or why there is none, with its drill.
    pub(crate) preview: Option<(String, Result<Preview, String>)>,
    /// The armed drill.
    pub(crate) armed: Option<String>,
    pub(crate) running: Option<Running>,
    /// Its completed repetitions, and their total.
    pub(crate) done: Option<(u32, u32)>,
    /// The running repetition and step, and its stages so far.
    pub(crate) stages: Option<(String, Vec<String>)>,
    /// Newest first.
    pub(crate) runs: VecDeque<Run>,
}

impl Chaos {
    /// A short warning for every screen of what can hit the cluster.
    pub(crate) fn banner(&self, keymap: &Keymap) -> Option<String> {
        match (&self.running, &self.armed) {
            (Some(Running { drill, is_aborted: false, .. }), _) => {
                Some(keymap.fill(&format!("DRILL {drill} RUNNING  {{abort-drill}} aborts")))
            }
            (Some(Running { drill, is_aborted: true, .. }), _) => Some(format!("DRILL {drill} ABORTING")),
            (None, Some(drill)) => {
                Some(keymap.fill(&format!("ARMED {drill}  {{run-drill}} runs it  {{arm}} disarms")))
            }
            (None, None) => None,
        }
    }
}

impl Model {
    fn refuse(&mut self, why: &str) -> bool {
        self.note = Some(self.keymap.fill(why));
        true
    }

    pub(crate) fn selected_drill(&self) -> Option<&Choice> {
        let ids: Vec<RowId> = (0..self.chaos.drills.len()).map(RowId::Fixed).collect();
        self.chaos.drills.get(self.list(SCREEN).place(&ids))
    }

    /// Previews the selected drill.
    pub(crate) fn preview(&mut self, effects: &mut Vec<Effect>) -> bool {
        if self.replay.is_some() {
            return self.refuse("faults cannot be injected into a recording");
        }
        let Some(name) = self.selected_drill().map(|drill| drill.name.clone()) else { return false };
        effects.push(Effect::Preview(name));
        false
    }

    /// Begins to arm the selected drill, or disarms.
    pub(crate) fn arm(&mut self, effects: &mut Vec<Effect>) -> bool {
        if let Some(drill) = self.chaos.armed.take() {
            return self.refuse(&format!("drill {drill} is disarmed"));
        }
        if self.replay.is_some() {
            return self.refuse("faults cannot be injected into a recording");
        }
        if !self.chaos.may_arm {
            return self
                .refuse("this console is read-only: start it with `obol console --arm` to arm drills");
        }
        self.screen = SCREEN;
        let Some(name) = self.selected_drill().map(|drill| drill.name.clone()) else { return true };
        match &self.chaos.preview {
            Some((of, Ok(preview))) if *of == name && preview.allowed => {
                self.mode = Mode::Typing { what: Prompt::Arm, text: String::new() };
                true
            }
            Some((of, _)) if *of == name => {
                self.refuse(&format!("drill {name} may not run, see the preview"))
            }
            _ => {
                effects.push(Effect::Preview(name));
                self.refuse("preview first; {arm} again arms it")
            }
        }
    }

    /// Arms, if the text is the cluster's name.
    pub(crate) fn armed_by(&mut self, text: &str) {
        let Some((drill, Ok(_))) = &self.chaos.preview else { return };
        if text == self.called() {
            self.chaos.armed = Some(drill.clone());
        } else {
            self.note = Some(format!("not armed: {text:?} is not the cluster's name"));
        }
    }

    /// Runs the armed drill.
    pub(crate) fn run_armed(&mut self, effects: &mut Vec<Effect>) -> bool {
        if self.chaos.running.is_some() {
            return self.refuse("a drill is already running; {abort-drill} aborts it");
        }
        let Some(drill) = self.chaos.armed.take() else {
            return self.refuse("nothing is armed: {arm} on screen 6 arms a drill");
        };
        self.chaos.running = Some(Running { drill: drill.clone(), since: self.now, is_aborted: false });
        self.chaos.done = None;
        self.chaos.stages = None;
        effects.push(Effect::RunDrill(drill));
        true
    }

    /// Aborts the running drill.
    pub(crate) fn abort(&mut self, effects: &mut Vec<Effect>) -> bool {
        let Some(running) = &mut self.chaos.running else {
            return self.refuse("no drill of this console runs");
        };
        running.is_aborted = true;
        effects.push(Effect::AbortDrill);
        true
    }

    /// Handles an update of the worker.
    pub(crate) fn take_drill_update(&mut self, update: DrillUpdate) -> bool {
        match update {
            DrillUpdate::Previewed { drill, found } => self.chaos.preview = Some((drill, found)),
            DrillUpdate::Acted { verb, who, how } => {
                let verb = verb.command();
                self.note = Some(match how {
                    Ok(()) => format!("{verb} {who}: done"),
                    Err(why) => format!("{verb} {who}: {why}"),
                });
            }
            DrillUpdate::Done { done, of } => self.chaos.done = Some((done, of)),
            DrillUpdate::Stage(Progress { number, step, stage }) => {
                let (step, words) = (format!("{number} {step}"), stage.to_string());
                match &mut self.chaos.stages {
                    Some((of, parts)) if *of == step => parts.push(words),
                    stages => *stages = Some((step, vec![words])),
                }
            }
            DrillUpdate::Ended { found } => {
                self.chaos.done = None;
                self.chaos.stages = None;
                let Some(Running { drill, since, .. }) = self.chaos.running.take() else { return false };
                self.chaos.runs.push_front(Run { drill, began: since, ended: self.now, found });
                self.chaos.runs.truncate(RUNS_MAX);
                // The preview is outdated.
                self.chaos.preview = None;
            }
        }
        true
    }
}

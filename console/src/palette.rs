//! Choices by name: the palette's commands, and the columns to sort by. They are listed while a
//! name is typed.

use crate::input::Action;
use crate::screens;
use crate::state::{Model, Prompt};

/// What a choice does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Act(Action),
    /// Sorts by this column; `None` for the default order.
    Sort(Option<usize>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) name: String,
    /// The key with the same effect, if any.
    pub(crate) key: String,
    pub(crate) help: String,
    pub(crate) command: Command,
}

/// The name of the default order.
const OWN_ORDER: &str = "none";

impl Model {
    /// All choices of a prompt; none if it takes free text.
    fn choices(&self, what: Prompt) -> Vec<Choice> {
        match what {
            Prompt::Palette => {
                let screens = screens::all().map(|screen| Choice {
                    name: screen.name(),
                    key: screen.number().to_string(),
                    help: format!("screen {}", screen.number()),
                    command: Command::Act(Action::Screen(screen.number())),
                });
                let actions = self.keymap.iter().map(|(binding, keys)| Choice {
                    name: binding.name.to_owned(),
                    key: keys.first().map_or(String::new(), |press| press.name()),
                    help: binding.help.to_owned(),
                    command: Command::Act(binding.action),
                });
                let others = Choice {
                    name: screens::CLUSTERS.name(),
                    key: self.keymap.hint(Action::Clusters),
                    help: "screen without a digit".to_owned(),
                    command: Command::Act(Action::Clusters),
                };
                screens.chain([others]).chain(actions).collect()
            }
            Prompt::SortBy => {
                let columns = screens::shown(self).columns();
                let by = columns.iter().enumerate().map(|(at, column)| Choice {
                    name: column.head.to_owned(),
                    key: String::new(),
                    help: column.means.to_owned(),
                    command: Command::Sort(Some(at)),
                });
                let own = Choice {
                    name: OWN_ORDER.to_owned(),
                    key: String::new(),
                    help: "the default order".to_owned(),
                    command: Command::Sort(None),
                };
                by.chain([own]).collect()
            }
            Prompt::Filter | Prompt::Note | Prompt::Arm | Prompt::Act(..) => Vec::new(),
        }
    }

    /// The choices that match the typed text: those that begin with it first, then those that
    /// contain it.
    pub(crate) fn candidates(&self, what: Prompt, text: &str) -> Vec<Choice> {
        let wanted = text.trim().to_lowercase();
        let place = |choice: &Choice| choice.name.to_lowercase().find(&wanted);
        let mut all = self.choices(what);
        all.retain(|choice| place(choice).is_some());
        all.sort_by_key(|choice| (choice.name.to_lowercase() != wanted, place(choice) != Some(0)));
        all
    }

    /// The choice that Enter selects: the marked one, or the first once anything is typed.
    pub(crate) fn marked_choice(&self, text: &str) -> Option<usize> {
        self.choice.or((!text.trim().is_empty()).then_some(0))
    }
}

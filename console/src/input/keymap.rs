//! The current key bindings: defaults, or a configuration's.

use super::{Action, BINDINGS, Binding, Press};

/// Keys and their actions. Digits select screens and are not included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keymap(Vec<(&'static Binding, Vec<Press>)>);

impl Default for Keymap {
    fn default() -> Self {
        Self(BINDINGS.iter().map(|binding| (binding, binding.keys.to_vec())).collect())
    }
}

impl Keymap {
    /// Sets the keys of an action.
    pub(crate) fn bind(&mut self, action: Action, keys: Vec<Press>) {
        if let Some((_, bound)) = self.0.iter_mut().find(|(binding, _)| binding.action == action) {
            *bound = keys;
        }
    }

    /// All actions with their keys, in the order of the table.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static Binding, &[Press])> {
        self.0.iter().map(|(binding, keys)| (*binding, keys.as_slice()))
    }

    /// The action of a key while nothing is typed.
    pub(crate) fn action(&self, press: Press) -> Option<Action> {
        if let Some(digit) = press.typed().and_then(|letter| letter.to_digit(10)) {
            return u8::try_from(digit).ok().map(Action::Screen);
        }
        self.iter().find(|(_, keys)| keys.contains(&press)).map(|(binding, _)| binding.action)
    }

    /// The first key of an action for hints; without a key, its palette command.
    pub(crate) fn hint(&self, action: Action) -> String {
        self.iter().find(|(binding, _)| binding.action == action).map_or(String::new(), first)
    }

    /// A hint in which `{names}` of actions are replaced by their first keys.
    pub(crate) fn fill(&self, hint: &str) -> String {
        let mut all = String::new();
        let mut rest = hint;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, behind) = after.split_once('}').unwrap_or((after, ""));
            all.push_str(before);
            let found = self.iter().find(|(binding, _)| binding.name == name);
            all.push_str(&found.map_or(String::new(), first));
            rest = behind;
        }
        all + rest
    }
}

fn first((binding, keys): (&Binding, &[Press])) -> String {
    keys.first().map_or_else(|| format!(":{}", binding.name), |press| press.name())
}

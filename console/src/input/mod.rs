//! Which key does what. One table makes the keys, the help overlay and the palette, so that they
//! can not differ.

mod keymap;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
pub(crate) use keymap::Keymap;

/// What a user can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Action {
    Screen(u8),
    NextScreen,
    PreviousScreen,
    Down,
    Up,
    PageDown,
    PageUp,
    First,
    Last,
    Open,
    Back,
    Sort,
    SortBy,
    Reverse,
    Filter,
    Note,
    FindNext,
    FindPrevious,
    Palette,
    Freeze,
    StepBack,
    StepForward,
    EventBack,
    EventForward,
    ZoomIn,
    ZoomOut,
    ZoomReset,
    PanLeft,
    PanRight,
    LineUp,
    LineDown,
    Mark,
    Faster,
    Slower,
    Record,
    Export,
    Copy,
    Kill,
    Stop,
    Start,
    Arm,
    RunDrill,
    AbortDrill,
    Theme,
    Mouse,
    Help,
    Suspend,
    Redraw,
    Quit,
    QuitKeep,
}

/// A key with its modifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Press {
    code: KeyCode,
    control: bool,
}

/// A press: `press!('q')`, `press!(ctrl 'c')`, `press!(Tab)`, `press!(F 1)`.
macro_rules! press {
    (ctrl $letter:literal) => {
        Press { code: KeyCode::Char($letter), control: true }
    };
    (F $n:literal) => {
        Press { code: KeyCode::F($n), control: false }
    };
    ($letter:literal) => {
        Press { code: KeyCode::Char($letter), control: false }
    };
    ($code:ident) => {
        Press { code: KeyCode::$code, control: false }
    };
}

impl Press {
    /// Keys that the mouse stands for.
    pub(crate) const ENTER: Self = press!(Enter);
    pub(crate) const DOWN: Self = press!(Down);
    pub(crate) const UP: Self = press!(Up);

    /// What was pressed; `None` for a release. Shift is in the character.
    pub(crate) fn of(event: KeyEvent) -> Option<Self> {
        let pressed = event.kind != KeyEventKind::Release;
        let control = event.modifiers.contains(KeyModifiers::CONTROL);
        pressed.then_some(Self { code: event.code, control })
    }

    /// The character that it types.
    pub(crate) const fn typed(self) -> Option<char> {
        match self {
            Self { code: KeyCode::Char(letter), control: false } => Some(letter),
            _ => None,
        }
    }

    /// The key itself.
    pub(crate) const fn code(self) -> KeyCode {
        self.code
    }

    /// As the help and configurations write it.
    pub(crate) fn name(self) -> String {
        let name = match self.code {
            KeyCode::Char(letter) if self.control => letter.to_ascii_uppercase().to_string(),
            KeyCode::F(n) => format!("F{n}"),
            code => match (NAMED.iter().find(|(_, named)| *named == code), code) {
                (Some((name, _)), _) => (*name).to_owned(),
                (None, KeyCode::Char(letter)) => letter.to_string(),
                (None, other) => format!("{other:?}"),
            },
        };
        if self.control { format!("Ctrl-{name}") } else { name }
    }

    /// The key of this name; none if there is no such key, or a terminal can not tell it from
    /// another.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let mut letters = name.chars();
        if let (Some(letter), None) = (letters.next(), letters.next()) {
            let printed = !letter.is_control() && !letter.is_whitespace() && !letter.is_ascii_digit();
            return printed.then_some(Self { code: KeyCode::Char(letter), control: false });
        }
        if let Some(letter) = name.strip_prefix("Ctrl-") {
            let letter: char = letter.parse().ok()?;
            // They are Tab, Enter and, in some terminals, Backspace.
            let own = letter.is_ascii_uppercase() && !['H', 'I', 'J', 'M'].contains(&letter);
            return own.then(|| Self { code: KeyCode::Char(letter.to_ascii_lowercase()), control: true });
        }
        let function = name.strip_prefix('F').and_then(|n| n.parse().ok()).filter(|n| (1..=12).contains(n));
        let named = || NAMED.iter().find(|(known, _)| *known == name).map(|(_, code)| *code);
        let code = function.map(KeyCode::F).or_else(named)?;
        // Not F01.
        Some(Self { code, control: false }).filter(|press| press.name() == name)
    }
}

/// Keys that have names of their own.
pub(crate) const NAMED: [(&str, KeyCode); 16] = [
    ("Space", KeyCode::Char(' ')),
    ("Enter", KeyCode::Enter),
    ("Esc", KeyCode::Esc),
    ("Tab", KeyCode::Tab),
    ("S-Tab", KeyCode::BackTab),
    ("Backspace", KeyCode::Backspace),
    ("Insert", KeyCode::Insert),
    ("Delete", KeyCode::Delete),
    ("Home", KeyCode::Home),
    ("End", KeyCode::End),
    ("PgUp", KeyCode::PageUp),
    ("PgDn", KeyCode::PageDown),
    ("Up", KeyCode::Up),
    ("Down", KeyCode::Down),
    ("Left", KeyCode::Left),
    ("Right", KeyCode::Right),
];

/// What groups the help has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    Screens,
    Lists,
    Time,
    Chaos,
    Console,
}

impl Group {
    /// In the order of the help.
    pub(crate) const ALL: [Self; 5] = [Self::Screens, Self::Lists, Self::Time, Self::Chaos, Self::Console];

    /// Its title.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Screens => "Screens",
            Self::Lists => "Lists",
            Self::Time => "Time",
            Self::Chaos => "Chaos (with --arm)",
            Self::Console => "Console",
        }
    }
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Binding {
    /// What it does.
    pub(crate) action: Action,
    /// What the palette and configurations call it.
    pub(crate) name: &'static str,
    /// The keys, the one to remember first.
    pub(crate) keys: &'static [Press],
    /// Where the help has it.
    pub(crate) group: Group,
    /// What the help says.
    pub(crate) help: &'static str,
}

/// Every key. Screens are bound by their own numbers as well.
pub(crate) const BINDINGS: &[Binding] = &[
    Binding {
        action: Action::NextScreen,
        name: "next-screen",
        keys: &[press!(Tab)],
        group: Group::Screens,
        help: "next screen",
    },
    Binding {
        action: Action::PreviousScreen,
        name: "previous-screen",
        keys: &[press!(BackTab)],
        group: Group::Screens,
        help: "previous screen",
    },
    Binding {
        action: Action::Down,
        name: "down",
        keys: &[press!('j'), press!(Down)],
        group: Group::Lists,
        help: "down",
    },
    Binding {
        action: Action::Up,
        name: "up",
        keys: &[press!('k'), press!(Up)],
        group: Group::Lists,
        help: "up",
    },
    Binding {
        action: Action::First,
        name: "first",
        keys: &[press!('g'), press!(Home)],
        group: Group::Lists,
        help: "first",
    },
    Binding {
        action: Action::Last,
        name: "last",
        keys: &[press!('G'), press!(End)],
        group: Group::Lists,
        help: "last",
    },
    Binding {
        action: Action::PageDown,
        name: "page-down",
        keys: &[press!(PageDown), press!(ctrl 'f')],
        group: Group::Lists,
        help: "page down",
    },
    Binding {
        action: Action::PageUp,
        name: "page-up",
        keys: &[press!(PageUp), press!(ctrl 'b')],
        group: Group::Lists,
        help: "page up",
    },
    Binding {
        action: Action::Open,
        name: "open",
        keys: &[press!(Enter)],
        group: Group::Lists,
        help: "more about the row",
    },
    Binding {
        action: Action::Back,
        name: "back",
        keys: &[press!(Esc)],
        group: Group::Lists,
        help: "clear filter, or go back",
    },
    Binding {
        action: Action::Sort,
        name: "sort",
        keys: &[press!('s')],
        group: Group::Lists,
        help: "sort by the next column",
    },
    Binding {
        action: Action::SortBy,
        name: "sort-by",
        keys: &[press!('o')],
        group: Group::Lists,
        help: "sort by a column's name",
    },
    Binding {
        action: Action::Reverse,
        name: "reverse",
        keys: &[press!('S')],
        group: Group::Lists,
        help: "reverse the sort order",
    },
    Binding {
        action: Action::Filter,
        name: "filter",
        keys: &[press!('/')],
        group: Group::Lists,
        help: "filter the list",
    },
    Binding {
        action: Action::FindNext,
        name: "find-next",
        keys: &[press!('w')],
        group: Group::Lists,
        help: "next needing attention",
    },
    Binding {
        action: Action::FindPrevious,
        name: "find-previous",
        keys: &[press!('W')],
        group: Group::Lists,
        help: "previous one",
    },
    Binding {
        action: Action::Freeze,
        name: "freeze",
        keys: &[press!(' ')],
        group: Group::Time,
        help: "freeze; reading goes on",
    },
    Binding {
        action: Action::StepBack,
        name: "step-back",
        keys: &[press!('[')],
        group: Group::Time,
        help: "one sample back",
    },
    Binding {
        action: Action::StepForward,
        name: "step-forward",
        keys: &[press!(']')],
        group: Group::Time,
        help: "one sample forward",
    },
    Binding {
        action: Action::EventBack,
        name: "event-back",
        keys: &[press!('{')],
        group: Group::Time,
        help: "last view change",
    },
    Binding {
        action: Action::EventForward,
        name: "event-forward",
        keys: &[press!('}')],
        group: Group::Time,
        help: "next view change",
    },
    Binding {
        action: Action::Faster,
        name: "faster",
        keys: &[press!('>')],
        group: Group::Time,
        help: "replay: twice as fast",
    },
    Binding {
        action: Action::Slower,
        name: "slower",
        keys: &[press!('<')],
        group: Group::Time,
        help: "replay: half as fast",
    },
    Binding {
        action: Action::Note,
        name: "note",
        keys: &[press!('n')],
        group: Group::Time,
        help: "add an annotation",
    },
    Binding {
        action: Action::Record,
        name: "record",
        keys: &[press!('R')],
        group: Group::Time,
        help: "record; again to end it",
    },
    Binding {
        action: Action::Export,
        name: "export",
        keys: &[press!('x')],
        group: Group::Time,
        help: "report in every format",
    },
    Binding {
        action: Action::ZoomIn,
        name: "zoom-in",
        keys: &[press!('+'), press!('=')],
        group: Group::Time,
        help: "time line: zoom in",
    },
    Binding {
        action: Action::ZoomOut,
        name: "zoom-out",
        keys: &[press!('-')],
        group: Group::Time,
        help: "time line: zoom out",
    },
    Binding {
        action: Action::ZoomReset,
        name: "zoom-reset",
        keys: &[press!('z')],
        group: Group::Time,
        help: "time line: all of it",
    },
    Binding {
        action: Action::PanLeft,
        name: "pan-left",
        keys: &[press!('h'), press!(Left)],
        group: Group::Time,
        help: "time line: earlier",
    },
    Binding {
        action: Action::PanRight,
        name: "pan-right",
        keys: &[press!('l'), press!(Right)],
        group: Group::Time,
        help: "time line: later",
    },
    Binding {
        action: Action::LineDown,
        name: "line-down",
        keys: &[press!('J')],
        group: Group::Time,
        help: "time line: scroll down",
    },
    Binding {
        action: Action::LineUp,
        name: "line-up",
        keys: &[press!('K')],
        group: Group::Time,
        help: "time line: scroll up",
    },
    Binding {
        action: Action::Mark,
        name: "mark",
        keys: &[press!('m')],
        group: Group::Time,
        help: "mark, to compare others",
    },
    Binding {
        action: Action::Kill,
        name: "kill",
        keys: &[press!(ctrl 'k')],
        group: Group::Chaos,
        help: "kill the selected process",
    },
    Binding {
        action: Action::Stop,
        name: "stop",
        keys: &[press!(ctrl 't')],
        group: Group::Chaos,
        help: "stop it gracefully",
    },
    Binding {
        action: Action::Start,
        name: "start",
        keys: &[press!(ctrl 'u')],
        group: Group::Chaos,
        help: "start it again",
    },
    Binding {
        action: Action::Arm,
        name: "arm",
        keys: &[press!('A')],
        group: Group::Chaos,
        help: "arm the drill, or disarm",
    },
    Binding {
        action: Action::RunDrill,
        name: "run-drill",
        keys: &[press!(ctrl 'r')],
        group: Group::Chaos,
        help: "run what is armed",
    },
    Binding {
        action: Action::AbortDrill,
        name: "abort-drill",
        keys: &[press!(ctrl 'x')],
        group: Group::Chaos,
        help: "abort drill, undo faults",
    },
    Binding {
        action: Action::Copy,
        name: "copy",
        keys: &[press!('y')],
        group: Group::Console,
        help: "copy the selected row",
    },
    Binding {
        action: Action::Palette,
        name: "palette",
        keys: &[press!(':')],
        group: Group::Console,
        help: "command by name",
    },
    Binding {
        action: Action::Theme,
        name: "theme",
        keys: &[press!('T')],
        group: Group::Console,
        help: "next theme",
    },
    Binding {
        action: Action::Mouse,
        name: "mouse",
        keys: &[press!('M')],
        group: Group::Console,
        help: "mouse capture on or off",
    },
    Binding {
        action: Action::Help,
        name: "help",
        keys: &[press!('?'), press!(F 1)],
        group: Group::Console,
        help: "this help",
    },
    Binding {
        action: Action::Redraw,
        name: "redraw",
        keys: &[press!(ctrl 'l')],
        group: Group::Console,
        help: "draw everything again",
    },
    Binding {
        action: Action::Suspend,
        name: "suspend",
        keys: &[press!(ctrl 'z')],
        group: Group::Console,
        help: "to the shell; fg returns",
    },
    Binding {
        action: Action::Quit,
        name: "quit",
        keys: &[press!('q'), press!(ctrl 'c')],
        group: Group::Console,
        help: "quit",
    },
    Binding {
        action: Action::QuitKeep,
        name: "quit-keep",
        keys: &[press!('Q')],
        group: Group::Console,
        help: "quit, leave the text",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_key_does_two_things_and_no_action_has_two_names() {
        let mut keys = HashSet::new();
        let mut names = HashSet::new();
        for binding in BINDINGS {
            assert!(names.insert(binding.name), "{}", binding.name);
            assert!(!binding.keys.is_empty() && (1..=25).contains(&binding.help.len()), "{}", binding.name);
            for press in binding.keys {
                assert!(keys.insert(*press), "{} twice", press.name());
                assert_eq!(Press::named(&press.name()), Some(*press), "{}", press.name());
            }
        }
    }

    #[test]
    fn digits_are_screens() {
        let keymap = Keymap::default();
        assert_eq!(keymap.action(press!('2')), Some(Action::Screen(2)));
        assert_eq!(keymap.action(press!('0')), None);
        assert_eq!(keymap.hint(Action::Suspend), "Ctrl-Z");
        assert_eq!(Press::named("2"), None);
    }

    #[test]
    fn hints_name_the_keys_that_are_bound() {
        let mut keymap = Keymap::default();
        keymap.bind(Action::Freeze, vec![press!('f')]);
        keymap.bind(Action::Mark, Vec::new());
        assert_eq!(keymap.fill("{freeze} goes on  {event-back} {mark}"), "f goes on  { :mark");
        assert_eq!(keymap.action(press!(' ')), None);
    }

    #[test]
    fn keys_that_a_terminal_can_not_tell_apart_have_no_names() {
        for name in [
            "", "Ctrl-", "Ctrl-I", "Ctrl-M", "Ctrl-c", "Ctrl-1", "F0", "F01", "F13", "space", "ab", " ", "\t",
        ] {
            assert_eq!(Press::named(name), None, "{name}");
        }
        for (name, _) in NAMED {
            assert_eq!(Press::named(name).map(Press::name).as_deref(), Some(name));
        }
    }
}

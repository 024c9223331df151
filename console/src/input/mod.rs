//! Key bindings. One table defines the keys, the help overlay and the palette, so that they agree.

mod keymap;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
pub(crate) use keymap::Keymap;
use obol_fabric::Nanos;
use strum::{IntoStaticStr, VariantArray};

/// A user action.
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
    Logs,
    Events,
    Drills,
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
    Seek(Jump),
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
    Alerts,
    Clusters,
    Help,
    Suspend,
    Redraw,
    Quit,
    QuitKeep,
}

/// A move in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Jump {
    Back(Nanos),
    Forward(Nanos),
    /// To where the incident before began.
    IncidentBack,
    IncidentForward,
    /// To the mark before.
    MarkBack,
    MarkForward,
}

const SECOND: Nanos = Nanos::from_secs(1);
const MINUTE: Nanos = Nanos::from_secs(60);
const HOUR: Nanos = Nanos::from_secs(3600);

/// A key with its modifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Press {
    pub(crate) code: KeyCode,
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
    /// Keys that mouse actions correspond to.
    pub(crate) const ENTER: Self = press!(Enter);
    pub(crate) const DOWN: Self = press!(Down);
    pub(crate) const UP: Self = press!(Up);

    /// The pressed key; `None` for a release. Shift is in the character.
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

    /// The name in help and configurations.
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

    /// The key of this name; `None` if it does not exist, or terminals cannot distinguish it from
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

/// The groups of the help, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(const_into_str)]
pub(crate) enum Group {
    Screens,
    Lists,
    Time,
    #[strum(serialize = "Chaos (with --arm)")]
    Chaos,
    Console,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Binding {
    pub(crate) action: Action,
    /// Its name in the palette and in configurations.
    pub(crate) name: &'static str,
    /// Its keys, the main one first.
    pub(crate) keys: &'static [Press],
    /// Its group in the help.
    pub(crate) group: Group,
    /// Its description in the help.
    pub(crate) help: &'static str,
}

impl Binding {
    const fn new(
        group: Group,
        action: Action,
        name: &'static str,
        keys: &'static [Press],
        help: &'static str,
    ) -> Self {
        Self { action, name, keys, group, help }
    }
}

/// All bindings. Screens are also bound to their numbers.
pub(crate) const BINDINGS: &[Binding] = {
    use Action::*;
    use Group::*;
    &[
        Binding::new(Screens, NextScreen, "next-screen", &[press!(Tab)], "next screen"),
        Binding::new(Screens, PreviousScreen, "previous-screen", &[press!(BackTab)], "previous screen"),
        Binding::new(Lists, Down, "down", &[press!('j'), press!(Down)], "down"),
        Binding::new(Lists, Up, "up", &[press!('k'), press!(Up)], "up"),
        Binding::new(Lists, First, "first", &[press!('g'), press!(Home)], "first"),
        Binding::new(Lists, Last, "last", &[press!('G'), press!(End)], "last"),
        Binding::new(Lists, PageDown, "page-down", &[press!(PageDown), press!(ctrl 'f')], "page down"),
        Binding::new(Lists, PageUp, "page-up", &[press!(PageUp), press!(ctrl 'b')], "page up"),
        Binding::new(Lists, Open, "open", &[press!(Enter)], "details of the row"),
        Binding::new(Lists, Logs, "logs", &[press!('l')], "log lines of the row"),
        Binding::new(Lists, Events, "events-of", &[press!('e')], "events of the row"),
        Binding::new(Lists, Drills, "drills-on", &[press!('d')], "drills that can hit it"),
        Binding::new(Lists, Back, "back", &[press!(Esc)], "clear filter, or go back"),
        Binding::new(Lists, Sort, "sort", &[press!('s')], "sort by the next column"),
        Binding::new(Lists, SortBy, "sort-by", &[press!('o')], "sort by the column named"),
        Binding::new(Lists, Reverse, "reverse", &[press!('S')], "reverse the sort order"),
        Binding::new(Lists, Filter, "filter", &[press!('/')], "filter the list"),
        Binding::new(Lists, FindNext, "find-next", &[press!('w')], "next needing attention"),
        Binding::new(Lists, FindPrevious, "find-previous", &[press!('W')], "previous one"),
        Binding::new(Time, Freeze, "freeze", &[press!(' ')], "freeze; polling continues"),
        Binding::new(Time, StepBack, "step-back", &[press!('[')], "one sample back"),
        Binding::new(Time, StepForward, "step-forward", &[press!(']')], "one sample forward"),
        Binding::new(Time, EventBack, "event-back", &[press!('{')], "last view change"),
        Binding::new(Time, EventForward, "event-forward", &[press!('}')], "next view change"),
        Binding::new(Time, Seek(Jump::Back(SECOND)), "second-back", &[press!(',')], "a second back"),
        Binding::new(Time, Seek(Jump::Forward(SECOND)), "second-forward", &[press!('.')], "a second forward"),
        Binding::new(Time, Seek(Jump::Back(MINUTE)), "minute-back", &[press!('(')], "a minute back"),
        Binding::new(Time, Seek(Jump::Forward(MINUTE)), "minute-forward", &[press!(')')], "a minute forward"),
        Binding::new(Time, Seek(Jump::Back(HOUR)), "hour-back", &[press!('H')], "an hour back"),
        Binding::new(Time, Seek(Jump::Forward(HOUR)), "hour-forward", &[press!('L')], "an hour forward"),
        Binding::new(Time, Seek(Jump::IncidentBack), "incident-back", &[press!('i')], "to the last incident"),
        Binding::new(
            Time,
            Seek(Jump::IncidentForward),
            "incident-forward",
            &[press!('I')],
            "to the next incident",
        ),
        Binding::new(Time, Seek(Jump::MarkBack), "mark-back", &[press!('b')], "to the last mark"),
        Binding::new(Time, Seek(Jump::MarkForward), "mark-forward", &[press!('B')], "to the next mark"),
        Binding::new(Time, Faster, "faster", &[press!('>')], "replay: twice as fast"),
        Binding::new(Time, Slower, "slower", &[press!('<')], "replay: half as fast"),
        Binding::new(Time, Note, "note", &[press!('n')], "add an annotation"),
        Binding::new(Time, Record, "record", &[press!('R')], "start or stop recording"),
        Binding::new(Time, Export, "export", &[press!('x')], "write all report formats"),
        Binding::new(Time, ZoomIn, "zoom-in", &[press!('+'), press!('=')], "time line: zoom in"),
        Binding::new(Time, ZoomOut, "zoom-out", &[press!('-')], "time line: zoom out"),
        Binding::new(Time, ZoomReset, "zoom-reset", &[press!('z')], "time line: show all"),
        Binding::new(Time, PanLeft, "pan-left", &[press!(Left), press!('h')], "time line: earlier"),
        Binding::new(Time, PanRight, "pan-right", &[press!(Right)], "time line: later"),
        Binding::new(Time, LineDown, "line-down", &[press!('J')], "time line: scroll down"),
        Binding::new(Time, LineUp, "line-up", &[press!('K')], "time line: scroll up"),
        Binding::new(Time, Mark, "mark", &[press!('m')], "mark for comparison"),
        Binding::new(Chaos, Kill, "kill", &[press!(ctrl 'k')], "kill the selected process"),
        Binding::new(Chaos, Stop, "stop", &[press!(ctrl 't')], "stop it gracefully"),
        Binding::new(Chaos, Start, "start", &[press!(ctrl 'u')], "restart it"),
        Binding::new(Chaos, Arm, "arm", &[press!('A')], "arm the drill, or disarm"),
        Binding::new(Chaos, RunDrill, "run-drill", &[press!(ctrl 'r')], "run the armed drill"),
        Binding::new(Chaos, AbortDrill, "abort-drill", &[press!(ctrl 'x')], "abort drill, undo faults"),
        Binding::new(Console, Copy, "copy", &[press!('y')], "copy the selected row"),
        Binding::new(Console, Palette, "palette", &[press!(':')], "command by name"),
        Binding::new(Console, Theme, "theme", &[press!('T')], "next theme"),
        Binding::new(Console, Mouse, "mouse", &[press!('M')], "mouse capture on or off"),
        Binding::new(Console, Alerts, "alerts", &[press!('a')], "incidents, acknowledge"),
        Binding::new(Console, Clusters, "ctx", &[press!('c')], "clusters to choose from"),
        Binding::new(Console, Help, "help", &[press!('?'), press!(F 1)], "this help"),
        Binding::new(Console, Redraw, "redraw", &[press!(ctrl 'l')], "redraw the screen"),
        Binding::new(Console, Suspend, "suspend", &[press!(ctrl 'z')], "suspend (fg resumes)"),
        Binding::new(Console, Quit, "quit", &[press!('q'), press!(ctrl 'c')], "quit"),
        Binding::new(Console, QuitKeep, "quit-keep", &[press!('Q')], "quit, keep it on screen"),
    ]
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_and_names_of_actions_are_unique() {
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
        assert_eq!(keymap.action(press!('0')), Some(Action::Screen(0)));
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
    fn keys_that_terminals_cannot_distinguish_have_no_names() {
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

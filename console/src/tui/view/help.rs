//! The help: every key, in two columns of groups if there is room, over the middle of the screen.

use crate::tui::input::{Group, Keymap, Press};
use crate::tui::state::Screen;
use crate::tui::theme::Role;
use crate::tui::view::canvas::{Canvas, Cell, width};
use ratatui::layout::Rect;

/// The column of the explanations.
const KEYS_WIDE: u16 = 12;
/// What an explanation takes at most.
const HELP_WIDE: usize = 25;
/// A column of groups.
const GROUP_WIDE: u16 = 38;

/// A line of the help.
enum Line {
    Title(&'static str),
    Key(String, String),
    Empty,
}

/// How much room there is: for gaps between the groups, for their titles, or for the keys alone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    Gaps,
    Titles,
    Keys,
}

fn lines(keymap: &Keymap, room: Room) -> Vec<Line> {
    let gaps = room == Room::Gaps;
    let mut all = Vec::new();
    for group in Group::ALL {
        if gaps && !all.is_empty() {
            all.push(Line::Empty);
        }
        if room != Room::Keys {
            all.push(Line::Title(group.name()));
        }
        if group == Group::Screens && !gaps {
            let ends = [Screen::ALL.first(), Screen::ALL.last()].map(|s| s.map_or(0, |s| s.number()));
            all.push(Line::Key(format!("{}-{}", ends[0], ends[1]), "the screens".to_owned()));
        } else if group == Group::Screens {
            let names = Screen::ALL.map(|s| Line::Key(s.number().to_string(), s.name().to_lowercase()));
            all.extend(names);
        }
        for (binding, keys) in keymap.iter().filter(|(binding, _)| binding.group == group) {
            all.push(Line::Key(names(keys), binding.help.to_owned()));
        }
    }
    all
}

/// As many keys as fit before the explanation, the one to remember first.
fn names(keys: &[Press]) -> String {
    let mut all = keys.first().map_or("(none)".to_owned(), |press| press.name());
    for press in keys.iter().skip(1) {
        let more = format!("{all} {}", press.name());
        if width(&more) >= KEYS_WIDE {
            break;
        }
        all = more;
    }
    all
}

/// Keys that are understood best together: by what they are for.
const OPPOSITES: [(&str, &str); 3] = [("down", "up"), ("first", "last"), ("page down", "page up")];

/// Two keys to a line until there is room for all: opposites first, and then any, from the top.
fn paired(lines: Vec<Line>, room: usize) -> Vec<Line> {
    let opposites = pair(lines, room, |one, other| OPPOSITES.contains(&(one, other)));
    pair(opposites, room, |_, _| true)
}

fn pair(lines: Vec<Line>, room: usize, may: impl Fn(&str, &str) -> bool) -> Vec<Line> {
    let mut over = lines.len().saturating_sub(room);
    let mut all: Vec<Line> = Vec::new();
    for line in lines {
        if let (true, Some(Line::Key(keys, help)), Line::Key(more_keys, more)) =
            (over > 0, all.last_mut(), &line)
        {
            let first = |keys: &str| keys.split(' ').next().unwrap_or_default().to_owned();
            let both = format!("{help}, {more}");
            if both.chars().count() <= HELP_WIDE && !help.contains(',') && may(help, more) {
                (*keys, *help) = (format!("{} {}", first(keys), first(more_keys)), both);
                over -= 1;
                continue;
            }
        }
        all.push(line);
    }
    all
}

/// Draws the help over an area.
pub(crate) fn draw(keymap: &Keymap, canvas: &mut Canvas<'_>, area: Rect) {
    let two = area.width >= 2 * GROUP_WIDE + 4;
    let all = [Room::Gaps, Room::Titles].map(|room| lines(keymap, room));
    let room = usize::from(area.height.saturating_sub(2)) * if two { 2 } else { 1 };
    let fits = all.into_iter().find(|lines| lines.len() <= room);
    let lines = fits.unwrap_or_else(|| paired(lines(keymap, Room::Keys), room));
    let wide = if two { 2 * GROUP_WIDE + 4 } else { GROUP_WIDE + 4 };
    let rows = if two { lines.len().div_ceil(2) } else { lines.len() };
    let width = wide.min(area.width);
    let height = u16::try_from(rows + 2).unwrap_or(u16::MAX).min(area.height);
    let place =
        Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    for y in place.top()..place.bottom() {
        canvas.blank(place, y);
    }
    let right = [Cell::new("any key closes", Role::Dim)];
    let inside = canvas.frame(place, &[Cell::new("Keys", Role::Title)], &right);
    for (at, line) in lines.iter().enumerate() {
        let column = at / rows.max(1);
        let x = inside.x + 1 + u16::try_from(column).unwrap_or(0) * GROUP_WIDE;
        let y = inside.y + u16::try_from(at % rows.max(1)).unwrap_or(0);
        if y >= inside.bottom() {
            continue;
        }
        match line {
            Line::Title(title) => {
                canvas.put(inside, x, y, title, Role::Title);
            }
            Line::Key(keys, help) => {
                canvas.put(inside, x, y, keys, Role::Key);
                canvas.put(inside, x + KEYS_WIDE, y, help, Role::Text);
            }
            Line::Empty => {}
        }
    }
}

//! How a user has sorted the lists, for the next start: `$XDG_STATE_HOME/obol/console.toml`, a
//! table for each screen. It is no configuration: nobody writes it by hand, what does not make
//! sense in it is passed over, and what the user's configuration says of an order comes before it.

use crate::config;
use crate::state::Model;
use std::path::{Path, PathBuf};
use std::{fs, io};
use toml::{Table, Value};

/// Longer ones are not ours.
const BYTES_MAX: u64 = 64 << 10;

fn file() -> Option<PathBuf> {
    config::of_user("XDG_STATE_HOME", ".local/state")
}

/// Sorts the lists as they were.
pub(super) fn read(model: &mut Model) {
    let text = |path: PathBuf| obol_profiles::file::text(&path, BYTES_MAX, "state of the console").ok();
    if let Some(text) = file().and_then(text) {
        take(model, &text);
    }
}

fn take(model: &mut Model, text: &str) {
    let known = text.parse::<Table>().unwrap_or_default();
    for (screen, name, columns) in config::screens() {
        let (Some(Value::Table(one)), Some((sort, reverse))) = (known.get(&name), model.order(screen)) else {
            continue;
        };
        let head = one.get("sort").and_then(Value::as_str);
        *sort = head.and_then(|head| columns.iter().position(|column| column.head == head));
        *reverse = one.get("reverse").and_then(Value::as_bool).unwrap_or(false);
    }
}

fn text(model: &mut Model) -> String {
    let mut known = Table::new();
    for (screen, name, columns) in config::screens() {
        let Some((sort, reverse)) = model.order(screen) else { continue };
        let mut one = Table::new();
        if let Some(column) = sort.and_then(|sort| columns.get(sort)) {
            one.insert("sort".to_owned(), Value::from(column.head));
        }
        if *reverse {
            one.insert("reverse".to_owned(), Value::from(true));
        }
        if !one.is_empty() {
            known.insert(name, Value::Table(one));
        }
    }
    known.to_string()
}

/// Keeps how the lists are sorted.
pub(super) fn write(model: &mut Model) -> io::Result<()> {
    let Some(path) = file() else { return Ok(()) };
    fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
    // Whole or not at all: another console may begin right now.
    let fresh = path.with_extension(format!("toml.{}", std::process::id()));
    fs::write(&fresh, text(model))?;
    fs::rename(fresh, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::{console, press};

    #[test]
    fn orders_come_back_and_nonsense_is_passed_over() {
        let mut model = console(80, 24);
        press(&mut model, "ssS2S");
        let text = text(&mut model);
        let mut next = console(80, 24);
        take(&mut next, &text);
        assert_eq!((next.members.sort, next.members.reverse), (Some(1), true));
        assert_eq!((next.leases.sort, next.leases.reverse), (None, true));
        assert_eq!((next.detectors.sort, next.detectors.reverse), (None, false));
        for nonsense in
            ["", "[members", "members = 1", "[members]\nsort = 7\nreverse = \"x\"", "[members]\nsort = \"X\""]
        {
            let mut model = console(80, 24);
            take(&mut model, nonsense);
            assert_eq!((model.members.sort, model.members.reverse), (None, false), "{nonsense}");
        }
    }
}

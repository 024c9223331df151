//! Remembers the sort order of lists in `$XDG_STATE_HOME/obol/console.toml`, a table for each
//! screen. It is not a configuration: invalid contents are ignored, and the user's configuration
//! takes precedence.

use crate::config;
use crate::screens::Screen;
use crate::state::Model;
use std::path::{Path, PathBuf};
use std::{fs, io};
use toml::{Table, Value};

/// Larger files are ignored.
const BYTES_MAX: u64 = 64 << 10;

fn file() -> Option<PathBuf> {
    config::of_user("XDG_STATE_HOME", ".local/state")
}

/// Restores the order of the lists.
pub(super) fn read(model: &mut Model) {
    let text = |path: PathBuf| obol_config::file::text(&path, BYTES_MAX, "state of the console").ok();
    if let Some(text) = file().and_then(text) {
        take(model, &text);
    }
}

fn take(model: &mut Model, text: &str) {
    let known = text.parse::<Table>().unwrap_or_default();
    for screen in sorted() {
        let former = config::RENAMED_TABLES.iter().find(|(_, present)| *present == screen.name());
        let table = known.get(&screen.name()).or_else(|| known.get(former?.0));
        let Some(Value::Table(one)) = table else { continue };
        let head = one.get("sort").and_then(Value::as_str);
        let list = model.list_mut(screen.id());
        list.sort = head.and_then(|head| screen.columns().iter().position(|column| column.head == head));
        list.reverse = one.get("reverse").and_then(Value::as_bool).unwrap_or(false);
    }
}

/// The screens with sortable rows.
fn sorted() -> impl Iterator<Item = &'static dyn Screen> {
    config::screens().filter(|screen| screen.about().can_sort)
}

fn text(model: &Model) -> String {
    let mut known = Table::new();
    for screen in sorted() {
        let (list, columns) = (screen.list(model), screen.columns());
        let mut one = Table::new();
        if let Some(column) = list.sort.and_then(|sort| columns.get(sort)) {
            one.insert("sort".to_owned(), Value::from(column.head));
        }
        if list.reverse {
            one.insert("reverse".to_owned(), Value::from(true));
        }
        if !one.is_empty() {
            known.insert(screen.name(), Value::Table(one));
        }
    }
    known.to_string()
}

/// Saves the order of the lists.
pub(super) fn write(model: &Model) -> io::Result<()> {
    let Some(path) = file() else { return Ok(()) };
    fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
    // Atomically, because another console may start right now.
    let fresh = path.with_extension(format!("toml.{}", std::process::id()));
    fs::write(&fresh, text(model))?;
    fs::rename(fresh, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::ScreenId;
    use crate::view::tests::{console, press};

    #[test]
    fn orders_are_restored_and_invalid_contents_ignored() {
        let mut model = console(80, 24);
        press(&mut model, "ssS2S");
        let text = text(&model);
        let mut next = console(80, 24);
        take(&mut next, &text);
        let order = |model: &Model, screen| {
            let list = model.list(ScreenId(screen));
            (list.sort, list.reverse)
        };
        assert_eq!(order(&next, "Members"), (Some(1), true));
        assert_eq!(order(&next, "Leases"), (None, true));
        assert_eq!(order(&next, "Detectors"), (None, false));
        let mut model = console(80, 24);
        take(&mut model, "[logs]\nsort = \"STATE\"");
        assert_eq!(order(&model, "Stores"), (Some(1), false), "the former name of its table");
        for nonsense in
            ["", "[members", "members = 1", "[members]\nsort = 7\nreverse = \"x\"", "[members]\nsort = \"X\""]
        {
            let mut model = console(80, 24);
            take(&mut model, nonsense);
            assert_eq!(order(&model, "Members"), (None, false), "{nonsense}");
        }
    }
}

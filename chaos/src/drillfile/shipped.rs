//! The drills that ship with the program.

use super::{Drill, DrillFileError, parse};
use obol_profiles::document::{self, nearest};

/// A drill that ships.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    /// Its name.
    pub name: &'static str,
    /// Its text, as a start for one's own.
    pub text: &'static str,
}

macro_rules! ship {
    ($($name:literal),* $(,)?) => {
        &[$(Shipped { name: $name, text: include_str!(concat!("../../drills/", $name, ".toml")) }),*]
    };
}

static SHIPPED: &[Shipped] = ship![
    "app",
    "app-heartbeat",
    "app+coordinator",
    "app+coordinator-heartbeat",
    "app+cache",
    "app+cache-heartbeat",
    "app+coordinator+cache",
    "app+coordinator+cache-heartbeat",
    "triple-loss",
    "freeze",
    "deaf",
    "partition-leader",
    "partition-node",
    "host-loss",
    "rolling-restart",
    "cache-storm",
    "coordinator-replace",
    "flap",
];

/// All of them, in the order of `obol drill list`.
#[must_use]
pub fn shipped() -> &'static [Shipped] {
    SHIPPED
}

/// A drill that ships, or a file if `name_or_path` has a `/` or ends in `.toml`. Also gives the text.
pub fn load(name_or_path: &str) -> Result<(Drill, String), DrillFileError> {
    if !document::is_path(name_or_path) {
        let found = SHIPPED.iter().find(|drill| drill.name == name_or_path).ok_or_else(|| {
            DrillFileError::Unknown {
                name: name_or_path.to_owned(),
                nearest: nearest(name_or_path, SHIPPED.iter().map(|drill| drill.name)),
            }
        })?;
        return Ok((parse(found.text, &format!("drills/{name_or_path}.toml"))?, found.text.to_owned()));
    }
    let unreadable = |reason| DrillFileError::Unreadable { path: name_or_path.to_owned(), reason };
    let text = document::text(name_or_path, "drill").map_err(unreadable)?;
    Ok((parse(&text, name_or_path)?, text))
}

//! The drills that ship with the program.

use super::{Drill, parse};
use obol_config::BuiltIn;
use obol_config::FileError;

/// A drill that ships.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    pub name: &'static str,
    /// Its text, also a template for other drills.
    pub text: &'static str,
}

macro_rules! ship {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../drills/", $name, ".toml")))),*]
    };
}

static SHIPPED: BuiltIn = BuiltIn {
    kind: "drill",
    folder: "drills",
    texts: ship![
        "app",
        "app-heartbeat",
        "agent",
        "app+coordinator",
        "app+coordinator-heartbeat",
        "app+cache",
        "app+cache-heartbeat",
        "app+coordinator+cache",
        "app+coordinator+cache-heartbeat",
        "triple-loss",
        "freeze",
        "multicast-outage",
        "partition-leader",
        "partition-node",
        "host-loss",
        "rolling-restart",
        "cache-storm",
        "coordinator-replace",
        "flap",
        "unheard-host",
        "burst-loss",
        "nic-down",
        "kernel-stall",
        "host-crash",
    ],
};

/// All of them, in the order of `obol drill list`.
pub fn shipped() -> impl ExactSizeIterator<Item = Shipped> {
    SHIPPED.texts.iter().map(|(name, text)| Shipped { name, text })
}

/// A shipped drill, or a file if `name_or_path` has a `/` or ends in `.toml`. Also returns the
/// text.
pub fn load(name_or_path: &str) -> Result<(Drill, String), FileError> {
    let (text, origin) = SHIPPED.load(name_or_path)?;
    Ok((parse(&text, &origin)?, text.into_owned()))
}

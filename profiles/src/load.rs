//! The sources of profiles: built into the program, or a file.

use crate::{Profile, read};
use obol_config::{BuiltIn, FileError};

/// The built-in profiles: name and text.
pub(crate) static FILES: [(&str, &str); 7] = [
    ("laptop", include_str!("../laptop.toml")),
    ("dedicated", include_str!("../dedicated.toml")),
    ("infiniband", include_str!("../infiniband.toml")),
    ("roce", include_str!("../roce.toml")),
    ("soft-roce", include_str!("../soft-roce.toml")),
    ("lan", include_str!("../lan.toml")),
    ("cloud", include_str!("../cloud.toml")),
];

/// Names of the built-in profiles.
pub static BUILTIN: [&str; FILES.len()] = obol_config::names(&FILES);

static PROFILES: BuiltIn = BuiltIn { kind: "profile", folder: "profiles", texts: &FILES };

impl Profile {
    /// One of [`BUILTIN`].
    pub fn builtin(name: &str) -> Result<Self, FileError> {
        let (text, origin) = PROFILES.text(name)?;
        Self::parse(text, &origin)
    }

    /// Reads and checks TOML. `origin` names the source in errors; no file is opened. All faults
    /// are reported, not only the first.
    pub fn parse(text: &str, origin: &str) -> Result<Self, FileError> {
        read::read(text, origin)
    }

    /// A built-in profile, or a file if `name_or_path` has a `/` or ends in `.toml`.
    pub fn load(name_or_path: &str) -> Result<Self, FileError> {
        let (text, origin) = PROFILES.load(name_or_path)?;
        Self::parse(&text, &origin)
    }
}

/// `laptop`, which works everywhere.
impl Default for Profile {
    fn default() -> Self {
        Self::builtin(BUILTIN[0])
            .expect("the built-in profiles are part of the program; a test reads them all")
    }
}

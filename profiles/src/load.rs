//! Where profiles come from: built into the program, or a file.

use crate::document::{self, is_path, nearest};
use crate::error::ProfileError;
use crate::{Profile, read, write};

/// The built-in profiles: name and text.
pub(crate) static FILES: [(&str, &str); 5] = [
    ("laptop", include_str!("../laptop.toml")),
    ("dedicated", include_str!("../dedicated.toml")),
    ("infiniband", include_str!("../infiniband.toml")),
    ("roce", include_str!("../roce.toml")),
    ("soft-roce", include_str!("../soft-roce.toml")),
];

/// Names of the built-in profiles.
pub static BUILTIN: [&str; FILES.len()] = {
    let mut names = [""; FILES.len()];
    let mut n = 0;
    while n < names.len() {
        names[n] = FILES[n].0;
        n += 1;
    }
    names
};

/// The text of a file.
pub(crate) fn text(path: &str) -> Result<String, ProfileError> {
    document::text(path, "profile")
        .map_err(|reason| ProfileError::Unreadable { path: path.to_owned(), reason })
}

impl Profile {
    /// One of [`BUILTIN`].
    pub fn builtin(name: &str) -> Result<Self, ProfileError> {
        match FILES.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => Self::parse(text, &format!("profiles/{name}.toml")),
            None => Err(ProfileError::Unknown { name: name.to_owned(), nearest: nearest(name, BUILTIN) }),
        }
    }

    /// Reads and checks TOML. `origin` says in errors where the text is from; nothing is opened. All faults are
    /// told, not only the first.
    pub fn parse(text: &str, origin: &str) -> Result<Self, ProfileError> {
        read::read(text, origin)
    }

    /// A built-in profile, or a file if `name_or_path` has a `/` or ends in `.toml`.
    pub fn load(name_or_path: &str) -> Result<Self, ProfileError> {
        if !is_path(name_or_path) {
            return Self::builtin(name_or_path);
        }
        Self::parse(&text(name_or_path)?, name_or_path)
    }

    /// The profile as TOML, each key with its meaning, unit and bounds. Read back, it is the same profile.
    #[must_use]
    pub fn to_toml(&self) -> String {
        write::to_toml(self)
    }

    /// All keys as a Markdown table: values of the built-in profiles, type, unit, bounds, meaning.
    #[must_use]
    pub fn reference() -> String {
        write::reference()
    }
}

/// `laptop`: works everywhere.
impl Default for Profile {
    fn default() -> Self {
        Self::builtin(BUILTIN[0])
            .expect("the built-in profiles are part of the program; a test reads them all")
    }
}

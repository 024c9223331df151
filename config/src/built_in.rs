//! Texts that are part of the program, each under a name, beside files.

use crate::file;
use crate::problem::FileError;
use std::borrow::Cow;
use std::path::Path;

/// The size limit of a file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Whether a name, of a built-in text or a file, is a path.
fn is_path(name_or_path: &str) -> bool {
    name_or_path.contains('/') || name_or_path.ends_with(".toml")
}

/// The built-in texts of one kind.
#[derive(Clone, Copy, Debug)]
pub struct BuiltIn {
    /// The kind, in the singular, such as profile.
    pub kind: &'static str,
    /// Their folder in the sources.
    pub folder: &'static str,
    /// Each name and its text.
    pub texts: &'static [(&'static str, &'static str)],
}

/// The names of these texts.
pub const fn names<const N: usize>(texts: &[(&'static str, &'static str); N]) -> [&'static str; N] {
    let mut names = [""; N];
    let mut n = 0;
    while n < N {
        names[n] = texts[n].0;
        n += 1;
    }
    names
}

impl BuiltIn {
    /// The text of this name, and its origin for errors.
    pub fn text(&self, name: &str) -> Result<(&'static str, String), FileError> {
        match self.texts.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => Ok((text, format!("{}/{name}.toml", self.folder))),
            None => Err(FileError::Unknown {
                kind: self.kind,
                name: name.to_owned(),
                built_in: self.texts.iter().map(|(known, _)| *known).collect(),
            }),
        }
    }

    /// The text of this name or, if it has a `/` or ends in `.toml`, of this file; and its origin
    /// for errors.
    pub fn load(&self, name_or_path: &str) -> Result<(Cow<'static, str>, String), FileError> {
        if !is_path(name_or_path) {
            return self.text(name_or_path).map(|(text, origin)| (text.into(), origin));
        }
        text(name_or_path, self.kind).map(|text| (text.into(), name_or_path.to_owned()))
    }
}

/// The text of a file that should be a `kind`.
pub fn text(path: impl AsRef<Path>, kind: &str) -> Result<String, FileError> {
    let path = path.as_ref();
    file::text(path, FILE_BYTES_MAX, kind).map_err(|error| FileError::Unreadable {
        path: path.display().to_string(),
        reason: error.to_string(),
    })
}

//! Folders of the user for configuration and state, as the XDG Base Directory Specification has
//! them.

use std::env;
use std::path::{self, Path, PathBuf};

/// A folder of the user, given by a variable or else by its default below the home directory. An
/// empty or relative path does not count.
pub fn folder(variable: &str, at_home: &str) -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(variable).or_else(|| Some(absolute("HOME")?.join(at_home)))
}

/// The user's folder for program state.
pub fn state_home() -> Option<PathBuf> {
    folder("XDG_STATE_HOME", ".local/state")
}

/// A path as the name of one folder: `%` for `/`.
pub fn folded(path: &Path) -> String {
    let path = path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.to_string_lossy().replace('%', "%25").replace('/', "%")
}

/// The path of a folded name. A component that begins with 25 is misread as an escape.
pub fn unfolded(name: &str) -> PathBuf {
    let mut path = String::new();
    let mut rest = name;
    while let Some(at) = rest.find('%') {
        path.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        match rest.strip_prefix("25") {
            Some(after) => {
                path.push('%');
                rest = after;
            }
            None => path.push('/'),
        }
    }
    path.push_str(rest);
    path.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folded_path_is_one_name_and_is_unfolded() {
        for path in ["/dev/shm/obol-1000", "/a%b/c", "/%"] {
            let name = folded(Path::new(path));
            assert!(!name.contains('/'));
            assert_eq!(unfolded(&name), Path::new(path), "{name}");
        }
    }
}

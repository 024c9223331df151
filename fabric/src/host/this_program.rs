//! The program that this process runs, for further processes of it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, io};

/// What the kernel adds to the name of a running program whose file was removed or replaced.
const DELETED: &[u8] = b" (deleted)";

/// Its file. An error if that was removed or replaced since this process started: what has its name
/// now may be another version.
pub fn file() -> io::Result<PathBuf> {
    present(env::current_exe()?)
}

/// A command that runs it.
pub fn command() -> io::Result<Command> {
    file().map(Command::new)
}

fn present(file: PathBuf) -> io::Result<PathBuf> {
    match file.as_os_str().as_bytes().strip_suffix(DELETED).map(OsStr::from_bytes) {
        // A file may have such a name.
        Some(name) if !file.exists() => Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!(
                "{} was removed or replaced since this process started: start this command again",
                Path::new(name).display()
            ),
        )),
        _ => Ok(file),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_program_that_was_replaced_is_not_started() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("obol (deleted)");
        let error = present(file.clone()).expect_err("it is not there");
        let name = folder.path().join("obol");
        let expected = "was removed or replaced since this process started: start this command again";
        assert_eq!(error.to_string(), format!("{} {expected}", name.display()));
        // The file that has the program's name now is another one.
        fs::write(&name, "").expect("written");
        assert_eq!(present(file.clone()).map_err(|error| error.kind()), Err(io::ErrorKind::NotFound));
        fs::write(&file, "").expect("written");
        assert_eq!(present(file.clone()).expect("it has this name"), file);
        let this = super::file().expect("it is there");
        assert_eq!(Ok(this), env::current_exe().map_err(|error| error.to_string()));
    }
}

//! Files that users name for results. After a replacement, the old or the new file is there whole, also if
//! the disk is full. A pipe or a device is written to directly.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Links that are followed, as many as Linux follows.
const LINKS_MAX: u32 = 40;
/// Names that are tried for a draft: those of processes that were killed may be in the way.
const DRAFTS_MAX: u32 = 1000;
/// What Linux reports of links that lead nowhere else.
const ELOOP: i32 = 40;
/// The mode of a new file, before the umask.
const MODE: u32 = 0o666;
/// What a replaced file hands on of its mode.
const MODE_KEPT: u32 = 0o777;

/// Where a result goes.
enum Place {
    /// To a file that is replaced, with the permissions of the one that is there.
    Regular(PathBuf, Option<Permissions>),
    /// To what cannot be replaced, or is open already.
    Direct,
}

/// Writes a file, or replaces the content of the one that is there. After an error the old content is there.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    match place(path)? {
        Place::Regular(at, permissions) => {
            let draft = Draft::beside(&at, permissions)?;
            (&draft.file).write_all(content)?;
            draft.file.sync_all()?;
            draft.publish(&at)
        }
        // What shells have written to an open file stays.
        Place::Direct => OpenOptions::new().append(true).open(path)?.write_all(content),
    }
}

/// Whether a result can be written there: to know it before the work, not after. Changes nothing.
pub fn may_replace(path: &Path) -> io::Result<()> {
    match place(path)? {
        Place::Regular(at, permissions) => Draft::beside(&at, permissions).map(drop),
        Place::Direct => Ok(()),
    }
}

/// Whether a path names the standard output, as `/dev/stdout` does.
pub(crate) fn is_standard_output(path: &Path) -> bool {
    let open = io::stdout().as_fd().try_clone_to_owned().map(File::from);
    let (Ok(out), Ok(found)) = (open.and_then(|out| out.metadata()), fs::metadata(path)) else {
        return false;
    };
    (out.dev(), out.ino()) == (found.dev(), found.ino())
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn place(path: &Path) -> io::Result<Place> {
    let mut at = path.to_owned();
    let mut is_open = false;
    for _ in 0..LINKS_MAX {
        // Links to open files are in /proc only.
        is_open |= fs::canonicalize(folder(&at)).is_ok_and(|folder| folder.starts_with("/proc"));
        let Ok(to) = fs::read_link(&at) else {
            return match fs::metadata(&at) {
                Ok(found) if found.is_file() && !is_open => {
                    // A file that is protected from writing is protected from being replaced.
                    OpenOptions::new().write(true).open(&at)?;
                    Ok(Place::Regular(at, Some(found.permissions())))
                }
                Err(error) if error.kind() == ErrorKind::NotFound && !is_open => Ok(Place::Regular(at, None)),
                Err(error) if !is_open => Err(error),
                _ => Ok(Place::Direct),
            };
        };
        at = folder(&at).join(to);
    }
    Err(io::Error::from_raw_os_error(ELOOP))
}

/// A new file beside the one that it is to replace. Dropped, it is removed.
struct Draft {
    file: File,
    path: PathBuf,
    is_published: bool,
}

impl Draft {
    fn beside(at: &Path, permissions: Option<Permissions>) -> io::Result<Self> {
        let mode = permissions.map(|permissions| permissions.mode() & MODE_KEPT);
        let (file, path) = Self::create(folder(at), mode.unwrap_or(MODE)).map_err(|error| {
            let (kind, folder) = (error.kind(), folder(at).display());
            io::Error::new(kind, format!("no file can be made beside it, in {folder}: {error}"))
        })?;
        let draft = Self { file, path, is_published: false };
        if let Some(mode) = mode {
            draft.file.set_permissions(Permissions::from_mode(mode))?;
        }
        Ok(draft)
    }

    fn create(folder: &Path, mode: u32) -> io::Result<(File, PathBuf)> {
        let mut number = 0;
        loop {
            let path = folder.join(format!(".obol-{}-{number}.draft", std::process::id()));
            match OpenOptions::new().write(true).create_new(true).mode(mode).open(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists && number < DRAFTS_MAX => number += 1,
                made => return Ok((made?, path)),
            }
        }
    }

    fn publish(mut self, at: &Path) -> io::Result<()> {
        fs::rename(&self.path, at)?;
        self.is_published = true;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_published {
            // The error that it is dropped for says more.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder");
        let name = |entry: io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
        let mut names: Vec<String> = entries.map(|entry| name(entry).into_string().expect("text")).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_whole_and_keeps_its_permissions() {
        let folder = tempfile::tempdir().expect("made");
        let file = folder.path().join("report.md");
        replace(&file, b"old").expect("written");
        fs::set_permissions(&file, Permissions::from_mode(0o640)).expect("set");
        let before = fs::metadata(&file).expect("there").ino();
        let mut reader = File::open(&file).expect("open");
        replace(&file, b"new").expect("written");
        let after = fs::metadata(&file).expect("there");
        assert_eq!((fs::read(&file).expect("read"), after.mode() & 0o777), (b"new".to_vec(), 0o640));
        // A reader that has opened the old one reads it to its end: the new one is another file.
        assert_ne!(after.ino(), before);
        let mut seen = Vec::new();
        io::Read::read_to_end(&mut reader, &mut seen).expect("read");
        assert_eq!(seen, b"old");
        assert_eq!(names(folder.path()), ["report.md"]);
    }

    #[test]
    fn after_an_error_the_old_file_is_there_and_nothing_else() {
        let folder = tempfile::tempdir().expect("made");
        let taken = folder.path().join("taken");
        fs::create_dir(&taken).expect("made");
        replace(&taken, b"new").expect_err("a folder");
        let draft = Draft::beside(&taken, None).expect("made");
        draft.publish(&taken).expect_err("a folder is not replaced");
        replace(&folder.path().join("none/report.md"), b"new").expect_err("no such folder");
        assert_eq!(names(folder.path()), ["taken"]);
    }

    #[test]
    fn a_link_stays_and_the_file_that_it_means_is_replaced() {
        let folder = tempfile::tempdir().expect("made");
        let (link, file) = (folder.path().join("link"), folder.path().join("file"));
        symlink("file", &link).expect("made");
        // First it leads to nothing.
        for content in [b"old", b"new"] {
            replace(&link, content).expect("written");
            assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
            assert_eq!(fs::read(&file).expect("read"), content);
        }
        let circle = folder.path().join("circle");
        symlink("circle", &circle).expect("made");
        assert_eq!(replace(&circle, b"x").expect_err("a circle").raw_os_error(), Some(ELOOP));
    }

    #[test]
    fn what_cannot_be_replaced_is_written_to() {
        replace(Path::new("/dev/null"), b"new").expect("written");
        assert!(!fs::metadata("/dev/null").expect("there").is_file());
        let full = replace(Path::new("/dev/full"), b"new").expect_err("it is full");
        assert_eq!(full.kind(), ErrorKind::StorageFull);
        // A file that is open already, by its descriptor: the same file afterwards.
        let file = tempfile::NamedTempFile::new().expect("made");
        let before = file.as_file().metadata().expect("there").ino();
        let open = std::os::fd::AsRawFd::as_raw_fd(file.as_file());
        for _ in 0..2 {
            replace(Path::new(&format!("/dev/fd/{open}")), b"new").expect("written");
        }
        assert_eq!(fs::read(file.path()).expect("read"), b"newnew");
        assert_eq!(fs::metadata(file.path()).expect("there").ino(), before);
    }

    #[test]
    fn a_place_is_tried_without_a_change() {
        let folder = tempfile::tempdir().expect("made");
        let file = folder.path().join("page.html");
        may_replace(&file).expect("it may");
        assert!(names(folder.path()).is_empty());
        fs::write(&file, "old").expect("written");
        may_replace(&file).expect("it may");
        assert_eq!(fs::read(&file).expect("read"), b"old");
        assert!(may_replace(&folder.path().join("none/page.html")).is_err());
    }
}

//! Files that users name for results. After a replacement, the old or the new file is there whole, also if
//! the disk is full, and with the same owner and permissions. A pipe or a device is written to directly.
//!
//! A file that may be written, but not replaced, is written in place, which is not atomic: in a folder that
//! is not writable, in a sticky folder if it is another user's, or if it is mounted itself.

use nix::errno::Errno;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{self as unix, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
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

/// How a draft ends that is overwritten if it is there.
pub const DRAFT_END: &str = ".new";

/// Where a result goes.
enum Place {
    /// To a file that is replaced, with the owner and permissions of the one that is there. That one can be
    /// written to.
    Regular(PathBuf, Option<Metadata>),
    /// To what cannot be replaced, or is open already.
    Direct,
}

/// Writes a file, or replaces the content of the one that is there. After an error the old content is there,
/// unless it could only be written in place.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    match place(path)? {
        Place::Regular(at, old) => {
            let Some(draft) = draft(&at, old.as_ref())? else { return write_in_place(&at, content) };
            draft.fill(content)?;
            match draft.publish(&at) {
                Err(error) if old.is_some() && is_refused(&error) => write_in_place(&at, content),
                published => published,
            }
        }
        // What shells have written to an open file stays.
        Place::Direct => OpenOptions::new().append(true).open(path)?.write_all(content),
    }
}

/// Replaces a regular file by a draft whose name is the file's and [`DRAFT_END`], and never writes in place.
/// The draft of a process that was killed is overwritten. Two processes must not do this at the same time.
pub fn replace_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let old = match fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => {
            return Err(io::Error::new(ErrorKind::InvalidInput, "is not a regular file"));
        }
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        found => found.ok(),
    };
    if old.is_some() {
        // See `place`.
        OpenOptions::new().write(true).open(path)?;
    }
    let draft = Draft::named(path, old.as_ref())?;
    draft.fill(content)?;
    draft.publish(path)
}

/// Whether a result can be written there: to know it before the work, not after. Changes nothing.
pub fn may_replace(path: &Path) -> io::Result<()> {
    match place(path)? {
        Place::Regular(at, old) => draft(&at, old.as_ref()).map(drop),
        Place::Direct => Ok(()),
    }
}

/// A draft of a file; `None` if the old one can only be written in place.
fn draft(at: &Path, old: Option<&Metadata>) -> io::Result<Option<Draft>> {
    match Draft::beside(at, old) {
        Err(error) if old.is_some() && is_refused(&error) => Ok(None),
        made => made.map(Some).map_err(|error| {
            let (kind, folder) = (error.kind(), folder(at).display());
            io::Error::new(kind, format!("no file can be made beside it, in {folder}: {error}"))
        }),
    }
}

/// Whether an error says that a file must not be replaced, which may be written all the same.
fn is_refused(error: &io::Error) -> bool {
    let number = error.raw_os_error().map(Errno::from_raw);
    matches!(number, Some(Errno::EPERM | Errno::EACCES | Errno::EBUSY | Errno::EROFS))
}

fn write_in_place(at: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).truncate(true).open(at)?;
    file.write_all(content)?;
    file.sync_all()
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
                    Ok(Place::Regular(at, Some(found)))
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

fn mode(old: Option<&Metadata>) -> u32 {
    old.map_or(MODE, |old| old.permissions().mode() & MODE_KEPT)
}

/// A new file beside the one that it is to replace. Dropped, it is removed.
struct Draft {
    file: File,
    path: PathBuf,
    is_published: bool,
}

impl Draft {
    /// One with a name that no other has, and with the owner and the permissions of the old file.
    fn beside(at: &Path, old: Option<&Metadata>) -> io::Result<Self> {
        let draft = Self::create(folder(at), mode(old))?;
        draft.keep_permissions(old)?;
        draft.keep_owner(old)?;
        Ok(draft)
    }

    fn create(folder: &Path, mode: u32) -> io::Result<Self> {
        let mut number = 0;
        loop {
            let path = folder.join(format!(".obol-{}-{number}.draft", std::process::id()));
            match Self::at(path, mode) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists && number < DRAFTS_MAX => number += 1,
                made => return made,
            }
        }
    }

    /// The one with the file's name and [`DRAFT_END`].
    fn named(at: &Path, old: Option<&Metadata>) -> io::Result<Self> {
        let mut path = at.as_os_str().to_owned();
        path.push(DRAFT_END);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let draft = Self::at(path.into(), mode(old))?;
        draft.keep_permissions(old)?;
        match draft.keep_owner(old) {
            // A file that is there whole is worth more than its owner.
            Err(error) if !is_refused(&error) => Err(error),
            _ => Ok(draft),
        }
    }

    fn at(path: PathBuf, mode: u32) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path)?;
        Ok(Self { file, path, is_published: false })
    }

    /// Not all that it was created with: the umask has taken some.
    fn keep_permissions(&self, old: Option<&Metadata>) -> io::Result<()> {
        old.map_or(Ok(()), |_| self.file.set_permissions(Permissions::from_mode(mode(old))))
    }

    fn keep_owner(&self, old: Option<&Metadata>) -> io::Result<()> {
        let Some(old) = old else { return Ok(()) };
        let own = self.file.metadata()?;
        if (own.uid(), own.gid()) == (old.uid(), old.gid()) {
            return Ok(());
        }
        unix::fchown(&self.file, Some(old.uid()), Some(old.gid()))
    }

    fn fill(&self, content: &[u8]) -> io::Result<()> {
        (&self.file).write_all(content)?;
        self.file.sync_all()
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

    /// Does something with the rights of a user who owns nothing. Only the superuser can become that user;
    /// others are bound by permissions as they are.
    fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        // The identity for files is the thread's own.
        let of_thread = || {
            nix::unistd::setfsuid(NOBODY.into());
            work()
        };
        std::thread::scope(|scope| scope.spawn(of_thread).join()).expect("no panic")
    }

    const NOBODY: u32 = 65_534;

    #[test]
    fn a_file_that_may_be_written_but_not_replaced_is_written_in_place() {
        // The folder is not writable; or it is, but the file is another user's, as in a sticky one.
        for mode in [0o555, 0o1777] {
            let folder = tempfile::tempdir().expect("made");
            let (file, closed) = (folder.path().join("report.md"), folder.path().join("closed"));
            for (path, mode) in [(&file, 0o666), (&closed, 0o444)] {
                fs::write(path, "a long old content").expect("written");
                fs::set_permissions(path, Permissions::from_mode(mode)).expect("set");
            }
            let before = fs::metadata(&file).expect("there");
            fs::set_permissions(folder.path(), Permissions::from_mode(mode)).expect("set");
            as_nobody(|| {
                may_replace(&file).expect("it may");
                assert_eq!(fs::read(&file).expect("read"), b"a long old content");
                replace(&file, b"new").expect("written");
                for refused in [may_replace(&closed), replace(&closed, b"new")] {
                    assert_eq!(refused.expect_err("protected").kind(), ErrorKind::PermissionDenied);
                }
                if mode == 0o555 {
                    let new = folder.path().join("new");
                    for refused in [may_replace(&new), replace(&new, b"new"), replace_whole(&file, b"x")] {
                        assert_eq!(refused.expect_err("no draft").kind(), ErrorKind::PermissionDenied);
                    }
                }
            });
            let after = fs::metadata(&file).expect("there");
            assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()));
            assert_eq!(fs::read(&file).expect("read"), b"new");
            assert_eq!(names(folder.path()), ["closed", "report.md"]);
            fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).expect("set");
        }
    }

    #[test]
    fn a_file_of_another_user_stays_that_users() {
        let folder = tempfile::tempdir().expect("made");
        let file = folder.path().join("report.md");
        fs::write(&file, "old").expect("written");
        // Only the superuser can give a file away; the file of any other user is that user's.
        let given = unix::chown(&file, Some(NOBODY), Some(NOBODY)).is_ok();
        let of = |file: &Path| fs::metadata(file).map(|found| (found.uid(), found.gid())).expect("there");
        let before = of(&file);
        assert_eq!(given, before == (NOBODY, NOBODY));
        for replace in [replace, replace_whole] {
            replace(&file, b"new").expect("written");
            assert_eq!((of(&file), fs::read(&file).expect("read")), (before, b"new".to_vec()));
        }
    }

    #[test]
    fn a_draft_with_a_fixed_name_is_overwritten() {
        let folder = tempfile::tempdir().expect("made");
        let file = folder.path().join("coord-0.view");
        fs::write(folder.path().join("coord-0.view.new"), "half of").expect("written");
        for content in [b"old", b"new"] {
            replace_whole(&file, content).expect("written");
            assert_eq!(fs::read(&file).expect("read"), content);
            assert_eq!(names(folder.path()), ["coord-0.view"]);
        }
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

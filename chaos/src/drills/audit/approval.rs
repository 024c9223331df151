//! A second person's approval of a drill file, for files whose guard `require_approval` asks for
//! it: a small file beside the drill's, `FILE.approval`. It counts if its owner is another user
//! than the runner's, if it was written for exactly this text and cluster, and if it has not
//! expired. The owner comes from the file system, so a user cannot write the approval of another.

use super::log::{Who, sha256};
use nix::fcntl::OFlag;
use obol_observe::calendar;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The size limit of an approval.
const BYTES_MAX: u64 = 4096;
const SCHEMA: u32 = 1;

/// The text of a drill that is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The file, as it was named.
    pub name: String,
    /// SHA-256 of its text.
    pub sha256: String,
    /// Where its approval is.
    pub approval: PathBuf,
}

impl Source {
    /// The text of this name, with its approval beside it.
    pub fn new(name: &str, text: &str) -> Self {
        let approval = PathBuf::from(format!("{name}.approval"));
        Self { name: name.to_owned(), sha256: sha256(text.as_bytes()), approval }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approval {
    schema: u32,
    /// The hash of the text that is approved.
    pub sha256: String,
    /// The cluster on which it may run.
    pub cluster: String,
    /// Who approved it.
    pub by: Who,
    /// Seconds since 1970 until which it counts.
    pub until: u64,
}

/// Why a drill that needs an approval has none.
#[derive(Debug, thiserror::Error)]
pub enum ApprovalError {
    /// It does not come from a file.
    #[error("the drill has require_approval and does not come from a file that could be approved")]
    NoFile,
    /// There is no approval.
    #[error(
        "the drill has require_approval, and {path} does not exist: another user has to run `obol drill approve \
         --cluster {cluster} {file}`"
    )]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
        cluster: String,
        file: String,
    },
    /// It cannot be read.
    #[error("the approval {0} cannot be used: {1}")]
    Unreadable(PathBuf, io::Error),
    /// It was altered, or anybody could have.
    #[error("the approval {0} can be written by others than its owner; its owner has to approve again")]
    Writable(PathBuf),
    /// The same person runs and approves.
    #[error("the approval {path} is of uid {uid}, who also runs the drill; another user has to approve it")]
    Own {
        /// The approval.
        path: PathBuf,
        /// The common user id.
        uid: u32,
    },
    /// The file was changed since.
    #[error("the approval {0} is for another text; the file was changed since, and has to be approved again")]
    Changed(PathBuf),
    /// It is for another cluster.
    #[error("the approval {path} is for cluster {cluster}")]
    Cluster {
        /// The approval.
        path: PathBuf,
        cluster: String,
    },
    /// It is too old.
    #[error("the approval {0} has expired at {1}; the drill has to be approved again")]
    Expired(PathBuf, String),
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl Approval {
    /// This user's approval of a text, for some seconds from now.
    pub fn new(source: &Source, cluster: &str, seconds: u64) -> Self {
        Self {
            schema: SCHEMA,
            sha256: source.sha256.clone(),
            cluster: cluster.to_owned(),
            by: Who::this(),
            until: now().saturating_add(seconds),
        }
    }

    /// When it expires, in UTC.
    pub fn expires(&self) -> String {
        calendar::utc(self.until.saturating_mul(1_000_000_000), "%F %T UTC")
    }

    /// Writes it in place of an earlier one.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let draft = PathBuf::from(format!("{}.{}", path.display(), std::process::id()));
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&draft)?;
        let written = file.write_all(&serde_json::to_vec_pretty(self)?).and_then(|()| {
            // Whatever the umask: the runner has to read it, and only its owner may write it.
            file.set_permissions(fs::Permissions::from_mode(0o644))?;
            fs::rename(&draft, path)
        });
        if written.is_err() {
            // It is of no use, and its name has the process id.
            let _ = fs::remove_file(&draft);
        }
        written
    }
}

/// The approval under which this user may run a drill on a cluster.
pub(crate) fn check(source: Option<&Source>, cluster: &str) -> Result<Approval, ApprovalError> {
    check_for(source.ok_or(ApprovalError::NoFile)?, cluster, &Who::this(), now())
}

fn check_for(source: &Source, cluster: &str, runner: &Who, now: u64) -> Result<Approval, ApprovalError> {
    let path = &source.approval;
    let (approval, owner) = match read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let (path, file) = (path.clone(), source.name.clone());
            return Err(ApprovalError::Missing { path, cluster: cluster.to_owned(), file });
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && is_writable(path) => {
            return Err(ApprovalError::Writable(path.clone()));
        }
        read => read.map_err(|error| ApprovalError::Unreadable(path.clone(), error))?,
    };
    // The owner is certain; the login behind it, for instance of a root shell, is what was written.
    let approvers = std::iter::once(owner).chain(approval.by.uids());
    if let Some(uid) = approvers.into_iter().find(|uid| runner.uids().any(|own| own == *uid)) {
        return Err(ApprovalError::Own { path: path.clone(), uid });
    }
    if approval.sha256 != source.sha256 {
        return Err(ApprovalError::Changed(path.clone()));
    }
    if approval.cluster != cluster {
        return Err(ApprovalError::Cluster { path: path.clone(), cluster: approval.cluster });
    }
    if now >= approval.until {
        return Err(ApprovalError::Expired(path.clone(), approval.expires()));
    }
    Ok(approval)
}

fn is_writable(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.mode() & 0o022 != 0)
}

/// An approval and the owner of its file.
fn read(path: &Path) -> io::Result<(Approval, u32)> {
    // A link may point to a file of any owner. A pipe would block.
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    if meta.mode() & 0o022 != 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes)?;
    Ok((serde_json::from_slice(&bytes)?, meta.uid()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runner(uid: u32, login_uid: Option<u32>) -> Who {
        Who { uid, login_uid, ..Who::this() }
    }

    /// A text approved by this user for an hour.
    fn approved() -> (tempfile::TempDir, Source, Approval) {
        let dir = tempfile::tempdir().expect("made");
        let source = Source::new(&dir.path().join("d.toml").display().to_string(), "text");
        let approval = Approval::new(&source, "prod", 3600);
        approval.write(&source.approval).expect("written");
        (dir, source, approval)
    }

    #[test]
    fn an_approval_is_of_another_user_for_this_text_cluster_and_time() {
        let (_dir, source, approval) = approved();
        let me = approval.by.clone();
        let other = runner(me.uid + 1, None);
        let check = |source: &Source, cluster: &str, who: &Who, now: u64| {
            check_for(source, cluster, who, now).map_err(|error| error.to_string())
        };
        assert_eq!(check(&source, "prod", &other, now()), Ok(approval.clone()));
        let refused = |result: Result<Approval, String>, words: &str| {
            let why = result.expect_err("refused");
            assert!(why.contains(words), "{words:?} is not in {why:?}");
        };
        refused(check(&source, "prod", &me, now()), "another user has to approve it");
        // The approver behind `sudo -u obol`.
        refused(check(&source, "prod", &runner(me.uid + 1, Some(me.uid)), now()), "another user");
        refused(check(&source, "test", &other, now()), "for cluster prod");
        refused(check(&source, "prod", &other, approval.until), "has expired at");
        let changed = Source { sha256: sha256(b"text "), ..source.clone() };
        refused(check(&changed, "prod", &other, now()), "has to be approved again");
        fs::set_permissions(&source.approval, fs::Permissions::from_mode(0o666)).expect("changed");
        refused(check(&source, "prod", &other, now()), "can be written by others");
        fs::remove_file(&source.approval).expect("removed");
        refused(
            check(&source, "prod", &other, now()),
            "another user has to run `obol drill approve --cluster prod",
        );
    }

    #[test]
    fn a_link_to_anothers_approval_does_not_count() {
        let (dir, source, approval) = approved();
        let at = dir.path().join("elsewhere");
        fs::rename(&source.approval, &at).expect("moved");
        std::os::unix::fs::symlink(&at, &source.approval).expect("linked");
        let other = runner(approval.by.uid + 1, None);
        assert!(matches!(check_for(&source, "prod", &other, now()), Err(ApprovalError::Unreadable(..))));
    }

    #[test]
    fn the_one_who_approved_as_root_does_not_run_it() {
        let (_dir, source, mut approval) = approved();
        approval.by.login_uid = Some(approval.by.uid + 7);
        approval.write(&source.approval).expect("written");
        let behind = runner(approval.by.uid + 7, None);
        assert!(matches!(check_for(&source, "prod", &behind, now()), Err(ApprovalError::Own { .. })));
    }
}

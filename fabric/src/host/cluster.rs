//! A cluster is a directory `ROOT/NAME`: the file `table` and one file `region-N` per region.
//!
//! It is created by linking a finished table to its name, so it exists completely or not at all.
//! Root and cluster directory belong to one user and are closed to all others.

use crate::host::clock;
use crate::host::error::HostError;
use crate::host::file::remove_if_present;
use crate::host::impair::Impairment;
use crate::host::kernel;
use crate::host::numbers::{FIRST_FREE, HOST_MAX, REGIONS};
use crate::host::occupancy::Phase;
use crate::host::peer::user;
use crate::host::process::{Lives, Process};
use crate::host::table::{Entry, GATEWAY_FLAG, Origin, Role, Table};
use crate::host::trust::{check_private, check_way};
use crate::layout::{Header, Layout, Limits, Seat};
use crate::types::{Incarnation, Name};
use crate::version::{Release, Version};
use core::mem::offset_of;
use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The directory of this user's clusters: `/dev/shm/obol-<uid>`.
pub fn default_root() -> PathBuf {
    PathBuf::from(format!("/dev/shm/obol-{}", user()))
}

/// The mode of a directory created by this program: closed to all others, and marked by the sticky
/// bit, which has no other effect there. A directory without the mark has another origin and is
/// never removed.
pub const MADE_MODE: u32 = 0o1700;

/// Whether this program created the directory.
pub fn is_made(meta: &fs::Metadata) -> bool {
    meta.is_dir() && meta.mode() & 0o7777 == MADE_MODE
}

/// A cluster on this host. Clones share it.
#[derive(Clone, Debug)]
pub struct Cluster {
    dir: PathBuf,
    /// Which process owns which region.
    pub table: Arc<Table>,
}

/// A region as observers see it.
#[derive(Clone, Debug)]
pub struct RegionInfo {
    pub number: u32,
    /// The owner's member kind.
    pub kind: u32,
    /// The owner's multicast groups.
    pub groups: u32,
    /// The owner's name.
    pub name: Name,
    /// Counts owners.
    pub generation: u32,
    /// The owner's process.
    pub process: Process,
    /// Whether the owner is active: it has not released the region and its process is not dead.
    pub alive: bool,
    /// The owner's incarnation, [`Incarnation::NONE`] before it has joined.
    pub incarnation: Incarnation,
}

impl RegionInfo {
    /// Whether the owner is, or was, a gateway.
    pub const fn is_gateway(&self) -> bool {
        self.groups & GATEWAY_FLAG != 0
    }

    const fn of(number: u32, entry: &Entry, alive: bool, incarnation: Incarnation) -> Self {
        let Entry { occupancy, generation, role: Role { kind, groups, name } } = *entry;
        Self { number, kind, groups, name, generation, process: occupancy.process, alive, incarnation }
    }
}

impl Cluster {
    /// Creates a cluster within this host.
    pub fn create(root: &Path, name: Name, limits: Limits) -> Result<Self, HostError> {
        Self::create_on(
            root,
            name,
            limits,
            Origin { nonce: kernel::random().unwrap_or_else(|| clock::now().0), host: 0 },
        )
    }

    /// Creates the directory of a cluster, and the root, both for this user alone.
    pub fn make_directory(root: &Path, name: Name) -> Result<(), HostError> {
        check_way(root)?;
        make_private(root)?;
        make_private(&root.join(name.as_str()))
    }

    /// Creates this host's part of a cluster of several hosts.
    pub fn create_on(root: &Path, name: Name, limits: Limits, origin: Origin) -> Result<Self, HostError> {
        Layout::new(limits)?;
        if origin.host > HOST_MAX {
            return Err(HostError::NoSuchHost { host: origin.host, max: HOST_MAX });
        }
        Self::make_directory(root, name)?;
        let dir = root.join(name.as_str());
        let table = dir.join("table");
        check_empty(&dir)?;
        let draft = dir.join(format!("table.{}", std::process::id()));
        let _ = fs::remove_file(&draft);
        Table::create(&draft, name, limits, origin)?;
        let linked = fs::hard_link(&draft, &table);
        let _ = fs::remove_file(&draft);
        match linked {
            Ok(()) => Self::open(root, name),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let alive = Self::open(root, name)?.alive();
                Err(if alive == 0 {
                    HostError::Stale { path: dir }
                } else {
                    HostError::AlreadyExists { path: dir, alive }
                })
            }
            Err(error) => Err(HostError::io("create", table)(error)),
        }
    }

    /// Opens an existing cluster.
    pub fn open(root: &Path, name: Name) -> Result<Self, HostError> {
        let dir = root.join(name.as_str());
        check_way(root)?;
        for path in [root, &dir] {
            match fs::symlink_metadata(path) {
                Ok(_) => check_private(path)?,
                Err(error) if error.kind() == ErrorKind::NotFound => return Err(not_found(root, name)),
                Err(error) => return Err(HostError::io("inspect", path)(error)),
            }
        }
        let path = dir.join("table");
        let table = match Table::open(&path) {
            Err(HostError::Io { error, .. }) if error.kind() == ErrorKind::NotFound => {
                return Err(not_found(root, name));
            }
            table => table?,
        };
        if table.name != name {
            return Err(HostError::Corrupt { path, fault: "names another cluster" });
        }
        Ok(Self { dir, table: Arc::new(table) })
    }

    /// The clusters of a root, in the order of their names. Empty if the root does not exist.
    pub fn list(root: &Path) -> Result<Vec<Name>, HostError> {
        match fs::symlink_metadata(root) {
            // Its clusters are not this user's.
            Ok(_) => check_way(root).and_then(|()| check_private(root))?,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(HostError::io("inspect", root)(error)),
        }
        let entries = match fs::read_dir(root) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(HostError::io("list", root)(error)),
        };
        let mut names: Vec<Name> = entries
            .filter_map(Result::ok)
            .filter(|e| e.path().join("table").is_file())
            .filter_map(|e| Name::new(e.file_name().to_str()?).ok())
            .collect();
        names.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        Ok(names)
    }

    /// Removes a cluster's files, whatever their state or version. Running processes keep their
    /// mappings, but no process can join them any more: stop them first.
    pub fn remove(root: &Path, name: Name) -> Result<(), HostError> {
        let dir = root.join(name.as_str());
        match fs::symlink_metadata(&dir) {
            // Nothing is removed in a directory that another user could exchange meanwhile.
            Ok(_) => {
                check_way(root).and_then(|()| check_private(root)).and_then(|()| check_private(&dir))?;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(not_found(root, name)),
            Err(error) => return Err(HostError::io("inspect", dir)(error)),
        }
        let made = |path: &Path| fs::symlink_metadata(path).is_ok_and(|meta| is_made(&meta));
        let ours = made(&dir);
        if !ours && !dir.join("table").exists() {
            // The directory holds at most a cluster, whatever its state.
            return check_empty(&dir);
        }
        // The table goes first, so that no process joins a cluster that is being removed.
        let gone = |path: &Path| remove_if_present(path).map_err(HostError::io("remove", path));
        gone(&dir.join("table"))?;
        // All other files belong to the cluster, too: the directory is private to it.
        for entry in fs::read_dir(&dir).map_err(HostError::io("list", &dir))?.filter_map(Result::ok) {
            gone(&entry.path())?;
        }
        if ours {
            fs::remove_dir(&dir).map_err(HostError::io("remove", dir))?;
        }
        // The root is removed with its last cluster, unless it existed before.
        if made(root) {
            let _ = fs::remove_dir(root);
        }
        Ok(())
    }

    pub fn name(&self) -> Name {
        self.table.name
    }

    /// Whether the calling process is the one that opened it. A forked child finds it empty and has
    /// to open it again.
    pub fn is_here(&self) -> bool {
        self.table.is_here()
    }

    /// Refuses claims in a child whose parent opened the cluster: it would act on empty memory.
    pub(crate) fn require_here(&self) -> Result<(), HostError> {
        if self.is_here() { Ok(()) } else { Err(HostError::Forked { path: self.dir.clone() }) }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The layout of its regions.
    pub fn layout(&self) -> &Layout {
        &self.table.layout
    }

    /// Drawn when the cluster was created: distinguishes it from other clusters of the same name.
    pub fn nonce(&self) -> u64 {
        self.table.nonce()
    }

    /// This host's number in the cluster; 0 if the cluster stays within this host.
    pub fn host(&self) -> u8 {
        self.table.host()
    }

    /// The number of changes of region owners, for readers that cache them.
    pub fn changes(&self) -> u64 {
        self.table.changes()
    }

    /// Whether a finished region file of this number existed.
    pub fn is_used(&self, region: u32) -> bool {
        self.table.is_used(region)
    }

    /// The regions that have or had an owner, dead ones included until their number is reused.
    pub fn regions(&self) -> Vec<RegionInfo> {
        (1..REGIONS).filter_map(|n| self.region_info(n)).collect()
    }

    /// As [`Cluster::regions`], for an observer that polls: it keeps handles of the live owners.
    /// The incarnations are all [`Incarnation::NONE`]: the observer reads them from its own
    /// mappings.
    #[must_use]
    pub fn regions_seen(&self, lives: &mut Lives) -> Vec<RegionInfo> {
        let mut each = |number| {
            let entry = self.table.get(number)?;
            let alive = entry.occupancy.phase == Phase::Live && !lives.is_dead(entry.occupancy.process);
            Some(RegionInfo::of(number, &entry, alive, Incarnation::NONE))
        };
        (1..REGIONS).filter_map(&mut each).collect()
    }

    /// The regions of a process, those included that it has given up and no other has taken. Their
    /// incarnations are all [`Incarnation::NONE`].
    pub fn regions_of(&self, process: Process) -> Vec<RegionInfo> {
        let own = |number| {
            let entry = self.table.get(number).filter(|entry| entry.occupancy.process == process)?;
            Some(RegionInfo::of(number, &entry, entry.occupancy.phase == Phase::Live, Incarnation::NONE))
        };
        (1..REGIONS).filter_map(own).collect()
    }

    /// The region of a running process of this name. Its incarnation is [`Incarnation::NONE`].
    pub fn region_named(&self, name: Name) -> Option<RegionInfo> {
        (1..REGIONS).find_map(|number| {
            let entry = self.table.get(number).filter(|entry| entry.role.name == name && entry.is_alive())?;
            Some(RegionInfo::of(number, &entry, true, Incarnation::NONE))
        })
    }

    /// Refuses a cluster with live processes on this host that are of a release which this process
    /// does not work with.
    pub fn require_release(&self) -> Result<(), HostError> {
        for number in 1..REGIONS {
            let Some(entry) = self.table.get(number).filter(Entry::is_alive) else { continue };
            let path = self.region_path(number);
            let at = u64::from(self.layout().seat(0)) + offset_of!(Seat, status) as u64;
            let mut raw = [0; 8];
            // Its owner may just be making the file, or have removed it.
            let read = fs::File::open(&path).and_then(|file| file.read_exact_at(&mut raw, at));
            let found = Version::of((u64::from_le_bytes(raw) >> 32) as u32).release();
            let is_known = read.is_ok() && found != Release::default();
            if is_known && !found.works_with(Release::own()) {
                let name = entry.role.name;
                return Err(HostError::OtherRelease { name, advice: Release::own().advice(found) });
            }
        }
        Ok(())
    }

    /// The running gateway of this host, in a cluster over IP.
    pub fn gateway(&self) -> Option<RegionInfo> {
        let is_gateway = |number: &u32| {
            let entry = self.table.get(*number);
            entry.is_some_and(|entry| entry.role.groups & GATEWAY_FLAG != 0 && entry.is_alive())
        };
        (FIRST_FREE..REGIONS).find(is_gateway).and_then(|number| self.region_info(number))
    }

    /// One region; `None` if it never had an owner.
    pub fn region_info(&self, number: u32) -> Option<RegionInfo> {
        let entry = self.table.get(number)?;
        let alive = entry.is_alive();
        // Read, not mapped: observers do this often.
        let mut raw = [0; 8];
        let read = fs::File::open(self.region_path(number))
            .and_then(|file| file.read_exact_at(&mut raw, offset_of!(Header, incarnation) as u64));
        let incarnation = Incarnation(read.map_or(0, |()| u64::from_le_bytes(raw)));
        Some(RegionInfo::of(number, &entry, alive, incarnation))
    }

    /// The file of a region.
    pub fn region_path(&self, number: u32) -> PathBuf {
        self.dir.join(format!("region-{number}"))
    }

    /// Impairs the links of a region's owner in both directions, or restores them if `what` is the
    /// default. A successor's links are unaffected. `false` if the owner now has another
    /// generation. Only one process may do so at a time.
    pub fn impair(&self, region: u32, generation: u32, what: Impairment) -> bool {
        self.table.impair(region, generation, what)
    }

    /// The impairment of a region's newest owner.
    pub fn impairment(&self, region: u32) -> Impairment {
        self.table.impairment(region)
    }

    /// The number of its active processes.
    pub fn alive(&self) -> usize {
        (1..REGIONS).filter_map(|n| self.table.get(n)).filter(Entry::is_alive).count()
    }
}

fn not_found(root: &Path, name: Name) -> HostError {
    HostError::NotFound { name, root: root.into(), existing: Cluster::list(root).unwrap_or_default() }
}

fn make_private(dir: &Path) -> Result<(), HostError> {
    match DirBuilder::new().mode(MADE_MODE).create(dir) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(HostError::io("create", dir)(error)),
        _ => check_private(dir),
    }
}

/// Refuses a directory with foreign files: ending the cluster would remove them.
fn check_empty(dir: &Path) -> Result<(), HostError> {
    let meta = fs::symlink_metadata(dir).map_err(HostError::io("inspect", dir))?;
    if is_made(&meta) || dir.join("table").exists() {
        return Ok(());
    }
    let entries = fs::read_dir(dir).map_err(HostError::io("list", dir))?.filter_map(Result::ok);
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    // Other processes of this program may be creating the table just now.
    match names.filter(|name| !name.starts_with("table.")).min() {
        Some(name) => {
            let fault =
                format!("was not made by obol and holds other files ({name}), which would be removed");
            Err(HostError::Unsafe { path: dir.into(), fault })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::test::{LIMITS, Root, name};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_cluster_is_made_listed_opened_and_removed() {
        let root = Root::new();
        assert!(Cluster::list(&root).expect("without a root there are no clusters").is_empty());
        let made = Cluster::create(&root, name("alpha"), LIMITS).expect("made");
        Cluster::create(&root, name("beta"), LIMITS).expect("made");
        assert_eq!(Cluster::list(&root).expect("listed"), [name("alpha"), name("beta")]);
        let opened = Cluster::open(&root, name("alpha")).expect("opened");
        assert_eq!((opened.nonce(), opened.layout()), (made.nonce(), made.layout()));
        assert!(opened.regions().is_empty());
        Cluster::remove(&root, name("alpha")).expect("removed");
        assert_eq!(Cluster::list(&root).expect("listed"), [name("beta")]);
    }

    #[test]
    fn a_missing_cluster_is_reported_with_the_existing_ones() {
        let root = Root::new();
        Cluster::create(&root, name("alpha"), LIMITS).expect("made");
        let refused = Cluster::open(&root, name("beta")).expect_err("not made").to_string();
        assert!(
            refused.starts_with("no cluster beta in") && refused.ends_with("there are: alpha"),
            "{refused}"
        );
    }

    #[test]
    fn a_left_over_cluster_is_stale() {
        let root = Root::new();
        Cluster::create(&root, name("alpha"), LIMITS).expect("made");
        let refused = Cluster::create(&root, name("alpha"), LIMITS).expect_err("there already");
        assert!(matches!(refused, HostError::Stale { .. }), "{refused}");
    }

    #[test]
    fn a_creation_that_died_half_way_is_no_cluster_and_does_not_hinder_the_next() {
        let root = Root::new();
        make_private(&root).expect("made");
        make_private(&root.join("alpha")).expect("made");
        fs::write(root.join("alpha/table.1"), b"half").expect("written");
        assert!(matches!(Cluster::open(&root, name("alpha")), Err(HostError::NotFound { .. })));
        Cluster::create(&root, name("alpha"), LIMITS).expect("made");
        Cluster::remove(&root, name("alpha")).expect("removed with the left-over");
    }

    #[test]
    fn another_layout_version_is_refused() {
        let root = Root::new();
        let cluster = Cluster::create(&root, name("alpha"), LIMITS).expect("made");
        let path = cluster.dir().join("table");
        let mut raw = fs::read(&path).expect("read");
        raw[8] += 1;
        fs::write(&path, &raw).expect("written");
        let refused = Cluster::open(&root, name("alpha")).expect_err("another version");
        let found = crate::layout::VERSION + 1;
        assert!(
            matches!(refused, HostError::Version { found: f, wanted: crate::layout::VERSION, .. } if f == found),
            "{refused}"
        );
        raw[0] = 0;
        fs::write(&path, &raw).expect("written");
        assert!(matches!(Cluster::open(&root, name("alpha")), Err(HostError::Corrupt { .. })));
        fs::write(&path, b"short").expect("written");
        assert!(matches!(Cluster::open(&root, name("alpha")), Err(HostError::Corrupt { .. })));
    }

    #[test]
    fn a_root_that_others_can_exchange_is_refused() {
        let root = Root::new();
        make_private(&root).expect("made");
        let open = root.join("open");
        fs::create_dir(&open).expect("made");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("opened up");
        let within = open.join("mine");
        let refused = Cluster::create(&within, name("alpha"), LIMITS).expect_err("it can be exchanged");
        assert!(refused.to_string().contains("where every user can exchange it (mode 777)"), "{refused}");
        assert!(!within.exists(), "nothing is made there");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).expect("as /dev/shm is");
        Cluster::create(&within, name("alpha"), LIMITS).expect("made");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("opened up");
        assert!(matches!(Cluster::open(&within, name("alpha")), Err(HostError::Unsafe { .. })));
        assert!(matches!(Cluster::list(&within), Err(HostError::Unsafe { .. })));
        assert!(matches!(Cluster::remove(&within, name("alpha")), Err(HostError::Unsafe { .. })));
        assert!(within.join("alpha/table").exists(), "nothing was removed");
    }

    #[test]
    fn the_clusters_of_a_root_that_others_can_reach_are_not_listed() {
        let root = Root::new();
        Cluster::create(&root, name("alpha"), LIMITS).expect("made");
        fs::set_permissions(&*root, fs::Permissions::from_mode(0o770)).expect("opened up");
        assert!(matches!(Cluster::list(&root), Err(HostError::Unsafe { .. })));
        assert!(matches!(Cluster::remove(&root, name("alpha")), Err(HostError::Unsafe { .. })));
    }

    #[test]
    fn a_root_that_others_can_reach_or_that_is_a_link_is_refused() {
        let root = Root::new();
        make_private(&root).expect("made");
        fs::set_permissions(&*root, fs::Permissions::from_mode(0o750)).expect("opened up");
        let refused = Cluster::create(&root, name("alpha"), LIMITS).expect_err("not private");
        assert!(refused.to_string().contains("mode 750"), "{refused}");
        fs::set_permissions(&*root, fs::Permissions::from_mode(0o700)).expect("closed");
        std::os::unix::fs::symlink("/dev/shm", root.join("link")).expect("linked");
        let refused = Cluster::create(&root.join("link"), name("alpha"), LIMITS).expect_err("a link");
        assert!(matches!(refused, HostError::Unsafe { .. }), "{refused}");
    }
}

//! Members that failed and are expected back, in the file `missed` of the cluster's directory. A view
//! remembers those that departed within its last 32 predecessors; this file remembers them until they
//! are back, leave, or an operator expects them no more (`obol forget`).
//!
//! The processes of each host that keep names write it ([`crate::names_file`]), by the views that they
//! see. A reader applies the newest view to what it reads, so it is never behind that view. The file
//! does not know who failed while none of its writers ran and 32 views passed, nor anything from before
//! the host was started.
//!
//! Not expected back are coordinators, whose number the view says; clients of the stores, which work for
//! one command; and programs whose names Kubernetes has generated for pods, once another pod of the same
//! name but for the generated part has joined, or `GENERATED_FOR` later.
//!
//! It remembers those that left as well, until they are back: a process of the deployment that left on
//! request is not missed, also when the views have forgotten it. A program with a generated name does not
//! come back; its row stands on its host until its seat or region is used again, and must not be taken
//! for that of one that failed.

use obol_fabric::host::remove_if_present;
use obol_fabric::{Incarnation, Name, ViewId};
use obol_membership::{Kind, View};
use obol_node::FileLock;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The file in a cluster's directory.
const FILE: &str = "missed";
/// Its lock is held while it is changed.
const LOCK_FILE: &str = "missed.lock";
/// Members that are remembered at most; those that failed first are dropped.
const MISSED_MAX: usize = 1024;
/// Members that left and are remembered at most; those that left first are dropped.
const LEFT_MAX: usize = 256;
/// The same of those with generated names, which must not displace the others: rows stand in regions, and a
/// cluster has this many.
const ONCE_MAX: usize = 1024;
/// What a line of one that left begins with. Older releases skip it, as any line that they cannot read.
const LEFT: &str = "left ";
/// What that of one with a generated name begins with.
const ONCE: &str = "once ";
/// A line is shorter than this.
const LINE_BYTES_MAX: u64 = 160;
/// All lines together are shorter than this.
const FILE_BYTES_MAX: u64 = LINE_BYTES_MAX * (MISSED_MAX + LEFT_MAX + ONCE_MAX + 1) as u64;
/// How long a program with a generated name is expected back, in seconds: its successor has another
/// name, and may have joined before it.
const GENERATED_FOR: u64 = 3600;
/// The characters of what Kubernetes appends to names.
const GENERATED_CHARS: &str = "bcdfghjklmnpqrstvwxz2456789";
/// How many it appends for a pod, and for the set of a deployment's pods at most.
const POD_CHARS: usize = 5;
const SET_CHARS_MAX: usize = 10;

/// The names of clients of the stores begin so.
const CLIENTS: [&str; 2] = [obol_smr::CLIENT_PREFIX, obol_kv::CLIENT_PREFIX];

/// A member that failed, or left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    pub name: Name,
    pub kind: Kind,
    pub who: Incarnation,
    /// The first view without it.
    pub at: ViewId,
    /// When that was seen, in seconds since 1970.
    pub unix: u64,
    /// Its region, which says what host it was on; `None` if who saw it had not seen it as a member.
    pub region: Option<u32>,
}

/// The regions of the members of a view.
pub type Regions = BTreeMap<Incarnation, u32>;

/// Where the members of a view are. The views after it do not say it of those that departed.
pub fn regions(view: &View) -> Regions {
    view.members.iter().map(|member| (member.incarnation, member.address.region)).collect()
}

/// Who is missed as of a view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    view: ViewId,
    /// The newest incarnation that was seen.
    newest: Incarnation,
    /// By the views that removed them.
    all: Vec<Missing>,
    /// Those that left, likewise.
    left: Vec<Missing>,
    /// Those that left and had generated names, likewise.
    once: Vec<Missing>,
}

/// A name without what Kubernetes has generated for a pod; `None` if it is not generated.
pub fn stem(name: &str) -> Option<&str> {
    let is_generated = |part: &str| part.chars().all(|c| GENERATED_CHARS.contains(c));
    let (before, pod) = name.rsplit_once('-')?;
    if pod.len() != POD_CHARS || !is_generated(pod) {
        return None;
    }
    let set = before.rsplit_once('-').filter(|(_, set)| (1..=SET_CHARS_MAX).contains(&set.len()));
    Some(set.filter(|(_, set)| is_generated(set)).map_or(before, |(stem, _)| stem))
}

/// Whether a program of this name is a client of a store, which works for one command.
pub fn is_client(name: &str) -> bool {
    CLIENTS.iter().any(|prefix| name.starts_with(prefix))
}

impl Missed {
    /// Who failed, and is neither back nor given up. `unix` is the time in seconds.
    pub fn all(&self, unix: u64) -> impl Iterator<Item = &Missing> {
        let is_over = move |one: &Missing| {
            stem(one.name.as_str()).is_some() && unix.saturating_sub(one.unix) > GENERATED_FOR
        };
        self.all.iter().filter(move |one| !is_over(one))
    }

    /// Learns from a view. Returns whether it is a later one than those before.
    pub fn take(&mut self, view: &View, unix: u64) -> bool {
        self.take_after(view, &Regions::new(), unix)
    }

    /// The same, with the members `before` it.
    pub fn take_after(&mut self, view: &View, before: &Regions, unix: u64) -> bool {
        if view.id <= self.view {
            return false;
        }
        let mut departed: Vec<_> = view.departed.iter().filter(|gone| gone.at > self.view).collect();
        departed.sort_by_key(|gone| (gone.at, gone.incarnation));
        for gone in departed {
            for list in [&mut self.all, &mut self.left, &mut self.once] {
                list.retain(|one| (one.name, one.kind) != (gone.name, gone.kind));
            }
            let (name, kind) = (gone.name, gone.kind);
            let who = gone.incarnation;
            let one = Missing { name, kind, who, at: gone.at, unix, region: before.get(&who).copied() };
            let list = match (gone.left, kind) {
                _ if is_client(name.as_str()) => continue,
                (true, _) if stem(name.as_str()).is_some() => &mut self.once,
                (true, _) => &mut self.left,
                (false, Kind::Coordinator) => continue,
                (false, _) => &mut self.all,
            };
            list.push(one);
        }
        let mut members: Vec<_> = view.members.iter().collect();
        members.sort_by_key(|member| member.incarnation);
        for member in members {
            for list in [&mut self.all, &mut self.left, &mut self.once] {
                list.retain(|one| {
                    (one.name, one.kind) != (member.name, member.kind) || one.who > member.incarnation
                });
            }
            // A newcomer takes the place of one that failed.
            if member.incarnation > self.newest
                && let Some(of) = stem(member.name.as_str())
            {
                let is_replaced = |one: &Missing| {
                    one.kind == member.kind
                        && one.who < member.incarnation
                        && stem(one.name.as_str()) == Some(of)
                };
                self.all.iter().position(is_replaced).map(|at| self.all.remove(at));
            }
        }
        let seen = view.members.iter().map(|member| member.incarnation);
        let seen = seen.chain(view.departed.iter().map(|gone| gone.incarnation));
        self.newest = seen.fold(self.newest, Incarnation::max);
        self.view = view.id;
        let lists = [(&mut self.all, MISSED_MAX), (&mut self.left, LEFT_MAX), (&mut self.once, ONCE_MAX)];
        for (list, limit) in lists {
            let beyond = list.len().saturating_sub(limit);
            list.drain(..beyond);
        }
        true
    }

    /// The last life of this name, if it left and is not back.
    fn leaver(&self, name: &str) -> Option<&Missing> {
        self.left.iter().chain(&self.once).rfind(|one| one.name.as_str() == name)
    }

    /// The region that the last life of this name had, as far as it is known.
    fn region_of(&self, name: Name) -> Option<u32> {
        let all = self.all.iter().chain(&self.left).chain(&self.once);
        all.filter(|one| one.name == name).max_by_key(|one| one.who)?.region
    }

    fn text(&self) -> String {
        let mut text = format!("{} {}\n", self.view.0, self.newest.0);
        for (prefix, list) in [("", &self.all), (LEFT, &self.left), (ONCE, &self.once)] {
            for Missing { name, kind, who, at, unix, region } in list {
                // Older releases read no further than the name.
                let region = region.map_or(String::new(), |region| format!(" {region}"));
                text.push_str(&format!(
                    "{prefix}{} {} {} {unix} {name}{region}\n",
                    who.0, at.0, *kind as u32
                ));
            }
        }
        text
    }

    /// What was written; lines that are not entries are skipped.
    fn parse(text: &str) -> Self {
        let mut lines = text.lines();
        let head = lines.next().and_then(|line| line.split_once(' '));
        let number = |text: &str| text.parse::<u64>().ok();
        let Some((view, newest)) = head.and_then(|(view, newest)| number(view).zip(number(newest))) else {
            return Self::default();
        };
        let entry = |line: &str| {
            let mut words = line.split(' ');
            let mut next = || words.next().and_then(number);
            let (who, at) = (Incarnation(next()?), ViewId(next()?));
            let (kind, unix) = (Kind::from_number(u32::try_from(next()?).ok()?)?, next()?);
            let name = Name::new(words.next()?).ok()?;
            let region = words.next().and_then(|word| word.parse().ok());
            Some(Missing { name, kind, who, at, unix, region })
        };
        let mut read = Self { view: ViewId(view), newest: Incarnation(newest), ..Self::default() };
        for line in lines {
            let (list, limit, line) = if let Some(line) = line.strip_prefix(LEFT) {
                (&mut read.left, LEFT_MAX, line)
            } else if let Some(line) = line.strip_prefix(ONCE) {
                (&mut read.once, ONCE_MAX, line)
            } else {
                (&mut read.all, MISSED_MAX, line)
            };
            list.extend(entry(line).filter(|_| list.len() < limit));
        }
        read
    }

    fn read(path: &Path) -> io::Result<Self> {
        let mut text = String::new();
        match File::open(path) {
            Ok(file) => file.take(FILE_BYTES_MAX).read_to_string(&mut text)?,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error),
        };
        Ok(Self::parse(&text))
    }
}

/// An error that says which file it is of.
fn failed_at(path: &Path) -> impl Fn(io::Error) -> io::Error + '_ {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Changes the file of the cluster in this directory, if `change` does.
fn change(dir: &Path, change: impl FnOnce(&mut Missed) -> bool) -> io::Result<()> {
    let lock = dir.join(LOCK_FILE);
    let opened = File::options().create(true).append(true).open(&lock);
    let _one = opened.and_then(FileLock::wait).map_err(failed_at(&lock))?;
    let path = dir.join(FILE);
    // What cannot be read is made anew.
    let mut missed = Missed::read(&path).unwrap_or_default();
    if !change(&mut missed) {
        return Ok(());
    }
    let fresh = dir.join(format!("{FILE}.new"));
    remove_if_present(&fresh).and_then(|()| fs::write(&fresh, missed.text())).map_err(failed_at(&fresh))?;
    fs::rename(fresh, &path).map_err(failed_at(&path))
}

/// Writes down what a view says; `before` has the members of the one that was seen before it. `unix` is the
/// time in seconds.
pub fn learn(dir: &Path, view: &View, before: &Regions, unix: u64) -> io::Result<()> {
    change(dir, |missed| missed.take_after(view, before, unix))
}

/// Expects these members back no more: an operator says that they have gone for good. Those that failed by
/// the newest view that is known here are meant as well.
pub fn forget(dir: &Path, names: &[Name], newest: Option<&View>, unix: u64) -> io::Result<()> {
    change(dir, |missed| {
        let is_news = newest.is_some_and(|view| missed.take(view, unix));
        let before = missed.all.len();
        missed.all.retain(|one| !names.contains(&one.name));
        is_news || missed.all.len() != before
    })
}

/// What changes with the contents of a file.
#[derive(Debug, PartialEq, Eq)]
struct Version {
    inode: u64,
    bytes: u64,
    seconds: i64,
    nanos: i64,
}

impl Version {
    fn of(meta: &fs::Metadata) -> Self {
        Self { inode: meta.ino(), bytes: meta.len(), seconds: meta.mtime(), nanos: meta.mtime_nsec() }
    }
}

/// Reads the file as it changes.
#[derive(Debug)]
pub(crate) struct MissedReader {
    path: PathBuf,
    read: Option<Version>,
    missed: Missed,
    /// The last view that was asked for, and its members.
    before: (ViewId, Regions),
}

impl MissedReader {
    /// Of the cluster in this directory.
    pub(crate) fn new(dir: &Path) -> Self {
        let before = (ViewId::GENESIS, Regions::new());
        Self { path: dir.join(FILE), read: None, missed: Missed::default(), before }
    }

    /// Who is missed as of this view, which is the newest one.
    pub(crate) fn of(&mut self, view: &View, unix: u64) -> impl Iterator<Item = &Missing> {
        let now = fs::metadata(&self.path).ok().map(|meta| Version::of(&meta));
        if now != self.read {
            // Without it, the view alone says who failed.
            (self.read, self.missed) = (now, Missed::read(&self.path).unwrap_or_default());
        }
        self.missed.take_after(view, &self.before.1, unix);
        if self.before.0 != view.id {
            self.before = (view.id, regions(view));
        }
        self.missed.all(unix)
    }

    /// The region that the last life of this name had when it failed or left, as far as it is known.
    pub(crate) fn region_of(&self, name: Name) -> Option<u32> {
        self.missed.region_of(name)
    }

    /// The last life of this name, if it left and was not back as of the last view that was asked for.
    pub(crate) fn leaver(&self, name: &str) -> Option<Incarnation> {
        self.missed.leaver(name).map(|one| one.who)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_fabric::{Address, Nanos};
    use obol_membership::view::{Departed, Member};

    const NOW: u64 = 1_800_000_000;

    fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    /// A view with these members besides its coordinator, and these departed: with the view, and
    /// whether it left.
    fn view(id: u64, members: &[(&str, u64)], departed: &[(&str, u64, u64, bool)]) -> View {
        let mut view = View::genesis(&[(name("coord-1"), Address::region(1))], Nanos(1), Nanos(1));
        view.id = ViewId(id);
        let first = view.members[0];
        view.members.extend(members.iter().map(|(called, who)| Member {
            incarnation: Incarnation(*who),
            kind: Kind::App,
            name: name(called),
            ..first
        }));
        view.departed = departed
            .iter()
            .map(|(called, who, at, left)| Departed {
                token: *who,
                incarnation: Incarnation(*who),
                name: name(called),
                kind: if called.starts_with("coord") { Kind::Coordinator } else { Kind::App },
                at: ViewId(*at),
                left: *left,
            })
            .collect();
        view
    }

    fn missed(views: &[View]) -> Vec<String> {
        let mut missed = Missed::default();
        views.iter().for_each(|view| assert!(missed.take(view, NOW)));
        assert_eq!(Missed::parse(&missed.text()), missed);
        missed.all(NOW).map(|one| one.name.to_string()).collect()
    }

    #[test]
    fn who_failed_is_missed_until_it_is_back_or_leaves() {
        let failed = view(9, &[], &[("kv-2", 5, 9, false), ("kv-1", 4, 8, true), ("coord-2", 3, 9, false)]);
        assert_eq!(
            missed(std::slice::from_ref(&failed)),
            ["kv-2"],
            "others left, or are counted by the view"
        );
        // A view long after it remembers nothing.
        assert_eq!(missed(&[failed.clone(), view(90, &[], &[])]), ["kv-2"]);
        assert_eq!(
            missed(&[failed.clone(), view(10, &[("kv-2", 6)], &[])]),
            [""; 0],
            "the same name is back"
        );
        let left = view(12, &[], &[("kv-2", 6, 12, true)]);
        assert_eq!(missed(&[failed.clone(), left]), [""; 0], "it was back and left between two looks");
        let again = view(12, &[], &[("kv-2", 5, 9, false), ("kv-2", 6, 12, false)]);
        assert_eq!(missed(&[failed, again]), ["kv-2"], "once");
        let namesake = view(9, &[("worker", 4)], &[("worker", 5, 9, false)]);
        assert_eq!(missed(&[namesake]), ["worker"], "an older namesake is another one");
    }

    #[test]
    fn clients_of_one_command_are_not_expected_back() {
        assert_eq!(
            missed(&[view(9, &[], &[("smrc-7", 5, 9, false), ("kvc-check-1", 6, 9, false)])]),
            [""; 0]
        );
    }

    #[test]
    fn the_part_of_a_name_that_is_generated_for_a_pod_is_known() {
        for (of, found) in [
            ("shop-7d9fbc6b5-x2x9z", Some("shop")),
            ("web-shop-bcdfgh-xkqwz", Some("web-shop")),
            ("shop-x2x9z", Some("shop")),
            ("app-1", None),
            ("db-12345", None),
            ("kv-2", None),
            ("shop-cache", None),
        ] {
            assert_eq!(stem(of), found, "{of}");
        }
    }

    #[test]
    fn each_pod_that_joins_takes_the_place_of_one_that_failed() {
        let failed = |at| {
            [
                ("shop-7d9f-bbbbb", 5, at, false),
                ("shop-7d9f-ccccc", 6, at, false),
                ("cart-7d9f-ccccc", 7, at, false),
            ]
        };
        let first = view(9, &[], &failed(9));
        assert_eq!(missed(std::slice::from_ref(&first)).len(), 3);
        let one_back = view(10, &[("shop-85c4-ddddd", 8)], &failed(9));
        assert_eq!(missed(&[first.clone(), one_back.clone()]), ["shop-7d9f-ccccc", "cart-7d9f-ccccc"]);
        let same = view(11, &[("shop-85c4-ddddd", 8)], &failed(9));
        assert_eq!(missed(&[first, one_back, same]).len(), 2, "one that is back is counted once");
    }

    #[test]
    fn generated_names_do_not_accumulate_and_others_stay() {
        let mut all = Missed::default();
        all.take(&view(9, &[], &[("shop-7d9f-bbbbb", 5, 9, false), ("kv-2", 6, 9, false)]), NOW);
        let names = |at| all.all(at).map(|one| one.name.to_string()).collect::<Vec<_>>();
        assert_eq!(names(NOW + GENERATED_FOR).len(), 2);
        assert_eq!(names(NOW + GENERATED_FOR + 1), ["kv-2"]);
        let mut all = Missed::default();
        for id in 1..3 * MISSED_MAX as u64 {
            all.take(&view(id, &[], &[(&format!("job-{id}"), id, id, false)]), NOW);
        }
        let kept: Vec<u64> = all.all(NOW).map(|one| one.at.0).collect();
        assert_eq!((kept.len(), kept.last()), (MISSED_MAX, Some(&(3 * MISSED_MAX as u64 - 1))));
        assert!(all.text().len() as u64 <= FILE_BYTES_MAX);
    }

    #[test]
    fn who_left_is_remembered_until_it_is_back_or_fails_later() {
        let dir = tempfile::tempdir().expect("made");
        let dir = dir.path();
        let left = view(9, &[], &[("node-2", 5, 9, true), ("coord-2", 3, 9, true), ("kv-2", 6, 9, false)]);
        learn(dir, &left, &Regions::new(), NOW).expect("written");
        let leaver = |view: &View, name: &str| {
            let mut reader = MissedReader::new(dir);
            let failed = reader.of(view, NOW).map(|one| one.name.to_string()).collect::<Vec<_>>();
            assert!(!failed.iter().any(|one| one == "node-2") || reader.leaver("node-2").is_none());
            reader.leaver(name).map(|who| who.0)
        };
        // No view names it any more.
        let later = view(90, &[], &[]);
        let of = |name| leaver(&later, name);
        assert_eq!((of("node-2"), of("coord-2"), of("kv-2")), (Some(5), Some(3), None));
        assert_eq!(leaver(&view(91, &[("node-2", 7)], &[]), "node-2"), None, "it is back");
        assert_eq!(leaver(&view(91, &[], &[("node-2", 7, 91, false)]), "node-2"), None, "it failed later");
        assert_eq!(leaver(&view(91, &[], &[("node-2", 7, 91, true)]), "node-2"), Some(7), "once more");
        let mut all = Missed::default();
        for id in 1..3 * LEFT_MAX as u64 {
            let gone = [
                (format!("job-{id}"), id * 3),
                ("shop-7d9f-bbbbb".to_owned(), id * 3 + 1),
                ("smrc-7".to_owned(), id * 3 + 2),
            ];
            let gone: Vec<_> = gone.iter().map(|(name, who)| (name.as_str(), *who, id, true)).collect();
            all.take(&view(id, &[], &gone), NOW);
        }
        let kept = (all.left.len(), all.all.len(), all.once.len());
        assert_eq!(kept, (LEFT_MAX, 0, 1), "clients of one command are not kept");
        assert_eq!(Missed::parse(&all.text()), all);
    }

    #[test]
    fn who_left_under_a_generated_name_is_remembered_beside_the_others() {
        let generated = |n: usize| {
            let letters: Vec<char> = GENERATED_CHARS.chars().collect();
            let letter = |place: u32| letters[n / letters.len().pow(place) % letters.len()];
            let name = format!("shop-7d9f-{}", (0..POD_CHARS as u32).map(letter).collect::<String>());
            assert_eq!(stem(&name), Some("shop"), "{name}");
            name
        };
        let mut all = Missed::default();
        all.take(&view(1, &[], &[("node-2", 1, 1, true)]), NOW);
        let count = 3 * ONCE_MAX;
        for n in 2..count {
            let (name, id) = (generated(n), n as u64);
            all.take(&view(id, &[], &[(&name, id, id, true)]), NOW);
        }
        // No view names them any more.
        all.take(&view(count as u64 + 90, &[("shop-7d9f-zzzzz", count as u64)], &[]), NOW);
        let leaver = |name: &str| all.leaver(name).map(|one| one.who.0);
        let newest = count - 1;
        assert_eq!((leaver("node-2"), leaver(&generated(newest))), (Some(1), Some(newest as u64)));
        assert_eq!((all.once.len(), leaver(&generated(2))), (ONCE_MAX, None), "the first ones are dropped");
        assert_eq!(all.all(NOW).count(), 0, "none of them is missed");
        assert!(all.text().len() as u64 <= FILE_BYTES_MAX);
        assert_eq!(Missed::parse(&all.text()), all);
        all.take(&view(count as u64 + 91, &[(&generated(newest), count as u64 + 1)], &[]), NOW);
        assert!(all.leaver(&generated(newest)).is_none(), "it is back all the same");
    }

    #[test]
    fn where_a_member_was_is_remembered_from_the_view_before() {
        let mut before = view(8, &[("kv-2", 5), ("shop-7d9f-bbbbb", 6)], &[]);
        before.members[1].address = Address::region(70);
        before.members[2].address = Address::region(71);
        let gone = [("kv-2", 5, 9, false), ("shop-7d9f-bbbbb", 6, 9, true), ("kv-3", 7, 9, false)];
        let after = view(9, &[], &gone);
        let dir = tempfile::tempdir().expect("made");
        let dir = dir.path();
        learn(dir, &after, &regions(&before), NOW).expect("written");
        let mut later = MissedReader::new(dir);
        assert_eq!(later.of(&view(90, &[], &[]), NOW).count(), 2);
        let of = |reader: &MissedReader| {
            ["kv-2", "shop-7d9f-bbbbb", "kv-3", "kv-4"].map(|called| reader.region_of(name(called)))
        };
        // One joined and failed between both views.
        assert_eq!(of(&later), [Some(70), Some(71), None, None]);
        // A reader that has seen both needs no file.
        let empty = tempfile::tempdir().expect("made");
        let mut reader = MissedReader::new(empty.path());
        assert_eq!(reader.of(&before, NOW).count(), 0);
        assert_eq!(reader.of(&after, NOW).count(), 2);
        assert_eq!(of(&reader), [Some(70), Some(71), None, None]);
        // An older release has written no region.
        let older = Missed::parse("9 7\n5 9 3 1 kv-2\n");
        assert_eq!((older.all.len(), older.region_of(name("kv-2"))), (1, None));
    }

    #[test]
    fn what_cannot_be_written_is_said_with_its_file() {
        for file in [FILE, LOCK_FILE, "missed.new"] {
            let dir = tempfile::tempdir().expect("made");
            let path = dir.path().join(file);
            fs::create_dir(&path).expect("made");
            let failed = learn(dir.path(), &view(9, &[], &[("kv-2", 5, 9, false)]), &Regions::new(), NOW);
            let said = failed.expect_err("it is a directory").to_string();
            assert!(said.starts_with(&format!("{}: ", path.display())), "{said}");
        }
    }

    #[test]
    fn a_reader_that_begins_later_knows_them_and_who_is_forgotten_stays_so() {
        let dir = tempfile::tempdir().expect("made");
        let dir = dir.path();
        let names = |reader: &mut MissedReader, view: &View| {
            reader.of(view, NOW).map(|one| one.name.to_string()).collect::<Vec<_>>()
        };
        let failed = view(9, &[], &[("kv-2", 5, 9, false), ("kv-3", 6, 9, false)]);
        let mut early = MissedReader::new(dir);
        assert_eq!(names(&mut early, &failed), ["kv-2", "kv-3"], "before it is written");
        learn(dir, &failed, &Regions::new(), NOW).expect("written");
        let later = view(90, &[], &[]);
        assert_eq!(names(&mut MissedReader::new(dir), &later), ["kv-2", "kv-3"]);
        forget(dir, &[name("kv-2")], None, NOW).expect("written");
        for view in [&failed, &later] {
            learn(dir, view, &Regions::new(), NOW).expect("written");
            assert_eq!(names(&mut MissedReader::new(dir), view), ["kv-3"]);
        }
        assert_eq!(names(&mut early, &later), ["kv-3"]);
        let again = view(91, &[], &[("kv-4", 9, 91, false)]);
        forget(dir, &[name("kv-4")], Some(&again), NOW).expect("written");
        assert_eq!(names(&mut MissedReader::new(dir), &again), ["kv-3"], "it had not been written yet");
        fs::write(dir.join(FILE), "nonsense\n1 2 3 4 x").expect("written");
        assert_eq!(names(&mut MissedReader::new(dir), &failed), ["kv-2", "kv-3"]);
    }
}

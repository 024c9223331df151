//! The names of all members that a cluster has had, in the file `names` of its directory. A view
//! names its members and those that departed within its last 32 predecessors; flight recorders hold
//! events of earlier ones.
//!
//! The logs' threads of coordinators write it, or those of agents on hosts without coordinators: one
//! line for each incarnation. It is removed with the cluster.

use obol_fabric::{Incarnation, Name};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

/// The file in a cluster's directory.
const FILE: &str = "names";
/// When it is larger, its older half goes.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// The file, and what was read of it.
#[derive(Debug)]
pub struct NamesFile {
    path: PathBuf,
    read: u64,
    names: BTreeMap<Incarnation, Name>,
}

impl NamesFile {
    /// Of the cluster in this directory. Nothing is read yet.
    pub fn new(dir: &Path) -> Self {
        Self { path: dir.join(FILE), read: 0, names: BTreeMap::new() }
    }

    /// Reads what was added since the last call.
    pub fn refresh(&mut self) -> io::Result<()> {
        let mut file = match File::open(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            file => file?,
        };
        let len = file.metadata()?.len();
        if len < self.read {
            // Its older half has gone; what was read of it is kept.
            self.read = 0;
        }
        file.seek(SeekFrom::Start(self.read))?;
        let mut text = Vec::new();
        file.take(FILE_BYTES_MAX * 2).read_to_end(&mut text)?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.read += whole as u64;
        let lines =
            text[..whole].split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
        self.names.extend(lines.filter_map(|line| {
            let (who, name) = line.split_once(' ')?;
            Some((Incarnation(who.parse().ok()?), Name::new(name).ok()?))
        }));
        while self.names.len() > FILE_BYTES_MAX as usize / 8 {
            self.names.pop_first();
        }
        Ok(())
    }

    /// Adds those that are missing.
    pub fn add(&mut self, members: &[(Incarnation, Name)]) -> io::Result<()> {
        let is_new = |names: &BTreeMap<_, _>, who| who != Incarnation::NONE && !names.contains_key(&who);
        if !members.iter().any(|(who, _)| is_new(&self.names, *who)) {
            return Ok(());
        }
        let lock = File::options().create(true).append(true).open(self.path.with_extension("lock"))?;
        lock.lock()?;
        // Another process may have added them.
        self.refresh()?;
        let missing = members.iter().filter(|(who, _)| is_new(&self.names, *who));
        let text: String = missing.map(|(who, name)| format!("{} {name}\n", who.0)).collect();
        if text.is_empty() {
            return Ok(());
        }
        let mut file = File::options().create(true).append(true).open(&self.path)?;
        self.cut(&file)?;
        file.write_all(text.as_bytes())?;
        if file.metadata()?.len() > FILE_BYTES_MAX {
            self.halve()?;
        }
        self.refresh()
    }

    /// Removes what a failed write has left of a line: completed by another one, it would be a wrong name
    /// or incarnation.
    fn cut(&self, file: &File) -> io::Result<()> {
        let text = fs::read(&self.path)?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if whole < text.len() { file.set_len(whole as u64) } else { Ok(()) }
    }

    /// Replaces the file by its newer half.
    fn halve(&self) -> io::Result<()> {
        let text = fs::read(&self.path)?;
        let half = text.len() / 2;
        let from = text[half..].iter().position(|byte| *byte == b'\n').map_or(text.len(), |at| half + at + 1);
        let fresh = self.path.with_extension("new");
        fs::write(&fresh, &text[from..])?;
        fs::rename(fresh, &self.path)
    }

    /// The name of an incarnation, as far as the file was read.
    pub fn get(&self, who: Incarnation) -> Option<Name> {
        self.names.get(&who).copied()
    }

    /// All that was read, by incarnation.
    pub fn all(&self) -> impl Iterator<Item = (Incarnation, Name)> + '_ {
        self.names.iter().map(|(who, name)| (*who, *name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(n: u64) -> (Incarnation, Name) {
        (Incarnation(n), Name::new(&format!("app-{n}")).expect("a name"))
    }

    #[test]
    fn names_are_added_once_by_several_writers_and_read_as_they_come() {
        let dir = tempfile::tempdir().expect("made");
        let [mut one, mut two, mut reader] = [(); 3].map(|()| NamesFile::new(dir.path()));
        reader.refresh().expect("there is no file yet");
        one.add(&[member(1), member(2)]).expect("added");
        two.add(&[member(2), member(3)]).expect("added");
        let text = fs::read_to_string(dir.path().join(FILE)).expect("read");
        assert_eq!(text, "1 app-1\n2 app-2\n3 app-3\n");
        reader.refresh().expect("read");
        assert_eq!(reader.all().collect::<Vec<_>>(), [member(1), member(2), member(3)]);
        one.add(&[(Incarnation::NONE, member(9).1), member(4)]).expect("added");
        assert_eq!((reader.get(Incarnation(4)), one.get(Incarnation(4))), (None, Some(member(4).1)));
        reader.refresh().expect("read");
        assert_eq!(reader.get(Incarnation(4)), Some(member(4).1));
        fs::write(dir.path().join(FILE), "nonsense\n5 app-5\n6 ").expect("written");
        let mut damaged = NamesFile::new(dir.path());
        damaged.refresh().expect("read");
        assert_eq!(damaged.all().collect::<Vec<_>>(), [member(5)]);
    }

    #[test]
    fn what_a_failed_write_has_left_becomes_no_part_of_a_name() {
        for half in ["1", "12", "12 ", "12 ap", "12 app-12"] {
            let dir = tempfile::tempdir().expect("made");
            let [mut writer, mut reader] = [(); 2].map(|()| NamesFile::new(dir.path()));
            fs::write(dir.path().join(FILE), format!("5 app-5\n{half}")).expect("written");
            reader.refresh().expect("read");
            writer.add(&[member(13)]).expect("added");
            writer.add(&[member(12)]).expect("added");
            reader.refresh().expect("read");
            for names in [writer, reader] {
                assert_eq!(names.all().collect::<Vec<_>>(), [member(5), member(12), member(13)], "{half}");
            }
        }
    }

    #[test]
    fn the_file_has_a_bounded_size_and_keeps_the_newest() {
        let dir = tempfile::tempdir().expect("made");
        let [mut writer, mut reader] = [(); 2].map(|()| NamesFile::new(dir.path()));
        for part in 0..40 {
            let members: Vec<_> = (0..1000).map(|n| member(1 + part * 1000 + n)).collect();
            writer.add(&members).expect("added");
            reader.refresh().expect("read");
            let len = fs::metadata(dir.path().join(FILE)).expect("there").len();
            assert!(len <= FILE_BYTES_MAX, "{len}");
            assert_eq!(reader.get(Incarnation(part * 1000 + 1000)), Some(member(part * 1000 + 1000).1));
        }
    }
}

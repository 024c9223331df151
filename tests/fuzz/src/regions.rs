//! Regions of processes that wrote anything into their memory, for what reads a cluster.

use super::Rng;
use std::fs::OpenOptions;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

/// Words at which arithmetic goes wrong.
const WORDS: [u64; 8] = [0, 1, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1, 1 << 32, u32::MAX as u64];

/// The regions of a cluster's directory, as they were.
#[derive(Debug)]
pub struct Regions(Vec<(std::path::PathBuf, Vec<u8>)>);

impl Regions {
    /// Those of a directory.
    ///
    /// # Panics
    ///
    /// If there are none, or one cannot be read.
    #[must_use]
    pub fn of(dir: &Path) -> Self {
        let files = std::fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        let mut found: Vec<_> = files.filter_map(|file| Some(file.ok()?.path())).collect();
        found.retain(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("region-"))
        });
        // Every run must see them in one order.
        found.sort();
        assert!(!found.is_empty(), "{}: no regions", dir.display());
        let read = |path: std::path::PathBuf| {
            let mut bytes = Vec::new();
            std::fs::File::open(&path).and_then(|mut file| file.read_to_end(&mut bytes)).expect("readable");
            (path, bytes)
        };
        Self(found.into_iter().map(read).collect())
    }

    /// Writes all of them anew, from the byte `kept` on: as they were with some words replaced, often
    /// few, and sometimes all.
    ///
    /// # Panics
    ///
    /// If one cannot be written.
    pub fn scramble(&self, kept: usize, rng: &mut Rng) {
        for (path, bytes) in &self.0 {
            let mut bytes = bytes.clone();
            let one_in = [1, 2, 16, 256][rng.below(4)];
            for word in bytes.get_mut(kept..).unwrap_or_default().chunks_exact_mut(8) {
                if rng.below(one_in) == 0 {
                    let any = rng.next();
                    let word_now = if any & 1 == 0 { any } else { WORDS[rng.below(WORDS.len())] };
                    word.copy_from_slice(&word_now.to_le_bytes());
                }
            }
            let file = OpenOptions::new().write(true).open(path);
            let written = file.and_then(|mut file| {
                file.seek(SeekFrom::Start(0))?;
                file.write_all(&bytes)
            });
            written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
    }
}

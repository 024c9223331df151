//! What releases have written, kept in the tree so that later ones are tested against it: a text
//! file for each release, `MAJOR.MINOR.txt`, with a line `NAME HEX` for each value.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Rewrites the file of the current release.
const BLESS: &str = "OBOL_BLESS";

/// A recorded value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The release that wrote it.
    pub release: String,
    pub name: String,
    pub bytes: Vec<u8>,
}

/// Requires that this release, which `version` is of, still writes what is recorded of it in
/// `folder`, and returns everything that is recorded there, of it and of earlier releases.
///
/// With `OBOL_BLESS=1` it is recorded anew, which is allowed until the release is out.
///
/// # Panics
/// If it writes something else, or if a file cannot be read.
pub fn check(folder: &Path, version: &str, now: &[(String, Vec<u8>)]) -> Vec<Recorded> {
    let release = version.rsplit_once('.').map_or(version, |(release, _)| release);
    let path = folder.join(format!("{release}.txt"));
    let mut text = String::new();
    for (name, bytes) in now {
        let hex = bytes.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        let _ = writeln!(text, "{name} {hex}");
    }
    if std::env::var_os(BLESS).is_some() {
        fs::create_dir_all(folder).expect("a folder");
        fs::write(&path, &text).expect("recorded");
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    for (kept, now) in kept.lines().zip(text.lines()) {
        assert_eq!(now, kept, "{}: this release writes something else than before", path.display());
    }
    assert_eq!(text.lines().count(), kept.lines().count(), "{}: other values", path.display());
    let mut files: Vec<_> =
        fs::read_dir(folder).expect("a folder").map(|file| file.expect("a file").path()).collect();
    files.sort();
    files.iter().flat_map(|file| read(file)).collect()
}

fn read(path: &Path) -> Vec<Recorded> {
    let release = path.file_stem().and_then(|stem| stem.to_str()).expect("a release").to_owned();
    let text = fs::read_to_string(path).expect("readable");
    let value = |line: &str| {
        let (name, hex) = line.split_once(' ').expect("a name and bytes");
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
        let bytes = (0..hex.len()).step_by(2).map(byte).collect();
        Recorded { release: release.clone(), name: name.to_owned(), bytes }
    };
    text.lines().map(value).collect()
}

//! Files of lines to which several programs append. A write that failed, for lack of space or because
//! its program was killed, may leave a part of a line.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// Whether a line begins at this place of a file, and not after a part of another one.
pub fn begins(file: &File, at: u64) -> io::Result<bool> {
    let Some(before) = at.checked_sub(1) else { return Ok(true) };
    let mut byte = [0];
    file.read_exact_at(&mut byte, before)?;
    Ok(byte == [b'\n'])
}

//! Programs that tests make and run. Other processes write them: what another test starts meanwhile
//! would hold a file open that this process writes, and a file that is open for writing cannot be run.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// A copy of a program, which this user alone may change and all may run.
pub(crate) fn copy(from: &Path, to: &Path) {
    let copied = Command::new("install").args(["-m", "755"]).args([from, to]).status();
    assert!(copied.expect("install runs").success());
}

/// A program of these lines.
pub(crate) fn script(at: &Path, lines: &str) {
    let mut writer = Command::new("sh")
        .args(["-c", "cat >\"$0\" && chmod 700 \"$0\""])
        .arg(at)
        .stdin(Stdio::piped())
        .spawn()
        .expect("sh runs");
    writer.stdin.take().expect("piped").write_all(lines.as_bytes()).expect("written");
    assert!(writer.wait().expect("ours").success());
}

//! Programs of iproute2.

use std::io::{self, Write as _};
use std::process::{Child, Command, Output, Stdio};

fn absent(program: &str, error: &io::Error) -> String {
    format!("{program} (package iproute2) cannot be run: {error}")
}

/// What a command prints.
pub(crate) fn shown(program: &str, arguments: &str) -> Result<String, String> {
    let ran = Command::new(program).args(arguments.split(' ')).stdin(Stdio::null()).output();
    let ran = ran.map_err(|error| absent(program, &error))?;
    if ran.status.success() {
        return Ok(String::from_utf8_lossy(&ran.stdout).into_owned());
    }
    Err(format!("`{program} {arguments}` failed: {}", String::from_utf8_lossy(&ran.stderr).trim()))
}

/// All errors of what is done as far as possible.
pub(crate) fn errors(done: impl IntoIterator<Item = Result<(), String>>) -> Result<(), String> {
    let failed: Vec<String> = done.into_iter().filter_map(Result::err).collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

/// A program that waits for its commands: starting it takes longer than carrying them out.
#[derive(Debug)]
pub(crate) struct Waiting(Option<Child>);

impl Waiting {
    /// Starts it. It continues after a command that fails.
    pub(crate) fn start(program: &str) -> Result<Self, String> {
        let started = Command::new(program)
            .args(["-force", "-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        started.map(|child| Self(Some(child))).map_err(|error| absent(program, &error))
    }

    /// Has it carry them out, once.
    pub(crate) fn run(&mut self, commands: &str) -> io::Result<Output> {
        let mut child = self.0.take().ok_or_else(|| io::Error::other("it has run already"))?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(commands.as_bytes())?;
        }
        child.wait_with_output()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // Without commands it ends by itself as well.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

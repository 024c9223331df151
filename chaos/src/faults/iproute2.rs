//! Programs of iproute2.

use std::process::{Command, Output, Stdio};

fn run(program: &str, arguments: &str) -> Result<Output, String> {
    let ran = Command::new(program).args(arguments.split(' ')).stdin(Stdio::null()).output();
    ran.map_err(|error| format!("{program} (package iproute2) cannot be run: {error}"))
}

/// What a command prints.
pub(super) fn shown(program: &str, arguments: &str) -> Result<String, String> {
    let ran = run(program, arguments)?;
    if ran.status.success() {
        return Ok(String::from_utf8_lossy(&ran.stdout).into_owned());
    }
    Err(format!("`{program} {arguments}` failed: {}", String::from_utf8_lossy(&ran.stderr).trim()))
}

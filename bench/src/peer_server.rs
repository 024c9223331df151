//! Servers of other makers, which benchmarks start for a comparison.

use obol_supervise::running::dies_with_parent;
use obol_term::output::Failure;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, ChildStdout, Command, Stdio};

/// A server of another maker; it ends with this, and with this process.
pub struct PeerServer(Child);

impl PeerServer {
    /// Starts it, pinned to a core if one is given; `None` if it is not installed.
    pub fn start(command: &Command, core: Option<u32>) -> Result<Option<Self>, Failure> {
        let program = command.get_program().to_string_lossy();
        let mut bound = dies_with_parent(&program, core).map_err(Failure::failed)?;
        if !is_installed(&program) {
            return Ok(None);
        }
        bound.args(command.get_args()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Some(Self(bound.spawn().map_err(Failure::failed)?)))
    }

    /// One that is installed, and whose output is read.
    pub fn start_with_output(command: &Command) -> Result<(Self, ChildStdout), Failure> {
        let mut bound =
            dies_with_parent(&command.get_program().to_string_lossy(), None).map_err(Failure::failed)?;
        bound.args(command.get_args()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = bound.spawn().map_err(Failure::failed)?;
        let output = child.stdout.take();
        let server = Self(child);
        output.map(|output| (server, output)).ok_or_else(|| Failure::Failed("no output to read".to_owned()))
    }

    /// SIGKILL; it is reaped when this is dropped.
    pub fn kill(&mut self) -> Result<(), Failure> {
        self.0.kill().map_err(Failure::failed)
    }
}

impl Drop for PeerServer {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a program is found in PATH.
pub fn is_installed(program: &str) -> bool {
    let tried = Command::new(program).arg("--version").output();
    !tried.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// TCP ports of the loopback interface that are free now. Another process may take one before it is
/// used: the server then fails to start, and says so.
pub fn free_ports<const N: usize>() -> Result<[u16; N], Failure> {
    // All are open at once, so that they differ.
    let mut open = Vec::with_capacity(N);
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Failure::failed)?;
        *port = listener.local_addr().map_err(Failure::failed)?.port();
        open.push(listener);
    }
    Ok(ports)
}

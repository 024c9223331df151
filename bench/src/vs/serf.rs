//! Serf: three agents that gossip on the loopback interface. One is killed, and another must report
//! it as failed.

use super::{Rival, TIMEOUT};
use crate::peer_server::{PeerServer, free_ports, is_installed};
use obol_chaos::drills::Victims;
use obol_fabric::Nanos;
use obol_observe::stats::Distribution;
use obol_term::output::Failure;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{ChildStdout, Command};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

const AGENTS: usize = 3;

pub(super) struct Serf {
    version: String,
}

impl Serf {
    pub(super) fn installed() -> Option<Self> {
        let version = || super::version_of("serf", "version");
        is_installed("serf")
            .then(|| Self { version: version().unwrap_or_else(|| "of unknown version".to_owned()) })
    }
}

impl Rival for Serf {
    fn counterpart(&self) -> Victims {
        Victims::App
    }

    fn measured(&self) -> &'static str {
        "agent killed, until another reports it as failed"
    }

    fn settings(&self) -> String {
        format!("Serf {}, {AGENTS} agents, -profile=local, its fastest timing", self.version)
    }

    fn share(&self) -> u32 {
        1
    }

    fn turn(&self, _: &Path, times: &mut Distribution) -> Result<(), Failure> {
        for _ in 0..self.share() {
            times.add(fail_over()?);
        }
        Ok(())
    }
}

fn fail_over() -> Result<Nanos, Failure> {
    let ports: [u16; 2 * AGENTS] = free_ports()?;
    let first = format!("127.0.0.1:{}", ports[0]);
    let mut agents = Vec::new();
    for agent in 0..AGENTS {
        let mut command = Command::new("serf");
        command.args(["agent", "-profile=local", "-log-level=info", &format!("-node=a{agent}")]);
        command.arg(format!("-bind=127.0.0.1:{}", ports[agent]));
        command.arg(format!("-rpc-addr=127.0.0.1:{}", ports[AGENTS + agent]));
        if agent > 0 {
            command.arg(format!("-retry-join={first}")).arg("-retry-interval=1s");
        }
        let (server, output) = PeerServer::start_with_output(&command)?;
        agents.push((server, lines(output)));
    }
    let victim = AGENTS - 1;
    let name = format!("a{victim}");
    // Both others know the victim before it is killed.
    for (_, said) in &agents[..victim] {
        wait_for_line(said, "EventMemberJoin:", &name)?;
    }
    let killed = Instant::now();
    agents[victim].0.kill()?;
    wait_for_line(&agents[0].1, "EventMemberFailed:", &name)?;
    Ok(Nanos(killed.elapsed().as_nanos().try_into().unwrap_or(u64::MAX)))
}

/// The lines of an agent's log, read by a thread that ends with them.
fn lines(output: ChildStdout) -> Receiver<String> {
    let (tx, rx) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if tx.send(line).is_err() {
                return;
            }
        }
    });
    rx
}

/// Waits for a line with this event of this agent.
fn wait_for_line(lines: &Receiver<String>, event: &str, agent: &str) -> Result<(), Failure> {
    let end = Instant::now() + TIMEOUT;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let Ok(line) = lines.recv_timeout(left) else {
            return Err(Failure::Failed(format!(
                "Serf did not report {event} {agent} within {} s",
                TIMEOUT.as_secs()
            )));
        };
        if line.split_once(event).is_some_and(|(_, rest)| rest.split_whitespace().next() == Some(agent)) {
            return Ok(());
        }
    }
}

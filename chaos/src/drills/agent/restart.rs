//! Restarts what a drill has ended, by whatever supervises its host.

use obol_fabric::Name;
use obol_fabric::host::Cluster;
use obol_node::Deployment;
use obol_supervise::control::{self, Request};
use std::process::{Command, Stdio};

/// How a process comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Started {
    /// It was started.
    Now,
    /// The supervisor of its host restarts it by itself.
    BySupervisor,
}

/// Starts a process of this host that is down, or leaves it to its supervisor.
pub(super) fn start(cluster: &Cluster, deployment: &Deployment, name: &str) -> Result<Started, String> {
    let network = deployment.network.as_ref().filter(|network| !network.supervisors.is_empty());
    let Some(network) = network else {
        let started =
            control::request(&control::supervised(cluster), &Request::Start { name: name.to_owned() });
        return started.map(|_| Started::Now).map_err(|error| error.to_string());
    };
    let supervisor = network.supervisor(network.host);
    if !supervisor.restarts() {
        return Err("nothing restarts the processes of its host (supervisor in the file of hosts)".to_owned());
    }
    let name = Name::new(name).map_err(|error| error.to_string())?;
    let Some(words) = supervisor.start_command(deployment.kind(name), name) else {
        return Ok(Started::BySupervisor);
    };
    run(&words).map(|()| Started::Now)
}

fn run(words: &[String]) -> Result<(), String> {
    let Some((program, arguments)) = words.split_first() else { return Ok(()) };
    let failed = |why: String| format!("`{}` failed: {why}", words.join(" "));
    let ran = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if ran.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ran.stderr);
    Err(failed(format!("{} {}", ran.status, said.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_is_reported_with_what_it_said() {
        let words = |script: &str| ["sh", "-c", script].map(str::to_owned);
        assert_eq!(run(&words("exit 0")), Ok(()));
        let failed = run(&words("echo no such unit >&2; exit 5")).expect_err("it fails");
        assert!(failed.contains("exit status: 5") && failed.ends_with("no such unit"), "{failed}");
        let missing = run(&["/nonexistent/start".to_owned()]).expect_err("it is missing");
        assert!(missing.contains("/nonexistent/start"), "{missing}");
    }
}

//! The way to a fault agent by ssh, against a real sshd on the loopback. The gate installs it;
//! elsewhere, without it, this says so and tests nothing.

use crate::support::{HANG, Ran, Root, has_ended, programs, signal, until};
use serde_json::Value;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const PROGRAM: &str = "/usr/sbin/sshd";
/// What the tests' configuration calls the host.
const HOST: &str = "obol-test";

fn made(command: &mut Command) -> String {
    let ran = command.stdin(Stdio::null()).output().expect("it is installed");
    assert!(ran.status.success(), "{command:?}: {ran:?}");
    String::from_utf8(ran.stdout).expect("text").trim().to_owned()
}

/// An sshd of the test's own, with private keys.
struct Sshd {
    child: Child,
    dir: PathBuf,
    port: u16,
}

impl Sshd {
    fn start() -> Option<Self> {
        if !Path::new(PROGRAM).exists() {
            eprintln!("NOT TESTED: there is no {PROGRAM}; install openssh-server");
            return None;
        }
        let dir = tempfile::tempdir().expect("made").keep();
        for key in ["host", "user", "other"] {
            made(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(dir.join(key)));
        }
        fs::copy(dir.join("user.pub"), dir.join("authorized")).expect("copied");
        let port = TcpListener::bind("127.0.0.1:0").and_then(|at| at.local_addr()).expect("a port").port();
        let path = dir.display();
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {path}/host\nAuthorizedKeysFile {path}/authorized\nPidFile none\n\
             UsePAM no\nStrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        );
        fs::write(dir.join("sshd_config"), config).expect("written");
        // Where root runs it, it wants this directory for its unprivileged part.
        let _ = fs::create_dir_all("/run/sshd");
        let log = fs::File::create(dir.join("log")).expect("a file");
        let child = Command::new(PROGRAM)
            .args(["-D", "-e", "-f"])
            .arg(dir.join("sshd_config"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("sshd runs");
        let sshd = Self { child, dir, port };
        until("sshd listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Some(sshd)
    }

    /// A configuration for ssh: which key of the host is known, and whose login is asked for.
    fn config(&self, known: &str, user: &str) -> PathBuf {
        let key = fs::read_to_string(self.dir.join(known).with_extension("pub")).expect("a key");
        let hosts = self.dir.join(format!("known-{known}"));
        fs::write(&hosts, format!("[127.0.0.1]:{} {key}", self.port)).expect("written");
        let config = self.dir.join(format!("config-{known}-{user}"));
        let text = format!(
            "Host {HOST}\n HostName 127.0.0.1\n Port {}\n User {user}\n IdentityFile {}\n IdentitiesOnly yes\n \
             UserKnownHostsFile {}\n GlobalKnownHostsFile /dev/null\n",
            self.port,
            self.dir.join("user").display(),
            hosts.display()
        );
        fs::write(&config, text).expect("written");
        config
    }

    /// The processes that serve a connection.
    fn sessions(&self) -> Vec<i64> {
        let children = format!("/proc/{0}/task/{0}/children", self.child.id());
        let children = fs::read_to_string(children).expect("sshd lives");
        children.split_whitespace().map(|pid| pid.parse().expect("a pid")).collect()
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let sessions = self.sessions();
        self.child.kill().expect("it lives");
        self.child.wait().expect("a child");
        let left: Vec<i64> = sessions.into_iter().filter(|pid| !has_ended(*pid)).collect();
        if !left.is_empty() {
            signal("KILL", &left);
        }
        if std::thread::panicking() {
            eprintln!("{}", fs::read_to_string(self.dir.join("log")).unwrap_or_default());
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn drill(root: &Root, config: &Path, arguments: &[&str]) -> Command {
    let config = config.to_str().expect("text");
    root.command(&[&["drill", "run"], arguments, &["--ssh", HOST, "--ssh-config", config, "--json"]].concat())
}

fn undo_records(root: &Root) -> usize {
    let files = fs::read_dir(root.cluster()).expect("the cluster is there").map(|file| file.expect("a file"));
    files.filter(|file| file.file_name().to_str().is_some_and(|name| name.starts_with("drill-undo-"))).count()
}

fn is_frozen(pid: i64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
}

#[test]
fn a_helper_by_ssh_strikes_and_nobody_is_let_in_who_should_not_be() {
    let (root, _up) = Root::with_cluster(&[]);
    let Some(sshd) = Sshd::start() else { return };
    let me = made(Command::new("id").arg("-un"));
    let good = sshd.config("host", &me);
    let before = root.healthy();

    // A whole drill. Both hosts are this one, and its report says how the fault agent was reached.
    let out = root.cluster().join("report");
    let ran =
        Ran::of(&mut drill(&root, &good, &["app", "--count", "2", "--out", out.to_str().expect("text")]));
    let journal: Value = ran.json();
    assert_eq!(journal["count"], 2, "{journal}");
    let trials = journal["trials"].as_array().expect("trials");
    assert!(trials.iter().all(|t| t["stamps"][0]["error"].is_null()), "{journal}");
    let measured = trials.iter().filter(|t| t["failover_ns"].as_u64().is_some()).count();
    assert!(measured > 0 || journal["verdict"] == "void", "{journal}");
    let reached = format!("reached by ssh: {HOST}");
    assert!(fs::read_to_string(out.join("postmortem.md")).expect("written").contains(&reached), "{reached}");
    let after = root.healthy();
    assert_ne!(after.pids(), before.pids(), "a process was killed and restarted");

    // Nothing is touched where the host is another one, or does not know us.
    let other_key = Ran::of(&mut drill(&root, &sshd.config("other", &me), &["app", "--count", "1"]));
    other_key.refused(&[HOST, "Host key verification failed"]);
    let nobody = Ran::of(&mut drill(&root, &sshd.config("host", "obol-nobody"), &["app", "--count", "1"]));
    nobody.refused(&[HOST, "Permission denied"]);
    // A remote that is reached and says nothing.
    let mute = sshd.dir.join("mute");
    programs::script(&mute, "#!/bin/sh\nexec cat >/dev/null\n");
    let arguments = ["app", "--count", "1", "--ssh-program", mute.to_str().expect("text")];
    Ran::of(&mut drill(&root, &good, &arguments)).refused(&[HOST, "does not answer"]);
    root.run(&["drill", "run", "app", "--ssh=-oProxyCommand=true"]).refused(&["is not a host"]);
    assert_eq!(root.healthy().pids(), after.pids());
    assert_eq!(undo_records(&root), 0);
}

#[test]
fn a_connection_that_drops_in_mid_drill_leaves_nothing_frozen_and_the_journal_is_kept() {
    let (root, _up) = Root::with_cluster(&[]);
    let Some(sshd) = Sshd::start() else { return };
    let me = made(Command::new("id").arg("-un"));
    let before = root.healthy().pids();
    let mut runner = drill(&root, &sshd.config("host", &me), &["freeze", "--count", "50"]);
    let runner =
        runner.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    let frozen = || before.values().any(|pid| is_frozen(*pid));
    until("a node is frozen", frozen);
    signal("KILL", &sshd.sessions());
    let began = Instant::now();
    let ended = runner.wait_with_output().expect("a child");
    assert!(began.elapsed() < HANG, "the runner hangs");
    let journal: Value = serde_json::from_slice(&ended.stdout).expect("the journal");
    assert_eq!((&journal["verdict"], ended.status.code()), (&"aborted".into(), Some(4)), "{journal}");
    assert!(journal["remarks"].to_string().contains("the fault agent was lost"), "{journal}");
    until("the fault agent has undone everything", || !frozen() && undo_records(&root) == 0);
    assert_eq!(root.healthy().pids(), before, "no process was restarted");
}

//! The console in a real terminal: what an operator sees, which keys work, and that the terminal is
//! given back.

use crate::support::{HANG, Ran, Root, freeze, signal, until, until_or};
use parking_lot::Mutex;
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

const COLUMNS: NonZeroU16 = NonZeroU16::MIN.saturating_add(119);
const ROWS: NonZeroU16 = NonZeroU16::MIN.saturating_add(35);

/// A program in a terminal, which `script` of util-linux makes.
pub(crate) struct Pty {
    child: Child,
    keys: ChildStdin,
    shown: Arc<Mutex<vt100::Parser>>,
    /// All that the program wrote.
    written: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
    pub(crate) folder: PathBuf,
}

impl Pty {
    /// Runs the program with this root; notes its exit code, and the terminal's settings before and
    /// after.
    pub(crate) fn new(root: &Root, arguments: &str) -> Self {
        let folder = root.note("pty");
        std::fs::create_dir_all(&folder).expect("a folder");
        let program = env!("CARGO_BIN_EXE_obol");
        let (at, root) = (folder.display(), root.path().display());
        let script = format!(
            "stty cols {COLUMNS} rows {ROWS}; stty -g > {at}/before; {program} {arguments} --root {root}; echo $? > {at}/code; stty -g > {at}/after"
        );
        let mut child = Command::new("script")
            .args(["-q", "-e", "-f", "-c", &script, "/dev/null"])
            .env("TERM", "xterm-256color")
            .env("LC_ALL", "C.UTF-8")
            // Not the configuration of the user who runs the tests.
            .env("XDG_CONFIG_HOME", &folder)
            .env_remove("OBOL_CONFIG")
            .env_remove("NO_COLOR")
            .env_remove("COLORFGBG")
            .current_dir(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script, of util-linux, is installed");
        let keys = child.stdin.take().expect("piped");
        let mut out = child.stdout.take().expect("piped");
        let shown = Arc::new(Mutex::new(vt100::Parser::new(ROWS, COLUMNS, 0)));
        let parser = Arc::clone(&shown);
        let written: Arc<Mutex<Vec<u8>>> = Arc::default();
        let bytes_of = Arc::clone(&written);
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = out.read(&mut bytes) {
                bytes_of.lock().extend_from_slice(&bytes[..n]);
                parser.lock().process(&bytes[..n]);
            }
        });
        Self { child, keys, shown, written, reader: Some(reader), folder }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("it reads keys");
        self.keys.flush().expect("it reads keys");
    }

    pub(crate) fn screen(&self) -> String {
        self.shown.lock().screen().contents()
    }

    /// How often the program asked which background the terminal has.
    fn questions(&self) -> usize {
        const QUESTION: &[u8] = b"\x1b]11;?";
        self.written.lock().windows(QUESTION.len()).filter(|part| *part == QUESTION).count()
    }

    /// The colour of the first character of the screen that is none of a blank.
    fn first_colour(&self) -> vt100::Color {
        let shown = self.shown.lock();
        let cells = (0..COLUMNS.get()).filter_map(|column| shown.screen().cell(0, column));
        let colour = cells.filter(|cell| !cell.contents().trim().is_empty()).map(vt100::Cell::fgcolor).next();
        colour.expect("a header")
    }

    /// Gives the terminal of a process another size.
    fn resize(&self, pid: i64, columns: NonZeroU16, rows: NonZeroU16) {
        self.shown.lock().screen_mut().set_size(rows, columns);
        let terminal = std::fs::read_link(format!("/proc/{pid}/fd/1")).expect("its terminal");
        let stty = Command::new("stty")
            .arg("-F")
            .arg(terminal)
            .args(["cols", &columns.to_string(), "rows", &rows.to_string()])
            .status();
        assert!(stty.expect("stty is installed").success());
    }

    /// Waits until the screen has a frame of this width.
    fn until_wide(&self, columns: NonZeroU16) {
        let wide = |line: &str| line.ends_with('┐') && line.chars().count() == usize::from(columns.get());
        self.until(&format!("a frame of {columns} columns"), |screen| screen.lines().any(wide));
    }

    /// Whether the console has the terminal.
    fn is_taken(&self) -> bool {
        self.shown.lock().screen().alternate_screen()
    }

    /// Waits until the screen is as wanted.
    pub(crate) fn until(&self, what: &str, holds: impl Fn(&str) -> bool) -> String {
        until_or(what, || Some(self.screen()).filter(|screen| holds(screen)), || self.screen())
    }

    /// Waits until a line of the screen holds all of these words.
    pub(crate) fn until_line(&self, words: &[&str]) -> String {
        let holds = |line: &str| words.iter().all(|word| line.contains(word));
        self.until(&format!("a line with {words:?}"), |screen| screen.lines().any(holds))
    }

    /// Waits for the program's end, and holds that the terminal is as it was. Gives the exit code.
    pub(crate) fn ends(&mut self) -> i32 {
        let began = Instant::now();
        while self.child.try_wait().expect("a child").is_none() {
            assert!(began.elapsed() < HANG, "this hangs:\n{}", self.screen());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        self.reader.take().expect("once").join().expect("read");
        let read = |name| std::fs::read_to_string(self.folder.join(name)).expect("noted");
        assert_eq!(read("after"), read("before"), "the terminal's settings");
        let shown = self.shown.lock();
        assert!(!shown.screen().alternate_screen() && !shown.screen().hide_cursor());
        read("code").trim().parse().expect("a number")
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        // It may have ended; the files may be gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The process of the console itself.
fn pid(root: &Root, command: &str) -> i64 {
    let is = |line: &str| line.contains(command) && !line.starts_with("sh ") && !line.starts_with("script ");
    let found = || root.processes().into_iter().find(|(_, line)| is(line)).map(|(pid, _)| pid);
    until_or("the console runs", found, || format!("{:?}", root.processes()))
}

#[test]
fn a_console_whose_terminal_is_gone_ends_without_a_panic() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let code = root.note("code");
    let (program, at) = (env!("CARGO_BIN_EXE_obol"), root.path().display());
    // The shell outlives its terminal, and notes how the console has ended.
    let script = format!("trap '' HUP; {program} console --root {at}; echo $? > {}", code.display());
    let mut terminal = Command::new("script")
        .args(["-q", "-f", "-c", &script, "/dev/null"])
        .env("TERM", "xterm-256color")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script, of util-linux, is installed");
    let mut out = terminal.stdout.take().expect("piped");
    let mut shown = [0; 64];
    assert!(out.read(&mut shown).expect("read") > 0);
    pid(&root, "console");
    terminal.kill().expect("killed");
    terminal.wait().expect("a child");
    let noted = || std::fs::read_to_string(&code).ok().filter(|text| text.ends_with('\n'));
    let noted = until_or("the console ends", noted, || format!("{:?}", root.processes()));
    assert!(["0", "1", "7"].contains(&noted.trim()), "{noted}");
}

#[test]
fn an_operator_sees_the_cluster_and_gets_the_terminal_back() {
    let (root, _up) = Root::with_cluster(&[]);
    let mut console = Pty::new(&root, "console");
    console.until_line(&["OBOL", "default", "healthy", "LIVE"]);
    console.until_line(&["app-3", "ok", "node-3", "active"]);
    console.press("8");
    console.until("the events", |screen| screen.contains("view_received") || screen.contains("active"));
    console.press("?");
    console.until("the help", |screen| screen.contains("any other key closes"));
    console.press("x1");
    console.until_line(&["coord-1", "coordinator"]);
    console.press("q");
    assert_eq!(console.ends(), 0);
    root.healthy();
}

#[test]
fn the_terminals_background_decides_the_colours_and_its_answer_is_no_key() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let mut console = Pty::new(&root, "console");
    console.until_line(&["OBOL", "healthy"]);
    assert_eq!(console.questions(), 1, "asked at the start");
    let dark = console.first_colour();
    // An answer that comes late; as keys it would show screen 3 and begin a filter.
    console.press("\x1b]11;rgb:fdfd/f6f6/e3e3\x1b\\");
    until("the colours are those of a light terminal", || console.first_colour() != dark);
    console.until_line(&["coord-1", "coordinator"]);
    console.press("q");
    assert_eq!(console.ends(), 0);
    assert_eq!(console.questions(), 1, "asked once");
    // Who names a theme has it.
    let mut console = Pty::new(&root, "console --theme dark");
    console.until_line(&["OBOL", "healthy"]);
    assert_eq!(console.first_colour(), dark);
    console.press("q");
    assert_eq!(console.ends(), 0);
    assert_eq!(console.questions(), 0);
}

#[test]
fn a_console_without_its_cluster_lists_the_others_and_shows_the_chosen_ones() {
    let root = Root::new();
    let [a, b] = ["alpha", "beta"].map(|name| ["--cluster", name]);
    let small = ["--coordinators", "1", "--apps", "2"];
    let _alpha = root.up(&[&small[..], &a].concat());
    let _beta = root.up(&[&small[..], &b].concat());
    root.run(&[&["kill", "app-1"], &b[..]].concat()).ends(0);
    let file = root.note("toml");
    let at = root.path().display();
    let contexts = format!("[contexts.prod]\nroot = \"{at}\"\ncluster = \"beta\"\nproduction = true\n");
    std::fs::write(&file, contexts).expect("written");
    let mut console = Pty::new(&root, &format!("console --arm --config {}", file.display()));
    console.until_line(&["no cluster default"]);
    console.until_line(&["alpha", "ok healthy"]);
    console.until_line(&["prod", "degraded", "app-1 down"]);
    // What is wrong is first.
    console.press("j\r");
    console.until_line(&["OBOL", "prod", "degraded", "LIVE"]);
    console.until_line(&["x down", "app"]);
    console.press("/coord-1\rj\x0b");
    console.until_line(&["type the cluster's name"]);
    console.press("y\r");
    console.until_line(&["coord-1 was not touched"]);
    console.press(":ctx\r");
    console.until_line(&["prod *", "degraded"]);
    console.press("/alpha\r");
    console.until("one row", |screen| screen.contains("alpha") && !screen.contains("prod *"));
    console.press("\r");
    console.until_line(&["OBOL", "alpha", "healthy", "LIVE"]);
    console.until_line(&["app-1", "active"]);
    console.press("q");
    assert_eq!(console.ends(), 0);
}

#[test]
fn a_frozen_coordinator_stays_on_the_screen_and_is_marked() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let console = Pty::new(&root, "console");
    console.until_line(&["coord-3", "ok"]);
    let pid = root.status().pid("coord-3");
    freeze(pid);
    console.until_line(&["coord-3", "frozen", "coordinator"]);
    // The others go on without it, and it is read all the same: its last view is behind theirs.
    let newest =
        root.until("it is excluded", |status| status.view() > 0 && status.incarnation("coord-3") == 0);
    assert!(newest.process("coord-3")["view"].is_u64());
    console.until_line(&["coord-3 is frozen"]);
    signal("CONT", &[pid]);
    console.until_line(&["coord-3", "ok", "coordinator"]);
}

#[test]
fn signals_give_the_terminal_back() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let mut console = Pty::new(&root, "console");
    console.until_line(&["OBOL", "healthy"]);
    let process = pid(&root, " console ");
    signal("TSTP", &[process]);
    until("the terminal is given back", || !console.is_taken());
    signal("CONT", &[process]);
    until("the console is back", || console.is_taken());
    console.until_line(&["OBOL", "healthy"]);
    signal("TERM", &[process]);
    console.ends();
    // Where the end is not in order, at least the terminal is.
    let mut console = Pty::new(&root, "console");
    console.until_line(&["OBOL", "healthy"]);
    signal("QUIT", &[pid(&root, " console ")]);
    until("the terminal is given back", || !console.is_taken());
    assert_eq!(console.ends(), 128 + 3);
}

#[test]
fn ctrl_z_gives_the_terminal_back_until_the_shell_goes_on_with_it() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let mut console = Pty::new(&root, "console");
    console.until_line(&["OBOL", "healthy"]);
    let process = pid(&root, " console ");
    console.press("\x1a");
    until("the terminal is given back", || !console.is_taken());
    let stopped =
        || std::fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|s| s.contains(") T "));
    until("it is stopped", stopped);
    signal("CONT", &[process]);
    until("the console is back", || console.is_taken());
    console.until_line(&["OBOL", "healthy"]);
    console.press("q");
    assert_eq!(console.ends(), 0);
}

#[test]
fn the_screen_follows_the_size_of_the_terminal() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let mut console = Pty::new(&root, "console");
    console.until_line(&["OBOL", "healthy"]);
    console.until_wide(COLUMNS);
    let process = pid(&root, " console ");
    let small = (NonZeroU16::MIN.saturating_add(79), NonZeroU16::MIN.saturating_add(23));
    console.resize(process, small.0, small.1);
    console.until_wide(small.0);
    console.until_line(&["OBOL", "healthy"]);
    console.resize(process, COLUMNS, ROWS);
    console.until_wide(COLUMNS);
    console.press("q");
    assert_eq!(console.ends(), 0);
}

#[test]
fn a_configuration_is_the_users_own_or_the_one_that_was_asked_for() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let file = root.note("toml");
    let shown = file.to_str().expect("text").to_owned();
    let write = |text: &str| std::fs::write(&file, text).expect("written");
    write(
        "[keys]\nquit = [\"X\", \"Ctrl-C\"]\nfreeze = [\"q\"]\n[members]\ncolumns = [\"STATE\", \"NAME\"]\n",
    );
    root.run(&["config", "check", &shown]).ends(0);
    let mut console = Pty::new(&root, &format!("console --config {shown}"));
    console.until_line(&["STATE", "NAME"]);
    console.press("q");
    console.until_line(&["q live again"]);
    console.press("X");
    assert_eq!(console.ends(), 0);
    drop(console);
    write("[keys]\nfreeze = [\"q\"]\n");
    let refusal = ":2:11: a key has one action";
    root.run(&["config", "check", &shown]).refused(&[&shown, refusal, "keys.quit"]);
    let home = root.note("config");
    let own = home.join("obol");
    std::fs::create_dir_all(&own).expect("a folder");
    let asked = |words: &[&str]| {
        let mut command = root.command(words);
        Ran::of(command.env("XDG_CONFIG_HOME", &home).env_remove("OBOL_CONFIG"))
    };
    assert!(asked(&["config", "check"]).ends(0).out.contains("there is no"));
    std::fs::rename(&file, own.join("console.toml")).expect("renamed");
    asked(&["config", "check"]).refused(&["obol/console.toml", refusal]);
    asked(&["config", "print", &shown]).refused(&["No such file", "obol config print"]);
}

#[test]
fn a_killed_recorder_leaves_a_recording_that_is_replayed() {
    let (root, up) = Root::with_cluster(&["--apps", "1"]);
    let file = root.note("obolrec");
    let shown = file.to_str().expect("text").to_owned();
    // What was recorded to a file that others have removed is not there.
    let gone = root.note("gone");
    let mut short = root.command(&["record", gone.to_str().expect("text"), "--for", "1s"]);
    let short = short.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    until("it records", || std::fs::remove_file(&gone).is_ok());
    let short = short.wait_with_output().expect("a child");
    let (out, err) = (String::from_utf8_lossy(&short.stdout), String::from_utf8_lossy(&short.stderr));
    assert_eq!((short.status.code(), &*out), (Some(1), ""), "{err}");
    assert!(err.contains("is not what was recorded: it was removed, and"), "{err}");
    let mut recorder = root.command(&["record", &shown]).spawn().expect("it starts");
    let grown = |least: u64| std::fs::metadata(&file).is_ok_and(|meta| meta.len() > least);
    until("there are samples", || grown(20_000));
    signal("KILL", &[i64::from(recorder.id())]);
    recorder.wait().expect("a child");
    root.run(&["down"]).ends(0);
    up.end();
    let mut replay = Pty::new(&root, &format!("replay {shown}"));
    replay.until_line(&["OBOL", "default", "REPLAY"]);
    replay.until_line(&["coord-1", "coordinator"]);
    replay.press("q");
    assert_eq!(replay.ends(), 0);
    root.run(&["record", &shown]).refused(&["exists", "recordings are not overwritten"]);
}

#[test]
fn a_note_divides_before_from_after_in_the_console_and_in_the_report() {
    let (root, _up) = Root::with_cluster(&["--apps", "2"]);
    let mut console = Pty::new(&root, "console");
    console.until_line(&["OBOL", "healthy", "LIVE"]);
    root.run(&["mark", "deploy 1.4"]).ends(0);
    console.until_line(&["since \"deploy 1.4\"", "failed 0"]);
    root.run(&["kill", "app-1"]).ends(0);
    root.run(&["stop", "app-2"]).ends(0);
    console.until_line(&["since \"deploy 1.4\"", "left 1", "failed 1"]);
    console.press("nback to 1.3\r");
    console.until_line(&["since \"back to 1.3\"", "left 0", "failed 0"]);
    console.press("3");
    console.until_line(&["app-1", "deadbeat"]);
    console.press("x");
    console.until_line(&["the report and the screen are in obol-default-1/"]);
    let folder = console.folder.join("obol-default-1");
    let of_console: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.join("report.json")).expect("exported")).expect("JSON");
    assert!(std::fs::read_to_string(folder.join("screen.svg")).expect("exported").contains("Failovers"));
    let of_command = root.run(&["report", "--format", "json", "--for", "300ms"]).json();
    // Coordinators may have come twice while the cluster started; the kill is distinguished by its
    // reason.
    let of_app = |report: &serde_json::Value| {
        assert_eq!(report["marks"][1]["text"], "back to 1.3");
        let all = report["failovers"].as_array().cloned().unwrap_or_default();
        let found =
            all.into_iter().find(|one| one["dead"][0]["level"] == "deadbeat").expect("the kill is in it");
        // The time of day of a stamp is as good as the reader's look at two clocks.
        ["view", "decider", "dead", "phases_ns", "total_ns"].map(|key| found[key].clone())
    };
    assert_eq!(of_app(&of_command), of_app(&of_console), "by the same stamps");
    console.press("q");
    assert_eq!(console.ends(), 0);
    root.run(&["mark", " "]).refused(&["1 to 120 characters"]);
}

#[test]
fn without_a_terminal_the_console_says_what_to_use() {
    let root = Root::new();
    root.run(&["console"]).refused(&["needs a terminal", "obol status"]);
    root.run(&["replay", "/dev/null"]).refused(&["is a device, not a regular file"]);
    let program = std::env::current_exe().expect("this program");
    root.run(&["replay", program.to_str().expect("text")]).refused(&["not a recording"]);
    root.run(&["up", "--record", "/dev/null"]).refused(&["there is no terminal", "obol record"]);
    let file = root.note("obolrec");
    let none = ["record", file.to_str().expect("text"), "--for", "100ms"];
    root.run(&none).refused(&[
        "no cluster default",
        "recording continues when it is back",
        "nothing was recorded",
    ]);
    assert!(!file.exists(), "an empty recording would keep its name from the next");
}

//! Looks at things outside of the cluster, for steady states and abort conditions. A look that
//! fails, for instance because a server cannot be reached, is never the required result.

use crate::drillfile::{Comparison, External};
use crate::http::{self, agent};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use obol_fabric::Nanos;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of a command's error output to keep.
const ERRORS_BYTES_MAX: usize = 4096;
/// Poll interval for the end of a command.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How long error output is awaited after the end of a command: a program that it left behind may
/// hold the pipe open.
const ERRORS_TIMEOUT: Duration = Duration::from_millis(200);
/// Characters of foreign text to show.
const SHOWN_CHARS_MAX: usize = 200;

/// Whether the probe has the required result, and what was seen.
pub(super) fn look(external: &External, tolerance: bool) -> (bool, String) {
    match observe(external) {
        Ok((value, saw)) => (value == tolerance, saw),
        Err(why) => (false, format!("{} cannot be determined: {why}", name(external))),
    }
}

fn name(external: &External) -> String {
    match external {
        External::PromQl { query, .. } => shortened(query),
        External::Http { url, .. } => shortened(url),
        External::Command { argv, .. } => shortened(&argv.join(" ")),
    }
}

/// One line of foreign text.
fn shortened(text: &str) -> String {
    let mut line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((at, _)) = line.char_indices().nth(SHOWN_CHARS_MAX) {
        line.truncate(at);
        line.push_str("...");
    }
    line
}

fn observe(external: &External) -> Result<(bool, String), String> {
    match external {
        External::PromQl { url, query, comparison, timeout } => promql(url, query, *comparison, *timeout),
        External::Http { url, status, timeout } => {
            let answer = agent(*timeout, url).get(url).call().map_err(|error| error.to_string())?;
            let found = answer.status().as_u16();
            Ok((found == *status, format!("{} answers {found}, required {status}", shortened(url))))
        }
        External::Command { argv, timeout } => command(argv, *timeout),
    }
}

/// The part of an answer of Prometheus that is needed here.
#[derive(Deserialize)]
#[serde(tag = "status", rename_all = "lowercase")]
enum Answer {
    Success { data: Data },
    Error { error: String },
}

#[derive(Deserialize)]
#[serde(tag = "resultType", content = "result", rename_all = "lowercase")]
enum Data {
    Scalar(Value),
    Vector(Vec<Series>),
    Matrix(IgnoredAny),
    String(IgnoredAny),
}

#[derive(Deserialize)]
struct Series {
    value: Value,
}

/// A time and a number as text, which may be `NaN` or `+Inf`.
#[derive(Deserialize)]
struct Value(#[expect(dead_code, reason = "part of the format")] f64, String);

impl Value {
    fn number(&self) -> Result<f64, String> {
        self.1.parse().map_err(|_| format!("{:?} is not a number", shortened(&self.1)))
    }
}

fn promql(url: &str, query: &str, comparison: Comparison, timeout: Nanos) -> Result<(bool, String), String> {
    let at = format!("{}/api/v1/query", url.trim_end_matches('/'));
    let request = agent(timeout, url).get(&at).query("query", query);
    let mut answer = request.call().map_err(|error| format!("{at}: {error}"))?;
    let status = answer.status();
    let body = answer.body_mut().with_config().limit(http::BYTES_MAX).read_to_string();
    let body = body.map_err(|error| format!("{at}: {error}"))?;
    // Errors of queries are JSON, too, with another status.
    let data = match serde_json::from_str(&body) {
        Ok(Answer::Success { data }) => data,
        Ok(Answer::Error { error }) => return Err(shortened(&error)),
        Err(_) if !status.is_success() => return Err(format!("{at} answers {status}")),
        Err(error) => return Err(format!("{at} gives no answer of Prometheus: {error}")),
    };
    let values = match data {
        Data::Scalar(value) => vec![value.number()?],
        Data::Vector(series) => {
            series.iter().map(|series| series.value.number()).collect::<Result<Vec<f64>, _>>()?
        }
        Data::Matrix(_) | Data::String(_) => {
            return Err("the result is not an instant vector or scalar".to_owned());
        }
    };
    // An empty result is often a misspelt label.
    let Some(first) = values.first() else { return Err("the result is empty".to_owned()) };
    let query = shortened(query);
    Ok(match values.iter().find(|value| !comparison.holds(**value)) {
        Some(wrong) => (false, format!("{query} is {wrong}, required {comparison}")),
        None if values.len() == 1 => (true, format!("{query} is {first}, required {comparison}")),
        None => (true, format!("all {} values of {query} are {comparison}", values.len())),
    })
}

fn command(argv: &[String], timeout: Nanos) -> Result<(bool, String), String> {
    let (program, arguments) = argv.split_first().ok_or("there is no command")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|error| error.to_string())?;
    let (tx, rx) = mpsc::channel();
    if let Some(errors) = child.stderr.take() {
        // It reads until no process holds the pipe; the receiver does not wait for that.
        thread::spawn(move || tx.send(last_line(errors)));
    }
    let status = await_end(&mut child, timeout.to_std()).map_err(|error| error.to_string())?;
    let shown = shortened(&argv.join(" "));
    let Some(status) = status else { return Err(format!("it did not end within {timeout}, and was killed")) };
    let said =
        rx.recv_timeout(ERRORS_TIMEOUT).ok().flatten().map_or(String::new(), |said| format!(": {said}"));
    Ok((status.success(), format!("{shown} ended with {status}{said}")))
}

/// Waits for the end of a command; `None` if it was killed because it took too long.
fn await_end(child: &mut Child, timeout: Duration) -> std::io::Result<Option<ExitStatus>> {
    let end = Instant::now() + timeout;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            // It may have ended just now.
            let _ = killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// The last line of what a command writes, if any.
fn last_line(mut from: impl Read) -> Option<String> {
    let (mut kept, mut part) = (Vec::new(), [0; ERRORS_BYTES_MAX]);
    while let Ok(n @ 1..) = from.read(&mut part) {
        kept.extend_from_slice(&part[..n]);
        kept.drain(..kept.len().saturating_sub(ERRORS_BYTES_MAX));
    }
    let text = String::from_utf8_lossy(&kept);
    text.lines().rev().map(shortened).find(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drillfile::parse;
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;

    /// Answers one request like this, and returns its first line.
    fn serve(status: &'static str, body: &'static str) -> (String, thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let handle = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a request");
            let mut reader = BufReader::new(stream.try_clone().expect("cloned"));
            let mut lines = Vec::new();
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).expect("read");
                if line.trim().is_empty() {
                    break;
                }
                lines.push(line);
            }
            let length = body.len();
            write!(
                stream,
                "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            )
            .expect("written");
            lines.swap_remove(0)
        });
        (url, handle)
    }

    /// The probe of this line in a drill file.
    fn external(keys: &str) -> External {
        let text = format!(
            "[drill]\nschema = 1\nid = \"x\"\ntitle = \"t\"\nenvironment = \"local\"\n[targets]\na = {{ kind = \"app\", select = \"one\" }}\n\
             [[step]]\nname = \"s\"\nfault = {{ kind = \"kill\", target = \"a\" }}\n[[steady]]\n{keys}\n"
        );
        let drill = parse(&text, "x.toml").unwrap_or_else(|error| panic!("{error}"));
        drill.steady[0].external.clone().expect("it is one")
    }

    #[test]
    fn an_http_probe_requires_its_status_and_its_opposite_if_asked() {
        for (answer, tolerance, holds) in
            [("200 OK", true, true), ("503 Busy", true, false), ("503 Busy", false, true)]
        {
            let (url, served) = serve(answer, "");
            let probe = external(&format!("probe = \"http\"\nurl = \"{url}/health\"\nstatus = 200"));
            let (found, saw) = look(&probe, tolerance);
            assert_eq!(found, holds, "{saw}");
            assert!(saw.contains(&answer[..3]), "{saw}");
            assert_eq!(served.join().expect("served").trim(), "GET /health HTTP/1.1");
        }
    }

    #[test]
    fn a_server_that_cannot_be_reached_never_has_the_required_result() {
        // The port is free again when the listener is dropped.
        let url = format!(
            "http://{}",
            TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port")
        );
        for keys in [
            format!("probe = \"http\"\nurl = \"{url}\""),
            format!("probe = \"promql\"\nurl = \"{url}\"\nquery = \"up\"\ncomparison = \"== 1\""),
            "probe = \"command\"\nargv = [\"/nonexistent\"]".to_owned(),
        ] {
            for tolerance in [true, false] {
                let (holds, saw) = look(&external(&keys), tolerance);
                assert!(!holds && saw.contains("cannot be determined"), "{saw}");
            }
        }
    }

    #[test]
    fn a_query_holds_if_every_value_does_and_there_is_one() {
        let vector = |values: &str| {
            let text =
                format!(r#"{{"status":"success","data":{{"resultType":"vector","result":[{values}]}}}}"#);
            &*text.leak()
        };
        let one = r#"{"metric":{},"value":[1.5,"1"]}"#;
        let two = r#"{"metric":{"a":"b"},"value":[1.5,"2.5"]}"#;
        let nan = r#"{"metric":{},"value":[1.5,"NaN"]}"#;
        for (status, body, comparison, holds, says) in [
            ("200 OK", vector(one), "== 1", true, "is 1, required == 1"),
            ("200 OK", vector(&format!("{one},{two}")), "< 3", true, "all 2 values"),
            ("200 OK", vector(&format!("{one},{two}")), "< 2", false, "is 2.5, required < 2"),
            ("200 OK", vector(nan), "!= 1", false, "is NaN"),
            ("200 OK", vector(""), "< 3", false, "the result is empty"),
            (
                "200 OK",
                r#"{"status":"success","data":{"resultType":"scalar","result":[1,"+Inf"]}}"#,
                "> 5",
                true,
                "is inf",
            ),
            (
                "200 OK",
                r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#,
                "> 5",
                false,
                "not an instant vector",
            ),
            (
                "400 Bad",
                r#"{"status":"error","errorType":"bad_data","error":"parse error"}"#,
                "> 5",
                false,
                "parse error",
            ),
            ("502 Bad Gateway", "<html>", "> 5", false, "502"),
            ("200 OK", "{}", "> 5", false, "no answer of Prometheus"),
        ] {
            let (url, served) = serve(status, body);
            let probe = external(&format!(
                "probe = \"promql\"\nurl = \"{url}/prom/\"\nquery = \"sum(a) / b\"\ncomparison = \"{comparison}\""
            ));
            let (found, saw) = look(&probe, true);
            assert_eq!(found, holds, "{saw}");
            assert!(saw.contains(says), "{says:?} is not in {saw:?}");
            let line = served.join().expect("served");
            assert!(line.starts_with("GET /prom/api/v1/query?query=sum"), "{line}");
        }
    }

    #[test]
    fn a_command_has_an_exit_code_a_last_word_and_a_limit() {
        let run = |argv: &str, timeout: &str| {
            look(&external(&format!("probe = \"command\"\nargv = {argv}\ntimeout = \"{timeout}\"")), true)
        };
        assert!(run("[\"true\"]", "60s").0);
        let (holds, saw) = run("[\"sh\", \"-c\", \"echo one >&2; echo no route >&2; exit 3\"]", "60s");
        assert!(!holds && saw.ends_with("exit status: 3: no route"), "{saw}");
        // Its child holds the pipe, and is killed with it.
        let (holds, saw) = run("[\"sh\", \"-c\", \"sleep 600 & wait\"]", "50ms");
        assert!(!holds && saw.contains("did not end within 50.0ms"), "{saw}");
    }
}

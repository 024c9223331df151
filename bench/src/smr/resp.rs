//! redis-benchmark against replicas and against one real Redis, in turns.

use super::{Common, Report, median, report};
use crate::Figure;
use crate::peer_server::{PeerServer, free_ports, is_installed};
use obol_chaos::drills::Host;
use obol_node::Site;
use obol_term::output::{self, Failure};
use obol_workload::process::SERVE_TIMEOUT;
use obol_workload::smr::replicas::Replicas;
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Different keys that are used.
const KEYS: u32 = 1000;
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// What is measured.
#[derive(Clone, Debug)]
pub struct Options {
    /// Requests of each measurement.
    pub requests: u32,
    pub connections: u32,
    /// Requests that a connection sends at once; a measurement for each.
    pub pipeline: Vec<u32>,
    /// Bytes of each value.
    pub bytes: u32,
    pub turns: u32,
    /// What all measurements have in common.
    pub common: Common,
}

/// What redis-benchmark printed for one command.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    command: String,
    per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
}

/// The rows of `redis-benchmark --csv`, by the names in its first line.
fn rows(text: &str) -> Result<Vec<Row>, String> {
    let fields = |line: &str| -> Vec<String> {
        line.split(',').map(|field| field.trim().trim_matches('"').to_owned()).collect()
    };
    let mut lines = text.lines().filter(|line| line.starts_with('"'));
    let names = fields(lines.next().ok_or("it printed nothing")?);
    let place = |name: &str| {
        names.iter().position(|one| one == name).ok_or_else(|| format!("it printed no column `{name}`"))
    };
    let [test, rate, p50, p99] =
        [place("test")?, place("rps")?, place("p50_latency_ms")?, place("p99_latency_ms")?];
    let row = |line: &str| {
        let fields = fields(line);
        let number = |at: usize| fields.get(at).and_then(|text| text.parse().ok());
        let row = fields.get(test).zip(number(rate)).zip(number(p50).zip(number(p99)));
        let ((command, per_s), (p50_ms, p99_ms)) =
            row.ok_or_else(|| format!("it printed a line that is not understood: {line}"))?;
        Ok(Row { command: command.clone(), per_s, p50_ms, p99_ms })
    };
    lines.map(row).collect()
}

/// Runs redis-benchmark against a port.
fn measure(port: u16, pipeline: u32, options: &Options) -> Result<Vec<Row>, Failure> {
    let mut command = Command::new("redis-benchmark");
    for (name, value) in [
        ("-p", u32::from(port)),
        ("-n", options.requests),
        ("-c", options.connections),
        ("-P", pipeline),
        ("-d", options.bytes),
        ("-r", KEYS),
    ] {
        command.arg(name).arg(value.to_string());
    }
    command.args(["-t", "set,get,incr", "--csv"]);
    let out = command.stdin(Stdio::null()).output().map_err(Failure::failed)?;
    let failed = |why: &str| {
        let said = String::from_utf8_lossy(&out.stderr).trim().to_owned();
        Failure::Failed(format!("redis-benchmark against port {port}: {why}; {said}"))
    };
    if !out.status.success() {
        return Err(failed(&out.status.to_string()));
    }
    rows(&String::from_utf8_lossy(&out.stdout)).map_err(|why| failed(&why))
}

/// Waits until a server accepts connections.
fn accepts(port: u16, what: &str) -> Result<(), Failure> {
    let end = Instant::now() + SERVE_TIMEOUT;
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        if Instant::now() > end {
            return Err(Failure::Failed(format!("{what} accepts no connection within {SERVE_TIMEOUT:?}")));
        }
        std::thread::sleep(RETRY_INTERVAL);
    }
    Ok(())
}

/// A real Redis without persistence.
fn redis(port: u16) -> Result<PeerServer, Failure> {
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"]);
    command.args(["--daemonize", "no"]);
    let server = PeerServer::start(&command, None)?.ok_or_else(|| missing("redis-server", "redis-server"))?;
    accepts(port, "redis-server")?;
    Ok(server)
}

fn missing(program: &str, package: &str) -> Failure {
    Failure::Refused(format!("{program} is not installed: Debian has it in the package {package}"))
}

/// A quantile's name, and its column.
type Latency = (&'static str, fn(&Row) -> f64);

/// All rows of a command at a pipeline depth, on both sides.
#[derive(Default)]
struct Pair {
    name: String,
    sides: [Vec<Row>; 2],
}

fn figures(pairs: &[Pair]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for Pair { name, sides: [ours, redis] } in pairs {
        let of = |rows: &[Row], figure: fn(&Row) -> f64| median(rows.iter().map(figure).collect());
        let rate = |rows| of(rows, |row| row.per_s);
        figures.push(Figure::at_least_times(name.clone(), "/s", rate(ours), rate(redis), 1.0));
        let latencies: [Latency; 2] = [("p50", |row| row.p50_ms), ("p99", |row| row.p99_ms)];
        for (quantile, figure) in latencies {
            let name = format!("{name}, {quantile}");
            figures.push(Figure::compared(name, "ms", of(ours, figure), of(redis, figure)));
        }
    }
    figures
}

/// Measures replicas beside one Redis.
pub fn run(root: &Path, site: &Arc<Site>, options: &Options) -> Result<ExitCode, Failure> {
    for (program, package) in [("redis-server", "redis-server"), ("redis-benchmark", "redis-tools")] {
        if !is_installed(program) {
            return Err(missing(program, package));
        }
    }
    let Common { replicas, poll_every, json } = &options.common;
    let [port, redis_port] = free_ports()?;
    let (address, voters) = (format!("127.0.0.1:{port}"), replicas.to_string());
    let first = ["--voters", &voters, "--resp", &address];
    let mut pairs: Vec<Pair> = Vec::new();
    for turn in 0..options.turns {
        for (side, what) in ["replicas", "Redis"].into_iter().enumerate() {
            // Informative only: the benchmark continues without it.
            let _ = output::remark(format_args!("bench: turn {}, {what}", turn + 1));
            // They end with this block.
            let (_replicas, _redis, port) = if side == 0 {
                let started = Replicas::start(root, site, *replicas, poll_every, &first, &[])?;
                started.redundant()?;
                accepts(port, "the front of the first replica")?;
                (Some(started), None, port)
            } else {
                (None, Some(redis(redis_port)?), redis_port)
            };
            for &pipeline in &options.pipeline {
                for row in measure(port, pipeline, options)? {
                    let name = format!("{}, {pipeline} at once", row.command);
                    let at = pairs.iter().position(|pair| pair.name == name).unwrap_or_else(|| {
                        pairs.push(Pair { name, ..Pair::default() });
                        pairs.len() - 1
                    });
                    pairs[at].sides[side].push(row);
                }
            }
        }
    }
    let figures = figures(&pairs);
    let profile = site.deployment.profile.name.to_string();
    let (replicas, turns, host) = (*replicas, options.turns, Host::this());
    report(&Report { bench: "resp", replicas, poll_every, turns, figures, host, profile }, *json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_by_the_names_of_columns() {
        let text = "\"test\",\"rps\",\"avg_latency_ms\",\"p50_latency_ms\",\"p99_latency_ms\"\n\
                    \"SET\",\"90909.09\",\"0.3\",\"0.271\",\"0.5\"\n";
        let row = Row { command: "SET".to_owned(), per_s: 90909.09, p50_ms: 0.271, p99_ms: 0.5 };
        assert_eq!(rows(text), Ok(vec![row]));
        assert!(rows("").is_err());
        assert!(rows("\"test\",\"rps\"\n").is_err_and(|why| why.contains("p50_latency_ms")));
        assert!(rows(&text.replace("0.271", "x")).is_err_and(|why| why.contains("not understood")));
    }
}

//! HTTP, by tokio on one thread. Connections are bounded in number and time, and each answers one
//! request: none stays open between two scrapes.

use crate::collector::{Collector, Polled};
use crate::negotiate;
use crate::render::{self, Served};
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, ALLOW, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, VARY,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use obol_fabric::Nanos;
use obol_fabric::host::clock;
use obol_node::ending;
use obol_observe::metrics::text::Format;
use parking_lot::Mutex;
use signal_hook::iterator::Signals;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// Connections at one time. A further one takes the place of the one that has waited longest for a
/// request, so that who sends none keeps nobody out; it is closed if all have sent theirs.
const CONNECTIONS_MAX: usize = 64;
/// The headers of a request come within this time.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection ends after this time, whatever its client does.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of a request's headers.
const HEADERS_MAX: usize = 16 << 10;
/// Answers that are written at the end may still be read.
const END_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause after an error such as a lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// A poll may take this long: hosts that do not answer delay it.
const POLL_TIMEOUT: Duration = Duration::from_secs(15);
/// Threads that write texts.
const WRITERS_MAX: usize = 2;

/// Why the exporter cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is in use.
    #[error(
        "{address} is in use: another exporter or program listens there (`ss -ltnp` shows which); choose another address with --listen"
    )]
    InUse { address: SocketAddr },
    /// It cannot listen.
    #[error("cannot listen on {address}: {error}; --listen takes an address of this host, such as 127.0.0.1:{}", address.port())]
    Listen { address: SocketAddr, error: io::Error },
    /// The system refuses something else.
    #[error("cannot {doing}: {error}")]
    System { doing: &'static str, error: io::Error },
}

/// How to serve.
#[derive(Clone, Debug)]
pub struct Options {
    pub listen: SocketAddr,
    /// The interval of polls.
    pub every: Duration,
}

/// A poll, and the texts that were made of it.
struct Newest {
    polled: Polled,
    /// By format, and whether it is compressed.
    texts: [OnceLock<Bytes>; 4],
}

struct Shared {
    every: Duration,
    newest: Mutex<Arc<Newest>>,
    scrapes: AtomicU64,
    refused: AtomicU64,
}

impl Newest {
    fn new(polled: Polled) -> Arc<Self> {
        Arc::new(Self { polled, texts: Default::default() })
    }

    /// Its text, written at the first request for it.
    fn text(&self, served: Served, format: Format, gzip: bool) -> Bytes {
        let at = usize::from(format == Format::OpenMetrics) * 2 + usize::from(gzip);
        let write = || {
            if !gzip {
                return Bytes::from(render::text(&self.polled, served, format));
            }
            let plain = self.text(served, format, false);
            let mut encoder = GzEncoder::new(Vec::with_capacity(plain.len() / 8), Compression::fast());
            // Writing to memory cannot fail.
            let written = encoder.write_all(&plain).and_then(|()| encoder.finish());
            written.map_or_else(|_| Bytes::new(), Bytes::from)
        };
        match self.texts.get(at) {
            Some(text) => text.get_or_init(write).clone(),
            None => write(),
        }
    }
}

impl Shared {
    /// The newest poll.
    fn newest(&self) -> Arc<Newest> {
        Arc::clone(&self.newest.lock())
    }

    /// Whether the thread that polls does its work; if not, since when.
    fn is_alive(&self) -> Result<(), Nanos> {
        let age = clock::now().since(self.newest().polled.at);
        let limit = Nanos::from_std(self.every.saturating_add(POLL_TIMEOUT));
        if age > limit { Err(age) } else { Ok(()) }
    }

    fn served(&self) -> Served {
        Served {
            scrapes: self.scrapes.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }
}

/// Polls and serves until a signal ends it. `ready` is called with the address once it listens.
pub fn serve(
    mut collector: Collector,
    options: &Options,
    ready: impl FnOnce(SocketAddr),
) -> Result<(), ServeError> {
    let system = |doing| move |error| ServeError::System { doing, error };
    let address = options.listen;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(WRITERS_MAX)
        .build()
        .map_err(system("start the runtime"))?;
    let listener = runtime.block_on(TcpListener::bind(address)).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => ServeError::InUse { address },
        _ => ServeError::Listen { address, error },
    })?;
    let bound = listener.local_addr().map_err(system("read the address"))?;
    let mut signals = Signals::new(ending::signals()).map_err(system("handle signals"))?;
    let stop = Arc::new(Notify::new());
    let of_signals = Arc::clone(&stop);
    thread::Builder::new()
        .name("obol-signals".to_owned())
        .spawn(move || {
            if signals.forever().next().is_some() {
                of_signals.notify_one();
            }
        })
        .map_err(system("start a thread"))?;
    let shared = Arc::new(Shared {
        every: options.every,
        newest: Mutex::new(Newest::new(collector.poll())),
        scrapes: AtomicU64::new(0),
        refused: AtomicU64::new(0),
    });
    let (quit, quits) = mpsc::channel();
    let of_polls = Arc::clone(&shared);
    let polls = thread::Builder::new()
        .name("obol-poll".to_owned())
        .spawn(move || poll(&mut collector, &of_polls, &quits))
        .map_err(system("start a thread"))?;
    ready(bound);
    runtime.block_on(async {
        let limit = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let accepting = tokio::spawn(accept(listener, shared, Arc::clone(&limit)));
        stop.notified().await;
        accepting.abort();
        // Clients that do not read in time are cut off.
        let _ = timeout(END_TIMEOUT, limit.acquire_many(CONNECTIONS_MAX as u32)).await;
    });
    drop(quit);
    runtime.shutdown_background();
    // A panic was printed by the thread.
    let _ = polls.join();
    Ok(())
}

/// Polls at a steady rate until `quit` closes.
fn poll(collector: &mut Collector, shared: &Shared, quit: &Receiver<()>) {
    loop {
        let began = Instant::now();
        let polled = Newest::new(collector.poll());
        *shared.newest.lock() = polled;
        let wait = shared.every.saturating_sub(began.elapsed());
        if quit.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// A connection that was accepted.
struct Accepted {
    task: AbortHandle,
    /// Its request has arrived.
    asked: Arc<AtomicBool>,
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, limit: Arc<Semaphore>) {
    let mut open: VecDeque<Accepted> = VecDeque::with_capacity(CONNECTIONS_MAX);
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        open.retain(|accepted| !accepted.task.is_finished());
        if limit.available_permits() == 0 {
            shared.refused.fetch_add(1, Ordering::Relaxed);
            let waits = open.iter().position(|accepted| !accepted.asked.load(Ordering::Relaxed));
            let Some(waits) = waits.and_then(|place| open.remove(place)) else { continue };
            waits.task.abort();
        }
        // The one that is aborted has the permit until its task is dropped.
        let Ok(permit) = Arc::clone(&limit).acquire_owned().await else { return };
        let (shared, asked) = (Arc::clone(&shared), Arc::new(AtomicBool::new(false)));
        let task = tokio::spawn({
            let asked = Arc::clone(&asked);
            async move {
                // A client that goes away, or sends what is not HTTP, is not the fault of the exporter.
                let _ = timeout(CONNECTION_TIMEOUT, connection(stream, shared, asked)).await;
                drop(permit);
            }
        });
        open.push_back(Accepted { task: task.abort_handle(), asked });
    }
}

async fn connection(
    stream: TcpStream,
    shared: Arc<Shared>,
    asked: Arc<AtomicBool>,
) -> Result<(), hyper::Error> {
    let service = service_fn(move |request| {
        asked.store(true, Ordering::Relaxed);
        answer(Arc::clone(&shared), request)
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_TIMEOUT)
        .max_buf_size(HEADERS_MAX)
        .keep_alive(false)
        // A client may have ended its side after the request.
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

type Answer = Response<Full<Bytes>>;

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    typed(status, "text/plain; charset=utf-8", text)
}

fn typed(status: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(text.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

const INDEX: &str = "obol export\n\n\
    /metrics  the newest poll, as OpenMetrics or in the format 0.0.4 of Prometheus\n\
    /healthz  whether the exporter polls\n\
    /readyz   whether the cluster can be read, and its health is known\n";

async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Answer, Infallible> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(answer);
    }
    Ok(match request.uri().path() {
        "/" => plain(StatusCode::OK, INDEX),
        "/metrics" => metrics(&shared, &request).await,
        "/healthz" => match shared.is_alive() {
            Ok(()) => plain(StatusCode::OK, "ok\n"),
            Err(age) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("the last poll ended {age} ago\n")),
        },
        "/readyz" => readiness(&shared),
        _ => plain(StatusCode::NOT_FOUND, format!("there is no such page.\n\n{INDEX}")),
    })
}

fn readiness(shared: &Shared) -> Answer {
    if let Err(age) = shared.is_alive() {
        return plain(StatusCode::SERVICE_UNAVAILABLE, format!("the last poll ended {age} ago\n"));
    }
    let newest = shared.newest();
    match newest.polled.failure().map(str::to_owned).or_else(|| newest.polled.unknown()) {
        None => plain(StatusCode::OK, "ok\n"),
        Some(why) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

async fn metrics(shared: &Arc<Shared>, request: &Request<Incoming>) -> Answer {
    // Several of one name are one list.
    let header = |name: HeaderName| {
        let values = request.headers().get_all(name).iter().filter_map(|value| value.to_str().ok());
        let values: Vec<&str> = values.collect();
        (!values.is_empty()).then(|| values.join(","))
    };
    let format = negotiate::format(header(ACCEPT).as_deref());
    let gzip = negotiate::gzip(header(ACCEPT_ENCODING).as_deref());
    shared.scrapes.fetch_add(1, Ordering::Relaxed);
    let (newest, served) = (shared.newest(), shared.served());
    // Thousands of lines would delay other connections.
    let Ok(text) = tokio::task::spawn_blocking(move || newest.text(served, format, gzip)).await else {
        return plain(StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be written\n");
    };
    let mut answer = typed(StatusCode::OK, format.content_type(), text);
    let headers = answer.headers_mut();
    headers.insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    if gzip {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::{Own, Reading};
    use crate::failovers::Counted;
    use obol_fabric::Name;
    use obol_observe::Health;

    fn shared(at: obol_fabric::Instant) -> Shared {
        let polled = Polled {
            cluster: Name::new("a").expect("a name"),
            unix: 0,
            at,
            took: Nanos::ZERO,
            reading: Err("there is no cluster".to_owned()),
            failovers: Counted::default(),
            own: Own::default(),
        };
        let (scrapes, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        Shared { every: Duration::from_secs(1), newest: Mutex::new(Newest::new(polled)), scrapes, refused }
    }

    #[test]
    fn an_exporter_that_does_not_poll_is_neither_alive_nor_ready() {
        let polls = shared(clock::now());
        assert_eq!(polls.is_alive(), Ok(()));
        assert_eq!(readiness(&polls).status(), StatusCode::SERVICE_UNAVAILABLE);
        let hangs = shared(clock::now() - Nanos::from_secs(17));
        assert!(hangs.is_alive().is_err_and(|age| age >= Nanos::from_secs(17)));
        assert_eq!(readiness(&hangs).status(), StatusCode::SERVICE_UNAVAILABLE);
    }

    #[test]
    fn an_exporter_of_a_cluster_whose_health_is_not_known_is_not_ready_and_does_not_say_whether_it_serves() {
        let of = |health| {
            let mut shared = shared(clock::now());
            let snapshot = obol_observe::Snapshot {
                at: clock::now(),
                view: None,
                processes: Vec::new(),
                remote: Vec::new(),
                health,
                reasons: vec!["host 2 does not answer".to_owned()],
            };
            let mut polled = shared.newest().polled.clone();
            polled.reading =
                Ok(Reading { snapshot, leader: None, deciders_running: 1, rows: Vec::new(), gateway: None });
            shared.newest = Mutex::new(Newest::new(polled));
            let text = shared.newest().text(Served { scrapes: 1, refused: 0 }, Format::Prometheus, false);
            let text = String::from_utf8_lossy(&text).into_owned();
            (readiness(&shared).status(), text)
        };
        let (status, text) = of(Health::Degraded);
        assert_eq!(status, StatusCode::OK);
        assert!(text.contains("obol_serves{cluster=\"a\"} 1\n"), "{text}");
        let (status, text) = of(Health::Unknown);
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(text.contains("obol_health{cluster=\"a\",state=\"unknown\"} 1\n"), "{text}");
        assert!(!text.contains("obol_serves{"), "{text}");
    }

    /// What is answered to bytes whose sender ends its side after them.
    fn answered(shared: Shared, request: &str) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(WRITERS_MAX)
            .build()
            .expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let at = listener.local_addr().expect("bound");
        // All of it is there before the server takes the connection.
        let mut client = std::net::TcpStream::connect(at).expect("connected");
        client.write_all(request.as_bytes()).expect("sent");
        client.shutdown(std::net::Shutdown::Write).expect("ended");
        let reader = thread::spawn(move || {
            let mut answer = String::new();
            io::Read::read_to_string(&mut client, &mut answer).map(|_| answer).expect("an answer")
        });
        runtime.block_on(async {
            let (stream, _) = listener.accept().await.expect("a connection");
            // The client sees how it ended.
            let _ = connection(stream, Arc::new(shared), Arc::default()).await;
        });
        reader.join().expect("read")
    }

    #[test]
    fn an_exporter_that_is_not_alive_or_not_ready_does_not_say_ok() {
        let of = |path: &str, at| answered(shared(at), &format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let (now, hung) = (clock::now(), clock::now() - Nanos::from_secs(17));
        assert!(of("/healthz", now).ends_with("\r\n\r\nok\n"));
        for (path, at) in [("/readyz", now), ("/readyz", hung), ("/healthz", hung)] {
            let answer = of(path, at);
            assert!(answer.starts_with("HTTP/1.1 503 ") && !answer.contains("ok\n"), "{path}: {answer:?}");
        }
    }

    #[test]
    fn a_client_that_ends_its_side_after_the_request_is_answered() {
        for path in ["/metrics", "/healthz"] {
            let answer = answered(shared(clock::now()), &format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {answer:?}");
        }
    }

    #[test]
    fn several_headers_of_one_name_are_one_list() {
        let [plain, open] = ["text/plain;version=0.0.4;q=0.1", "application/openmetrics-text;version=1.0.0"];
        for [first, second] in [[plain, open], [open, plain]] {
            let accept = format!("Accept: {first}\r\nAccept: {second}\r\n");
            let answer =
                answered(shared(clock::now()), &format!("GET /metrics HTTP/1.1\r\nHost: a\r\n{accept}\r\n"));
            assert!(answer.contains("content-type: application/openmetrics-text"), "{accept}: {answer}");
        }
    }

    #[test]
    fn a_text_is_written_once_for_each_poll_and_format() {
        let newest = shared(clock::now()).newest();
        let text = |scrapes, format| newest.text(Served { scrapes, refused: 0 }, format, false);
        let first = text(1, Format::Prometheus);
        assert!(std::str::from_utf8(&first).is_ok_and(|text| text.contains("obol_up{cluster=\"a\"} 0\n")));
        assert_eq!(text(2, Format::Prometheus).as_ptr(), first.as_ptr());
        assert_ne!(text(3, Format::OpenMetrics), first);
    }
}

//! The control server: takes requests of other commands for the supervisor of a cluster.

use crate::control::{self, Answer, Request};
use obol_fabric::host::peer::{peer, user};
use obol_term::output::Failure;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

/// A caller that does not read its answer is given up after this long.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// A request and its caller.
pub(super) struct Ask {
    pub(super) request: Request,
    caller: UnixStream,
}

impl Ask {
    pub(super) fn answer(&self, answer: &Answer) {
        // A caller that went away does not want to know.
        let _ = control::write_line(&self.caller, answer);
    }
}

/// Takes requests on threads of its own.
pub(super) fn listen(dir: &Path) -> Result<Receiver<Ask>, Failure> {
    let at = dir.join(control::SOCKET);
    let failed = Failure::refused_at(&at);
    let listener = UnixListener::bind(&at).map_err(failed)?;
    let (tx, rx) = mpsc::channel();
    let accept = move || {
        for caller in listener.incoming().flatten() {
            let tx = tx.clone();
            // Each caller has a thread, so a silent one delays no other.
            std::thread::spawn(move || read_request(caller, &tx));
        }
    };
    std::thread::Builder::new().name("control".to_owned()).spawn(accept).map_err(failed)?;
    Ok(rx)
}

fn read_request(caller: UnixStream, tx: &Sender<Ask>) {
    // Directory and socket are private, but modes can be changed, and descriptors handed on.
    let allowed = peer(&caller).is_ok_and(|who| who.uid == 0 || who.uid == user());
    // The supervisor writes the answer itself and must not hang on a caller that does not read.
    if caller.set_write_timeout(Some(ANSWER_TIMEOUT)).is_err() {
        return;
    }
    if !allowed && caller.set_read_timeout(Some(ANSWER_TIMEOUT)).is_err() {
        return;
    }
    let reason = match control::read_line::<Request>(&caller) {
        // If the supervisor is ending, the caller sees the connection close.
        Ok(request) if allowed => return drop(tx.send(Ask { request, caller })),
        // It was read first: an answer to what was not read is lost with the connection.
        Ok(_) => "only the user who runs `obol up`, and root, may ask it for anything".to_owned(),
        Err(_) if !allowed => return,
        Err(error) => format!("not a request: {error}"),
    };
    // A caller that went away does not want to know.
    let _ = control::write_line(&caller, &Answer::Refused { reason });
}

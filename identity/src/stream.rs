//! A sealed connection (TLS 1.3 over TCP) that carries messages in both directions without
//! blocking.

use obol_fabric::host::tcp;
use obol_fabric::types::Nanos;
use rustls::Connection;
use rustls::pki_types::CertificateDer;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

/// The length of a message precedes it.
pub const LENGTH_BYTES: usize = 4;
/// The most bytes that wait to be sent: a peer that does not take its answers is given up.
const UNSENT_MAX: usize = 4 << 20;
/// Room for what one system call receives.
const RECEIVE_BYTES: usize = 16 << 10;
/// What one call of [`Stream::receive`] takes at most. The rest stays with the kernel, so a peer that
/// sends faster than its messages are handled waits, and neither memory nor time goes to it alone.
pub(crate) const RECEIVED_MAX: usize = 256 << 10;

/// After how long without acknowledgement a packet is repeated at the earliest: two ticks of the kernel's
/// timers, where they are slowest.
const RTO_MIN: Nanos = Nanos::from_millis(20);

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// By the peer, in order.
    #[error("the peer has closed the connection")]
    Closed,
    /// By the kernel.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// By bytes that are not of its session.
    #[error("{0}")]
    Tls(#[from] rustls::Error),
    /// By a message that no process of the cluster sends.
    #[error("a message of {0} bytes")]
    TooLong(usize),
    /// By a peer that reads too slowly.
    #[error("the peer does not take its answers")]
    Full,
}

/// A connection.
pub struct Stream {
    socket: TcpStream,
    tls: Connection,
    /// The longest message that the peer may send.
    message_bytes_max: usize,
    /// Received and decrypted; the messages before `taken` were taken.
    input: Vec<u8>,
    taken: usize,
    /// Messages that are not encrypted yet.
    pub output: Vec<u8>,
    /// Bytes of messages that are encrypted, while the socket has not taken all of them.
    leaving: usize,
    received: Box<[u8]>,
    work: usize,
    /// Whether the socket has taken anything since [`Stream::take_progress`].
    progress: bool,
}

impl Stream {
    /// `socket` is put into non-blocking mode.
    pub fn new(socket: TcpStream, mut tls: Connection, message_bytes_max: usize) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        // Operations are small, and each waits for its answer.
        socket.set_nodelay(true)?;
        tcp::repeat_early(&socket, RTO_MIN);
        tls.set_buffer_limit(None);
        let received = vec![0; RECEIVE_BYTES].into();
        Ok(Self {
            socket,
            tls,
            message_bytes_max,
            input: Vec::new(),
            taken: 0,
            output: Vec::new(),
            leaving: 0,
            received,
            work: 0,
            progress: false,
        })
    }

    /// The certificate of the peer, once the handshake is complete.
    pub fn peer(&self) -> Option<&CertificateDer<'static>> {
        if self.tls.is_handshaking() { None } else { self.tls.peer_certificates()?.first() }
    }

    /// Bytes that only the two ends of this connection know, for another use than its own.
    pub fn export<const N: usize>(&self, label: &[u8]) -> Option<[u8; N]> {
        self.tls.export_keying_material([0; N], label, None).ok()
    }

    /// Receives what has arrived, or a part of it. Returns whether there was anything.
    pub fn receive(&mut self) -> Result<bool, StreamError> {
        let mut any = false;
        for _ in 0..RECEIVED_MAX / RECEIVE_BYTES {
            let n = match self.socket.read(&mut self.received) {
                Ok(0) => return Err(StreamError::Closed),
                Ok(n) => n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(any),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            any = true;
            self.decrypt(n)?;
            if n < self.received.len() {
                // What arrives from now on is found the next time.
                break;
            }
        }
        Ok(any)
    }

    fn decrypt(&mut self, n: usize) -> Result<(), StreamError> {
        if self.taken == self.input.len() {
            self.input.clear();
            self.taken = 0;
        }
        self.work += n;
        let mut raw = self.received.get(..n).unwrap_or_default();
        while !raw.is_empty() {
            self.tls.read_tls(&mut raw)?;
            let state = self.tls.process_new_packets()?;
            let (start, more) = (self.input.len(), state.plaintext_bytes_to_read());
            if more > 0 {
                self.input.resize(start + more, 0);
                if let Some(room) = self.input.get_mut(start..) {
                    self.tls.reader().read_exact(room)?;
                }
            }
            if state.peer_has_closed() {
                return Err(StreamError::Closed);
            }
        }
        Ok(())
    }

    /// Takes the next complete message.
    pub fn next_message(&mut self) -> Result<Option<&[u8]>, StreamError> {
        let rest = self.input.get(self.taken..).unwrap_or_default();
        let Some((head, rest)) = rest.split_first_chunk::<LENGTH_BYTES>() else {
            self.compact();
            return Ok(None);
        };
        let len = u32::from_le_bytes(*head) as usize;
        if len > self.message_bytes_max {
            return Err(StreamError::TooLong(len));
        }
        if rest.len() < len {
            self.compact();
            return Ok(None);
        }
        let start = self.taken + LENGTH_BYTES;
        self.taken = start + len;
        Ok(self.input.get(start..start + len))
    }

    /// Drops messages that were taken, so that an unfinished one finds room.
    fn compact(&mut self) {
        self.input.drain(..self.taken);
        self.taken = 0;
    }

    /// Bytes of messages that the socket has not taken, or not all of them.
    pub const fn unsent(&self) -> usize {
        self.output.len() + self.leaving
    }

    /// Bytes that were decrypted and encrypted since the last call.
    pub const fn take_work(&mut self) -> usize {
        core::mem::replace(&mut self.work, 0)
    }

    /// Whether the socket has taken anything since the last call.
    pub const fn take_progress(&mut self) -> bool {
        core::mem::replace(&mut self.progress, false)
    }

    /// Whether the socket has not taken all that was sent.
    pub fn is_stalled(&self) -> bool {
        self.tls.wants_write() || !self.output.is_empty()
    }

    /// Sends what the socket takes. Returns whether that was all.
    pub fn send(&mut self) -> Result<bool, StreamError> {
        loop {
            // Bounded by what the socket takes: encrypted only after the rest has left.
            while self.tls.wants_write() {
                match self.tls.write_tls(&mut self.socket) {
                    Ok(_) => self.progress = true,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        let full = self.output.len() > UNSENT_MAX;
                        return if full { Err(StreamError::Full) } else { Ok(false) };
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error.into()),
                }
            }
            self.leaving = 0;
            if self.output.is_empty() || self.tls.is_handshaking() {
                return Ok(self.output.is_empty());
            }
            self.tls.writer().write_all(&self.output)?;
            (self.leaving, self.work) = (self.output.len(), self.work + self.output.len());
            self.output.clear();
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

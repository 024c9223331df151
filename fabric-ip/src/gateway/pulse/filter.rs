//! The program by which the kernel drops what cannot be a frame, before it takes room in a socket's
//! buffer or time of the thread of the pulses (classic BPF). A frame has the length of one, the header
//! of [`super::seal`], and the number of a session that is open, which only the two hosts of the session
//! know, and who can read packets between them. What passes is opened all the same.

use super::seal::{
    DATAGRAM_BYTES_MAX, DATAGRAM_BYTES_MIN, HOST_AT, KIND_AT, MAGIC, NOTICE, PATH_AT, SESSION_AT, ZERO_AT,
};
use libc::{BPF_ABS, BPF_B, BPF_JEQ, BPF_JGT, BPF_JMP, BPF_K, BPF_LD, BPF_LEN, BPF_RET, BPF_W, sock_filter};
use obol_fabric::host::HOST_MAX;

/// The header of UDP, which the program sees as well.
const UDP_BYTES: u32 = 8;
/// Instructions of a session, and of all else.
const SESSION_OPS: usize = 7;
const OTHER_OPS: usize = 18;

/// A session whose frames are taken: the host at the other end, and its number.
pub(super) type Open = (u8, u64);

const fn op(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

/// The program of a path, for its socket of pulses or that of `notices`.
pub(super) fn program(path: u8, notices: bool, open: &[Open]) -> Vec<sock_filter> {
    let load = |size: u32, at: usize| op(BPF_LD | size | BPF_ABS, 0, 0, UDP_BYTES + at as u32);
    let drop = op(BPF_RET | BPF_K, 0, 0, 0);
    let take = op(BPF_RET | BPF_K, 0, 0, u32::MAX);
    let equals = BPF_JMP | BPF_JEQ | BPF_K;
    let beyond = BPF_JMP | BPF_JGT | BPF_K;
    let (shortest, longest) = (DATAGRAM_BYTES_MIN as u32, DATAGRAM_BYTES_MAX as u32);
    let kind = if notices { NOTICE } else { 0 };
    let mut ops = Vec::with_capacity(OTHER_OPS + open.len() * SESSION_OPS);
    ops.push(op(BPF_LD | BPF_LEN | BPF_W, 0, 0, 0));
    ops.extend([op(beyond, 0, 1, UDP_BYTES + longest), drop]);
    ops.extend([op(beyond, 1, 0, UDP_BYTES + shortest - 1), drop]);
    ops.extend([load(BPF_W, 0), op(equals, 1, 0, u32::from_be_bytes(MAGIC)), drop]);
    for (at, is) in [(PATH_AT, path), (KIND_AT, kind), (ZERO_AT, 0)] {
        ops.extend([load(BPF_B, at), op(equals, 1, 0, u32::from(is)), drop]);
    }
    for (host, session) in open {
        let [low, high] = halves(*session);
        // Each that does not fit goes on with the next session.
        ops.extend([load(BPF_B, HOST_AT), op(equals, 0, 5, u32::from(*host))]);
        ops.extend([load(BPF_W, SESSION_AT), op(equals, 0, 3, low)]);
        ops.extend([load(BPF_W, SESSION_AT + 4), op(equals, 0, 1, high), take]);
    }
    ops.push(drop);
    ops
}

/// The halves of a word as the program loads them: a session is little-endian, a load is not.
fn halves(word: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
    [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])]
}

const _: () = assert!(OTHER_OPS + HOST_MAX as usize * SESSION_OPS < 4096, "the most that the kernel takes");

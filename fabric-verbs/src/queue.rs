//! Completion queues, and descriptors to wait for completions.
#![allow(unsafe_code)]

use super::context::Context;
use super::error::VerbsError;
use super::sys::{self, ibv_comp_channel, ibv_cq, ibv_wc};
use core::ffi::c_int;
use core::ptr::{NonNull, null_mut};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// The result of a posted operation, from the device (`struct ibv_wc`).
#[derive(Clone, Copy, Debug, Default)]
#[repr(transparent)]
pub struct WorkCompletion(pub(crate) ibv_wc);

impl WorkCompletion {
    /// The number of the posted operation.
    pub const fn id(&self) -> u64 {
        self.0.wr_id
    }

    pub const fn status(&self) -> Status {
        Status(self.0.status)
    }

    /// Whether it is a receive; only valid on success.
    pub const fn is_receive(&self) -> bool {
        self.0.opcode & sys::IBV_WC_RECV != 0
    }

    /// The number of received bytes, including the header of a datagram.
    pub const fn bytes(&self) -> u32 {
        self.0.byte_len
    }

    /// The sender's queue pair, of a datagram.
    pub const fn source_queue_pair(&self) -> u32 {
        self.0.src_qp
    }
}

/// `enum ibv_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status(pub(crate) u32);

impl Status {
    /// It was executed.
    pub const SUCCESS: Self = Self(sys::IBV_WC_SUCCESS);
    /// Not executed: an earlier operation failed, or the queue pair was stopped.
    pub const FLUSHED: Self = Self(sys::IBV_WC_WR_FLUSH_ERR);
    /// Refused by the peer's device: invalid key, missing right, or out of range.
    pub const REMOTE_ACCESS: Self = Self(sys::IBV_WC_REM_ACCESS_ERR);
    /// Invalid for the peer's device: misaligned, too long, or not permitted on this queue pair.
    pub const REMOTE_INVALID: Self = Self(sys::IBV_WC_REM_INV_REQ_ERR);

    /// The name of an `enum ibv_wc_status` in the InfiniBand specification.
    pub const fn name(self) -> &'static str {
        match self.0 {
            sys::IBV_WC_SUCCESS => "success",
            sys::IBV_WC_LOC_LEN_ERR => "local length error",
            sys::IBV_WC_LOC_QP_OP_ERR => "local QP operation error",
            sys::IBV_WC_LOC_PROT_ERR => "local protection error",
            sys::IBV_WC_WR_FLUSH_ERR => "flushed",
            sys::IBV_WC_MW_BIND_ERR => "memory window bind error",
            sys::IBV_WC_BAD_RESP_ERR => "bad response error",
            sys::IBV_WC_LOC_ACCESS_ERR => "local access error",
            sys::IBV_WC_REM_INV_REQ_ERR => "remote invalid request error",
            sys::IBV_WC_REM_ACCESS_ERR => "remote access error",
            sys::IBV_WC_REM_OP_ERR => "remote operation error",
            sys::IBV_WC_RETRY_EXC_ERR => "transport retry counter exceeded",
            sys::IBV_WC_RNR_RETRY_EXC_ERR => "RNR retry counter exceeded",
            sys::IBV_WC_FATAL_ERR => "fatal error",
            sys::IBV_WC_RESP_TIMEOUT_ERR => "response timeout error",
            _ => "error",
        }
    }
}

/// A descriptor that becomes readable when an armed queue gets a completion.
#[derive(Debug)]
pub struct CompletionChannel {
    raw: NonNull<ibv_comp_channel>,
    context: Arc<Context>,
}

// SAFETY: as for `Context`.
unsafe impl Send for CompletionChannel {}
// SAFETY: as above.
unsafe impl Sync for CompletionChannel {}

impl CompletionChannel {
    /// Creates a non-blocking one.
    pub fn new(context: &Arc<Context>) -> Result<Arc<Self>, VerbsError> {
        // SAFETY: the context is open.
        let raw = unsafe { (context.verbs().create_comp_channel)(context.raw().as_ptr()) };
        let raw =
            NonNull::new(raw).ok_or_else(|| VerbsError::last("ibv_create_comp_channel", context.device()))?;
        let channel = Arc::new(Self { raw, context: Arc::clone(context) });
        no_block(channel.as_fd()).map_err(|errno| VerbsError::failed("fcntl", context.device(), errno))?;
        Ok(channel)
    }

    /// Takes one event, if there is one. Another thread may have taken it: poll the queue in that
    /// case.
    pub fn take_event(&self) -> Result<bool, VerbsError> {
        let (mut queue, mut user) = (null_mut(), null_mut());
        let verbs = self.context.verbs();
        // SAFETY: the channel lives, and both are valid for writes.
        if unsafe { (verbs.get_cq_event)(self.raw.as_ptr(), &raw mut queue, &raw mut user) } != 0 {
            return match io::Error::last_os_error().raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => Ok(false),
                errno => Err(VerbsError::failed(
                    "ibv_get_cq_event",
                    self.context.device(),
                    errno.unwrap_or(libc::EIO),
                )),
            };
        }
        // SAFETY: the event is of a living queue: one is not destroyed before its events are
        // acknowledged, and that is done here, once.
        unsafe { (verbs.ack_cq_events)(queue, 1) };
        Ok(true)
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the channel lives.
        unsafe { BorrowedFd::borrow_raw(self.raw.as_ref().fd) }
    }
}

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        // SAFETY: all queues on the channel hold it, so none is left; it is destroyed once.
        unsafe { (self.context.verbs().destroy_comp_channel)(self.raw.as_ptr()) };
    }
}

#[derive(Debug)]
pub struct CompletionQueue {
    raw: NonNull<ibv_cq>,
    context: Arc<Context>,
    /// Kept so that it outlives the queue.
    _channel: Option<Arc<CompletionChannel>>,
}

// SAFETY: as for `Context`: polling and arming are safe from any thread.
unsafe impl Send for CompletionQueue {}
// SAFETY: as above.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// Creates one for at least `entries` completions. An overflow breaks all its queue pairs.
    pub fn new(
        context: &Arc<Context>,
        entries: u32,
        channel: Option<&Arc<CompletionChannel>>,
    ) -> Result<Arc<Self>, VerbsError> {
        if channel.is_some_and(|c| !Arc::ptr_eq(&c.context, context)) {
            return Err(VerbsError::failed("ibv_create_cq", context.device(), libc::EXDEV));
        }
        let entries = c_int::try_from(entries).unwrap_or(c_int::MAX);
        let raw_channel = channel.map_or(null_mut(), |c| c.raw.as_ptr());
        // SAFETY: context and channel are open, and the channel is held as long as the queue lives.
        let raw = unsafe {
            (context.verbs().create_cq)(context.raw().as_ptr(), entries, null_mut(), raw_channel, 0)
        };
        let raw = NonNull::new(raw).ok_or_else(|| VerbsError::last("ibv_create_cq", context.device()))?;
        Ok(Arc::new(Self { raw, context: Arc::clone(context), _channel: channel.cloned() }))
    }

    /// Its device.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) const fn raw(&self) -> NonNull<ibv_cq> {
        self.raw
    }

    /// Takes completions, oldest first; returns how many of `out` were filled. Makes no system call
    /// with providers that map their queues, which all do.
    #[inline]
    pub fn poll(&self, out: &mut [WorkCompletion]) -> Result<usize, PostError> {
        let len = c_int::try_from(out.len()).unwrap_or(c_int::MAX);
        // SAFETY: the queue lives; `out` is valid for `len` completions, and a `WorkCompletion` is
        // an `ibv_wc`.
        let taken = unsafe {
            match self.raw.as_ref().context.as_ref().and_then(|context| context.ops.poll_cq) {
                Some(poll) => poll(self.raw.as_ptr(), len, out.as_mut_ptr().cast()),
                None => return Err(PostError(libc::ENOSYS)),
            }
        };
        usize::try_from(taken).map_err(|_| PostError(libc::EIO))
    }

    /// Makes the channel readable on the next completion, once. Poll again after this, before
    /// sleeping.
    pub fn arm(&self) -> Result<(), PostError> {
        // SAFETY: the queue lives.
        let errno = unsafe {
            match self.raw.as_ref().context.as_ref().and_then(|context| context.ops.req_notify_cq) {
                Some(arm) => arm(self.raw.as_ptr(), 0),
                None => libc::ENOSYS,
            }
        };
        PostError::check(errno)
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: all queue pairs on the queue hold it, so none is left; it is destroyed once.
        unsafe { (self.context.verbs().destroy_cq)(self.raw.as_ptr()) };
    }
}

/// The error number with which the device refused an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the device refused an operation: {}", io::Error::from_raw_os_error(*.0))]
pub struct PostError(pub i32);

impl PostError {
    pub(crate) const fn check(errno: c_int) -> Result<(), Self> {
        // Old providers return -1.
        match errno {
            0 => Ok(()),
            n if n < 0 => Err(Self(libc::EIO)),
            n => Err(Self(n)),
        }
    }
}

/// Makes reads of a descriptor non-blocking.
pub(crate) fn no_block(fd: BorrowedFd<'_>) -> Result<(), i32> {
    let set = |flags| fcntl(fd, FcntlArg::F_SETFL(OFlag::from_bits_retain(flags) | OFlag::O_NONBLOCK));
    fcntl(fd, FcntlArg::F_GETFL).and_then(set).map(drop).map_err(|errno| errno as i32)
}

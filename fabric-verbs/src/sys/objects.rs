//! Objects of libibverbs: created and freed by the library, with the first fields, which
//! applications may read, the operations that the headers call through the device's context, and the
//! work requests and completions that these take.

use core::ffi::{c_int, c_uint, c_void};
use libc::{pthread_cond_t, pthread_mutex_t};

/// Only its name is needed, which a function returns.
#[repr(C)]
pub(crate) struct ibv_device {
    opaque: [u8; 0],
}

/// Not used.
#[repr(C)]
pub(crate) struct ibv_srq {
    opaque: [u8; 0],
}

/// Not used.
#[repr(C)]
pub(crate) struct ibv_mw {
    opaque: [u8; 0],
}

#[repr(C)]
pub(crate) struct ibv_comp_channel {
    pub(crate) context: *mut ibv_context,
    pub(crate) fd: c_int,
    pub(crate) refcnt: c_int,
}

#[repr(C)]
pub(crate) struct ibv_pd {
    pub(crate) context: *mut ibv_context,
    pub(crate) handle: u32,
}

#[repr(C)]
pub(crate) struct ibv_ah {
    pub(crate) context: *mut ibv_context,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) handle: u32,
}

#[repr(C)]
pub(crate) struct ibv_mr {
    pub(crate) context: *mut ibv_context,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) addr: *mut c_void,
    pub(crate) length: usize,
    pub(crate) handle: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

#[repr(C)]
pub(crate) struct ibv_cq {
    pub(crate) context: *mut ibv_context,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) cq_context: *mut c_void,
    pub(crate) handle: u32,
    pub(crate) cqe: c_int,
    mutex: pthread_mutex_t,
    cond: pthread_cond_t,
    comp_events_completed: u32,
    async_events_completed: u32,
}

#[repr(C)]
pub(crate) struct ibv_qp {
    pub(crate) context: *mut ibv_context,
    pub(crate) qp_context: *mut c_void,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) srq: *mut ibv_srq,
    pub(crate) handle: u32,
    pub(crate) qp_num: u32,
    pub(crate) state: c_uint,
    pub(crate) qp_type: c_uint,
    mutex: pthread_mutex_t,
    cond: pthread_cond_t,
    events_completed: u32,
}

/// An unused entry of the table.
type Unused = Option<unsafe extern "C" fn()>;

/// The targets of the header's inline functions, for which the library has no symbols.
#[repr(C)]
pub(crate) struct ibv_context_ops {
    unused_to_poll: [Unused; 11],
    pub(crate) poll_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int>,
    pub(crate) req_notify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int>,
    unused_to_post: [Unused; 12],
    pub(crate) post_send:
        Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int>,
    pub(crate) post_recv:
        Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
    unused_to_end: [Unused; 5],
}

#[repr(C)]
pub(crate) struct ibv_context {
    pub(crate) device: *mut ibv_device,
    pub(crate) ops: ibv_context_ops,
    pub(crate) cmd_fd: c_int,
    pub(crate) async_fd: c_int,
    pub(crate) num_comp_vectors: c_int,
    mutex: pthread_mutex_t,
    abi_compat: *mut c_void,
}

#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub(crate) struct ibv_sge {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_send_wr_rdma {
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_send_wr_atomic {
    pub(crate) remote_addr: u64,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
    pub(crate) rkey: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_send_wr_ud {
    pub(crate) ah: *mut ibv_ah,
    pub(crate) remote_qpn: u32,
    pub(crate) remote_qkey: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union ibv_send_wr_wr {
    pub(crate) rdma: ibv_send_wr_rdma,
    pub(crate) atomic: ibv_send_wr_atomic,
    pub(crate) ud: ibv_send_wr_ud,
}

/// Memory windows are not used; this keeps the size of a work request.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_mw_bind_info {
    pub(crate) mr: *mut ibv_mr,
    pub(crate) addr: u64,
    pub(crate) length: u64,
    pub(crate) mw_access_flags: c_uint,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_send_wr_bind_mw {
    pub(crate) mw: *mut ibv_mw,
    pub(crate) rkey: u32,
    pub(crate) bind_info: ibv_mw_bind_info,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_send_wr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut ibv_send_wr,
    pub(crate) sg_list: *mut ibv_sge,
    pub(crate) num_sge: c_int,
    pub(crate) opcode: c_uint,
    pub(crate) send_flags: c_uint,
    pub(crate) imm_data: u32,
    pub(crate) wr: ibv_send_wr_wr,
    pub(crate) xrc_remote_srqn: u32,
    pub(crate) bind_mw: ibv_send_wr_bind_mw,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_recv_wr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut ibv_recv_wr,
    pub(crate) sg_list: *mut ibv_sge,
    pub(crate) num_sge: c_int,
}

#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub(crate) struct ibv_wc {
    pub(crate) wr_id: u64,
    pub(crate) status: c_uint,
    pub(crate) opcode: c_uint,
    pub(crate) vendor_err: u32,
    pub(crate) byte_len: u32,
    pub(crate) imm_data: u32,
    pub(crate) qp_num: u32,
    pub(crate) src_qp: u32,
    pub(crate) wc_flags: c_uint,
    pub(crate) pkey_index: u16,
    pub(crate) slid: u16,
    pub(crate) sl: u8,
    pub(crate) dlid_path_bits: u8,
}

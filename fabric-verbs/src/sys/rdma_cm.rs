//! Structures and constants of `<rdma/rdma_cma.h>`.

use super::objects::{ibv_comp_channel, ibv_context, ibv_cq, ibv_pd, ibv_qp, ibv_srq};
use super::values::{ibv_ah_attr, ibv_gid};
use core::ffi::{c_int, c_uint, c_void};
use libc::sockaddr_storage;

#[repr(C)]
pub(crate) struct rdma_event_channel {
    pub(crate) fd: c_int,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct rdma_ib_addr {
    pub(crate) sgid: ibv_gid,
    pub(crate) dgid: ibv_gid,
    pub(crate) pkey: u16,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct rdma_addr {
    pub(crate) src_storage: sockaddr_storage,
    pub(crate) dst_storage: sockaddr_storage,
    pub(crate) ibaddr: rdma_ib_addr,
}

#[repr(C)]
pub(crate) struct rdma_route {
    pub(crate) addr: rdma_addr,
    pub(crate) path_rec: *mut c_void,
    pub(crate) num_paths: c_int,
}

#[repr(C)]
pub(crate) struct rdma_cm_id {
    pub(crate) verbs: *mut ibv_context,
    pub(crate) channel: *mut rdma_event_channel,
    pub(crate) context: *mut c_void,
    pub(crate) qp: *mut ibv_qp,
    pub(crate) route: rdma_route,
    pub(crate) ps: c_uint,
    pub(crate) port_num: u8,
    pub(crate) event: *mut rdma_cm_event,
    pub(crate) send_cq_channel: *mut ibv_comp_channel,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq_channel: *mut ibv_comp_channel,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) srq: *mut ibv_srq,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) qp_type: c_uint,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct rdma_conn_param {
    pub(crate) private_data: *const c_void,
    pub(crate) private_data_len: u8,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) srq: u8,
    pub(crate) qp_num: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct rdma_ud_param {
    pub(crate) private_data: *const c_void,
    pub(crate) private_data_len: u8,
    pub(crate) ah_attr: ibv_ah_attr,
    pub(crate) qp_num: u32,
    pub(crate) qkey: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union rdma_cm_event_param {
    pub(crate) conn: rdma_conn_param,
    pub(crate) ud: rdma_ud_param,
}

#[repr(C)]
pub(crate) struct rdma_cm_event {
    pub(crate) id: *mut rdma_cm_id,
    pub(crate) listen_id: *mut rdma_cm_id,
    pub(crate) event: c_uint,
    pub(crate) status: c_int,
    pub(crate) param: rdma_cm_event_param,
}

pub(crate) const RDMA_PS_TCP: c_uint = 0x0106;
pub(crate) const RDMA_PS_UDP: c_uint = 0x0111;

/// The key of all datagrams of `RDMA_PS_UDP` and of all groups that are joined through it.
pub(crate) const RDMA_UDP_QKEY: u32 = 0x0123_4567;

pub(crate) const RDMA_OPTION_ID: c_int = 0;
pub(crate) const RDMA_OPTION_ID_TOS: c_int = 0;
pub(crate) const RDMA_OPTION_ID_REUSEADDR: c_int = 1;

pub(crate) const RDMA_CM_EVENT_ADDR_RESOLVED: c_uint = 0;
pub(crate) const RDMA_CM_EVENT_ADDR_ERROR: c_uint = 1;
pub(crate) const RDMA_CM_EVENT_ROUTE_RESOLVED: c_uint = 2;
pub(crate) const RDMA_CM_EVENT_ROUTE_ERROR: c_uint = 3;
pub(crate) const RDMA_CM_EVENT_CONNECT_REQUEST: c_uint = 4;
pub(crate) const RDMA_CM_EVENT_CONNECT_RESPONSE: c_uint = 5;
pub(crate) const RDMA_CM_EVENT_CONNECT_ERROR: c_uint = 6;
pub(crate) const RDMA_CM_EVENT_UNREACHABLE: c_uint = 7;
pub(crate) const RDMA_CM_EVENT_REJECTED: c_uint = 8;
pub(crate) const RDMA_CM_EVENT_ESTABLISHED: c_uint = 9;
pub(crate) const RDMA_CM_EVENT_DISCONNECTED: c_uint = 10;
pub(crate) const RDMA_CM_EVENT_DEVICE_REMOVAL: c_uint = 11;
pub(crate) const RDMA_CM_EVENT_MULTICAST_JOIN: c_uint = 12;
pub(crate) const RDMA_CM_EVENT_MULTICAST_ERROR: c_uint = 13;

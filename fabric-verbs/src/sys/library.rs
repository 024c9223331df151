//! The two libraries, resolved at run time with `dlopen` and `dlvsym`, as NCCL does: one binary
//! starts on hosts with and without them. Libraries are never unloaded: providers keep threads and
//! fork handlers.
#![allow(unsafe_code)]

use super::objects::{ibv_ah, ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_mr, ibv_pd, ibv_qp};
use super::rdma_cm::{rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel};
use super::values::{ibv_ah_attr, ibv_device_attr, ibv_gid, ibv_port_attr, ibv_qp_attr, ibv_qp_init_attr};
use crate::error::{Library, VerbsError};
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::ptr::NonNull;
use libc::sockaddr;
use std::sync::OnceLock;

/// Whether this program is linked statically. `dlopen` then needs the very C library that it was
/// linked with, and is undefined with any other.
fn is_static() -> bool {
    // SAFETY: takes and returns numbers.
    unsafe { libc::getauxval(libc::AT_BASE) == 0 }
}

fn open(library: Library) -> Result<NonNull<c_void>, VerbsError> {
    if is_static() {
        return Err(VerbsError::Static { library });
    }
    // SAFETY: the name ends in a zero. Loading runs the library's constructors; these are libraries
    // of the system.
    let handle = unsafe { libc::dlopen(library.file().as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    NonNull::new(handle).ok_or_else(|| {
        // SAFETY: takes nothing; the string, if any, stays valid until this thread's next call.
        let reason = unsafe {
            let text = libc::dlerror();
            if text.is_null() { "no reason given".into() } else { CStr::from_ptr(text).to_string_lossy() }
        };
        VerbsError::NoLibrary { library, reason: reason.into_owned() }
    })
}

fn symbol(
    library: Library,
    handle: NonNull<c_void>,
    name: &'static CStr,
    version: &'static CStr,
) -> Result<NonNull<c_void>, VerbsError> {
    // SAFETY: the handle is of an open library and both strings end in a zero.
    let at = unsafe { libc::dlvsym(handle.as_ptr(), name.as_ptr(), version.as_ptr()) };
    NonNull::new(at).ok_or(VerbsError::NoSymbol { library, symbol: name, version })
}

/// `$name($arguments) -> $result = $symbol @ $version;`: a structure of function pointers, and its
/// initialisation.
macro_rules! table {
    ($(#[$meta:meta])* $table:ident of $library:expr; $($name:ident($($type:ty),*) $(-> $result:ty)? = $symbol:literal @ $version:literal;)*) => {
        $(#[$meta])*
        #[derive(Debug)]
        pub(crate) struct $table {
            $(pub(crate) $name: unsafe extern "C" fn($($type),*) $(-> $result)?,)*
        }

        impl $table {
            fn load() -> Result<Self, VerbsError> {
                let handle = open($library)?;
                Ok(Self {
                    $($name: {
                        let at = symbol($library, handle, $symbol, $version)?;
                        // SAFETY: the symbol of this version is a function of this type, says the
                        // library's header.
                        unsafe {
                            core::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn($($type),*) $(-> $result)?>(at)
                        }
                    },)*
                })
            }

            /// The library's functions; the first call loads it.
            pub(crate) fn get() -> Result<&'static Self, VerbsError> {
                static TABLE: OnceLock<Result<$table, VerbsError>> = OnceLock::new();
                TABLE.get_or_init(Self::load).as_ref().map_err(Clone::clone)
            }
        }
    };
}

table! {
    /// libibverbs, without the functions that the header calls through `ibv_context_ops`.
    Verbs of Library::Ibverbs;
    get_device_list(*mut c_int) -> *mut *mut ibv_device = c"ibv_get_device_list" @ c"IBVERBS_1.1";
    free_device_list(*mut *mut ibv_device) = c"ibv_free_device_list" @ c"IBVERBS_1.1";
    get_device_name(*mut ibv_device) -> *const c_char = c"ibv_get_device_name" @ c"IBVERBS_1.1";
    open_device(*mut ibv_device) -> *mut ibv_context = c"ibv_open_device" @ c"IBVERBS_1.1";
    close_device(*mut ibv_context) -> c_int = c"ibv_close_device" @ c"IBVERBS_1.1";
    query_device(*mut ibv_context, *mut ibv_device_attr) -> c_int = c"ibv_query_device" @ c"IBVERBS_1.1";
    query_port(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int = c"ibv_query_port" @ c"IBVERBS_1.1";
    query_gid(*mut ibv_context, u8, c_int, *mut ibv_gid) -> c_int = c"ibv_query_gid" @ c"IBVERBS_1.1";
    alloc_pd(*mut ibv_context) -> *mut ibv_pd = c"ibv_alloc_pd" @ c"IBVERBS_1.1";
    dealloc_pd(*mut ibv_pd) -> c_int = c"ibv_dealloc_pd" @ c"IBVERBS_1.1";
    reg_mr(*mut ibv_pd, *mut c_void, usize, c_uint) -> *mut ibv_mr = c"ibv_reg_mr" @ c"IBVERBS_1.1";
    dereg_mr(*mut ibv_mr) -> c_int = c"ibv_dereg_mr" @ c"IBVERBS_1.1";
    create_comp_channel(*mut ibv_context) -> *mut ibv_comp_channel = c"ibv_create_comp_channel" @ c"IBVERBS_1.0";
    destroy_comp_channel(*mut ibv_comp_channel) -> c_int = c"ibv_destroy_comp_channel" @ c"IBVERBS_1.0";
    create_cq(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq
        = c"ibv_create_cq" @ c"IBVERBS_1.1";
    destroy_cq(*mut ibv_cq) -> c_int = c"ibv_destroy_cq" @ c"IBVERBS_1.1";
    get_cq_event(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int
        = c"ibv_get_cq_event" @ c"IBVERBS_1.1";
    ack_cq_events(*mut ibv_cq, c_uint) = c"ibv_ack_cq_events" @ c"IBVERBS_1.1";
    create_qp(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp = c"ibv_create_qp" @ c"IBVERBS_1.1";
    modify_qp(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int = c"ibv_modify_qp" @ c"IBVERBS_1.1";
    destroy_qp(*mut ibv_qp) -> c_int = c"ibv_destroy_qp" @ c"IBVERBS_1.1";
    create_ah(*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah = c"ibv_create_ah" @ c"IBVERBS_1.1";
    destroy_ah(*mut ibv_ah) -> c_int = c"ibv_destroy_ah" @ c"IBVERBS_1.1";
    attach_mcast(*mut ibv_qp, *const ibv_gid, u16) -> c_int = c"ibv_attach_mcast" @ c"IBVERBS_1.1";
    detach_mcast(*mut ibv_qp, *const ibv_gid, u16) -> c_int = c"ibv_detach_mcast" @ c"IBVERBS_1.1";
}

table! {
    /// librdmacm.
    Cm of Library::Rdmacm;
    create_event_channel() -> *mut rdma_event_channel = c"rdma_create_event_channel" @ c"RDMACM_1.0";
    destroy_event_channel(*mut rdma_event_channel) = c"rdma_destroy_event_channel" @ c"RDMACM_1.0";
    get_cm_event(*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int = c"rdma_get_cm_event" @ c"RDMACM_1.0";
    ack_cm_event(*mut rdma_cm_event) -> c_int = c"rdma_ack_cm_event" @ c"RDMACM_1.0";
    create_id(*mut rdma_event_channel, *mut *mut rdma_cm_id, *mut c_void, c_uint) -> c_int
        = c"rdma_create_id" @ c"RDMACM_1.0";
    destroy_id(*mut rdma_cm_id) -> c_int = c"rdma_destroy_id" @ c"RDMACM_1.0";
    set_option(*mut rdma_cm_id, c_int, c_int, *mut c_void, usize) -> c_int = c"rdma_set_option" @ c"RDMACM_1.0";
    bind_addr(*mut rdma_cm_id, *mut sockaddr) -> c_int = c"rdma_bind_addr" @ c"RDMACM_1.0";
    resolve_addr(*mut rdma_cm_id, *mut sockaddr, *mut sockaddr, c_int) -> c_int
        = c"rdma_resolve_addr" @ c"RDMACM_1.0";
    resolve_route(*mut rdma_cm_id, c_int) -> c_int = c"rdma_resolve_route" @ c"RDMACM_1.0";
    listen(*mut rdma_cm_id, c_int) -> c_int = c"rdma_listen" @ c"RDMACM_1.0";
    get_src_port(*mut rdma_cm_id) -> u16 = c"rdma_get_src_port" @ c"RDMACM_1.0";
    connect(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int = c"rdma_connect" @ c"RDMACM_1.0";
    establish(*mut rdma_cm_id) -> c_int = c"rdma_establish" @ c"RDMACM_1.2";
    accept(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int = c"rdma_accept" @ c"RDMACM_1.0";
    reject(*mut rdma_cm_id, *const c_void, u8) -> c_int = c"rdma_reject" @ c"RDMACM_1.0";
    disconnect(*mut rdma_cm_id) -> c_int = c"rdma_disconnect" @ c"RDMACM_1.0";
    init_qp_attr(*mut rdma_cm_id, *mut ibv_qp_attr, *mut c_int) -> c_int = c"rdma_init_qp_attr" @ c"RDMACM_1.2";
    join_multicast(*mut rdma_cm_id, *mut sockaddr, *mut c_void) -> c_int = c"rdma_join_multicast" @ c"RDMACM_1.0";
    leave_multicast(*mut rdma_cm_id, *mut sockaddr) -> c_int = c"rdma_leave_multicast" @ c"RDMACM_1.0";
}

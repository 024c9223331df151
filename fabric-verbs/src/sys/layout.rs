//! Compares the definitions of this folder with the real headers: a C program, generated from the
//! same list, prints every size, offset and constant.

use super::objects::*;
use super::rdma_cm::*;
use super::values::*;
use core::fmt::Write as _;
use core::mem::{align_of, offset_of, size_of};
use std::process::{Command, Stdio};

/// A C expression and its expected value.
struct Question {
    c: String,
    ours: u64,
}

fn ask(c: String, ours: usize) -> Question {
    Question { c, ours: ours as u64 }
}

macro_rules! structure {
    ($list:ident, $($keyword:ident)? , $type:ident { $($field:ident),* }) => {
        let name = concat!($(stringify!($keyword), " ",)? stringify!($type));
        $list.push(ask(format!("sizeof({name})"), size_of::<$type>()));
        $list.push(ask(format!("_Alignof({name})"), align_of::<$type>()));
        $($list.push(ask(format!("offsetof({name}, {})", stringify!($field)), offset_of!($type, $field)));)*
    };
}

macro_rules! structures {
    ($list:ident; $($type:ident { $($field:ident),* })*) => { $(structure!($list, struct, $type { $($field),* });)* };
}

/// Fields whose path in C is not a single name.
macro_rules! paths {
    ($list:ident; $($type:ident: $c:literal = $($part:expr),+;)*) => {
        $($list.push(ask(format!("offsetof(struct {}, {})", stringify!($type), $c), 0 $(+ $part)+));)*
    };
}

macro_rules! constants {
    ($list:ident; $($name:ident)*) => { $($list.push(ask(stringify!($name).to_owned(), $name as usize));)* };
}

fn questions() -> Vec<Question> {
    let mut list = Vec::new();
    structures! { list;
        ibv_comp_channel { context, fd, refcnt }
        ibv_pd { context, handle }
        ibv_ah { context, pd, handle }
        ibv_mr { context, pd, addr, length, handle, lkey, rkey }
        ibv_cq { context, channel, cq_context, handle, cqe }
        ibv_qp { context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type }
        ibv_context_ops { poll_cq, req_notify_cq, post_send, post_recv }
        ibv_context { device, ops, cmd_fd, async_fd, num_comp_vectors }
        ibv_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class }
        ibv_ah_attr { grh, dlid, sl, src_path_bits, static_rate, is_global, port_num }
        ibv_device_attr {
            fw_ver, node_guid, sys_image_guid, max_mr_size, page_size_cap, vendor_id, vendor_part_id, hw_ver, max_qp,
            max_qp_wr, device_cap_flags, max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom,
            max_ee_rd_atom, max_res_rd_atom, max_qp_init_rd_atom, max_ee_init_rd_atom, atomic_cap, max_ee, max_rdd,
            max_mw, max_raw_ipv6_qp, max_raw_ethy_qp, max_mcast_grp, max_mcast_qp_attach, max_total_mcast_qp_attach,
            max_ah, max_fmr, max_map_per_fmr, max_srq, max_srq_wr, max_srq_sge, max_pkeys, local_ca_ack_delay,
            phys_port_cnt
        }
        ibv_port_attr {
            state, max_mtu, active_mtu, gid_tbl_len, port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr,
            pkey_tbl_len, lid, sm_lid, lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width,
            active_speed, phys_state, link_layer, flags, port_cap_flags2
        }
        ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
        ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all }
        ibv_qp_attr {
            qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num, qp_access_flags, cap,
            ah_attr, alt_ah_attr, pkey_index, alt_pkey_index, en_sqd_async_notify, sq_draining, max_rd_atomic,
            max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout,
            rate_limit
        }
        ibv_sge { addr, length, lkey }
        ibv_mw_bind_info { mr, addr, length, mw_access_flags }
        ibv_send_wr { wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data, wr, bind_mw }
        ibv_recv_wr { wr_id, next, sg_list, num_sge }
        ibv_wc {
            wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp, wc_flags, pkey_index, slid, sl,
            dlid_path_bits
        }
        rdma_event_channel { fd }
        rdma_ib_addr { sgid, dgid, pkey }
        rdma_addr { src_storage, dst_storage }
        rdma_route { addr, path_rec, num_paths }
        rdma_cm_id {
            verbs, channel, context, qp, route, ps, port_num, event, send_cq_channel, send_cq, recv_cq_channel, recv_cq,
            srq, pd, qp_type
        }
        rdma_conn_param {
            private_data, private_data_len, responder_resources, initiator_depth, flow_control, retry_count,
            rnr_retry_count, srq, qp_num
        }
        rdma_ud_param { private_data, private_data_len, ah_attr, qp_num, qkey }
        rdma_cm_event { id, listen_id, event, status, param }
    }
    structure!(list, union, ibv_gid { raw });
    paths! { list;
        ibv_send_wr: "wr.rdma.remote_addr" = offset_of!(ibv_send_wr, wr), offset_of!(ibv_send_wr_rdma, remote_addr);
        ibv_send_wr: "wr.rdma.rkey" = offset_of!(ibv_send_wr, wr), offset_of!(ibv_send_wr_rdma, rkey);
        ibv_send_wr: "wr.atomic.remote_addr" = offset_of!(ibv_send_wr, wr), offset_of!(ibv_send_wr_atomic, remote_addr);
        ibv_send_wr: "wr.atomic.compare_add" = offset_of!(ibv_send_wr, wr), offset_of!(ibv_send_wr_atomic, compare_add);
        ibv_send_wr: "wr.atomic.swap" = offset_of!(ibv_send_wr, wr), offset_of!(ibv_send_wr_atomic, swap);
        ibv_send_wr: "wr.atomic.rkey" = offset_of!(ibv_send_wr, wr), offset_of!(ibv_send_wr_atomic, rkey);
        ibv_send_wr: "wr.ud.ah" = offset_of!(ibv_send_wr, wr), offset_of!(ibv_send_wr_ud, ah);
        ibv_send_wr: "wr.ud.remote_qpn" = offset_of!(ibv_send_wr, wr), offset_of!(ibv_send_wr_ud, remote_qpn);
        ibv_send_wr: "wr.ud.remote_qkey" = offset_of!(ibv_send_wr, wr), offset_of!(ibv_send_wr_ud, remote_qkey);
        ibv_send_wr: "qp_type.xrc.remote_srqn" = offset_of!(ibv_send_wr, xrc_remote_srqn);
        ibv_send_wr: "bind_mw.mw" = offset_of!(ibv_send_wr, bind_mw), offset_of!(ibv_send_wr_bind_mw, mw);
        ibv_send_wr: "bind_mw.rkey" = offset_of!(ibv_send_wr, bind_mw), offset_of!(ibv_send_wr_bind_mw, rkey);
        ibv_send_wr: "bind_mw.bind_info" = offset_of!(ibv_send_wr, bind_mw), offset_of!(ibv_send_wr_bind_mw, bind_info);
        rdma_addr: "addr.ibaddr" = offset_of!(rdma_addr, ibaddr);
        rdma_cm_event: "param.conn" = offset_of!(rdma_cm_event, param);
        rdma_cm_event: "param.ud" = offset_of!(rdma_cm_event, param);
    }
    constants! { list;
        IBV_QPT_RC IBV_QPT_UD
        IBV_WR_RDMA_WRITE IBV_WR_SEND IBV_WR_RDMA_READ IBV_WR_ATOMIC_CMP_AND_SWP
        IBV_SEND_SIGNALED IBV_SEND_INLINE
        IBV_ACCESS_LOCAL_WRITE IBV_ACCESS_REMOTE_WRITE IBV_ACCESS_REMOTE_READ IBV_ACCESS_REMOTE_ATOMIC
        IBV_QPS_RESET IBV_QPS_INIT IBV_QPS_RTR IBV_QPS_RTS IBV_QPS_ERR
        IBV_QP_STATE IBV_QP_ACCESS_FLAGS IBV_QP_PKEY_INDEX IBV_QP_PORT IBV_QP_QKEY IBV_QP_AV IBV_QP_PATH_MTU
        IBV_QP_TIMEOUT IBV_QP_RETRY_CNT IBV_QP_RNR_RETRY IBV_QP_RQ_PSN IBV_QP_MAX_QP_RD_ATOMIC IBV_QP_MIN_RNR_TIMER
        IBV_QP_SQ_PSN IBV_QP_MAX_DEST_RD_ATOMIC IBV_QP_DEST_QPN
        IBV_WC_SUCCESS IBV_WC_LOC_LEN_ERR IBV_WC_LOC_QP_OP_ERR IBV_WC_LOC_PROT_ERR IBV_WC_WR_FLUSH_ERR
        IBV_WC_LOC_ACCESS_ERR IBV_WC_REM_INV_REQ_ERR IBV_WC_REM_ACCESS_ERR IBV_WC_REM_OP_ERR IBV_WC_RETRY_EXC_ERR
        IBV_WC_RNR_RETRY_EXC_ERR IBV_WC_MW_BIND_ERR IBV_WC_BAD_RESP_ERR IBV_WC_FATAL_ERR IBV_WC_RESP_TIMEOUT_ERR
        IBV_WC_RECV
        IBV_PORT_ACTIVE IBV_LINK_LAYER_INFINIBAND IBV_LINK_LAYER_ETHERNET IBV_ATOMIC_HCA IBV_ATOMIC_GLOB
        RDMA_PS_TCP RDMA_PS_UDP RDMA_UDP_QKEY
        RDMA_OPTION_ID RDMA_OPTION_ID_TOS RDMA_OPTION_ID_REUSEADDR
        RDMA_CM_EVENT_ADDR_RESOLVED RDMA_CM_EVENT_ADDR_ERROR RDMA_CM_EVENT_ROUTE_RESOLVED RDMA_CM_EVENT_ROUTE_ERROR
        RDMA_CM_EVENT_CONNECT_REQUEST RDMA_CM_EVENT_CONNECT_RESPONSE RDMA_CM_EVENT_CONNECT_ERROR
        RDMA_CM_EVENT_UNREACHABLE RDMA_CM_EVENT_REJECTED RDMA_CM_EVENT_ESTABLISHED RDMA_CM_EVENT_DISCONNECTED
        RDMA_CM_EVENT_DEVICE_REMOVAL RDMA_CM_EVENT_MULTICAST_JOIN RDMA_CM_EVENT_MULTICAST_ERROR
    }
    list.push(ask("sizeof(struct ibv_grh)".to_owned(), IBV_GRH_BYTES));
    list
}

fn program(questions: &[Question]) -> String {
    let mut c = String::from(
        "#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\nint main(void) {\n",
    );
    for question in questions {
        writeln!(c, "printf(\"%llu\\n\", (unsigned long long)({}));", question.c).expect("memory");
    }
    c + "return 0; }\n"
}

/// The C compiler with the options of `$OBOL_VERBS_CFLAGS`, such as a folder of headers.
fn compiler() -> Command {
    let mut cc = Command::new("cc");
    cc.args(std::env::var("OBOL_VERBS_CFLAGS").unwrap_or_default().split_whitespace()).stdin(Stdio::null());
    cc
}

#[test]
fn all_definitions_are_those_of_the_headers() {
    let required = std::env::var_os("OBOL_VERBS_HEADERS").is_some_and(|v| v == "require");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let (source, binary) = (folder.path().join("layout.c"), folder.path().join("layout"));
    let probe = "#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n";
    std::fs::write(&source, probe).expect("written");
    let probed = compiler().arg("-E").arg("-o").arg("/dev/null").arg(&source).output();
    if !probed.as_ref().is_ok_and(|p| p.status.success()) {
        assert!(!required, "no headers of libibverbs and librdmacm, or no C compiler: {probed:?}");
        let wanted = "install libibverbs-dev, librdmacm-dev and a C compiler to compare with the headers";
        obol_checks::skipped("verbs-headers", wanted);
        return;
    }
    let questions = questions();
    std::fs::write(&source, program(&questions)).expect("written");
    let compiled = compiler().arg("-o").arg(&binary).arg(&source).output().expect("it just ran");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let answered = Command::new(&binary).output().expect("it was just compiled");
    let theirs: Vec<u64> = String::from_utf8(answered.stdout)
        .expect("numbers")
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    assert_eq!(theirs.len(), questions.len(), "an answer for each question");
    let wrong: Vec<String> = questions
        .iter()
        .zip(theirs)
        .filter(|(question, theirs)| question.ours != *theirs)
        .map(|(question, theirs)| format!("{} is {theirs}, not {}", question.c, question.ours))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    eprintln!("{} sizes, offsets and constants are those of the headers", questions.len());
}

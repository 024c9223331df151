/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note OR Apache-2.0 */
/*
 * The interface of /dev/deadbeat. The kernel sends a notice that a program gave it beforehand:
 * one when a process starts to die, one when it is dead. What the notices say is between those
 * programs and their readers.
 *
 * An open file has one configuration and any number of registrations. Closing it takes them back.
 * poll(2) reports POLLHUP when the module wants to go: close the file then, and open it again
 * later.
 */
#ifndef DEADBEAT_H
#define DEADBEAT_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Rises when anything here changes its meaning or layout. */
#define DEADBEAT_ABI 1

/* The longest notice in bytes. */
#define DEADBEAT_NOTICE_MAX 256
/* The most registrations of an open file. */
#define DEADBEAT_REGISTRATIONS_MAX 4096
/* The most of one process, by all callers together: its death sends all these notices at once. */
#define DEADBEAT_PROCESS_REGISTRATIONS_MAX 64
/* The most of all files that one user has opened. */
#define DEADBEAT_USER_REGISTRATIONS_MAX 8192
/* The length of an RDMA device's name with its final zero. */
#define DEADBEAT_DEVICE_BYTES 64

/* Where notices go: any of these, at least one. */
#define DEADBEAT_UDP 1u
#define DEADBEAT_VERBS 2u

/* A UDP multicast group. */
struct deadbeat_udp {
	__u8 group[16];		/* IPv6, or IPv4 as ::ffff:a.b.c.d */
	__u32 interface;	/* leaves here; 0 lets the routes decide */
	__u16 port;		/* in the order of the host */
	__u8 hops;		/* as IP_MULTICAST_TTL; 0 is 1, the local network */
	__u8 reserved;		/* 0 */
};

/*
 * A multicast group of unreliable datagrams on an RDMA device. On InfiniBand all but the device
 * comes with the join of the group (rdma_join_multicast), which the program must hold; RoCE wants
 * no join of a sender.
 */
struct deadbeat_verbs {
	char device[DEADBEAT_DEVICE_BYTES];
	__u8 group[16];		/* MGID */
	__u32 port;
	__u32 gid_index;
	__u32 qkey;		/* below 2^31: no privileged one */
	__u32 flow_label;
	__u16 lid;		/* MLID; 0 on RoCE */
	__u16 pkey_index;
	__u8 service_level;
	__u8 static_rate;
	__u8 traffic_class;
	__u8 hop_limit;
};

struct deadbeat_configuration {
	__u32 destinations;	/* DEADBEAT_UDP | DEADBEAT_VERBS */
	struct deadbeat_udp udp;
	struct deadbeat_verbs verbs;
};

struct deadbeat_registration {
	__u32 pid;		/* of a process, in the caller's pid namespace */
	__u32 id;		/* written by the kernel; for DEADBEAT_UNREGISTER */
	__u16 dying_bytes;	/* 0: no notice of dying */
	__u16 dead_bytes;	/* at least 1 */
	__u8 dying[DEADBEAT_NOTICE_MAX];
	__u8 dead[DEADBEAT_NOTICE_MAX];
};

/* Which interface this is: DEADBEAT_ABI. Never changes itself. */
#define DEADBEAT_GET_ABI _IOR(0xdb, 0x40, __u32)
/*
 * Says where the notices of this open file go; once.
 *
 * EISCONN: done already. EINVAL: what is asked for is not a multicast group, or nothing.
 * ENODEV: no such interface or RDMA device. EOPNOTSUPP: this kernel has no RDMA.
 */
#define DEADBEAT_CONFIGURE _IOW(0xdb, 0x41, struct deadbeat_configuration)
/*
 * The notices are sent when this process dies, for any reason. The caller must be allowed to
 * send it a signal. The number of a process that ended may have been given to another: hold a
 * pidfd, and if it has not ended after this call, then the process that it names is the one that
 * was registered.
 *
 * ENOTCONN: not configured. ESRCH: no such process, or it is dead. EPERM: not the caller's.
 * ENOSPC: too many of this open file. EDQUOT: too many of this process, or of the user who
 * opened the file.
 */
#define DEADBEAT_REGISTER _IOWR(0xdb, 0x42, struct deadbeat_registration)
/* Takes a registration back; after this no notice is sent. ENOENT: there is none with this id. */
#define DEADBEAT_UNREGISTER _IOW(0xdb, 0x43, __u32)

#endif

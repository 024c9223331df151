// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Notices by UDP multicast. The socket is the kernel's own: a notice is sent from within the
 * process that dies, whose rights must not matter.
 */
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/net.h>
#include <linux/netdevice.h>
#include <linux/nsproxy.h>
#include <linux/slab.h>
#include <linux/socket.h>
#include <net/ipv6.h>
#include <net/net_namespace.h>
#include <net/sock.h>

#include "internal.h"

struct udp_group {
	struct net *net;
	struct socket *socket;
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} to;
	int to_bytes;
};

static int udp_address(struct udp_group *group, const struct deadbeat_udp *wanted)
{
	struct in6_addr address;

	memcpy(&address, wanted->group, sizeof(address));
	if (!wanted->port || wanted->reserved)
		return -EINVAL;
	if (ipv6_addr_v4mapped(&address)) {
		group->to.v4 = (struct sockaddr_in){
			.sin_family = AF_INET,
			.sin_port = htons(wanted->port),
			.sin_addr.s_addr = address.s6_addr32[3],
		};
		group->to_bytes = sizeof(group->to.v4);
		return ipv4_is_multicast(address.s6_addr32[3]) ? 0 : -EINVAL;
	}
	group->to.v6 = (struct sockaddr_in6){
		.sin6_family = AF_INET6,
		.sin6_port = htons(wanted->port),
		.sin6_addr = address,
		.sin6_scope_id = wanted->interface,
	};
	group->to_bytes = sizeof(group->to.v6);
	return ipv6_addr_is_multicast(&address) ? 0 : -EINVAL;
}

static int udp_set_hops(struct udp_group *group, int hops)
{
	bool v4 = group->to.any.sa_family == AF_INET;

	return group->socket->ops->setsockopt(group->socket, v4 ? SOL_IP : SOL_IPV6,
					      v4 ? IP_MULTICAST_TTL : IPV6_MULTICAST_HOPS,
					      KERNEL_SOCKPTR(&hops), sizeof(hops));
}

/*
 * Whatever would sleep is done here, not when a notice is sent. So the socket is connected: for
 * one that is not, a program that is attached to the cgroup (BPF_CGROUP_UDP4_SENDMSG) is
 * run at every datagram under the lock of the socket, which may sleep. Such a program for
 * connections runs here, and may have changed where it leads.
 */
static int group_connect(struct udp_group *group)
{
	int error = kernel_connect(group->socket, &group->to.any, group->to_bytes, 0);
	struct inet_sock *inet = inet_sk(group->socket->sk);
	bool same;

	if (error)
		return error;
	if (group->to.any.sa_family == AF_INET)
		same = inet->inet_daddr == group->to.v4.sin_addr.s_addr &&
		       inet->inet_dport == group->to.v4.sin_port;
	else
		same = ipv6_addr_equal(&group->socket->sk->sk_v6_daddr, &group->to.v6.sin6_addr) &&
		       inet->inet_dport == group->to.v6.sin6_port;
	return same ? 0 : -EACCES;
}

static int udp_prepare(struct udp_group *group, const struct deadbeat_udp *wanted)
{
	struct sockaddr_storage any_port = { .ss_family = group->to.any.sa_family };
	struct net_device *interface;
	struct sock *sk;
	int error;

	error = sock_create_kern(group->net, group->to.any.sa_family, SOCK_DGRAM, IPPROTO_UDP,
				 &group->socket);
	if (error)
		return error;
	sk = group->socket->sk;
	sk->sk_allocation = GFP_ATOMIC;
	/* It is never read. */
	sk->sk_rcvbuf = 0;
	if (wanted->interface) {
		interface = dev_get_by_index(group->net, wanted->interface);
		if (!interface)
			return -ENODEV;
		dev_put(interface);
		error = sock_bindtoindex(sk, wanted->interface, true);
		if (error)
			return error;
	}
	error = udp_set_hops(group, wanted->hops ?: 1);
	if (error)
		return error;
	error = kernel_bind(group->socket, (struct sockaddr *)&any_port, group->to_bytes);
	return error ?: group_connect(group);
}

struct udp_group *udp_open(const struct deadbeat_udp *wanted)
{
	struct udp_group *group = kzalloc(sizeof(*group), GFP_KERNEL_ACCOUNT);
	int error;

	if (!group)
		return ERR_PTR(-ENOMEM);
	/* A socket of the kernel does not hold its namespace. */
	group->net = get_net(current->nsproxy->net_ns);
	error = udp_address(group, wanted);
	if (!error)
		error = udp_prepare(group, wanted);
	if (error) {
		udp_close(group);
		return ERR_PTR(error);
	}
	return group;
}

void udp_close(struct udp_group *group)
{
	if (group->socket)
		sock_release(group->socket);
	put_net(group->net);
	kfree(group);
}

int udp_send(struct udp_group *group, const void *payload, size_t bytes)
{
	struct kvec vector = { .iov_base = (void *)payload, .iov_len = bytes };
	struct msghdr message = {
		.msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL,
	};
	int sent = kernel_sendmsg(group->socket, &message, &vector, 1, bytes);

	if (sent < 0)
		return sent;
	return sent == bytes ? 0 : -EMSGSIZE;
}

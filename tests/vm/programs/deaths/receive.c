// SPDX-License-Identifier: Apache-2.0
// Takes notices, by UDP and by verbs, and checks that each comes once, and, sent by one processor, in order.
#include "deaths.h"

#include <infiniband/verbs.h>
#include <sched.h>
#include <time.h>

#define GRH_BYTES 40
#define RECEIVES 512
// Bounds a hang, nothing else.
#define PATIENCE_MS 30000

struct receiver by_udp = { .name = "UDP" }, by_verbs = { .name = "verbs" };
bool with_verbs, without_udp;
const char *interface, *device;
int gid_index;
static int udp_socket;

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void take(struct receiver *receiver, const struct notice *notice, size_t bytes)
{
	CHECK(bytes == sizeof(*notice) && notice->magic == MAGIC, "%s: a notice of %zu bytes",
	      receiver->name, bytes);
	CHECK(notice->victim < victims && notice->kind < KINDS, "%s: victim %u, kind %u",
	      receiver->name, notice->victim, notice->kind);
	CHECK(receiver->seen[notice->victim][notice->kind]++ == 0, "%s: victim %u, kind %u twice",
	      receiver->name, notice->victim, notice->kind);
	// Two processors' datagrams may overtake each other, on lo and dummy devices, too.
	if (notice->kind == DYING && sysconf(_SC_NPROCESSORS_ONLN) == 1)
		CHECK(!receiver->seen[notice->victim][DEAD], "%s: victim %u was dead before it was dying",
		      receiver->name, notice->victim);
}

void udp_open(void)
{
	struct ip_mreqn join = { .imr_ifindex = if_nametoindex(interface) };
	struct sockaddr_in here = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	int room = 4 << 20, one = 1;

	inet_pton(AF_INET, GROUP, &join.imr_multiaddr);
	here.sin_addr = join.imr_multiaddr;
	udp_socket = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	CHECK(udp_socket >= 0, "socket");
	CHECK(!setsockopt(udp_socket, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), "reuse");
	CHECK(!setsockopt(udp_socket, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)), "room");
	CHECK(!bind(udp_socket, (void *)&here, sizeof(here)), "bind");
	// The soft-RoCE device receives nothing without this join either.
	CHECK(!setsockopt(udp_socket, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof(join)), "join");
}

static bool udp_take(void)
{
	struct notice notice;
	ssize_t n = recv(udp_socket, &notice, sizeof(notice), MSG_DONTWAIT | MSG_TRUNC);

	if (n < 0)
		return false;
	take(&by_udp, &notice, n);
	return true;
}

static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static uint8_t buffers[RECEIVES][GRH_BYTES + DEADBEAT_NOTICE_MAX];

static void verbs_post(uint64_t i)
{
	struct ibv_sge piece = { (uintptr_t)buffers[i], sizeof(buffers[i]), mr->lkey };
	struct ibv_recv_wr request = { .wr_id = i, .sg_list = &piece, .num_sge = 1 }, *bad;

	CHECK(!ibv_post_recv(qp, &request, &bad), "post");
}

void multicast_gid(uint8_t gid[16])
{
	memset(gid, 0, 16);
	gid[10] = gid[11] = 0xff;
	inet_pton(AF_INET, GROUP, gid + 12);
}

void verbs_open(void)
{
	struct ibv_qp_init_attr make = {
		.cap = { .max_send_wr = 1, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_UD,
	};
	struct ibv_qp_attr state = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };
	struct ibv_context *context = NULL;
	struct ibv_device **list = ibv_get_device_list(NULL);
	union ibv_gid gid;
	struct ibv_pd *pd;

	for (struct ibv_device **d = list; d && *d; d++)
		if (!strcmp(ibv_get_device_name(*d), device))
			context = ibv_open_device(*d);
	CHECK(context, "no device %s", device);
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, RECEIVES, NULL, NULL, 0);
	mr = ibv_reg_mr(pd, buffers, sizeof(buffers), IBV_ACCESS_LOCAL_WRITE);
	CHECK(pd && cq && mr, "verbs objects");
	make.send_cq = make.recv_cq = cq;
	qp = ibv_create_qp(pd, &make);
	CHECK(qp, "queue pair");
	CHECK(!ibv_modify_qp(qp, &state,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), "INIT");
	state.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &state, IBV_QP_STATE), "RTR");
	for (uint64_t i = 0; i < RECEIVES; i++)
		verbs_post(i);
	multicast_gid(gid.raw);
	CHECK(!ibv_attach_mcast(qp, &gid, 0), "attach");
	ibv_free_device_list(list);
}

static bool verbs_take(void)
{
	struct ibv_wc wc;
	struct notice notice;

	if (ibv_poll_cq(cq, 1, &wc) == 0)
		return false;
	CHECK(wc.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc.status));
	memcpy(&notice, buffers[wc.wr_id] + GRH_BYTES, sizeof(notice));
	take(&by_verbs, &notice, wc.byte_len - GRH_BYTES);
	verbs_post(wc.wr_id);
	return true;
}

static bool is_there(unsigned int victim, enum kind kind)
{
	if (with_ebpf)
		return ebpf_has_told(victim, kind);
	while (udp_take())
		;
	while (with_verbs && verbs_take())
		;
	return (without_udp || by_udp.seen[victim][kind]) && (!with_verbs || by_verbs.seen[victim][kind]);
}

void await(unsigned int victim, enum kind kind, const char *what)
{
	uint64_t until = now_ns() + PATIENCE_MS * 1000000ull;

	while (!is_there(victim, kind)) {
		CHECK(now_ns() < until, "%s: no notice %d of victim %u (UDP %d, verbs %d)", what, kind,
		      victim, by_udp.seen[victim][kind], by_verbs.seen[victim][kind]);
		sched_yield();
	}
}

void expect(unsigned int victim, int dying, int dead, const char *what)
{
	const struct receiver *all[] = { &by_udp, &by_verbs };

	if (with_ebpf) {
		ebpf_expect(victim, dying, dead, what);
		return;
	}
	// Dying is put off until the killer's processor has its interrupts on again. Another processor may have told by then that
	// the process is dead, after which nothing is sent.
	int least = sysconf(_SC_NPROCESSORS_ONLN) == 1 ? dying : 0;

	for (int i = without_udp; i < 1 + with_verbs; i++)
		CHECK(all[i]->seen[victim][DYING] >= least && all[i]->seen[victim][DYING] <= dying &&
		      all[i]->seen[victim][DEAD] == dead,
		      "%s, %s: dying %d, dead %d", what, all[i]->name, all[i]->seen[victim][DYING],
		      all[i]->seen[victim][DEAD]);
}

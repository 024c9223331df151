// decide DEVICE GID_INDEX BYTES - the least that a decision costs over RDMA: a WRITE of BYTES and a CAS at each of three
// acceptors, posted together, until the last has answered. Prints the median in microseconds.
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ACCEPTORS = 3, ROUNDS = 2000, WARM_UP = 100, WORD = 0, VALUE = 64, REGION = 1 << 16 };

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void connect_to(struct ibv_qp *qp, uint32_t peer, const union ibv_gid *gid, int gid_index)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	a.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	if (ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		die("to INIT");
	memset(&a, 0, sizeof(a));
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = IBV_MTU_1024;
	a.dest_qp_num = peer;
	a.max_dest_rd_atomic = 1;
	a.min_rnr_timer = 12;
	a.ah_attr.is_global = 1;
	a.ah_attr.port_num = 1;
	a.ah_attr.grh.dgid = *gid;
	a.ah_attr.grh.sgid_index = gid_index;
	a.ah_attr.grh.hop_limit = 1;
	if (ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		die("to RTR");
	memset(&a, 0, sizeof(a));
	a.qp_state = IBV_QPS_RTS;
	a.timeout = 14;
	a.retry_cnt = 6;
	a.rnr_retry = 6;
	a.max_rd_atomic = 1;
	if (ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				  IBV_QP_MAX_QP_RD_ATOMIC))
		die("to RTS");
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **all = ibv_get_device_list(NULL);

	for (struct ibv_device **d = all; d && *d; d++)
		if (!strcmp(ibv_get_device_name(*d), name))
			return ibv_open_device(*d);
	return NULL;
}

int main(int argc, char **argv)
{
	static uint64_t memory[ACCEPTORS + 1][REGION / 8];
	struct ibv_mr *mr[ACCEPTORS + 1];
	struct ibv_qp *client[ACCEPTORS], *server[ACCEPTORS];
	static double took[ROUNDS];
	union ibv_gid gid;

	if (argc != 4)
		return fprintf(stderr, "usage: decide DEVICE GID_INDEX BYTES\n"), 2;
	int gid_index = atoi(argv[2]), bytes = atoi(argv[3]);
	struct ibv_context *context = open_device(argv[1]);
	if (!context)
		die(argv[1]);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 256, NULL, NULL, 0);
	if (!pd || !cq || ibv_query_gid(context, 1, gid_index, &gid))
		die("set-up");
	for (int n = 0; n <= ACCEPTORS; n++) {
		mr[n] = ibv_reg_mr(pd, memory[n], REGION, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
		if (!mr[n])
			die("register");
	}
	for (int n = 0; n < ACCEPTORS; n++) {
		struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC };

		init.cap.max_send_wr = init.cap.max_recv_wr = 16;
		init.cap.max_send_sge = init.cap.max_recv_sge = 1;
		client[n] = ibv_create_qp(pd, &init);
		server[n] = ibv_create_qp(pd, &init);
		if (!client[n] || !server[n])
			die("queue pair");
		connect_to(client[n], server[n]->qp_num, &gid, gid_index);
		connect_to(server[n], client[n]->qp_num, &gid, gid_index);
	}
	for (int round = -WARM_UP; round < ROUNDS; round++) {
		double began = now_us();

		for (int n = 0; n < ACCEPTORS; n++) {
			struct ibv_sge value = { (uintptr_t)memory[ACCEPTORS] + VALUE, bytes, mr[ACCEPTORS]->lkey };
			struct ibv_sge found = { (uintptr_t)memory[ACCEPTORS] + 8 * n, 8, mr[ACCEPTORS]->lkey };
			struct ibv_send_wr cas = { .wr_id = n, .sg_list = &found, .num_sge = 1,
						   .opcode = IBV_WR_ATOMIC_CMP_AND_SWP, .send_flags = IBV_SEND_SIGNALED };
			struct ibv_send_wr write = { .next = &cas, .sg_list = &value, .num_sge = 1,
						     .opcode = IBV_WR_RDMA_WRITE };
			struct ibv_send_wr *bad;

			cas.wr.atomic.remote_addr = (uintptr_t)memory[n] + WORD;
			cas.wr.atomic.rkey = mr[n]->rkey;
			cas.wr.atomic.compare_add = round + WARM_UP;
			cas.wr.atomic.swap = round + WARM_UP + 1;
			write.wr.rdma.remote_addr = (uintptr_t)memory[n] + VALUE;
			write.wr.rdma.rkey = mr[n]->rkey;
			if (ibv_post_send(client[n], &write, &bad))
				die("post");
		}
		for (int done = 0; done < ACCEPTORS;) {
			struct ibv_wc wc;
			int n = ibv_poll_cq(cq, 1, &wc);

			if (n < 0 || (n && wc.status != IBV_WC_SUCCESS))
				return fprintf(stderr, "a CAS failed with status %d\n", n ? (int)wc.status : n), 1;
			done += n;
		}
		if (round >= 0)
			took[round] = now_us() - began;
	}
	for (int n = 0; n < ACCEPTORS; n++)
		if (memory[n][WORD] != ROUNDS + WARM_UP)
			return fprintf(stderr, "acceptor %d was not swapped each time\n", n), 1;
	qsort(took, ROUNDS, sizeof(*took), ascending);
	printf("%.2f\n", took[ROUNDS / 2]);
	return 0;
}

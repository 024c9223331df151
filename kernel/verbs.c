// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Notices by unreliable datagrams to a multicast group of an RDMA device. Queue pair, address and
 * buffers are made when a file is configured; a notice is one copy and one post.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/inetdevice.h>
#include <linux/list.h>
#include <linux/nsproxy.h>
#include <linux/slab.h>
#include <net/if_inet6.h>
#include <net/ip.h>
#include <net/net_namespace.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_verbs.h>

#include "internal.h"

/* Notices that the device may hold. A burst beyond it is lost, and counted. */
#define DEPTH 256
#define COMPLETIONS_AT_ONCE 8
#define QKEY_PRIVILEGED BIT(31)

struct verbs_group {
	struct list_head node;
	struct ib_device *device;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_qp *qp;
	struct ib_ah *ah;
	struct deadbeat_verbs wanted;
	/* Guards what follows. */
	spinlock_t lock;
	bool usable, gone;
	u32 posted, completed;
	u8 (*buffers)[DEADBEAT_NOTICE_MAX];
	u64 buffers_dma;
	struct work_struct repair;
};

/*
 * All groups that hold a device, and whether a device still takes new ones: its client data says
 * so.
 */
static LIST_HEAD(groups);
static DEFINE_MUTEX(groups_lock);

static int verbs_add_device(struct ib_device *device);
static void verbs_remove_device(struct ib_device *device, void *data);

static struct ib_client client = {
	.name = "deadbeat",
	.add = verbs_add_device,
	.remove = verbs_remove_device,
};

/*
 * Takes completions. One that failed has stopped the queue pair: it is started again where
 * sleeping is allowed.
 */
static void verbs_reap(struct verbs_group *group)
{
	struct ib_wc completions[COMPLETIONS_AT_ONCE];
	int i, n;

	while ((n = ib_poll_cq(group->cq, COMPLETIONS_AT_ONCE, completions)) > 0) {
		for (i = 0; i < n; i++) {
			group->completed++;
			if (completions[i].status == IB_WC_SUCCESS)
				continue;
			stats_failed(-EIO);
			if (group->usable) {
				group->usable = false;
				schedule_work(&group->repair);
			}
		}
	}
}

/* Takes the queue pair from whatever state to one in which it sends. */
static int verbs_start(struct verbs_group *group)
{
	struct ib_qp_attr attributes = {
		.qp_state = IB_QPS_RESET,
		.port_num = group->wanted.port,
		.pkey_index = group->wanted.pkey_index,
		.qkey = group->wanted.qkey,
	};
	int error;

	error = ib_modify_qp(group->qp, &attributes, IB_QP_STATE);
	if (error)
		return error;
	attributes.qp_state = IB_QPS_INIT;
	error = ib_modify_qp(group->qp, &attributes,
			     IB_QP_STATE | IB_QP_PORT | IB_QP_PKEY_INDEX | IB_QP_QKEY);
	if (error)
		return error;
	attributes.qp_state = IB_QPS_RTR;
	error = ib_modify_qp(group->qp, &attributes, IB_QP_STATE);
	if (error)
		return error;
	attributes.qp_state = IB_QPS_RTS;
	error = ib_modify_qp(group->qp, &attributes, IB_QP_STATE | IB_QP_SQ_PSN);
	if (error)
		return error;
	spin_lock_bh(&group->lock);
	/* What was flushed must not count against the fresh queue. */
	verbs_reap(group);
	group->posted = 0;
	group->completed = 0;
	group->usable = !group->gone;
	spin_unlock_bh(&group->lock);
	return 0;
}

static void verbs_repair(struct work_struct *work)
{
	struct verbs_group *group = container_of(work, struct verbs_group, repair);
	int error = verbs_start(group);

	if (error)
		pr_warn("%s does not send any more: error %d; open /dev/deadbeat anew\n",
			group->wanted.device, error);
}

int verbs_send(struct verbs_group *group, const void *payload, size_t bytes)
{
	struct ib_sge piece = { .length = bytes };
	struct ib_ud_wr request = {
		.wr.sg_list = &piece,
		.wr.num_sge = 1,
		.wr.opcode = IB_WR_SEND,
		.wr.send_flags = IB_SEND_SIGNALED,
		.remote_qpn = IB_MULTICAST_QPN,
		.remote_qkey = group->wanted.qkey,
		.port_num = group->wanted.port,
		.pkey_index = group->wanted.pkey_index,
	};
	u32 slot;
	int error;

	spin_lock_bh(&group->lock);
	error = -ENODEV;
	if (!group->usable)
		goto out;
	if (group->posted - group->completed == DEPTH)
		verbs_reap(group);
	error = -EAGAIN;
	if (group->posted - group->completed == DEPTH || !group->usable)
		goto out;
	slot = group->posted % DEPTH;
	memcpy(group->buffers[slot], payload, bytes);
	piece.addr = group->buffers_dma + slot * DEADBEAT_NOTICE_MAX;
	piece.lkey = group->pd->local_dma_lkey;
	ib_dma_sync_single_for_device(group->device, piece.addr, bytes, DMA_TO_DEVICE);
	request.ah = group->ah;
	error = ib_post_send(group->qp, &request.wr, NULL);
	if (!error)
		group->posted++;
	verbs_reap(group);
out:
	/* A software device sends in a soft interrupt, which runs here and now. */
	spin_unlock_bh(&group->lock);
	return error;
}

static int verbs_make_address(struct verbs_group *group)
{
	const struct deadbeat_verbs *wanted = &group->wanted;
	struct rdma_ah_attr attributes = {
		.type = rdma_ah_find_type(group->device, wanted->port),
	};
	const struct ib_gid_attr *source;
	union ib_gid gid;
	struct in6_addr address;

	memcpy(&gid, wanted->group, sizeof(gid));
	memcpy(&address, wanted->group, sizeof(address));
	source = rdma_get_gid_attr(group->device, wanted->port, wanted->gid_index);
	if (IS_ERR(source))
		return PTR_ERR(source);
	rdma_ah_set_port_num(&attributes, wanted->port);
	rdma_ah_set_sl(&attributes, wanted->service_level);
	rdma_ah_set_static_rate(&attributes, wanted->static_rate);
	rdma_move_grh_sgid_attr(&attributes, &gid, wanted->flow_label, wanted->hop_limit,
				wanted->traffic_class, source);
	if (attributes.type != RDMA_AH_ATTR_TYPE_ROCE)
		rdma_ah_set_dlid(&attributes, wanted->lid);
	else if (ipv6_addr_v4mapped(&address))
		ip_eth_mc_map(address.s6_addr32[3], attributes.roce.dmac);
	else
		ipv6_eth_mc_map(&address, attributes.roce.dmac);
	group->ah = rdma_create_ah(group->pd, &attributes, RDMA_CREATE_AH_SLEEPABLE);
	rdma_destroy_ah_attr(&attributes);
	if (IS_ERR(group->ah)) {
		int error = PTR_ERR(group->ah);

		group->ah = NULL;
		return error;
	}
	return 0;
}

static int verbs_make(struct verbs_group *group)
{
	struct ib_qp_init_attr attributes = {
		.cap = { .max_send_wr = DEPTH, .max_send_sge = 1 },
		.qp_type = IB_QPT_UD,
		.sq_sig_type = IB_SIGNAL_REQ_WR,
	};
	struct ib_device *device = group->device;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_qp *qp;
	u64 dma;

	pd = ib_alloc_pd(device, 0);
	if (IS_ERR(pd))
		return PTR_ERR(pd);
	group->pd = pd;
	cq = ib_alloc_cq(device, NULL, DEPTH, 0, IB_POLL_DIRECT);
	if (IS_ERR(cq))
		return PTR_ERR(cq);
	group->cq = cq;
	attributes.send_cq = cq;
	attributes.recv_cq = cq;
	qp = ib_create_qp(pd, &attributes);
	if (IS_ERR(qp))
		return PTR_ERR(qp);
	group->qp = qp;
	group->buffers = kcalloc(DEPTH, sizeof(*group->buffers), GFP_KERNEL_ACCOUNT);
	if (!group->buffers)
		return -ENOMEM;
	dma = ib_dma_map_single(device, group->buffers, DEPTH * sizeof(*group->buffers),
				DMA_TO_DEVICE);
	if (ib_dma_mapping_error(device, dma)) {
		kfree(group->buffers);
		group->buffers = NULL;
		return -ENOMEM;
	}
	group->buffers_dma = dma;
	return verbs_make_address(group) ?: verbs_start(group);
}

/* Lets go of the device. groups_lock is held. */
static void verbs_unmake(struct verbs_group *group)
{
	if (!group->device)
		return;
	spin_lock_bh(&group->lock);
	group->gone = true;
	group->usable = false;
	spin_unlock_bh(&group->lock);
	cancel_work_sync(&group->repair);
	if (group->ah)
		rdma_destroy_ah(group->ah, RDMA_DESTROY_AH_SLEEPABLE);
	if (group->qp)
		ib_destroy_qp(group->qp);
	if (group->cq)
		ib_free_cq(group->cq);
	if (group->buffers) {
		ib_dma_unmap_single(group->device, group->buffers_dma,
				    DEPTH * sizeof(*group->buffers), DMA_TO_DEVICE);
		kfree(group->buffers);
	}
	if (group->pd)
		ib_dealloc_pd(group->pd);
	ib_device_put(group->device);
	group->device = NULL;
	list_del(&group->node);
}

static bool verbs_are_valid(const struct deadbeat_verbs *wanted)
{
	struct in6_addr group;

	memcpy(&group, wanted->group, sizeof(group));
	return strnlen(wanted->device, DEADBEAT_DEVICE_BYTES) < DEADBEAT_DEVICE_BYTES &&
	       rdma_is_multicast_addr(&group) && !(wanted->qkey & QKEY_PRIVILEGED);
}

struct verbs_group *verbs_open(const struct deadbeat_verbs *wanted)
{
	struct verbs_group *group;
	struct ib_device *device;
	int error;

	if (!verbs_are_valid(wanted))
		return ERR_PTR(-EINVAL);
	group = kzalloc(sizeof(*group), GFP_KERNEL_ACCOUNT);
	if (!group)
		return ERR_PTR(-ENOMEM);
	group->wanted = *wanted;
	spin_lock_init(&group->lock);
	INIT_WORK(&group->repair, verbs_repair);
	mutex_lock(&groups_lock);
	error = -ENODEV;
	device = ib_device_get_by_name(wanted->device, RDMA_DRIVER_UNKNOWN);
	if (!device)
		goto no_device;
	group->device = device;
	list_add(&group->node, &groups);
	if (rdma_dev_access_netns(device, current->nsproxy->net_ns) &&
	    ib_get_client_data(device, &client))
		error = rdma_is_port_valid(device, wanted->port) ? verbs_make(group) : -EINVAL;
	if (error)
		verbs_unmake(group);
no_device:
	mutex_unlock(&groups_lock);
	if (error) {
		kfree(group);
		return ERR_PTR(error);
	}
	return group;
}

void verbs_close(struct verbs_group *group)
{
	mutex_lock(&groups_lock);
	verbs_unmake(group);
	mutex_unlock(&groups_lock);
	kfree(group);
}

static int verbs_add_device(struct ib_device *device)
{
	ib_set_client_data(device, &client, device);
	return 0;
}

/* The device is removed: from now on sending to it fails with ENODEV. */
static void verbs_remove_device(struct ib_device *device, void *data)
{
	struct verbs_group *group, *next;

	mutex_lock(&groups_lock);
	ib_set_client_data(device, &client, NULL);
	list_for_each_entry_safe(group, next, &groups, node) {
		if (group->device == device)
			verbs_unmake(group);
	}
	mutex_unlock(&groups_lock);
}

int verbs_init(void)
{
	return ib_register_client(&client);
}

void verbs_exit(void)
{
	ib_unregister_client(&client);
}

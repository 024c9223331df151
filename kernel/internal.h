/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What the files of the module know of each other. */
#ifndef DEADBEAT_INTERNAL_H
#define DEADBEAT_INTERNAL_H

#include <linux/irq_work.h>
#include <linux/interrupt.h>
#include <linux/mutex.h>
#include <linux/pid.h>
#include <linux/refcount.h>
#include <linux/spinlock.h>
#include <linux/uidgid.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "deadbeat.h"

struct udp_group;
struct verbs_group;

/* The user who opened files; all files of a user count together. */
struct owner;

/* An open file. Registrations that are being freed keep it beyond the close. */
struct session {
	refcount_t users;
	/* One call at a time. */
	struct mutex lock;
	bool configured;
	struct owner *owner;
	struct udp_group *udp;
	struct verbs_group *verbs;
	struct xarray registrations;
};

enum notice_kind {
	NOTICE_DYING,
	NOTICE_DEAD,
	NOTICE_KINDS,
};

/* One notice of one registration, and what it takes to send it later than in the hook. */
struct notice {
	enum notice_kind kind;
	u16 bytes;
	/* The context that sets this sends the notice. */
	atomic_t taken;
	u64 hooked_at_ns;
	struct irq_work irq_work;
	struct tasklet_struct tasklet;
	u8 payload[DEADBEAT_NOTICE_MAX];
};

struct registration {
	struct hlist_node node;
	/* The thread group. Holding it keeps its address from meaning another process. */
	struct pid *pid;
	struct session *session;
	/*
	 * Held while a notice is sent: so that dying never follows dead, and nothing follows
	 * DEADBEAT_UNREGISTER.
	 */
	spinlock_t lock;
	bool silent;
	/* It is one of its owner's. */
	bool counted;
	struct notice notices[NOTICE_KINDS];
	struct rcu_work retirement;
};

/* registration.c. The session's lock is held where one is changed. */
int registrations_init(void);
void registrations_exit(void);
struct owner *owner_get(kuid_t uid);
void owner_put(struct owner *owner);
int registration_add(struct session *session, struct deadbeat_registration *wanted);
int registration_remove(struct session *session, u32 id);
void registrations_remove(struct session *session);
void registrations_fire(struct pid *pid, enum notice_kind kind, u64 hooked_at_ns);

/* main.c */
void session_put(struct session *session);

/* hooks.c */
int hooks_init(void);
void hooks_exit(void);
unsigned long hooks_missed(void);

/* udp.c. Sending neither sleeps nor wants interrupts off. */
struct udp_group *udp_open(const struct deadbeat_udp *wanted);
void udp_close(struct udp_group *group);
int udp_send(struct udp_group *group, const void *payload, size_t bytes);

/* verbs.c. As above. */
#if IS_ENABLED(CONFIG_INFINIBAND)
int verbs_init(void);
void verbs_exit(void);
struct verbs_group *verbs_open(const struct deadbeat_verbs *wanted);
void verbs_close(struct verbs_group *group);
int verbs_send(struct verbs_group *group, const void *payload, size_t bytes);
#else
static inline int verbs_init(void)
{
	return 0;
}

static inline void verbs_exit(void)
{
}

static inline struct verbs_group *verbs_open(const struct deadbeat_verbs *wanted)
{
	return ERR_PTR(-EOPNOTSUPP);
}

static inline void verbs_close(struct verbs_group *group)
{
}

static inline int verbs_send(struct verbs_group *group, const void *payload, size_t bytes)
{
	return -EOPNOTSUPP;
}
#endif

/* stats.c: counters for operators, in debugfs. */
enum counter {
	COUNT_SESSIONS,
	COUNT_REGISTRATIONS,
	COUNT_REGISTERED,
	COUNT_DYING_SENT,
	COUNT_DEAD_SENT,
	COUNT_SEND_FAILED,
	COUNT_DEAD_DEFERRED,
	COUNTERS,
};

/* Times of a notice, from the hook on. */
enum span {
	/* To the start of its sending: what this module itself takes. */
	SPAN_BEGUN,
	/* To its end: what the network and the device take, too. */
	SPAN_SENT,
	SPANS,
};

void stats_init(void);
void stats_exit(void);
void stats_add(enum counter counter, long by);
void stats_failed(int error);
void stats_time(enum notice_kind kind, enum span span, u64 ns);

#endif

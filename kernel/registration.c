// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Which notices are sent for which process. A hook finds registrations under RCU and sends their
 * notices in place; whatever frees a registration waits for a grace period and for what was put
 * off.
 */
#include <linux/cred.h>
#include <linux/hashtable.h>
#include <linux/preempt.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>

#include "internal.h"

#define TABLE_BITS 10

static DEFINE_HASHTABLE(table, TABLE_BITS);
/* Changes of the table, and owners. Never taken by a hook. */
static DEFINE_SPINLOCK(table_lock);
static LIST_HEAD(owners);

struct owner {
	struct list_head node;
	kuid_t uid;
	unsigned int sessions;
	unsigned int registrations;
};

static struct workqueue_struct *retirements;
/* A cache of its own: on unloading the kernel complains if anything is left in it. */
static struct kmem_cache *cache;

/* The owner of this uid, made if there is none; NULL without memory. Goes with its last session. */
struct owner *owner_get(kuid_t uid)
{
	struct owner *fresh = kzalloc(sizeof(*fresh), GFP_KERNEL_ACCOUNT);
	struct owner *owner;

	if (!fresh)
		return NULL;
	spin_lock(&table_lock);
	list_for_each_entry(owner, &owners, node) {
		if (uid_eq(owner->uid, uid)) {
			kfree(fresh);
			goto found;
		}
	}
	owner = fresh;
	owner->uid = uid;
	list_add(&owner->node, &owners);
found:
	owner->sessions++;
	spin_unlock(&table_lock);
	return owner;
}

void owner_put(struct owner *owner)
{
	spin_lock(&table_lock);
	if (--owner->sessions)
		owner = NULL;
	else
		list_del(&owner->node);
	spin_unlock(&table_lock);
	kfree(owner);
}

static bool notice_transmit(struct notice *notice, struct session *session)
{
	bool sent = false;
	int error;

	if (session->verbs) {
		error = verbs_send(session->verbs, notice->payload, notice->bytes);
		sent = !error;
		if (error)
			stats_failed(error);
	}
	if (session->udp) {
		error = udp_send(session->udp, notice->payload, notice->bytes);
		sent |= !error;
		if (error)
			stats_failed(error);
	}
	return sent;
}

static void notice_send(struct notice *notice)
{
	struct registration *registration =
		container_of(notice, struct registration, notices[notice->kind]);
	enum notice_kind kind = notice->kind;
	u64 begun_ns;

	/* A soft interrupt of this CPU may want to send, too. */
	spin_lock_bh(&registration->lock);
	if (registration->silent)
		goto out;
	if (kind == NOTICE_DEAD)
		registration->silent = true;
	begun_ns = ktime_get_mono_fast_ns();
	if (!notice_transmit(notice, registration->session))
		goto out;
	stats_time(kind, SPAN_SENT, ktime_get_mono_fast_ns() - notice->hooked_at_ns);
	stats_time(kind, SPAN_BEGUN, begun_ns - notice->hooked_at_ns);
	stats_add(kind == NOTICE_DEAD ? COUNT_DEAD_SENT : COUNT_DYING_SENT, 1);
out:
	spin_unlock_bh(&registration->lock);
}

static void notice_tasklet(struct tasklet_struct *tasklet)
{
	notice_send(from_tasklet((struct notice *)NULL, tasklet, tasklet));
}

/*
 * The network cannot be used with interrupts off. An irq_work interrupts this CPU as soon as
 * they are on again, and the soft interrupt that it raises runs right after it, on top of
 * whatever runs there.
 */
static void notice_irq_work(struct irq_work *work)
{
	tasklet_hi_schedule(&container_of(work, struct notice, irq_work)->tasklet);
}

static void notice_fire(struct notice *notice, u64 hooked_at_ns)
{
	if (!notice->bytes || atomic_xchg(&notice->taken, 1))
		return;
	notice->hooked_at_ns = hooked_at_ns;
	if (in_nmi() || irqs_disabled() || IS_ENABLED(CONFIG_PREEMPT_RT)) {
		/* Signals are sent with interrupts off, so dying is always put off. */
		if (notice->kind == NOTICE_DEAD)
			stats_add(COUNT_DEAD_DEFERRED, 1);
		irq_work_queue(&notice->irq_work);
	} else {
		notice_send(notice);
	}
}

void registrations_fire(struct pid *pid, enum notice_kind kind, u64 hooked_at_ns)
{
	struct registration *registration;

	rcu_read_lock();
	hash_for_each_possible_rcu(table, registration, node, (unsigned long)pid) {
		if (registration->pid == pid)
			notice_fire(&registration->notices[kind], hooked_at_ns);
	}
	rcu_read_unlock();
}

static void notice_init(struct notice *notice, enum notice_kind kind, const u8 *payload, u16 bytes)
{
	notice->kind = kind;
	notice->bytes = bytes;
	memcpy(notice->payload, payload, bytes);
	atomic_set(&notice->taken, 0);
	init_irq_work(&notice->irq_work, notice_irq_work);
	tasklet_setup(&notice->tasklet, notice_tasklet);
}

/* The last part of a registration's end; sleeps. No hook finds it any more. */
static void registration_free(struct registration *registration)
{
	int kind;

	for (kind = 0; kind < NOTICE_KINDS; kind++) {
		irq_work_sync(&registration->notices[kind].irq_work);
		tasklet_kill(&registration->notices[kind].tasklet);
	}
	put_pid(registration->pid);
	if (registration->counted) {
		spin_lock(&table_lock);
		registration->session->owner->registrations--;
		spin_unlock(&table_lock);
	}
	session_put(registration->session);
	kmem_cache_free(cache, registration);
	stats_add(COUNT_REGISTRATIONS, -1);
}

static void registration_retire(struct work_struct *work)
{
	registration_free(container_of(to_rcu_work(work), struct registration, retirement));
}

/* After this no notice is sent. Freeing waits for a grace period, which the caller should not. */
static void registration_end(struct registration *registration)
{
	spin_lock_bh(&registration->lock);
	registration->silent = true;
	spin_unlock_bh(&registration->lock);
	spin_lock(&table_lock);
	hash_del_rcu(&registration->node);
	spin_unlock(&table_lock);
	queue_rcu_work(retirements, &registration->retirement);
}

/* As for kill(2). */
static bool may_signal(struct task_struct *task)
{
	const struct cred *mine = current_cred(), *theirs;
	bool may;

	rcu_read_lock();
	theirs = __task_cred(task);
	may = uid_eq(mine->euid, theirs->suid) || uid_eq(mine->euid, theirs->uid) ||
	      uid_eq(mine->uid, theirs->suid) || uid_eq(mine->uid, theirs->uid) ||
	      ns_capable(theirs->user_ns, CAP_KILL);
	rcu_read_unlock();
	return may;
}

/*
 * Enters it, if neither its process nor its owner has too many: a hook runs through all of a
 * process's.
 */
static int registration_admit(struct registration *registration)
{
	struct owner *owner = registration->session->owner;
	unsigned int of_process = 0;
	struct registration *other;
	int error = -EDQUOT;

	spin_lock(&table_lock);
	hash_for_each_possible(table, other, node, (unsigned long)registration->pid)
		of_process += other->pid == registration->pid;
	if (of_process < DEADBEAT_PROCESS_REGISTRATIONS_MAX &&
	    owner->registrations < DEADBEAT_USER_REGISTRATIONS_MAX) {
		owner->registrations++;
		registration->counted = true;
		hash_add_rcu(table, &registration->node, (unsigned long)registration->pid);
		error = 0;
	}
	spin_unlock(&table_lock);
	return error;
}

/*
 * From here on hooks find it. If the process was past the hook before, no notice will ever be sent:
 * `live` falls to 0 before the hook looks into the table, so either the hook has seen the
 * registration or this sees the 0.
 */
static int registration_arm(struct registration *registration, struct task_struct *task)
{
	int error = registration_admit(registration);

	if (error)
		return error;
	/* Pairs with atomic_dec_and_test(&signal->live) in do_exit. */
	smp_mb();
	if (atomic_read(&task->signal->live) == 0 &&
	    !atomic_xchg(&registration->notices[NOTICE_DEAD].taken, 1))
		return -ESRCH;
	return 0;
}

int registration_add(struct session *session, struct deadbeat_registration *wanted)
{
	struct registration *registration;
	struct task_struct *task;
	struct pid *pid;
	int error;

	if (wanted->dying_bytes > DEADBEAT_NOTICE_MAX || wanted->dead_bytes > DEADBEAT_NOTICE_MAX ||
	    !wanted->dead_bytes)
		return -EINVAL;
	pid = find_get_pid(wanted->pid);
	/* Not the id of a mere thread. */
	task = get_pid_task(pid, PIDTYPE_TGID);
	error = -ESRCH;
	if (!task)
		goto no_task;
	error = -EPERM;
	if (!may_signal(task))
		goto no_registration;
	error = -ENOMEM;
	registration = kmem_cache_zalloc(cache, GFP_KERNEL);
	if (!registration)
		goto no_registration;
	registration->pid = pid;
	registration->session = session;
	spin_lock_init(&registration->lock);
	notice_init(&registration->notices[NOTICE_DYING], NOTICE_DYING, wanted->dying,
		    wanted->dying_bytes);
	notice_init(&registration->notices[NOTICE_DEAD], NOTICE_DEAD, wanted->dead,
		    wanted->dead_bytes);
	INIT_RCU_WORK(&registration->retirement, registration_retire);
	error = xa_alloc(&session->registrations, &wanted->id, registration,
			 XA_LIMIT(1, DEADBEAT_REGISTRATIONS_MAX), GFP_KERNEL_ACCOUNT);
	if (error) {
		kmem_cache_free(cache, registration);
		error = error == -EBUSY ? -ENOSPC : error;
		goto no_registration;
	}
	refcount_inc(&session->users);
	stats_add(COUNT_REGISTRATIONS, 1);
	error = registration_arm(registration, task);
	put_task_struct(task);
	if (error)
		registration_remove(session, wanted->id);
	else
		stats_add(COUNT_REGISTERED, 1);
	return error;

no_registration:
	put_task_struct(task);
no_task:
	put_pid(pid);
	return error;
}

int registration_remove(struct session *session, u32 id)
{
	struct registration *registration = xa_erase(&session->registrations, id);

	if (!registration)
		return -ENOENT;
	registration_end(registration);
	return 0;
}

/* The file is being closed: nothing is added to it. */
void registrations_remove(struct session *session)
{
	struct registration *registration;
	unsigned long id;

	xa_for_each(&session->registrations, id, registration) {
		xa_erase(&session->registrations, id);
		registration_end(registration);
	}
}

int registrations_init(void)
{
	cache = kmem_cache_create("deadbeat_registration", sizeof(struct registration), 0,
				  SLAB_ACCOUNT, NULL);
	if (!cache)
		return -ENOMEM;
	retirements = alloc_workqueue("deadbeat", WQ_UNBOUND, 0);
	if (!retirements) {
		kmem_cache_destroy(cache);
		return -ENOMEM;
	}
	return 0;
}

void registrations_exit(void)
{
	/*
	 * Queues the retirements that still wait for their grace period, then lets all of them
	 * end.
	 */
	rcu_barrier();
	destroy_workqueue(retirements);
	kmem_cache_destroy(cache);
}

// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The deaths of processes, reported by eBPF programs on hosts that do not allow the module.
 *
 * A process registers itself by running `on_register` with two random tokens and a slot that it
 * proposes. Its slot of the array `deaths` shows the first token when a fatal signal was sent to it
 * and the second when no thread of it runs user code any more. User space can only read the array.
 *
 * Dead is reported at the entry of taskstats_exit by the last thread, before the memory goes, as the
 * module does (hooks.c); and again at the tracepoint sched_process_exit, when no thread is live,
 * because a program at a function's entry is left out where it interrupts itself.
 *
 * Threads that poll the map `wakes` are woken when a fatal signal was sent, and look at the array.
 *
 * Nothing is included, so the object depends on this file and the compiler alone (see `build`). Some
 * external symbols are filled in by the loader: map_NAME is a map, STRUCT__MEMBER the offset of a
 * member in the running kernel and STRUCT__sizeof a size; function_nothing is a function that does
 * nothing, which the loader adds. Where the kernel lacks the map `wakes` (before 6.1), the loader
 * removes the calls of user_ringbuf_drain.
 */
#define SEC(name) __attribute__((section(name), used))
#define ALWAYS static inline __attribute__((always_inline))

typedef unsigned int u32;
typedef unsigned long long u64;

#define EAGAIN 11
#define EBUSY 16
#define EINVAL 22

#define BPF_NOEXIST 1
#define BPF_RB_FORCE_WAKEUP 2

static void *(*const map_lookup)(const void *map, const void *key) = (void *)1;
static long (*const map_update)(const void *map, const void *key, const void *value,
				u64 flags) = (void *)2;
static long (*const map_delete)(const void *map, const void *key) = (void *)3;
static u64 (*const current_pid_tgid)(void) = (void *)14;
static u64 (*const current_task)(void) = (void *)35;
static long (*const read_kernel)(void *into, u32 bytes, u64 from) = (void *)113;
static long (*const user_ringbuf_drain)(const void *map, const void *function, void *context,
					u64 flags) = (void *)209;

extern char map_processes[], map_owners[], map_deaths[], map_wakes[], function_nothing[];

#define OFFSET(type, member)						\
	({								\
		extern char type##__##member[];				\
		(u64)type##__##member;					\
	})

/* What a process handed over; by its number in the first pid namespace. */
struct process {
	u32 slot;
	u32 reserved;
	u64 dying, dead;
};

/* What the array shows. */
struct death {
	u64 dying, dead;
};

ALWAYS u32 u32_at(u64 address)
{
	u32 value = 0;

	read_kernel(&value, sizeof(value), address);
	return value;
}

ALWAYS u64 u64_at(u64 address)
{
	u64 value = 0;

	read_kernel(&value, sizeof(value), address);
	return value;
}

ALWAYS u32 current_tgid(void)
{
	return current_pid_tgid() >> 32;
}

/*
 * Wakes all that poll the map, which is always empty. Of all maps only a ring buffer of user space
 * serves for that: what a program writes to a ring buffer of its own would have to be consumed, and
 * a process that may consume can also fill it up. If another processor drains it at this moment,
 * that one wakes them after this.
 */
ALWAYS void wake(void)
{
	user_ringbuf_drain(map_wakes, function_nothing, 0, BPF_RB_FORCE_WAKEUP);
}

/*
 * Takes the slot that is proposed, or -EBUSY if it is another's. A process has one registration: if
 * it has one already, that is what the request holds afterwards. -EAGAIN: another thread of it was
 * faster.
 */
SEC("syscall/register")
int on_register(struct process *request)
{
	u32 tgid = current_tgid();
	struct process *known = map_lookup(map_processes, &tgid);
	struct process wanted = {};
	u32 *owner;

	if (known) {
		request->slot = known->slot;
		request->dying = known->dying;
		request->dead = known->dead;
		return 0;
	}
	wanted.slot = request->slot;
	wanted.dying = request->dying;
	wanted.dead = request->dead;
	owner = map_lookup(map_owners, &wanted.slot);
	if (!owner || !wanted.dying || !wanted.dead)
		return -EINVAL;
	if (__sync_val_compare_and_swap(owner, 0, tgid))
		return -EBUSY;
	if (map_update(map_processes, &tgid, &wanted, BPF_NOEXIST)) {
		*owner = 0;
		return -EAGAIN;
	}
	return 0;
}

/*
 * Called by a thread of the process when no thread is live. No process registers under this number
 * before this one is reaped, so the thread that deletes the entry has read it whole, and alone
 * reports it; another thread that comes as late may have read what is a successor's already.
 */
ALWAYS int tell_dead(void)
{
	u32 tgid = current_tgid();
	struct process *known = map_lookup(map_processes, &tgid);
	struct process process;
	struct death *death;
	u32 *owner;

	if (!known)
		return 0;
	process = *known;
	if (map_delete(map_processes, &tgid))
		return 0;
	death = map_lookup(map_deaths, &process.slot);
	/* No wake: watchers look for it by themselves after dying, and the robust futex follows. */
	if (death)
		death->dead = process.dead;
	owner = map_lookup(map_owners, &process.slot);
	if (owner)
		*owner = 0;
	return 0;
}

/* taskstats_exit(struct task_struct *task, int group_dead) */
SEC("fentry/taskstats_exit")
int on_taskstats_exit(u64 *args)
{
	if ((int)args[1])
		return tell_dead();
	return 0;
}

/* sched_process_exit(struct task_struct *task) */
SEC("raw_tp/sched_process_exit")
int on_sched_process_exit(u64 *args)
{
	u64 signal = u64_at(current_task() + OFFSET(task_struct, signal));
	u32 live = 1;

	if (read_kernel(&live, sizeof(live), signal + OFFSET(signal_struct, live)) || live)
		return 0;
	return tell_dead();
}

#define SIGNAL_GROUP_EXIT 0x4
#define SIGNAL_UNKILLABLE 0x40
#define TRACE_SIGNAL_DELIVERED 0
#define BIT(signal) (1ull << ((signal) - 1))
/* QUIT, ILL, TRAP, ABRT, BUS, FPE, SEGV, XCPU, XFSZ, SYS: these write a core dump. */
#define SIGNALS_COREDUMP                                                                 \
	(BIT(3) | BIT(4) | BIT(5) | BIT(6) | BIT(7) | BIT(8) | BIT(11) | BIT(24) | BIT(25) | \
	 BIT(31))

/* As is_fatal of hooks.c. */
ALWAYS int is_fatal(u64 task, u32 number, u32 result)
{
	u64 flags = u32_at(u64_at(task + OFFSET(task_struct, signal)) + OFFSET(signal_struct, flags));
	u64 bit = BIT(number & 63), action;

	if (flags & SIGNAL_GROUP_EXIT)
		return 1;
	if (result != TRACE_SIGNAL_DELIVERED || number > 31 || !(SIGNALS_COREDUMP & bit) ||
	    flags & SIGNAL_UNKILLABLE || u32_at(task + OFFSET(task_struct, ptrace)) ||
	    u64_at(task + OFFSET(task_struct, blocked)) & bit)
		return 0;
	action = u64_at(task + OFFSET(task_struct, sighand)) + OFFSET(sighand_struct, action) +
		 (number - 1) * OFFSET(k_sigaction, sizeof);
	return u64_at(action + OFFSET(k_sigaction, sa) + OFFSET(sigaction, sa_handler)) == 0;
}

/* signal_generate(int sig, struct kernel_siginfo *, struct task_struct *, int group, int result) */
SEC("raw_tp/signal_generate")
int on_signal_generate(u64 *args)
{
	u64 task = args[2];
	u32 tgid = u32_at(task + OFFSET(task_struct, tgid));
	struct process *known = map_lookup(map_processes, &tgid);
	struct process process;
	struct death *death;

	if (!known || !is_fatal(task, args[0], args[4]))
		return 0;
	process = *known;
	/* Still there, so what was read is not a successor's. */
	if (map_lookup(map_processes, &tgid) != known)
		return 0;
	death = map_lookup(map_deaths, &process.slot);
	/* Only the first of several signals wakes. */
	if (death && death->dying != process.dying) {
		death->dying = process.dying;
		wake();
	}
	return 0;
}

// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Hooks into the kernel where a process starts to die and where it is dead.
 *
 * Dead: do_exit calls taskstats_exit(task, group_dead) after the thread has left its group and
 * before its memory goes. group_dead comes from the atomic decrement of signal->live, so exactly
 * one thread sees it, and no thread of the group runs user code then. The tracepoint
 * sched_process_exit and a pidfd come only after the memory is torn down, which takes time with
 * its size; do_exit itself cannot show it: two threads that enter it at once both see another one
 * alive.
 *
 * Dying: the tracepoint signal_generate, at the end of the sending of a signal, on the killer's
 * CPU and before the victim has run.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kprobes.h>
#include <linux/ptrace.h>
#include <linux/sched/signal.h>
#include <linux/timekeeping.h>
#include <linux/tracepoint.h>
#include <trace/events/signal.h>

#include "internal.h"

static int on_taskstats_exit(struct kprobe *probe, struct pt_regs *regs)
{
	struct task_struct *task = (struct task_struct *)regs_get_kernel_argument(regs, 0);
	bool group_dead = (int)regs_get_kernel_argument(regs, 1);

	if (group_dead)
		registrations_fire(task_tgid(task), NOTICE_DEAD, ktime_get_mono_fast_ns());
	return 0;
}

static struct kprobe dead_probe = {
	.symbol_name = "taskstats_exit",
	.pre_handler = on_taskstats_exit,
};

/*
 * Whether this signal ends the whole process; siglock is held. The kernel marks the group at
 * once, unless the signal writes a core dump: then the victim does so, later.
 */
static bool is_fatal(int sig, struct task_struct *task, int result)
{
	struct signal_struct *signal = task->signal;

	if (signal->flags & SIGNAL_GROUP_EXIT)
		return true;
	return result == TRACE_SIGNAL_DELIVERED && sig_kernel_coredump(sig) &&
	       !(signal->flags & SIGNAL_UNKILLABLE) && !task->ptrace &&
	       !sigismember(&task->blocked, sig) &&
	       task->sighand->action[sig - 1].sa.sa_handler == SIG_DFL;
}

static void on_signal_generate(void *data, int sig, struct kernel_siginfo *info,
			       struct task_struct *task, int group, int result)
{
	if (is_fatal(sig, task, result))
		registrations_fire(task_tgid(task), NOTICE_DYING, ktime_get_mono_fast_ns());
}

/* Not exported to modules by name. */
static struct tracepoint *signal_generate;

static void find_signal_generate(struct tracepoint *tracepoint, void *data)
{
	if (!strcmp(tracepoint->name, "signal_generate"))
		signal_generate = tracepoint;
}

unsigned long hooks_missed(void)
{
	return dead_probe.nmissed;
}

int hooks_init(void)
{
	int error;

	check_trace_callback_type_signal_generate(on_signal_generate);
	for_each_kernel_tracepoint(find_signal_generate, NULL);
	if (!signal_generate) {
		pr_err("this kernel has no tracepoint signal_generate; it needs CONFIG_TRACEPOINTS\n");
		return -ENOENT;
	}
	error = register_kprobe(&dead_probe);
	if (error) {
		pr_err("no probe on taskstats_exit: %d; this needs CONFIG_KPROBES and CONFIG_TASKSTATS\n",
		       error);
		return error;
	}
	if (!kprobe_ftrace(&dead_probe))
		pr_warn("the probe is a breakpoint, so each notice is put off; CONFIG_KPROBES_ON_FTRACE avoids that\n");
	error = tracepoint_probe_register(signal_generate, on_signal_generate, NULL);
	if (error) {
		pr_err("no probe on signal_generate: %d\n", error);
		unregister_kprobe(&dead_probe);
	}
	return error;
}

void hooks_exit(void)
{
	tracepoint_probe_unregister(signal_generate, on_signal_generate, NULL);
	unregister_kprobe(&dead_probe);
	/* No CPU is in a probe of the tracepoint any more. */
	tracepoint_synchronize_unregister();
}

// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Counters in /sys/kernel/debug/deadbeat, one "name value" a line. */
#include <linux/atomic.h>
#include <linux/bitops.h>
#include <linux/debugfs.h>
#include <linux/math64.h>
#include <linux/seq_file.h>

#include "internal.h"

/* Times from 2^i to 2^(i+1) ns; the last one takes all that is longer. */
#define BUCKETS 24

struct times {
	atomic64_t count, sum_ns, max_ns;
	atomic64_t buckets[BUCKETS];
};

static const char *const names[COUNTERS] = {
	[COUNT_SESSIONS] = "open_files",
	[COUNT_REGISTRATIONS] = "registrations",
	[COUNT_REGISTERED] = "registered",
	[COUNT_DYING_SENT] = "dying_sent",
	[COUNT_DEAD_SENT] = "dead_sent",
	[COUNT_SEND_FAILED] = "send_failed",
	[COUNT_DEAD_DEFERRED] = "dead_deferred",
};

static const char *const spans[NOTICE_KINDS][SPANS] = {
	[NOTICE_DYING] = { "dying_begun", "dying_sent" },
	[NOTICE_DEAD] = { "dead_begun", "dead_sent" },
};

static atomic64_t counters[COUNTERS];
static struct times from_hook[NOTICE_KINDS][SPANS];
static int last_error;
static struct dentry *directory;

void stats_add(enum counter counter, long by)
{
	atomic64_add(by, &counters[counter]);
}

void stats_failed(int error)
{
	WRITE_ONCE(last_error, -error);
	stats_add(COUNT_SEND_FAILED, 1);
}

void stats_time(enum notice_kind kind, enum span span, u64 ns)
{
	struct times *times = &from_hook[kind][span];
	s64 max = atomic64_read(&times->max_ns);

	atomic64_inc(&times->count);
	atomic64_add(ns, &times->sum_ns);
	while ((s64)ns > max && !atomic64_try_cmpxchg(&times->max_ns, &max, ns))
		;
	atomic64_inc(&times->buckets[min(ns ? fls64(ns) - 1 : 0, BUCKETS - 1)]);
}

static int counters_show(struct seq_file *file, void *data)
{
	int i;

	for (i = 0; i < COUNTERS; i++)
		seq_printf(file, "%s %lld\n", names[i], atomic64_read(&counters[i]));
	seq_printf(file, "last_errno %d\n", READ_ONCE(last_error));
	seq_printf(file, "hook_missed %lu\n", hooks_missed());
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(counters);

static void times_print(struct seq_file *file, const char *name, const struct times *times)
{
	s64 count = atomic64_read(&times->count);
	int i;

	seq_printf(file, "%s_count %lld\n", name, count);
	if (!count)
		return;
	seq_printf(file, "%s_mean_ns %lld\n", name,
		   div64_s64(atomic64_read(&times->sum_ns), count));
	seq_printf(file, "%s_max_ns %lld\n", name, atomic64_read(&times->max_ns));
	for (i = 0; i < BUCKETS; i++) {
		s64 in = atomic64_read(&times->buckets[i]);

		if (in)
			seq_printf(file, "%s_from_%llu_ns %lld\n", name, 1ULL << i, in);
	}
}

static int from_hook_show(struct seq_file *file, void *data)
{
	int kind, span;

	for (kind = 0; kind < NOTICE_KINDS; kind++)
		for (span = 0; span < SPANS; span++)
			times_print(file, spans[kind][span], &from_hook[kind][span]);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(from_hook);

void stats_init(void)
{
	directory = debugfs_create_dir("deadbeat", NULL);
	debugfs_create_file("counters", 0400, directory, NULL, &counters_fops);
	debugfs_create_file("from_hook", 0400, directory, NULL, &from_hook_fops);
}

void stats_exit(void)
{
	debugfs_remove(directory);
}

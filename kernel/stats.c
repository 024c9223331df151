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

static const char *const kinds[NOTICE_KINDS] = {
	[NOTICE_DYING] = "dying",
	[NOTICE_DEAD] = "dead",
};

static atomic64_t counters[COUNTERS];
static struct times hook_to_sent[NOTICE_KINDS];
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

void stats_sent(enum notice_kind kind, u64 ns)
{
	struct times *times = &hook_to_sent[kind];
	s64 max = atomic64_read(&times->max_ns);

	stats_add(kind == NOTICE_DEAD ? COUNT_DEAD_SENT : COUNT_DYING_SENT, 1);
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

static int hook_to_sent_show(struct seq_file *file, void *data)
{
	int kind, i;

	for (kind = 0; kind < NOTICE_KINDS; kind++) {
		struct times *times = &hook_to_sent[kind];
		s64 count = atomic64_read(&times->count);

		seq_printf(file, "%s_count %lld\n", kinds[kind], count);
		if (!count)
			continue;
		seq_printf(file, "%s_mean_ns %lld\n", kinds[kind],
			   div64_s64(atomic64_read(&times->sum_ns), count));
		seq_printf(file, "%s_max_ns %lld\n", kinds[kind], atomic64_read(&times->max_ns));
		for (i = 0; i < BUCKETS; i++) {
			s64 in = atomic64_read(&times->buckets[i]);

			if (!in)
				continue;
			seq_printf(file, "%s_from_%llu_ns %lld\n",
				   kinds[kind], 1ULL << i, in);
		}
	}
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(hook_to_sent);

void stats_init(void)
{
	directory = debugfs_create_dir("deadbeat", NULL);
	debugfs_create_file("counters", 0400, directory, NULL, &counters_fops);
	debugfs_create_file("hook_to_sent", 0400, directory, NULL, &hook_to_sent_fops);
}

void stats_exit(void)
{
	debugfs_remove(directory);
}

// SPDX-License-Identifier: Apache-2.0
// Kills processes in every way and checks the notices that deadbeat.ko sends, or what eBPF programs tell.
//
//   deaths ways INTERFACE [DEVICE GID_INDEX]   every way to die, and every way not to
//   deaths times INTERFACE [DEVICE GID_INDEX]  the first way only, for the module's own figures
//   deaths ebpf GROUP                          the same of the eBPF programs, which were loaded for this group's number
//   deaths storm INTERFACE STOP_FILE           kills until STOP_FILE exists, with the module coming and going
//   deaths lost INTERFACE DEVICE GID_INDEX     what holds after the RDMA device has been deleted (by `rdma link delete`)
//
// Each notice names a victim and a kind. A receiver takes them in the order of their sending, on loopback without loss; so
// when the notice of a *marker* (a process that is killed last) is there, all that was sent before it is there, too.
#include "deaths.h"

#include <sched.h>
#include <sys/syscall.h>

#define CROWD 48

// After this, all that was sent before is there.
static void marker(int fd)
{
	struct victim v = registered(fd, alone);

	kill(v.pid, SIGKILL);
	await(v.number, DEAD, "marker");
	reap(&v);
}

static void write_to(const char *path, const char *text)
{
	int file = open(path, O_WRONLY);

	CHECK(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text), "%s", path);
	close(file);
}

static void by_kill(const struct victim *v)
{
	CHECK(!kill(v->pid, SIGKILL), "kill");
}

static void by_three_kills(const struct victim *v)
{
	by_kill(v);
	by_kill(v);
	by_kill(v);
}

static void by_kill_while_stopped(const struct victim *v)
{
	CHECK(!kill(v->pid, SIGSTOP), "stop");
	CHECK(waitpid(v->pid, NULL, WUNTRACED) == v->pid, "stopped");
	by_kill(v);
}

static void by_term(const struct victim *v)
{
	CHECK(!kill(v->pid, SIGTERM), "terminate");
}

static void by_thread_kill(const struct victim *v)
{
	CHECK(!syscall(SYS_tgkill, v->pid, v->pid, SIGKILL), "tgkill");
}

static void by_oom(const struct victim *v)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", v->pid);
	write_to(path, "1000");
	write_to("/proc/sysrq-trigger", "f");
}

struct way {
	const char *name;
	void (*body)(void);
	void (*end)(const struct victim *v);
	int dying, rounds;
};

static const struct way ways[] = {
	{ "kill", alone, by_kill, 1, 200 },
	{ "three kills", with_threads, by_three_kills, 1, 50 },
	{ "kill of a thread", alone, by_thread_kill, 1, 20 },
	{ "SIGTERM", alone, by_term, 1, 20 },
	{ "kill of 8 threads", with_threads, by_kill, 1, 100 },
	{ "kill of 8 busy threads", with_busy_threads, by_kill, 1, 20 },
	{ "kill while stopped", with_threads, by_kill_while_stopped, 1, 50 },
	{ "kill of 64 MB", with_much_memory, by_kill, 1, 5 },
	{ "OOM killer", with_much_memory, by_oom, 1, 3 },
	{ "fault", faults, say_go, 1, 50 },
	{ "abort", aborts, say_go, 1, 50 },
	{ "exit", returns, say_go, 0, 50 },
	{ "exit by 8 threads at once", all_threads_call_exit, say_go, 0, 100 },
	{ "end of 8 threads at once", all_threads_end, say_go, 0, 100 },
};

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void run_way(int fd, const struct way *way)
{
	uint64_t *ns = calloc(way->rounds, sizeof(*ns));

	for (int i = 0; i < way->rounds; i++) {
		struct victim v = registered(fd, way->body);

		ns[i] = now_ns();
		way->end(&v);
		await(v.number, DEAD, way->name);
		ns[i] = now_ns() - ns[i];
		expect(v.number, way->dying, 1, way->name);
		reap(&v);
		unregister(fd, &v);
	}
	qsort(ns, way->rounds, sizeof(*ns), compare);
	printf("%-28s %4d deaths, told after %6.0f us (median), %6.0f us (most)\n", way->name, way->rounds,
	       ns[way->rounds / 2] / 1e3, ns[way->rounds - 1] / 1e3);
	free(ns);
}

static char state_of(pid_t pid, pid_t thread)
{
	char path[64], text[256] = "", *end;
	int file;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", pid, thread);
	file = open(path, O_RDONLY);
	if (file < 0 || read(file, text, sizeof(text) - 1) <= 0)
		text[0] = 0;
	close(file);
	end = strrchr(text, ')');
	return end ? end[2] : 0;
}

static void no_death_while_a_thread_lives(int fd)
{
	for (int i = 0; i < 20; i++) {
		struct victim v = registered(fd, leader_ends_first);

		while (state_of(v.pid, v.pid) != 'Z')
			sched_yield();
		say_go(&v);
		marker(fd);
		expect(v.number, 0, 0, "the leader has ended, a thread lives");
		say_go(&v);
		await(v.number, DEAD, "the last thread has ended");
		expect(v.number, 0, 1, "the last thread has ended");
		reap(&v);
		unregister(fd, &v);
	}
}

static bool runs_sleep(pid_t pid)
{
	char path[64], name[16] = "";
	int file;

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	file = open(path, O_RDONLY);
	CHECK(file >= 0 && read(file, name, sizeof(name) - 1) > 0, "%s", path);
	close(file);
	return !strncmp(name, "sleep", 5);
}

static void exec_is_no_death(int fd)
{
	for (int i = 0; i < 20; i++) {
		struct victim v = registered(fd, thread_calls_exec);

		say_go(&v);
		while (!runs_sleep(v.pid))
			sched_yield();
		marker(fd);
		expect(v.number, 0, 0, "exec by a thread");
		by_kill(&v);
		await(v.number, DEAD, "kill after exec");
		expect(v.number, 1, 1, "kill after exec");
		reap(&v);
		unregister(fd, &v);
	}
}

static void what_does_not_kill_is_not_told(int fd)
{
	struct victim v = registered(fd, handles_and_blocks);
	const int handled[] = { SIGTERM, SIGSEGV };

	for (int i = 0; i < 2; i++) {
		CHECK(!kill(v.pid, handled[i]), "signal");
		await_ready(&v);
	}
	kill(v.pid, SIGABRT);
	kill(v.pid, SIGCHLD);
	kill(v.pid, SIGSTOP);
	kill(v.pid, SIGCONT);
	marker(fd);
	expect(v.number, 0, 0, "signals that are handled, blocked or ignored");
	by_kill(&v);
	await(v.number, DEAD, "kill after all those");
	expect(v.number, 1, 1, "kill after all those");
	reap(&v);
	unregister(fd, &v);
}

static void what_was_taken_back_is_not_told(int fd)
{
	struct victim v = registered(fd, alone), w = spawn(alone);
	int other = deadbeat_open(true, with_verbs);

	unregister(fd, &v);
	CHECK(!try_register(other, w.pid, w.number, NULL), "register");
	close(other);
	by_kill(&v);
	by_kill(&w);
	marker(fd);
	expect(v.number, 0, 0, "unregistered");
	expect(w.number, 0, 0, "file closed");
	reap(&v);
	reap(&w);
}

static unsigned int registers_itself_as;

static void registers_itself(void)
{
	int fd = deadbeat_open(true, with_verbs);

	CHECK(!try_register(fd, getpid(), registers_itself_as, NULL), "register");
	alone();
}

static void the_own_death_is_told_before_the_file_closes(void)
{
	for (int i = 0; i < 50; i++) {
		struct victim v;

		registers_itself_as = victims;
		v = spawn(registers_itself);
		by_kill(&v);
		await(v.number, DEAD, "own death");
		expect(v.number, 1, 1, "own death");
		reap(&v);
	}
}

// Registers processes that are just ending: the answer is ESRCH and there is no notice, or there is one.
static void a_registration_at_the_end_is_refused_or_told(int fd)
{
	int refused = 0, told = 0;

	for (int i = 0; i < 300; i++) {
		struct victim v = spawn(returns);

		say_go(&v);
		for (int turns = i % 30; turns > 0; turns--)
			sched_yield();
		if (try_register(fd, v.pid, v.number, &v.id)) {
			CHECK(errno == ESRCH, "register");
			marker(fd);
			expect(v.number, 0, 0, "refused");
			refused++;
		} else {
			await(v.number, DEAD, "registered at the end");
			unregister(fd, &v);
			told++;
		}
		siginfo_t end;

		CHECK(!waitid(P_PID, v.pid, &end, WEXITED | WNOWAIT), "wait");
		CHECK(try_register(fd, v.pid, v.number, NULL) && errno == ESRCH, "register a zombie");
		reap(&v);
	}
	printf("%-28s %4d refused, %d told\n", "registered at the end", refused, told);
}

static void a_crowd_is_told_one_by_one(int fd)
{
	struct victim all[CROWD];

	for (int i = 0; i < CROWD; i++) {
		all[i] = registered(fd, alone);
		CHECK(!setpgid(all[i].pid, all[0].pid), "group");
	}
	CHECK(!killpg(all[0].pid, SIGKILL), "kill");
	for (int i = 0; i < CROWD; i++) {
		await(all[i].number, DEAD, "crowd");
		expect(all[i].number, 1, 1, "crowd");
		reap(&all[i]);
		unregister(fd, &all[i]);
	}
}

static int run_ways(void)
{
	int fd;

	udp_open();
	if (with_verbs)
		verbs_open();
	fd = deadbeat_open(true, with_verbs);
	CHECK(fd >= 0, "/dev/deadbeat");
	refuses(fd);
	refuses_too_many();
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		run_way(fd, &ways[i]);
	no_death_while_a_thread_lives(fd);
	exec_is_no_death(fd);
	what_does_not_kill_is_not_told(fd);
	what_was_taken_back_is_not_told(fd);
	the_own_death_is_told_before_the_file_closes();
	a_registration_at_the_end_is_refused_or_told(fd);
	a_crowd_is_told_one_by_one(fd);
	marker(fd);
	close(fd);
	printf("%u victims, every death told once%s\n", victims, with_verbs ? ", by UDP and by verbs" : "");
	return 0;
}

static int run_times(void)
{
	int fd;

	udp_open();
	if (with_verbs)
		verbs_open();
	// One of them at a time.
	without_udp = with_verbs;
	fd = deadbeat_open(!without_udp, with_verbs);
	CHECK(fd >= 0, "/dev/deadbeat");
	run_way(fd, &ways[0]);
	close(fd);
	return 0;
}

static int run_ebpf(gid_t group)
{
	ebpf_open();
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		run_way(-1, &ways[i]);
	no_death_while_a_thread_lives(-1);
	exec_is_no_death(-1);
	what_does_not_kill_is_not_told(-1);
	a_crowd_is_told_one_by_one(-1);
	ebpf_tells_a_reused_number_apart();
	ebpf_serves_members_of_the_group_alone(group);
	printf("%u victims, every death told by the eBPF programs\n", victims);
	return 0;
}

static int run_storm(const char *stop)
{
	int absent = 0, told = 0;

	udp_open();
	while (access(stop, F_OK)) {
		int fd = deadbeat_open(true, false);
		struct victim v;

		if (fd < 0) {
			CHECK(errno == ENOENT || errno == ENODEV || errno == ENXIO, "open");
			absent++;
			usleep(1000);
			continue;
		}
		// A victim more than is killed: its registration ends with the file.
		v = spawn(alone);
		CHECK(!try_register(fd, v.pid, v.number, NULL), "register");
		struct victim w = registered(fd, with_threads);

		by_kill(&w);
		await(w.number, DEAD, "storm");
		reap(&w);
		close(fd);
		by_kill(&v);
		reap(&v);
		CHECK(!by_udp.seen[v.number][DEAD], "told after the file was closed");
		told++;
		// The module can only go while no file is open.
		if (told % 4 == 0)
			usleep(20000);
		victims = victims > VICTIMS_MAX - 4 ? 0 : victims;
		if (!victims)
			memset(by_udp.seen, 0, sizeof(by_udp.seen));
	}
	CHECK(absent && told, "the module was absent %d times, %d deaths were told", absent, told);
	printf("storm: %d deaths told, the module was absent %d times\n", told, absent);
	return 0;
}

static int run_lost(void)
{
	int fd = deadbeat_open(true, true), status;
	struct victim v;
	char command[128];

	udp_open();
	v = registered(fd, alone);
	snprintf(command, sizeof(command), "rdma link delete %s", device);
	status = system(command);
	CHECK(status == 0, "%s: %d", command, status);
	by_kill(&v);
	await(v.number, DEAD, "after the device went");
	expect(v.number, 1, 1, "after the device went");
	reap(&v);
	close(fd);
	printf("the device went: told by UDP\n");
	return 0;
}

int main(int count, char **words)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	CHECK(count >= 3, "usage: deaths ways|storm|lost INTERFACE ...; see the top of %s", __FILE__);
	if (!strcmp(words[1], "ebpf"))
		return run_ebpf(atoi(words[2]));
	interface = words[2];
	if (!strcmp(words[1], "storm") && count == 4)
		return run_storm(words[3]);
	if (count == 5) {
		device = words[3];
		gid_index = atoi(words[4]);
	}
	if (!strcmp(words[1], "lost") && device)
		return run_lost();
	with_verbs = device != NULL;
	if (!strcmp(words[1], "times"))
		return run_times();
	CHECK(!strcmp(words[1], "ways"), "unknown command %s", words[1]);
	return run_ways();
}

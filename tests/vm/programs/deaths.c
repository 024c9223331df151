// SPDX-License-Identifier: Apache-2.0
// Kills processes in every way and checks the notices that deadbeat.ko sends.
//
//   deaths ways INTERFACE [DEVICE GID_INDEX]   every way to die, and every way not to
//   deaths storm INTERFACE STOP_FILE           kills until STOP_FILE exists, with the module coming and going
//   deaths lost INTERFACE DEVICE GID_INDEX     what holds after the RDMA device has been deleted (by `rdma link delete`)
//
// Each notice names a victim and a kind. A receiver takes them in the order of their sending, on loopback without loss; so
// when the notice of a *marker* (a process that is killed last) is there, all that was sent before it is there, too.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../../kernel/deadbeat.h"

#define GROUP "239.77.1.2"
#define PORT 7712
#define QKEY 0x00112233u
#define THREADS 8
#define CROWD 48
#define VICTIMS_MAX 4096
#define GRH_BYTES 40
#define RECEIVES 512
// Bounds a hang, nothing else.
#define PATIENCE_MS 30000

#define CHECK(condition, ...)                                                                        \
	do {                                                                                         \
		if (!(condition)) {                                                                  \
			fprintf(stderr, "FAILED %s:%d: %s (errno %s): ", __FILE__, __LINE__,         \
				#condition, strerror(errno));                                        \
			fprintf(stderr, __VA_ARGS__);                                                \
			fprintf(stderr, "\n");                                                       \
			exit(1);                                                                     \
		}                                                                                    \
	} while (0)

enum kind { DYING, DEAD, KINDS };

struct notice {
	uint32_t magic, victim, kind;
};
#define MAGIC 0x6265646fu

// What a receiver has seen of each victim.
struct receiver {
	const char *name;
	int seen[VICTIMS_MAX][KINDS];
};

static struct receiver by_udp = { .name = "UDP" }, by_verbs = { .name = "verbs" };
static bool with_verbs;
static int udp_socket;
static unsigned int victims;
static const char *interface, *device;
static int gid_index;

static uint64_t now_ns(void)
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
	if (notice->kind == DYING)
		CHECK(!receiver->seen[notice->victim][DEAD], "%s: victim %u was dead before it was dying",
		      receiver->name, notice->victim);
}

static void udp_open(void)
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

static void multicast_gid(uint8_t gid[16])
{
	memset(gid, 0, 16);
	gid[10] = gid[11] = 0xff;
	inet_pton(AF_INET, GROUP, gid + 12);
}

static void verbs_open(void)
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
	while (udp_take())
		;
	while (with_verbs && verbs_take())
		;
	return by_udp.seen[victim][kind] && (!with_verbs || by_verbs.seen[victim][kind]);
}

static void await(unsigned int victim, enum kind kind, const char *what)
{
	uint64_t until = now_ns() + PATIENCE_MS * 1000000ull;

	while (!is_there(victim, kind)) {
		CHECK(now_ns() < until, "%s: no notice %d of victim %u (UDP %d, verbs %d)", what, kind,
		      victim, by_udp.seen[victim][kind], by_verbs.seen[victim][kind]);
		sched_yield();
	}
}

static int deadbeat_open(bool udp, bool verbs)
{
	struct deadbeat_configuration where = {
		.destinations = (udp ? DEADBEAT_UDP : 0) | (verbs ? DEADBEAT_VERBS : 0),
		.udp = { .interface = if_nametoindex(interface), .port = PORT },
		.verbs = { .port = 1, .gid_index = gid_index, .qkey = QKEY, .hop_limit = 1 },
	};
	uint32_t abi = 0;
	int fd = open("/dev/deadbeat", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return fd;
	CHECK(!ioctl(fd, DEADBEAT_GET_ABI, &abi) && abi == DEADBEAT_ABI, "interface %u", abi);
	multicast_gid(where.udp.group);
	multicast_gid(where.verbs.group);
	if (device)
		strncpy(where.verbs.device, device, sizeof(where.verbs.device) - 1);
	CHECK(!ioctl(fd, DEADBEAT_CONFIGURE, &where), "configure");
	return fd;
}

static int try_register(int fd, pid_t pid, unsigned int victim, uint32_t *id)
{
	struct deadbeat_registration r = { .pid = pid };
	struct notice notice = { MAGIC, victim, DYING };

	r.dying_bytes = r.dead_bytes = sizeof(notice);
	memcpy(r.dying, &notice, sizeof(notice));
	notice.kind = DEAD;
	memcpy(r.dead, &notice, sizeof(notice));
	if (ioctl(fd, DEADBEAT_REGISTER, &r))
		return -1;
	if (id)
		*id = r.id;
	return 0;
}

static unsigned int number(void)
{
	CHECK(victims < VICTIMS_MAX, "too many victims for one run");
	return victims++;
}

// What a victim does until it is killed. It says so by a byte on a pipe, and may be told to go on by another.
static int ready, go;

static void tell_ready(void)
{
	CHECK(write(ready, "r", 1) == 1, "ready");
}

static void await_go(void)
{
	char byte;

	CHECK(read(go, &byte, 1) == 1, "go");
}

static void *rest(void *unused)
{
	(void)unused;
	for (;;)
		pause();
	return NULL;
}

static void *burn(void *unused)
{
	(void)unused;
	for (volatile uint64_t i = 0;; i++)
		;
	return NULL;
}

static void start_threads(void *(*body)(void *))
{
	for (int i = 1; i < THREADS; i++) {
		pthread_t thread;
		pthread_attr_t small;

		pthread_attr_init(&small);
		pthread_attr_setstacksize(&small, 65536);
		CHECK(!pthread_create(&thread, &small, body, NULL), "thread");
	}
}

static void alone(void)
{
	tell_ready();
	rest(NULL);
}

static void with_threads(void)
{
	start_threads(rest);
	tell_ready();
	rest(NULL);
}

static void with_busy_threads(void)
{
	start_threads(burn);
	tell_ready();
	burn(NULL);
}

static void with_much_memory(void)
{
	size_t bytes = 64 << 20;
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(memory != MAP_FAILED, "memory");
	memset(memory, 1, bytes);
	alone();
}

static pthread_barrier_t barrier;

static void *exit_group_together(void *unused)
{
	(void)unused;
	pthread_barrier_wait(&barrier);
	_exit(3);
}

static void all_threads_call_exit(void)
{
	pthread_barrier_init(&barrier, NULL, THREADS);
	start_threads(exit_group_together);
	tell_ready();
	await_go();
	exit_group_together(NULL);
}

static void *end_together(void *unused)
{
	(void)unused;
	pthread_barrier_wait(&barrier);
	syscall(SYS_exit, 0);
	return NULL;
}

static void all_threads_end(void)
{
	pthread_barrier_init(&barrier, NULL, THREADS);
	start_threads(end_together);
	tell_ready();
	await_go();
	end_together(NULL);
}

static void *outlive_leader(void *unused)
{
	(void)unused;
	await_go();
	await_go();
	_exit(0);
}

static void leader_ends_first(void)
{
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, outlive_leader, NULL), "thread");
	tell_ready();
	syscall(SYS_exit, 0);
}

static void *exec_sleep(void *unused)
{
	(void)unused;
	await_go();
	execl("/bin/sleep", "sleep", "1000", NULL);
	CHECK(false, "exec");
}

static void thread_calls_exec(void)
{
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, exec_sleep, NULL), "thread");
	tell_ready();
	rest(NULL);
}

static void faults(void)
{
	volatile int *volatile nowhere = NULL;

	tell_ready();
	await_go();
	*nowhere = 1;
}

static void aborts(void)
{
	tell_ready();
	await_go();
	abort();
}

static void returns(void)
{
	tell_ready();
	await_go();
	exit(0);
}

static void on_signal(int signal)
{
	(void)signal;
	tell_ready();
}

static void handles_and_blocks(void)
{
	sigset_t blocked;

	signal(SIGTERM, on_signal);
	signal(SIGSEGV, on_signal);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGABRT);
	sigprocmask(SIG_BLOCK, &blocked, NULL);
	alone();
}

struct victim {
	unsigned int number;
	pid_t pid;
	uint32_t id;
	int ready, go;
};

static void await_ready(const struct victim *v)
{
	char byte;

	CHECK(read(v->ready, &byte, 1) == 1, "victim %u did not get ready", v->number);
}

static struct victim spawn(void (*body)(void))
{
	struct victim v = { .number = number() };
	int up[2], down[2];

	CHECK(!pipe2(up, O_CLOEXEC) && !pipe2(down, O_CLOEXEC), "pipes");
	v.pid = fork();
	CHECK(v.pid >= 0, "fork");
	if (!v.pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		// A file of the module would live on in the child.
		ready = dup3(up[1], 1000, O_CLOEXEC);
		go = dup3(down[0], 1001, O_CLOEXEC);
		CHECK(ready >= 0 && go >= 0 && !close_range(3, 999, 0), "descriptors");
		body();
		_exit(1);
	}
	close(up[1]);
	close(down[0]);
	v.ready = up[0];
	v.go = down[1];
	await_ready(&v);
	return v;
}

static struct victim registered(int fd, void (*body)(void))
{
	struct victim v = spawn(body);

	CHECK(!try_register(fd, v.pid, v.number, &v.id), "register");
	return v;
}

static void say_go(const struct victim *v)
{
	CHECK(write(v->go, "g", 1) == 1, "go");
}

static void reap(const struct victim *v)
{
	CHECK(waitpid(v->pid, NULL, 0) == v->pid, "wait");
	close(v->ready);
	close(v->go);
}

static void expect(const struct victim *v, int dying, int dead, const char *what)
{
	const struct receiver *all[] = { &by_udp, &by_verbs };

	for (int i = 0; i < 1 + with_verbs; i++)
		CHECK(all[i]->seen[v->number][DYING] == dying && all[i]->seen[v->number][DEAD] == dead,
		      "%s, %s: dying %d, dead %d", what, all[i]->name, all[i]->seen[v->number][DYING],
		      all[i]->seen[v->number][DEAD]);
}

// After this, all that was sent before is there.
static void marker(int fd)
{
	struct victim v = registered(fd, alone);

	kill(v.pid, SIGKILL);
	await(v.number, DEAD, "marker");
	reap(&v);
}

static void unregister(int fd, const struct victim *v)
{
	uint32_t id = v->id;

	CHECK(!ioctl(fd, DEADBEAT_UNREGISTER, &id), "unregister");
	CHECK(ioctl(fd, DEADBEAT_UNREGISTER, &id) && errno == ENOENT, "unregister again");
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
		expect(&v, way->dying, 1, way->name);
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
		expect(&v, 0, 0, "the leader has ended, a thread lives");
		say_go(&v);
		await(v.number, DEAD, "the last thread has ended");
		expect(&v, 0, 1, "the last thread has ended");
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
		expect(&v, 0, 0, "exec by a thread");
		by_kill(&v);
		await(v.number, DEAD, "kill after exec");
		expect(&v, 1, 1, "kill after exec");
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
	expect(&v, 0, 0, "signals that are handled, blocked or ignored");
	by_kill(&v);
	await(v.number, DEAD, "kill after all those");
	expect(&v, 1, 1, "kill after all those");
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
	expect(&v, 0, 0, "unregistered");
	expect(&w, 0, 0, "file closed");
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
		expect(&v, 1, 1, "own death");
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
			expect(&v, 0, 0, "refused");
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
		expect(&all[i], 1, 1, "crowd");
		reap(&all[i]);
		unregister(fd, &all[i]);
	}
}

static void refuses(int fd)
{
	struct deadbeat_configuration where = { .destinations = DEADBEAT_UDP };
	struct deadbeat_registration r = { .pid = getpid(), .dead_bytes = 1 };
	int fresh = open("/dev/deadbeat", O_RDWR | O_CLOEXEC);
	struct victim v;

	CHECK(fresh >= 0, "open");
	CHECK(ioctl(fresh, DEADBEAT_REGISTER, &r) && errno == ENOTCONN, "register before configure");
	CHECK(ioctl(fresh, DEADBEAT_CONFIGURE, &where) && errno == EINVAL, "no port");
	where.udp.port = PORT;
	inet_pton(AF_INET6, "::ffff:10.1.0.1", where.udp.group);
	CHECK(ioctl(fresh, DEADBEAT_CONFIGURE, &where) && errno == EINVAL, "no multicast");
	inet_pton(AF_INET6, "ff02::77", where.udp.group);
	where.udp.interface = 9999;
	CHECK(ioctl(fresh, DEADBEAT_CONFIGURE, &where) && errno == ENODEV, "no interface");
	where.destinations = DEADBEAT_VERBS;
	where.verbs.port = 1;
	multicast_gid(where.verbs.group);
	strcpy(where.verbs.device, "none");
	CHECK(ioctl(fresh, DEADBEAT_CONFIGURE, &where) && errno == ENODEV, "no device");
	memset(where.verbs.device, 'x', sizeof(where.verbs.device));
	CHECK(ioctl(fresh, DEADBEAT_CONFIGURE, &where) && errno == EINVAL, "endless name");
	where.destinations = 0;
	CHECK(ioctl(fresh, DEADBEAT_CONFIGURE, &where) && errno == EINVAL, "no destination");
	where.destinations = 8;
	CHECK(ioctl(fresh, DEADBEAT_CONFIGURE, &where) && errno == EINVAL, "unknown destination");
	CHECK(ioctl(fd, DEADBEAT_CONFIGURE, &where) && errno == EINVAL, "unknown destination");
	where.destinations = DEADBEAT_UDP;
	CHECK(ioctl(fd, DEADBEAT_CONFIGURE, &where) && errno == EISCONN, "configure twice");
	close(fresh);

	r.dead_bytes = 0;
	CHECK(ioctl(fd, DEADBEAT_REGISTER, &r) && errno == EINVAL, "empty notice");
	r.dead_bytes = DEADBEAT_NOTICE_MAX + 1;
	CHECK(ioctl(fd, DEADBEAT_REGISTER, &r) && errno == EINVAL, "long notice");
	r.dead_bytes = 1;
	r.pid = 0;
	CHECK(ioctl(fd, DEADBEAT_REGISTER, &r) && errno == ESRCH, "no process");
	CHECK(ioctl(fd, _IO(0xdb, 0x7f), 0) && errno == ENOTTY, "unknown call");
	CHECK(ioctl(fd, DEADBEAT_REGISTER, NULL) && errno == EFAULT, "null");

	// Another user may register his own processes, and no others.
	v = spawn(alone);
	if (fork() == 0) {
		CHECK(!setresuid(65534, 65534, 65534), "user");
		CHECK(open("/dev/deadbeat", O_RDWR) < 0 && errno == EACCES, "open without permission");
		CHECK(try_register(fd, v.pid, v.number, NULL) && errno == EPERM, "of another user");
		CHECK(!try_register(fd, getpid(), v.number, &v.id), "own");
		unregister(fd, &v);
		_exit(0);
	}
	int status;

	CHECK(wait(&status) > 0 && status == 0, "the other user's process");
	by_kill(&v);
	reap(&v);
}

static void refuses_too_many(void)
{
	int fd = deadbeat_open(true, false);
	struct victim v = spawn(alone);
	uint32_t first;

	CHECK(!try_register(fd, v.pid, v.number, &first), "register");
	for (int i = 1; i < DEADBEAT_REGISTRATIONS_MAX; i++)
		CHECK(!try_register(fd, v.pid, v.number, NULL), "register %d", i);
	CHECK(try_register(fd, v.pid, v.number, NULL) && errno == ENOSPC, "one too many");
	CHECK(!ioctl(fd, DEADBEAT_UNREGISTER, &first), "unregister");
	CHECK(!try_register(fd, v.pid, v.number, NULL), "register in its place");
	close(fd);
	by_kill(&v);
	reap(&v);
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
	expect(&v, 1, 1, "after the device went");
	reap(&v);
	close(fd);
	printf("the device went: told by UDP\n");
	return 0;
}

int main(int count, char **words)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	CHECK(count >= 3, "usage: deaths ways|storm|lost INTERFACE ...; see the top of %s", __FILE__);
	interface = words[2];
	if (!strcmp(words[1], "storm") && count == 4)
		return run_storm(words[3]);
	if (count == 5) {
		device = words[3];
		gid_index = atoi(words[4]);
	}
	if (!strcmp(words[1], "lost") && device)
		return run_lost();
	CHECK(!strcmp(words[1], "ways"), "unknown command %s", words[1]);
	with_verbs = device != NULL;
	return run_ways();
}

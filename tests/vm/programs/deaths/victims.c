// SPDX-License-Identifier: Apache-2.0
// Processes to be killed, and what they do until then.
#include "deaths.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define THREADS 8

unsigned int victims;

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

void alone(void)
{
	tell_ready();
	rest(NULL);
}

void with_threads(void)
{
	start_threads(rest);
	tell_ready();
	rest(NULL);
}

void with_busy_threads(void)
{
	start_threads(burn);
	tell_ready();
	burn(NULL);
}

void with_much_memory(void)
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

void all_threads_call_exit(void)
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

void all_threads_end(void)
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

void leader_ends_first(void)
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

void thread_calls_exec(void)
{
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, exec_sleep, NULL), "thread");
	tell_ready();
	rest(NULL);
}

void faults(void)
{
	volatile int *volatile nowhere = NULL;

	tell_ready();
	await_go();
	*nowhere = 1;
}

void aborts(void)
{
	tell_ready();
	await_go();
	abort();
}

void returns(void)
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

void handles_and_blocks(void)
{
	sigset_t blocked;

	signal(SIGTERM, on_signal);
	signal(SIGSEGV, on_signal);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGABRT);
	sigprocmask(SIG_BLOCK, &blocked, NULL);
	alone();
}

void await_ready(const struct victim *v)
{
	char byte;

	CHECK(read(v->ready, &byte, 1) == 1, "victim %u did not get ready", v->number);
}

struct victim spawn(void (*body)(void))
{
	struct victim v = { .number = number() };
	int up[2], down[2];

	CHECK(!pipe2(up, O_CLOEXEC) && !pipe2(down, O_CLOEXEC), "pipes");
	v.pid = fork();
	CHECK(v.pid >= 0, "fork");
	if (!v.pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		// A file of the module would live on in the child.
		ebpf_register(v.number);
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

void say_go(const struct victim *v)
{
	CHECK(write(v->go, "g", 1) == 1, "go");
}

void reap(const struct victim *v)
{
	CHECK(waitpid(v->pid, NULL, 0) == v->pid, "wait");
	close(v->ready);
	close(v->go);
}

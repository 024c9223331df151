// The floor of a failover in C, to hold obol's own against (fabric/src/host/floor.rs says what the
// nine processes do). Prints the medians of two times since the kill, in nanoseconds: until the
// deciding coordinator saw it, and until the last of four apps knew.
//
//   failover COUNT
#define _GNU_SOURCE
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { VICTIM, DECIDER, BYSTANDER, CACHE, APP = CACHE + 2, ROLES = APP + 4 };
enum { YIELD_NS = 30000, WARM_UPS = 3, PRIORITY = 50, COUNT_MAX = 10000 };

typedef struct { _Alignas(64) _Atomic uint32_t w; } word;
typedef struct { _Alignas(64) _Atomic uint64_t t; } stamp;
typedef struct { _Alignas(64) struct robust_list list; _Atomic uint32_t w; } node;

static struct {
  node nodes[2];
  stamp acceptor[3];
  word view, served[2], ready, victim_ready, done, unused;
  stamp detected[2], active[4];
} *s;
static struct robust_list_head head;

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC_RAW, &t);
  return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void nap(long ns) { nanosleep(&(struct timespec){0, ns}, NULL); }

static void futex(_Atomic uint32_t *w, int op, uint32_t value, const struct timespec *timeout) {
  syscall(SYS_futex, w, op, value, timeout, NULL, 0);
}

// Waits until one of these bits is set.
static void await(_Atomic uint32_t *w, uint32_t bits) {
  uint64_t began = now();
  for (uint32_t value; !((value = atomic_load(w)) & bits);)
    if (now() - began < YIELD_NS) sched_yield();
    else futex(w, FUTEX_WAIT, value, NULL);
}

static void publish(word *to) {
  atomic_store(&to->w, 1);
  futex(&to->w, FUTEX_WAKE, INT_MAX, NULL);
}

static void ready(void) { atomic_fetch_add(&s->ready.w, 1); }

static void swap(uint64_t from) {
  for (int i = 0; i < 3; i++) atomic_compare_exchange_strong(&s->acceptor[i].t, &(uint64_t){from}, from + 1000);
}

static void play(int role) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (int i = 0; i < WARM_UPS; i++) {
    for (int k = 0; k < 4; k++) s->active[k].t = s->detected[k & 1].t = now();
    swap(UINT64_MAX);
    futex(&s->unused.w, FUTEX_WAKE, 1, NULL);
    futex(&s->unused.w, FUTEX_WAIT, 0, &(struct timespec){0, 1000});
    nap(1000);
    sched_yield();
  }
  if (role < APP) prctl(PR_SET_TIMERSLACK, 1);
  if (role == VICTIM) {
    head.list.next = &s->nodes[0].list;
    s->nodes[0].list.next = &s->nodes[1].list;
    s->nodes[1].list.next = &head.list;
    head.futex_offset = offsetof(node, w);
    s->nodes[0].w = s->nodes[1].w = (uint32_t)gettid();
    if (syscall(SYS_set_robust_list, &head, sizeof head)) abort();
    atomic_store(&s->victim_ready.w, 1);
    ready();
    for (;;) pause();
  }
  if (role < CACHE) {
    _Atomic uint32_t *w = &s->nodes[role - DECIDER].w;
    while (!atomic_load(&s->victim_ready.w)) nap(20000);
    ready();
    atomic_fetch_or(w, FUTEX_WAITERS);
    await(w, FUTEX_OWNER_DIED);
    s->detected[role - DECIDER].t = now();
    if (role == DECIDER) {
      for (int i = 0; i < 3; i++) (void)atomic_load(&s->acceptor[i].t);
      swap(0);
      swap(1000);
      publish(&s->view);
    }
  } else if (role < APP) {
    ready();
    await(&s->view.w, 1);
    publish(&s->served[role - CACHE]);
  } else {
    ready();
    await(&s->served[(role - APP) % 2].w, 1);
    s->active[role - APP].t = now();
  }
  atomic_fetch_add(&s->done.w, 1);
  for (;;) pause();
}

static int later(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

int main(int argc, char **argv) {
  static uint64_t detected[COUNT_MAX], last[COUNT_MAX];
  int count = argc == 2 ? atoi(argv[1]) : 0;
  if (count < 1 || count > COUNT_MAX) return fprintf(stderr, "usage: failover COUNT\n"), 2;
  s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (s == MAP_FAILED) return perror("mmap"), 1;
  // Without the right to it, the figures are larger.
  (void)sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &(struct sched_param){PRIORITY});
  for (int n = 0; n < count; n++) {
    pid_t pids[ROLES];
    memset(s, 0, sizeof *s);
    for (int role = 0; role < ROLES; role++) {
      pids[role] = fork();
      if (pids[role] < 0) return perror("fork"), 1;
      if (pids[role] == 0) play(role);
    }
    while (atomic_load(&s->ready.w) < ROLES) nap(100000);
    nap(3000000 + n * 7919L % 1000 * 3000);
    uint64_t killed = now();
    kill(pids[VICTIM], SIGKILL);
    while (atomic_load(&s->done.w) < ROLES - 1) nap(300000);
    detected[n] = s->detected[0].t - killed;
    for (int i = 0; i < 4; i++)
      if (s->active[i].t - killed > last[n]) last[n] = s->active[i].t - killed;
    for (int i = 0; i < ROLES; i++) kill(pids[i], SIGKILL), waitpid(pids[i], NULL, 0);
  }
  qsort(detected, (size_t)count, sizeof *detected, later);
  qsort(last, (size_t)count, sizeof *last, later);
  printf("%llu %llu\n", (unsigned long long)detected[count / 2], (unsigned long long)last[count / 2]);
}

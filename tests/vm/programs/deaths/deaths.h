// SPDX-License-Identifier: Apache-2.0
// What the files of this program share; main.c tells what it is for.
#ifndef DEATHS_H
#define DEATHS_H

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deadbeat.h"

#define GROUP "239.77.1.2"
#define PORT 7712
#define QKEY 0x00112233u
#define VICTIMS_MAX 4096

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

// receive.c: what has come, by each way.
struct receiver {
	const char *name;
	int seen[VICTIMS_MAX][KINDS];
};

extern struct receiver by_udp, by_verbs;
extern bool with_verbs, without_udp;
extern const char *interface, *device;
extern int gid_index;

struct notice {
	uint32_t magic, victim, kind;
};
#define MAGIC 0x6265646fu

uint64_t now_ns(void);
void udp_open(void);
void verbs_open(void);
void multicast_gid(uint8_t gid[16]);
// Waits until a notice has come by all ways.
void await(unsigned int victim, enum kind kind, const char *what);
void expect(unsigned int victim, int dying, int dead, const char *what);

// victims.c: processes to be killed.
struct victim {
	unsigned int number;
	pid_t pid;
	uint32_t id;
	int ready, go;
};

extern unsigned int victims;

struct victim spawn(void (*body)(void));
void await_ready(const struct victim *v);
void say_go(const struct victim *v);
void reap(const struct victim *v);

// What a victim does.
void alone(void);
void with_threads(void);
void with_busy_threads(void);
void with_much_memory(void);
void all_threads_call_exit(void);
void all_threads_end(void);
void leader_ends_first(void);
void thread_calls_exec(void);
void faults(void);
void aborts(void);
void returns(void);
void handles_and_blocks(void);

// module.c: /dev/deadbeat.
int deadbeat_open(bool udp, bool verbs);
int try_register(int fd, pid_t pid, unsigned int victim, uint32_t *id);
struct victim registered(int fd, void (*body)(void));
void unregister(int fd, const struct victim *v);
void refuses(int fd);
void refuses_too_many(void);

// ebpf.c: the eBPF programs.
extern bool with_ebpf;

void ebpf_open(void);
void ebpf_register(unsigned int victim);
bool ebpf_has_told(unsigned int victim, enum kind kind);
void ebpf_expect(unsigned int victim, int dying, int dead, const char *what);
void ebpf_tells_a_reused_number_apart(void);
void ebpf_serves_members_of_the_group_alone(gid_t group);

#endif

// SPDX-License-Identifier: Apache-2.0
// The eBPF programs of kernel/bpf: a victim registers itself, and its slot of a mapped array tells what became of it.
#include "deaths.h"

#include <grp.h>
#include <linux/bpf.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define DIRECTORY "/run/obol-deaths/"
#define NOBODY 65534

bool with_ebpf;
static bool registers = true;
static const volatile uint64_t (*told)[KINDS];

static int get(const char *path, int flags)
{
	union bpf_attr wanted = { .pathname = (uintptr_t)path, .file_flags = flags };

	return syscall(SYS_bpf, BPF_OBJ_GET, &wanted, sizeof(wanted));
}

void ebpf_open(void)
{
	int map = get(DIRECTORY "deaths", 0);
	union bpf_attr wanted = { .map_fd = map, .flags = BPF_ANY };
	uint32_t key = 0;
	uint64_t value[KINDS] = { 1, 1 };

	CHECK(map >= 0, "the array of deaths");
	told = mmap(NULL, VICTIMS_MAX * sizeof(*told), PROT_READ, MAP_SHARED, map, 0);
	CHECK(told != MAP_FAILED, "map");
	CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, map, 0) == MAP_FAILED, "mapped for writing");
	wanted.key = (uintptr_t)&key;
	wanted.value = (uintptr_t)value;
	CHECK(syscall(SYS_bpf, BPF_MAP_UPDATE_ELEM, &wanted, sizeof(wanted)) < 0, "written by user space");
	close(map);
	with_ebpf = true;
}

static uint64_t token(unsigned int victim, enum kind kind)
{
	return (uint64_t)MAGIC << 32 | victim << 1 | kind;
}

static int try_to_register(unsigned int victim)
{
	struct {
		uint32_t slot, reserved;
		uint64_t tokens[KINDS];
	} process = { .slot = victim, .tokens = { token(victim, DYING), token(victim, DEAD) } };
	int program = get(DIRECTORY "register", BPF_F_RDONLY);
	union bpf_attr run = {
		.test = { .prog_fd = program, .ctx_size_in = sizeof(process), .ctx_in = (uintptr_t)&process },
	};

	if (program < 0)
		return -1;
	CHECK(!syscall(SYS_bpf, BPF_PROG_TEST_RUN, &run, sizeof(run)), "run");
	close(program);
	errno = -(int)run.test.retval;
	return errno ? -1 : 0;
}

void ebpf_register(unsigned int victim)
{
	if (with_ebpf && registers)
		CHECK(!try_to_register(victim), "register");
}

bool ebpf_has_told(unsigned int victim, enum kind kind)
{
	return told[victim][kind] == token(victim, kind);
}

void ebpf_expect(unsigned int victim, int dying, int dead, const char *what)
{
	CHECK(told[victim][DYING] == (dying ? token(victim, DYING) : 0) &&
		      told[victim][DEAD] == (dead ? token(victim, DEAD) : 0),
	      "%s: dying %#lx, dead %#lx", what, told[victim][DYING], told[victim][DEAD]);
}

static void kill_and_reap(const struct victim *v)
{
	CHECK(!kill(v->pid, SIGKILL), "kill");
	reap(v);
}

// Has the next process get the number `pid`.
static struct victim spawn_as(pid_t pid)
{
	char before[16];
	int file = open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);
	int n = snprintf(before, sizeof(before), "%d", pid - 1);
	struct victim v;

	CHECK(file >= 0 && write(file, before, n) == n, "ns_last_pid");
	close(file);
	v = spawn(alone);
	CHECK(v.pid == pid, "got %d, not %d", v.pid, pid);
	return v;
}

void ebpf_tells_a_reused_number_apart(void)
{
	for (int i = 0; i < 20; i++) {
		struct victim first = spawn(alone), stranger, second;

		kill_and_reap(&first);
		ebpf_expect(first.number, 1, 1, "the first of its number");
		registers = false;
		stranger = spawn_as(first.pid);
		kill_and_reap(&stranger);
		ebpf_expect(stranger.number, 0, 0, "a stranger of the same number");
		registers = true;
		second = spawn_as(first.pid);
		ebpf_expect(second.number, 0, 0, "the second of its number");
		kill_and_reap(&second);
		ebpf_expect(second.number, 1, 1, "the second of its number");
		ebpf_expect(first.number, 1, 1, "the first, still");
	}
}

static gid_t member_of;
static unsigned int registers_as;

static void becomes_nobody_and_registers(void)
{
	CHECK(!setgroups(member_of != 0, &member_of) && !setgid(NOBODY) && !setuid(NOBODY), "nobody");
	if (member_of) {
		CHECK(!try_to_register(registers_as), "register as a member of the group");
		// Twice is once: the first tokens hold.
		CHECK(!try_to_register(registers_as + 1), "register again");
	} else {
		CHECK(try_to_register(registers_as) && errno == EACCES, "a stranger registers");
	}
	alone();
}

void ebpf_serves_members_of_the_group_alone(gid_t group)
{
	for (int i = 0; i < 2; i++) {
		struct victim v;

		registers = false;
		registers_as = victims;
		member_of = i ? 0 : group;
		v = spawn(becomes_nobody_and_registers);
		kill_and_reap(&v);
		ebpf_expect(v.number, !i, !i, i ? "a stranger" : "a member of the group");
		ebpf_expect(v.number + 1, 0, 0, "registered twice");
		registers = true;
	}
}

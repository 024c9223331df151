// SPDX-License-Identifier: Apache-2.0
// What is asked of /dev/deadbeat, and what it must refuse.
#include "deaths.h"

int deadbeat_open(bool udp, bool verbs)
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

int try_register(int fd, pid_t pid, unsigned int victim, uint32_t *id)
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

struct victim registered(int fd, void (*body)(void))
{
	struct victim v = spawn(body);

	CHECK(with_ebpf || !try_register(fd, v.pid, v.number, &v.id), "register");
	return v;
}

void unregister(int fd, const struct victim *v)
{
	uint32_t id = v->id;

	// A program keeps a process until its death.
	if (with_ebpf)
		return;
	CHECK(!ioctl(fd, DEADBEAT_UNREGISTER, &id), "unregister");
	CHECK(ioctl(fd, DEADBEAT_UNREGISTER, &id) && errno == ENOENT, "unregister again");
}

void refuses(int fd)
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
	kill(v.pid, SIGKILL);
	reap(&v);
}

// Registers a process as often as it may be.
static void fill(int fd, struct victim *v)
{
	for (int i = 0; i < DEADBEAT_PROCESS_REGISTRATIONS_MAX; i++)
		CHECK(!try_register(fd, v->pid, v->number, NULL), "register %d", i);
}

void refuses_too_many(void)
{
	enum { FILES = DEADBEAT_USER_REGISTRATIONS_MAX / DEADBEAT_REGISTRATIONS_MAX };
	enum { VICTIMS = DEADBEAT_REGISTRATIONS_MAX / DEADBEAT_PROCESS_REGISTRATIONS_MAX };
	static struct victim v[FILES][VICTIMS];
	struct victim more = spawn(alone);
	int fd[FILES + 1];
	uint32_t first;

	// Of a process, by whichever file.
	fd[0] = deadbeat_open(true, false);
	fd[1] = deadbeat_open(true, false);
	CHECK(!try_register(fd[0], more.pid, more.number, &first), "register");
	for (int i = 1; i < DEADBEAT_PROCESS_REGISTRATIONS_MAX; i++)
		CHECK(!try_register(fd[i % 2], more.pid, more.number, NULL), "register %d", i);
	CHECK(try_register(fd[1], more.pid, more.number, NULL) && errno == EDQUOT, "one too many of a process");
	CHECK(!ioctl(fd[0], DEADBEAT_UNREGISTER, &first), "unregister");
	CHECK(!try_register(fd[1], more.pid, more.number, NULL), "register in its place");
	close(fd[0]);
	close(fd[1]);
	// Of a file, and of a user. What was closed counts until it is freed.
	for (int f = 0; f < FILES; f++) {
		fd[f] = deadbeat_open(true, false);
		for (int i = 0; i < VICTIMS; i++)
			v[f][i] = spawn(alone);
	}
	sleep(2);
	for (int f = 0; f < FILES; f++) {
		for (int i = 0; i < VICTIMS; i++)
			fill(fd[f], &v[f][i]);
	}
	CHECK(try_register(fd[0], more.pid, more.number, NULL) && errno == ENOSPC, "one too many of a file");
	fd[FILES] = deadbeat_open(true, false);
	CHECK(try_register(fd[FILES], more.pid, more.number, NULL) && errno == EDQUOT, "one too many of a user");
	for (int f = 0; f <= FILES; f++)
		close(fd[f]);
	for (int f = 0; f < FILES; f++) {
		for (int i = 0; i < VICTIMS; i++) {
			kill(v[f][i].pid, SIGKILL);
			reap(&v[f][i]);
		}
	}
	kill(more.pid, SIGKILL);
	reap(&more);
}

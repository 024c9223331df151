/* A service whose functions call the service itself, and a child of its process: `capi.rs` runs it.
 *
 *     nested smr-1 ROOT       prints what the nested calls returned, what a child sees, and "closed" when the
 *                             command "c" has closed it
 *     nested smr-2 ROOT c     proposes that command */
#define _DEFAULT_SOURCE
#include <obol.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND UINT64_C(1000000000)

static obol_replica *replica;
static obol_status proposed, asked;
static bool closes;
static atomic_bool closed;

static void on_commit(void *context, const uint8_t *command, size_t length, obol_output *reply) {
    (void)context, (void)reply;
    if (length == 1 && *command == 'c') {
        if (closes && !closed)
            obol_replica_close(replica);
        closed = true;
        return;
    }
    proposed = obol_propose(replica, command, length, 60 * SECOND, NULL, 0, NULL);
    asked = obol_read(replica, NULL, 0, 60 * SECOND, NULL, 0, NULL);
}

static void on_read(void *context, const uint8_t *query, size_t length, obol_output *reply) {
    (void)context, (void)query, (void)length, (void)reply;
}

static void on_save(void *context, obol_output *state) {
    (void)context, (void)state;
}

static bool on_load(void *context, const uint8_t *state, size_t length) {
    (void)context, (void)state;
    return length == 0;
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    closes = strcmp(argv[1], "smr-1") == 0;
    obol_service service = {NULL, on_commit, on_read, on_save, on_load};
    if (obol_replica_open(argv[2], NULL, argv[1], 1, &service, &replica) != OBOL_STATUS_OK)
        return 1;
    if (argc > 3)
        return obol_propose(replica, (const uint8_t *)argv[3], strlen(argv[3]), 20 * SECOND, NULL, 0, NULL);
    if (obol_propose(replica, (const uint8_t *)"x", 1, 20 * SECOND, NULL, 0, NULL) != OBOL_STATUS_OK)
        return 1;
    printf("nested %d %d\n", proposed == OBOL_STATUS_ARGUMENT, asked == OBOL_STATUS_ARGUMENT);
    while (obol_replica_redundancy(replica) == 0)
        usleep(1000);
    printf("parent %zu\n", obol_replica_redundancy(replica));
    fflush(stdout);
    if (fork() == 0) {
        printf("child %zu\n", obol_replica_redundancy(replica));
        fflush(stdout);
        _exit(0);
    }
    wait(NULL);
    printf("waits\n");
    fflush(stdout);
    while (!closed)
        usleep(1000);
    printf("closed\n");
    return 0;
}

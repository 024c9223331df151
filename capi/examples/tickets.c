/* A replicated service in C: tickets with consecutive numbers, which no two customers have, whichever
 * processes die.
 *
 *     cc tickets.c $(pkg-config --cflags --libs obol) -o tickets
 *     ./tickets smr-1 [ROOT]      and smr-2, smr-3 in other terminals
 *     ./tickets smr-1 ROOT empty  on an operator's word, when all of them have died and none is to
 *                                 return: begins with no ticket taken, so numbers are given again
 *
 * Each line of input is a request: "take N" takes N tickets and prints the last one's number, "look"
 * prints how many were taken, "copies" how many of the programs have them all, if this one leads. At
 * the end of the input the program leaves gracefully. */
#include <inttypes.h>
#include <obol.h>
#include <stdio.h>
#include <string.h>

#define SECOND UINT64_C(1000000000)
#define TAKE_MAX 1000

/* The state of the service: the same on every replica, since it follows from the commands alone. */
struct tickets {
    uint64_t taken;
};

static void write_taken(const struct tickets *tickets, obol_output *to) {
    obol_output_write(to, (const uint8_t *)&tickets->taken, sizeof tickets->taken);
}

/* A command is one number. Any program of the cluster may have proposed it, so it is checked here. */
static void on_commit(void *context, const uint8_t *command, size_t length, obol_output *reply) {
    struct tickets *tickets = context;
    uint64_t more = 0;
    if (length == sizeof more)
        memcpy(&more, command, sizeof more);
    if (more <= TAKE_MAX)
        tickets->taken += more;
    write_taken(tickets, reply);
}

static void on_read(void *context, const uint8_t *query, size_t length, obol_output *reply) {
    (void)query, (void)length;
    write_taken(context, reply);
}

static void on_save(void *context, obol_output *state) {
    write_taken(context, state);
}

static bool on_load(void *context, const uint8_t *state, size_t length) {
    struct tickets *tickets = context;
    if (length == 0)
        tickets->taken = 0;
    else if (length == sizeof tickets->taken)
        memcpy(&tickets->taken, state, length);
    else
        return false;
    return true;
}

static int fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, obol_last_error());
    return 1;
}

/* Serves one request. A command that got no answer in time may take effect later, once: a client
 * that must know reads the state again. */
static int serve(const obol_replica *replica, const char *line) {
    uint64_t number = 0, taken = 0;
    size_t length = 0;
    obol_status status;
    if (strncmp(line, "copies", 6) == 0) {
        printf("%zu\n", obol_replica_redundancy(replica));
        fflush(stdout);
        return 0;
    }
    if (sscanf(line, "take %" SCNu64, &number) == 1 && number <= TAKE_MAX)
        status = obol_propose(replica, (const uint8_t *)&number, sizeof number, 10 * SECOND, (uint8_t *)&taken,
                              sizeof taken, &length);
    else if (strncmp(line, "look", 4) == 0)
        status = obol_read(replica, NULL, 0, 10 * SECOND, (uint8_t *)&taken, sizeof taken, &length);
    else {
        fprintf(stderr, "a request is `take N`, with N at most %d, `look` or `copies`\n", TAKE_MAX);
        return 0;
    }
    if (status != OBOL_STATUS_OK || length != sizeof taken)
        return fail("no answer");
    printf("%" PRIu64 "\n", taken);
    fflush(stdout);
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 2 || (argc > 3 && strcmp(argv[3], "empty") != 0)) {
        fprintf(stderr, "usage: tickets NAME [ROOT [empty]]\n");
        return 2;
    }
    struct tickets tickets = {0};
    obol_service service = {&tickets, on_commit, on_read, on_save, on_load};
    obol_replica *replica = NULL;
    const char *root = argc > 2 ? argv[2] : NULL;
    obol_status opened = argc > 3 ? obol_replica_open_empty(root, NULL, argv[1], 3, &service, NULL, &replica)
                                  : obol_replica_open(root, NULL, argv[1], 3, &service, &replica);
    if (opened != OBOL_STATUS_OK)
        return fail("open");
    char line[64];
    int code = 0;
    while (code == 0 && fgets(line, sizeof line, stdin))
        code = serve(replica, line);
    obol_replica_close(replica);
    return code;
}

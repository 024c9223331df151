/* paused AGENT NAME
 * paused AGENT NAME RESUMED LAPSED
 *
 * A program that is attached to an agent. Alone with its name it prints, as JSON, each view in which it is active.
 *
 * With RESUMED it is in a virtual machine that is going to be stopped and continued. The file RESUMED appears right before the
 * machine goes on, because no clock of the guest shows that it stood. The program makes the file LAPSED when it does not take
 * itself for active any more. Once it is a member again, it prints for how long it was active in the view from before, what the
 * guest's clocks counted of the time that it stood, and its incarnations before and after. */
#include <fcntl.h>
#include <inttypes.h>
#include <obol.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define SECOND UINT64_C(1000000000)
/* Between two looks at RESUMED, which take an emulated processor's time, and at the lease. */
#define RESUMED_NS (5 * 1000 * 1000)
#define LEASE_NS (1000 * 1000)
/* How long the removal may take after the pause, and a join on a busy machine. */
#define PATIENCE (120 * SECOND)

static uint64_t now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec;
}

static void rest(long time) {
    nanosleep(&(struct timespec){.tv_nsec = time}, NULL);
}

struct clocks {
    uint64_t monotonic, boot, real;
};

static struct clocks clocks(void) {
    return (struct clocks){now(CLOCK_MONOTONIC), now(CLOCK_BOOTTIME), now(CLOCK_REALTIME)};
}

static double ms(uint64_t from, uint64_t to) {
    return ((double)to - (double)from) / 1e6;
}

static int fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, obol_last_error());
    return 1;
}

static bool is_removed(const obol_app *app) {
    return obol_is_excluded(app) || obol_incarnation(app) == 0 || !obol_agent_lives(app);
}

static int join(obol_app *app) {
    if (!obol_agent_lives(app) && obol_attach_again(app, PATIENCE) != OBOL_STATUS_OK)
        return fail("attach again");
    return obol_join(app, PATIENCE) == OBOL_STATUS_OK ? 0 : fail("join");
}

/* Whatever the status of a removed member says: it joins again. */
static int stay(obol_app *app) {
    return is_removed(app) ? join(app) : 0;
}

/* Prints the views in which it is active, until it is ended. */
static int print_views(obol_app *app) {
    uint64_t printed = 0;
    for (;; rest(RESUMED_NS)) {
        if (stay(app) != 0)
            return 1;
        obol_view *view = obol_newest_view(app);
        uint64_t id = obol_view_id(view);
        if (id != printed && obol_active(app, view)) {
            printf("{\"acts_in\":%" PRIu64 "}\n", id);
            fflush(stdout);
            printed = id;
        }
        obol_view_free(view);
    }
}

/* The newest view in which the program was active before the pause; null if there is none, or it cannot be a member. */
static obol_view *before_the_pause(obol_app *app, const char *resumed, struct clocks *last, struct clocks *first) {
    obol_view *active = NULL;
    for (;; rest(RESUMED_NS)) {
        *first = clocks();
        if (access(resumed, F_OK) == 0 || stay(app) != 0)
            return active;
        obol_view *view = obol_newest_view(app);
        if (obol_active(app, view)) {
            obol_view_free(active);
            active = view;
        } else {
            obol_view_free(view);
        }
        *last = *first;
    }
}

static int mark(const char *file) {
    int made = open(file, O_WRONLY | O_CREAT, 0644);
    if (made < 0) {
        perror(file);
        return 1;
    }
    return close(made);
}

static int measure(obol_app *app, const char *resumed, const char *lapsed) {
    struct clocks last = clocks(), first;
    obol_view *view = before_the_pause(app, resumed, &last, &first);
    if (view == NULL) {
        fprintf(stderr, "it was never active\n");
        return 1;
    }
    uint64_t active_until = first.monotonic, incarnation = obol_incarnation(app), at;
    bool has_lapsed = false;
    do {
        at = now(CLOCK_MONOTONIC);
        if (obol_active(app, view))
            active_until = at;
        else if (!has_lapsed && mark(lapsed) != 0)
            return 1;
        else
            has_lapsed = true;
        rest(LEASE_NS);
    } while (!is_removed(app) && at - first.monotonic < PATIENCE);
    bool removed = is_removed(app);
    int code = join(app);
    printf("{\"view\":%" PRIu64 ",\"active_after_ms\":%.1f,\"removed\":%s,"
           "\"counted_ms\":{\"monotonic\":%.1f,\"boottime\":%.1f,\"realtime\":%.1f},\"before\":%" PRIu64 ",\"after\":%" PRIu64 "}\n",
           obol_view_id(view), ms(first.monotonic, active_until), removed ? "true" : "false",
           ms(last.monotonic, first.monotonic), ms(last.boot, first.boot), ms(last.real, first.real), incarnation,
           obol_incarnation(app));
    fflush(stdout);
    obol_view_free(view);
    return code;
}

int main(int count, char **arguments) {
    if (count != 3 && count != 5) {
        fprintf(stderr, "usage: paused AGENT NAME [RESUMED LAPSED]\n");
        return 2;
    }
    obol_app *app = NULL;
    if (obol_attach(NULL, NULL, arguments[1], arguments[2], &app) != OBOL_STATUS_OK)
        return fail("attach");
    int code = join(app);
    if (code == 0)
        code = count == 3 ? print_views(app) : measure(app, arguments[3], arguments[4]);
    obol_close(app);
    return code;
}

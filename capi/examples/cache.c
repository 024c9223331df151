/* A program attached to an agent: it joins, serves under the guard of its view, and reports failures.
 *
 *     cc cache.c $(pkg-config --cflags --libs obol) -o cache
 *     ./cache node-1 cache-1 [ROOT]
 *
 * It exits gracefully after the first reported failure, or with exit code 1 on an error. */
#include <inttypes.h>
#include <obol.h>
#include <stdio.h>

#define SECOND UINT64_C(1000000000)

struct answer {
    size_t members;
};

/* The work that must not count unless the view was active before and after it. */
static void serve(const obol_view *view, void *context) {
    struct answer *answer = context;
    answer->members = obol_view_members(view);
}

static int fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, obol_last_error());
    return 1;
}

/* Serves one request in the newest view, as soon as that is active. */
static int serve_once(obol_app *app) {
    for (;;) {
        uint32_t seen = obol_changes(app);
        struct answer answer = {0};
        obol_view *view = obol_newest_view(app);
        int served = obol_guard(app, view, serve, &answer);
        if (served)
            printf("view %" PRIu64 ": %zu members\n", obol_view_id(view), answer.members);
        obol_view_free(view);
        if (served)
            return 0;
        if (!obol_agent_lives(app) && obol_attach_again(app, 60 * SECOND) != OBOL_STATUS_OK)
            return fail("attach again");
        if ((obol_is_excluded(app) || obol_incarnation(app) == 0) && obol_join(app, 20 * SECOND) != OBOL_STATUS_OK)
            return fail("join again");
        obol_wait_changed(app, seen, SECOND / 1000);
    }
}

static int live(obol_app *app) {
    if (obol_join(app, 20 * SECOND) != OBOL_STATUS_OK)
        return fail("join");
    printf("member %" PRIu64 "\n", obol_incarnation(app));
    obol_failures *failures = obol_failures_open(app);
    int code = serve_once(app);
    fflush(stdout);
    obol_failure failure;
    if (code == 0 && obol_failures_next(failures, 60 * SECOND, &failure) != OBOL_STATUS_OK)
        code = fail("wait for a failure");
    if (code == 0) {
        printf("%s failed\n", failure.name);
        code = serve_once(app);
    }
    obol_failures_close(failures);
    if (code == 0 && obol_leave(app, 5 * SECOND) != OBOL_STATUS_OK)
        code = fail("leave");
    return code;
}

int main(int count, char **arguments) {
    if (count < 3) {
        fprintf(stderr, "usage: cache AGENT NAME [ROOT]\n");
        return 2;
    }
    obol_app *app = NULL;
    const char *root = count > 3 ? arguments[3] : NULL;
    if (obol_attach(root, NULL, arguments[1], arguments[2], &app) != OBOL_STATUS_OK)
        return fail("attach");
    int code = live(app);
    obol_close(app);
    return code;
}

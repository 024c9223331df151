/* What a handle says, as a C program hears it: reads commands, one a line, and answers each with a line. `handles.rs` has
 * the same program in Rust, and the table of commands and answers that both are held to.
 *
 *     handles ROOT AGENT NAME */
#define _GNU_SOURCE
#include <obol.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT UINT64_C(20000000000)

static obol_app *app;
static obol_view *view;
static obol_views *views;
static obol_failures *failures;
extern char **environ;

static const char *word(obol_status status) {
    switch (status) {
    case OBOL_STATUS_OK:
        return "ok";
    case OBOL_STATUS_ARGUMENT:
        return "argument";
    case OBOL_STATUS_CLUSTER:
        return "cluster";
    case OBOL_STATUS_AGENT_DIED:
        return "agent died";
    case OBOL_STATUS_TIMEOUT:
        return "timeout";
    case OBOL_STATUS_FORKED:
        return "forked";
    case OBOL_STATUS_INACTIVE:
        return "inactive";
    case OBOL_STATUS_UNKNOWN:
        return "unknown";
    }
    return "no status";
}

static void nothing(const obol_view *given, void *context) {
    (void)given;
    (void)context;
}

/* Whether the newest view is this program's and active; waits for it. */
static bool act(void) {
    for (int look = 0; look < 20000; look++) {
        obol_view_free(view);
        view = obol_newest_view(app);
        if (obol_view_is_mine(view) && obol_active(app, view))
            return true;
        usleep(1000);
    }
    return false;
}

/* What ends the streams. */
static obol_status end_of_views(void) {
    for (;;) {
        obol_view *next = NULL;
        obol_status status = obol_views_next(views, WAIT, &next);
        if (status != OBOL_STATUS_OK)
            return status;
        obol_view_free(next);
    }
}

static obol_status end_of_failures(void) {
    for (;;) {
        obol_failure next;
        obol_status status = obol_failures_next(failures, WAIT, &next);
        if (status != OBOL_STATUS_OK)
            return status;
    }
}

static const char *truth(bool so) {
    return so ? "yes" : "no";
}

static const char *ran(pid_t child) {
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0 ? "ok" : "failed";
}

static const char *promise(uint64_t within_ns) {
    obol_promise_progress(app, within_ns);
    return "ok";
}

static const char *run(const char *command, char **arguments) {
    char *const program[] = {"/bin/true", NULL};
    pid_t child;
    if (!strcmp(command, "attach"))
        return word(obol_attach(arguments[1], NULL, arguments[2], arguments[3], &app));
    if (!strcmp(command, "attach to nobody"))
        return word(obol_attach(arguments[1], NULL, "nobody", arguments[3], &app));
    if (!strcmp(command, "attach as another"))
        return word(obol_attach(arguments[1], NULL, arguments[2], "another", &app));
    if (!strcmp(command, "embed"))
        return word(obol_embed(arguments[1], NULL, arguments[3], &app));
    if (!strcmp(command, "join"))
        return word(obol_join(app, WAIT));
    if (!strcmp(command, "open streams")) {
        obol_views_close(views);
        obol_failures_close(failures);
        views = obol_views_open(app);
        failures = obol_failures_open(app);
        return "ok";
    }
    if (!strcmp(command, "act"))
        return truth(act());
    if (!strcmp(command, "active"))
        return truth(obol_active(app, view));
    if (!strcmp(command, "guard"))
        return truth(obol_guard(app, view, nothing, NULL));
    if (!strcmp(command, "check"))
        return word(obol_check(app, view));
    if (!strcmp(command, "excluded"))
        return truth(obol_is_excluded(app));
    if (!strcmp(command, "incarnation"))
        return truth(obol_incarnation(app) != 0);
    if (!strcmp(command, "agent lives"))
        return truth(obol_agent_lives(app));
    if (!strcmp(command, "views"))
        return word(end_of_views());
    if (!strcmp(command, "failures"))
        return word(end_of_failures());
    if (!strcmp(command, "leave"))
        return word(obol_leave(app, WAIT));
    if (!strcmp(command, "promise much time"))
        return promise(UINT64_C(2000000000));
    if (!strcmp(command, "promise little time"))
        return promise(UINT64_C(50000000));
    if (!strcmp(command, "promise nothing"))
        return promise(0);
    if (!strcmp(command, "attach again"))
        return word(obol_attach_again(app, WAIT));
    if (!strcmp(command, "attach again, without waiting"))
        return word(obol_attach_again(app, 0));
    if (!strcmp(command, "close")) {
        obol_close(app);
        app = NULL;
        return "ok";
    }
    if (!strcmp(command, "spawn"))
        return posix_spawn(&child, program[0], NULL, NULL, program, environ) == 0 ? ran(child) : "failed";
    if (!strcmp(command, "fork and exec")) {
        child = fork();
        if (child == 0) {
            execv(program[0], program);
            _exit(1);
        }
        return ran(child);
    }
    /* The child goes on with the commands. */
    if (!strcmp(command, "fork")) {
        while ((child = fork()) > 0)
            for (;;)
                pause();
        return child == 0 ? "ok" : "failed";
    }
    if (!strcmp(command, "go into the background"))
        return daemon(1, 1) == 0 ? "ok" : "failed";
    return "no such command";
}

int main(int count, char **arguments) {
    char line[64];
    if (count != 4)
        return 2;
    /* Nothing is read ahead: a child reads on where its parent stopped. */
    setvbuf(stdin, NULL, _IONBF, 0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        printf("%s\n", run(line, arguments));
    }
    return 0;
}

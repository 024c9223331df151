/* libobol: membership for programs in C and C++. Link with what `pkg-config --libs obol` says.
 * Made from the Rust sources by the test `header`; not to be edited. */

#ifndef OBOL_H
#define OBOL_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/**
 * How a call ended. After anything but `OBOL_STATUS_OK`, `obol_last_error` says why.
 */
typedef enum obol_status {
  /**
   * It did what it was asked.
   */
  OBOL_STATUS_OK = 0,
  /**
   * An argument is null, no UTF-8, or no name.
   */
  OBOL_STATUS_ARGUMENT = 1,
  /**
   * The cluster can not be used: it does not run here, has no live agent of that name, or has no
   * place left.
   */
  OBOL_STATUS_CLUSTER = 2,
  /**
   * The agent of this node died, or the program's own core ended: `obol_attach_again`, or close,
   * and attach when it is back.
   */
  OBOL_STATUS_AGENT_DIED = 3,
  /**
   * It did not come about in the time that was given.
   */
  OBOL_STATUS_TIMEOUT = 4,
  /**
   * The handle belongs to the process that this one was forked from, which alone is the member:
   * attach, or embed, after the fork. `obol_close` may be called, and does nothing to the
   * parent.
   */
  OBOL_STATUS_FORKED = 5,
  /**
   * The view is not active now: there is no lease on it, or this program is no member of it.
   * Look at the newest view.
   */
  OBOL_STATUS_INACTIVE = 6,
} obol_status;

/**
 * How a member's failure became known.
 */
typedef enum obol_level {
  /**
   * The view that says so was superseded before the program looked.
   */
  OBOL_LEVEL_UNKNOWN = 0,
  /**
   * The kernel told of the process's end.
   */
  OBOL_LEVEL_DEADBEAT = 1,
  /**
   * Its heartbeat stood still.
   */
  OBOL_LEVEL_HEARTBEAT = 2,
  /**
   * Its host did not answer.
   */
  OBOL_LEVEL_TIMEOUT = 3,
  /**
   * It went with the agent that it was attached to.
   */
  OBOL_LEVEL_HOST = 4,
  /**
   * A later process took its place.
   */
  OBOL_LEVEL_REPLACED = 5,
  /**
   * Its process lives, but it broke its promise of progress.
   */
  OBOL_LEVEL_PROGRESS = 6,
} obol_level;

/**
 * What a member is.
 */
typedef enum obol_kind {
  /**
   * A member that is not known any more.
   */
  OBOL_KIND_UNKNOWN = 0,
  /**
   * Proposer and acceptor.
   */
  OBOL_KIND_COORDINATOR = 1,
  /**
   * Holds the lease of its node's applications.
   */
  OBOL_KIND_AGENT = 2,
  /**
   * An application.
   */
  OBOL_KIND_APP = 3,
  /**
   * Renews the leases of others.
   */
  OBOL_KIND_LEASE_CACHE = 4,
} obol_kind;

/**
 * A program of the cluster. Any thread may use it, several at once; `obol_close` ends it.
 */
typedef struct obol_app obol_app;

/**
 * The failures of other members. One thread at a time.
 */
typedef struct obol_failures obol_failures;

/**
 * A view as the program sees it that took it: who belongs to the cluster, and whether the program
 * does. It does not change, and may be used by several threads at once.
 */
typedef struct obol_view obol_view;

/**
 * The views of a program as they come. One thread at a time.
 */
typedef struct obol_views obol_views;

/**
 * A member that was removed because it failed.
 */
typedef struct obol_failure {
  /**
   * Who failed.
   */
  uint64_t incarnation;
  /**
   * The first view without it.
   */
  uint64_t view;
  /**
   * Who accused it; 0 if the view that says so was superseded before the program looked.
   */
  uint64_t accuser;
  /**
   * By which detector.
   */
  enum obol_level level;
  /**
   * What it was; `OBOL_KIND_UNKNOWN` if it joined and failed between two looks.
   */
  enum obol_kind kind;
  /**
   * What operators called it; empty if its kind is unknown.
   */
  char name[24];
} obol_failure;

/**
 * One life of one process in the cluster.
 */
typedef struct obol_member {
  /**
   * Its identity; never used again for another.
   */
  uint64_t incarnation;
  /**
   * The agent whose lease it acts under; 0 if it has its own.
   */
  uint64_t host;
  /**
   * What it is.
   */
  enum obol_kind kind;
  /**
   * What operators call it; ends with a zero byte.
   */
  char name[24];
} obol_member;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Takes a seat at the agent `agent` of this node, under the name `name_of_app`; the handle comes
 * in `*app`. The program is no member before `obol_join`. Several live programs may have one name,
 * and are told apart by their incarnations; `obol kill` and `obol stop` refuse such a name.
 *
 * `root` is the directory of this host's clusters, `cluster` the cluster's name; null stands for
 * the defaults.
 *
 * # Safety
 * The texts are null or end with a zero byte; `app` is null or points to memory for a pointer.
 */
enum obol_status obol_attach(const char *root,
                             const char *cluster,
                             const char *agent,
                             const char *name_of_app,
                             struct obol_app **app);

/**
 * Starts a core of the program's own on a thread, under the name `name_of_app`; the handle comes
 * in `*app`. It joins by itself, now and whenever it was removed; `obol_join` waits for that.
 * Names are as with `obol_attach`.
 *
 * `root` is the directory of this host's clusters, `cluster` the cluster's name; null stands for
 * the defaults.
 *
 * # Safety
 * The texts are null or end with a zero byte; `app` is null or points to memory for a pointer.
 */
enum obol_status obol_embed(const char *root,
                            const char *cluster,
                            const char *name_of_app,
                            struct obol_app **app);

/**
 * Becomes a member, as a new incarnation; waits until it is so, or for so many nanoseconds. An
 * attached program that was removed calls this again. Where programs of its name died again and
 * again, it is held back for a while first, and `obol_last_error` says for how long.
 *
 * # Safety
 * `app` is null or a live handle.
 */
enum obol_status obol_join(const struct obol_app *app, uint64_t timeout_ns);

/**
 * Leaves the cluster gracefully, so that nobody counts a failure; waits until it is so, or for so
 * many nanoseconds. A program with a core of its own leaves by `obol_close` alone.
 *
 * # Safety
 * `app` is null or a live handle.
 */
enum obol_status obol_leave(const struct obol_app *app, uint64_t timeout_ns);

/**
 * Ends the handle, and with it the program's life as a member. Views and streams outlive it. A
 * null pointer is left alone.
 *
 * Membership stays with the process that attached or embedded. A child that it forks has copies of
 * its handles: they are never active, say `OBOL_STATUS_FORKED`, and may be closed, which does
 * nothing to the parent. So a server that forks workers attaches in each worker, and a program
 * that goes into the background by `fork` or `daemon` attaches after that: before, its membership
 * would end with the parent. `posix_spawn`, and `fork` with `exec`, are safe at any time.
 *
 * # Safety
 * `app` is null or a handle that nobody uses any more.
 */
void obol_close(struct obol_app *app);

/**
 * The own incarnation; 0 while this program is no member, in the child of a fork, and for a null
 * pointer.
 *
 * # Safety
 * `app` is null or a live handle.
 */
uint64_t obol_incarnation(const struct obol_app *app);

/**
 * Whether the program has to join again: the cluster removed it, or its agent died, which
 * `obol_join` then says. A core of its own joins by itself as long as it runs.
 *
 * # Safety
 * `app` is null or a live handle.
 */
bool obol_is_excluded(const struct obol_app *app);

/**
 * Whether the program's agent still runs, or its own core. If not, the membership ends, streams
 * end, and an attached program calls `obol_attach_again`. False in the child of a fork, and for a
 * null pointer.
 *
 * # Safety
 * `app` is null or a live handle.
 */
bool obol_agent_lives(const struct obol_app *app);

/**
 * After its agent's death: takes a seat at the agent's successor, which has the same name, and
 * waits for one for so many nanoseconds. `obol_join` follows. Streams of before end with
 * `OBOL_STATUS_AGENT_DIED`; open new ones. Nothing happens as long as the agent lives.
 *
 * # Safety
 * `app` is null or a live handle that no other thread uses during the call.
 */
enum obol_status obol_attach_again(struct obol_app *app, uint64_t timeout_ns);

/**
 * The newest view that is known to be decided, to be freed by the caller; null before there is
 * one, and for a null pointer.
 *
 * # Safety
 * `app` is null or a live handle.
 */
struct obol_view *obol_newest_view(const struct obol_app *app);

/**
 * Whether `view` is active for this program now: it is a member of it, and no later view that
 * excludes an application has been active anywhere. No system call, no allocation; false for a
 * null pointer.
 *
 * # Safety
 * `app` is null or a live handle, `view` null or a live view that it gave.
 */
bool obol_active(const struct obol_app *app, const struct obol_view *view);

/**
 * As `obol_active`, and says why not: `OBOL_STATUS_OK` if it is active, `OBOL_STATUS_INACTIVE`,
 * `OBOL_STATUS_AGENT_DIED`, `OBOL_STATUS_FORKED`. Costs the same as long as it is active.
 *
 * # Safety
 * `app` is null or a live handle, `view` null or a live view that it gave.
 */
enum obol_status obol_check(const struct obol_app *app, const struct obol_view *view);

/**
 * Calls `work(view, context)` if `view` is active, and tells whether it still is active after
 * that. The effect of `work` must not count before this has returned true.
 *
 * # Safety
 * As `obol_active`; `work` is null or a function that returns and may be called with these
 * arguments.
 */
bool obol_guard(const struct obol_app *app,
                const struct obol_view *view,
                void (*work)(const struct obol_view *view, void *context),
                void *context);

/**
 * As `obol_active`, also where the lease has run out: then the coordinators are asked, and
 * `OBOL_STATUS_OK` means that `view` was active at some moment between the call and its return.
 * Waits for so many nanoseconds at most. It works where delays are longer than leases, and costs a
 * round trip.
 *
 * # Safety
 * As `obol_active`.
 */
enum obol_status obol_confirm(const struct obol_app *app,
                              const struct obol_view *view,
                              uint64_t timeout_ns);

/**
 * As `obol_guard`, also where leases are too short for the delays: calls `work(view, context)`
 * once older leases are over, and confirms `view` after that, as `obol_confirm` does. The effect
 * of `work` must not count unless this returns `OBOL_STATUS_OK`. Waits for so many nanoseconds at
 * most, beside the work.
 *
 * # Safety
 * As `obol_guard`.
 */
enum obol_status obol_guard_within(const struct obol_app *app,
                                   const struct obol_view *view,
                                   uint64_t timeout_ns,
                                   void (*work)(const struct obol_view *view, void *context),
                                   void *context);

/**
 * Counts changes of view and lease start; for `obol_wait_changed`. 0 for a null pointer.
 *
 * # Safety
 * `app` is null or a live handle.
 */
uint32_t obol_changes(const struct obol_app *app);

/**
 * Sleeps until view or lease start have changed since `seen`, or for so many nanoseconds; tells
 * the count. To wait until a view is active, sleep at most until its lease begins: nobody rings
 * then, so look again every millisecond or so.
 *
 * # Safety
 * `app` is null or a live handle.
 */
uint32_t obol_wait_changed(const struct obol_app *app, uint32_t seen, uint64_t timeout_ns);

/**
 * Promises to call `obol_progress` at least every so many nanoseconds from now on; 0 takes the
 * promise back. A member that breaks it is removed, however well its process lives. A promise made
 * before `obol_join` counts from then on, and one made at an agent does not hold at its successor.
 *
 * # Safety
 * `app` is null or a live handle.
 */
void obol_promise_progress(const struct obol_app *app, uint64_t within_ns);

/**
 * Tells that the program makes progress.
 *
 * # Safety
 * `app` is null or a live handle.
 */
void obol_progress(const struct obol_app *app);

/**
 * Why the last call of this thread that failed did, in words for people. Empty before one has
 * failed.
 *
 * The text is valid until the next call of this thread fails.
 */
const char *obol_last_error(void);

/**
 * Opens the stream of a program's views, beginning with the newest. Views that were superseded
 * before the program looked are passed over. Null for a null pointer. It may outlive the program's
 * handle.
 *
 * # Safety
 * `app` is null or a live handle.
 */
struct obol_views *obol_views_open(const struct obol_app *app);

/**
 * The next view, in `*view`, to be freed by the caller. Waits for one for so many nanoseconds.
 * `OBOL_STATUS_AGENT_DIED` when there will never be one.
 *
 * # Safety
 * `views` is null or a live stream that no other thread uses during the call; `view` is null or
 * points to memory for a pointer.
 */
enum obol_status obol_views_next(struct obol_views *views,
                                 uint64_t timeout_ns,
                                 struct obol_view **view);

/**
 * Closes a stream of views. A null pointer is left alone.
 *
 * # Safety
 * `views` is null or a stream that nobody uses any more.
 */
void obol_views_close(struct obol_views *views);

/**
 * Opens the stream of the failures of other members from now on, each once. Null for a null
 * pointer. It may outlive the program's handle.
 *
 * # Safety
 * `app` is null or a live handle.
 */
struct obol_failures *obol_failures_open(const struct obol_app *app);

/**
 * The next failure, in `*failure`. Waits for one for so many nanoseconds. `OBOL_STATUS_AGENT_DIED`
 * when there will never be one.
 *
 * # Safety
 * `failures` is null or a live stream that no other thread uses during the call; `failure` is null
 * or points to memory for one.
 */
enum obol_status obol_failures_next(struct obol_failures *failures,
                                    uint64_t timeout_ns,
                                    struct obol_failure *failure);

/**
 * Closes a stream of failures. A null pointer is left alone.
 *
 * # Safety
 * `failures` is null or a stream that nobody uses any more.
 */
void obol_failures_close(struct obol_failures *failures);

/**
 * The view's number: 1 more than its predecessor's. 0 for a null pointer.
 *
 * # Safety
 * `view` is null or a live view.
 */
uint64_t obol_view_id(const struct obol_view *view);

/**
 * Whether the program that took this view is a member of it. Only then can it be active for that
 * program.
 *
 * # Safety
 * `view` is null or a live view.
 */
bool obol_view_is_mine(const struct obol_view *view);

/**
 * How many members the view has.
 *
 * # Safety
 * `view` is null or a live view.
 */
size_t obol_view_members(const struct obol_view *view);

/**
 * Copies the member at `index`, counted from 0 in the order of incarnations, to `member`. False if
 * there is none.
 *
 * # Safety
 * `view` is null or a live view; `member` is null or points to memory for one that nobody else
 * uses during the call.
 */
bool obol_view_member(const struct obol_view *view, size_t index, struct obol_member *member);

/**
 * Another handle to the same view, to be freed by itself. Null for a null pointer.
 *
 * # Safety
 * `view` is null or a live view.
 */
struct obol_view *obol_view_clone(const struct obol_view *view);

/**
 * Frees a view. A null pointer is left alone.
 *
 * # Safety
 * `view` is null or a view that nobody uses any more.
 */
void obol_view_free(struct obol_view *view);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* OBOL_H */

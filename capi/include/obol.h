/* libobol: membership for programs in C and C++. Link with `pkg-config --libs obol`.
 * Generated from the Rust sources by the test `header`; do not edit. */

#ifndef OBOL_H
#define OBOL_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/**
 * Bytes of the longest command, query or reply.
 */
#define OBOL_REPLICA_BYTES_MAX 1024

/**
 * The result of a call. After anything but `OBOL_STATUS_OK`, `obol_last_error` returns the reason.
 */
typedef enum obol_status {
  /**
   * Success.
   */
  OBOL_STATUS_OK = 0,
  /**
   * An argument is null, not UTF-8, or not a valid name.
   */
  OBOL_STATUS_ARGUMENT = 1,
  /**
   * The cluster cannot be used: it does not run here, has no live agent of that name, keeps the
   * name of the program for another process, or has no seat left.
   */
  OBOL_STATUS_CLUSTER = 2,
  /**
   * The agent of this node died, or the program's own core ended: call `obol_attach_again`, or
   * close the handle and attach later.
   */
  OBOL_STATUS_AGENT_DIED = 3,
  /**
   * The operation did not complete in the given time.
   */
  OBOL_STATUS_TIMEOUT = 4,
  /**
   * The handle belongs to the parent of this forked process, which alone is the member: attach,
   * or embed, after the fork. `obol_close` may be called, and does not affect the parent.
   */
  OBOL_STATUS_FORKED = 5,
  /**
   * The view is not active now: there is no lease on it, or this program is not a member of it.
   * Take the newest view.
   */
  OBOL_STATUS_INACTIVE = 6,
  /**
   * Whether the command took effect is unknown: read the state of the service.
   */
  OBOL_STATUS_UNKNOWN = 7,
} obol_status;

/**
 * Why a member was reported as failed.
 */
typedef enum obol_reason {
  /**
   * Unknown: the view that names it was superseded before the program polled.
   */
  OBOL_REASON_UNKNOWN = 0,
  /**
   * The kernel reported the end of the process.
   */
  OBOL_REASON_DEADBEAT = 1,
  /**
   * Its heartbeat stood still.
   */
  OBOL_REASON_HEARTBEAT = 2,
  /**
   * Its host did not answer.
   */
  OBOL_REASON_TIMEOUT = 3,
  /**
   * It was removed with its agent.
   */
  OBOL_REASON_HOST = 4,
  /**
   * A later process took its place.
   */
  OBOL_REASON_REPLACED = 5,
  /**
   * Its process lives, but it broke its promise of progress.
   */
  OBOL_REASON_PROGRESS = 6,
} obol_reason;

/**
 * What a member is.
 */
typedef enum obol_kind {
  /**
   * Unknown: the member is no longer recorded.
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
 * Where a service writes a reply, its state, or a part of it. The library owns it; it is valid during
 * the call that was given it.
 */
typedef struct obol_output obol_output;

/**
 * A replica of a service. Any thread may use it, several at once; `obol_replica_close` ends it.
 */
typedef struct obol_replica obol_replica;

/**
 * A view, as the program that read it sees it: the members of the cluster, and whether the program
 * is one. It is immutable and may be shared between threads.
 */
typedef struct obol_view obol_view;

/**
 * A program's views in order. One thread at a time.
 */
typedef struct obol_views obol_views;

/**
 * Executes a command that is committed, on every replica, in the same order. The new state must
 * follow from the old one and the command alone: no clock, no random numbers. The reply is what
 * `obol_propose` returns; what goes beyond `OBOL_REPLICA_BYTES_MAX` is cut off. A command may be
 * any bytes that a program of the cluster proposed.
 */
typedef void (*obol_on_commit)(void *context,
                               const uint8_t *command,
                               size_t length,
                               struct obol_output *reply);

/**
 * Answers a query, at the leader only, without a change.
 */
typedef void (*obol_on_read)(void *context,
                             const uint8_t *query,
                             size_t length,
                             struct obol_output *reply);

/**
 * Writes the whole state, for a replica that has none. Never called for a service with `obol_parts`.
 */
typedef void (*obol_on_save)(void *context, struct obol_output *state);

/**
 * Replaces the state by one that `on_save` wrote. Length 0 means the initial state, which it has to
 * accept. Returns false, and changes nothing, if this is not a state of the service: the replica then takes
 * no part any more, and calls end with `OBOL_STATUS_CLUSTER`. For a service with `obol_parts` the length
 * is always 0.
 */
typedef bool (*obol_on_load)(void *context, const uint8_t *state, size_t length);

/**
 * A deterministic service. One thread of the replica calls all functions, one at a time, each with
 * `context`. They return. In them `obol_propose` and `obol_read` fail at once, with
 * `OBOL_STATUS_ARGUMENT`; `obol_replica_close` takes effect when they have returned.
 *
 * The same thread shows the others that the program lives. If a function takes longer than the period
 * of heartbeats (`heartbeat.period` of the profile: 100 ms with laptop, 1 ms with dedicated), the replica
 * may be excluded. `on_save` and `on_load` work on the whole state, each time a replica joins. They are
 * fit for a state that is saved or loaded within a fraction of that, with the copies that the library
 * makes: with laptop, up to some 10 MB on a busy machine. With a larger one, the replica that saves it may
 * be excluded meanwhile, and the one that loads it, too. Both join again, and what was answered is not
 * lost, but nothing is answered while fewer than a majority can. Such a service needs `obol_parts`.
 */
typedef struct obol_service {
  /**
   * Given to each function.
   */
  void *context;
  /**
   * Executes a command.
   */
  obol_on_commit on_commit;
  /**
   * Answers a query.
   */
  obol_on_read on_read;
  /**
   * Writes the state; may be null with `obol_parts`.
   */
  obol_on_save on_save;
  /**
   * Replaces the state.
   */
  obol_on_load on_load;
} obol_service;

/**
 * Begins a save. The parts that follow are the state of this moment, whatever `on_commit` changes before
 * they are written: the service keeps what a command overwrites, or copies what it changes. Returns the
 * number of bytes that follow; about is enough, it is for the progress that `obol smr status` shows.
 */
typedef uint64_t (*obol_on_save_begin)(void *context);

/**
 * Writes the next part of the save that was begun, with `obol_output_write`, and returns true with the
 * last one. 4 to 16 KB are a good size: writing it should take less than a tenth of a millisecond. A part
 * without any byte that is not the last one is followed by the next one at once.
 */
typedef bool (*obol_on_save_part)(void *context, struct obol_output *part);

/**
 * The save that was begun is over: the service frees what it has kept for it. Called once after each
 * `on_save_begin`: after the last part, or earlier, if the parts are not wanted any more (the replica that
 * loaded them died, say) or the state is about to be replaced.
 */
typedef void (*obol_on_save_end)(void *context);

/**
 * Begins a load: the service makes a second state, without anything in it, to load bytes into. Until
 * `on_load_commit`, all other functions go on with the first one.
 */
typedef void (*obol_on_load_begin)(void *context);

/**
 * Loads bytes into the second state, and returns how many of them it has used. They are what another
 * replica's `on_save_part` wrote, in the same order, but cut elsewhere: a call has some KB, and may end
 * in the middle of a record. What is not used is given again, with more after it. A number above
 * `length`, such as SIZE_MAX, says that this is not a state of the service.
 */
typedef size_t (*obol_on_load_part)(void *context, const uint8_t *bytes, size_t length);

/**
 * All bytes of a saved state were given and used: the second state becomes the state, and the service
 * puts the former one aside for `on_work` to free. Returns false, and changes nothing, if the second
 * state is not whole; `on_load_abandon` follows.
 */
typedef bool (*obol_on_load_commit)(void *context);

/**
 * Gives up the load: the service puts the second state aside for `on_work` to free. The state stays as it
 * is. Called when the replica that saves died or stopped, and after a refusal; another load may begin.
 */
typedef void (*obol_on_load_abandon)(void *context);

/**
 * Frees some of what was put aside, for less than a tenth of a millisecond, and returns whether more is
 * left. Called often, also if nothing is left: then it returns false at once.
 */
typedef bool (*obol_on_work)(void *context);

/**
 * Further functions of a service, for a state of any size: it is saved and loaded in parts, while
 * commands go on. `obol_replica_open_parts` takes them; none of them may be null. They are called as
 * those of `obol_service`: by the same thread, one at a time, with the same context. Each of them should
 * return within a tenth of a millisecond.
 *
 * At one time there are at most one save and one load. A load is begun, then bytes are given, and then it
 * is either committed or abandoned, once. A save may go on during a load; it is ended before a commit.
 *
 * The parts, one after the other, are what `on_save` would have written. So programs with and without
 * these functions can be replicas of one service, if `on_load` reads the same bytes; a program can be
 * given them while the others run.
 *
 * - A program that dies leaves nothing. When it runs again, it begins with the initial state, and loads
 *   from another replica. One that dies while it saves: the replica that loads abandons, and begins again
 *   with another one's save. One that dies while it loads: the save is ended within about a second.
 * - When a replica begins anew, the save and the load are ended first; then `on_load` is called with
 *   length 0.
 * - `obol_replica_close` calls no function: the program frees what a save or a load has begun.
 * - An allocator may return all free memory to the system in one call, or join all freed pieces: with
 *   glibc, a call of malloc or free took 100 ms after a million pieces were freed. Keep memory for reuse,
 *   or set, by mallopt, `M_TRIM_THRESHOLD` to INT_MAX, `M_TOP_PAD` to 64 MB and `M_MXFAST` to 0.
 *
 * The example `stock.c` has all of it.
 */
typedef struct obol_parts {
  /**
   * Begins a save.
   */
  obol_on_save_begin on_save_begin;
  /**
   * Writes the next part of it.
   */
  obol_on_save_part on_save_part;
  /**
   * Ends it.
   */
  obol_on_save_end on_save_end;
  /**
   * Begins a load.
   */
  obol_on_load_begin on_load_begin;
  /**
   * Loads bytes.
   */
  obol_on_load_part on_load_part;
  /**
   * Has what was loaded take effect.
   */
  obol_on_load_commit on_load_commit;
  /**
   * Gives it up.
   */
  obol_on_load_abandon on_load_abandon;
  /**
   * Frees in steps.
   */
  obol_on_work on_work;
} obol_parts;

/**
 * A member that was removed because it failed.
 */
typedef struct obol_failure {
  /**
   * The failed member.
   */
  uint64_t incarnation;
  /**
   * The first view without it.
   */
  uint64_t view;
  /**
   * The accuser; 0 if the view that names it was superseded before the program polled.
   */
  uint64_t accuser;
  /**
   * Why it was reported.
   */
  enum obol_reason reason;
  /**
   * The member's kind; `OBOL_KIND_UNKNOWN` if it joined and failed between two polls.
   */
  enum obol_kind kind;
  /**
   * The member's name; empty if its kind is unknown.
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
 * Takes a seat at the agent `agent` of this node, under the name `name_of_app`, and stores the
 * handle in `*app`. The program becomes a member by `obol_join`.
 *
 * A name has 1 to 23 bytes of `a-z A-Z 0-9 . _ -` and begins with a letter or digit
 * (`OBOL_STATUS_ARGUMENT`). It belongs to one live process of the host at a time, until `obol_close`
 * or the end of the process, and in that process to one handle: a name that another has is refused
 * with `OBOL_STATUS_CLUSTER`, and `obol_last_error` says which process has it. Names that the cluster
 * keeps for other processes, running or not, are
 * refused with `OBOL_STATUS_CLUSTER`: `leader`; `coord-N` for each coordinator that there can be
 * (`limits.proposers` of the profile); those of its agents and lease caches, under `obol up` `node-N`
 * and `cache-N` as far as it started them; and with several hosts `gateway` and `gateway-N`.
 *
 * `root` is the directory of this host's clusters, `cluster` the cluster's name. Null selects, like
 * the command `obol`, what OBOL_ROOT and OBOL_CLUSTER in the environment say, or else the defaults.
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
 * Starts a core of the program's own on a thread, under the name `name_of_app`, and stores the
 * handle in `*app`. It joins by itself, now and whenever it was removed; `obol_join` waits for
 * that. Names are as with `obol_attach`.
 *
 * `root` is the directory of this host's clusters, `cluster` the cluster's name. Null selects, like
 * the command `obol`, what OBOL_ROOT and OBOL_CLUSTER in the environment say, or else the defaults.
 *
 * # Safety
 * The texts are null or end with a zero byte; `app` is null or points to memory for a pointer.
 */
enum obol_status obol_embed(const char *root,
                            const char *cluster,
                            const char *name_of_app,
                            struct obol_app **app);

/**
 * Becomes a member, as a new incarnation, and waits for that for at most `timeout_ns` nanoseconds.
 * An attached program that was removed calls this again. If programs of its name failed or left
 * repeatedly, the join is put on hold for a while; `obol_last_error` says for how long. If another
 * member has its name, which may be of another host, it waits for the end of that one.
 *
 * # Safety
 * `app` is null or a live handle.
 */
enum obol_status obol_join(const struct obol_app *app, uint64_t timeout_ns);

/**
 * Leaves the cluster gracefully, which does not count as a failure, and waits for that for at most
 * `timeout_ns` nanoseconds. An embedded program leaves only by `obol_close`.
 *
 * # Safety
 * `app` is null or a live handle.
 */
enum obol_status obol_leave(const struct obol_app *app, uint64_t timeout_ns);

/**
 * Closes the handle and ends the membership. Views and streams outlive it. A null pointer is
 * ignored.
 *
 * An embedded program leaves gracefully by that. An attached one that has not called `obol_leave`
 * is reported to the others as failed, as if it had died.
 *
 * Membership stays with the process that attached or embedded. A forked child has copies of its
 * handles: they are never active and return `OBOL_STATUS_FORKED`; closing them does not affect the
 * parent. So a server that forks workers attaches in each worker, and a program that becomes a
 * daemon by `fork` or `daemon` attaches after that: an earlier membership would end with the
 * parent. `posix_spawn`, and `fork` with `exec`, are safe at any time.
 *
 * # Safety
 * `app` is null or a handle that is no longer used.
 */
void obol_close(struct obol_app *app);

/**
 * This program's incarnation; 0 while it is not a member, in the child of a fork, and for a null
 * pointer.
 *
 * # Safety
 * `app` is null or a live handle.
 */
uint64_t obol_incarnation(const struct obol_app *app);

/**
 * Whether the program has to join again: the cluster removed it, or its agent died; `obol_join`
 * then returns that error. An embedded core joins by itself as long as it runs.
 *
 * # Safety
 * `app` is null or a live handle.
 */
bool obol_is_excluded(const struct obol_app *app);

/**
 * Whether the program's agent, or its own core, still runs. If not, the membership ends, streams
 * end, and an attached program calls `obol_attach_again`. False in the child of a fork, and for a
 * null pointer.
 *
 * # Safety
 * `app` is null or a live handle.
 */
bool obol_agent_lives(const struct obol_app *app);

/**
 * After its agent's death: takes a seat at the agent's successor, which has the same name, and
 * waits for one for at most `timeout_ns` nanoseconds. Call `obol_join` afterwards. Existing
 * streams end with `OBOL_STATUS_AGENT_DIED`; open new ones. Does nothing while the agent lives.
 *
 * # Safety
 * `app` is null or a live handle that no other thread uses during the call.
 */
enum obol_status obol_attach_again(struct obol_app *app, uint64_t timeout_ns);

/**
 * The newest view that is known to be decided, to be freed by the caller; null before the first,
 * and for a null pointer.
 *
 * # Safety
 * `app` is null or a live handle.
 */
struct obol_view *obol_newest_view(const struct obol_app *app);

/**
 * Whether `view` is active for this program now: the program is a member of it, and no later view
 * that excludes an application has been active anywhere. No system call, no allocation; false for
 * a null pointer.
 *
 * # Safety
 * `app` is null or a live handle, `view` null or a live view that it gave.
 */
bool obol_active(const struct obol_app *app, const struct obol_view *view);

/**
 * As `obol_active`, with the reason: `OBOL_STATUS_OK` if it is active, else
 * `OBOL_STATUS_INACTIVE`, `OBOL_STATUS_AGENT_DIED` or `OBOL_STATUS_FORKED`. Costs the same while
 * it is active.
 *
 * # Safety
 * `app` is null or a live handle, `view` null or a live view that it gave.
 */
enum obol_status obol_check(const struct obol_app *app, const struct obol_view *view);

/**
 * Calls `work(view, context)` if `view` is active, and returns whether it is still active
 * afterwards. The effect of `work` must not count before this has returned true.
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
 * As `obol_active`, also where the lease has expired: then the coordinators are asked, and
 * `OBOL_STATUS_OK` means that `view` was active at some moment between the call and its return.
 * Waits for at most `timeout_ns` nanoseconds. It works where delays are longer than leases, and
 * costs a round trip.
 *
 * # Safety
 * As `obol_active`.
 */
enum obol_status obol_confirm(const struct obol_app *app,
                              const struct obol_view *view,
                              uint64_t timeout_ns);

/**
 * As `obol_guard`, also where leases are too short for the delays: calls `work(view, context)`
 * once older leases are over, and then confirms `view` as `obol_confirm` does. The effect of
 * `work` must not count unless this returns `OBOL_STATUS_OK`. Waits for at most `timeout_ns`
 * nanoseconds, not counting the work.
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
 * The number of changes of view and lease start; for `obol_wait_changed`. 0 for a null pointer.
 *
 * # Safety
 * `app` is null or a live handle.
 */
uint32_t obol_changes(const struct obol_app *app);

/**
 * Sleeps until view or lease start have changed since `seen`, or for at most `timeout_ns`
 * nanoseconds; returns the number of changes. To wait until a view is active, sleep at most until
 * its lease begins, which causes no wake-up: poll every millisecond or so.
 *
 * # Safety
 * `app` is null or a live handle.
 */
uint32_t obol_wait_changed(const struct obol_app *app, uint32_t seen, uint64_t timeout_ns);

/**
 * Promises to call `obol_progress` at least every `within_ns` nanoseconds from now on; 0 cancels
 * the promise. A member that breaks it is removed, although its process lives. A promise made
 * before `obol_join` counts from the join on; one made at an agent does not apply at its
 * successor.
 *
 * # Safety
 * `app` is null or a live handle.
 */
void obol_promise_progress(const struct obol_app *app, uint64_t within_ns);

/**
 * Reports that the program makes progress.
 *
 * # Safety
 * `app` is null or a live handle.
 */
void obol_progress(const struct obol_app *app);

/**
 * Starts a replica of `service` on threads of its own, and stores the handle in `*replica`. Three
 * programs that do so, each with a name of its own (see `obol_attach`), keep the service together: `obol_propose` of
 * any of them executes a command on all, and what was answered survives the death of any minority.
 * The oldest one leads. `obol smr status` shows them.
 *
 * `name_of_replica` begins with `smr-`; a member `smrc-`, for the calls of this program, follows
 * from it. `voters` is how many replicas of a new service should have every answered command, at
 * most 7; 3 is usual. All replicas of a cluster keep the same service.
 *
 * The service begins with the state of an `on_load` of length 0, the same in all programs; what
 * others have done since follows by commands, or by another `on_load`. The replica has a place in
 * the cluster when this returns; it takes part when it is a member, and calls wait for that.
 *
 * The state is in the memory of the replicas. Where a majority of them has died before others took
 * their places, it is lost, and calls end with `OBOL_STATUS_TIMEOUT`: no replica begins an empty
 * state in its place, until the cluster itself is started anew, or an operator has a program call
 * `obol_replica_open_empty`.
 *
 * `root` is the directory of this host's clusters, `cluster` the cluster's name. Null selects, like
 * the command `obol`, what OBOL_ROOT and OBOL_CLUSTER in the environment say, or else the defaults.
 *
 * # Safety
 * The texts are null or end with a zero byte; `service` is null or points to a service whose
 * functions another thread may call with its context until `obol_replica_close` has returned;
 * `replica` is null or points to memory for a pointer.
 */
enum obol_status obol_replica_open(const char *root,
                                   const char *cluster,
                                   const char *name_of_replica,
                                   uint32_t voters,
                                   const struct obol_service *service,
                                   struct obol_replica **replica);

/**
 * The same for a service whose state is saved and loaded in parts: none of the functions of `parts` may
 * be null. A null `parts` is refused.
 *
 * # Safety
 * As `obol_replica_open`; `parts` is null or points to functions which another thread may call with the
 * service's context until `obol_replica_close` has returned.
 */
enum obol_status obol_replica_open_parts(const char *root,
                                         const char *cluster,
                                         const char *name_of_replica,
                                         uint32_t voters,
                                         const struct obol_service *service,
                                         const struct obol_parts *parts,
                                         struct obol_replica **replica);

/**
 * Starts a replica that begins a new, empty state also where earlier replicas of this host have died
 * with theirs; otherwise as `obol_replica_open`, or as `obol_replica_open_parts` if `parts` is not null.
 * It is for one program, after all replicas have ended, also those that wait for the state: an empty state
 * is begun by the oldest replica of the cluster only. After that, the other programs open theirs as
 * always, and take the state from it.
 *
 * All that was answered before is lost then, for all programs. So this is an operator's decision, who sees
 * in `obol smr status` that no replica is left, and never one of the program itself, after a call without
 * an answer, say: replicas that are frozen or cut off still have the state, and go on with it when a
 * majority of them returns. While such replicas are on this host, nothing is begun, and the status is
 * `OBOL_STATUS_CLUSTER`. One that returns after a new state was begun takes no part any more, and its
 * calls end with `OBOL_STATUS_CLUSTER`.
 *
 * Beside a replica that has the state nothing is begun, and nothing is lost: this one takes that state.
 *
 * # Safety
 * As `obol_replica_open_parts`.
 */
enum obol_status obol_replica_open_empty(const char *root,
                                         const char *cluster,
                                         const char *name_of_replica,
                                         uint32_t voters,
                                         const struct obol_service *service,
                                         const struct obol_parts *parts,
                                         struct obol_replica **replica);

/**
 * Executes a command on the replicated service, and stores the reply of `on_commit`: up to `room`
 * bytes of it in `reply`, its length in `*reply_length`. Waits for at most `timeout_ns`
 * nanoseconds.
 *
 * The command takes effect once, whichever leaders die meanwhile. After `OBOL_STATUS_TIMEOUT` it
 * may still take effect; after `OBOL_STATUS_UNKNOWN` it may have.
 *
 * # Safety
 * `replica` is null or a live handle; `command` is null or points to `length` bytes, `reply` to
 * memory for `room` bytes, `reply_length` to memory for a number.
 */
enum obol_status obol_propose(const struct obol_replica *replica,
                              const uint8_t *command,
                              size_t length,
                              uint64_t timeout_ns,
                              uint8_t *reply,
                              size_t room,
                              size_t *reply_length);

/**
 * Queries the replicated service at its leader, and stores the reply of `on_read` as
 * `obol_propose` does. It sees all commands that were answered before the call, of whichever
 * program.
 *
 * # Safety
 * As `obol_propose`.
 */
enum obol_status obol_read(const struct obol_replica *replica,
                           const uint8_t *query,
                           size_t length,
                           uint64_t timeout_ns,
                           uint8_t *reply,
                           size_t room,
                           size_t *reply_length);

/**
 * How many voters have every command that was answered, as of some moments ago; 0 if this replica
 * does not lead, in the child of a fork, and for a null pointer. While it is 1, nothing survives the
 * leader's death.
 *
 * # Safety
 * `replica` is null or a live handle.
 */
size_t obol_replica_redundancy(const struct obol_replica *replica);

/**
 * Ends the replica: it leaves the cluster gracefully, and the others continue. If they cannot, as the
 * last one of two that is frozen, it ends after 3 s, and they serve once they can; `obol smr status`
 * says what they lack. No function of its service is called afterwards. A null pointer is ignored.
 * In the child of a fork it does not affect the parent.
 *
 * # Safety
 * `replica` is null or a handle that is no longer used.
 */
void obol_replica_close(struct obol_replica *replica);

/**
 * Appends `length` bytes to a reply or a state. Does nothing for a null pointer.
 *
 * # Safety
 * `output` is null or what a function of the service was given, during that call; `bytes` is null
 * or points to `length` bytes.
 */
void obol_output_write(struct obol_output *output, const uint8_t *bytes, size_t length);

/**
 * The error message of the last failed call of this thread. Empty if none has failed.
 *
 * The text is valid until the next call of this thread fails.
 */
const char *obol_last_error(void);

/**
 * The version of this library, such as `0.1.0`. The text is valid until the program ends.
 *
 * Functions are added and never removed, so a program that was made for one version runs with all later ones
 * of the same major version.
 */
const char *obol_version(void);

/**
 * Opens the stream of a program's views, beginning with the newest. Views superseded before the
 * program polls are skipped. Null for a null pointer. It may outlive the program's handle.
 *
 * # Safety
 * `app` is null or a live handle.
 */
struct obol_views *obol_views_open(const struct obol_app *app);

/**
 * Stores the next view in `*view`, to be freed by the caller. Waits for at most `timeout_ns`
 * nanoseconds. `OBOL_STATUS_AGENT_DIED` if there will be no more.
 *
 * # Safety
 * `views` is null or a live stream that no other thread uses during the call; `view` is null or
 * points to memory for a pointer.
 */
enum obol_status obol_views_next(struct obol_views *views,
                                 uint64_t timeout_ns,
                                 struct obol_view **view);

/**
 * Closes a stream of views. A null pointer is ignored.
 *
 * # Safety
 * `views` is null or a stream that is no longer used.
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
 * Stores the next failure in `*failure`. Waits for at most `timeout_ns` nanoseconds.
 * `OBOL_STATUS_AGENT_DIED` if there will be no more.
 *
 * # Safety
 * `failures` is null or a live stream that no other thread uses during the call; `failure` is null
 * or points to memory for one.
 */
enum obol_status obol_failures_next(struct obol_failures *failures,
                                    uint64_t timeout_ns,
                                    struct obol_failure *failure);

/**
 * Closes a stream of failures. A null pointer is ignored.
 *
 * # Safety
 * `failures` is null or a stream that is no longer used.
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
 * Whether the program that read this view is a member of it. Only then can it be active for that
 * program.
 *
 * # Safety
 * `view` is null or a live view.
 */
bool obol_view_is_mine(const struct obol_view *view);

/**
 * The number of members of the view.
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
 * `view` is null or a live view; `member` is null or points to memory for one that no other thread
 * uses during the call.
 */
bool obol_view_member(const struct obol_view *view, size_t index, struct obol_member *member);

/**
 * Another handle to the same view, to be freed separately. Null for a null pointer.
 *
 * # Safety
 * `view` is null or a live view.
 */
struct obol_view *obol_view_clone(const struct obol_view *view);

/**
 * Frees a view. A null pointer is ignored.
 *
 * # Safety
 * `view` is null or a view that is no longer used.
 */
void obol_view_free(struct obol_view *view);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* OBOL_H */

/* A replicated service in C with a large state: how many there are of each item. It is saved and loaded in
 * parts, while commands go on.
 *
 *     cc stock.c $(pkg-config --cflags --libs obol) -o stock
 *     ./stock smr-1 [ROOT]      and smr-2, smr-3 in other terminals
 *
 * Each line of input is a request, and is answered with one number: "open N" adds N pages of 509 items,
 * "add ITEM N" changes an item's count and prints it, "look ITEM" prints it, "pages" prints how many there
 * are, "copies" how many of the programs have everything, if this one leads. At the end of the input the
 * program leaves gracefully. */
#include <inttypes.h>
#include <obol.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND UINT64_C(1000000000)
#define PAGES_MAX (1 << 18)
#define OPEN_MAX 64
#define ITEMS 509
/* Pages that one part has, and that one call of `on_work` takes. */
#define PART_PAGES 4
#define WORK_PAGES 64

/* 4 KB in memory. */
struct page {
    /* In a list of pages that are in no state. */
    struct page *next;
    /* The save that was the newest one when this page was made. */
    uint64_t made_in;
    /* If it was made in the save that is under way: the page as it was before, or null. */
    struct page *former;
    int64_t counts[ITEMS];
};

/* A state: the same on every replica, since it follows from the commands alone. */
struct stock {
    size_t count;
    struct page *pages[PAGES_MAX];
    /* In the list of those that are not needed any more. */
    struct stock *next;
};

struct service {
    struct stock *stock;
    /* The second state, while one is loaded. */
    struct stock *loading;
    /* The number of the newest save; the page that it writes next, and where it ends. */
    uint64_t save;
    size_t saved, to_save;
    /* Pages that were changed since it began, as they were then. */
    struct page *formers, *first_former;
    /* What is not needed any more: `on_work` takes its pages apart in steps. */
    struct stock *dropped;
    /* Pages for reuse. To give all of a large state back to the system at once would take longer than
     * the lease. */
    struct page *spare;
};

/* A service without memory cannot follow: the others go on without it. */
static void *made(void *memory) {
    if (memory == NULL) {
        fprintf(stderr, "no memory\n");
        abort();
    }
    return memory;
}

static struct page *new_page(struct service *service) {
    struct page *page = service->spare;
    if (page != NULL)
        service->spare = page->next;
    else
        page = made(malloc(sizeof *page));
    page->next = page->former = NULL;
    page->made_in = service->save;
    return page;
}

static struct stock *new_stock(void) {
    return made(calloc(1, sizeof(struct stock)));
}

/* A page that may be changed. The first change since a save began leaves the page as it is to that save,
 * and changes a copy. */
static struct page *changed(struct service *service, size_t number) {
    struct page *page = service->stock->pages[number];
    bool is_wanted = number >= service->saved && number < service->to_save;
    if (!is_wanted || page->made_in == service->save)
        return page;
    struct page *copy = new_page(service);
    memcpy(copy->counts, page->counts, sizeof copy->counts);
    copy->former = page;
    page->next = service->formers;
    service->formers = page;
    if (page->next == NULL)
        service->first_former = page;
    return service->stock->pages[number] = copy;
}

/* A command. Any program of the cluster may have proposed it, so it is checked here. */
struct command {
    uint64_t item;
    int64_t more;
    /* Pages to add instead. */
    uint64_t open;
};

static void write_number(int64_t number, obol_output *to) {
    obol_output_write(to, (const uint8_t *)&number, sizeof number);
}

static void on_commit(void *context, const uint8_t *bytes, size_t length, obol_output *reply) {
    struct service *service = context;
    struct stock *stock = service->stock;
    struct command command;
    if (length != sizeof command)
        return;
    memcpy(&command, bytes, sizeof command);
    if (command.open > OPEN_MAX || command.open > PAGES_MAX - stock->count)
        return;
    for (uint64_t n = 0; n < command.open; n++) {
        struct page *page = new_page(service);
        for (size_t item = 0; item < ITEMS; item++)
            page->counts[item] = (int64_t)(stock->count * ITEMS + item);
        stock->pages[stock->count++] = page;
    }
    if (command.open > 0) {
        write_number((int64_t)stock->count, reply);
    } else if (command.item / ITEMS < stock->count) {
        int64_t *count = &changed(service, command.item / ITEMS)->counts[command.item % ITEMS];
        /* It may go round, the same on all replicas. */
        *count = (int64_t)((uint64_t)*count + (uint64_t)command.more);
        write_number(*count, reply);
    }
}

/* A query is an item, or nothing, for the number of pages. */
static void on_read(void *context, const uint8_t *query, size_t length, obol_output *reply) {
    const struct stock *stock = ((struct service *)context)->stock;
    uint64_t item;
    if (length == 0) {
        write_number((int64_t)stock->count, reply);
    } else if (length == sizeof item) {
        memcpy(&item, query, sizeof item);
        if (item / ITEMS < stock->count)
            write_number(stock->pages[item / ITEMS]->counts[item % ITEMS], reply);
    }
}

static void drop(struct service *service, struct stock *stock) {
    stock->next = service->dropped;
    service->dropped = stock;
}

/* Only the initial state: all others are loaded in parts. */
static bool on_load(void *context, const uint8_t *state, size_t length) {
    struct service *service = context;
    (void)state;
    if (length > 0)
        return false;
    if (service->stock != NULL)
        drop(service, service->stock);
    service->stock = new_stock();
    return true;
}

/* The state of now: the first `to_save` pages, as they were made before this save. */
static uint64_t on_save_begin(void *context) {
    struct service *service = context;
    service->save++;
    service->saved = 0;
    service->to_save = service->stock->count;
    return service->to_save * sizeof service->spare->counts;
}

static bool on_save_part(void *context, obol_output *part) {
    struct service *service = context;
    for (int n = 0; n < PART_PAGES && service->saved < service->to_save; n++) {
        const struct page *page = service->stock->pages[service->saved++];
        if (page->made_in == service->save)
            page = page->former;
        obol_output_write(part, (const uint8_t *)page->counts, sizeof page->counts);
    }
    return service->saved == service->to_save;
}

/* Whole or given up: the former pages are of no use any more. What a state's pages say of them is not
 * looked at again, since the next save has another number. */
static void on_save_end(void *context) {
    struct service *service = context;
    service->saved = service->to_save = 0;
    if (service->formers != NULL) {
        service->first_former->next = service->spare;
        service->spare = service->formers;
        service->formers = service->first_former = NULL;
    }
}

static void on_load_begin(void *context) {
    ((struct service *)context)->loading = new_stock();
}

static size_t on_load_part(void *context, const uint8_t *bytes, size_t length) {
    struct service *service = context;
    struct stock *loading = service->loading;
    size_t used = 0;
    while (length - used >= sizeof service->spare->counts) {
        if (loading->count == PAGES_MAX)
            return SIZE_MAX;
        struct page *page = new_page(service);
        memcpy(page->counts, bytes + used, sizeof page->counts);
        used += sizeof page->counts;
        loading->pages[loading->count++] = page;
    }
    return used;
}

static bool on_load_commit(void *context) {
    struct service *service = context;
    drop(service, service->stock);
    service->stock = service->loading;
    service->loading = NULL;
    return true;
}

static void on_load_abandon(void *context) {
    struct service *service = context;
    drop(service, service->loading);
    service->loading = NULL;
}

static bool on_work(void *context) {
    struct service *service = context;
    struct stock *stock = service->dropped;
    if (stock == NULL)
        return false;
    for (int n = 0; n < WORK_PAGES && stock->count > 0; n++) {
        struct page *page = stock->pages[--stock->count];
        page->next = service->spare;
        service->spare = page;
    }
    if (stock->count == 0) {
        service->dropped = stock->next;
        free(stock);
    }
    return service->dropped != NULL;
}

/* After `obol_replica_close`. */
static void free_all(struct service *service) {
    on_save_end(service);
    if (service->loading != NULL)
        on_load_abandon(service);
    if (service->stock != NULL)
        drop(service, service->stock);
    while (on_work(service)) {
    }
    while (service->spare != NULL) {
        struct page *page = service->spare;
        service->spare = page->next;
        free(page);
    }
}

static int fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, obol_last_error());
    return 1;
}

/* Serves one request. A command that got no answer in time may take effect later, once: a client
 * that must know reads the state again. */
static int serve(const obol_replica *replica, const char *line) {
    struct command command = {0};
    uint64_t item = 0, pages = 0;
    int64_t number = 0;
    size_t length = 0;
    obol_status status;
    if (strncmp(line, "copies", 6) == 0) {
        number = (int64_t)obol_replica_redundancy(replica);
        status = OBOL_STATUS_OK;
        length = sizeof number;
    } else if (sscanf(line, "open %" SCNu64, &pages) == 1) {
        do {
            command.open = pages < OPEN_MAX ? pages : OPEN_MAX;
            pages -= command.open;
            status = obol_propose(replica, (const uint8_t *)&command, sizeof command, 10 * SECOND,
                                  (uint8_t *)&number, sizeof number, &length);
        } while (status == OBOL_STATUS_OK && pages > 0);
    } else if (sscanf(line, "add %" SCNu64 " %" SCNd64, &command.item, &command.more) == 2)
        status = obol_propose(replica, (const uint8_t *)&command, sizeof command, 10 * SECOND,
                              (uint8_t *)&number, sizeof number, &length);
    else if (sscanf(line, "look %" SCNu64, &item) == 1)
        status = obol_read(replica, (const uint8_t *)&item, sizeof item, 10 * SECOND, (uint8_t *)&number,
                           sizeof number, &length);
    else if (strncmp(line, "pages", 5) == 0)
        status = obol_read(replica, NULL, 0, 10 * SECOND, (uint8_t *)&number, sizeof number, &length);
    else {
        fprintf(stderr, "a request is `open N`, `add ITEM N`, `look ITEM`, `pages` or `copies`\n");
        return 0;
    }
    if (status != OBOL_STATUS_OK)
        return fail("no answer");
    if (length != sizeof number) {
        fprintf(stderr, "there is no such item, or no room for as many pages\n");
        return 0;
    }
    printf("%" PRId64 "\n", number);
    fflush(stdout);
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: stock NAME [ROOT]\n");
        return 2;
    }
    struct service state = {0};
    obol_service service = {&state, on_commit, on_read, NULL, on_load};
    obol_parts parts = {on_save_begin, on_save_part, on_save_end, on_load_begin,
                        on_load_part, on_load_commit, on_load_abandon, on_work};
    obol_replica *replica = NULL;
    const char *root = argc > 2 ? argv[2] : NULL;
    if (obol_replica_open_parts(root, NULL, argv[1], 3, &service, &parts, &replica) != OBOL_STATUS_OK) {
        free_all(&state);
        return fail("open");
    }
    char line[64];
    int code = 0;
    while (code == 0 && fgets(line, sizeof line, stdin))
        code = serve(replica, line);
    obol_replica_close(replica);
    free_all(&state);
    return code;
}

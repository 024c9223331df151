/* The service of capi/examples/stock.c without a cluster: saves and loads while commands go on, compared with
 * a state that was copied at once. `capi.rs` runs it, also under valgrind. Prints the number of saves. */
#define main program
#include "../capi/examples/stock.c"
#undef main

/* In place of the library's. */
struct obol_output {
    uint8_t *bytes;
    size_t length, room;
};

void obol_output_write(obol_output *output, const uint8_t *bytes, size_t length) {
    if (output->length + length > output->room) {
        output->room = 2 * output->room + length;
        output->bytes = made(realloc(output->bytes, output->room));
    }
    memcpy(output->bytes + output->length, bytes, length);
    output->length += length;
}

static uint64_t next_random(uint64_t below) {
    static uint64_t state = 7;
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (state >> 33) % below;
}

static void commit(struct service *service, struct command command) {
    obol_output reply = {0};
    on_commit(service, (const uint8_t *)&command, sizeof command, &reply);
    free(reply.bytes);
}

/* Changes some items, and now and then adds a page. */
static void change(struct service *service) {
    size_t items = service->stock->count * ITEMS;
    for (int n = 0; n < 20; n++)
        commit(service, (struct command){.item = next_random(items), .more = (int64_t)next_random(1000)});
    if (next_random(4) == 0)
        commit(service, (struct command){.open = 1});
}

static void copy_at_once(const struct stock *stock, obol_output *to) {
    for (size_t page = 0; page < stock->count; page++)
        obol_output_write(to, (const uint8_t *)stock->pages[page]->counts, sizeof stock->pages[page]->counts);
}

static int is_state(const struct stock *stock, const obol_output *bytes) {
    obol_output now = {0};
    copy_at_once(stock, &now);
    int is_equal = now.length == bytes->length && memcmp(now.bytes, bytes->bytes, now.length) == 0;
    free(now.bytes);
    return is_equal;
}

static int failed(const char *what) {
    fprintf(stderr, "%s\n", what);
    return 1;
}

int main(void) {
    struct service from = {0}, to = {0};
    on_load(&from, NULL, 0);
    on_load(&to, NULL, 0);
    commit(&from, (struct command){.open = 40});
    commit(&to, (struct command){.open = 2});
    int saves = 0;
    for (int turn = 0; turn < 60; turn++) {
        obol_output then = {0}, saved = {0}, before = {0};
        copy_at_once(from.stock, &then);
        copy_at_once(to.stock, &before);
        on_save_begin(&from);
        on_load_begin(&to);
        size_t loaded = 0;
        int is_last = 0, is_given_up = 0;
        while (!is_last && !is_given_up) {
            change(&from);
            is_last = on_save_part(&from, &saved);
            while (saved.length - loaded > 0 && (is_last || next_random(3) > 0)) {
                /* From a buffer without a byte more, so that valgrind finds reads beyond. */
                size_t length = next_random(saved.length - loaded) + 1;
                uint8_t *bytes = made(malloc(length));
                memcpy(bytes, saved.bytes + loaded, length);
                loaded += on_load_part(&to, bytes, length);
                free(bytes);
            }
            is_given_up = turn % 3 == 2 && next_random(10) == 0;
            on_work(&to);
        }
        on_save_end(&from);
        if (is_given_up) {
            on_load_abandon(&to);
            if (!is_state(to.stock, &before))
                return failed("a load that was given up has changed the state");
        } else {
            if (saved.length != then.length || memcmp(saved.bytes, then.bytes, then.length) != 0)
                return failed("a save is not the state of its begin");
            if (loaded != saved.length || !on_load_commit(&to) || !is_state(to.stock, &then))
                return failed("what was loaded is not what was saved");
            change(&to);
            saves++;
        }
        free(then.bytes);
        free(saved.bytes);
        free(before.bytes);
    }
    /* In the middle of both. */
    on_save_begin(&from);
    change(&from);
    on_load_begin(&to);
    free_all(&from);
    free_all(&to);
    printf("%d\n", saves);
    return 0;
}

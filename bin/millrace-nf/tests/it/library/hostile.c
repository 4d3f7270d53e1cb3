/* A hostile function in a process, whose setting `mode` selects the attack. While it is loaded it may still read files, so it
 * looks up the address of the window that it shares with the switch. */
#define _GNU_SOURCE
#include <millrace_nf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PACKETS, SEEN, COUNTERS };
enum { MAPS = 512 };

static struct { uint8_t *start, *end; int is_window, is_shared; } maps[MAPS];
static size_t maps_len;
static const char *mode;
static uint32_t state = 2463534242u;

static uint32_t dice(void)
{
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

__attribute__((constructor)) static void begin(void)
{
    char line[512];
    FILE *file = fopen("/proc/self/maps", "r");
    while (file && maps_len < MAPS && fgets(line, sizeof(line), file)) {
        unsigned long start, end;
        char rights[5];
        if (sscanf(line, "%lx-%lx %4s", &start, &end, rights) != 3 || rights[0] != 'r' || rights[1] != 'w') continue;
        maps[maps_len].start = (uint8_t *)start;
        maps[maps_len].end = (uint8_t *)end;
        maps[maps_len].is_shared = rights[3] == 's';
        maps[maps_len++].is_window = strstr(line, "millrace-window") != NULL;
    }
    if (file) fclose(file);
}

static void *make(const millrace_nf_setup *setup, char *reason, size_t size)
{
    (void)reason; (void)size;
    mode = strdup(strchr(setup->settings[0], '=') + 1);
    return setup->counters;
}

/* A mark of another chain's packets, encoded so that this file does not contain it. */
static const char hidden[] = "opcpez!fmtf!sfbet!uijt";
enum { SECRET = sizeof(hidden) - 1 };

static int is_secret(const uint8_t *bytes)
{
    for (size_t i = 0; i < SECRET; i++)
        if (bytes[i] != hidden[i] - 1) return 0;
    return 1;
}

static uint64_t secrets(const uint8_t *at, const uint8_t *end)
{
    uint64_t seen = 0;
    while (end - at >= SECRET && (at = memchr(at, hidden[0] - 1, (size_t)(end - at) - SECRET + 1)))
        seen += is_secret(at++);
    return seen;
}

static void process(void *function, const millrace_nf_context *context, millrace_nf_packet *burst,
                    millrace_nf_verdict *verdicts, size_t len)
{
    uint64_t *counters = function;
    (void)context; (void)burst; (void)verdicts;
    counters[PACKETS] += len;
    /* The function behaves correctly at first, so that packets are in flight. */
    if (counters[PACKETS] < 200) return;
    if (!strcmp(mode, "hang")) for (;;) __asm__ volatile("");
    /* A function of class ring is trusted with all packets, which are shared with it. */
    if (!strcmp(mode, "wild"))
        for (size_t i = 0; i < maps_len; i++)
            if (!maps[i].is_shared) memset(maps[i].start, 0x5a, (size_t)(maps[i].end - maps[i].start));
    for (size_t i = 0; i < maps_len; i++) {
        uint64_t *numbers = (uint64_t *)maps[i].start;
        size_t size = (size_t)(maps[i].end - maps[i].start) / 8;
        if (!strcmp(mode, "spy")) {
            counters[SEEN] += secrets(maps[i].start, maps[i].end);
            continue;
        }
        if (!maps[i].is_window) continue;
        /* crates/functions/nf/src/shm/mod.rs: the number of finished packets is at 256; descriptors, notes and answers begin at 4096. */
        if (!strcmp(mode, "flood")) numbers[32] += 5000;
        if (!strcmp(mode, "back")) numbers[32] = 0;
        if (!strcmp(mode, "lengths"))
            for (size_t at = 512; at < 512 + 8 * 1024 && at < size; at++) numbers[at] = (uint64_t)dice() << 32 | dice();
        if (!strcmp(mode, "highest"))
            for (size_t at = 512; at < 512 + 8 * 1024 && at < size; at++) numbers[at] = at % 2 ? ~0ull : 0x7fffffffull;
        if (!strcmp(mode, "all"))
            for (size_t at = 0; at < size; at++) numbers[at] = (uint64_t)dice() << 32 | dice();
    }
}

const millrace_nf_kind millrace_nf = {
    .abi = MILLRACE_NF_ABI, .kind_size = sizeof(millrace_nf_kind), .make = make, .process = process,
    .description = MILLRACE_NF_VERSION "name hostile\nsetting mode what it does\ncounter packets\ncounter seen\n",
};

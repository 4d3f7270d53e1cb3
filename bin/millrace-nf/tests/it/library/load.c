/* A function that uses resources: `spin` microseconds of the core for each packet, `eat` MiB of memory for each burst. That memory
 * is shared, and limits of the process itself do not count it. */
#define _GNU_SOURCE
#include <millrace_nf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { PACKETS, EATEN, COUNTERS };

static uint64_t spin, eat;

static uint64_t ran_for(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void *make(const millrace_nf_setup *setup, char *reason, size_t size)
{
    (void)reason; (void)size;
    for (size_t i = 0; i < setup->settings_len; i++) {
        const char *value = strchr(setup->settings[i], '=') + 1;
        if (setup->settings[i][0] == 's') spin = strtoull(value, NULL, 10); else eat = strtoull(value, NULL, 10);
    }
    return setup->counters;
}

static void process(void *function, const millrace_nf_context *context, millrace_nf_packet *burst,
                    millrace_nf_verdict *verdicts, size_t len)
{
    uint64_t *counters = function;
    (void)context; (void)burst; (void)verdicts;
    counters[PACKETS] += len;
    for (uint64_t began = ran_for(); spin && ran_for() - began < spin * len;) {}
    for (uint64_t i = 0; i < eat; i++) {
        char *more = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (more == MAP_FAILED) return;
        memset(more, 1, 1 << 20);
        counters[EATEN]++;
    }
}

const millrace_nf_kind millrace_nf = {
    .abi = MILLRACE_NF_ABI, .kind_size = sizeof(millrace_nf_kind), .make = make, .process = process,
    .description = MILLRACE_NF_VERSION "name load\nsetting spin microseconds a packet\nsetting eat MiB a burst\ncounter packets\ncounter eaten\n",
};

/* A network function in C: decrements the time to live of IPv4 packets, as a router does, and drops packets whose time to live runs
 * out. `minimum=N` drops packets that arrive with less than N.
 *
 *     cc -O2 -shared -fPIC -I crates/functions/nf/include -o ttl.so examples/functions/ttl.c
 *
 *     [[bridge.chain.hop]]
 *     name = "ttl"
 *     function = "library:/usr/lib/millrace/ttl.so"
 *     class = "isolated"
 *     settings = ["minimum=2"]
 */
#include <millrace_nf.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOWERED, EXPIRED };

struct ttl {
    unsigned minimum;
    uint64_t *counters;
};

static void *make(const millrace_nf_setup *setup, char *reason, size_t reason_size)
{
    unsigned minimum = 1;
    for (size_t i = 0; i < setup->settings_len; i++) {
        const char *text = setup->settings[i];
        char *end = NULL;
        if (strncmp(text, "minimum=", 8) == 0)
            minimum = (unsigned)strtoul(text + 8, &end, 10);
        if (end == NULL || *end != '\0' || minimum < 1 || minimum > 255) {
            snprintf(reason, reason_size, "`%s`: expected minimum=1 to minimum=255", text);
            return NULL;
        }
    }
    struct ttl *ttl = malloc(sizeof *ttl);
    if (ttl == NULL) {
        snprintf(reason, reason_size, "no memory");
        return NULL;
    }
    ttl->minimum = minimum;
    ttl->counters = setup->counters;
    return ttl;
}

static void process(void *function, const millrace_nf_context *context, millrace_nf_packet *burst,
                    millrace_nf_verdict *verdicts, size_t len)
{
    struct ttl *ttl = function;
    (void)context;
    for (size_t i = 0; i < len; i++) {
        uint8_t *head = burst[i].head;
        if (burst[i].head_size < 34 || head[12] != 0x08 || head[13] != 0x00)
            continue;
        if (head[22] < ttl->minimum || head[22] <= 1) {
            verdicts[i].what = MILLRACE_NF_DROP;
            ttl->counters[EXPIRED] += 1;
            continue;
        }
        head[22] -= 1;
        /* The header checksum grows by the amount that the field lost (RFC 1141). */
        uint32_t sum = ((uint32_t)head[24] << 8 | head[25]) + 0x0100;
        sum += sum >> 16;
        head[24] = (uint8_t)(sum >> 8);
        head[25] = (uint8_t)sum;
        ttl->counters[LOWERED] += 1;
    }
}

const millrace_nf_kind millrace_nf = {
    .abi = MILLRACE_NF_ABI,
    .kind_size = sizeof(millrace_nf_kind),
    .description = MILLRACE_NF_VERSION
        "name ttl\n"
        "about lowers the time to live of IPv4 packets\n"
        "setting minimum drop what arrives with less, 1 to 255 (1)\n"
        "counter lowered\n"
        "counter expired\n"
        "reads 9\n"
        "writes 8\n",
    .make = make,
    .process = process,
    .end = free,
};

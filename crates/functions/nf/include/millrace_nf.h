/* A network function in C: what a shared object exports that a hop with `function = "library:PATH"` runs.
 *
 * Version 1. All of a version stays as it is; what comes after it has another number, and is refused by switches that do
 * not know it. docs/chains.md says how functions run, examples/functions/ttl.c is one.
 *
 * The switch calls a function from one thread at a time, not always the same one. In `process` and `tick` a function
 * neither blocks nor allocates nor logs. In a process of its own (class ring or isolated) it has no more rights than to
 * compute: every system call for more is refused with EPERM.
 *
 *     cc -O2 -shared -fPIC -I crates/functions/nf/include -o ttl.so examples/functions/ttl.c
 */
#ifndef MILLRACE_NF_H
#define MILLRACE_NF_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MILLRACE_NF_ABI 1

/* The first line of a description. */
#define MILLRACE_NF_VERSION "millrace-nf 1\n"

/* Parts of a packet that a function reads or writes: numbers to add in the lines `reads` and `writes`. */
#define MILLRACE_NF_LINK 1      /* the Ethernet header and tags */
#define MILLRACE_NF_ADDRESSES 2 /* IP addresses */
#define MILLRACE_NF_PORTS 4     /* transport ports */
#define MILLRACE_NF_HEADERS 8   /* all other header fields */
#define MILLRACE_NF_PAYLOAD 16  /* what follows the headers */

/* What becomes of a packet. */
enum {
    MILLRACE_NF_NEXT = 0,    /* on to the next hop, or out of the chain; so it is before `process` */
    MILLRACE_NF_SKIP = 1,    /* over `operand` hops, 0 to 255; for all packets of a flow or for none */
    MILLRACE_NF_DROP = 2,    /* nowhere */
    MILLRACE_NF_TO_PORT = 3  /* out of the chain, and out of port `operand` of the bridge */
};

typedef struct millrace_nf_verdict {
    uint32_t what;
    uint32_t operand;
} millrace_nf_verdict;

enum { MILLRACE_NF_FORWARD = 0, MILLRACE_NF_BACKWARD = 1 };

typedef struct millrace_nf_context {
    uint64_t now;       /* nanoseconds; the same for the whole burst, and it never goes back */
    uint32_t direction; /* of the whole burst */
    uint32_t reserved;
} millrace_nf_context;

typedef struct millrace_nf_calls millrace_nf_calls;

/* A packet. A function writes into the `head_size` bytes at `head`, and into nothing else of it. */
typedef struct millrace_nf_packet {
    uint8_t *head;      /* the first segment, which holds all headers */
    uint32_t head_size; /* its bytes */
    uint32_t size;      /* bytes of all segments */
    void *owner;        /* the switch's */
    const millrace_nf_calls *calls;
} millrace_nf_packet;

struct millrace_nf_calls {
    int (*prepend)(millrace_nf_packet *packet, uint32_t size);
    void (*trim_front)(millrace_nf_packet *packet, uint32_t size);
};

/* Grows the head by `size` bytes at its front; what they hold is unspecified. 0; or -1 without room in front, and then
 * the packet is as before. `head` and the sizes are new. */
static inline int millrace_nf_prepend(millrace_nf_packet *packet, uint32_t size)
{
    return packet->calls->prepend(packet, size);
}

/* Removes `size` bytes at the front of the head, all of it if it has fewer. `head` and the sizes are new. */
static inline void millrace_nf_trim_front(millrace_nf_packet *packet, uint32_t size)
{
    packet->calls->trim_front(packet, size);
}

/* What a function is given when it is made. All of it stays until its `end`. */
typedef struct millrace_nf_setup {
    const char *const *settings; /* each "key=value" */
    size_t settings_len;
    uint64_t seed;               /* a random number that nobody outside knows: keys hash tables */
    uint64_t zero_unix_millis;   /* the Unix time in milliseconds at which `now` was zero */
    uint64_t *counters;          /* in the order of the description; the function counts by `counters[0] += 1` */
    size_t counters_len;
} millrace_nf_setup;

/* A kind of function: what the shared object exports as `millrace_nf`. */
typedef struct millrace_nf_kind {
    uint32_t abi;       /* MILLRACE_NF_ABI */
    uint32_t kind_size; /* sizeof(millrace_nf_kind) */
    /* MILLRACE_NF_VERSION, then lines: `name NAME`, `about TEXT`, `setting KEY TEXT`, `counter NAME`, `reads SUM`,
     * `writes SUM`, and `keeps_flows` if both directions of a flow must meet the same function. One that says `writes 0`
     * may be given packets at the same time as its neighbours in a chain of which the same is true; without that line it
     * may write anything. */
    const char *description;
    /* Makes a function. NULL, with the reason as a text in `reason`, if the settings are not right. */
    void *(*make)(const millrace_nf_setup *setup, char *reason, size_t reason_size);
    /* Looks at packets, rewrites them where they are, and says what becomes of each: `len` of both, 64 at most. */
    void (*process)(void *function, const millrace_nf_context *context, millrace_nf_packet *burst,
                    millrace_nf_verdict *verdicts, size_t len);
    /* Called some ten times a second between bursts, also when there are none. May be NULL. */
    void (*tick)(void *function, uint64_t now);
    /* Ends a function. May be NULL. */
    void (*end)(void *function);
} millrace_nf_kind;

extern const millrace_nf_kind millrace_nf;

#ifdef __cplusplus
}
#endif

#endif

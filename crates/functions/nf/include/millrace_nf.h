/* The interface of a network function in C: a shared object exports it, and a hop with `function = "library:PATH"` runs it.
 *
 * This is version 1. A version never changes; a switch rejects functions of a version that it does not support.
 * docs/chains.md describes how functions run, and examples/functions/ttl.c is an example.
 *
 * The switch calls a function from one thread at a time, not always the same one. `process` and `tick` must not block,
 * allocate or log. In a process of its own (class ring or isolated) a function may only compute: the kernel rejects all
 * other system calls with EPERM.
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

/* Parts of a packet that a function reads or writes. The lines `reads` and `writes` hold their sum. */
#define MILLRACE_NF_LINK 1      /* the Ethernet header and VLAN tags */
#define MILLRACE_NF_ADDRESSES 2 /* IP addresses */
#define MILLRACE_NF_PORTS 4     /* transport ports */
#define MILLRACE_NF_HEADERS 8   /* all other header fields */
#define MILLRACE_NF_PAYLOAD 16  /* the payload */

/* The verdict on a packet. */
enum {
    MILLRACE_NF_NEXT = 0,    /* forward to the next hop, or out of the chain; the initial value */
    MILLRACE_NF_SKIP = 1,    /* skip `operand` hops, 0 to 255; for all packets of a flow or for none */
    MILLRACE_NF_DROP = 2,    /* drop the packet */
    MILLRACE_NF_TO_PORT = 3  /* leave the chain through port `operand` of the bridge */
};

typedef struct millrace_nf_verdict {
    uint32_t what;
    uint32_t operand;
} millrace_nf_verdict;

enum { MILLRACE_NF_FORWARD = 0, MILLRACE_NF_BACKWARD = 1 };

typedef struct millrace_nf_context {
    uint64_t now;       /* the time of the burst in nanoseconds, which never decreases */
    uint32_t direction; /* the direction of the burst */
    uint32_t reserved;
} millrace_nf_context;

typedef struct millrace_nf_calls millrace_nf_calls;

/* A packet. A function writes only to the `head_size` bytes at `head`. */
typedef struct millrace_nf_packet {
    uint8_t *head;      /* the first segment, which holds all headers */
    uint32_t head_size; /* bytes of the first segment */
    uint32_t size;      /* bytes of all segments */
    void *owner;        /* private to the switch */
    const millrace_nf_calls *calls;
} millrace_nf_packet;

struct millrace_nf_calls {
    int (*prepend)(millrace_nf_packet *packet, uint32_t size);
    void (*trim_front)(millrace_nf_packet *packet, uint32_t size);
};

/* Grows the first segment by `size` bytes at its front, with unspecified contents, and updates `head` and the sizes. Returns
 * 0, or -1 without enough headroom; the packet is then unchanged. */
static inline int millrace_nf_prepend(millrace_nf_packet *packet, uint32_t size)
{
    return packet->calls->prepend(packet, size);
}

/* Removes `size` bytes at the front of the first segment, or all of it if it has fewer, and updates `head` and the sizes. */
static inline void millrace_nf_trim_front(millrace_nf_packet *packet, uint32_t size)
{
    packet->calls->trim_front(packet, size);
}

/* The inputs of a new function. All of them stay valid until `end`. */
typedef struct millrace_nf_setup {
    const char *const *settings; /* each "key=value" */
    size_t settings_len;
    uint64_t seed;               /* a secret random number that keys hash tables */
    uint64_t zero_unix_millis;   /* the Unix time in milliseconds at which `now` was zero */
    uint64_t *counters;          /* in the order of the description; a function counts with `counters[0] += 1` */
    size_t counters_len;
} millrace_nf_setup;

/* A kind of function. The shared object exports it as `millrace_nf`. */
typedef struct millrace_nf_kind {
    uint32_t abi;       /* MILLRACE_NF_ABI */
    uint32_t kind_size; /* sizeof(millrace_nf_kind) */
    /* MILLRACE_NF_VERSION, followed by lines: `name NAME`, `about TEXT`, `setting KEY TEXT`, `counter NAME`, `reads SUM`,
     * `writes SUM`, and `keeps_flows` if both directions of a flow must reach the same function. A function with `writes 0`
     * may get packets in parallel with adjacent hops that have the same line. Without a line `writes` it may write all
     * parts. */
    const char *description;
    /* Creates a function. Returns NULL if it rejects its settings, with the reason as a text in `reason`. */
    void *(*make)(const millrace_nf_setup *setup, char *reason, size_t reason_size);
    /* Inspects and rewrites `len` packets in place, 64 at most, and sets the verdict of each. */
    void (*process)(void *function, const millrace_nf_context *context, millrace_nf_packet *burst,
                    millrace_nf_verdict *verdicts, size_t len);
    /* Handles time-outs about ten times a second between bursts, with or without traffic. May be NULL. */
    void (*tick)(void *function, uint64_t now);
    /* Frees a function. May be NULL. */
    void (*end)(void *function);
} millrace_nf_kind;

extern const millrace_nf_kind millrace_nf;

#ifdef __cplusplus
}
#endif

#endif

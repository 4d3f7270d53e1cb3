/* A function that declares `writes 0`, but writes to every byte of every packet and drops the second packet. */
#include <millrace_nf.h>

static void *make(const millrace_nf_setup *setup, char *reason, size_t size)
{
    (void)reason; (void)size;
    return setup->counters;
}

static void process(void *function, const millrace_nf_context *context, millrace_nf_packet *burst,
                    millrace_nf_verdict *verdicts, size_t len)
{
    uint64_t *counters = function;
    (void)context;
    for (size_t i = 0; i < len; i++) {
        for (uint32_t at = 0; at < burst[i].head_size; at++) burst[i].head[at] = 0x5a;
        if (++counters[0] == 2) verdicts[i].what = MILLRACE_NF_DROP;
    }
}

const millrace_nf_kind millrace_nf = {
    .abi = MILLRACE_NF_ABI, .kind_size = sizeof(millrace_nf_kind), .make = make, .process = process,
    .description = MILLRACE_NF_VERSION "name liar\nabout says that it only reads\ncounter seen\nreads 31\nwrites 0\n",
};

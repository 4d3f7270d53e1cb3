/* A program that loads the module through the packaged libdaq 2, as Snort does, and decides by the bytes of packets. It was written
 * from the documentation of the interface; it is built for a test, where the headers are installed, and never shipped.
 *
 * Arguments: the folder of the module, the socket, and the number of packets. Prints the layout of the interface's structures, the
 * verdicts that the library counted, and what it has injected. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <daq.h>
#include <daq_api.h>

struct user {
    const DAQ_Module_t *module;
    void *handle;
    const uint8_t *answer;
};

static DAQ_Verdict analyse(void *argument, const DAQ_PktHdr_t *header, const uint8_t *data) {
    struct user *user = argument;
    unsigned number = (unsigned)data[44] << 8 | data[45];
    if (header->caplen < 60) return DAQ_VERDICT_BLOCK;
    switch (number / 100) {
    case 7: {
        /* The packet itself goes back, with another sequence number. */
        uint8_t answer[60];
        memcpy(answer, data, sizeof answer);
        answer[44] = 0, answer[45] = 77, answer[34] = (1000 + 9) >> 8, answer[35] = (1000 + 9) & 255;
        if (daq_inject(user->module, user->handle, header, answer, sizeof answer, 1) != DAQ_SUCCESS) abort();
        return DAQ_VERDICT_BLOCK;
    }
    case 2:
        ((uint8_t *)data)[46] = 42;
        return DAQ_VERDICT_REPLACE;
    default:
        return (DAQ_Verdict)(number / 100);
    }
}

#define FIELD(type, field) printf(#type "." #field "=%zu\n", offsetof(type, field))

int main(int count, char **arguments) {
    if (count != 4) return 2;
    printf("api=%u\n", (unsigned)DAQ_API_VERSION);
    printf("DAQ_Module_t=%zu\nDAQ_PktHdr_t=%zu\nDAQ_Config_t=%zu\nDAQ_Stats_t=%zu\n", sizeof(DAQ_Module_t),
           sizeof(DAQ_PktHdr_t), sizeof(DAQ_Config_t), sizeof(DAQ_Stats_t));
    FIELD(DAQ_Module_t, initialize);
    FIELD(DAQ_Module_t, acquire);
    FIELD(DAQ_Module_t, check_status);
    FIELD(DAQ_Module_t, get_errbuf);
    FIELD(DAQ_Module_t, hup_prep);
    FIELD(DAQ_Module_t, dp_add_dc);
    FIELD(DAQ_PktHdr_t, caplen);
    FIELD(DAQ_PktHdr_t, ingress_index);
    FIELD(DAQ_PktHdr_t, priv_ptr);
    FIELD(DAQ_PktHdr_t, address_space_id);
    FIELD(DAQ_Config_t, timeout);
    FIELD(DAQ_Config_t, mode);
    FIELD(DAQ_Config_t, values);
    FIELD(DAQ_Stats_t, verdicts);
    const char *folders[] = {arguments[1], NULL};
    if (daq_load_modules(folders) != DAQ_SUCCESS) return 3;
    struct user user = {daq_find_module("millrace"), NULL, NULL};
    if (!user.module) return 4;
    DAQ_Config_t config;
    memset(&config, 0, sizeof config);
    config.name = arguments[2];
    config.snaplen = 1514;
    config.timeout = 20;
    config.mode = DAQ_MODE_INLINE;
    daq_config_set_value(&config, "shun_seconds", "60");
    char error[256] = "";
    if (daq_initialize(user.module, &config, &user.handle, error, sizeof error) != DAQ_SUCCESS) {
        fprintf(stderr, "%s\n", error);
        return 5;
    }
    if (daq_start(user.module, user.handle) != DAQ_SUCCESS) {
        fprintf(stderr, "%s\n", daq_get_error(user.module, user.handle));
        return 6;
    }
    unsigned long wanted = strtoul(arguments[3], NULL, 10);
    const DAQ_Stats_t *stats;
    DAQ_Stats_t found;
    do {
        if (daq_acquire(user.module, user.handle, 0, analyse, &user) != DAQ_SUCCESS) return 7;
        daq_get_stats(user.module, user.handle, &found);
        stats = &found;
    } while (stats->packets_received < wanted);
    printf("verdicts=%lu,%lu,%lu,%lu,%lu,%lu\ninjected=%lu\n", stats->verdicts[0], stats->verdicts[1], stats->verdicts[2],
           stats->verdicts[3], stats->verdicts[4], stats->verdicts[5], stats->packets_injected);
    daq_stop(user.module, user.handle);
    daq_shutdown(user.module, user.handle);
    return 0;
}

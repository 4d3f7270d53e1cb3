/* Judges a queueing discipline: sends numbered frames into one end of a veth pair, which has it, and captures them at the other end
 * with stamps of the kernel. Prints one line of figures. It shares no code with the emulator.
 *
 * netem_guest INTERFACE CAPTURE FRAMES INTERVAL_US WAIT_MS
 */
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <math.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define ETHER_TYPE 0x88b5
#define SIZE 60

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static int open_on(const char *name) {
    int fd = socket(AF_PACKET, SOCK_RAW, htons(ETHER_TYPE));
    struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_protocol = htons(ETHER_TYPE), .sll_ifindex = if_nametoindex(name)};
    int on = 1, size = 64 << 20;
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address)) {
        perror(name);
        exit(1);
    }
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size);
    return fd;
}

/* Stores the delays of the frames that wait in the socket; returns false if there is none. */
static int receive(int fd, double *delays, int frames, int *last, int *early_numbers) {
    unsigned char frame[256];
    char control[256];
    struct sockaddr_ll from;
    struct iovec part = {frame, sizeof frame};
    struct msghdr message = {&from, sizeof from, &part, 1, control, sizeof control, 0};
    if (recvmsg(fd, &message, MSG_DONTWAIT) < SIZE)
        return 0;
    int64_t sent, number, received = 0;
    memcpy(&number, frame + 14, 8);
    memcpy(&sent, frame + 22, 8);
    for (struct cmsghdr *item = CMSG_FIRSTHDR(&message); item; item = CMSG_NXTHDR(&message, item))
        if (item->cmsg_level == SOL_SOCKET && item->cmsg_type == SCM_TIMESTAMPNS) {
            struct timespec stamp;
            memcpy(&stamp, CMSG_DATA(item), sizeof stamp);
            received = stamp.tv_sec * 1000000000LL + stamp.tv_nsec;
        }
    if (from.sll_pkttype == PACKET_OUTGOING || number < 0 || number >= frames)
        return 1;
    if (delays[number] < 0)
        delays[number] = (double)(received - sent) / 1e6;
    *early_numbers += number < *last;
    *last = number;
    return 1;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    if (argc != 6)
        return 2;
    int frames = atoi(argv[3]), interval = atoi(argv[4]), wait = atoi(argv[5]);
    int out = open_on(argv[1]), in = open_on(argv[2]);
    double *delays = malloc(sizeof *delays * frames);
    int last = -1, reordered = 0;
    for (int number = 0; number < frames; number++)
        delays[number] = -1;
    unsigned char frame[SIZE] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, ETHER_TYPE >> 8, ETHER_TYPE & 0xff};
    int64_t due = now();
    for (int64_t number = 0; number < frames; number++, due += interval * 1000LL) {
        while (now() < due)
            while (receive(in, delays, frames, &last, &reordered))
                ;
        int64_t sent = now();
        memcpy(frame + 14, &number, 8);
        memcpy(frame + 22, &sent, 8);
        send(out, frame, SIZE, 0);
    }
    for (int64_t end = now() + wait * 1000000LL; now() < end;)
        receive(in, delays, frames, &last, &reordered);
    /* Mean, deviation, correlation of neighbours, runs of loss. */
    double sum = 0, squares = 0, products = 0, *sorted = malloc(sizeof *sorted * frames);
    int arrived = 0, pairs = 0, runs = 0;
    for (int number = 0; number < frames; number++)
        if (delays[number] >= 0) {
            sum += delays[number];
            sorted[arrived++] = delays[number];
        } else
            runs += number == 0 || delays[number - 1] >= 0;
    double mean = arrived ? sum / arrived : 0;
    for (int number = 0; number < frames; number++)
        if (delays[number] >= 0) {
            squares += (delays[number] - mean) * (delays[number] - mean);
            if (number && delays[number - 1] >= 0) {
                products += (delays[number] - mean) * (delays[number - 1] - mean);
                pairs++;
            }
        }
    qsort(sorted, arrived, sizeof *sorted, by_size);
    double variance = arrived ? squares / arrived : 0;
    int lost = frames - arrived;
    printf("FIGURES frames=%d lost=%d runs=%d reordered=%d mean=%.4f sd=%.4f correlation=%.4f p1=%.4f p50=%.4f p99=%.4f\n", frames,
           lost, runs, reordered, mean, sqrt(variance), pairs && variance > 0 ? products / pairs / variance : 0,
           arrived ? sorted[arrived / 100] : 0, arrived ? sorted[arrived / 2] : 0, arrived ? sorted[arrived - 1 - arrived / 100] : 0);
    return 0;
}

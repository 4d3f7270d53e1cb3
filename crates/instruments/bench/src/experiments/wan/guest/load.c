/* Sends numbered frames into a system under test, and captures them where they enter and where they leave it, with stamps of the
 * kernel. It shares no code with the emulator. The program is compiled where the guest is built.
 *
 *   guest_load SENDER ENTRY EXIT FRAMES INTERVAL_US WAIT_MS
 *
 *   SENDER ---veth--- ENTRY [system] (its other interface) ---veth--- EXIT
 *
 * Prints a line for each frame, in the order of sending: the stamps at ENTRY and at EXIT in nanoseconds since the first frame was sent.
 * `-` stands for a stamp that is missing.
 */
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define SIZE 60 /* of a frame in bytes: the smallest of Ethernet, without the check sequence */
#define NUMBER 14 /* the offset of the number of a frame */
#define MISSING INT64_MIN /* in place of a stamp */
#define DRAIN_NS 10000000 /* the interval of reads after the last frame */

/* Locally administered addresses, and IEEE Std 802, Local Experimental EtherType 1. */
static const unsigned char HEADER[NUMBER] = "\x02wan\x00\x02\x02wan\x00\x01\x88\xb5";

static void fail(const char *doing) {
    perror(doing);
    exit(1);
}

static int64_t nanos(const struct timespec *time) { return time->tv_sec * 1000000000LL + time->tv_nsec; }

static int64_t now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return nanos(&time);
}

static void sleep_until(int64_t due) {
    struct timespec time = {due / 1000000000, due % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL))
        ;
}

/* Returns a packet socket of an interface. A capture sees all protocols: a bridge takes frames before the taps of one protocol. */
static int open_on(const char *name, int protocol) {
    int fd = socket(AF_PACKET, SOCK_RAW, htons(protocol));
    struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_protocol = htons(protocol), .sll_ifindex = if_nametoindex(name)};
    int on = 1, size = 64 << 20;
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address))
        fail(name);
    if (setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on) || setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size))
        fail("setsockopt");
    return fd;
}

/* Stores the stamps of the frames that a capture holds. Only the first copy of a frame counts. */
static void drain(int fd, int64_t *stamps, int frames) {
    for (;;) {
        unsigned char frame[SIZE];
        char control[256];
        struct sockaddr_ll from;
        struct iovec part = {frame, sizeof frame};
        struct msghdr message = {&from, sizeof from, &part, 1, control, sizeof control, 0};
        ssize_t size = recvmsg(fd, &message, MSG_DONTWAIT);
        if (size < 0)
            return;
        uint32_t number;
        memcpy(&number, frame + NUMBER, sizeof number);
        if (size < SIZE || memcmp(frame, HEADER, NUMBER) || from.sll_pkttype == PACKET_OUTGOING || number >= (uint32_t)frames)
            continue;
        for (struct cmsghdr *item = CMSG_FIRSTHDR(&message); item; item = CMSG_NXTHDR(&message, item))
            if (item->cmsg_level == SOL_SOCKET && item->cmsg_type == SCM_TIMESTAMPNS && stamps[number] == MISSING) {
                struct timespec stamp;
                memcpy(&stamp, CMSG_DATA(item), sizeof stamp);
                stamps[number] = nanos(&stamp);
            }
    }
}

static void print_stamp(int64_t stamp, int64_t first, char end) {
    if (stamp == MISSING)
        printf("-%c", end);
    else
        printf("%lld%c", (long long)(stamp - first), end);
}

int main(int argc, char **argv) {
    if (argc != 7)
        return 2;
    int frames = atoi(argv[4]);
    int64_t interval = atoi(argv[5]) * 1000LL, wait = atoi(argv[6]) * 1000000LL;
    int out = open_on(argv[1], 0), entry = open_on(argv[2], ETH_P_ALL), exit_ = open_on(argv[3], ETH_P_ALL);
    int64_t *entered = malloc(sizeof *entered * frames), *left = malloc(sizeof *left * frames);
    if (!entered || !left)
        fail("malloc");
    for (int number = 0; number < frames; number++)
        entered[number] = left[number] = MISSING;
    unsigned char frame[SIZE] = {0};
    memcpy(frame, HEADER, NUMBER);
    int64_t first = now(CLOCK_REALTIME), due = now(CLOCK_MONOTONIC);
    for (uint32_t number = 0; number < (uint32_t)frames; number++, due += interval) {
        sleep_until(due);
        memcpy(frame + NUMBER, &number, sizeof number);
        if (send(out, frame, SIZE, 0) != SIZE)
            fail("send");
        drain(entry, entered, frames);
        drain(exit_, left, frames);
    }
    for (int64_t end = due + wait; due < end; due += DRAIN_NS) {
        sleep_until(due);
        drain(entry, entered, frames);
        drain(exit_, left, frames);
    }
    for (int number = 0; number < frames; number++) {
        print_stamp(entered[number], first, ' ');
        print_stamp(left[number], first, '\n');
    }
    return 0;
}

/* A program that uses the C library: transfer, cancel, errors. It ends with 0 if all is as millrace.h says. */
#include <millrace.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EXPECT(condition)                                                                                             \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            fprintf(stderr, "%s:%d: %s is wrong; the last error: %s\n", __FILE__, __LINE__, #condition, millrace_error()); \
            return 1;                                                                                                 \
        }                                                                                                             \
    } while (0)

struct seen {
    millrace_transfer *transfer;
    int accepted, done, progress, cancel_at;
};

static int on_event(const millrace_event *event, void *user) {
    struct seen *seen = user;
    seen->accepted += !strcmp(event->event, "accepted");
    seen->done += !strcmp(event->event, "done");
    seen->progress += !strcmp(event->event, "progress");
    if (!strstr(event->json, event->event) || millrace_descriptor(seen->transfer) < 0)
        return 1;
    return seen->cancel_at && seen->progress >= seen->cancel_at;
}

static void *wait_for(void *transfer) {
    return (void *)(intptr_t)millrace_wait(transfer, NULL, NULL);
}

static int transfer(const char *file, uint64_t rate_bps, int cancel_at) {
    /* The size is that of a program that does not know later fields. */
    size_t size = offsetof(millrace_options, name);
    millrace_options options = {.size = size, .identity = "receiver.key", .listen = "127.0.0.1:0"};
    millrace_transfer *receiver = millrace_receive("in", &options);
    EXPECT(receiver);
    struct pollfd fd = {.fd = millrace_descriptor(receiver), .events = POLLIN};
    EXPECT(poll(&fd, 1, 20000) == 1);
    millrace_event event;
    EXPECT(millrace_next(receiver, 0, &event) == 1);
    EXPECT(!strcmp(event.event, "listening") && !strncmp(event.text, "mr1", 3));
    char ticket[600];
    snprintf(ticket, sizeof ticket, "%s", event.text);
    EXPECT(millrace_next(receiver, 0, &event) == 0);

    options.identity = "sender.key";
    options.rate_bps = rate_bps;
    const char *sources[] = {file, NULL}, *targets[] = {ticket, NULL};
    millrace_transfer *sender = millrace_send(sources, targets, &options);
    EXPECT(sender);
    pthread_t thread;
    EXPECT(!pthread_create(&thread, NULL, wait_for, receiver));
    struct seen seen = {.transfer = sender, .cancel_at = cancel_at};
    int status = millrace_wait(sender, on_event, &seen);
    EXPECT(status == (cancel_at ? MILLRACE_RESUMABLE : MILLRACE_DELIVERED));
    EXPECT(seen.accepted == 1 && seen.done == 1);
    if (cancel_at) {
        EXPECT(strstr(millrace_error(), "stopped"));
        millrace_cancel(receiver);
    }
    void *received;
    EXPECT(!pthread_join(thread, &received));
    EXPECT((intptr_t)received == status);
    EXPECT(millrace_next(sender, 0, &event) == -1 && millrace_descriptor(sender) == -1);
    millrace_free(sender);
    millrace_free(receiver);
    return 0;
}

static int stop(void) {
    millrace_options options = {.size = sizeof options, .identity = "receiver.key", .listen = "127.0.0.1:0"};
    millrace_transfer *receiver = millrace_receive("in", &options);
    EXPECT(receiver);
    millrace_cancel(receiver);
    EXPECT(millrace_wait(receiver, NULL, NULL) == MILLRACE_RESUMABLE && strstr(millrace_error(), "before any transfer began"));
    millrace_free(receiver);
    return 0;
}

static int errors(void) {
    const char *sources[] = {"no such file", NULL}, *targets[] = {"mr1abc", NULL}, *none[] = {NULL};
    EXPECT(!millrace_send(sources, targets, NULL) && strstr(millrace_error(), "no such file"));
    EXPECT(!millrace_send(none, targets, NULL) && strstr(millrace_error(), "one source"));
    EXPECT(!millrace_send(NULL, targets, NULL) && strstr(millrace_error(), "NULL"));
    sources[0] = "file";
    EXPECT(!millrace_send(sources, targets, NULL) && strstr(millrace_error(), "ticket"));
    millrace_options options = {.size = 4};
    EXPECT(!millrace_receive("in", &options) && strstr(millrace_error(), "sizeof"));
    options = (millrace_options){.size = sizeof options, .listen = "nowhere", .identity = "receiver.key"};
    EXPECT(!millrace_receive("in", &options) && strstr(millrace_error(), "IP:PORT"));
    EXPECT(!millrace_receive("missing", NULL) && strstr(millrace_error(), "create it first"));
    EXPECT(!millrace_fetch("https://x/", "in", NULL) && strstr(millrace_error(), "millrace://"));
    EXPECT(millrace_wait(NULL, NULL, NULL) == MILLRACE_FAILED && strstr(millrace_error(), "NULL"));
    millrace_cancel(NULL);
    millrace_free(NULL);
    char key[53];
    EXPECT(!millrace_key(&options, key) && strlen(key) == 52);
    return 0;
}

int main(int count, char **words) {
    /* A call that never returns fails the test. */
    alarm(300);
    EXPECT(count == 2);
    if (!strcmp(words[1], "transfer"))
        return transfer("file", 0, 0);
    if (!strcmp(words[1], "cancel"))
        return transfer("large", 8000000, 1);
    if (!strcmp(words[1], "stop"))
        return stop();
    return errors();
}

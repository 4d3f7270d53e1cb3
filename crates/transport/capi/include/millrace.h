/* Transfers of files to one or more receivers: the C interface of Millrace.
 *
 * A transfer runs in threads of its own. Its events are read one by one (millrace_next, millrace_descriptor) or passed to a
 * function (millrace_wait). All texts are UTF-8. Functions may be called from any thread; a transfer's events belong to the thread
 * that reads them.
 *
 *     const char *sources[] = {"data/", NULL}, *targets[] = {"millrace://site-a/in/", NULL};
 *     millrace_transfer *transfer = millrace_send(sources, targets, NULL);
 *     if (!transfer || millrace_wait(transfer, NULL, NULL) != MILLRACE_DELIVERED)
 *         fprintf(stderr, "%s\n", millrace_error());
 *     millrace_free(transfer);
 */
#ifndef MILLRACE_H
#define MILLRACE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How a transfer ended, as the exit status of `millrace send`. */
enum millrace_status {
    MILLRACE_DELIVERED = 0,   /* all receivers have everything, verified and in place */
    MILLRACE_FAILED = 1,      /* the transfer failed for all receivers */
    MILLRACE_PARTIAL = 3,     /* some receivers have everything */
    MILLRACE_REFUSED = 4,     /* the receiver refused the transfer */
    MILLRACE_INTEGRITY = 5,   /* a file changed while it was sent, or a receipt is wrong */
    MILLRACE_RESUMABLE = 6    /* interrupted; the same call resumes it */
};

enum millrace_flags {
    MILLRACE_DELTA = 1,            /* existing files are read, and only differences are sent */
    MILLRACE_ALL_AT_ONCE = 2,      /* no file gets its name before all are verified */
    MILLRACE_KEEP_EXISTING = 4,    /* receive: a transfer that would replace a file is refused */
    MILLRACE_MODES_AND_TIMES = 8,  /* receive: permission bits and modification times are those of the source */
    MILLRACE_STOP_ON_CHANGE = 16 /* send: a file that changes while it is sent ends the transfer, as it does with MILLRACE_ALL_AT_ONCE; otherwise it is left out, and the status is 5 */
};

/* Options; zero or NULL stands for the default. Set `size` to sizeof(millrace_options): later versions add fields at the end. */
typedef struct millrace_options {
    size_t size;
    const char *identity;   /* file of this user's key [~/.config/millrace/identity]; created if it does not exist */
    const char *listen;     /* receive: address and UDP port [0.0.0.0:7800] */
    uint64_t rate_bps;      /* send: limit for all receivers together, in bits a second [no limit] */
    uint64_t silence_ms;    /* silence after which a peer counts as lost [20000] */
    uint64_t patience_ms;   /* the time that a lost peer has to come back [600000] */
    uint32_t flags;         /* millrace_flags */
    const char *name;       /* send: the name that the one source gets at the receivers [its own] */
} millrace_options;

/* An event. Its texts last until the next call for the same transfer. */
typedef struct millrace_event {
    const char *event;       /* listening, accepted, progress, stalled, heavy_loss, lost, file, done */
    const char *peer;        /* the receiver or sender; "" if the event has none */
    const char *text;        /* the ticket, the reason or the limit; "" if the event has none */
    uint64_t verified_bytes;
    uint64_t bytes;
    uint64_t rate_bps;
    double rtt_ms;
    double loss;             /* share of packets, 0 to 1 */
    const char *json;        /* the whole event, as `millrace --json` prints it */
} millrace_event;

/* An entry of a directory. Its name lasts until the function that got it returns. */
typedef struct millrace_entry {
    const char *name;
    const char *type;        /* file, directory, symlink */
    uint64_t size;
    uint64_t modified;       /* seconds since 1970 */
} millrace_entry;

typedef struct millrace_transfer millrace_transfer;

/* Is called with each event; a value other than 0 cancels the transfer. */
typedef int (*millrace_on_event)(const millrace_event *event, void *user);
/* Is called with each entry; a value other than 0 ends the listing. */
typedef int (*millrace_on_entry)(const millrace_entry *entry, void *user);

/* Returns the text of this thread's last error: what failed, what was expected, the next step. */
const char *millrace_error(void);

/* Sends files and directories. `sources`, `targets`: texts that NULL ends, as words of `millrace send`; a target is a ticket, a
 * path of a daemon (millrace://HOST/GRANT/PATH), or KEY@HOST:PORT. Returns NULL on failure. */
millrace_transfer *millrace_send(const char *const *sources, const char *const *targets, const millrace_options *options);

/* Receives from one sender into a directory; the first event, listening, has the ticket as its text. NULL on failure. */
millrace_transfer *millrace_receive(const char *directory, const millrace_options *options);

/* Fetches a file or directory of a daemon into a directory; a trailing slash selects the contents of a directory. Returns NULL
 * on failure. */
millrace_transfer *millrace_fetch(const char *url, const char *directory, const millrace_options *options);

/* Gets the next event, and waits for it for at most `timeout_ms` milliseconds (-1: without a limit). Returns 1 for an event, 0 if
 * there was none in time, -1 if the transfer has ended. */
int millrace_next(millrace_transfer *transfer, int timeout_ms, millrace_event *event);

/* Returns a descriptor that is readable while events wait, and after the end; it closes with the transfer. -1 after the end. */
int millrace_descriptor(millrace_transfer *transfer);

/* Passes all events to a function, which may be NULL, and waits for the end. Returns a millrace_status; if it
 * is not MILLRACE_DELIVERED, millrace_error has the reason. The function must not call millrace_next or millrace_wait. */
int millrace_wait(millrace_transfer *transfer, millrace_on_event on_event, void *user);

/* Ends a transfer. Received data are kept, and the same call resumes the transfer. */
void millrace_cancel(millrace_transfer *transfer);

/* Ends a transfer if it has not ended, and frees it. NULL is ignored. No other call for it may run. */
void millrace_free(millrace_transfer *transfer);

/* Passes the entries of a directory of a daemon to a function; those of millrace://HOST/ are this user's grants. Returns 0, or -1
 * on failure. */
int millrace_list(const char *url, const millrace_options *options, millrace_on_entry on_entry, void *user);

/* Writes this user's key, 52 characters and a NUL, to `key`. Returns 0, or -1 on failure. */
int millrace_key(const millrace_options *options, char key[53]);

#ifdef __cplusplus
}
#endif
#endif

/*
 * A client of NETCONF on CESNET's libnetconf2, as the third one beside ncclient and sessions by hand.
 *
 * usage: netconf_client SOCKET FOLDER-OF-MODULES < commands
 *
 * A command is a line of fields between tabs; an answer is the reply as XML, and a line with a dot. The library checks what it sends
 * and what it gets by the modules of the server, so data that is not valid is an error.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libyang/libyang.h>
#include <nc_client.h>

static const int ANSWER_MS = 60000;

/* The fields of a command. */
#define FIELDS 5

static NC_RPC_EDIT_DFLTOP
default_operation(const char *word)
{
    if (word && !strcmp(word, "replace")) {
        return NC_RPC_EDIT_DFLTOP_REPLACE;
    }
    return word && !strcmp(word, "none") ? NC_RPC_EDIT_DFLTOP_NONE : NC_RPC_EDIT_DFLTOP_MERGE;
}

static NC_RPC_EDIT_TESTOPT
test_option(const char *word)
{
    if (word && !strcmp(word, "test-only")) {
        return NC_RPC_EDIT_TESTOPT_TEST;
    }
    return word && !strcmp(word, "set") ? NC_RPC_EDIT_TESTOPT_SET : NC_RPC_EDIT_TESTOPT_UNKNOWN;
}

static NC_RPC_EDIT_ERROPT
error_option(const char *word)
{
    if (word && !strcmp(word, "continue-on-error")) {
        return NC_RPC_EDIT_ERROPT_CONTINUE;
    }
    return word && !strcmp(word, "rollback-on-error") ? NC_RPC_EDIT_ERROPT_ROLLBACK : NC_RPC_EDIT_ERROPT_UNKNOWN;
}

static struct nc_rpc *
request(char *const *field, int fields)
{
    const char *name = field[0];
    const char *first = fields > 1 && field[1][0] ? field[1] : NULL;
    const char *second = fields > 2 && field[2][0] ? field[2] : NULL;
    const char *third = fields > 3 && field[3][0] ? field[3] : NULL;
    const char *fourth = fields > 4 && field[4][0] ? field[4] : NULL;

    if (!strcmp(name, "get")) {
        return nc_rpc_get(first, NC_WD_UNKNOWN, NC_PARAMTYPE_CONST);
    } else if (!strcmp(name, "get-config")) {
        return nc_rpc_getconfig(NC_DATASTORE_RUNNING, first, NC_WD_UNKNOWN, NC_PARAMTYPE_CONST);
    } else if (!strcmp(name, "get-candidate")) {
        return nc_rpc_getconfig(NC_DATASTORE_CANDIDATE, first, NC_WD_UNKNOWN, NC_PARAMTYPE_CONST);
    } else if (!strcmp(name, "get-all")) {
        return nc_rpc_getconfig(NC_DATASTORE_RUNNING, first, NC_WD_ALL, NC_PARAMTYPE_CONST);
    } else if (!strcmp(name, "edit")) {
        return nc_rpc_edit(NC_DATASTORE_CANDIDATE, NC_RPC_EDIT_DFLTOP_MERGE, NC_RPC_EDIT_TESTOPT_UNKNOWN,
                           NC_RPC_EDIT_ERROPT_ROLLBACK, first, NC_PARAMTYPE_CONST);
    } else if (!strcmp(name, "edit-by")) {
        /* The options of the operation: default-operation, test-option, error-option. */
        return nc_rpc_edit(NC_DATASTORE_CANDIDATE, default_operation(second), test_option(third), error_option(fourth), first,
                           NC_PARAMTYPE_CONST);
    } else if (!strcmp(name, "copy-config")) {
        return nc_rpc_copy(NC_DATASTORE_CANDIDATE, NULL, NC_DATASTORE_CONFIG, first, NC_WD_UNKNOWN, NC_PARAMTYPE_CONST);
    } else if (!strcmp(name, "validate-config")) {
        return nc_rpc_validate(NC_DATASTORE_CONFIG, first, NC_PARAMTYPE_CONST);
    } else if (!strcmp(name, "copy")) {
        return nc_rpc_copy(NC_DATASTORE_CANDIDATE, NULL, NC_DATASTORE_RUNNING, NULL, NC_WD_UNKNOWN, NC_PARAMTYPE_CONST);
    } else if (!strcmp(name, "validate")) {
        return nc_rpc_validate(NC_DATASTORE_CANDIDATE, NULL, NC_PARAMTYPE_CONST);
    } else if (!strcmp(name, "lock")) {
        return nc_rpc_lock(NC_DATASTORE_CANDIDATE);
    } else if (!strcmp(name, "unlock")) {
        return nc_rpc_unlock(NC_DATASTORE_CANDIDATE);
    } else if (!strcmp(name, "lock-running")) {
        return nc_rpc_lock(NC_DATASTORE_RUNNING);
    } else if (!strcmp(name, "unlock-running")) {
        return nc_rpc_unlock(NC_DATASTORE_RUNNING);
    } else if (!strcmp(name, "discard")) {
        return nc_rpc_discard();
    } else if (!strcmp(name, "commit")) {
        return nc_rpc_commit(first != NULL, first ? strtoul(first, NULL, 10) : 0, second, third, NC_PARAMTYPE_CONST);
    } else if (!strcmp(name, "cancel")) {
        return nc_rpc_cancel(first, NC_PARAMTYPE_CONST);
    } else if (!strcmp(name, "kill")) {
        return nc_rpc_kill(first ? strtoul(first, NULL, 10) : 0);
    } else if (!strcmp(name, "schema")) {
        return nc_rpc_getschema(first, NULL, NULL, NC_PARAMTYPE_CONST);
    } else if (!strcmp(name, "subscribe")) {
        return nc_rpc_subscribe(NULL, first, NULL, NULL, NC_PARAMTYPE_CONST);
    }
    return NULL;
}

static void
print(const struct lyd_node *tree)
{
    char *text = NULL;

    lyd_print_mem(&text, tree, LYD_XML, LYD_PRINT_WITHSIBLINGS);
    if (text) {
        fputs(text, stdout);
    }
    free(text);
}

/* Prints the next notification. */
static void
notification(struct nc_session *session)
{
    struct lyd_node *envelope = NULL, *event = NULL;

    if (nc_recv_notif(session, ANSWER_MS, &envelope, &event) == NC_MSG_NOTIF) {
        print(envelope);
        print(event);
    } else {
        puts("no notification");
    }
    lyd_free_all(envelope);
    lyd_free_all(event);
}

static void
answer(struct nc_session *session, char *const *field, int fields)
{
    struct nc_rpc *rpc = request(field, fields);
    struct lyd_node *envelope = NULL, *data = NULL;
    uint64_t id = 0;

    if (!rpc || nc_send_rpc(session, rpc, ANSWER_MS, &id) != NC_MSG_RPC) {
        printf("not sent: %s\n", field[0]);
    } else {
        NC_MSG_TYPE kind;

        /* A notification may come before the reply. */
        do {
            kind = nc_recv_reply(session, rpc, id, ANSWER_MS, &envelope, &data);
        } while (kind == NC_MSG_NOTIF);
        if (kind == NC_MSG_REPLY) {
            print(data ? data : envelope);
        } else {
            puts("no reply, or one that the modules do not allow");
        }
    }
    lyd_free_all(envelope);
    lyd_free_all(data);
    nc_rpc_free(rpc);
}

int
main(int argc, char **argv)
{
    struct nc_session *session;
    char *line = NULL;
    size_t size = 0;
    ssize_t length;

    if (argc != 3) {
        fprintf(stderr, "usage: %s SOCKET FOLDER-OF-MODULES\n", argv[0]);
        return 2;
    }
    nc_client_init();
    nc_client_set_schema_searchpath(argv[2]);
    session = nc_connect_unix(argv[1], NULL);
    if (!session) {
        fprintf(stderr, "%s: no session\n", argv[1]);
        return 1;
    }
    for (const char *const *capability = nc_session_get_cpblts(session); *capability; capability++) {
        puts(*capability);
    }
    printf("session %u\n.\n", nc_session_get_id(session));
    fflush(stdout);
    while ((length = getline(&line, &size, stdin)) > 0) {
        char *field[FIELDS] = {line, "", "", "", ""};
        int fields = 1;

        line[length - 1] = 0;
        for (char *at = line; (at = strchr(at, '\t')) && fields < FIELDS;) {
            *at++ = 0;
            field[fields++] = at;
        }
        if (!strcmp(field[0], "notification")) {
            notification(session);
        } else {
            answer(session, field, fields);
        }
        puts("\n.");
        fflush(stdout);
    }
    free(line);
    nc_session_free(session, NULL);
    nc_client_destroy();
    return 0;
}

// A file by NORM (RFC 5740) with the library of the Naval Research Laboratory, for `millrace bench transport`: multicast, repair
// by Reed-Solomon segments on NACKs, and the end by positive acknowledgement of every receiver.
#include <cstdio>
#include <cstring>

#include <normApi.h>

#include "common.hpp"

namespace {

const char *const GROUP = "224.1.2.3";
const UINT16 PORT = 6003;
const NormNodeId SENDER = 1000;
const UINT32 BUFFER = 128 << 20;
const unsigned SOCKET_BUFFER = 8 << 20;
// A payload of 1,400 bytes leaves room for NORM's headers in a frame of 1,500 bytes.
const UINT16 SEGMENT = 1400;
const UINT16 BLOCK = 128;
const UINT16 PARITY = 32;

struct Session {
    NormInstanceHandle instance;
    NormSessionHandle session;
};

Session open_session(NormNodeId node) {
    const NormInstanceHandle instance = NormCreateInstance();
    if (instance == NORM_INSTANCE_INVALID) peers::fail("NormCreateInstance failed");
    const NormSessionHandle session = NormCreateSession(instance, GROUP, PORT, node);
    if (session == NORM_SESSION_INVALID) peers::fail("NormCreateSession failed");
    NormSetMulticastInterface(session, "eth0");
    return {instance, session};
}

void receive_file(const peers::Receive &options) {
    const Session s = open_session(options.node);
    const std::string directory = options.directory + "/";
    if (!NormSetCacheDirectory(s.instance, directory.c_str())) peers::fail("NormSetCacheDirectory failed");
    if (!NormStartReceiver(s.session, BUFFER)) peers::fail("NormStartReceiver failed");
    NormSetRxSocketBuffer(s.session, SOCKET_BUFFER);
    bool complete = false;
    NormEvent event;
    while (NormGetNextEvent(s.instance, &event)) {
        switch (event.type) {
        case NORM_RX_OBJECT_INFO:
        case NORM_RX_OBJECT_UPDATED:
            break;
        case NORM_RX_OBJECT_ABORTED:
            peers::fail("the object was aborted");
        case NORM_RX_OBJECT_COMPLETED: {
            const std::string target = options.directory + "/source";
            if (!NormFileRename(event.object, target.c_str())) peers::fail("NormFileRename failed");
            // The receiver stays, so that the sender gets its acknowledgement; the sender's program ends it.
            complete = true;
            break;
        }
        case NORM_REMOTE_SENDER_INACTIVE:
            if (complete) return;
            break;
        default:
            break;
        }
    }
}

void send_file(const peers::Send &options) {
    const Session s = open_session(SENDER);
    const bool has_rate = options.rate_bps > 0;
    for (unsigned node = 1; node <= options.receivers; node++) NormAddAckingNode(s.session, node);
    NormSetGroupSize(s.session, options.receivers);
    NormSetBackoffFactor(s.session, 1.0);
    NormSetGrttEstimate(s.session, 0.01);
    NormSetFlowControl(s.session, 0.0);
    NormSetCongestionControl(s.session, !has_rate);
    NormSetTxRate(s.session, has_rate ? options.rate_bps : 1e6);
    if (!NormStartSender(s.session, NormGetRandomSessionId(), BUFFER, SEGMENT, BLOCK, PARITY))
        peers::fail("NormStartSender failed");
    NormSetTxSocketBuffer(s.session, SOCKET_BUFFER);
    const peers::Clock clock;
    const NormObjectHandle object = NormFileEnqueue(s.session, options.file.c_str(), "source", 6);
    if (object == NORM_OBJECT_INVALID) peers::fail("NormFileEnqueue failed");
    NormSetWatermark(s.session, object);
    NormEvent event;
    while (NormGetNextEvent(s.instance, &event)) {
        if (event.type != NORM_TX_WATERMARK_COMPLETED) continue;
        if (NormGetAckingStatus(s.session) == NORM_ACK_SUCCESS) {
            peers::print_seconds(clock);
            return;
        }
        // A receiver has not answered yet: NORM asks NORM_ROBUST_FACTOR times, and then once more from here.
        NormResetWatermark(s.session);
    }
}

} // namespace

int main(int argc, char **argv) { return peers::run(argc, argv, receive_file, send_file); }

// A file by PGM (RFC 3208) with OpenPGM, for `millrace bench transport`: multicast in UDP, repair on NACKs, a fixed rate. PGM does
// not tell the sender who has everything, so each receiver says so in a UDP datagram of its own.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include <pgm/pgm.h>

#include "common.hpp"

namespace {

const char *const GROUP = "239.192.0.1";
const int PORT = 7500;
const uint16_t DONE_PORT = 7501;
const int TPDU = 1500;
// The transmit window holds the packets of one second at 1 Gbit/s, for repairs.
const int WINDOW_SQNS = 100000;
const int SOCKET_BUFFER = 8 << 20;

void check(bool ok, const char *call, pgm_error_t *const *error = nullptr) {
    if (!ok) peers::fail(std::string(call) + " failed" + (error && *error ? std::string(": ") + (*error)->message : ""));
}

void set(pgm_sock_t *sock, int option, int value) {
    check(pgm_setsockopt(sock, IPPROTO_PGM, option, &value, sizeof value), "pgm_setsockopt");
}

// Returns the IPv4 address of eth0: OpenPGM resolves the host's name if it is given an interface by name.
std::string own_address() {
    ifaddrs *list = nullptr;
    if (getifaddrs(&list) != 0) peers::fail("getifaddrs failed");
    std::string found;
    for (const ifaddrs *each = list; each; each = each->ifa_next) {
        if (!each->ifa_addr || each->ifa_addr->sa_family != AF_INET || std::strcmp(each->ifa_name, "eth0") != 0) continue;
        char text[INET_ADDRSTRLEN];
        inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in *>(each->ifa_addr)->sin_addr, text, sizeof text);
        found = text;
    }
    freeifaddrs(list);
    if (found.empty()) peers::fail("eth0 has no IPv4 address");
    return found;
}

pgm_sock_t *open_socket(bool sends, double rate_bps) {
    pgm_error_t *error = nullptr;
    check(pgm_init(&error), "pgm_init", &error);
    pgm_addrinfo_t *info = nullptr;
    const std::string own = own_address();
    check(pgm_getaddrinfo((own + ";" + GROUP).c_str(), nullptr, &info, &error), "pgm_getaddrinfo", &error);
    pgm_sock_t *sock = nullptr;
    check(pgm_socket(&sock, AF_INET, SOCK_SEQPACKET, IPPROTO_UDP, &error), "pgm_socket", &error);
    set(sock, PGM_UDP_ENCAP_UCAST_PORT, PORT);
    set(sock, PGM_UDP_ENCAP_MCAST_PORT, PORT);
    check(pgm_setsockopt(sock, SOL_SOCKET, SO_RCVBUF, &SOCKET_BUFFER, sizeof SOCKET_BUFFER), "SO_RCVBUF");
    check(pgm_setsockopt(sock, SOL_SOCKET, SO_SNDBUF, &SOCKET_BUFFER, sizeof SOCKET_BUFFER), "SO_SNDBUF");
    set(sock, PGM_MTU, TPDU);
    if (sends) {
        set(sock, PGM_SEND_ONLY, 1);
        set(sock, PGM_AMBIENT_SPM, pgm_secs(1));
        const int heartbeats[] = {pgm_msecs(10), pgm_msecs(100), pgm_msecs(100), pgm_msecs(400), pgm_msecs(1000)};
        check(pgm_setsockopt(sock, IPPROTO_PGM, PGM_HEARTBEAT_SPM, heartbeats, sizeof heartbeats), "PGM_HEARTBEAT_SPM");
        set(sock, PGM_TXW_SQNS, WINDOW_SQNS);
        set(sock, PGM_TXW_MAX_RTE, static_cast<int>(rate_bps / 8));
    } else {
        set(sock, PGM_RECV_ONLY, 1);
        set(sock, PGM_PASSIVE, 0);
        set(sock, PGM_RXW_SQNS, WINDOW_SQNS);
        set(sock, PGM_PEER_EXPIRY, pgm_secs(300));
        set(sock, PGM_SPMR_EXPIRY, pgm_msecs(250));
        set(sock, PGM_NAK_BO_IVL, pgm_msecs(20));
        set(sock, PGM_NAK_RPT_IVL, pgm_msecs(400));
        set(sock, PGM_NAK_RDATA_IVL, pgm_msecs(400));
        set(sock, PGM_NAK_DATA_RETRIES, 50);
        set(sock, PGM_NAK_NCF_RETRIES, 50);
    }
    pgm_sockaddr_t address{};
    address.sa_port = PORT;
    address.sa_addr.sport = DEFAULT_DATA_SOURCE_PORT;
    check(pgm_gsi_create_from_string(&address.sa_addr.gsi, own.c_str(), -1), "pgm_gsi_create_from_string");
    pgm_interface_req_t interface{};
    interface.ir_interface = info->ai_recv_addrs[0].gsr_interface;
    check(pgm_bind3(sock, &address, sizeof address, &interface, sizeof interface, &interface, sizeof interface, &error), "pgm_bind3", &error);
    for (unsigned index = 0; index < info->ai_recv_addrs_len; index++)
        check(pgm_setsockopt(sock, IPPROTO_PGM, PGM_JOIN_GROUP, &info->ai_recv_addrs[index], sizeof(struct group_req)), "PGM_JOIN_GROUP");
    check(pgm_setsockopt(sock, IPPROTO_PGM, PGM_SEND_GROUP, &info->ai_send_addrs[0], sizeof(struct group_req)), "PGM_SEND_GROUP");
    pgm_freeaddrinfo(info);
    set(sock, PGM_NOBLOCK, 1);
    set(sock, PGM_MULTICAST_LOOP, 0);
    check(pgm_connect(sock, &error), "pgm_connect", &error);
    return sock;
}

// Waits until the socket is ready, or its timer `option` (PGM_TIME_REMAIN, PGM_RATE_REMAIN) has run down.
void wait(pgm_sock_t *sock, int status, short events) {
    timeval left{1, 0};
    socklen_t length = sizeof left;
    if (status == PGM_IO_STATUS_RATE_LIMITED) {
        pgm_getsockopt(sock, IPPROTO_PGM, PGM_RATE_REMAIN, &left, &length);
        events = 0;
    } else if (status == PGM_IO_STATUS_TIMER_PENDING) {
        pgm_getsockopt(sock, IPPROTO_PGM, PGM_TIME_REMAIN, &left, &length);
    }
    const int timeout_ms = static_cast<int>(left.tv_sec * 1000 + (left.tv_usec + 999) / 1000);
    pollfd fds[8];
    int count = 8;
    if (pgm_poll_info(sock, fds, &count, events ? events : POLLIN) >= 0) poll(fds, events ? count : 0, timeout_ms > 1000 ? 1000 : timeout_ms);
}

void receive_file(const peers::Receive &options) {
    pgm_sock_t *sock = open_socket(false, 0);
    std::vector<char> buffer(1 << 16);
    FILE *file = std::fopen((options.directory + "/source").c_str(), "wb");
    if (!file) peers::fail("cannot write to " + options.directory);
    uint64_t size = 0, received = 0;
    bool has_size = false;
    pgm_sockaddr_t source{};
    while (!has_size || received < size) {
        size_t bytes = 0;
        socklen_t length = sizeof source;
        pgm_error_t *error = nullptr;
        const int status = pgm_recvfrom(sock, buffer.data(), buffer.size(), 0, &bytes, &source, &length, &error);
        if (status == PGM_IO_STATUS_NORMAL) {
            if (!has_size) {
                if (bytes != sizeof size) peers::fail("the first message is not the size");
                std::memcpy(&size, buffer.data(), sizeof size);
                has_size = true;
            } else {
                if (std::fwrite(buffer.data(), 1, bytes, file) != bytes) peers::fail("cannot write");
                received += bytes;
            }
        } else if (status == PGM_IO_STATUS_RESET) {
            peers::fail("unrecoverable loss");
        } else if (status == PGM_IO_STATUS_ERROR) {
            peers::fail(error ? error->message : "pgm_recvfrom failed");
        } else {
            wait(sock, status, POLLIN);
        }
    }
    std::fclose(file);
    // 10.0.0.100 is the sender of the test bed. The datagram may be lost: it goes out until the bench ends this program.
    const int udp = socket(AF_INET, SOCK_DGRAM, 0);
    sockaddr_in target{};
    target.sin_family = AF_INET;
    target.sin_port = htons(DONE_PORT);
    inet_pton(AF_INET, "10.0.0.100", &target.sin_addr);
    const uint32_t node = options.node;
    for (;;) {
        sendto(udp, &node, sizeof node, 0, reinterpret_cast<sockaddr *>(&target), sizeof target);
        usleep(20000);
    }
}

void send_file(const peers::Send &options) {
    FILE *file = std::fopen(options.file.c_str(), "rb");
    if (!file) peers::fail("cannot read " + options.file);
    std::fseek(file, 0, SEEK_END);
    const uint64_t size = static_cast<uint64_t>(std::ftell(file));
    std::rewind(file);
    const int done = socket(AF_INET, SOCK_DGRAM, 0);
    sockaddr_in local{};
    local.sin_family = AF_INET;
    local.sin_port = htons(DONE_PORT);
    if (bind(done, reinterpret_cast<sockaddr *>(&local), sizeof local) != 0) peers::fail("cannot bind");
    pgm_sock_t *sock = open_socket(true, options.rate_bps > 0 ? options.rate_bps : 1e9);
    const peers::Clock clock;
    std::vector<bool> has(options.receivers + 1, false);
    unsigned count = 0;
    const auto hear = [&] {
        uint32_t node = 0;
        while (recv(done, &node, sizeof node, MSG_DONTWAIT) == sizeof node)
            if (node >= 1 && node <= options.receivers && !has[node]) {
                has[node] = true;
                count++;
            }
    };
    // NACKs arrive at the sender's socket and are answered within pgm_recv.
    std::vector<char> ignored(1 << 16);
    const auto answer = [&] {
        size_t bytes = 0;
        pgm_error_t *error = nullptr;
        return pgm_recv(sock, ignored.data(), ignored.size(), MSG_DONTWAIT, &bytes, &error);
    };
    const auto message = [&](const void *data, size_t bytes) {
        for (;;) {
            answer();
            const int status = pgm_send(sock, data, bytes, nullptr);
            if (status == PGM_IO_STATUS_NORMAL) return;
            if (status == PGM_IO_STATUS_ERROR) peers::fail("pgm_send failed");
            wait(sock, status, POLLOUT);
        }
    };
    message(&size, sizeof size);
    int payload = 0;
    socklen_t length = sizeof payload;
    check(pgm_getsockopt(sock, IPPROTO_PGM, PGM_MSS, &payload, &length), "PGM_MSS");
    std::vector<char> buffer(static_cast<size_t>(payload));
    for (;;) {
        const size_t bytes = std::fread(buffer.data(), 1, buffer.size(), file);
        if (bytes == 0) break;
        message(buffer.data(), bytes);
        hear();
    }
    while (count < options.receivers) {
        const int status = answer();
        hear();
        if (status != PGM_IO_STATUS_NORMAL) {
            pollfd ready{done, POLLIN, 0};
            poll(&ready, 1, 1);
        }
    }
    peers::print_seconds(clock);
}

} // namespace

int main(int argc, char **argv) { return peers::run(argc, argv, receive_file, send_file); }

// A file by UDT 4 (draft-gg-udt-03), for `millrace bench transport`: its own congestion control, one connection.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/stat.h>

#include <cstring>
#include <fstream>

#include <udt/udt.h>

#include "common.hpp"

namespace {

const uint16_t PORT = 9100;
const int WINDOW_PACKETS = 100000;
const int BUFFER = 128 << 20;
const int SOCKET_BUFFER = 8 << 20;

UDTSOCKET open_socket() {
    UDT::startup();
    const UDTSOCKET socket = UDT::socket(AF_INET, SOCK_STREAM, 0);
    UDT::setsockopt(socket, 0, UDT_FC, &WINDOW_PACKETS, sizeof WINDOW_PACKETS);
    UDT::setsockopt(socket, 0, UDT_SNDBUF, &BUFFER, sizeof BUFFER);
    UDT::setsockopt(socket, 0, UDT_RCVBUF, &BUFFER, sizeof BUFFER);
    UDT::setsockopt(socket, 0, UDP_SNDBUF, &SOCKET_BUFFER, sizeof SOCKET_BUFFER);
    UDT::setsockopt(socket, 0, UDP_RCVBUF, &SOCKET_BUFFER, sizeof SOCKET_BUFFER);
    return socket;
}

sockaddr_in address_of(const char *text) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(PORT);
    if (inet_pton(AF_INET, text, &address.sin_addr) != 1) peers::fail(std::string("not an IPv4 address: ") + text);
    return address;
}

[[noreturn]] void fail_udt(const char *call) { peers::fail(std::string(call) + ": " + UDT::getlasterror().getErrorMessage()); }

void receive_file(const peers::Receive &options) {
    const UDTSOCKET listener = open_socket();
    const sockaddr_in address = address_of("0.0.0.0");
    if (UDT::bind(listener, reinterpret_cast<const sockaddr *>(&address), sizeof address) == UDT::ERROR) fail_udt("bind");
    if (UDT::listen(listener, 1) == UDT::ERROR) fail_udt("listen");
    sockaddr_in peer{};
    int length = sizeof peer;
    const UDTSOCKET socket = UDT::accept(listener, reinterpret_cast<sockaddr *>(&peer), &length);
    if (socket == UDT::INVALID_SOCK) fail_udt("accept");
    int64_t size = 0;
    if (UDT::recv(socket, reinterpret_cast<char *>(&size), sizeof size, 0) != sizeof size) fail_udt("recv");
    std::fstream file(options.directory + "/source", std::ios::out | std::ios::binary | std::ios::trunc);
    int64_t offset = 0;
    if (UDT::recvfile(socket, file, offset, size) != size) fail_udt("recvfile");
    file.close();
    const char done = 1;
    if (UDT::send(socket, &done, 1, 0) != 1) fail_udt("send");
    // The sender closes when it has the last byte.
    char rest = 0;
    UDT::recv(socket, &rest, 1, 0);
    UDT::cleanup();
}

void send_file(const peers::Send &options) {
    struct stat status {};
    if (stat(options.file.c_str(), &status) != 0) peers::fail("cannot read " + options.file);
    const UDTSOCKET socket = open_socket();
    const sockaddr_in address = address_of(options.address.c_str());
    const peers::Clock clock;
    if (UDT::connect(socket, reinterpret_cast<const sockaddr *>(&address), sizeof address) == UDT::ERROR) fail_udt("connect");
    const int64_t size = status.st_size;
    if (UDT::send(socket, reinterpret_cast<const char *>(&size), sizeof size, 0) != sizeof size) fail_udt("send");
    std::fstream file(options.file, std::ios::in | std::ios::binary);
    int64_t offset = 0;
    if (UDT::sendfile(socket, file, offset, size) != size) fail_udt("sendfile");
    char done = 0;
    if (UDT::recv(socket, &done, 1, 0) != 1) fail_udt("recv");
    peers::print_seconds(clock);
    UDT::close(socket);
    UDT::cleanup();
}

} // namespace

int main(int argc, char **argv) { return peers::run(argc, argv, receive_file, send_file); }

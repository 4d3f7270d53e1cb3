// Parts that the programs of this directory share: their command line, clock, and end.
//
//   NAME receive DIRECTORY NODE            receives one file as DIRECTORY/source, and ends; NODE is 1, 2, … of each receiver
//   NAME send FILE RATE RECEIVERS ADDRESS  sends FILE; RATE in bit/s, 0 for the program's own congestion control
//
// A sender prints one line of JSON, {"seconds": S}: the time from its first packet until every receiver has written the file.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace peers {

struct Receive {
    std::string directory;
    unsigned node;
};

struct Send {
    std::string file;
    double rate_bps;
    unsigned receivers;
    std::string address;
};

[[noreturn]] inline void fail(const std::string &reason) {
    std::fprintf(stderr, "%s\n", reason.c_str());
    std::exit(1);
}

class Clock {
public:
    double seconds() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    }

private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

inline void print_seconds(const Clock &clock) { std::printf("{\"seconds\": %.6f}\n", clock.seconds()); }

// Calls `receive` or `send` with the arguments of the command line.
template <typename R, typename S> int run(int argc, char **argv, R receive, S send) {
    const std::string verb = argc > 1 ? argv[1] : "";
    if (verb == "receive" && argc == 4) {
        receive(Receive{argv[2], static_cast<unsigned>(std::atoi(argv[3]))});
    } else if (verb == "send" && argc == 6) {
        send(Send{argv[2], std::atof(argv[3]), static_cast<unsigned>(std::atoi(argv[4])), argv[5]});
    } else {
        fail(std::string("usage: ") + argv[0] + " receive DIRECTORY NODE | send FILE RATE RECEIVERS ADDRESS");
    }
    return 0;
}

} // namespace peers

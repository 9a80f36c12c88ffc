#include "llmc/train/signals.h"

#include <csignal>
#include <initializer_list>

static volatile std::sig_atomic_t received = 0;

static void on_signal(int signal) {
    if (received && signal != SIGUSR1) {
        std::signal(signal, SIG_DFL);
        std::raise(signal);
    }
    if (!received) received = signal;
}

void signals_install() {
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    for (int signal : {SIGTERM, SIGINT, SIGUSR1}) sigaction(signal, &action, nullptr);
    received = 0;
}

int signal_received() {
    return received;
}

const char* signal_name(int signal) {
    return signal == SIGTERM ? "SIGTERM" : signal == SIGINT ? "SIGINT" : "SIGUSR1";
}

#include "llmc/train/signals.h"

#include <pthread.h>

#include <atomic>
#include <csignal>
#include <thread>

static std::atomic<int> received{0};
static std::atomic<bool> ignored{false};

static void wait_for_signals(sigset_t signals) {
    for (;;) {
        int signal = 0;
        if (sigwait(&signals, &signal) != 0) continue;
        if (ignored) continue;
        if (received && signal != SIGUSR1) {
            std::signal(signal, SIG_DFL);
            pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
            std::raise(signal);
        }
        if (!received) received = signal;
    }
}

void signals_install() {
    sigset_t signals;
    sigemptyset(&signals);
    for (int signal : {SIGTERM, SIGINT, SIGUSR1}) sigaddset(&signals, signal);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    std::thread(wait_for_signals, signals).detach();
}

int signal_received() {
    return received;
}

void signals_ignore() {
    ignored = true;
}

const char* signal_name(int signal) {
    return signal == SIGTERM ? "SIGTERM" : signal == SIGINT ? "SIGINT" : "SIGUSR1";
}

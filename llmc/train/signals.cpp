#include "llmc/train/signals.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "llmc/parallel/comm_mpi.h"

static std::atomic<int> received{0};
static std::atomic<bool> ignored{false};
static pthread_t main_thread;
static bool launched = false;  // by mpirun or srun: stdout and stderr are this process's alone

// A mpirun that is told to end stops reading what ranks print, and a rank that waits for it never
// comes to its save. The file descriptors of a terminal belong to the user's shell too, and stay.
static void never_wait_for_a_reader() {
    if (!launched) return;
    for (int fd : {STDOUT_FILENO, STDERR_FILENO})
        if (const int flags = ::fcntl(fd, F_GETFL); flags >= 0)
            ::fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    pthread_kill(main_thread, SIGURG);  // a write that already waits looks again
}

// Catches SIGURG with nothing to do, on a stack of its own (see the header).
static void catch_wake_up() {
    static char stack[1 << 16];
    stack_t place{};
    place.ss_sp = stack;
    place.ss_size = sizeof stack;
    struct sigaction action {};
    action.sa_handler = [](int) {};
    action.sa_flags = SA_RESTART | SA_ONSTACK;
    if (::sigaltstack(&place, nullptr) != 0 || ::sigaction(SIGURG, &action, nullptr) != 0)
        launched = false;
}

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
        if (received) continue;
        received = signal;
        never_wait_for_a_reader();
    }
}

void signals_install() {
    main_thread = pthread_self();
    launched = launched_processes([](const char* name) { return std::getenv(name); }) > 0;
    if (launched) catch_wake_up();
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

// llmc/train/signals.h: SIGTERM, SIGINT and SIGUSR1 ask for a save and a clean end.
//
// The signals are blocked in every thread and a thread of their own waits for them; the training
// loop looks at step boundaries. A handler would not do: oneDNN's generated GEMM code points the
// stack pointer into a work buffer on the heap, and the frame that the kernel pushes for a handler
// (2.8 kB with AVX-512 state) then overwrites the heap below it.
#pragma once

// Call it from the main thread, before another exists: threads inherit the mask. Once a signal has
// come, a process that mpirun or srun has started no longer waits for somebody to read what it
// prints. A second SIGINT or SIGTERM
// while the first is being served ends the process at once, as people expect of ^C ^C.
void signals_install();
// The first signal received since signals_install, or 0.
int signal_received();
// From here on signals do nothing: the process ends by itself. mpirun sends SIGTERM to the ranks
// that are still there when one has ended with an error, and their exit code must be their own.
void signals_ignore();
// "SIGTERM" and so on.
const char* signal_name(int signal);

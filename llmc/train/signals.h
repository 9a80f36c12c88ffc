// llmc/train/signals.h: SIGTERM, SIGINT and SIGUSR1 ask for a save and a clean end.
//
// The handler only notes the number; the training loop looks at step boundaries. A second SIGINT or
// SIGTERM while the first is being served ends the process at once, as people expect of ^C ^C.
#pragma once

void signals_install();
// The first signal received since signals_install, or 0.
int signal_received();
// "SIGTERM" and so on.
const char* signal_name(int signal);

// llmc/parallel/comm_behind.h: collectives of a thread that works behind the back of the run, on a
// communicator of its own (an asynchronous save).
//
// They have a newest record and numbers of their own: ranks are there at different times, and
// would else no longer number alike what the run communicates (comm_record.h).
#pragma once
#include "llmc/parallel/comm_record.h"

// From here on the collectives of this thread are those behind the run.
void comm_record_behind();
bool comm_is_behind();  // is the caller that thread?
// The newest of them; comm_last() is the run's.
CommRecord comm_last_behind();

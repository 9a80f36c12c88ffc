// llmc/train/commands.h: the commands besides `train`, and what all of them share.
#pragma once
#include <functional>

#include "llmc/core/check.h"
#include "llmc/parallel/watchdog.h"
#include "llmc/parallel/world.h"
#include "llmc/train/options.h"

// Runs the command; an Error becomes one line on stderr, "[rank 0/1 host] error: ...", and the exit
// code it carries, on all ranks. Memory that runs out is Exit::Resource.
int report_errors(World& world, const std::function<Exit()>& command);

// How long the command may be without a sign of life, and what it is called in a report. Alone, any
// but `train` may take its time: whoever started it sees that nothing happens.
void watch_command(const Options& opt, const World& world, Watchdog& watchdog);

Exit plan_run(const Options& opt, World& world);           // tables on stdout
Exit tokenize_command(const Options& opt, World& world);   // text to token shards
Exit train_bpe_command(const Options& opt, World& world);  // text to a tokenizer
Exit generate_run(const Options& opt, World& world);       // the text alone on stdout
Exit eval_run(const Options& opt, World& world);           // one JSON object on stdout
Exit import_run(const Options& opt, World& world);  // another program's model to a checkpoint
Exit export_run(const Options& opt, World& world);  // ... and back: llm.c's, Hugging Face's
Exit verify_run(const Options& opt, World& world);  // "state <hash>" on stdout

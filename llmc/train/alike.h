// llmc/train/alike.h: every rank must have been started alike: the same program, the same options,
// the same files. Where they were not, all ranks name the first difference: Exit::Usage.
//
// Ranks that differ would otherwise wait for each other in different collectives, or train
// different models and not know it. What only one rank cannot open or read it says itself.
#pragma once
#include <string>

#include "llmc/io/tokens.h"
#include "llmc/parallel/world.h"
#include "llmc/train/model_file.h"
#include "llmc/train/options.h"

// Collective, before anything else is: program, command and options. Only --threads may differ, and
// OMP_NUM_THREADS.
void check_started_alike(const Options& opt, World& world);

// Collective, after device_setup: --device auto has found the same kind on every rank.
void check_device_alike(const Options& opt, World& world);

// Collective: the same text on every rank, lines of `name = value`.
void check_alike(const std::string& mine, World& world);

// A line for each shard; one for a model file. Large files are not read in full: a digest of pieces
// all over them tells them apart.
std::string alike_lines(const TokenFiles& data);
std::string alike_line(const std::string& path, const ModelFile& model);

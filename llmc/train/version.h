// llmc/train/version.h: what this binary is: source, compiler, flags, libraries.
#pragma once
#include <string>

std::string version_text();

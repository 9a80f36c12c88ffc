// llmc/io/csv.h: comma-separated values as RFC 4180 (Shafranovich 2005) has them.
//
// A field in quotes may hold commas, line ends and, doubled, quotes. Lines end in \n or \r\n; an
// empty line is passed over; the last line needs no end.
#pragma once
#include <string>
#include <string_view>
#include <vector>

struct CsvRecord {
    std::vector<std::string> fields;
    int line = 0;  // where it begins, counted from 1
};

// Damaged, naming `where` and the line, for a quote that is never closed, or that does not close
// its field.
std::vector<CsvRecord> csv_parse(std::string_view text, const std::string& where);

#!/usr/bin/env python3
"""Runs every planted fault and its twin in the given modes and compares with expected.txt.

usage: run.py [--table] MODE=PROGRAM...     e.g. plain=build/sim/faults trace=build/sim-trace/faults
Prints the outcomes as a table, every difference, and closes with "N passed, N failed".
"""
import os
import re
import subprocess
import sys

# An outcome is the first of these that the output shows; the order matters.
REPORTS = [
    ("race", r"==cusim== RACE"),
    ("uninit", r"==cusim== READ OF UNINITIALISED"),
    ("in-flight", r"==cusim== ACCESS TO THE TARGET OF A cp.async"),
    ("order", r"==cusim== ORDER-DEPENDENT SUM"),
    ("bounds", r"==cusim== ERROR: a kernel wrote|bytes past the end of|overrun an allocation"),
    ("host", r"host code touched|the kind of the copy|is not device memory"),
    ("freed", r"memory freed at"),
    ("diverge", r"==cusim== ERROR: .*(divergent|have exited|thread exits while)"),
    ("deadlock", r"==cusim== ERROR: deadlock"),
    ("mask", r"takes no part|is not in its own mask"),
    ("in-flight", r"cp.async copies that were never waited for"),
    ("align", r"==cusim== ERROR: misaligned|runtime error: .*misaligned"),
    ("launch", r"bad launch configuration|__launch_bounds__ allows"),
    ("smem", r"bytes of (dynamic|static) shared memory|MaxDynamicSharedMemorySize"),
    ("asan", r"ERROR: AddressSanitizer"),
    ("ubsan", r"runtime error:"),
    ("tsan", r"(WARNING|ERROR): ThreadSanitizer|ThreadSanitizer:DEADLYSIGNAL"),
    ("msan", r"WARNING: MemorySanitizer"),
    ("wrong", r"WRONG RESULT"),
]


def outcome(program, case, which):
    """Reports and a wrong result are findings; anything else that fails is a crash."""
    env = dict(os.environ, OMP_NUM_THREADS="1", ASAN_OPTIONS="detect_leaks=0",
               TSAN_OPTIONS="report_thread_leaks=0")
    run = subprocess.run([program, case, which], env=env, capture_output=True, text=True,
                         errors="replace", timeout=300)
    text = run.stdout + run.stderr
    for name, pattern in REPORTS:
        if re.search(pattern, text):
            return name, text
    return ("-" if run.returncode == 0 else "crash"), text


def read_expected(path):
    """Rows `case | mode outcomes...`, the header names the modes."""
    rows, modes = {}, None
    for line in open(path):
        cells = line.split()
        if not cells or line.startswith("#"):
            continue
        if modes is None:
            modes = cells[1:]
        else:
            rows[cells[0]] = dict(zip(modes, cells[1:]))
    return rows


def main():
    arguments = [a for a in sys.argv[1:] if a != "--table"]
    programs = dict(a.split("=", 1) for a in arguments)
    modes = list(programs)
    expected = read_expected(os.path.join(os.path.dirname(__file__), "expected.txt"))
    first = next(iter(programs.values()))
    cases = subprocess.run([first], capture_output=True, text=True, check=True).stdout.split()
    passed = failed = 0
    print(f"{'fault':34}" + "".join(f"{m:10}" for m in modes))
    for case in cases:
        row, notes = [], []
        for mode, program in programs.items():
            found, text = outcome(program, case, "wrong")
            row.append(found)
            want = expected.get(case, {}).get(mode, "?")
            if found != want:
                notes.append((f"{mode}: found {found}, expected {want}", text))
            twin, text = outcome(program, case, "right")
            if twin != "-":
                notes.append((f"{mode}: the correct twin shows {twin}", text))
            passed += (found == want) + (twin == "-")
            failed += (found != want) + (twin != "-")
        print(f"{case:34}" + "".join(f"{c:10}" for c in row), flush=True)
        for note, text in notes if "--table" not in sys.argv else []:
            print(f"  {note}\n" + "\n".join("    " + l for l in text.splitlines()[:15]))
    missing = set(expected) - set(cases)
    for case in missing:
        print(f"  {case}: in expected.txt, not in the program")
    failed += len(missing)
    print(f"{passed} passed, {failed} failed")
    return failed != 0


sys.exit(main())

#!/usr/bin/env python3
"""Runs every planted fault and its twin in the given modes and compares with expected.txt.

usage: run.py MODE=PROGRAM...     e.g. plain=build/sim/faults trace=build/sim-trace/faults
Prints what each mode says of each fault as a table, every difference with its output, and closes
with "N passed, N failed". "-": nothing was reported and the result was right.
"""
import concurrent.futures
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
    env = dict(os.environ, OMP_NUM_THREADS="1", ASAN_OPTIONS="detect_leaks=0")
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
    programs = dict(a.split("=", 1) for a in sys.argv[1:])
    expected = read_expected(os.path.join(os.path.dirname(__file__), "expected.txt"))
    first = next(iter(programs.values()))
    cases = subprocess.run([first], capture_output=True, text=True, check=True).stdout.split()

    pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count())
    runs = {(case, mode, which): pool.submit(outcome, program, case, which)
            for case in cases for mode, program in programs.items() for which in ("wrong", "right")}
    passed, differences = 0, []
    print(f"{'fault':34}" + "".join(f"{mode:11}" for mode in programs))
    for case in cases:
        row = []
        for mode in programs:
            found, text = runs[case, mode, "wrong"].result()
            row.append(found)
            want = expected.get(case, {}).get(mode, "missing in expected.txt")
            if found != want:
                differences.append((f"{case}, {mode}: found {found}, expected {want}", text))
            twin, text = runs[case, mode, "right"].result()
            if twin != "-":
                differences.append((f"{case}, {mode}: the correct twin shows {twin}", text))
            passed += (found == want) + (twin == "-")
        print(f"{case:34}" + "".join(f"{found:11}" for found in row).rstrip(), flush=True)
        if set(row) <= {"-", "wrong"}:
            differences.append((f"{case}: no mode reports it", ""))

    differences += [(f"{case}: in expected.txt, not in the program", "")
                    for case in expected.keys() - set(cases)]
    for what, text in differences:
        print(f"\n{what}\n" + "\n".join("    " + line for line in text.splitlines()[:15]))
    print(f"{passed} passed, {len(differences)} failed")
    return bool(differences)


sys.exit(main())

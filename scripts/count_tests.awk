# Reads the output of one test program (GoogleTest or TAP), prints what failed with its output, each
# skip with its reason, and "PROGRAM: N passed, N failed, N skipped, N s".
#   awk -v test=PROGRAM -v code=EXIT_CODE -v seconds=N -f count_tests.awk LOG

# ---- GoogleTest: [ RUN      ] name, output of the test, [       OK ] name
/^\[ RUN      \] / { running = $4; said = ""; next }
/^\[       OK \] / { if (running != "") passed++; running = ""; next }
/^\[  FAILED  \] / {
    if (running == "") next  # the list at the end repeats the names
    failed++
    print "  FAILED " running "\n" said
    running = ""
    next
}
/^\[  SKIPPED \] / {
    if (running == "") next
    skipped++
    gsub(/^ *[^\n]*: Skipped\n/, "", said)
    gsub(/\n+/, " ", said)
    print "  skipped " running ": " said
    running = ""
    next
}
running != "" { if (length(said) < 20000) said = said "    " $0 "\n"; next }

# ---- TAP; lines between results belong to the next one
/^ok .*# SKIP/ { skipped++; print "  skipped " test ": " $0; said = ""; next }
/^ok / { passed++; said = ""; next }
/^not ok / { failed++; print "  FAILED " test ": " $0 "\n" said; said = ""; next }
{ if (length(said) < 20000) said = said "    " $0 "\n" }

END {
    if (running != "" || (code != 0 && failed == 0) || passed + failed + skipped == 0) {
        failed++
        print "  FAILED " test (running != "" ? " died in " running : "") ", exit code " code
        print said
    }
    printf "%s: %d passed, %d failed, %d skipped, %d s\n", test, passed, failed, skipped, seconds
}

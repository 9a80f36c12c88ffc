#!/usr/bin/env bash
# The thread sanitizer over what runs in threads: communication behind backward, saves behind the
# training, the watchdog (dev/parallel/threads.mk). No report is suppressed.
. scripts/test/tap.sh
export OMP_WAIT_POLICY=passive TSAN_OPTIONS="halt_on_error=0 exitcode=66 ${TSAN_OPTIONS:-}"
build=${BUILD:-build}

# A race on purpose: is there a sanitizer here that sees it?
cat > "$work/race.cpp" << 'CPP'
#include <thread>
int x = 0;
int main() { std::thread a([] { x++; }), b([] { x++; }); a.join(); b.join(); }
CPP
if ! g++ -fsanitize=thread -O1 "$work/race.cpp" -o "$work/race" 2> "$work/err"; then skip "thread sanitizer" "none here"; exit; fi
for _ in $(seq 20); do "$work/race" > /dev/null 2> "$work/err"; [ $? = 66 ] && break; done
grep -q "data race" "$work/err" || { tail -n 3 "$work/err"; skip "thread sanitizer" "it does not work here"; exit; }
ok "it sees a race"

is "build" "${MAKE:-make}" --no-print-directory -j"$(nproc)" BUILD="$build" "$build/threads/threads_test"
"$build/threads/threads_test" --gtest_brief=1 > "$work/out" 2> "$work/err"
code=$?
if [ $code = 0 ] && ! grep -q "WARNING: ThreadSanitizer" "$work/err"; then ok "overlap, asynchronous save, watchdog: no race"; else
    echo "exit code $code"; head -n 60 "$work/err"; tail -n 20 "$work/out"; not_ok "overlap, asynchronous save, watchdog: no race"; fi

# today.sh - which cases of a table a shell test runs today; source it. tests/unit/tap.h has the same for
# C. SEED=YYYYMMDD repeats a day, WEFT_LONG=1 runs all.
# shellcheck shell=sh
today=${SEED:-$(date +%Y%m%d)}
echo "# SEED=$today"

of_today() { # of_today I PARTS: whether case I is run: one of PARTS is, others every day
    [ -n "${WEFT_LONG:-}" ] || [ $((($1 + today) % $2)) -eq 0 ]
}

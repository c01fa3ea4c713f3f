#!/usr/bin/env bash
# What a hint names as the remedy is one: the commands for what a profile lacks, also those that
# measure communication. Prints TAP; the programs are in $WEFT_BIN.
# Needs: jq sqlite3 mpirun
set -u
# shellcheck source=/dev/null
. "$(dirname "$0")/tap.bash"
n=0 failed=0
export ASAN_OPTIONS=detect_leaks=0 # Open MPI does not free all
bin=$(cd "${WEFT_BIN:?}" && pwd)
PATH=$bin:$PATH

cat >plan.json <<EOF
{"format": "weft-plan/1", "model": "gpt:nano", "set": "layers=1,hidden=32,heads=2,seq=16,vocab=32",
 "batch": 4, "stages": [{"mesh": "tp:2", "layout": {"tp": ["heads", "ffn", "vocab"]}}]}
EOF

# Computation is there, for ranks of two threads; no communication is.
weft-profile-op -q --plan plan.json -p p.db --device cpu-2t --roofline 100G:10G:1us >out 2>err
ok $? "a profile of computation alone"
weft-predict -p p.db plan.json >out 2>err
is $? 1 "a prediction lacks the rest"
hint=$(sed -n 's/.*measure with: //p' err)
is "$hint" "mpirun -n 2 weft-profile-comm -p p.db --threads 2 --device cpu-2t" "the hint is the missing half alone"
bash -c "$hint --time 1ms --max-bytes 64K" >out 2>err
ok $? "the hint runs"
is "$(sqlite3 p.db 'select distinct device from comm' 2>>err | head -1)" cpu-2t "the rows are for the same ranks"
weft-predict -p p.db plan.json >out 2>err
ok $? "and nothing is missing any more"


# Names that a shell would take apart, and a folder with a long name, stand in it as they must.
long="it's a folder $(printf 'long%.0s' {1..40})"
mkdir "$long"
cp plan.json "$long/my plan.json"
weft-profile-op -q --plan plan.json -p "$long/p.db" --device 'my kind' --roofline 1T:1T:1us >out 2>err
jq '.set = "layers=1,hidden=64,heads=2,seq=16,vocab=32"' plan.json >"$long/my plan.json"
weft-predict -p "$long/p.db" "$long/my plan.json" >out 2>err
is $? 1 'another plan lacks shapes'
bash -c "$(sed -n 's/.*measure with: \([^;]*\);.*/\1/p' err) --links node:1G:1us" >out 2>err
ok $? 'the hint runs, though names hold blanks and quotes'
weft-predict -p "$long/p.db" "$long/my plan.json" >out 2>err
ok $? 'and fills what was missing'

echo "1..$n"
[ "$failed" -eq 0 ]

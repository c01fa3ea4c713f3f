#!/usr/bin/env bash
# weft-profile-op as a user runs it: listing, measuring, stopping, going on, merging, and what
# wrong usage and wrong files get. Prints TAP; the programs are in $WEFT_BIN.
# Needs: sqlite3 mpirun cc jq
set -u
tool=${WEFT_BIN:?}/weft-profile-op
# shellcheck source=/dev/null
. "$(dirname "$0")/tap.bash"
n=0 failed=0

run() { # run ARGS...: leaves $status, out, err
    "$tool" "$@" >out 2>err
    status=$?
}
refuses() { # refuses STATUS PATTERN TEXT -- ARGS...
    local want=$1 pattern=$2 text=$3
    shift 4
    run "$@"
    [ "$status" -eq "$want" ] && [ ! -s out ] && grep -q "^weft-profile-op: error: .*$pattern" err
    ok $? "$text: $(head -1 err) (exit $status)"
}
sql() { sqlite3 "$@" 2>&1; }
rows() { sql "$1" 'SELECT count(*) FROM op'; }

small=(-m gpt:nano --set "layers=1,hidden=48,heads=4" --set "seq=32,vocab=64")
space=(--max-devices 2 --micro-batch 2 --time 1ms)
roof=(--roofline 312T:1.5T:5us --device a100)

# ---- listing --------------------------------------------------------------------------------
run "${small[@]}" "${space[@]}" -p a.db --dry-run
is $status 0 'a dry run ends well'
[ ! -e a.db ]
ok $? 'and makes no database'
total=$(grep -vc '^#' out)
[ "$total" -gt 50 ] && grep -q '^linear	64,144,48,0,1	to measure	' out
ok $? "it lists instruction, shape, state and time of $total rows"
grep -q "^# $total of $total rows to measure, about [0-9]* s" out
ok $? "and ends with the total: $(tail -1 out)"
run "${small[@]}" "${space[@]}" -p a.db --dry-run
cp out first
run "${small[@]}" "${space[@]}" -p a.db --dry-run
[ "$(cut -f1-3 first | grep -v '^#')" = "$(cut -f1-3 out | grep -v '^#')" ]
ok $? 'the list is the same every time'

# ---- measuring, stopping, going on -------------------------------------------------------------
# Killed in the midst, several times; each time the file is whole and the work goes on.
lost=0 unsound=0 last=0
for _ in 1 2 3 4 5; do
    "$tool" "${small[@]}" "${space[@]}" -q -p a.db --time 30ms >out 2>err &
    pid=$!
    for _ in $(seq 200); do
        sleep 0.05
        [ -s a.db ] && [ "$(rows a.db)" -gt $((last + 2)) ] 2>/dev/null && break
    done
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    [ "$(sql a.db 'PRAGMA integrity_check')" = ok ] || unsound=1
    now=$(rows a.db)
    [ "$now" -ge "$last" ] || lost=1
    last=$now
done
is $unsound 0 'killed five times, the database is whole each time'
is $lost 0 "and no row that was there is lost ($last rows so far)"
[ "$last" -gt 5 ] && [ "$last" -lt "$total" ]
ok $? "the work was under way: $last of $total rows"
sql a.db 'SELECT device, instr, shape, median_us, measured_at FROM op' | sort >before
run "${small[@]}" "${space[@]}" -p a.db --dry-run
is "$(grep -c '	known	' out)" "$last" 'a dry run knows what is there'
run "${small[@]}" "${space[@]}" -p a.db
is $status 0 'the same command finishes the work'
grep -q "^$((total - last)) rows measured on cpu-1t, $last were known" err
ok $? "and says so: $(tail -2 err | head -1)"
is "$(rows a.db)" "$total" 'every row is there'
sql a.db 'SELECT device, instr, shape, median_us, measured_at FROM op' | sort >after
is "$(comm -23 before after | wc -l)" 0 'no row was measured twice'
is "$(sql a.db "SELECT count(*) FROM op WHERE median_us <= 0 OR repeats < 1 OR source <> 'measured'
     OR machine = '' OR dtype <> 'f32' OR measured_at NOT GLOB '20[0-9][0-9]-*T*Z'")" 0 \
    'every row says how long, how often, on what and when'

# Ctrl-C: one message, status 4, what was measured is kept.
set -m
"$tool" "${small[@]}" --max-devices 8 --micro-batch 8 --time 1s -p int.db >out 2>err &
pid=$!
set +m
for _ in $(seq 200); do
    sleep 0.05
    [ "$(rows int.db 2>/dev/null)" -ge 1 ] 2>/dev/null && break
done
kill -INT $pid
wait $pid
is $? 4 'Ctrl-C ends with status 4'
grep -q 'interrupted; what was measured is kept' err && [ "$(rows int.db)" -ge 1 ]
ok $? "and keeps what was measured: $(rows int.db) rows"

# The ranks that stand in for the others do not outlive it.
"$tool" "${small[@]}" --max-devices 8 --micro-batch 8 --ranks 3 --time 1s -p int.db >out 2>err &
pid=$!
for _ in $(seq 100); do
    sleep 0.05
    others=$(cat "/proc/$pid/task/$pid/children" 2>/dev/null)
    [ "$(echo "$others" | wc -w)" -eq 2 ] && break
done
kill -9 $pid
wait $pid 2>/dev/null
left=$others
for _ in $(seq 200); do
    left=$(for p in $others; do grep -l weft-profile-op "/proc/$p/cmdline" 2>/dev/null; done)
    [ -z "$left" ] && break
    sleep 0.05
done
[ "$(echo "$others" | wc -w)" -eq 2 ] && [ -z "$left" ]
ok $? 'killed, it leaves no rank behind'

# Ranks that share cores are a kind of their own.
run -m mlp --set layers=1,hidden=16,pixels=16 --max-devices 1 --micro-batch 1 --over 2 \
    --time 1ms -p over.db
[ $status -eq 0 ] && [ "$(sql over.db 'SELECT DISTINCT device FROM op')" = cpu-1t-over2 ]
ok $? 'two ranks on each core are cpu-1t-over2'

# Whatever the number of cores, weft-profile-comm on as many ranks as plans may use names the same
# kind: the rows of both are found together.
cat >cores.c <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
long sysconf(int name) {
    long (*next)(int) = (long (*)(int))dlsym(RTLD_NEXT, "sysconf");
    return name == _SC_NPROCESSORS_ONLN ? CORES : next(name);
}
END
kind_of() { # kind_of COMMAND...: the device that it names on a machine of $cores cores
    LD_PRELOAD=$PWD/cores-$cores.so ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 \
        "$@" 2>err | sed -n 's/^# device \([^:]*\):.*/\1/p'
}
for want in '2 2 cpu-1t' '3 2 cpu-1t' '8 2 cpu-4t' '8 4 cpu-2t' '5 1 cpu-5t' '2 8 cpu-1t'; do
    read -r cores devices kind <<<"$want"
    cc -shared -fPIC -DCORES="$cores" -o "cores-$cores.so" cores.c -ldl >err 2>&1
    is "$(kind_of "$tool" -m mlp -p x.db --dry-run --max-devices "$devices")" "$kind" \
        "$devices devices on $cores cores"
    case "$devices" in 1 | 8) continue ;; esac # nobody to talk to; more ranks than cores
    is "$(OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_ALLOW_RUN_AS_ROOT=1 \
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 kind_of mpirun -n "$devices" "$WEFT_BIN/weft-profile-comm" \
        -p x.db --dry-run)" "$kind" 'and for weft-profile-comm'
done

# ---- computed rows -------------------------------------------------------------------------------
run -m gpt:1.3B -p r.db --max-devices 4 "${roof[@]}" --links 'node:200G:5us cross:25G:10us'
is $status 0 'a roofline'
is "$(sql r.db "SELECT count(*) FROM op WHERE source NOT LIKE 'roofline %' OR machine <> ''")" 0 \
    'its rows say what they are, and name no machine'
# 2*4096*6144*2048 flops at 312e12/s are 330.36 us, after 5 us.
is "$(sql r.db "SELECT round(median_us, 2) FROM op WHERE instr='linear' AND
     shape='4096,6144,2048,0,1'")" 335.38 'a product takes flops / peak + latency'
is "$(sql r.db "SELECT round(median_us, 3) FROM op WHERE instr='add' AND shape='8388608'")" 72.109 \
    'a sum takes bytes / bandwidth + latency'
is "$(sql r.db "SELECT round(median_us, 3) FROM comm WHERE collective='all_reduce' AND
     group_size=4 AND link='node' AND bytes=1048576")" 27.864 'an all-reduce, alpha and beta'
is "$(sql r.db "SELECT count(DISTINCT collective) FROM comm")" 5 'all collectives'
is "$(sql r.db "SELECT DISTINCT source FROM op UNION SELECT DISTINCT source FROM comm" | tr '\n' ';')" \
    'roofline 312T:1.5T:5us;roofline node:200G:5us cross:25G:10us;' 'and how they were computed'
sum=$(sql r.db 'SELECT sum(median_us) FROM op')
run -m gpt:1.3B -p r.db --max-devices 4 --roofline 1T:1T --device a100
[ $status -eq 0 ] && [ "$(sql r.db 'SELECT sum(median_us) FROM op')" = "$sum" ]
ok $? 'rows that are there are left alone'

# ---- merging with plain SQL ------------------------------------------------------------------------
run "${small[@]}" --max-devices 4 --micro-batch 1 -p b.db --roofline 1T:1T --device cpu-1t
sql b.db "ATTACH 'a.db' AS a; INSERT OR IGNORE INTO op SELECT * FROM a.op;" >out
is "$(sql b.db "ATTACH 'a.db' AS a; SELECT count(*) FROM a.op WHERE NOT EXISTS (SELECT 1 FROM op
     WHERE op.instr = a.op.instr AND op.shape = a.op.shape)")" 0 'databases merge with plain SQL'
run "${small[@]}" "${space[@]}" -p b.db
grep -q "^0 rows measured.*cpu-1t.*$total.*known" err
ok $? 'and the merged one has it all'

# ---- what one plan needs -----------------------------------------------------------------------
# Three devices beside one: no split of a job of four that a model alone would be measured for.
cat >plan.json <<'END'
{"format": "weft-plan/1", "model": "gpt:nano", "set": "layers=1,hidden=48,heads=6,seq=32,vocab=66",
 "batch": 6, "micro_batch": 3, "stages": [
  {"ops": ["wte", "wpe"], "mesh": ""}, {"mesh": "tp:3", "layout": {"tp": ["heads", "ffn", "vocab"]}}]}
END
run --plan plan.json -p p.db --dry-run
grep -q '^linear	96,48,48,0,0' out || grep -q '^linear	96,48,16,0,1' out
ok $? 'a plan says which products it needs'
grep -q '^attention	3,2,1,2,32,32,8,1,0,1,0' out
ok $? 'in the shapes of its own splits'
whole=$("$tool" -m gpt:nano --set layers=1,hidden=48,heads=6,seq=32,vocab=66 --max-devices 4 \
    --micro-batch 3 -p p.db --dry-run | grep -vc '^#')
[ "$(grep -vc '^#' out)" -lt "$whole" ]
ok $? "fewer rows than for all plans of the model: $(grep -vc '^#' out) of $whole"
run --plan plan.json -p p.db --time 1ms
[ $status -eq 0 ] && [ "$(rows p.db)" -eq "$(grep -o '^[0-9]*' err | head -1)" ]
ok $? "and they are measured: $(head -1 err)"
"$tool" --plan - -p p.db --dry-run <plan.json >out 2>err
is "$(grep -c 'to measure' out)" 1 'a plan from standard input; nothing is left to measure'
refuses 2 'expected one of them' 'a model and a plan' -- -m mlp --plan plan.json -p x.db
refuses 2 'set' 'other sizes than the plan says' -- --plan plan.json --set layers=2 -p x.db

# ---- a few rows instead of all -------------------------------------------------------------------
# A device whose products take half as long again as the other's, and all else as long.
run --plan plan.json -p like.db --roofline 1T:100G:1us --device a100
sql like.db "UPDATE op SET source = 'measured'" # as if they were
cp like.db whole.db
sql whole.db "UPDATE op SET device = 'h999', median_us = median_us *
     CASE WHEN instr LIKE 'linear%' OR instr LIKE 'matmul%' THEN 1.5 ELSE 1 END"
probe=(--plan plan.json --like like.db --from whole.db --device h999)
run "${probe[@]}" --probes 3 -p few.db --dry-run
is "$(grep -c '	to measure	' out)" 3 'of all rows three are to be measured'
[ "$(grep -c '	to estimate	' out)" -eq "$(($(rows like.db) - 3))" ] && [ ! -e few.db ]
ok $? "and the others estimated: $(grep -c '	to estimate	' out)"
run "${probe[@]}" --probes 3 -p few.db
is $status 0 'so it is done'
is "$(sql few.db "SELECT source, count(*) FROM op GROUP BY source" | tr '\n' ' ')" \
    "like a100|$(($(rows like.db) - 3)) measured|3 " 'rows say what they rest on'
is "$(sql few.db "SELECT count(*) FROM op WHERE source <> 'measured' AND (spread <= 0 OR machine <> '')")" 0 \
    'those that are estimated say how sure they are, and name no machine'
grep -q 'no device model of h999' err
ok $? 'that nothing else is known of the device is said'
run "${probe[@]}" --probes 30 -p few.db
is "$(sql few.db "SELECT count(*) FROM op WHERE source = 'measured'")" 33 'thirty more take the place of estimates'
off=$(sql few.db "ATTACH 'whole.db' AS w; SELECT round(100 * abs(sum(op.median_us) / sum(t.median_us) - 1), 1)
     FROM op JOIN w.op AS t USING (instr, shape, dtype)")
awk -v off="$off" 'BEGIN { exit !(off < 3) }'
ok $? "all together are then off by $off %"
"$WEFT_BIN/weft-predict" -p few.db --device h999 --datasheets --cluster h100:4 plan.json >out 2>err
jq -e '.rests_on | .fitted > 0 and .measured > 0' out >/dev/null
ok $? "a prediction says what rests on estimates: $(jq -c .rests_on out)"
run --plan plan.json -p few.db --device x --dry-run
is "$(grep -c '	known	' out)" 0 'of another kind none is known'
run --plan plan.json -p real.db --like like.db --probes 2 --time 1ms
[ $status -eq 0 ] && [ "$(sql real.db "SELECT count(*) FROM op WHERE source = 'measured'")" -ge 2 ]
ok $? "and on this device: $(head -1 err)"
refuses 2 'missing option --like' 'probes like nothing' -- --plan plan.json -p x.db --probes 3
refuses 2 'only with --probes' 'likeness without probes' -- --plan plan.json -p x.db --like like.db
refuses 3 'no rows of device kind' 'a kind that the other profile lacks' -- "${probe[@]}" --device h998 \
    --probes 3 -p x.db

# ---- wrong usage, wrong files ------------------------------------------------------------------------
refuses 2 'missing option -m MODEL' 'no model' -- -p x.db
refuses 2 'missing option -p FILE' 'no database' -- -m mlp
refuses 2 'unknown option' 'an unknown option' -- -m mlp -p x.db --fast
refuses 2 'unexpected operand' 'an operand' -- -m mlp -p x.db y.db
refuses 2 'max-devices' 'no devices' -- -m mlp -p x.db --max-devices 0
refuses 2 'micro-batch' 'a micro-batch of none' -- -m mlp -p x.db --micro-batch 1,0
refuses 2 'micro-batch' 'half a list' -- -m mlp -p x.db --micro-batch 1,
refuses 2 'threads' 'no threads' -- -m mlp -p x.db --threads 0
refuses 2 'threads' 'fewer than none' -- -m mlp -p x.db --threads -1
refuses 2 'roofline' 'half a roofline' -- -m mlp -p x.db --roofline 312T --device d
refuses 2 'roofline' 'a roofline of zero' -- -m mlp -p x.db --roofline 0:1T --device d
refuses 2 'device' 'a roofline of nothing' -- -m mlp -p x.db --roofline 1T:1T
refuses 2 'links' 'links without a roofline' -- -m mlp -p x.db --links node:1G
refuses 2 'links' 'an unknown link' -- -m mlp -p x.db "${roof[@]}" --links rack:1G
refuses 2 'links' 'a link twice' -- -m mlp -p x.db "${roof[@]}" --links 'node:1G node:2G'
refuses 3 'not among the shipped models' 'an unknown model' -- -m gpt9 -p x.db
refuses 3 'no preset' 'an unknown size' -- -m gpt:7T -p x.db
refuses 3 'no size or rate' 'an unknown override' -- -m gpt -p x.db --set depth=3
refuses 3 'none.json' 'a missing model file' -- -m ./none.json -p x.db
[ ! -e x.db ]
ok $? 'none of these made a database'
echo 'not a database, but a text long enough to be read as one, surely' >text.db
refuses 3 'text.db: not a weft profile' 'a text file' -- -m mlp -p text.db "${roof[@]}"
sql other.db 'CREATE TABLE t (x)'
sum=$(cksum <other.db)
refuses 3 'other.db: not a weft profile' 'a foreign database' -- -m mlp -p other.db "${roof[@]}"
is "$(cksum <other.db)" "$sum" 'which is left as it was'
cp a.db new.db
sql new.db 'PRAGMA user_version=4'
refuses 3 'new.db:.*4.*3' 'a later version' \
    -- -m mlp -p new.db "${roof[@]}"
refuses 3 'other.db: not a weft profile' 'a foreign database in a dry run' \
    -- -m mlp -p other.db --dry-run
refuses 4 'none/x.db: cannot write' 'a folder that is not there' -- -m mlp -p none/x.db "${roof[@]}"
refuses 4 'cannot write' 'a folder as database' -- -m mlp -p . "${roof[@]}"
if [ "$(id -u)" -eq 0 ]; then
    skip 'a read-only database' 'root may write everywhere'
else
    chmod a-w a.db
    refuses 4 'a.db: cannot write' 'a read-only database' -- -m mlp -p a.db "${roof[@]}"
    chmod u+w a.db
    mkdir shut
    # A writer that is killed in the midst leaves a journal, which a reader must undo.
    cp a.db shut/hot.db
    { # shellcheck disable=SC2016 # a shell below sqlite3 expands it
        sqlite3 shut/hot.db 'PRAGMA cache_size = 1' 'BEGIN' \
            "UPDATE op SET machine = machine || '$(printf '%0100d' 0)'" '.shell kill -9 $PPID'
    } >err 2>&1
    chmod a-w shut shut/*
    refuses 4 'shut/hot.db:' \
        'a journal beside a database that is read-only' -- -m mlp -p shut/hot.db --dry-run "${roof[@]}"
    refuses 4 'shut/x.db: cannot write: Permission denied' 'a folder that is read-only' \
        -- -m mlp -p shut/x.db "${roof[@]}"
    chmod -R u+w shut
fi
"$tool" -m mlp -p x.db --dry-run >/dev/full 2>err
is $? 4 'a full disk under the list'
"$tool" -m mlp -p x.db --dry-run "${roof[@]}" | head -1 >out
grep -q '^# device a100' out
ok $? 'the list may be cut'

echo "1..$n"
[ $failed -eq 0 ]

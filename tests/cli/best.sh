#!/usr/bin/env bash
# What weft-run keeps of its validations, --keep-best, and its metrics as TensorBoard's events. The best
# is found among the metrics by jq; events are read by the package tensorboard, and by a reader of
# struct that checks both checksums. Prints TAP; the programs are in $WEFT_BIN.
#   WEFT_PYTHON: a python3 with tensorboard, for the part that compares with it
# Needs: jq mpirun python3
set -u
bin=${WEFT_BIN:?}
: "${WEFT_ROOT:?}"
# shellcheck source=/dev/null
. "$(dirname "$0")/tap.bash"
n=0 failed=0
export ASAN_OPTIONS=detect_leaks=0 # Open MPI does not free all

sizes=layers=1,hidden=32,heads=2,seq=16,vocab=256
cat >plan.json <<EOM
{"format": "weft-plan/1", "model": "gpt:nano", "set": "$sizes", "batch": 4, "stages":
 [{"mesh": "dp:2", "layout": {"dp": "batch"}}]}
EOM
seq 1 150 >text # so little that the validation loss rises again
seq 901 960 >valid

run() { # run ARGS...: on two ranks; leaves $status, out, err
    timeout 120 mpirun -n 2 "$bin/weft-run" -q --threads 1 --data text --valid-data valid "$@" \
        plan.json >out 2>err </dev/null
    status=$?
}
best_of() { # best_of FILE: step and loss of its best validation, the first of equals
    jq -rs '[.[] | select(.valid_loss)] | min_by(.valid_loss) | "\(.step) \(.valid_loss)"' "$1"
}
kept() { # kept DIR: step and loss of all that is in DIR/best
    for f in "$1"/best/step-*/index.json; do jq -r '"\(.step) \(.valid_loss)"' "$f"; done
}

usual=(--lr 0.01 --decay constant --warmup 0 --valid-every 4 --valid-batches 2)
run "${usual[@]}" -n 40 --save all --keep-best --tensorboard logs/one
cp out metrics
want=$(best_of metrics)
is "$(kept all)" "$want" 'the best of ten validations is kept alone'
[ "${want%% *}" -lt 40 ]
ok $? 'which was not the last'
[ -d all/step-00000040 ]
ok $? 'the last is kept as well'

run --eval --resume all/best --valid-batches 2
is "$(jq -r '"\(.step) \(.valid_loss)"' out)" "$want" 'evaluated, it has that loss'

# Interrupted behind the best, begun again before it: the same one; and on from the end, at a rate that spoils
# all, the same one still.
run "${usual[@]}" -n 8 --save part --keep-best
run -n 40 --resume part --save part --keep-best --valid-every 4 --valid-batches 2
is "$(kept part)" "$want" 'a resumed run finds the same'
run -n 48 --lr 1 --resume part --save part --keep-best --valid-every 4 --valid-batches 2
is "$(kept part)" "$want" 'what is worse later does not replace it'

# A run that goes on from before its best one, and to another: what is better takes the place of a later step.
run -n 24 --lr 1e-4 --save over --save-every 4 --keep 0 --keep-best --valid-every 5 --valid-batches 2
rm -r over/step-000000{08,12,16,20,24}
first=$(kept over)
run -n 14 --lr 0.01 --resume over --save over --keep-best --valid-every 5 --valid-batches 2
[ "${first%% *}" = 20 ]
ok $? "the best of slow steps: $first"
is "$(kept over)" "$(best_of out)" 'a run that goes back: a better one takes the place of a later one'

run -n 4 --save all2 --keep-best
grep -q -- '--keep-best: expected --save DIR, and --valid-every N' err && [ $status -eq 2 ]
ok $? "without validations there is no best: exit $status"
run -n 4 --keep-best --valid-every 2
[ $status -eq 2 ]
ok $? "nor without a folder: exit $status"
run -n 4 --save new --valid-every 2 --keep-best --tensorboard text/logs
[ $status -eq 4 ] && grep -q -- '--tensorboard: text' err
ok $? "events that cannot be written are an error before the first step: $(grep -m1 error: err)"

# ---- events -----------------------------------------------------------------------------------------
cat >reader.py <<'END_PYTHON'
"""The events of a file, read by hand: prints [tag, step, value] per scalar, in order."""
import json, struct, sys

TABLE = []
for i in range(256):
    for _ in range(8):
        i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
    TABLE.append(i)

def crc(data):
    c = 0xFFFFFFFF
    for b in data:
        c = TABLE[(c ^ b) & 255] ^ c >> 8
    c ^= 0xFFFFFFFF
    return ((c >> 15 | c << 17) + 0xA282EAD8) & 0xFFFFFFFF

def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at

def fields(data):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 2:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        else:
            size = {1: 8, 5: 4}[key & 7]
            value, at = struct.unpack({8: "<d", 4: "<f"}[size], data[at:at + size])[0], at + size
        yield key >> 3, value

data = open(sys.argv[1], "rb").read()
at = 0
while at < len(data):
    size, check = struct.unpack_from("<QI", data, at)
    assert check == crc(data[at:at + 8])
    event = data[at + 12:at + 12 + size]
    assert struct.unpack_from("<I", data, at + 12 + size)[0] == crc(event)
    at += size + 16
    event = dict(fields(event))
    assert 1.5e9 < event[1] < 1e10
    for number, value in fields(event.get(5, b"")):
        value = dict(fields(value))
        print(json.dumps([value[1].decode(), event.get(2, 0), value[2]]))
END_PYTHON
cat >floats.py <<'END_PYTHON'
"""What the events are to hold: the numbers of the metrics, as floats."""
import json, struct
for line in open("metrics"):
    m = json.loads(line)
    for key, value in m.items():
        if key != "step" and isinstance(value, (int, float)):
            print(json.dumps([key, m["step"], struct.unpack("<f", struct.pack("<f", value))[0]]))
END_PYTHON
python3 floats.py | sort >want
python3 reader.py logs/one/events* 2>err | sort >got
[ -s want ] && cmp -s want got
ok $? "every number of the metrics is a scalar: $(wc -l <got) of $(wc -l <want)"

python=${WEFT_PYTHON:-python3}
if "$python" -c 'import tensorboard' 2>/dev/null; then
    # What was lost of a run that goes on from an earlier step is dropped.
    run "${usual[@]}" -n 12 --save cut --save-every 4 --keep 0 --tensorboard logs/two
    rm -r cut/step-00000012
    sleep 1 # names of files of events are of a second
    run -n 12 --resume cut --save cut --tensorboard logs/two
    cat >board.py <<'END_PYTHON'
import json
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
one = EventAccumulator("logs/one").Reload()
for tag in one.Tags()["scalars"]:
    for e in one.Scalars(tag):
        print(json.dumps([tag, e.step, e.value]))
two = EventAccumulator("logs/two").Reload()
steps = [e.step for e in two.Scalars("loss")]
assert steps == list(range(1, 13)), steps
END_PYTHON
    "$python" board.py 2>err | sort >got
    [ "${PIPESTATUS[0]}" -eq 0 ] && cmp -s want got
    ok $? "TensorBoard reads the same, and each step of a resumed run once"
else
    skip 'TensorBoard reads the same' 'no python3 with tensorboard (WEFT_PYTHON)'
fi

echo "1..$n"
exit $((failed > 0))

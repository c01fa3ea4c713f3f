#!/usr/bin/env bash
# The JSON Schemas in share/schemas: what is shipped and what the tools write validates, what
# the tools refuse for its form is refused by the schema too, and both know the same keys.
# Needs the module jsonschema of python3. Prints TAP; the programs are in $WEFT_BIN.
# Needs: jq python3
# shellcheck disable=SC2016 # the dollars in quotes are of jq
set -u
root=${WEFT_ROOT:?}
export PATH="${WEFT_BIN:?}:$PATH"
case "$WEFT_BIN" in *address*) export ASAN_OPTIONS=detect_leaks=0 ;; esac
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# shellcheck source=tests/cli/tap.bash
. "$(dirname "$0")/tap.bash"
n=0 failed=0

if ! python3 -c 'import jsonschema; jsonschema.Draft202012Validator' 2>/dev/null; then
    skip 'schemas' 'python3 has no module jsonschema'
    echo "1..$n"
    exit 0
fi

cat >validate.py <<'END'
"""validate.py SCHEMA FILE...: status 0 when all validate; without FILE checks the schema."""
import json, pathlib, sys, warnings
warnings.simplefilter("ignore")
import jsonschema
path = pathlib.Path(sys.argv[1])
schema = json.loads(path.read_text())
jsonschema.Draft202012Validator.check_schema(schema)
resolver = jsonschema.RefResolver(base_uri=path.resolve().as_uri(), referrer=schema)
validator = jsonschema.Draft202012Validator(schema, resolver=resolver)
bad = 0
for name in sys.argv[2:]:
    for e in validator.iter_errors(json.load(open(name))):
        print(f"{name}: {e.json_path}: {e.message[:300]}")
        bad = 1
sys.exit(bad)
END
schema() { # schema NAME FILE...
    local name=$1
    shift
    python3 validate.py "$root/share/schemas/weft-$name.schema.json" "$@" >out 2>&1
}

for file in "$root"/share/schemas/*.json; do
    python3 validate.py "$file" >out 2>&1
    ok $? "$(basename "$file") is a schema"
done
schema model "$root"/share/models/*.json "$root"/tests/models/*.json
ok $? 'the shipped models and those of the tests validate'
schema cluster "$root"/share/clusters/*.json
ok $? 'the shipped clusters validate'

# ---- plans: the schema and the reader agree -------------------------------------------------
head='"format": "weft-plan/1", "model": "gpt:nano", "batch": 8'
write() { # write FILE TEXT
    printf '%s\n' "$2" >"$1"
}
write one.json "{$head, \"stages\": [{}]}"
write set.json "{$head, \"set\": \"layers=2,ffn=2*hidden\", \"stages\": [{\"mesh\": \"\"}]}"
write full.json "{$head, \"micro_batch\": 4, \"schedule\": \"gpipe\", \"optimizer\": \"sgd\",
  \"provenance\": {\"x\": [1]},
  \"stages\": [{\"ops\": [\"wte\", \"wpe\", \"layer.0-1,3\", \"layer.2.*\"], \"mesh\": \"dp:2 tp:2\",
    \"layout\": {\"dp\": \"batch\", \"tp\": [\"heads\", \"ffn\", \"seq\"]},
    \"except\": [{\"ops\": \"layer.*.ln?\", \"layout\": {\"tp\": null}},
        {\"ops\": \"layer.0-3\", \"zero\": 3}],
    \"recompute\": \"all\", \"zero\": 1}, {\"recompute\": [\"layer.4\"]}]}"
sed -i 's/ln?/ln*/' full.json
jq --slurpfile m "$root/share/models/mlp.json" '.model = $m[0]' one.json >embedded.json
jq '.pin = {micro_batch: 8, schedule: "1f1b", overlap: false, stages: 1,
    "*": {mesh: "", zero: 0, regather: false, recompute: "none", stage: "one"},
    "layer.*.attn wte": {split: {heads: 1, vocab: false}, layout: {}, stage: 0},
    "wte": {stage: "begins"}}' one.json >pinned.json
for plan in one set full embedded pinned; do
    weft-run --dry-run $plan.json >out 2>&1 && schema plan $plan.json
    ok $? "plan $plan: the program and the schema take it"
done
while read -r text; do
    write bad.json "{$head, $text}"
    weft-run --dry-run bad.json >out 2>&1
    [ $? -eq 3 ] && ! schema plan bad.json
    ok $? "plan with $text: the program and the schema refuse it"
done <<'END'
"stages": []
"stages": {}
"stages": [{"zero": 4}]
"stages": [{"ops": 3}]
"stages": [{"ops": ["layer..x"]}]
"stages": [{"mesh": "dp"}]
"stages": [{"mesh": "a:1 b:1 c:1 d:1 e:1 f:1 g:1"}]
"stages": [{"layout": {"dp": 1}}]
"stages": [{"except": [{"ops": "wte"}]}]
"stages": [{"except": [{"ops": "wte", "zero": 4}]}]
"stages": [{"except": [{"zero": 1}]}]
"stages": [{"recompute": 1}]
"stages": [{}], "micro_batch": 0
"stages": [{}], "schedule": "lifo"
"stages": [{}], "optimizer": "lamb"
"stages": [{}], "set": 3
"stages": [{}], "provenance": "me"
"stages": [{}], "pin": []
"stages": [{}], "pin": {"wte": 1}
"stages": [{}], "pin": {"micro_batch": "8"}
"stages": [{}], "pin": {"wte": {"split": {"vocab": 0}}}
"stages": [{}], "pin": {"wte": {"stage": "ends"}}
"stages": [{}], "pin": {"wte": {"recompute": "some"}}
END

# ---- the same keys: a program that meets an unknown one lists those that it knows -----------
expected_keys() { # expected_keys FILE: the keys that weft-run expects there
    weft-run --dry-run "$1" 2>&1 | sed -n 's/.*unknown key "zzz" (expected: \(.*\))$/\1/p' |
        tr ' ' '\n' | sort
}
same_keys() { # same_keys SCHEMA PATH FILE TEXT: PATH leads to "properties" in the schema
    expected_keys "$3" >known
    jq -r "$2 | keys[]" "$root/share/schemas/weft-$1.schema.json" | sort >listed
    [ -s known ] && diff known listed >out
    ok $? "$4: the program and the schema know the same keys"
}
jq '.zzz = 1' one.json >bad.json
same_keys plan '.properties' bad.json 'plan'
jq '.stages[0].zzz = 1' one.json >bad.json
same_keys plan '."$defs".stage.properties' bad.json 'stage'
jq '.stages[0].except = [{zzz: 1}]' one.json >bad.json
same_keys plan '."$defs".stage.properties.except.items.properties' bad.json 'exception'
jq '.pin = {"*": {zzz: 1}}' one.json >bad.json
same_keys plan '."$defs".pinned.properties' bad.json 'pin'
jq '.model.zzz = 1' embedded.json >bad.json
same_keys model '.properties' bad.json 'model'
jq '.model.inputs.image.zzz = 1' embedded.json >bad.json
same_keys model '.properties.inputs.additionalProperties.properties' bad.json 'input'
kinds() { # as the table of kinds has them
    sed -n 's/^    X([a-z_0-9]*, "\([a-z0-9-]*\)".*/\1/p' "$root/lib/model/kind.h"
}
kinds | while read -r kind; do # each kind has its own keys, the schema those of all
    jq --arg kind "$kind" '.model.ops[0] = {name: "x", kind: $kind, zzz: 1}' embedded.json >bad.json
    expected_keys bad.json
done | sort -u >known
jq -r '."$defs".op.properties | keys[]' "$root/share/schemas/weft-model.schema.json" | sort >listed
[ -s known ] && diff known listed >out
ok $? 'op: the kinds and the schema know the same keys'
jq '.model.ops[2].zzz = 1' embedded.json >bad.json
same_keys model '."$defs".block.properties' bad.json 'block'
jq '.model.ops[0].weight.zzz = 1' embedded.json >bad.json
expected_keys bad.json | grep -v '^init$' >known # accepted for now, and without effect
jq -r '."$defs".parameter.properties | keys[]' "$root/share/schemas/weft-model.schema.json" |
    sort >listed
diff known listed >out
ok $? 'parameter: the program and the schema know the same keys'
# The schema has all kinds of op.
kinds | sort -u >known # some have several forms
jq -r '."$defs".op.properties.kind.enum[]' "$root/share/schemas/weft-model.schema.json" |
    sort >listed
[ -s known ] && diff known listed >out
ok $? 'the schema has all kinds of op'
for format in plan prediction; do # and all schedules
    weft-plan -h | sed -n 's/.*--schedule NAME *\(.*\) (.*/\1/p' | tr -d ' ' | tr , '\n' | sort >known
    jq -r '.properties.schedule.enum[]' "$root/share/schemas/weft-$format.schema.json" | sort >listed
    [ -s known ] && diff known listed >out
    ok $? "the schema of a $format has all schedules"
done

# ---- what the tools write -------------------------------------------------------------------
write small.json "{$head, \"set\": \"layers=1,hidden=32,heads=2,seq=32\", \"stages\": [{}]}"
weft-run -q -n 1 --save ckpt small.json >out 2>&1 &&
    schema checkpoint ckpt/step-00000001/index.json
ok $? 'the index of a checkpoint validates'
size=(-m gpt:nano --set "layers=1,hidden=32,heads=2,seq=32" -p a.db)
weft-profile-op -q "${size[@]}" --max-devices 1 --micro-batch 8 --device a100 \
    --roofline 312T:1.5T:5us --links 'node:200G:5us cross:25G:10us' >out 2>&1 &&
    weft-predict -p a.db small.json >predicted.json 2>out && schema prediction predicted.json
ok $? 'a prediction validates'
echo '{"format": "weft-scenario/1", "jitter": 0.1, "hours": 100, "devices": [100], "stragglers": {"share": 0.1,
    "slower": 2}, "slow_links": [{"links": "cross", "speed": 0.5, "every_s": 60, "from_s": 1, "to_s": 2}],
    "failures": {"mtbf_hours": 5000, "restart_s": 10, "checkpoint_s": 3, "every_s": 600}}' >scenario.json
weft-predict -p a.db --scenario scenario.json small.json >predicted.json 2>out &&
    schema prediction predicted.json && schema scenario scenario.json
ok $? 'and one under a scenario, and that'
write cluster.json '{"format": "weft-cluster/1", "nodes": 1, "devices_per_node": 2,
    "memory": "28G", "flops": 1e12}'
weft-predict -p a.db --cluster cluster.json small.json >predicted.json 2>out &&
    schema prediction predicted.json && schema cluster cluster.json
ok $? 'a cluster file and the prediction for it validate'
jq '.zzz = 1' cluster.json >bad.json
weft-predict -p a.db --cluster ./bad.json small.json 2>&1 |
    sed -n 's/.*unknown key "zzz" (expected: \(.*\))$/\1/p' | tr ' ' '\n' | sort >known
jq -r '.oneOf[0].properties | keys[]' "$root/share/schemas/weft-cluster.schema.json" | sort >listed
[ -s known ] && diff known listed >out
ok $? 'cluster: the program and the schema know the same keys'
weft-search -q "${size[@]}" --devices 1 -b 8 --micro-batch 8 >found.json 2>out &&
    schema plan found.json
ok $? 'a plan that was searched validates'

echo "1..$n"
[ "$failed" -eq 0 ]

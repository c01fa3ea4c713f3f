#!/usr/bin/env bash
# Fine-tuning on prompts and answers: what weft-tokens --examples writes, what of it counts, under several
# plans; frozen parameters and adapters, whose losses are those of PyTorch and PEFT; multiple choice in
# HellaSwag's format, whose accuracy PyTorch finds by itself. Prints TAP; the programs are in $WEFT_BIN.
#   WEFT_PYTHON: a python3 with torch and transformers, for what is compared with them
#   ... and peft, for adapters
# Needs: jq mpirun python3
set -u
bin=${WEFT_BIN:?}
root=${WEFT_ROOT:?}
# shellcheck source=/dev/null
. "$(dirname "$0")/tap.bash"
# shellcheck source=tests/cli/tokenizer.bash
. "$WEFT_ROOT/tests/cli/tokenizer.bash"
n=0 failed=0
export ASAN_OPTIONS=detect_leaks=0 # Open MPI does not free all

byte_tokenizer >tokenizer.json
tokens() { # tokens ARGS...: leaves $status, out, err
    "$bin/weft-tokens" "$@" >out 2>err </dev/null
    status=$?
}
refuses() { # refuses STATUS PATTERN TEXT: what was run last
    [ "$status" -eq "$1" ] && [ ! -s out ] && grep -q ": error: .*$2" err
    ok $? "$3: $(grep -m1 ': error: ' err) (exit $status)"
}

# ---- the file ---------------------------------------------------------------------------------------
cat >examples.jsonl <<'END_LINES'
{"prompt": "the sky is ", "answer": "blue"}
{"prompt": "two and two are ", "answer": "four"}

{"prompt": "", "answer": "nothing before"}
{"answer": "2, then", "prompt": "1, then "}
END_LINES
tokens --examples 24 --end '<end>' -o examples.m32 tokenizer.json examples.jsonl
is "$status" 0 'examples are written'
# The same by python from the ids that each text has by itself: prompts and what is behind an answer masked.
cat >expect.py <<'END_PYTHON'
import json, subprocess, sys
def ids(text):
    out = subprocess.run([sys.argv[1], "tokenizer.json"], input=text, capture_output=True, text=True, check=True)
    return [int(i) for i in out.stdout.split()]
for line in open("examples.jsonl"):
    if line.strip():
        e = json.loads(line)
        prompt = [-i - 1 for i in ids(e["prompt"])] if e["prompt"] else []
        tokens = prompt + ids(e["answer"]) + [258]
        tokens[0] = -tokens[0] - 1 if tokens[0] >= 0 else tokens[0]
        print(*tokens, *[-1] * (24 - len(tokens)), sep="\n")
print(-1)
END_PYTHON
python3 expect.py "$bin/weft-tokens" >want 2>err
od -A n -v -t u4 -w4 examples.m32 | awk '{ print ($1 >= 2147483648 ? -($1 - 2147483648) - 1 : $1) }' >got
cmp -s want got
ok $? "prompts and padding are masked: $(grep -vc - got) of $(wc -l <got) tokens count"
answers=$(grep -vc - want)

tokens --examples 12 -o cut.m32 tokenizer.json examples.jsonl
grep -q '1 of 4 examples have more than 12 tokens' err || grep -q 'answer: nothing of it is among the first 12' err
ok $? "what is too long is said: $(head -1 err)"
printf '{"prompt": "a"}\n' >bad.jsonl
tokens --examples 12 -o bad.m32 tokenizer.json bad.jsonl
refuses 3 'bad.jsonl: line 1: .*answer' 'no answer'
printf '{"prompt": "a", "answer": "b"}\n{"prompt": "a", "answer": ""}\n' >bad.jsonl
tokens --examples 12 -o bad.m32 tokenizer.json bad.jsonl
refuses 3 'bad.jsonl: line 2: answer' 'an empty answer'
printf 'prompt\n' >bad.jsonl
tokens --examples 12 -o bad.m32 tokenizer.json bad.jsonl
refuses 3 'bad.jsonl: line 1' 'no JSON'
tokens --examples 12 -o bad.bin tokenizer.json examples.jsonl
refuses 2 '--examples: expected -o FILE.m32' 'another form of file'

# ---- training -----------------------------------------------------------------------------------------
cat >one.json <<'END_PLAN'
{"format": "weft-plan/1", "model": "gpt:nano", "set": "layers=1,hidden=32,heads=2,seq=24,vocab=259",
 "batch": 4, "stages": [{}]}
END_PLAN
jq '.micro_batch = 2 | .stages = [{mesh: "dp:2", layout: {dp: "batch"}, zero: 1}]' one.json >dp.json
jq '.stages = [{mesh: "sp:2", layout: {sp: ["seq", "heads", "vocab"]}}]' one.json >sp.json
jq '.micro_batch = 1 | .stages = [{ops: ["wte", "wpe", "layer.0"]}, {}]' one.json >pp.json
run() { # run RANKS PLAN ARGS...: leaves $status, out, err
    timeout 120 mpirun -n "$1" "$bin/weft-run" -q --threads 1 --data examples.m32 --validation 0 -n 6 --lr 0.01 \
        "${@:3}" "$2.json" >out 2>err </dev/null
    status=$?
}
run 1 one
cp out want
is "$(jq -s 'map(.targets) | unique | tostring' -r out)" "[$answers]" 'every answer counts once an epoch, and nothing else'
for plan in dp sp pp; do
    run 2 $plan
    jq -s --slurpfile want want 'length == 6 and ([., $want] | transpose
        | all((.[0].loss - .[1].loss | fabs) < 1e-5 * .[1].loss and .[0].targets == .[1].targets))' out |
        grep -q true
    ok $? "$plan: the same losses"
done
jq '.set = "layers=1,hidden=32,heads=2,seq=20,vocab=259"' one.json >short.json
run 1 short
refuses 3 'examples.m32: 97 masked tokens, expected examples of 20' 'examples of another length'
jq '.set = "layers=1,hidden=32,heads=2,seq=24,vocab=258"' one.json >few.json
run 1 few
refuses 3 'examples.m32: byte .*: token id 258' 'an id beyond the vocabulary'
# Cut between examples: one is for validation, three for training.
timeout 120 "$bin/weft-run" -q --threads 1 --data examples.m32 --validation 0.25 -n 3 --save ck \
    <(jq '.batch = 1' one.json) >out 2>err
last=$(jq -rs 'map(.targets) | add' out)
timeout 120 "$bin/weft-run" -q --threads 1 --data examples.m32 --validation 0.25 --eval --each --resume ck \
    <(jq '.batch = 1' one.json) >each 2>err
is "$((last + $(jq 'select(.targets) | .targets' each)))" "$answers" 'the two splits share the answers'
is "$(jq -s '.[0].valid_loss == .[1].valid_loss' each)" true 'one batch alone is all of the loss'

# ---- frozen parameters, adapters ---------------------------------------------------------------------
sizes=layers=2,hidden=32,heads=2,seq=16,vocab=64
import() { # import ARGS...: leaves $status, out, err
    "$bin/weft-import" "$@" >out 2>err </dev/null
    status=$?
}
import --set $sizes --freeze 'wte wpe layer.0' -o half.json gpt:nano
is "$status $(sed 's/weft-import: //' err)" \
    "0 gpt: 28032 parameters, 12768 of them trained, 25 ops in 2 blocks" 'half of a model is frozen'
import --set $sizes --lora 4:8 -o lora.json gpt:nano
is "$status $(jq -c '[.sizes.lora, .sizes.lora_alpha, .frozen[0:2]]' lora.json)" \
    '0 [4,8,["*","!layer.*.qkv_lora_a"]]' 'adapters beside all products of the blocks'
# shellcheck disable=SC2089,SC2090 # the quotes belong to messages
for bad in '--freeze layr|"layr" covers no parameter' '--freeze *|nothing that a loss depends on' \
    '--freeze 0x|expected a pattern' '--lora-on layer.*.fc1|--lora RANK' '--lora 0|RANK:ALPHA' \
    '--lora 4:|RANK:ALPHA' '--lora 4 --lora-on layer.*.ln1|"layer.*.ln1" covers no product' \
    '--lora 4 --lora-on layer.0.fc1|all instances of layer.*.fc1 or none, got 1 of 2'; do
    set -f
    # shellcheck disable=SC2086
    import ${bad%%|*} --set $sizes gpt:nano
    set +f
    refuses "$([[ $bad == *RANK* ]] && echo 2 || echo 3)" "${bad#*|}" "${bad%%|*}"
done
import --lora 2 ./lora.json
refuses 3 'has a size "lora" already' 'adapters of adapters'
"$bin/weft-plan" -q -m ./half.json -b 8 --to megatron >out 2>err
status=$?
refuses 3 'model.frozen: .*wte.weight' 'Megatron-LM is told of no frozen parameters'

# Numbers of 16 bits that have no master are saved as they are, and go on under another plan.
plan() { # plan MODEL DOCUMENT: the rest of the plan
    jq -n --slurpfile m "$1" "{format: \"weft-plan/1\", model: \$m[0], batch: 8, dtype: \"bf16\"} + $2"
}
for model in half lora; do
    plan $model.json '{stages: [{}]}' >one.json
    plan $model.json '{stages: [{mesh: "dp:2", layout: {dp: "batch"}, zero: 3}]}' >zero.json
    timeout 60 "$bin/weft-run" -q --threads 1 -n 6 --save whole one.json >want 2>err
    timeout 60 "$bin/weft-run" -q --threads 1 -n 6 --save part --save-every 3 --keep 0 one.json >out 2>err
    rm -r part/step-00000006
    timeout 60 mpirun -n 2 "$bin/weft-run" -q --threads 1 -n 6 --resume part zero.json >got 2>err
    is "$(jq -s --slurpfile want want '[., $want[3:]] | transpose | length == 3 and
        all(.[0].loss - .[1].loss | fabs < 0.01 * 5)' got)" true "$model in bf16 goes on under ZeRO 3"
    timeout 60 "$bin/weft-run" -q --threads 1 -n 6 --resume part one.json >got 2>err
    is "$(jq -s --slurpfile want want '[.[].loss] == [$want[3:][].loss]' got)" true 'and alone to the bit'
    is "$("$bin/weft-predict" --cluster cpu-2 one.json 2>err | jq .memory)" \
        "$(jq -s '.[0].bytes' want)" 'in as much memory as predicted'
    rm -r whole part
done

# ---- PyTorch -----------------------------------------------------------------------------------------
python=${WEFT_PYTHON:-python3}
if ! "$python" -c 'import torch, transformers' 2>/dev/null; then
    skip_rest 'losses and accuracy as PyTorch has them' 'no python3 with torch and transformers (WEFT_PYTHON)'
fi
"$python" "$root/scripts/compare-pytorch.py" --bin "$bin" --steps 6 gpt-masked gpt-lion llama-lion gpt-muon moe-muon >out 2>err
is "$? $(grep -c '^ok ' out)" '0 5' 'masked targets, Lion and Muon are as in PyTorch'
if "$python" -c 'import peft' 2>/dev/null; then
    "$python" "$root/scripts/compare-tuned.py" --bin "$bin" llama-half gpt2-biases llama-lora gpt2-lora >out 2>err
    is "$? $(grep -c 'alone .*e-0[789], ' out)" '0 4' 'frozen parameters as in PyTorch, adapters as in PEFT'
else
    skip 'frozen parameters as in PyTorch, adapters as in PEFT' 'no python3 with peft (WEFT_PYTHON)'
fi
cat >choices.py <<'END_PYTHON'
"""A model, questions, and what PyTorch makes of them, each ending by itself and unpadded."""
import json, os, random
os.environ["HF_HUB_OFFLINE"] = "1"
import torch, transformers
torch.manual_seed(3)
config = transformers.GPT2Config(vocab_size=259, n_positions=48, n_embd=32, n_layer=2, n_head=2)
model = transformers.GPT2LMHeadModel(config).eval()
for p in model.parameters():
    torch.nn.init.normal_(p, std=0.3)
model.save_pretrained("folder")
byte = {c: i for i, c in enumerate([*range(33, 127), *range(161, 173), *range(174, 256)])}
rest = [b for b in range(256) if b not in byte]
byte.update({b: 188 + i for i, b in enumerate(rest)})
rng, words = random.Random(4), "a cat sat on mats and saw dogs run by".split()
right = norm = 0
with open("questions.jsonl", "w") as f:
    for _ in range(20):
        ctx = " ".join(rng.choices(words, k=3))
        endings = [" ".join(rng.choices(words, k=rng.randint(1, 6))) for _ in range(4)]
        label, sums, means = rng.randrange(4), [], []
        f.write(json.dumps({"ctx": ctx, "endings": endings, "label": label}) + "\n")
        for e in endings:
            a, b = ([byte[x] for x in t.encode()] for t in (ctx, " " + e))
            with torch.no_grad():
                logits = model(torch.tensor([a + b])).logits[0, len(a) - 1:-1].double()
            loss = torch.nn.functional.cross_entropy(logits, torch.tensor(b), reduction="none")
            sums.append(loss.sum().item()), means.append(loss.mean().item())
        right += sums.index(min(sums)) == label
        norm += means.index(min(means)) == label
        print(json.dumps(sums))
print(json.dumps([right / 20, norm / 20]))
END_PYTHON
"$python" choices.py >want 2>err
cat >gpt2.json <<'END_PLAN'
{"format": "weft-plan/1", "model": "folder/config.json", "set": "seq=48", "batch": 8, "stages": [{}]}
END_PLAN
"$root/scripts/multiple-choice.py" --bin "$bin" --seq 48 --each tokenizer.json questions.jsonl gpt2.json folder \
    >out 2>err
is "$(tail -1 out | jq -c '[.accuracy, .accuracy_norm]')" "$(tail -1 want | jq -c .)" 'accuracy of 20 questions'
jq -n --slurpfile got out --slurpfile want want '[range(20)] | all(. as $i
    | [$got[$i].losses, $want[$i]] | transpose | all((.[0] - .[1] | fabs) < 1e-5 * .[1]))' | grep -q true
ok $? 'and what each of 80 endings is worth'
"$root/scripts/multiple-choice.py" --bin "$bin" --seq 48 tokenizer.json examples.jsonl gpt2.json folder >out 2>err
status=$?
[ $status -eq 3 ] && grep -q 'examples.jsonl: line 1: expected ctx' err
ok $? "no questions: $(cat err)"

echo "1..$n"
exit $((failed > 0))

#!/usr/bin/env bash
# weft-sample as a user runs it: prompts in, tokens out, one position after the other or many at once,
# and what is refused. Beside transformers where it is installed. Prints TAP; the programs are in
# $WEFT_BIN.
# Needs: jq
set -u
bin=${WEFT_BIN:?}
: "${WEFT_ROOT:?}"
# shellcheck source=/dev/null
. "$(dirname "$0")/tap.bash"
n=0 failed=0

train() { # train MODEL SET DATA STEPS: a checkpoint in the folder MODEL
    echo "{\"format\": \"weft-plan/1\", \"model\": \"$1:nano\", \"set\": \"$2\", \"batch\": 4, \"stages\": [{}]}" \
        >"$1.json"
    timeout 120 "$bin/weft-run" -q --threads 1 --data "$3" --validation 0 -n "$4" --lr 0.01 \
        --save "$1" "$1.json" >/dev/null 2>err </dev/null
    ok $? "a $1 to sample"
}
sample() { # sample ARGS...: leaves $status, out, err
    timeout 120 "$bin/weft-sample" --threads 1 "$@" >out 2>err
    status=$?
}
refuses() { # refuses STATUS PATTERN TEXT: what was run last
    [ "$status" -eq "$1" ] && [ ! -s out ] && grep -q "^weft-sample: error: .*$2" err
    ok $? "$3: $(grep -m1 ': error: ' err) (exit $status)"
}

# One sentence, over and over, is soon known by heart.
for _ in $(seq 40); do printf 'the cat sat on a mat; '; done >text
train gpt layers=2,hidden=48,heads=4,seq=128 text 20
train llama layers=2,hidden=48,heads=4,kv_heads=2,ffn=64,seq=128,vocab=256 text 120

# ---- text ---------------------------------------------------------------------------------------
sample --temperature 0 -n 22 -p 'the cat sat on a mat; the c' llama
is "$status $(cat out)" '0 the cat sat on a mat; the cat sat on a mat; the c' 'it writes what it was taught'
sample --json --temperature 0 -n 4 -p 'the cat s' llama
is "$(jq -c '[.prompt, .text, .tokens]' out)" '["the cat s","at o",[97,116,32,111]]' 'as JSON'
is "$(jq -c '.logprobs | [length, all(. < 0 and . > -0.7)]' out)" '[4,true]' \
    'each more probable than all others together'
printf 'the cat\nsat on a\n' >prompts
sample --temperature 0 -n 5 --prompts prompts llama
is "$(paste -sd'|' out)" 'the cat sat |sat on a mat;' 'several prompts'

# ---- the same, whatever the way -------------------------------------------------------------------
# 70 tokens, so that the longer prompts go through by 64 positions at once.
ids=$(head -c 70 text | od -An -v -tu1 | tr -s ' \n' ' ')
for model in gpt llama; do
    sample --ids --temperature 0 -n 50 $model <<<"$ids"
    whole=$(cat out)
    more=$(cut -d' ' -f1-20 <<<"$whole")
    sample --ids --temperature 0 -n 30 $model <<<"$ids $more"
    is "$(cat out)" "$(cut -d' ' -f21- <<<"$whole")" "$model: what was written is a prompt as good"
    { echo 116 104 101; echo "$ids"; echo 99,97,116; } >three
    sample --ids --seed 5 --temperature 2 -n 20 $model <three
    cp out together
    sample --ids --seed 5 --temperature 2 -n 20 --prompts <(head -1 three) $model
    is "$(cat out)" "$(head -1 together)" "$model: prompts side by side do not see each other"
done
# ---- positions that turn by another list in longer sequences -----------------------------------------
# Up to 16 positions are as in a model of 16, and longer ones as if all of them had been a prompt.
cat >config.json <<EOM
{"model_type": "phi3", "num_hidden_layers": 2, "hidden_size": 48, "intermediate_size": 64,
 "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256,
 "max_position_embeddings": 64, "original_max_position_embeddings": 16, "rope_scaling":
 {"type": "longrope", "short_factor": [1, 1.1, 1.2, 1.3, 1.4, 1.5],
  "long_factor": [1, 3, 6, 9, 12, 20]}}
EOM
"$bin/weft-import" -q config.json >phi.json
jq -n '{format: "weft-plan/1", model: "./phi.json", batch: 4, stages: [{}]}' >phi.plan.json
"$bin/weft-run" -q --threads 1 --data text --validation 0 -n 60 --lr 0.02 --save phi phi.plan.json \
    >/dev/null 2>err </dev/null
ok $? 'a phi3 to sample'
few=$(head -c 9 text | od -An -v -tu1 | tr -s ' \n' ' ')
sample --ids --temperature 0 -n 30 phi <<<"$few"
long=$(cat out)
mkdir bare
"$bin/weft-ckpt" export -q -o bare/model.safetensors phi 2>err
jq '.sizes.seq = 16' phi.json >phi16.json
sample --ids --temperature 0 -n 8 -m ./phi16.json bare/model.safetensors <<<"$few"
is "$status $(cat out)" "0 $(cut -d' ' -f1-8 <<<"$long")" 'as long as sequences are short, by the short list'
sample --ids --temperature 0 -n 22 phi <<<"$few $(cut -d' ' -f1-8 <<<"$long")"
is "$(cat out)" "$(cut -d' ' -f9- <<<"$long")" 'by the long list, from its first position on, where they are longer'
{ echo "$few"; head -c 40 text | od -An -v -tu1 | tr -s ' \n' ' ' | xargs; } >two
sample --ids --temperature 0 -n 24 phi <two
is "$(head -1 out)" "$(cut -d' ' -f1-24 <<<"$long")" 'beside a prompt that is long from its beginning'

# ---- choices ------------------------------------------------------------------------------------------
sample --ids --seed 6 --temperature 2 -n 20 llama <three
cmp -s out together
ok $((1 - $?)) 'another seed writes something else'
sample --ids --seed 5 --temperature 2 -n 20 llama <three
cmp out together
ok $? 'the same seed the same'
sample --ids --temperature 1 --top-k 1 -n 50 llama <<<"$ids"
is "$(cat out)" "$whole" 'top-k 1 is greedy'
sample --ids --temperature 0 -n 50 --stop 59 llama <<<"$ids"
is "$(cat out)" "${whole%% 59*}" 'it stops before a token'
sample --ids --temperature 0 -n 50 --dtype bf16 llama <<<"$ids"
is "$(cat out)" "$whole" 'and knows it in bf16'
"$bin/weft-ckpt" export -q -o folder llama 2>err
sample --ids --temperature 0 -n 50 folder <<<"$ids"
is "$(cat out)" "$whole" 'out of a folder with a config.json'
sample --ids --temperature 0 -n 50 folder/model.safetensors <<<"$ids"
is "$(cat out)" "$whole" 'and out of the file'

# ---- with a tokenizer ------------------------------------------------------------------------------
jq '.[0].tokenizer' "$WEFT_ROOT/tests/tokens/cases.json" >tokenizer.json
"$bin/weft-tokens" -o text.bin tokenizer.json text 2>err
train qwen3 layers=1,hidden=48,heads=4,kv_heads=2,kv=12,ffn=64,seq=64,vocab=512 text.bin 100
printf 'the cat\nsat on a\n' >prompts
while read -r line; do printf '%s' "$line" | "$bin/weft-tokens" tokenizer.json; done <prompts >ids
sample --ids --temperature 3 --seed 4 -n 24 qwen3 <ids
cp out new
while read -r line && read -r more <&3; do
    printf '%s' "$line"
    # Ids that the tokenizer has not are written as nothing.
    tr ' ' '\n' <<<"$more" | awk -v n="$(jq '[.model.vocab[], .added_tokens[].id] | max' tokenizer.json)" '$1 <= n' |
        "$bin/weft-tokens" --decode tokenizer.json | iconv -f UTF-8 -t UTF-8 -c
    echo
done <prompts 3<new >want
sample --tokenizer tokenizer.json --temperature 3 --seed 4 -n 24 --prompts prompts qwen3
sed -i 's/\xef\xbf\xbd//g' out
[ "$status" -eq 0 ] && cmp out want
ok $? 'texts by a tokenizer are those of ids'
jq '.post_processor = {type: "TemplateProcessing",
    single: [{SpecialToken: {id: "s"}}, {Sequence: {id: "A"}}, {SpecialToken: {id: "e"}}],
    special_tokens: {s: {id: "s", ids: [5], tokens: []}, e: {id: "e", ids: [7, 6], tokens: []}}}' \
    tokenizer.json >around.json
sed 's/^/5 /; s/$/ 7 6/' ids >ids-around
sample --ids --json --temperature 0 -n 8 qwen3 <ids-around
jq -c .tokens out >want
sample --tokenizer around.json --json --temperature 0 -n 8 --prompts prompts qwen3
is "$(jq -c .tokens out)" "$(cat want)" 'prompts have around them what the post-processor puts there'
sample --ids --json --temperature 0 -n 8 qwen3 <ids
jq -c .tokens out >want
sample --tokenizer around.json --no-special --json --temperature 0 -n 8 --prompts prompts qwen3
is "$(jq -c .tokens out)" "$(cat want)" 'and nothing with --no-special'
jq '.post_processor.type = "Other"' around.json >other.json
sample --tokenizer other.json -p x qwen3
is "$status $(grep -c 'other.json: post_processor.*Other' err)" '3 1' 'another one is named'
sample --tokenizer tokenizer.json --temperature 0 -n 8 -p 'the cat sat' qwen3
is "$status $(head -c 21 out)" '0 the cat sat on a mat;' 'a tokenizer: what it was taught, as it comes'
cp out want
sample --json --tokenizer tokenizer.json --temperature 0 -n 8 -p 'the cat sat' qwen3
is "$(jq -r '.prompt + .text' out)" "$(cat want)" 'and as JSON'
sample -p a qwen3
refuses 3 'the model has 512 tokens' 'text without a tokenizer'
sample -p a --ids --tokenizer tokenizer.json qwen3
refuses 2 'tokenizer and --ids exclude each other' 'a tokenizer for ids'
sample -p a --tokenizer text qwen3
refuses 3 'text' 'a tokenizer that is none'
sample -p 'the cat' --tokenizer tokenizer.json gpt
refuses 3 'prompt: token [0-9]*: expected 0 to 255' 'a tokenizer of another model'

# A model of sentencepiece: blanks are parts of tokens, and the first of a text has none.
piece() { jq ".[] | select(.name == \"$1\").tokenizer" "$WEFT_ROOT/tests/tokens/sentences.json"; }
piece llama2 >pieces.json
"$bin/weft-tokens" -o pieces.bin pieces.json text 2>err
train mistral layers=1,hidden=48,heads=4,kv_heads=2,ffn=64,seq=64,vocab=800 pieces.bin 100
sample --tokenizer pieces.json --temperature 0 -n 20 -p 'the cat sat' mistral
is "$status $(head -c 30 out)" '0 the cat sat on a mat; the cat ' 'pieces that begin with a blank'

# ---- with an encoder --------------------------------------------------------------------------------
train t5 layers=1,hidden=32,heads=2,kv=16,ffn=48,seq=64,target_seq=32,vocab=705 "$WEFT_ROOT/LICENSE" 2
printf '5 6 7\n9 9 9 9 9 9 9 9 9 9\n' >pairs
sample --ids --temperature 0 -n 12 t5 <pairs
cp out together
sample --ids --temperature 0 -n 12 t5 <<<'5 6 7'
is "$status $(cat out)" "0 $(head -1 together)" 'T5: padding of a shorter input changes nothing'
piece t5 >pieces.json
printf 'the cat sat</s>' | "$bin/weft-tokens" pieces.json >ids
sample --ids --temperature 1.5 --seed 3 -n 12 t5 <ids
"$bin/weft-tokens" --decode pieces.json <out >want
sample --json --tokenizer pieces.json --temperature 1.5 --seed 3 -n 12 -p 'the cat sat</s>' t5
is "$status $(jq -r .text out)" "0 $(cat want)" 'T5: what it writes is a text of its own'

# ---- what is refused ----------------------------------------------------------------------------------
sample -n 130 -p a gpt
refuses 3 'seq: 130 positions are wanted, and the model has 128' 'more than the model has'
sample -n 2 --ids gpt <<<'3 256'
refuses 3 'standard input: line 1: token 256: expected 0 to 255' 'a token that there is not'
sample -n 2 --ids gpt <<<'3 x'
refuses 3 'line 1: expected token ids, got "x"' 'no number'
sample -n 2 gpt </dev/null
refuses 3 'standard input: no prompt' 'no prompt'
sample -n 2 gpt <<<""
refuses 3 'line 1: expected at least one token' 'an empty one'
sample -p a --top-p 0 gpt
refuses 2 'top-p: ' 'no probability'
sample -p a --dtype int8 gpt
refuses 2 'dtype: ' 'no type'
sample -p a
refuses 2 'expected a checkpoint' 'nothing to sample'
sample -p a nowhere
refuses 3 'nowhere' 'no checkpoint'
sample -p a -m llama:nano gpt
refuses 3 'gpt' 'a checkpoint of another model'
cat >resnet.json <<'EOM'
{"format": "weft-plan/1", "model": "wide-resnet:nano", "batch": 4, "stages": [{}]}
EOM
"$bin/weft-run" -q --threads 1 -n 1 --save resnet resnet.json >/dev/null 2>err
sample --ids resnet <<<1
refuses 3 'no input is a sequence of tokens' 'a model of images'

# ---- beside transformers --------------------------------------------------------------------------------
python=${WEFT_PYTHON:-python3}
if "$python" -c 'import torch, transformers' 2>/dev/null; then
    "$python" "$WEFT_ROOT/scripts/compare-generate.py" --bin "$bin" --prompts 3 \
        gpt2 llama qwen3 t5 >out 2>err
    ok $? "greedy as transformers: $(paste -sd' ' out)"
else
    skip 'greedy as transformers' 'not installed: torch, transformers'
fi
echo "1..$n"
exit $((failed > 0))

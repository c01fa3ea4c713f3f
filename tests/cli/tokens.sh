#!/usr/bin/env bash
# weft-tokens as a user runs it: the ids that Hugging Face's tokenizers gave (tests/tokens, written by
# scripts/compare-tokens.py), files that weft-run reads, text out of ids, and what is refused. Prints
# TAP; the programs are in $WEFT_BIN.
# Needs: jq
set -u
bin=${WEFT_BIN:?}
# shellcheck source=/dev/null
. "$(dirname "$0")/tap.bash"
n=0 failed=0
tokens=${WEFT_ROOT:?}/tests/tokens

run() { # run ARGS...: leaves $status, out, err
    "$bin/weft-tokens" "$@" >out 2>err </dev/null
    status=$?
}
refuses() { # refuses STATUS PATTERN TEXT: what was run last
    [ "$status" -eq "$1" ] && [ ! -s out ] && grep -q "^weft-tokens: error: .*$2" err
    ok $? "$3: $(grep -m1 ': error: ' err) (exit $status)"
}
numbers() { # numbers FILE TYPE SKIP: od on one line
    od -A n -v -t "$2" -j "$3" -w4096 "$1" | xargs
}

# ---- the same ids ---------------------------------------------------------------------------------
write_texts() { # write_texts FILTER FILE PREFIX: each into a file of its own, which $files lists
    local line
    files=()
    while read -r line; do
        files+=("$3${#files[@]}.txt")
        base64 -d <<<"$line" >"${files[-1]}"
    done < <(jq -r "$1 | @base64" "$2")
}
same_ids() { # same_ids CASES: of all tokenizers of a file
    local i k name texts decoded
    for ((i = 0; i < $(jq length "$1"); i++)); do
        jq ".[$i]" "$1" >case
        name=$(jq -r .name case)
        jq .tokenizer case >"$name.json"
        jq 'del(.tokenizer)' case >texts
        texts=$(jq '.texts | length' texts)
        decoded=$(jq '[.texts[:5][] | select(.decoded)] | length | if . == 0 then 1 else . end' texts)
        write_texts .texts[].text texts ''
        run "$name.json" "${files[@]}"
        jq -r '.texts[].ids | map(tostring) | join(" ")' texts >want
        [ "$status" -eq 0 ] && cmp -s out want
        ok $? "$name: the ids of $texts texts"
        for ((k = 0; k < decoded; k++)); do
            jq -j ".texts[$k] | .decoded // .text" texts >decoded
            sed -n "$((k + 1))p" want | "$bin/weft-tokens" --decode "$name.json" >text 2>err
            [ "$name" != gpt2-prefix ] || sed -i '1s/^ //' text
            cmp -s text decoded || break
        done
        [ "$k" -eq "$decoded" ]
        ok $? "$name: and the text of ids"
    done
}
same_ids "$tokens/sentences.json"
same_ids "$tokens/cases.json"

# ---- merges as strings -----------------------------------------------------------------------------
jq '.model.merges |= map(if type == "array" then join(" ") else . end)' llama3.json >strings.json
run llama3.json 0.txt 3.txt
cp out want
run strings.json 0.txt 3.txt
[ "$status" -eq 0 ] && cmp -s out want
ok $? 'merges as strings are the same as pairs'

# ---- files ---------------------------------------------------------------------------------------
printf 'Hello world' >a.txt
printf 'one two three' >b.txt
end=$(jq '.added_tokens[] | select(.content == "<|endoftext|>").id' gpt2.json)
run --end '<|endoftext|>' gpt2.json a.txt b.txt
is "$(awk '{ print $NF }' out | xargs)" "$end $end" 'a token behind each document'
all=$(xargs <out) first=$(sed -n 1p out | wc -w) second=$(sed -n 2p out | wc -w)
run --end '<|endoftext|>' -o train.bin gpt2.json a.txt b.txt
is "$status $(numbers train.bin d4 0 | cut -d' ' -f1-3)" "0 20240520 1 $((first + second))" "llm.c's header"
is "$(numbers train.bin u2 1024)" "$all" "llm.c's tokens"
run --end '<|endoftext|>' -o set.idx gpt2.json a.txt b.txt
is "$(numbers set.bin u2 0)" "$all" "Megatron's tokens"
is "$(numbers set.idx d4 34)" \
    "$first $second 0 0 $((2 * first)) 0 0 0 1 0 2 0" "Megatron's lengths, places and documents"
# 70,000 ids do not fit 16 bits.
jq '.added_tokens += [{id: 69999, content: "<far>", special: true}]' gpt2.json >wide.json
printf 'a<far>' >far.txt
run -o wide.bin wide.json far.txt
is "$(numbers wide.bin d4 0 | cut -d' ' -f1-3) $(numbers wide.bin u4 1024 | cut -d' ' -f2)" \
    '20240801 7 2 69999' 'a large vocabulary has 32 bits'

run --raw --end '<|endoftext|>' -o raw.bin gpt2.json a.txt b.txt
is "$status $(numbers raw.bin u2 0)" "0 $all" "nanoGPT's tokens"
run --end '<|endoftext|>' -o raw.u32 gpt2.json a.txt b.txt
is "$status $(numbers raw.u32 u4 0)" "0 $all" 'tokens of 32 bits'

# ---- what a post-processor puts around -----------------------------------------------------------------
around() { # around POST-PROCESSOR: what --special puts before and behind the two documents
    jq --argjson post "$1" '.post_processor = $post' gpt2.json >post.json
    run --special post.json a.txt b.txt
}
"$bin/weft-tokens" gpt2.json a.txt b.txt >bare
template='{type: "TemplateProcessing", special_tokens: {s: {id: "s", ids: [5, 6], tokens: []},
    e: {id: "e", ids: [7], tokens: []}}, single: ["s", null, "e", "e"] | map(if . then {SpecialToken: {id: ., type_id: 0}}
    else {Sequence: {id: "A", type_id: 0}} end)}'
around "$(jq -n "$template")"
sed 's/.*/5 6 & 7 7/' bare | cmp -s - out
ok $? 'a template: its tokens before and behind each document'
around '{"type": "RobertaProcessing", "cls": ["<s>", 3], "sep": ["</s>", 4], "trim_offsets": true}'
sed 's/.*/3 & 4/' bare | cmp -s - out
ok $? 'classes before, separators behind'
around "$(jq -n "{type: \"Sequence\", processors: [{type: \"BertProcessing\", cls: [\"a\", 3], sep: [\"b\", 4]}, $template,
    {type: \"ByteLevel\"}]}")"
sed 's/.*/5 6 3 & 4 7 7/' bare | cmp -s - out
ok $? 'of a sequence the later ones around'
run --special --begin '<|endoftext|>' --end '<|endoftext|>' post.json a.txt b.txt
sed "s/.*/$end 5 6 3 & 4 7 7 $end/" bare | cmp -s - out
ok $? 'tokens that are named, around all'
jq 'del(.post_processor)' gpt2.json >plain.json
run --special plain.json a.txt
cp out special.out
run plain.json a.txt
cmp -s out special.out
ok $? 'without a post-processor nothing is put around a text'
around '{"type": "Other"}'
refuses 3 'post_processor.type: .*Other' 'another post-processor'
around '{"type": "BertProcessing", "cls": ["a", 3], "sep": ["b", 999999]}'
refuses 3 'post_processor.sep\[1\]: ' 'a token that there is not'
around "$(jq -n "$template | .single |= .[:1]")"
refuses 3 'post_processor.single: ' 'a template without the text'
run --special --decode gpt2.json ids
refuses 2 '--decode excludes' 'special tokens around ids'

# ---- documents in lines, packed -----------------------------------------------------------------------
letters() { jq -nc --arg t "$1" '{url: "u", text: $t}'; }
{ letters '#$%()*+-/<=' && echo && letters '#$' && letters '#' && letters '(((((' && letters ')))'; } >lines.jsonl
run --lines text llama3.json lines.jsonl
is "$status $(wc -l <out)" '0 5' 'a document in each line'
run --lines text --pack 8 -o packed.m32 llama3.json lines.jsonl
is "$status $(grep -o '5 documents in [0-9]* sequences of 8' err)" "0 5 documents in $(($(stat -c %s packed.m32) / 32)) sequences of 8" \
    'documents packed into sequences'
"$bin/weft-tokens" --lines text llama3.json lines.jsonl >ids
# What stands in a sequence, from a masked token on: a document each, and ids 0 of padding.
numbers packed.m32 d4 0 | awk '{ for (i = 1; i < NF; i++) {
    if ((i - 1) % 8 == 0) print ""; if ($i < 0) { printf "\n%d", $i + 2147483648 } else printf " %d", $i } }' |
    grep -v '^0*$' | sort >got
awk 'NF > 8 { for (i = 1; i <= NF; i++) printf "%s%s", $i, i % 8 == 0 || i == NF ? "\n" : " "; next } { print }' ids |
    awk 'NF > 1' | sort >want
cmp -s got want
ok $? 'each whole, from its first token, which is no target'
echo '{"txt": "a"}' >bad.jsonl
run --lines text gpt2.json bad.jsonl
refuses 3 'bad.jsonl: line 1: text' 'a line without the key'
run --pack 8 -o packed.bin gpt2.json a.txt
refuses 2 '--pack: ' 'packing into another file'
run --raw -o raw.bin wide.json far.txt
refuses 3 '--raw: ' 'ids of more than 16 bits for nanoGPT'

# ---- training -------------------------------------------------------------------------------------
trained=$tokens/trained.json
write_texts .texts[] "$trained" t
run --train "$(jq .vocab "$trained")" --end '<|endoftext|>' "${files[@]}"
jq -S .tokenizer "$trained" >want
[ "$status" -eq 0 ] && jq -S . out | cmp -s - want
ok $? 'training learns the same tokenizer'
run --train 300 -o own.json "${files[@]}"
"$bin/weft-tokens" own.json a.txt | "$bin/weft-tokens" --decode own.json >out
is "$status $(cat out)" "0 $(cat a.txt)" 'a tokenizer of its own is read'
run --train 100 a.txt
refuses 2 '--train: ' 'too few tokens for the bytes'
run --train 300 --decode a.txt
refuses 2 '--train excludes' 'training and decoding'

# ---- what is refused ---------------------------------------------------------------------------------
changed() { # changed FILTER PATTERN TEXT [TOKENIZER]
    jq "$1" "${4-llama3}.json" >bad.json
    run bad.json a.txt
    refuses 3 "bad.json: $2" "$3"
}
changed '.normalizer = {type: "NFKC"}' 'normalizer.type: .*NFKC' 'another normalizer'
changed '.model.type = "Unigram"' 'model.type: .*Unigram' 'another kind of model'
changed '.model.dropout = 0.1' 'model.dropout: ' 'dropout'
changed '.model.byte_fallback = true' 'model.byte_fallback: ' 'bytes as a last resort'
changed '.model.merges[2] = "nothing"' 'model.merges\[2\]' 'a merge that is none'
changed '.model.merges[2] = ["a", "!!!!!"]' 'model.merges\[2\]' 'a merge of no token'
changed 'del(.model.vocab["a"])' 'model.vocab: .*0x61' 'a byte without a token'
changed '.pre_tokenizer.pretokenizers[0].pattern.Regex = "."' \
    'pre_tokenizer.pretokenizers\[0\].pattern.Regex: ' 'another pattern'
changed '.pre_tokenizer.type = "Digits"' 'pre_tokenizer.type: .*Digits' 'another pre-tokenizer'
changed '.added_tokens[0].single_word = true' 'added_tokens\[0\].single_word: ' 'a token that is a word'
changed '.added_tokens[1].id = 3' 'added_tokens\[1\].id: ' 'two tokens of one id'
changed '.other = 1' '.*other' 'an unknown key'
changed '.normalizer.normalizers[1].type = "Lowercase"' 'normalizer.normalizers\[1\].type: .*Lowercase' \
    'another step of a normalizer' llama2
changed '.model.unk_token = "<none>"' 'model.unk_token: .*<none>' 'an unknown token that is none' llama2
changed '.decoder.decoders[0].content = "_"' 'decoder.decoders\[0\].pattern' 'another replacement' llama2
changed '.decoder.decoders |= del(.[2])' 'decoder.decoders\[2\].content: .*Fuse' 'a blank of each token' llama2
changed '.decoder = null' 'decoder.type: ' 'no decoder' llama2
changed '.pre_tokenizer.pattern.String = "a"' 'pre_tokenizer.pattern.String: ' 'a split at letters' gemma
changed '.normalizer.precompiled_charsmap = "AAAA"' 'normalizer.precompiled_charsmap: ' 'an empty map' t5
changed '.normalizer.precompiled_charsmap |= .[:-4] + "!!!!"' 'normalizer.precompiled_charsmap: ' \
    'a map that is no base64' t5
changed '.pre_tokenizer.pretokenizers[1].replacement = "_"' \
    'pre_tokenizer.pretokenizers\[1\].replacement: ' 'another mark' t5
changed '.pre_tokenizer.pretokenizers[1].prepend_scheme = "last"' \
    'pre_tokenizer.pretokenizers\[1\].prepend_scheme: .*last' 'another scheme' t5
changed '.model.unk_id = null' 'model.unk_id: ' 'no unknown token' t5
changed '.model.vocab[3] = ["a"]' 'model.vocab\[3\]: ' 'a piece without a score' t5
changed '.model.vocab[4] = .model.vocab[3]' 'model.vocab\[4\]: ' 'a piece twice' t5
printf 'ab\377' >latin.txt
run gpt2.json latin.txt
refuses 3 'latin.txt: byte 2: ' 'text that is not UTF-8'
echo '5 99999' >ids
run --decode gpt2.json ids
[ "$status" -eq 3 ] && grep -q 'ids: byte 2: token 99999' err
ok $? 'an id that is none'
run --end '<none>' gpt2.json a.txt
refuses 3 '--end: .*<none>' 'a token that is not added'
run -o file.txt gpt2.json a.txt
refuses 2 'FILE.bin' 'a name that says no format'
run
refuses 2 'tokenizer.json' 'no tokenizer'
echo "1..$n"
exit $((failed > 0))

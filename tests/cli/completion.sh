#!/usr/bin/env bash
# Bash completion: what a word is completed to, with the programs in $WEFT_BIN. Prints TAP.
# Needs: jq
set -u
root=${WEFT_ROOT:?}
export PATH="${WEFT_BIN:?}:$PATH"
# shellcheck source=tests/cli/tap.bash
. "$(dirname "$0")/tap.bash"
n=0 failed=0
touch plan.json other.json text.txt profile.db
mkdir folder

# shellcheck source=/dev/null
source "$root/share/completions/weft.bash"

complete_line() { # complete_line LINE: the answers, as bash would ask for them
    local line=$1
    COMP_LINE=$line COMP_POINT=${#line} COMPREPLY=()
    _weft "${line%% *}" '' ''
    printf '%s\n' "${COMPREPLY[@]}" | sort | tr '\n' ' ' | sed 's/ $//'
}
is() { # is LINE WANTED
    local got
    got=$(complete_line "$1")
    [ "$got" = "$2" ]
    ok $? "\"$1\" gives \"$got\""
}
offers() { # offers LINE WORD...: among others
    local line=$1 got word
    shift
    got=" $(complete_line "$line") "
    for word in "$@"; do
        [[ $got == *" $word "* ]]
        ok $? "\"$line\" offers $word"
    done
}

is 'weft-run --valid-b' '--valid-batches'
offers 'weft-run -' -d --data --dry-run -h --help --version
is 'weft-run pl' 'plan.json'
is 'weft-run ' 'folder other.json plan.json'
is 'weft-run --save ' 'folder'
offers 'weft-run --data ' synthetic text.txt
is 'weft-run --data text.txt,pl' 'text.txt,plan.json'
is 'weft-run -d syn' 'synthetic'
is 'weft-run --dry-run oth' 'other.json'
COMP_WORDBREAKS=$' \t\n"\'><=;|&(:'
is 'weft-run --resume=fo' 'folder'
COMP_WORDBREAKS=$' \t\n"\'><;|&('
is 'weft-run --resume=fo' '--resume=folder'
is 'weft-run --trace pl' 'plan.json'
is 'weft-run --steps ' ''
is 'weft-profile-op -m gpt-q' 'gpt-qkv gpt-qkv:1.3B gpt-qkv:13B gpt-qkv:2.6B gpt-qkv:350M gpt-qkv:6.7B gpt-qkv:gpt2 gpt-qkv:nano'
COMP_WORDBREAKS=$' \t\n"\'><=;|&(:'
is 'weft-profile-op -m gpt:n' 'nano'
is 'weft-profile-op --model=gpt:n' 'nano'
COMP_WORDBREAKS=$' \t\n"\'><;|&('
is 'weft-profile-op -m gpt:n' 'gpt:nano'
is 'weft-profile-op -m ./pl' './plan.json'
is 'weft-profile-op -p ' 'folder profile.db'
is 'weft-profile-op -m gpt:nano --set la' 'layers='
is 'weft-profile-op -m mlp --set layers=2,hid' 'layers=2,hidden='
is 'weft-predict --trace-ranks ' 'all first'
offers 'weft-predict --cluster ' cpu-2 v100-4x8 plan.json
is 'weft-search --optimizer ' 'adamw lion muon sgd'
# shellcheck disable=SC2046
offers 'weft-search --algorithm ' $(sed -n 's/^ *X([a-z_]*, "\([a-z-]*\)".*/\1/p' "$WEFT_ROOT/lib/search/algorithms/algorithms.h")
offers 'weft-search -' -m --model -p --profile
is 'weft-solve ' 'joint layout partition stages'
is 'weft-solve stages pl' 'plan.json'
is 'weft-ckpt ' 'export list'
is 'weft-ckpt list fo' 'folder'
is 'weft-import pl' 'plan.json'
is 'weft-tokens pl' 'plan.json'
is 'weft-tokens plan.json te' 'text.txt'
is 'weft-tokens --train 300 te' 'text.txt'
offers 'weft-tokens -' --ids --output --end --decode --train
is 'weft-sample fo' 'folder'
is 'weft-sample --dtype ' 'bf16 fp16 fp32'
is 'weft-plan --recompute ' 'full none selective'
is 'weft-plan --schedule i' 'interleaved'
is 'weft-search --schedule 1f1b,g' '1f1b,gpipe'
is 'weft-search --schedule gpipe,g' ''
is 'weft-plan --offload optimizer,' 'optimizer,activations optimizer,parameters'
is 'weft-plan --reduce b' 'bf16'
is 'weft-profile-op --dtype ' 'bf16 fp16 fp32'
is 'weft-run --non-finite ' 'skip stop'
is 'weft-run --device ' 'cpu cuda'
is 'weft-profile-op --device c' 'cuda'
is 'weft-run --seed ' ''
is 'weft-plan --zero ' ''
is 'weft-plan --d' '--dp --dtype'
is 'weft-search pl' ''
is 'weft-profile-op ' ''
is 'weft-plan --from ' 'aceso deepspeed megatron torchtitan'
is 'weft-plan --to t' 'torchtitan'
is 'weft-search --for d' 'deepspeed'
is 'weft-search --from pl' 'plan.json'
is 'weft-plan --show oth' 'other.json'
is 'weft-run --init fo' 'folder'
for main in "$root"/tools/*/weft-*.c; do
    tool=$(basename "$main" .c)
    complete -p "$tool" >/dev/null 2>&1
    ok $? "$tool has a completion"
done

echo "1..$n"
[ "$failed" -eq 0 ]

#!/usr/bin/env bash
# Memory against the published formulas: scripts/memory.sh, whose table of layers accounts for every
# byte, and its first stages of whole models; and temporaries of T5. Prints TAP; the programs are in $WEFT_BIN.
# Needs: jq
set -u
# shellcheck source=/dev/null
. "$(dirname "$0")/tap.bash"
n=0 failed=0

bash "${WEFT_ROOT:?}/scripts/memory.sh" "${WEFT_BIN:?}" >table 2>err
ok $? 'what lies between the formulas and weft accounts for the difference, to the byte'
sed '/^$/q' table | sed '1d;$d' >layers
sed '1,/^$/d' table | sed 1d >stages
is "$(wc -l <layers)" 28 'layers: four sizes of GPT and three of Llama, split and recomputed in four ways'
is "$(wc -l <stages)" 15 'first stages: five models, recomputed in three ways'

each() { # each CONDITION TEXT: of P, recompute, formula, expected, weft, and state's formula and weft
    awk "{ p = \$2; formula = \$4; expected = \$5; weft = \$6; want = \$7; state = \$8
           if (!($1)) { print; bad = 1 } } END { exit bad }" stages >out
    ok $? "$2"
}
# With one stage the loss is in it too: its rows, and what the embedding hands on.
each 'weft >= expected && weft <= expected * 1.005 + (p == 1 ? 0.07 : 0)' \
    'the first stage keeps what its layers keep, and little more'
each 'weft <= formula || p == 1' 'which is no more than the formula says'
# Positions and the last norm, which the formula leaves out.
each 'state >= want && state <= want * 1.004' 'parameters, gradients and optimizer as the formula says'

# The gradient of what many ops read, such as an encoder's output, is summed as its parts come.
temporaries() { # temporaries LAYERS: bytes
    "$WEFT_BIN/weft-plan" -q -m t5:770M --set "layers=$1" -b 8 --micro-batch 8 --cluster h100-8 --dp 1 2>>err |
        "$WEFT_BIN/weft-predict" -q --cluster h100-8 - 2>>err | jq '.stages[0].memory.temporaries'
}
is "$(temporaries 8)" "$(temporaries 4)" 'temporaries of T5 do not grow with its layers'

echo "1..$n"
[ $failed -eq 0 ]

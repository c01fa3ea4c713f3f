# tokenizer.bash - a tokenizer for tests, source it: bytes are tokens 0 to 255, but for the first; "th" and
# "the" are 256 and 257, and 258 ends a document.
# shellcheck shell=bash
byte_tokenizer() { # byte_tokenizer >tokenizer.json
    jq -n '([range(33; 127), range(161; 173), range(174; 256), range(256; 324)] | map([.] | implode)) + ["th", "the"]
        | {pre_tokenizer: {type: "ByteLevel", add_prefix_space: false},
           added_tokens: [{id: 258, content: "<end>", special: true}],
           model: {type: "BPE", merges: [["t", "h"], ["th", "e"]], vocab: with_entries({key: .value, value: .key})}}'
}

# Bash completion for the tools of weft. Options, the kinds of their arguments and the words that they
# may be ("adamw or sgd") are read from what `TOOL -h` prints, so they are always those of the
# installed program; models, presets and clusters from the shipped files.
#
#     source share/completions/weft.bash

# The lines of "-h": "-d, --data SOURCE   text" becomes "-d --data SOURCE text".
_weft_options() { # _weft_options TOOL
    "$1" -h 2>/dev/null | sed -n 's/\[=[A-Z]*\]/ /; s/^ *-\([A-Za-z]\), --/ -\1 --/p; s/^ *--/ - --/p'
}

# The words of "none, selective or full (none)" and of "kept by the host: optimizer, parameters,
# activations (none)", if the line of an option lists some.
_weft_words() { # _weft_words LINE
    local help words
    read -r _ _ _ help <<<"$1" # behind "-d --data SOURCE"
    help=${help#*: }
    help=${help%% (*}
    words=$(sed -n 's/,* or /, /; s/^\([a-z0-9-]*\(, [a-z0-9-]*\)\{1,\}\)$/\1/p' <<<"$help")
    printf '%s' "${words//,/}"
}

# The same for a list: words that are not in it yet, behind those that are.
_weft_list() { # _weft_list CURRENT WORDS
    local last=${1##*,} before word
    before=${1%"$last"}
    for word in $2; do
        [[ $word == "$last"* && ,$before != *,$word,* ]] && printf '%s\n' "$before$word"
    done
}

# The shipped folder of this name, beside the program or as installed.
_weft_share() { # _weft_share TOOL FOLDER
    local program place
    program=$(readlink -f "$(type -P "$1")") || return
    for _ in 1 2 3 4 5; do
        program=${program%/*}
        for place in share share/weft; do
            if [ -d "$program/$place/$2" ]; then
                echo "$program/$place/$2"
                return
            fi
        done
    done
}

# "gpt gpt:nano gpt:gpt2 ...". Presets stand in the object "presets".
_weft_models() { # _weft_models TOOL
    local folder file name
    folder=$(_weft_share "$1" models)
    [ -n "$folder" ] || return
    for file in "$folder"/*.json; do
        name=${file##*/}
        name=${name%.json}
        echo "$name"
        sed -n '/"presets"/,/^  }/{ s/^    "\([^"]*\)": *{.*/\1/p; }' "$file" |
            sed "s/^/$name:/"
    done
}

_weft_clusters() { # _weft_clusters TOOL
    local folder file
    folder=$(_weft_share "$1" clusters)
    [ -n "$folder" ] || return
    for file in "$folder"/*.json; do
        file=${file##*/}
        echo "${file%.json}"
    done
    for file in "${folder%/*}"/devices/*.json; do # "h100:", before a size
        file=${file##*/}
        echo "${file%.json}:"
    done
}

# Sizes and rates of the model on the command line, for --set.
_weft_sizes() { # _weft_sizes TOOL MODEL
    local folder file=$2
    case "$file" in
    *.json | *.json:*) file=${file%%.json*}.json ;;
    *)
        folder=$(_weft_share "$1" models)
        file=$folder/${file%%:*}.json
        ;;
    esac
    [ -r "$file" ] && command -v jq >/dev/null &&
        jq -r '(.sizes + .rates) | keys[] + "="' "$file" 2>/dev/null
}

_weft_files() { # _weft_files CURRENT [SUFFIX...]: files of these kinds, and folders
    local current=$1 suffix
    shift
    if [ $# -eq 0 ]; then
        compgen -f -- "$current"
        return
    fi
    compgen -d -- "$current"
    for suffix in "$@"; do
        compgen -f -X "!*$suffix" -- "$current"
    done
}

# What an option's argument may be, by its name and by what the help calls it.
_weft_argument() { # _weft_argument TOOL OPTION CURRENT MODEL
    local tool=$1 option=$2 current=$3 model=$4 line long argument last
    line=$(_weft_options "$tool" | grep -E -m 1 -- "^ ($option --|-[A-Za-z]* $option( |$))")
    read -r _ long argument _ <<<"$line"
    case "$tool$long" in
    *weft-search--from) _weft_files "$current" .json ;;
    *weft-profile-*--device) compgen -W 'cuda' -- "$current" ;;
    *--trace-ranks) compgen -W 'first all' -- "$current" ;;
    *--data | *--valid-data)
        last=${current##*,}
        if [ "$last" = "$current" ]; then
            compgen -W synthetic -- "$current"
        fi
        _weft_files "$last" | sed "s|^|${current%"$last"}|"
        ;;
    *--model)
        case "$current" in
        */* | .*) _weft_files "$current" .json ;;
        *)
            compgen -W "$(_weft_models "$tool")" -- "$current"
            _weft_files "$current" .json
            ;;
        esac
        ;;
    *--set)
        last=${current##*,}
        compgen -W "$(_weft_sizes "$tool" "$model")" -- "$last" | sed "s|^|${current%"$last"}|"
        ;;
    *--cluster)
        compgen -W "$(_weft_clusters "$tool")" -- "$current"
        _weft_files "$current" .json
        ;;
    *--profile) _weft_files "$current" .db ;;
    *--init) _weft_files "$current" .safetensors .index.json ;;
    *)
        case "$argument" in
        FILE | PLAN | ANSWER) _weft_files "$current" ;;
        DIR) compgen -d -- "$current" ;;
        LIST) _weft_list "$current" "$(_weft_words "$line")" ;;
        *) compgen -W "$(_weft_words "$line")" -- "$current" ;;
        esac
        ;;
    esac
}

_weft() {
    local tool=$1 line current previous="" word model="" option="" cut
    local -a words
    # Words as the program gets them: bash's own are cut at colons and equal signs.
    line=${COMP_LINE:0:COMP_POINT}
    read -r -a words <<<"$line"
    case "$line" in
    *[[:space:]]) current="" ;;
    *)
        current=${words[${#words[@]} - 1]}
        unset "words[${#words[@]}-1]"
        ;;
    esac
    for word in "${words[@]}"; do
        case "$previous" in -m | --model) model=$word ;; esac
        case "$word" in --model=*) model=${word#--model=} ;; esac
        previous=$word
    done

    # Does the word before want an argument?
    case "$previous" in
    --*=*) ;;
    -*)
        if _weft_options "$tool" |
            grep -qE -- "^ ($previous --[a-z0-9-]+|-[A-Za-z]* $previous) [A-Z]"; then
            option=$previous
        fi
        ;;
    esac
    cut=$current
    if [ -z "$option" ]; then
        case "$current" in
        --*=*)
            option=${current%%=*}
            cut=${current#*=}
            ;;
        esac
    fi

    COMPREPLY=()
    if [ -n "$option" ]; then
        mapfile -t COMPREPLY < <(_weft_argument "$tool" "$option" "$cut" "$model")
        case "$option" in
        --set) compopt -o nospace 2>/dev/null ;;
        -m | --model) ;;
        *) compopt -o filenames 2>/dev/null ;;
        esac
        [ "$cut" = "$current" ] || COMPREPLY=("${COMPREPLY[@]/#/$option=}")
    elif [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_weft_options "$tool" |
            sed -E 's/^ (- )?((-[A-Za-z] )?--[a-z0-9-]+).*/\2/')" -- "$current")
    elif [ "$tool" != "${tool%weft-solve}" ] && [ ${#words[@]} -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W 'layout partition stages joint' -- "$current")
    elif [ "$tool" != "${tool%weft-ckpt}" ] && [ ${#words[@]} -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W 'list export' -- "$current")
    elif [[ $tool == *weft-tokens && (${#words[@]} -gt 1 || "$line" == *" --train"*) ]]; then
        # behind its tokenizer, and where one is learned, texts
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        compopt -o filenames 2>/dev/null
    elif [[ $tool == *weft-ckpt || $tool == *weft-sample ]]; then
        mapfile -t COMPREPLY < <(_weft_files "$current" .safetensors)
        compopt -o filenames 2>/dev/null
    elif [[ $tool != *weft-search && $tool != *weft-profile-* ]]; then # those take none
        mapfile -t COMPREPLY < <(_weft_files "$current" .json)
        compopt -o filenames 2>/dev/null
    fi

    # Bash replaces what stands behind the last colon or equal sign only.
    for cut in : =; do
        if [[ $current == *"$cut"* && $COMP_WORDBREAKS == *"$cut"* ]]; then
            COMPREPLY=("${COMPREPLY[@]#"${current%"$cut"*}$cut"}")
        fi
    done
}

complete -F _weft weft-ckpt weft-import weft-keep weft-plan weft-predict weft-profile-comm weft-profile-fit weft-profile-op weft-run weft-sample weft-search \
    weft-solve weft-tokens

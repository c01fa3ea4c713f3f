#!/usr/bin/env bash
# Published instances of the solvers, as far as they take seconds: every one to its reference value.
# The data is not part of the repository: WEFT_DATA=DIR (make check WEFT_DATA=DIR) says where it is.
set -u
if [ ! -d "${WEFT_DATA:-}" ]; then
    echo "1..0 # SKIP WEFT_DATA=DIR is not given: no published instances here"
    exit 0
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for folder in alpa partition piper; do
    [ -d "$WEFT_DATA/$folder" ] && ln -s "$(cd "$WEFT_DATA/$folder" && pwd)" "$dir/$folder"
done
n=0
sh "$WEFT_ROOT/scripts/repro-solvers.sh" "$dir" "$WEFT_BIN" 60 >"$dir/table"
status=$?
# A row is good when the mark before its reference is "=" or "<".
while IFS= read -r line; do
    case "$line" in
    *" = "* | *" < "*) n=$((n + 1)) && echo "ok $n - ${line%%  *}" ;;
    *" > "* | *" ! "*) n=$((n + 1)) && echo "not ok $n - $line" ;;
    esac
done <"$dir/table"
n=$((n + 1))
[ "$status" -eq 0 ] && echo "ok $n - no solver failed" || echo "not ok $n - exit status $status"
echo "1..$n"
